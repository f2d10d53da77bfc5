"""The live flow scheduler as a core: events of `flowlex.systems.scheduler.event_log`, decisions as plain documents."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from flowlex.formulations.solver_outcome import EngineError
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.goals import preset
from flowlex.models.model_base import ModelError
from flowlex.systems.scheduler.documents import Document, RefusedEvent, SlowAnswer, UnknownTask
from flowlex.systems.scheduler.event_log import EVENT
from flowlex.systems.scheduler.live.explain_waiting import Explanation
from flowlex.systems.scheduler.live.full_solve import priced
from flowlex.systems.scheduler.live.scheduler import FlowScheduler
from flowlex.systems.scheduler.live.snapshot import restored_scheduler, saved_scheduler
from flowlex.systems.scheduler.live.task_records import Decided, Delta, EventError

#: Limits of the two full solves for the cost in an explanation.
_MOST_TASKS = 5_000
_BOUNDS = {"time_limit_s": 10.0}
_INSTEAD = "; ask `flowlex explain` of a saved state, which takes its time"
_ANOTHER = "the service is finding the price of another explanation, one at a time; ask again in some seconds"


class ClusterCore:
    """See `flowlex.systems.scheduler.documents.Core`.

    ``scheduler``: where everything happens.
    """

    def __init__(self, scheduler: FlowScheduler) -> None:
        self.scheduler = scheduler

    @classmethod
    def continued(cls, options: Document, state: bytes | None) -> ClusterCore:
        """Continue from a snapshot, or (None) begin as the options of the first start say."""
        if state is not None:  # goals may have been switched since the first start
            return cls(restored_scheduler(state))
        kept: dict[str, Any] = {name: options[name] for name in ("cost_limit", "scale", "lexicographic")}
        if options.get("step_limit_s") is not None:
            kept["solver"] = {"time_limit_s": options["step_limit_s"]}
        cluster = FlowInstance.model_validate(options["cluster"] or {"name": "empty", "machines": ()})
        return cls(FlowScheduler(cluster, preset(options["goals"]), **kept))

    @property
    def pending(self) -> int:
        """Events since the last decision."""
        return self.scheduler.state.events

    @property
    def now_s(self) -> float:
        """Time of the last decision."""
        return self.scheduler.state.now_s

    def solve_ahead(self) -> None:
        """Solve the network after a step."""
        self.scheduler.state.solve_ahead()

    def foresee(self) -> None:
        """Explain a task, as explanations share their searches."""
        self.solve_ahead()
        waiting = (name for name, task in self.scheduler.state.tasks.items() if task.machine is None)
        if (first := next(waiting, None)) is not None:
            with suppress(EventError, EngineError):  # the next step may place it
                self.scheduler.explain(first, full_solves=False)

    def take(self, event: Document, at_s: float) -> None:
        """Pass an event to the scheduler."""
        read = EVENT.validate_python(event)
        try:
            self.scheduler.handle(read)
        except (EventError, ModelError) as error:
            raise RefusedEvent(str(error)) from error

    def decide(self, at_s: float) -> Document:
        """Step."""
        delta, solved = self.scheduler.step(max(at_s, self.now_s)), self.scheduler.state.decision
        return _document(delta) | ({"optimal": True} if solved is not None and solved.best else {})

    def redo(self, decision: Document, at_s: float) -> None:
        """Repeat a decision of the log: the same tasks are where they were after it."""
        self.scheduler.step(max(at_s, self.now_s), decided=_decided(decision))

    def facts(self) -> dict[str, float]:
        """Sizes, for Prometheus."""
        state = self.scheduler.state
        return {
            "machines": len(state.cluster.machines),
            "slots": state.slots,
            "jobs": len(state.jobs),
            "tasks_running": state.running,
            "tasks_waiting": len(state.tasks) - state.running,
            "steps": self.scheduler.steps,
        }

    def save(self) -> bytes:
        """Return the scheduler's state."""
        return saved_scheduler(self.scheduler)

    # Questions ------------------------------------------------------------------------------------------------
    def task(self, name: str) -> Document:
        """Return where a task runs, or why it waits."""
        task = self.scheduler.state.tasks.get(name)
        if task is None:
            raise UnknownTask(name)
        if task.machine is not None:
            return {"task": name, "job": task.job, "machine": task.machine}
        return {"task": name, "job": task.job, "reason": self.scheduler.reason(name)}

    def placements(self) -> Document:
        """Machine by running task."""
        return {"number": self.scheduler.steps, "places": self.scheduler.placements()}

    def nodes_of(self, tasks: Sequence[str]) -> dict[str, str]:
        """Return the machine of each of these tasks that runs."""
        found = ((name, self.scheduler.state.tasks.get(name)) for name in tasks)
        return {name: task.machine for name, task in found if task is not None and task.machine is not None}

    def explain(self, name: str) -> Explanation | SlowAnswer:
        """Explain why a task waits, and what would place it."""
        if name not in self.scheduler.state.tasks:
            raise UnknownTask(name)
        try:
            why = self.scheduler.explain(name, full_solves=False)
        except EventError as error:
            raise RefusedEvent(str(error)) from error
        if not why.unpriced:
            return why
        if (count := len(self.scheduler.state.tasks)) > _MOST_TASKS:
            said = f"the service finds prices of at most {_MOST_TASKS} tasks, here {count}{_INSTEAD}"
            return replace(why, unpriced=said)
        frozen = self.scheduler.frozen()
        frozen = replace(frozen, options={**frozen.options, "solver": {**frozen.options["solver"], **_BOUNDS}})
        return SlowAnswer(lambda: priced(why, frozen), replace(why, unpriced=_ANOTHER))


def _decided(decision: Document) -> Decided:
    places: dict[str, str | None] = dict(decision["placed"])
    places |= {task: machine for task, _, machine, _ in decision["moved"]}
    places |= dict.fromkeys(task for task, _, _ in decision["stopped"])
    whole, best = bool(decision.get("whole")), bool(decision.get("optimal"))
    return Decided(places, dict(decision["waiting"]), whole, best)


def _document(delta: Delta) -> Document:
    return {
        "number": delta.number,
        "placed": [list(each) for each in delta.placed],
        "moved": [list(each) for each in delta.moved],
        "stopped": [list(each) for each in delta.stopped],
        "waiting": [list(each) for each in delta.waiting],
        "running": delta.running,
        "waiting_count": delta.waiting_count,
        **({"whole": True} if delta.whole else {}),
    }
