"""A flow scheduler as of one moment, for readers on other threads.

A `View` copies the arrays of the network and the tables of names, a few milliseconds at 10 000 machines. Nothing in it
changes any more: questions are answered from it while events come and steps are made, and no decision depends on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.instances.flow import FlowJob
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.goals.base import ClusterView, Spot
from flowlex.models.flow.live.assignment import Owner
from flowlex.models.flow.live.frozen_state import FrozenState
from flowlex.models.flow.live.network_parts import Session, Target, TaskNode
from flowlex.models.flow.live.records import EventError, LiveTask
from flowlex.models.flow.live.residual_paths import Residual
from flowlex.models.flow.live.state import LiveState
from flowlex.models.flow.reasons import plain_reason

__all__ = ["HeldTask", "JobView", "View"]


class JobView(NamedTuple):
    """A job, its vertex, how many of its tasks must wait, when tasks of it were preempted, its gate (vertex, arc)."""

    job: FlowJob
    node: int
    must: int
    preempted: tuple[float, ...]
    gate: tuple[int, int] | None


class HeldTask(NamedTuple):
    """A task that may only stay or stop: the task, its arc to stay, and what placing it elsewhere costs."""

    task: LiveTask
    stay_arc: int
    moving: dict[Target, int]


@dataclass(frozen=True)
class View:
    """See the module.

    Attributes
    ----------
    number, now_s
        Of the last step.
    pending
        Events since then; the network knows them, the schedule does not.
    tasks
        Those that wait are copies; of others only ``task`` and ``job`` may be read, which never change.
    places
        Machine by running task.
    nodes
        Of tasks; only ``node`` and ``wait_arc`` may be read, which never change.
    heads
        Vertex by machine and by group.
    owners
        What each arc belongs to.
    known
        Reasons of tasks that rules or a whole solve keep waiting.
    frozen
        What a full solve needs, where rules or capacities are in force, so that the network is not all there is.
    """

    number: int
    now_s: float
    pending: int
    tasks: Mapping[str, LiveTask]
    places: Mapping[str, str]
    jobs: Mapping[str, JobView]
    nodes: Mapping[str, TaskNode]
    heads: Mapping[Target, int]
    owners: Sequence[Owner | None]
    held: Mapping[str, HeldTask]
    session: Session
    rules: Rules
    limit: int
    cluster: ClusterView
    known: Mapping[str, str]
    frozen: FrozenState | None

    @classmethod
    def of(
        cls, state: LiveState, *, number: int, pending: int, known: Mapping[str, str], frozen: FrozenState | None
    ) -> View:
        """Copy what readers may ask for."""
        network = state.network
        jobs = {
            name: JobView(live.job, its.node, its.bounds.must, tuple(live.preempted), its.gate)
            for (name, live), its in zip(state.jobs.items(), map(network.jobs.__getitem__, state.jobs), strict=True)
        }
        tasks, places = dict(state.tasks), dict[str, str]()
        for name, task in state.tasks.items():
            if task.machine is None:
                tasks[name] = copy(task)
            else:
                places[name] = task.machine
        held = {
            name: HeldTask(copy(task), next(iter(network.tasks[name].arcs.values()))[0], dict(task.moving or {}))
            for job in state.limits
            for name in state.jobs[job].tasks
            if (task := state.tasks[name]).held
        }
        heads: dict[Target, int] = {name: its.node for name, its in network.machines.items()}
        if held:
            heads |= {spot: group.node for spot, group in network.groups.items()}
        return cls(
            number,
            state.now_s,
            pending,
            tasks,
            places,
            jobs,
            dict(network.tasks),
            heads,
            network.owners(),
            held,
            deepcopy(state.session),
            state.rules,
            state.order.limit,
            state.frozen_cluster(),
            known,
            frozen,
        )

    # Places and reasons ----------------------------------------------------------------------------------------
    def task(self, name: str) -> LiveTask:
        """A task by name.

        Raises
        ------
        EventError
            No task has the name.
        """
        if name not in self.tasks:
            raise EventError(f"no task is named {name!r}; it may have finished or been cancelled")
        return self.tasks[name]

    def reason(self, name: str) -> str:
        """Why a task waits."""
        task = self.task(name)
        if name in self.known:
            return self.known[name]
        waiting = self.size[task.job] - self.running[task.job]
        used = self.rules.shares is not None and waiting <= self.jobs[task.job].must
        return plain_reason(self.rules, task, self.cluster, self._beside(name, task.apart), share_used=used)

    def _beside(self, name: str, apart: str) -> set[str]:
        """Machines that run a task which must not share a machine with this one."""
        if not apart:
            return set()
        return {at for other, at in self.places.items() if self.tasks[other].apart == apart and other != name}

    @cached_property
    def running(self) -> Counter[str]:
        """Running tasks by job."""
        return Counter(self.tasks[name].job for name in self.places)

    @cached_property
    def size(self) -> Counter[str]:
        """Tasks by job."""
        return Counter(task.job for task in self.tasks.values())

    # The network -----------------------------------------------------------------------------------------------
    @cached_property
    def solved(self) -> Session:
        """The network's optimum, with the events that have come since the last step."""
        self.session.solve()
        return self.session

    @cached_property
    def residual(self) -> Residual:
        """The residual network of that optimum."""
        return Residual.of(self.solved)

    @cached_property
    def place_of_node(self) -> dict[int, str | None]:
        """Machine of each vertex of a machine or a task."""
        found: dict[int, str | None] = {node: name for name, node in self.heads.items() if isinstance(name, str)}
        return found | {task.node: self.places.get(name) for name, task in self.nodes.items()}

    @cached_property
    def task_arrays(self) -> tuple[list[str], Integers, Integers]:
        """Names of all tasks, their vertices and the arcs by which they wait."""
        nodes = np.fromiter((task.node for task in self.nodes.values()), np.int64, len(self.nodes))
        arcs = np.fromiter((task.wait_arc for task in self.nodes.values()), np.int64, len(self.nodes))
        return list(self.nodes), nodes, arcs

    def without_limits(self) -> Session:
        """A copy of the optimum where held tasks may stop and move freely, solved."""
        session = deepcopy(self.solved)
        for job in {held.task.job for held in self.held.values()}:
            its = self.jobs[job]
            if its.gate is not None:
                session.change_arc(its.gate[1], its.gate[0], its.node, len(self.held), 0)
        for name, held in self.held.items():
            free = replace(held.task, held=False, limited=False)
            for target, cost in self.rules.staying(free, held.moving, self.cluster).items():
                if target in self.heads and not (target == free.machine or _is_at(target, free.machine)):
                    session.add_arc(self.nodes[name].node, self.heads[target], 1, cost)
        session.solve()
        return session


def _is_at(target: Target, machine: str | None) -> bool:
    return isinstance(target, Spot) and bool(target.once) and f"machine:{machine}" in target.has
