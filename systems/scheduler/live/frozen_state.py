"""An immutable copy of a live cluster without its network: instance, clocks and schedule at one moment.

Full solves, other threads and state files use it. The network can be rebuilt from it. A rebuilt network may have
another optimum of equal cost, so the next step keeps the present schedule (see `equal_schedules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator, InstanceOf, TypeAdapter

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine, Queue, RunningOn
from flowlex.instances.group_rules import Affinity, Gang, TaskSpread, members_of
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.model import FlowScheduling
from flowlex.models.flow.preemption import HOUR_S
from flowlex.models.flow.task_rules import GroupRule
from flowlex.systems.scheduler.live.cluster_state import LiveState
from flowlex.systems.scheduler.live.task_ages import elapsed_s
from flowlex.systems.scheduler.live.task_records import FullSolve

#: Rules by kind, and the field of an instance that holds them.
_KINDS: dict[str, tuple[type[GroupRule], str]] = {
    "gang": (Gang, "gangs"),
    "spread": (TaskSpread, "spreads"),
    "affinity": (Affinity, "affinities"),
}


def _read(saved: tuple[str, Any]) -> tuple[str, GroupRule]:
    """Read a saved pair (kind, rule)."""
    return saved[0], _KINDS[saved[0]][0].model_validate(saved[1])


@dataclass(frozen=True)
class FrozenState:
    """Cheap to make, as it only refers to immutable objects; the instance is built on first access."""

    name: str
    now_s: float
    machines: tuple[Machine, ...]
    queues: tuple[Queue, ...]
    jobs: tuple[FlowJob, ...]  # with their present tasks and explicit costs
    preempted: Mapping[str, list[float]]  # by job, the times at which its tasks were preempted in the last hour
    # by running task, its machine (possibly removed since the last step) and its start time there
    places: Mapping[str, tuple[str, float]]
    # present rules as (kind, rule); some may refer to machines or racks that were removed
    rules: tuple[Annotated[tuple[str, GroupRule], BeforeValidator(_read)], ...]
    # as in `LiveState`
    fresh: tuple[str, ...]
    why: Mapping[str, str]
    steps: int
    events: int
    decision: FullSolve | None
    options: Mapping[str, Any]  # options of the scheduler
    goals: InstanceOf[tuple[Goal, ...]]
    unpriced: frozenset[str] = frozenset()  # as in `ArcCosts`; found again where a state is loaded

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
            frozenset(state.costs.unpriced),
        )

    def refill(self, state: LiveState, *, known: bool) -> None:
        """Load this into an empty state, without repeating the checks of events; ``known``: see `LiveState.put_job`."""
        state.now_s = self.now_s
        for machine in self.machines:
            state.put_machine(machine)
        for job in self.jobs:
            state.put_job(job, known=known)
            if job.name in self.preempted:
                state.preemptions.note(state.jobs[job.name], list(self.preempted[job.name]))
        for name, (at, started_s) in self.places.items():
            state.resume(name, at, started_s)
        state.side_constraints.tie(rule for _, rule in self.rules)
        state.fresh, state.why = dict.fromkeys(self.fresh), dict(self.why)
        state.steps, state.events, state.decision = self.steps, self.events, self.decision

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data, without the goals and the certificate of the decision."""
        found: dict[str, Any] = _ADAPTER.dump_python(
            self, mode="json", exclude={"goals": True, "unpriced": True, "decision": {"certificate"}}
        )
        return found | {"whole": found.pop("decision")}

    @classmethod
    def of_dict(cls, found: Mapping[str, Any], goals: tuple[Goal, ...]) -> FrozenState:
        """Make a frozen state from the data of `to_dict` and the goals."""
        found = {**found, "goals": goals, "decision": found["whole"]}
        names = (each.name for each in fields(cls) if each.name != "unpriced")
        return _ADAPTER.validate_python({name: found[name] for name in names})

    @cached_property
    def instance(self) -> FlowInstance:
        """The present state as an instance: machines, jobs, running and waiting tasks, and rules."""
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
        # No validation: after a loss of slots, a machine may run more tasks than it has slots until the next step.
        return FlowInstance.model_construct(
            name=self.name, machines=self.machines, jobs=jobs, queues=self.queues, **rules
        )

    def _task(self, task: FlowTask, known: set[str]) -> FlowTask:
        """Return a task without references to removed machines."""
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
        """The model of the instance, without the tasks that wait as they have no price, and their gangs."""
        kept = {name: self.options[name] for name in ("wait_cost", "scale", "lexicographic")}
        return FlowScheduling(self._priced() if self.unpriced else self.instance, goals=self.goals, **kept)

    def _priced(self) -> FlowInstance:
        tasks_of, waits = {job.name: [task.name for task in job.tasks] for job in self.jobs}, set(self.unpriced)
        for _, rule in self.rules:
            if isinstance(rule, Gang) and not waits.isdisjoint(members := members_of(rule, tasks_of)):
                waits |= set(members)
        jobs = {job.name: tuple(task for task in job.tasks if task.name not in waits) for job in self.instance.jobs}
        kept: dict[str, Any] = {
            "jobs": tuple(
                job.model_copy(update={"tasks": jobs[job.name]}) for job in self.instance.jobs if jobs[job.name]
            )
        }
        for kind, (_, field) in _KINDS.items():
            left = (
                rule.model_copy(
                    update={
                        "tasks": tuple(task for task in rule.tasks if task not in waits),
                        "jobs": tuple(job for job in rule.jobs if jobs[job]),
                    }
                )
                for each, rule in self.rules
                if each == kind
            )
            kept[field] = tuple(rule for rule in left if rule.tasks or rule.jobs)
        return self.instance.model_copy(update=kept)


_ADAPTER = TypeAdapter(FrozenState)
