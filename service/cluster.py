"""The live flow scheduler as a core: events of `flowlex.instances.events`, decisions as plain documents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from flowlex.instances import events as ev
from flowlex.instances.flow import FlowInstance
from flowlex.models.base import ModelError
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.live.explain import Explanation, explain_task
from flowlex.models.flow.live.full_solve import Decided
from flowlex.models.flow.live.scheduler import Delta, EventError, FlowScheduler
from flowlex.models.flow.live.snapshot import load_scheduler, save_scheduler
from flowlex.models.flow.live.view import View
from flowlex.service.price_process import priced_apart
from flowlex.service.scheduler_protocol import Document, RefusedEvent

__all__ = ["ClusterCore", "Reader"]

_ADAPTER: TypeAdapter[Any] = TypeAdapter(ev.Event)


class ClusterCore:
    """See `flowlex.service.scheduler_protocol.Core`.

    Parameters
    ----------
    scheduler
        Where everything happens.
    """

    def __init__(self, scheduler: FlowScheduler) -> None:
        self.scheduler = scheduler
        self.pending = 0
        self._differs = False  # whether a step made again decided otherwise than the log says

    @classmethod
    def load(
        cls,
        state: Path | None,
        goals: Sequence[Goal],
        cluster: FlowInstance | None,
        *,
        without: Collection[str] = (),
        **options: Any,
    ) -> ClusterCore:
        """Go on from a snapshot, or begin with a cluster."""
        if state is not None:  # goals may have been switched since the first start
            return cls(load_scheduler(state, without=without))
        return cls(FlowScheduler(cluster or FlowInstance(name="empty", machines=()), goals, **options))

    @property
    def now_s(self) -> float:
        """Time of the last decision."""
        return self.scheduler.state.now_s

    def take(self, event: Document, at_s: float) -> None:
        """Hand an event to the scheduler."""
        read = _ADAPTER.validate_python(event)
        try:
            self.scheduler.handle(read)
        except (EventError, ModelError) as error:
            raise RefusedEvent(str(error)) from error
        self.pending += 1

    def decide(self, at_s: float) -> Document:
        """Step."""
        delta = self.scheduler.step(max(at_s, self.now_s))
        self.pending = 0
        return _document(delta)

    def redo(self, decision: Document, at_s: float) -> None:
        """Step as then: among equal schedules the one of the log.

        What a whole solve decided is taken over from the log, as solving all again could take very long.
        """
        now_s, then = max(at_s, self.now_s), _decided(decision)
        if decision.get("whole"):
            delta = self.scheduler.step(now_s, decided=then)
        else:
            delta = self.scheduler.step(now_s, prefer=then.places)
        self.pending = 0
        self._differs |= _decided(_document(delta)).places != then.places

    def settle(self) -> Document | None:
        """Tell readers to read all placements anew where a step made again decided otherwise."""
        if not self._differs:
            return None
        self._differs = False
        state = self.scheduler.state
        nothing: Document = {"placed": [], "moved": [], "stopped": [], "waiting": [], "reread": True}
        counts = {"running": state.running, "waiting_count": len(state.tasks) - state.running}
        return {"number": self.scheduler.steps, **nothing, **counts}

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

    def save(self, path: Path) -> None:
        """Write the scheduler's state."""
        save_scheduler(self.scheduler, path)

    def view(self) -> Reader:
        """What readers may see."""
        return Reader(self.scheduler.view())


class Reader:
    """Questions about one moment, from any thread."""

    def __init__(self, view: View) -> None:
        self.view, self.number, self.places = view, view.number, view.places

    def __contains__(self, task: str) -> bool:
        return task in self.view.tasks

    def task(self, name: str) -> Document:
        """Where a task is, or why it waits; raises KeyError."""
        task, machine = self.view.tasks[name], self.places.get(name)
        reason = None if machine is not None else self.view.reason(name)
        return {"task": name, "job": task.job, "machine": machine, "reason": reason}

    def explain(self, name: str) -> Explanation:
        """Why a task waits, and what would place it; raises KeyError."""
        if name not in self:
            raise KeyError(name)
        try:
            return explain_task(self.view, name)
        except EventError as error:
            raise RefusedEvent(str(error)) from error

    def priced(self, why: Explanation) -> Explanation:
        """An explanation with its price, where rules or capacities make that a matter of whole solves."""
        return why if self.view.frozen is None else priced_apart(why, self.view.frozen)


def _decided(decision: Document) -> Decided:
    places: dict[str, str | None] = dict(decision["placed"])
    places |= {task: machine for task, _, machine, _ in decision["moved"]}
    places |= dict.fromkeys(task for task, _, _ in decision["stopped"])
    return Decided(places, dict(decision["waiting"]))


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
