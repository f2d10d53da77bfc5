"""Groups of all machines except some machines or racks, with one arc per block of machines.

See `flowlex.models.flow.machine_tree`. All groups that exclude parts of the same set of machines share one tree of
blocks and one roster, which assigns the flow that enters the tree to tasks, each on a machine where it may run.
"""

from __future__ import annotations

from collections.abc import Callable

from flowlex.formulations.program_arrays import Integers
from flowlex.models.flow.goal_interface import Spot
from flowlex.models.flow.machine_tree import Blocks, Path, outside
from flowlex.systems.scheduler.live.live_assignment import Roster
from flowlex.systems.scheduler.live.machine_groups import Group, Wiring
from flowlex.systems.scheduler.warm_network.residual_network import ENDLESS


class LiveBlocks(Blocks):
    """Blocks that machines also leave."""

    def remove(self, machine: str) -> list[tuple[Path, Path]]:
        """Remove a machine; return the removed arcs, innermost first."""
        path = self.paths.pop(machine)
        del self.names[path]
        gone = []
        for end in range(len(path), 0, -1):
            block, inner = path[: end - 1], path[:end]
            del self.children[block][inner]
            gone.append((block, inner))
            if self.children[block] or not block:
                break
            del self.children[block]
        return gone

    @staticmethod
    def entry(path: Path, holes: set[Path]) -> Path | None:
        """Return the member of the `cover` that contains a machine; None for an excluded machine."""
        cut = outside(holes)
        for end in range(1, len(path) + 1):
            if path[:end] in holes:
                return None
            if path[:end] not in cut:
                return path[:end]
        return None


class BlockTree:
    """Blocks of the machines of one spot, and the groups that enter them.

    ``spot``: the machines. ``wiring``: data shared with the network. ``fits``: whether a task may run on a machine.
    """

    def __init__(self, spot: Spot, wiring: Wiring, fits: Callable[[str, str], bool]) -> None:
        self.spot, self.wiring = spot, wiring
        self.roster = Roster(f"groups without some of {spot}", self._units, fits)
        self.blocks = LiveBlocks()
        self.groups: dict[Spot, ExclusionGroup] = {}
        self._node: dict[Path, int] = {}  # vertex of each block except the root, which has none
        self._step: dict[Path, int] = {}  # arc by the block or machine it leads to
        self._direct: dict[str, dict[int, None]] = {}  # arcs of groups straight to a machine
        for name in wiring.members(spot):
            self.add(name)

    def _units(self, machine: str, flow: Integers) -> int:
        step = self._step.get(self.blocks.paths[machine]) if machine in self.blocks.paths else None
        return sum(int(flow[k]) for k in self._direct.get(machine, ())) + (0 if step is None else int(flow[step]))

    def add(self, machine: str) -> None:
        """Add a machine of the spot to the blocks."""
        path, wiring = self.wiring.cluster.layout.path(machine), self.wiring
        for block, inner in self.blocks.add(machine, path):
            if not block:
                continue
            if block not in self._node:
                self._node[block] = wiring.new_node()
            head = wiring.machines[machine].node if inner == path else self._node[inner]
            owner = (self.roster, machine) if inner == path else None
            self._step[inner] = wiring.arcs.add(self._node[block], head, ENDLESS, 0, owner)
        for group in self.groups.values():
            entry = LiveBlocks.entry(path, group.holes)
            if entry is not None and entry not in group.entries:
                self.enter(group, entry)
        wiring.assignment.change(self.roster, machine)

    def remove(self, machine: str) -> None:
        """Remove a machine from the tree, with the blocks that become empty."""
        for _, inner in self.blocks.remove(machine):
            for group in self.groups.values():
                if inner in group.entries:
                    self.withdraw(group, inner, machine)
            if inner in self._step:
                self.wiring.arcs.drop(self._step.pop(inner))
            if inner in self._node:
                self.wiring.arcs.session.remove_node(self._node.pop(inner))
        self.wiring.assignment.lose(self.roster, machine)

    def machine_changed(self, machine: str) -> None:
        """Update the groups that exclude a machine or its rack after the machine was added or removed."""
        tag = f"machine:{machine}"
        for group in self.groups.values():
            if (tag in group.spot.lacks or group.leaves_racks_out) and group.holes != self.holes(group):
                self.update(group)

    def holes(self, group: ExclusionGroup) -> set[Path]:
        """Paths of the machines and racks that a group excludes."""
        return self.wiring.cluster.layout.holes(group.spot.lacks)

    def update(self, group: ExclusionGroup) -> None:
        """Make the arcs of a group match its present exclusions."""
        group.holes = self.holes(group)
        wanted = dict.fromkeys(self.blocks.cover(group.holes))
        for path in [path for path in group.entries if path not in wanted]:
            self.withdraw(group, path)
        for path in wanted:
            if path not in group.entries:
                self.enter(group, path)

    def enter(self, group: ExclusionGroup, path: Path) -> None:
        """Add the arc of a group to a block or machine."""
        name, wiring = self.blocks.names.get(path), self.wiring
        if name is None:
            group.entries[path] = wiring.arcs.add(group.node, self._node[path], ENDLESS, 0)
            return
        arc = wiring.arcs.add(group.node, wiring.machines[name].node, ENDLESS, 0, (self.roster, name))
        group.entries[path] = arc
        self._direct.setdefault(name, {})[arc] = None
        wiring.assignment.change(self.roster, name)

    def withdraw(self, group: ExclusionGroup, path: Path, gone: str | None = None) -> None:
        """Drop the arc of a group to a block or machine; ``gone``: the machine that was just removed."""
        arc = group.entries.pop(path)
        self.wiring.arcs.drop(arc)
        direct = gone is not None and arc in self._direct.get(gone, {})
        name = self.blocks.names.get(path) or (gone if direct else None)
        if name is not None:
            del self._direct[name][arc]
            if not self._direct[name]:
                del self._direct[name]
            self.wiring.assignment.change(self.roster, name)

    def dissolve(self) -> None:
        """Remove this tree; no group enters it."""
        for arc in self._step.values():
            self.wiring.arcs.drop(arc)
        for node in self._node.values():
            self.wiring.arcs.session.remove_node(node)
        self.wiring.assignment.close(self.roster)


class ExclusionGroup(Group):
    """All machines of a tree except some (its holes): one arc to each block or machine of a cover of the others."""

    def __init__(self, spot: Spot, tree: BlockTree) -> None:
        self.spot, self.tree, self.node = spot, tree, tree.wiring.new_node()
        self.roster = tree.roster
        self.holes: set[Path] = set()
        self.entries: dict[Path, int] = {}
        #: Whether it excludes whole racks.
        self.leaves_racks_out = any(tag.startswith("rack:") for tag in spot.lacks)
        tree.groups[spot] = self
        tree.wiring.enter(self)
        tree.update(self)

    def dissolve(self) -> None:
        """Remove this group; no task uses it."""
        for path in list(self.entries):
            self.tree.withdraw(self, path)
        self.tree.wiring.leave(self)
        del self.tree.groups[self.spot]
