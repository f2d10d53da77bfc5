"""The state of a cluster at one moment: what a full solve needs, and what other threads may read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, RunningOn
from flowlex.instances.group_rules import Affinity, Gang, TaskSpread
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.live.cluster_state import LiveState
from flowlex.models.flow.live.side_constraints import TieRule
from flowlex.models.flow.live.task_ages import elapsed_s
from flowlex.models.flow.model import FlowScheduling

__all__ = ["FrozenState"]

#: Fields of an instance that hold rules.
_KINDS: dict[str, type[TieRule]] = {"gangs": Gang, "spreads": TaskSpread, "affinities": Affinity}
#: A task, its machine and since when it runs there, and its explicit costs.
_Task = tuple[FlowTask, str | None, float, Mapping[str, float]]


@dataclass(frozen=True)
class FrozenState:
    """References to what never changes: cheap to take; the instance is built when it is asked for.

    Attributes
    ----------
    jobs
        Each job, when tasks of it were preempted, and its tasks.
    others
        Fields of the instance that are as they stand: name, machines, queues and rules.
    goals, options
        Of the scheduler.
    """

    now_s: float
    jobs: tuple[tuple[FlowJob, tuple[float, ...], tuple[_Task, ...]], ...]
    others: Mapping[str, Any]
    goals: tuple[Goal, ...]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, state: LiveState, options: Mapping[str, Any]) -> FrozenState:
        """The state as of now."""
        tasks = state.tasks
        jobs = tuple(
            (
                live.job,
                tuple(live.preempted),
                tuple((t.task, t.machine, t.started_s, t.costs) for t in map(tasks.__getitem__, live.tasks)),
            )
            for live in state.jobs.values()
        )
        rules = {name: state.side_constraints.of_kind(kind) for name, kind in _KINDS.items()}
        machines = tuple(state.cluster.machines.values())
        others = {"name": state.name, "machines": machines, "queues": state.queues, **rules}
        return cls(state.now_s, jobs, others, tuple(state.goals), dict(options))

    @property
    def running(self) -> dict[str, str]:
        """Machine by running task."""
        return {task.name: at for _, _, tasks in self.jobs for task, at, *_ in tasks if at is not None}

    @cached_property
    def instance(self) -> FlowInstance:
        """What runs where, for how long, and what waits."""
        known = {machine.name for machine in self.others["machines"]}
        jobs = (
            job.model_copy(
                update={
                    "tasks": tuple(self._task(*each, known) for each in tasks),
                    "preempted_s": tuple(elapsed_s(at, self.now_s) for at in preempted),
                }
            )
            for job, preempted, tasks in self.jobs
        )
        # Between a loss of slots and the next step a machine may hold more than it has, so nothing is checked here.
        return FlowInstance.model_construct(jobs=tuple(jobs), **self.others)

    def _task(
        self, task: FlowTask, machine: str | None, started_s: float, costs: Mapping[str, float], known: set[str]
    ) -> FlowTask:
        running = None
        if machine in known:
            running = RunningOn(machine=str(machine), elapsed_s=elapsed_s(started_s, self.now_s))
        data = tuple(
            block
            if known >= set(block.machines)
            else block.model_copy(update={"machines": tuple(m for m in block.machines if m in known)})
            for block in task.data
        )
        costs = {m: c for m, c in costs.items() if m in known}
        return task.model_copy(update={"running": running, "costs": costs, "data": data})

    @cached_property
    def model(self) -> FlowScheduling:
        """The model of the instance."""
        kept = {name: self.options[name] for name in ("wait_cost", "scale", "lexicographic")}
        return FlowScheduling(self.instance, goals=self.goals, **kept)
