"""The network of load partition: groups of items, the nodes that hold them, the nodes that process them.

An item leaves its group through a holder and stays there, goes to another node along a link, or goes through ``usual``
at the cost of moves without a link: an arc per node instead of one per pair. A holder with a link that is more
expensive than usual has an arc to every node instead, so that nothing undercuts that link.
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

__all__ = ["Groups", "PartitionNetwork", "build_network", "moved_cost", "moves_of", "sending_nodes"]

#: Costs along any path of the network stay below this, far enough from 64 bits for every engine.
_LONGEST_PATH = 2**59
#: Costs that floating-point engines hold exactly.
_FLOATS = 2**53 - 1


@dataclass(frozen=True, eq=False)
class Groups:
    """Items that lie on the same nodes: (B,) group of each block, (K,) first block, (K, N) holders, (K,) items."""

    of_block: Integers
    first: Integers
    holds: Booleans
    items: Integers

    @classmethod
    def of(cls, view: LoadPartitionArrays, *, replicas: bool) -> Groups:
        """Group blocks by their holders, or by the node that they lie on where replicas are not used."""
        if replicas:
            # Rows as strings of bytes: sorting those is a hundred times quicker than sorting rows of an array.
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
    """The network, and what its arcs mean."""

    network: FlowNetwork
    groups: Groups
    # units, seconds: The costs that an arc may have, as integers for the engines and exact; these differ where the
    # exact ones have no common unit that 64 bits hold
    units: InUnits
    seconds: tuple[Fraction, ...]
    cost: Integers  # (A,) place in ``seconds`` of the cost of every arc
    take: tuple[Integers, Integers]  # group and holder of every arc ``take``
    link: tuple[Integers, Integers]  # ends of every arc ``link``
    # senders, receivers: Nodes of the arcs ``send`` and ``receive``
    senders: Integers
    receivers: Integers

    def prices(self, flow: Integers, duals: Integers) -> tuple[bool, list[Fraction]]:
        """Whether prices prove that the flow has the least exact cost, and those prices: seconds by node."""
        unit = self.units.unit
        if self.units.exact:
            return True, [unit * price for price in duals.tolist()]
        per_s = math.lcm(*(each.denominator for each in self.seconds))
        exact = np.array([int(each * per_s) for each in self.seconds], object)[self.cost]
        start = np.array([round(price * unit * per_s) for price in duals.tolist()], object)
        try:
            found = exact_potentials(self.network, flow, start, exact)
        except EngineError:  # rounding hid a cheaper way
            return False, [unit * price for price in duals.tolist()]
        return True, [Fraction(price, per_s) for price in found.tolist()]

    def parts(self, flow: Integers, count: Integers) -> tuple[Integers, Integers, Integers]:
        """Block, node and items of what is processed where, from a flow and the (B,) items of each block."""
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
        return _summed(blocks[block], node[by_group][part], items)


def _matched(one: Integers, other: Integers) -> tuple[Integers, Integers, Integers]:
    """Amounts of equal sums laid side by side: which of one meets which of the other, and how much of it."""
    first, second = np.cumsum(one), np.cumsum(other)
    ends = np.union1d(first, second)
    ends = ends[ends > 0]
    return np.searchsorted(first, ends), np.searchsorted(second, ends), np.diff(ends, prepend=0)


def _summed(block: Integers, node: Integers, items: Integers) -> tuple[Integers, Integers, Integers]:
    """One entry per block and node, ordered by both."""
    pairs, place = np.unique(np.stack([block, node], axis=1), axis=0, return_inverse=True)
    total = np.zeros(len(pairs), np.int64)
    np.add.at(total, place.reshape(-1), items)
    return pairs[:, 0], pairs[:, 1], total


def build_network(
    instance: LoadPartitionInstance,
    groups: Groups,
    targets: Integers,
    most: Integers | None,
    *,
    one_way: bool,
    rows: Collection[str],
) -> PartitionNetwork:
    """Build the network.

    ``targets``: (N,) items that each node must process; not read when ``most`` is given. ``most``: (N,) most items that
    each node may process. ``one_way``: nodes above their target only send, the others only receive (the paper's
    problem). ``rows``: names of the model's equations.
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
    blocks = [instance.blocks[b].name for b in groups.first.tolist()]  # a group is named after its first block
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
    place = np.zeros(network.arc_count, np.int64)  # the first of all seconds is 0
    place[network.arc_blocks["link"].slice] = view.cost[source, target]
    place[network.arc_blocks["send"].slice] = view.usual
    ends = (group, holder), (source, target), senders, receivers
    return PartitionNetwork(network, groups, units, view.seconds, place, *ends)


def sending_nodes(view: LoadPartitionArrays, targets: Integers | None) -> tuple[Booleans, Booleans]:
    """(N,) nodes that may send, and that may receive: those above their target and the others; all without targets."""
    if targets is None:
        return np.ones(len(view.load), bool), np.ones(len(view.load), bool)
    above = np.greater(view.load, targets)
    return above, ~above


def moves_of(view: LoadPartitionArrays, groups: Groups, parts: tuple[Integers, Integers, Integers]) -> Integers:
    """(N, N) items moved: what is processed where it does not lie comes from its first cheapest holder."""
    moves = np.zeros(view.cost.shape, np.int64)
    block, node, items = parts
    away = ~groups.holds[groups.of_block[block], node]
    for b, n, amount in zip(block[away], node[away], items[away], strict=True):
        holders = np.flatnonzero(groups.holds[groups.of_block[b]])
        moves[holders[view.cost[holders, n].argmin()], n] += amount
    return moves


def moved_cost(view: LoadPartitionArrays, moves: Integers) -> Fraction:
    """Exact seconds of moves."""
    pairs = np.nonzero(moves)
    terms = zip(moves[pairs].tolist(), view.cost[pairs].tolist(), strict=True)
    return sum((items * view.seconds[place] for items, place in terms), Fraction(0))
