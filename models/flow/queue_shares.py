r"""Running tasks of each job: max-min fair at every level of a tree of queues, within placement rules.

A node of the tree (a queue or a job) has a guarantee, a limit and a weight. A queue is guaranteed at least what its
queues are together. Its running tasks are ordered: first those
within the guarantee g, the k-th at k / g, then the others, at k / weight; ties go to the earlier node. The shares of
the children of a node are max-min fair if no running task comes later in this order than a waiting task that could
run instead. Only present tasks count, so queues lend what they cannot use.

Without placement rules, this is water filling from the top of the tree down. If these shares cannot be placed
together, a network decides. Tasks of one job with equal rules go to a kind of machines (those that satisfy the same
rules) or wait. Waiting tasks flow up the tree; the k-th running task of a node costs the less to lose, the later it is
in the order. The levels are minimised from the top, one after the other. The feasible vectors of running tasks form an
M-convex set, on which the least sum of such costs gives the lexicographically fairest vector (Frank and Murota,
"Decreasing minimization on M-convex sets", 2022). So shares are exactly fair at the top level, and also below it unless
placement couples the shares of several queues; then they have the least sum. The network ignores
`FlowJob.different_machines`.
Source: reconstructed (Sirius has flat shares without placement).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from flowlex.formulations.fair_shares import whole_shares
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.lexicographic.lexicographic_network import solve_lexicographic
from flowlex.formulations.network_builder import NetworkBuilder
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.flow import Queue


@dataclass(frozen=True, eq=False)
class Claims:
    """Claims of jobs."""

    # (J,) number of present tasks, least and most tasks that should run, and weights
    count: Integers
    least: Integers
    most: Integers
    weight: Integers
    queue: Integers  # (J,) index of each job's queue, -1 for none
    rules: Sequence[Mapping[Hashable, int]]  # J tables: number of tasks by placement rule

    def cells(self) -> list[tuple[int, Hashable, int]]:
        """Triples (job, rule, number of tasks)."""
        return [(job, rule, count) for job, table in enumerate(self.rules) for rule, count in table.items()]


@dataclass(frozen=True)
class Places:
    """Number of slots by the set of rules that their machines satisfy; ``used``: all rules."""

    slots: Mapping[frozenset[Hashable], int]
    used: frozenset[Hashable]

    @property
    def total(self) -> int:
        """All slots."""
        return sum(self.slots.values())

    @property
    def identical(self) -> bool:
        """Whether every task may use every slot."""
        return all(rules >= self.used for rules in self.slots)


def guaranteed(least: Integers, slots: int) -> Integers:
    """Return the minima, scaled down in proportion to whole tasks if their sum exceeds the slots."""
    if int(least.sum()) <= slots:
        return least
    return whole_shares(np.zeros_like(least), least, np.maximum(least, 1), slots)


def fair_shares(claims: Claims, queues: Sequence[Queue], places: Places, *, weighted: bool) -> Integers:
    """Return the number of tasks that each job should run, (J,); see the module.

    ``weighted``: whether to use the weights; otherwise all are 1.
    """
    tree = _Tree(claims, queues, weighted)
    shares = tree.filled(places.total)
    if places.identical or _can_be_placed(claims, shares, places):
        return shares
    return _by_network(claims, tree, places)


class _Tree:
    """The tree: nodes are the queues, then the jobs; the root is -1."""

    def __init__(self, claims: Claims, queues: Sequence[Queue], weighted: bool) -> None:
        at = {queue.name: number for number, queue in enumerate(queues)}
        above = np.array([-1 if queue.parent is None else at[queue.parent] for queue in queues], np.int64)
        self.queues = len(queues)
        self.parent: Integers = np.concatenate((above, claims.queue))
        depth = np.ones(len(queues) + 1, np.int64)  # the last entry, index -1, is the root
        depth[-1] = 0
        for _ in queues:
            depth[:-1] = depth[above] + 1
        self.depth: Integers = depth[self.parent] + 1
        none = np.zeros(len(queues), np.int64)
        self.count: Integers = np.concatenate((none, claims.count))
        self.demand: Integers = np.concatenate((none, np.minimum(claims.most, claims.count)))
        least, weight = (np.array([getattr(q, name) for q in queues], np.int64) for name in ("min_tasks", "weight"))
        for number in sorted(range(len(queues)), key=lambda q: -int(self.depth[q])):
            below, limit = self.parent == number, queues[number].max_tasks
            self.count[number], wanted = self.count[below].sum(), int(self.demand[below].sum())
            self.demand[number] = wanted if limit is None else min(limit, wanted)
            inner = np.flatnonzero(above == number)  # what its queues are guaranteed is guaranteed to it
            least[number] = max(int(least[number]), int(np.minimum(least[inner], self.demand[inner]).sum()))
        self.least: Integers = np.minimum(np.concatenate((least, claims.least)), self.demand)
        self.weight: Integers = np.concatenate((weight, claims.weight))
        if not weighted:
            self.weight = np.ones_like(self.weight)

    def filled(self, slots: int) -> Integers:
        """(J,) shares by water filling from the top down, without placement rules."""
        share = np.zeros(len(self.parent), np.int64)
        for node in [-1, *sorted(range(self.queues), key=lambda q: self.depth[q])]:
            below = np.flatnonzero(self.parent == node)
            units = slots if node < 0 else int(share[node])
            least = guaranteed(self.least[below], units)
            share[below] = whole_shares(least, self.demand[below], self.weight[below], units)
        return share[self.queues :]

    def ranks(self, depth: int, slots: int) -> tuple[Integers, Integers]:
        """Nodes of one depth, one entry per task that may run, and the rank of each task in the order."""
        bits = 2 * int(max(self.weight.max(initial=1), self.least.max(initial=1))).bit_length()
        order = []
        for node in np.flatnonzero(self.depth == depth).tolist():
            least, weight = int(self.least[node]), int(self.weight[node])
            for k in range(1, min(int(self.demand[node]), slots) + 1):
                inside = k <= least
                order.append((not inside, (k << bits) // (least if inside else weight), node))
        order.sort()
        return np.array([node for *_, node in order], np.int64), np.arange(len(order))


def _can_be_placed(claims: Claims, shares: Integers, places: Places) -> bool:
    """Return whether these shares can be placed together, by a maximum flow."""
    cells = claims.cells()
    first, kinds = len(shares) + 1, list(places.slots)
    machine = first + len(cells)
    sink = machine + len(kinds)
    by_rule: dict[Hashable, list[int]] = {}
    for k, rules in enumerate(kinds):
        for rule in rules:
            by_rule.setdefault(rule, []).append(machine + k)
    arcs = [(0, 1 + j, int(share)) for j, share in enumerate(shares)]
    for cell, (j, rule, count) in enumerate(cells, first):
        arcs.append((1 + j, cell, count))
        arcs += [(cell, kind, count) for kind in by_rule.get(rule, ())]
    arcs += [(machine + k, sink, slots) for k, slots in enumerate(places.slots.values())]
    rows, columns, room = zip(*arcs, strict=True)
    graph = scipy.sparse.coo_array((np.array(room, np.int32), (rows, columns)), shape=(sink + 1, sink + 1)).tocsr()
    return int(scipy.sparse.csgraph.maximum_flow(graph, 0, sink).flow_value) == int(shares.sum())


def _by_network(claims: Claims, tree: _Tree, places: Places) -> Integers:
    """(J,) shares by the network described in the module."""
    network, first = _network(claims, tree, places)
    costs = []
    for depth in range(1, int(tree.depth.max(initial=0)) + 1):
        cost = np.zeros(network.arc_count, np.int64)
        nodes, ranks = tree.ranks(depth, places.total)
        cost[first[depth] : first[depth] + len(nodes)] = len(nodes) - ranks
        costs.append(cost)
    outcome = solve_lexicographic(network, costs, "network")[-1].outcome
    assert outcome.values is not None
    flow = np.rint(outcome.values).astype(np.int64)
    job = network.node_blocks["node"].start + tree.queues
    waiting = np.bincount(network.tail, weights=flow, minlength=network.node_count)[job : job + len(claims.count)]
    return tree.count[tree.queues :] - waiting.astype(np.int64)


def _network(claims: Claims, tree: _Tree, places: Places) -> tuple[FlowNetwork, dict[int, int]]:
    """Build the network; return it with the index of the first arc of each depth."""
    net = NetworkBuilder("shares")
    cells = claims.cells()
    kinds = list(places.slots)
    cell = net.nodes("cell", len(cells), supply=[count for *_, count in cells])
    node = net.nodes("node", len(tree.parent))
    kind = net.nodes("machines", len(kinds))
    sink = net.nodes("sink", 1, supply=-int(sum(count for *_, count in cells)))
    pairs = [(c, k) for c, (_, rule, _) in enumerate(cells) for k, rules in enumerate(kinds) if rule in rules]
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    net.arcs("runs", cell[ends[:, 0]], kind[ends[:, 1]])
    net.arcs("slots", kind, sink, upper=list(places.slots.values()))
    net.arcs("waits", cell, node[[tree.queues + j for j, *_ in cells]])
    above = np.where(tree.parent < 0, int(sink[0]), node[tree.parent])
    must = tree.count - np.minimum(tree.demand, places.total)
    start = len(ends) + len(kinds) + len(cells)
    net.arcs("must wait", node, above, lower=must, upper=must)
    start += len(node)
    first = {}
    for depth in range(1, int(tree.depth.max(initial=0)) + 1):
        nodes, _ = tree.ranks(depth, places.total)
        net.arcs(f"level {depth}", node[nodes], above[nodes], upper=1)
        first[depth], start = start, start + len(nodes)
    return net.build(), first
