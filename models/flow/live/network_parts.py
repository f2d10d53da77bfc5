"""What the live network is made of: vertices of tasks, jobs, machines and groups with their arcs, and the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from flowlex.formulations.arrays import Integers
from flowlex.formulations.sessions.network import NetworkSession
from flowlex.formulations.sessions.phased import PhasedSession
from flowlex.formulations.sessions.residual import ENDLESS
from flowlex.models.flow.goals.base import Spot

__all__ = ["UNBOUND", "GroupNode", "JobBounds", "JobNode", "MachineNode", "Owner", "Session", "Target", "TaskNode"]

#: Capacity of a job's waiting arc when nothing bounds it.
UNBOUND = ENDLESS

Target = str | Spot


#: What keeps the live network solved.
Session = NetworkSession | PhasedSession


class JobBounds(NamedTuple):
    """Bounds of a job's waiting tasks, and what each costs: ``must`` wait, ``free`` may, ``short`` more should not."""

    must: int
    free: int
    short: int
    wait_cost: int
    short_cost: int


@dataclass(slots=True)
class TaskNode:
    node: int
    job: str
    wait_arc: int
    wait_cost: int
    arcs: dict[Target, tuple[int, int]]
    target: Target | None = None  # where its unit goes, None when it waits
    machine: str | None = None
    held: bool = False  # its waiting arc leads to the gate of its job


@dataclass(slots=True, eq=False)
class GroupNode:
    spot: Spot
    node: int
    arcs: dict[str, int] = field(default_factory=dict)
    held: dict[str, dict[str, None]] = field(default_factory=dict)  # machine: its tasks, in order of arrival
    loose: dict[str, None] = field(default_factory=dict)
    spare: set[str] = field(default_factory=set)
    users: int = 0  # tasks with an arc to it

    @property
    def books(self) -> GroupNode:
        """The group that keeps the books of its tasks."""
        return self

    def units(self, machine: str, flow: Integers) -> int:
        """Tasks that it sends to a machine."""
        arc = self.arcs.get(machine)
        return 0 if arc is None else int(flow[arc])


@dataclass(slots=True)
class MachineNode:
    node: int
    slots: int
    arcs: list[tuple[int, int, int]]
    groups: dict[Spot, None] = field(default_factory=dict)


@dataclass(slots=True)
class JobNode:
    node: int
    bounds: JobBounds
    share_arc: int
    short_arc: int
    gate: tuple[int, int] | None = None  # node and arc through which held tasks stop
    passes: int = 0  # tasks that may


#: What an arc belongs to: a task, or a group and the machine it leads to.
Owner = str | tuple[GroupNode, str]
