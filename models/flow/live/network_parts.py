"""What the live network is made of: vertices of tasks, jobs and machines with their arcs, and the session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from flowlex.formulations.sessions.live_network import NetworkSession
from flowlex.formulations.sessions.residual_network import ENDLESS
from flowlex.formulations.sessions.staged_network import PhasedSession
from flowlex.models.flow.goals.goal_interface import Spot

__all__ = ["UNBOUND", "JobBounds", "JobNode", "Session", "Target", "TaskNode"]

#: Capacity of a job's waiting arc when nothing bounds it.
UNBOUND = ENDLESS

#: A machine by name, or a group of machines.
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
    """A task: its vertex, the arc by which it waits, and slot and cost of its arcs by target."""

    node: int
    job: str
    wait_arc: int
    wait_cost: int
    arcs: dict[Target, tuple[int, int]]
    target: Target | None = None  # where its unit goes, None when it waits
    machine: str | None = None
    held: bool = False  # its waiting arc leads to the gate of its job


@dataclass(slots=True)
class JobNode:
    """A job: its vertex, and the arcs by which its tasks wait."""

    node: int
    bounds: JobBounds
    share_arc: int
    short_arc: int
    gate: tuple[int, int] | None = None  # node and arc through which held tasks stop
    passes: int = 0  # tasks that may
