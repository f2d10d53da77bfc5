"""Groups of machines that tasks reach by one arc: a group has an arc to each of its machines.

Tasks that must run on different machines (`FlowJob.different_machines`) have their own groups (`Spot.once`), which
reach a machine by an arc of capacity 1. If several groups of one rule reach the same machine, their arcs lead through
a common vertex (the single file), whose arc to the machine has capacity 1. This is exact for all costs. It takes one
arc per group and machine, and one vertex per machine to which some of these tasks have their own arc (data, explicit
costs, or because they run there).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flowlex.formulations.program_arrays import Integers
from flowlex.models.flow.arc_costs import only_machine, single_file
from flowlex.models.flow.goal_interface import ClusterView, Spot
from flowlex.systems.scheduler.live.live_assignment import Arcs, Assignment, Roster


class Group:
    """A vertex between tasks and machines."""

    # the set of machines that it represents, and its vertex
    spot: Spot
    node: int
    roster: Roster  # assigns its tasks to machines
    users: int = 0  # number of tasks with an arc to it

    def reach(self, machine: str) -> None:
        """Add an arc to a new machine, if the group needs one."""

    def dissolve(self) -> None:
        """Remove the group; no task uses it."""
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
    """The state that groups and the network share."""

    cluster: ClusterView
    arcs: Arcs
    assignment: Assignment
    machines: dict[str, MachineNode] = field(default_factory=dict)
    groups: dict[Spot, Group] = field(default_factory=dict)

    def new_node(self) -> int:
        """Add a vertex."""
        return self.arcs.session.add_node()

    def enter(self, group: Group) -> None:
        """Register a group and its roster."""
        self.groups[group.spot] = group
        self.assignment.rosters[group.spot] = group.roster

    def leave(self, group: Group) -> None:
        """Remove a group and its vertex; its arcs must be removed already."""
        self.arcs.session.remove_node(group.node)
        del self.groups[group.spot], self.assignment.rosters[group.spot]

    def members(self, spot: Spot) -> list[str]:
        """The machines of a spot that are in the network."""
        return [name for name in self.cluster.members(spot) if name in self.machines]


class MachineGroup(Group):
    """The machines of a spot; the arc to each has the number of its slots as capacity."""

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
        """Add an arc to a new machine if it belongs to the spot."""
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
        """Change the capacity of the arc to a machine."""
        head = self.wiring.machines[machine].node
        self.wiring.arcs.session.change_arc(self.arcs[machine], self.node, head, slots, 0)
        self.wiring.assignment.change(self.roster, machine)

    def unlink(self, machine: str) -> None:
        """Remove the arc to a machine that leaves."""
        self.wiring.arcs.drop(self.arcs.pop(machine))
        self.wiring.assignment.lose(self.roster, machine)

    def dissolve(self) -> None:
        """Remove the group; no task uses it."""
        for machine, arc in self.arcs.items():
            self.wiring.arcs.drop(arc)
            del self.wiring.machines[machine].groups[self.spot]
        self.wiring.leave(self)
        self.wiring.assignment.close(self.roster)


class _SingleFileGroup(MachineGroup):
    """A group of tasks of a different-machines rule: a machine runs one task of all groups of the rule."""

    def __init__(self, spot: Spot, wiring: Wiring, file: SingleFile) -> None:
        self.file = file
        super().__init__(spot, wiring)
        self.roster.only = only_machine(spot)

    def link(self, machine: str) -> None:
        """Add the arc to a machine, through the single file's vertex if several groups reach the machine."""
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
        """Redirect the arc to a machine through its single file."""
        self.wiring.arcs.session.change_arc(self.arcs[machine], self.node, self._head(machine), 1, 0)

    def set_slots(self, machine: str, slots: int) -> None:
        """Do nothing: a machine takes one task of the rule, independent of its number of slots."""

    def unlink(self, machine: str) -> None:
        """Remove the arc to a machine that leaves."""
        super().unlink(machine)
        self.file.reach.pop((self.spot.once, machine), None)

    def dissolve(self) -> None:
        """Remove the group; no task uses it."""
        for machine in self.arcs:
            self.file.reach.pop((self.spot.once, machine), None)
        super().dissolve()


class SingleFile:
    """The groups of different-machines rules, by name of the rule."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self.groups: dict[str, list[_SingleFileGroup]] = {}
        #: Groups by (rule, machine) that they reach.
        self.reach: dict[tuple[str, str], dict[Spot, _SingleFileGroup]] = {}

    def group(self, spot: Spot) -> Group:
        """Make a new group for a spot."""
        made = _SingleFileGroup(spot, self._wiring, self)
        self.groups.setdefault(spot.once, []).append(made)
        return made

    def forget(self, once: str) -> None:
        """Remove the groups of a rule whose tasks are all removed."""
        for group in self.groups.pop(once, ()):
            group.dissolve()
