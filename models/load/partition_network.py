"""The flow network of load partition: groups of items, their holders, and the nodes that process them.

An item goes from its group to a holder. Then it stays there, moves to another node along a link, or moves through
``usual`` at the default cost: one arc per node instead of one per pair. A holder with a link that costs more than the
default has an arc to every node instead, so that no path is cheaper than that link.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from flowlex.formulations.common_denominator import InUnits, common_unit
from flowlex.formulations.engines.exact_integers import exact_potentials
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.network_builder import NetworkBuilder
from flowlex.formulations.program_arrays import Booleans, Integers
from flowlex.formulations.solver_outcome import EngineError
from flowlex.instances.load import LoadPartitionArrays, LoadPartitionInstance

#: Upper bound on the cost of any path of the network, so that no engine overflows 64 bits.
_LONGEST_PATH = 2**59
#: Largest cost that floating-point engines represent exactly.
_FLOATS = 2**53 - 1


@dataclass(frozen=True, eq=False)
class HolderGroups:
    """Groups of items with equal holders: group of each block (B,), first block (K,), holders (K, N), items (K,)."""

    of_block: Integers
    first: Integers
    holds: Booleans
    items: Integers

    @classmethod
    def of(cls, view: LoadPartitionArrays, *, replicas: bool) -> HolderGroups:
        """Group blocks by their holders, or by their first node if replicas are not used."""
        if replicas:
            # View rows as byte strings: sorting these is a hundred times faster than sorting rows of an array.
            packed = np.ascontiguousarray(np.packbits(view.holds, axis=1))
            rows = packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)
            _, first, group = np.unique(rows, return_index=True, return_inverse=True)
            holds = view.holds[first]
        else:
            home, first, group = np.unique(view.home, return_index=True, return_inverse=True)
            holds = home[:, None] == np.arange(view.holds.shape[1])
        items = np.zeros(len(holds), np.int64)
        np.add.at(items, group.reshape(-1), view.count)
        return cls(group.reshape(-1), first, holds, items)


@dataclass(frozen=True, eq=False)
class PartitionNetwork:
    """The network, and the meaning of its arcs."""

    network: FlowNetwork
    groups: HolderGroups
    # possible arc costs: integers for the engines, and exact; the integers are rounded if no common unit fits into 64
    # bits
    units: InUnits
    seconds: tuple[Fraction, ...]
    cost: Integers  # (A,) index in ``seconds`` of the cost of every arc
    take: tuple[Integers, Integers]  # group and holder of every arc ``take``
    link: tuple[Integers, Integers]  # source and target of every arc ``link``
    # nodes of the arcs ``send`` and ``receive``
    senders: Integers
    receivers: Integers

    def prices(self, flow: Integers, duals: Integers) -> tuple[bool, list[Fraction]]:
        """Return whether duals prove the flow optimal for the exact costs, and the duals of all nodes in seconds."""
        unit = self.units.unit
        if self.units.exact:
            return True, [unit * price for price in duals.tolist()]
        per_s = math.lcm(*(each.denominator for each in self.seconds))
        exact = np.array([int(each * per_s) for each in self.seconds], object)[self.cost]
        start = np.array([round(price * unit * per_s) for price in duals.tolist()], object)
        try:
            found = exact_potentials(self.network, flow, start, exact)
        except EngineError:  # not optimal for the exact costs
            return False, [unit * price for price in duals.tolist()]
        return True, [Fraction(price, per_s) for price in found.tolist()]

    def parts(self, flow: Integers, count: Integers) -> tuple[Integers, Integers, Integers]:
        """Decompose a flow: block, node and items of each part; ``count``, (B,), are the items of each block."""
        arcs = self.network.split_arcs(flow)
        sent, received, usual = _matched(arcs["send"], arcs["receive"])
        nodes = np.arange(self.groups.holds.shape[1])
        source = np.concatenate([nodes, self.link[0], self.senders[sent]])
        target = np.concatenate([nodes, self.link[1], self.receivers[received]])
        leaving = np.concatenate([arcs["stay"], arcs["link"], usual])
        by_source = np.lexsort((target, target != source, source))
        group, holder = self.take
        by_holder = np.lexsort((group, holder))
        came, left, amount = _matched(arcs["take"][by_holder], leaving[by_source])
        group, node = group[by_holder][came], target[by_source][left]
        by_group = np.lexsort((node, group))
        blocks = np.argsort(self.groups.of_block, kind="stable")
        block, part, items = _matched(count[blocks], amount[by_group])
        return summed(blocks[block], node[by_group][part], items)


def _matched(one: Integers, other: Integers) -> tuple[Integers, Integers, Integers]:
    """Match two lists of amounts with equal sums in order: index in each list, and amount of each match."""
    first, second = np.cumsum(one), np.cumsum(other)
    ends = np.union1d(first, second)
    ends = ends[ends > 0]
    return np.searchsorted(first, ends), np.searchsorted(second, ends), np.diff(ends, prepend=0)


def summed(block: Integers, node: Integers, items: Integers) -> tuple[Integers, Integers, Integers]:
    """Sum items by block and node; sorted by both."""
    pairs, place = np.unique(np.stack([block, node], axis=1), axis=0, return_inverse=True)
    total = np.zeros(len(pairs), np.int64)
    np.add.at(total, place.reshape(-1), items)
    return pairs[:, 0], pairs[:, 1], total


def build_network(
    instance: LoadPartitionInstance,
    groups: HolderGroups,
    targets: Integers,
    most: Integers | None,
    *,
    one_way: bool,
    rows: Collection[str],
) -> PartitionNetwork:
    """Build the network.

    ``targets``: (N,) items that each node must process, unless ``most`` is given. ``most``: (N,) upper bounds on the
    items of each node. ``one_way``: nodes above their target only send, the others only receive (the paper's problem).
    ``rows``: names of the model's equations.
    """
    view, size = instance.arrays, len(instance.nodes)
    sends, receives = sending_nodes(view, targets if one_way else None)
    expensive: Booleans = np.any(view.cost > view.usual, axis=1)
    linked = sends[:, None] & receives & (expensive[:, None] | (view.cost < view.usual)) & ~np.eye(size, dtype=bool)
    source, target = np.nonzero(linked)
    senders, receivers = np.flatnonzero(sends & ~expensive), np.flatnonzero(receives)
    group, holder = np.nonzero(groups.holds)
    limit = min(_FLOATS, _LONGEST_PATH // (len(groups.items) + 2 * size + 2))
    units = common_unit(view.seconds, limit=limit)

    names = np.array([node.name for node in instance.nodes], object)
    net = NetworkBuilder(instance.name, rows=rows)
    blocks = [instance.blocks[b].name for b in groups.first.tolist()]  # name groups by their first block
    of_group = net.nodes("group", len(groups.items), supply=groups.items, labels=blocks)
    of_holder = net.nodes("holder", size, labels=names)
    usual = net.nodes("usual", 1)
    of_node = net.nodes("node", size, supply=0 if most is not None else -targets, labels=names)
    net.arcs("take", of_group[group], of_holder[holder], labels=(group, names[holder]))
    net.arcs("stay", of_holder, of_node, labels=names)
    cost = units.whole[view.cost[source, target]]
    net.arcs("link", of_holder[source], of_node[target], cost=cost, labels=(names[source], names[target]))
    net.arcs("send", of_holder[senders], usual, cost=units.whole[view.usual], labels=names[senders])
    net.arcs("receive", usual, of_node[receivers], labels=names[receivers])
    if most is not None:
        end = net.nodes("end", 1, supply=-int(groups.items.sum()))
        net.arcs("finish", of_node, end, upper=most, labels=names)
    network = net.build(unit=units.unit)
    place = np.zeros(network.arc_count, np.int64)  # seconds[0] is 0
    place[network.arc_blocks["link"].slice] = view.cost[source, target]
    place[network.arc_blocks["send"].slice] = view.usual
    ends = (group, holder), (source, target), senders, receivers
    return PartitionNetwork(network, groups, units, view.seconds, place, *ends)


def sending_nodes(view: LoadPartitionArrays, targets: Integers | None) -> tuple[Booleans, Booleans]:
    """Return which nodes may send, (N,), and may receive, (N,): those above target and the others; else all."""
    if targets is None:
        return np.ones(len(view.load), bool), np.ones(len(view.load), bool)
    above = np.greater(view.load, targets)
    return above, ~above


def moves_of(view: LoadPartitionArrays, groups: HolderGroups, parts: tuple[Integers, Integers, Integers]) -> Integers:
    """Return the moves, (N, N): items processed on a node that does not hold them come from the cheapest holder."""
    moves = np.zeros(view.cost.shape, np.int64)
    block, node, items = parts
    away = ~groups.holds[groups.of_block[block], node]
    for b, n, amount in zip(block[away], node[away], items[away], strict=True):
        holders = np.flatnonzero(groups.holds[groups.of_block[b]])
        moves[holders[view.cost[holders, n].argmin()], n] += amount
    return moves


def moved_cost(view: LoadPartitionArrays, moves: Integers) -> Fraction:
    """Return the exact cost of all moves, in seconds."""
    pairs = np.nonzero(moves)
    terms = zip(moves[pairs].tolist(), view.cost[pairs].tolist(), strict=True)
    return sum((items * view.seconds[place] for items, place in terms), Fraction(0))
