"""All that a living cluster is, without its network: instance, clocks and schedule at one moment.

Full solves, other threads and state files read it. The network is a function of it. A rebuilt network may have
another optimum of equal cost, so the next step keeps the schedule in force (see `equal_schedules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator, InstanceOf, TypeAdapter

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine, Queue, RunningOn
from flowlex.instances.group_rules import Affinity, Gang, TaskSpread
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.live.cluster_state import LiveState
from flowlex.models.flow.live.task_ages import elapsed_s
from flowlex.models.flow.live.task_records import FullSolve
from flowlex.models.flow.model import FlowScheduling
from flowlex.models.flow.preemption import HOUR_S
from flowlex.models.flow.task_rules import GroupRule

__all__ = ["FrozenState"]

#: Rules by kind, and the field of an instance that holds them.
_KINDS: dict[str, tuple[type[GroupRule], str]] = {
    "gang": (Gang, "gangs"),
    "spread": (TaskSpread, "spreads"),
    "affinity": (Affinity, "affinities"),
}


def _read(saved: tuple[str, Any]) -> tuple[str, GroupRule]:
    """A rule of the kind that stands before it."""
    return saved[0], _KINDS[saved[0]][0].model_validate(saved[1])


@dataclass(frozen=True)
class FrozenState:
    """References to what never changes: cheap to take; the instance is built when it is asked for."""

    name: str
    now_s: float
    machines: tuple[Machine, ...]
    queues: tuple[Queue, ...]
    jobs: tuple[FlowJob, ...]  # with the tasks and explicit costs that they have now
    preempted: Mapping[str, list[float]]  # by job, when tasks of it were preempted in the last hour
    # By running task, its machine (which may be gone since the last step) and since when it runs there
    places: Mapping[str, tuple[str, float]]
    # In force by kind, some perhaps about places that are gone
    rules: tuple[Annotated[tuple[str, GroupRule], BeforeValidator(_read)], ...]
    # As in `LiveState`
    fresh: tuple[str, ...]
    why: Mapping[str, str]
    steps: int
    events: int
    decision: FullSolve | None
    options: Mapping[str, Any]  # of the scheduler
    goals: InstanceOf[tuple[Goal, ...]]

    @classmethod
    def of(cls, state: LiveState) -> FrozenState:
        """The state as of now."""
        tasks, now_s = state.tasks, state.now_s
        present = ((live.job, tuple(tasks[name].task for name in live.tasks)) for live in state.jobs.values())
        recent = (
            (name, [at for at in live.preempted if elapsed_s(at, now_s) < HOUR_S]) for name, live in state.jobs.items()
        )
        return cls(
            state.name,
            now_s,
            tuple(state.cluster.machines.values()),
            state.queues,
            tuple(job.model_copy(update={"tasks": those}) for job, those in present),
            {name: times for name, times in recent if times},
            {name: (task.machine, task.started_s) for name, task in tasks.items() if task.machine is not None},
            tuple((kind, rule) for (kind, _), rule in state.side_constraints.rules.items()),
            tuple(state.fresh),
            dict(state.why),
            state.steps,
            state.events,
            state.decision,
            state.options,
            state.goals,
        )

    def refill(self, state: LiveState) -> None:
        """Bring an empty state there; nothing is checked that events did not check."""
        state.now_s = self.now_s
        for machine in self.machines:
            state.put_machine(machine)
        for job in self.jobs:
            state.put_job(job)
            if job.name in self.preempted:
                state.preemptions.note(state.jobs[job.name], list(self.preempted[job.name]))
        for name, (at, started_s) in self.places.items():
            state.resume(name, at, started_s)
        state.side_constraints.tie((rule for _, rule in self.rules), known=True)
        state.fresh, state.why = dict.fromkeys(self.fresh), dict(self.why)
        state.steps, state.events, state.decision = self.steps, self.events, self.decision

    def to_dict(self) -> dict[str, Any]:
        """For a file, without the goals and the certificate of the step."""
        found: dict[str, Any] = _ADAPTER.dump_python(
            self, mode="json", exclude={"goals": True, "decision": {"certificate"}}
        )
        return found | {"whole": found.pop("decision")}

    @classmethod
    def of_dict(cls, found: Mapping[str, Any], goals: tuple[Goal, ...]) -> FrozenState:
        """What `to_dict` gave, from a file."""
        found = {**found, "goals": goals, "decision": found["whole"]}
        return _ADAPTER.validate_python({each.name: found[each.name] for each in fields(cls)})

    @cached_property
    def instance(self) -> FlowInstance:
        """What runs where, for how long, and what waits."""
        known = {machine.name for machine in self.machines}
        jobs = tuple(
            job.model_copy(
                update={
                    "tasks": tuple(self._task(task, known) for task in job.tasks),
                    "preempted_s": tuple(elapsed_s(at, self.now_s) for at in self.preempted.get(job.name, ())),
                }
            )
            for job in self.jobs
        )
        rules: dict[str, Any] = {
            name: tuple(rule for each, rule in self.rules if each == kind) for kind, (_, name) in _KINDS.items()
        }
        # Between a loss of slots and the next step a machine may hold more than it has, so nothing is checked here.
        return FlowInstance.model_construct(
            name=self.name, machines=self.machines, jobs=jobs, queues=self.queues, **rules
        )

    def _task(self, task: FlowTask, known: set[str]) -> FlowTask:
        """A task with the machines that are still there."""
        at, started_s = self.places.get(task.name, ("", 0.0))
        running = RunningOn(machine=at, elapsed_s=elapsed_s(started_s, self.now_s)) if at in known else None
        data = tuple(
            block
            if known >= set(block.machines)
            else block.model_copy(update={"machines": tuple(m for m in block.machines if m in known)})
            for block in task.data
        )
        costs = {m: c for m, c in task.costs.items() if m in known}
        return task.model_copy(update={"running": running, "costs": costs, "data": data})

    @cached_property
    def model(self) -> FlowScheduling:
        """The model of the instance."""
        kept = {name: self.options[name] for name in ("wait_cost", "scale", "lexicographic")}
        return FlowScheduling(self.instance, goals=self.goals, **kept)


_ADAPTER = TypeAdapter(FrozenState)
