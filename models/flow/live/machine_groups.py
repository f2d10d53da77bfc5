"""Groups of machines that tasks reach by one arc: a group has an arc to each of its machines.

Tasks that must run on different machines (`FlowJob.different_machines`) have groups of their own (`Spot.once`), which
reach a machine by an arc of capacity 1. As soon as two groups with one name reach the same machine, a vertex goes
between, so that all pass it in single file. This is exact, whatever each task costs on each machine; it takes an arc
per group and machine of the cluster, and a vertex per machine that some of the tasks reach by an arc of their own
(data, explicit costs, or because they run there).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flowlex.formulations.program_arrays import Integers
from flowlex.models.flow.arc_costs import only_machine, single_file
from flowlex.models.flow.goals.goal_interface import ClusterView, Spot
from flowlex.models.flow.live.live_assignment import Arcs, Assignment, Roster

__all__ = ["Group", "MachineGroup", "MachineNode", "SingleFile", "Wiring"]


class Group:
    """What tasks may have an arc to: a vertex whose units go on to machines."""

    # What it stands for, and its vertex
    spot: Spot
    node: int
    roster: Roster  # which of its tasks run on which machine
    users: int = 0  # tasks with an arc to it

    def reach(self, machine: str) -> None:
        """Let it reach a machine that has come."""

    def dissolve(self) -> None:
        """Take it out; no task uses it."""
        raise NotImplementedError


@dataclass(slots=True)
class MachineNode:
    """A machine: its vertex, its arcs to the sink (slot, capacity, cost), and the groups with an arc to it."""

    node: int
    slots: int
    arcs: list[tuple[int, int, int]]
    groups: dict[Spot, MachineGroup] = field(default_factory=dict)


@dataclass(frozen=True)
class Wiring:
    """What groups and the network share."""

    cluster: ClusterView
    arcs: Arcs
    assignment: Assignment
    machines: dict[str, MachineNode] = field(default_factory=dict)
    groups: dict[Spot, Group] = field(default_factory=dict)

    def new_node(self) -> int:
        """A vertex."""
        return self.arcs.session.add_node()

    def enter(self, group: Group) -> None:
        """Make a group known."""
        self.groups[group.spot] = group
        self.assignment.rosters[group.spot] = group.roster

    def leave(self, group: Group) -> None:
        """Forget a group and remove its vertex; its arcs are gone."""
        self.arcs.session.remove_node(group.node)
        del self.groups[group.spot], self.assignment.rosters[group.spot]

    def members(self, spot: Spot) -> list[str]:
        """The machines of a spot that are in the network."""
        return [name for name in self.cluster.members(spot) if name in self.machines]


class MachineGroup(Group):
    """The machines of a spot, each reached by an arc as wide as its slots."""

    def __init__(self, spot: Spot, wiring: Wiring) -> None:
        self.spot, self.node, self.wiring = spot, wiring.new_node(), wiring
        self.arcs: dict[str, int] = {}
        self.roster = Roster(f"group {spot}", self._units)
        wiring.enter(self)
        for name in wiring.members(spot):
            self.link(name)

    def _units(self, machine: str, flow: Integers) -> int:
        arc = self.arcs.get(machine)
        return 0 if arc is None else int(flow[arc])

    def reach(self, machine: str) -> None:
        """Let it reach a machine that has come, if that is of its spot."""
        if machine not in self.arcs and self.wiring.cluster.meets(machine, self.spot):
            self.link(machine)

    def link(self, machine: str) -> None:
        """Add the arc to a machine."""
        its = self.wiring.machines[machine]
        self._join(machine, its.node, its.slots)

    def _join(self, machine: str, head: int, capacity: int) -> None:
        self.arcs[machine] = self.wiring.arcs.add(self.node, head, capacity, 0, (self.roster, machine))
        self.wiring.machines[machine].groups[self.spot] = self
        self.wiring.assignment.change(self.roster, machine)

    def set_slots(self, machine: str, slots: int) -> None:
        """Give the arc to a machine another capacity."""
        head = self.wiring.machines[machine].node
        self.wiring.arcs.session.change_arc(self.arcs[machine], self.node, head, slots, 0)
        self.wiring.assignment.change(self.roster, machine)

    def unlink(self, machine: str) -> None:
        """Drop the arc to a machine that goes."""
        self.wiring.arcs.drop(self.arcs.pop(machine))
        self.wiring.assignment.lose(self.roster, machine)

    def dissolve(self) -> None:
        """Take it out; no task uses it."""
        for machine, arc in self.arcs.items():
            self.wiring.arcs.drop(arc)
            del self.wiring.machines[machine].groups[self.spot]
        self.wiring.leave(self)
        self.wiring.assignment.close(self.roster)


class _SingleFileGroup(MachineGroup):
    """A group of tasks that keep apart: a machine takes one of them, in single file with the groups of their name."""

    def __init__(self, spot: Spot, wiring: Wiring, file: SingleFile) -> None:
        self.file = file
        super().__init__(spot, wiring)
        self.roster.only = only_machine(spot)

    def link(self, machine: str) -> None:
        """Add the arc to a machine, through the vertex of its single file where several groups reach it."""
        single = single_file(machine, self.spot.once)
        others = self.file.reach.setdefault((self.spot.once, machine), {})
        if others and self.spot != single and single not in self.wiring.groups:
            self.file.group(single)
        self._join(machine, self._head(machine), 1)
        if self.spot == single:
            for other in others.values():
                other.route(machine)
        others[self.spot] = self

    def _head(self, machine: str) -> int:
        single = single_file(machine, self.spot.once)
        through = None if self.spot == single else self.wiring.groups.get(single)
        return self.wiring.machines[machine].node if through is None else through.node

    def route(self, machine: str) -> None:
        """Lead the arc to a machine through its single file."""
        self.wiring.arcs.session.change_arc(self.arcs[machine], self.node, self._head(machine), 1, 0)

    def set_slots(self, machine: str, slots: int) -> None:
        """A machine takes one of its tasks, however many slots it has."""

    def unlink(self, machine: str) -> None:
        """Drop the arc to a machine that goes."""
        super().unlink(machine)
        self.file.reach.pop((self.spot.once, machine), None)

    def dissolve(self) -> None:
        """Take it out; no task uses it."""
        for machine in self.arcs:
            self.file.reach.pop((self.spot.once, machine), None)
        super().dissolve()


class SingleFile:
    """The groups of tasks that keep apart, by the name of their rule."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self.groups: dict[str, list[_SingleFileGroup]] = {}
        #: Groups by the name of their rule and a machine that they reach.
        self.reach: dict[tuple[str, str], dict[Spot, _SingleFileGroup]] = {}

    def group(self, spot: Spot) -> Group:
        """A new group."""
        made = _SingleFileGroup(spot, self._wiring, self)
        self.groups.setdefault(spot.once, []).append(made)
        return made

    def forget(self, once: str) -> None:
        """Drop the groups of a name whose tasks are all out."""
        for group in self.groups.pop(once, ()):
            group.dissolve()
