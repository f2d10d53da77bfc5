"""The live network with groups that leave machines or racks out, by an arc per block.

See `flowlex.models.flow.machine_tree`. All groups that leave something out of the same machines share one tree of
blocks and one assignment: what enters the tree is handed out by machine, each task where it may run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from flowlex.formulations.arrays import Integers
from flowlex.formulations.sessions.residual import ENDLESS
from flowlex.models.flow.exclusion_groups import base_of, hand_out
from flowlex.models.flow.goals.base import ClusterView, Spot
from flowlex.models.flow.live.network import LiveNetwork
from flowlex.models.flow.live.network_parts import GroupNode, Session
from flowlex.models.flow.machine_tree import Blocks, Path

__all__ = ["AllButNetwork"]


@dataclass(slots=True, eq=False)
class _Tree(GroupNode):
    """Blocks of the machines of one spot; the arcs to machines are those from the innermost blocks."""

    blocks: Blocks = field(default_factory=Blocks)
    nodes: dict[Path, int] = field(default_factory=dict)
    steps: dict[Path, int] = field(default_factory=dict)  # arc by the block or machine it leads to
    direct: dict[str, dict[int, None]] = field(default_factory=dict)  # arcs of groups straight to a machine
    holed: dict[Spot, _AllBut] = field(default_factory=dict)

    def units(self, machine: str, flow: Integers) -> int:
        """Tasks that it sends to a machine."""
        arc = self.arcs.get(machine)
        return sum(int(flow[k]) for k in self.direct.get(machine, ())) + (0 if arc is None else int(flow[arc]))


@dataclass(slots=True, eq=False)
class _AllBut(GroupNode):
    """A group with an arc to each block, or machine, of a cover of all but its holes."""

    tree: _Tree | None = None
    holes: set[Path] = field(default_factory=set)
    entries: dict[Path, int] = field(default_factory=dict)

    @property
    def racks(self) -> bool:
        """Whether it leaves whole racks out."""
        return any(tag.startswith("rack:") for tag in self.spot.lacks)

    @property
    def books(self) -> GroupNode:
        """Those of its tree."""
        assert self.tree is not None
        return self.tree


class AllButNetwork(LiveNetwork):
    """Groups that leave machines or racks out enter the blocks beside them."""

    def __init__(self, session: Session, cluster: ClusterView) -> None:
        super().__init__(session, cluster)
        self.trees: dict[Spot, _Tree] = {}

    def add_machine(self, name: str, slot_costs: list[tuple[int, int]]) -> None:
        """Add a machine that the cluster knows already; groups that it belongs to reach it."""
        super().add_machine(name, slot_costs)
        for tree in self.trees.values():
            if self.cluster.meets(name, tree.spot):
                self._plant(tree, name)
            self._mend(tree, name)

    def remove_machine(self, name: str) -> None:
        """Take a machine out; tasks must not have arcs of their own to it any more."""
        for tree in self.trees.values():
            if name in tree.blocks.paths:
                self._uproot(tree, name)
            self._mend(tree, name)
        super().remove_machine(name)

    def _group(self, spot: Spot) -> GroupNode:
        base = base_of(spot)
        if base is None or spot in self.groups:
            return super()._group(spot)
        tree = self.trees.get(base)
        if tree is None:
            tree = self.trees[base] = _Tree(base, -1)
            for name in self.cluster.members(base):
                if name in self.machines:
                    self._plant(tree, name)
        group = self.groups[spot] = tree.holed[spot] = _AllBut(spot, self.session.add_node(), tree=tree)
        self._enter(group)
        return group

    def _dissolve(self, group: GroupNode) -> None:
        if not isinstance(group, _AllBut):
            super()._dissolve(group)
            return
        tree = group.tree
        assert tree is not None
        for path in list(group.entries):
            self._leave_block(tree, group, path)
        self.session.remove_node(group.node)
        del tree.holed[group.spot]
        if not tree.holed:
            for arc in tree.steps.values():
                self._drop_arc(arc)
            for node in tree.nodes.values():
                self.session.remove_node(node)
            self._stirred.pop(tree, None)
            del self.trees[tree.spot]

    # Blocks ----------------------------------------------------------------------------------------------------
    def _plant(self, tree: _Tree, name: str) -> None:
        """Let the blocks reach a machine."""
        path = self.cluster.layout.path(name)
        for block, inner in tree.blocks.add(name, path):
            if not block:
                continue  # groups enter the largest blocks themselves
            if block not in tree.nodes:
                tree.nodes[block] = self.session.add_node()
            head = self.machines[name].node if inner == path else tree.nodes[inner]
            owner = (tree, name) if inner == path else None
            tree.steps[inner] = self._new_arc(tree.nodes[block], head, ENDLESS, 0, owner)
        tree.arcs[name] = tree.steps[path]
        for group in tree.holed.values():
            entry = Blocks.entry(path, group.holes)
            if entry is not None and entry not in group.entries:
                self._enter_block(tree, group, entry)
        self._spare(tree, name)

    def _uproot(self, tree: _Tree, name: str) -> None:
        """Take a machine out of the blocks, with those that are empty then."""
        del tree.arcs[name]
        for _, inner in tree.blocks.remove(name):
            for group in tree.holed.values():
                if inner in group.entries:
                    self._leave_block(tree, group, inner, name)
            if inner in tree.steps:
                self._drop_arc(tree.steps.pop(inner))
            if inner in tree.nodes:
                self.session.remove_node(tree.nodes.pop(inner))
        tree.loose.update(tree.held.pop(name, {}))
        tree.spare.discard(name)
        self._stirred[tree] = None

    def _mend(self, tree: _Tree, name: str) -> None:
        """A machine, and perhaps its rack, has come or gone: groups that leave it out enter other blocks."""
        tag = f"machine:{name}"
        for group in tree.holed.values():
            if (tag in group.spot.lacks or group.racks) and group.holes != self._holes(group):
                self._enter(group)

    def _holes(self, group: _AllBut) -> set[Path]:
        return self.cluster.layout.holes(group.spot.lacks)

    def _enter(self, group: _AllBut) -> None:
        """Give a group the arcs that it should have."""
        tree = group.tree
        assert tree is not None
        group.holes = self._holes(group)
        wanted = dict.fromkeys(tree.blocks.cover(group.holes))
        for path in [path for path in group.entries if path not in wanted]:
            self._leave_block(tree, group, path)
        for path in wanted:
            if path not in group.entries:
                self._enter_block(tree, group, path)

    def _enter_block(self, tree: _Tree, group: _AllBut, path: Path) -> None:
        name = tree.blocks.names.get(path)
        if name is None:
            group.entries[path] = self._new_arc(group.node, tree.nodes[path], ENDLESS, 0, None)
            return
        arc = group.entries[path] = self._new_arc(group.node, self.machines[name].node, ENDLESS, 0, (tree, name))
        tree.direct.setdefault(name, {})[arc] = None
        self._spare(tree, name)

    def _leave_block(self, tree: _Tree, group: _AllBut, path: Path, gone: str | None = None) -> None:
        """Drop the arc of a group to a block or machine; ``gone``: the machine that has left the tree just now."""
        arc = group.entries.pop(path)
        self._drop_arc(arc)
        name = tree.blocks.names.get(path) or (gone if gone is not None and arc in tree.direct.get(gone, {}) else None)
        if name is not None:
            del tree.direct[name][arc]
            if not tree.direct[name]:
                del tree.direct[name]
            self._spare(tree, name)

    # Answers ---------------------------------------------------------------------------------------------------
    def _fits(self, name: str, machine: str) -> bool:
        target = self.tasks[name].target
        return isinstance(target, Spot) and self.cluster.meets(machine, target)

    def _suits(self, group: GroupNode, name: str, machine: str) -> bool:
        return not isinstance(group, _Tree) or self._fits(name, machine)

    def _spread(
        self, group: GroupNode, rest: Iterable[str], room: dict[str, int], before: dict[str, str | None]
    ) -> None:
        """Hand out what is left: each task to a machine that it does not leave out."""
        rest = list(rest)
        if not isinstance(group, _Tree):
            super()._spread(group, rest, room, before)
            return
        for name, machine in hand_out(rest, room, group.held, self._fits).items():
            before.setdefault(name, self.tasks[name].machine)
            held = group.held.get(str(self.tasks[name].machine), {})
            held.pop(name, None)
            self._hold(group, machine, name)
