"""Cost scaling by push and relabel (Goldberg and Tarjan), for networks that are hard on the network simplex.

Where thousands of arcs of equal cost meet in one node (machines that differ in nothing, convex costs in unit steps),
each pivot of a network simplex changes the duals of most nodes; cost scaling has no tree to update. Costs are
multiplied by a factor; the flow stays ``epsilon``-optimal, and epsilon shrinks until no negative cycle remains. If
64 bits limit the factor, the answer may be only nearly optimal; the caller must check it.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.deferred_compilation import njit
from flowlex.formulations.program_arrays import Integers

#: Epsilon shrinks by this factor from phase to phase.
_SHRINK = 8
#: Scaled costs stay below this, so that sums of prices cannot leave 64 bits.
_SAFE = 2**57
#: Price of a node with no way out; arcs into it are then not admissible.
_SHUT = -(2**61)


class _Residual(NamedTuple):
    """Both directions of every arc, sorted by tail. N: nodes, R: residual arcs."""

    start: Any  # (N + 1,) first residual arc of each node
    head: Any  # (R,)
    partner: Any  # (R,) the reverse arc
    room: Any  # (R,) residual capacity
    cost: Any  # (R,) scaled
    excess: Any  # (N,)
    price: Any  # (N,); the reduced cost is cost + price[tail] - price[head]
    current: Any  # (N,) current arc of each node
    queue: Any  # (N,) ring of nodes with excess
    queued: Any  # (N,) bool


@njit(cache=True)
def _relabel(r, u, epsilon):
    """Lower the price of ``u`` until an arc is admissible; without any, shut the node and return False."""
    best, at = _SHUT // 2, -1
    for i in range(r.start[u], r.start[u + 1]):
        if r.room[i] > 0 and r.price[r.head[i]] - r.cost[i] > best:
            best, at = r.price[r.head[i]] - r.cost[i], i
    if at < 0:
        r.price[u] = _SHUT
        return False
    r.price[u] = best - epsilon
    r.current[u] = at
    return True


@njit(cache=True)
def _admissible(r, u):
    for i in range(r.current[u], r.start[u + 1]):
        if r.room[i] > 0 and r.cost[i] + r.price[u] - r.price[r.head[i]] < 0:
            r.current[u] = i
            return True
    return False


@njit(cache=True)
def _send(r, i, u, v, amount):
    r.room[i] -= amount
    r.room[r.partner[i]] += amount
    r.excess[u] -= amount
    r.excess[v] += amount


@njit(cache=True)
def _refine(r, epsilon, budget):
    """Make the flow ``epsilon``-optimal; return the rest of ``budget``, or -1 if it is used up or no flow exists."""
    nodes = len(r.price)
    for u in range(nodes):
        r.current[u] = r.start[u]
        for i in range(r.start[u], r.start[u + 1]):
            if r.room[i] > 0 and r.cost[i] + r.price[u] - r.price[r.head[i]] < 0:
                _send(r, i, u, r.head[i], r.room[i])
    first, count = 0, 0
    for u in range(nodes):
        r.queued[u] = r.excess[u] > 0
        if r.queued[u]:
            r.queue[count] = u
            count += 1
    while count > 0:
        u = r.queue[first]
        first = (first + 1) % nodes
        count -= 1
        r.queued[u] = False
        while r.excess[u] > 0:
            i, end = r.current[u], r.start[u + 1]
            budget += i - 50
            while i < end and r.excess[u] > 0:
                v = r.head[i]
                if r.room[i] == 0 or r.cost[i] + r.price[u] - r.price[v] >= 0:
                    i += 1
                    continue
                if r.excess[v] >= 0 and not _admissible(r, v):  # look ahead: avoid nodes without admissible arc
                    budget -= r.start[v + 1] - r.start[v] + 50
                    i += not _relabel(r, v, epsilon)
                    continue
                _send(r, i, u, v, min(r.room[i], r.excess[u]))
                if r.excess[v] > 0 and not r.queued[v]:
                    r.queued[v] = True
                    r.queue[(first + count) % nodes] = v
                    count += 1
            r.current[u] = i
            budget -= i
            if r.excess[u] > 0:
                budget -= end - r.start[u] + 50
                if budget < 0 or not _relabel(r, u, epsilon):
                    return -1
    return budget


@njit(cache=True)
def _open(r):
    """Give shut nodes the highest price at which no residual arc into them has a negative reduced cost."""
    for v in range(len(r.price)):
        if r.price[v] <= _SHUT // 2:
            lowest = -2 * _SHUT
            for i in range(r.start[v], r.start[v + 1]):
                u = r.head[i]
                if r.room[r.partner[i]] > 0 and r.price[u] > _SHUT // 2:
                    lowest = min(lowest, r.price[u] - r.cost[i])
            r.price[v] = lowest if lowest < -2 * _SHUT else 0


@njit(cache=True)
def _round(r, factor, budget):
    """Convert prices to the costs without the factor: round down, then repair violated arcs by label correcting."""
    nodes = len(r.price)
    for u in range(nodes):
        r.price[u] //= factor
        r.queue[u], r.queued[u] = u, True
    first, count = 0, nodes
    while count > 0 and budget > 0:
        u = r.queue[first]
        first = (first + 1) % nodes
        count -= 1
        r.queued[u] = False
        budget -= r.start[u + 1] - r.start[u] + 1
        for i in range(r.start[u], r.start[u + 1]):
            v = r.head[i]
            if r.room[i] > 0 and r.cost[i] // factor + r.price[u] < r.price[v]:
                r.price[v] = r.cost[i] // factor + r.price[u]
                if not r.queued[v]:
                    r.queued[v] = True
                    r.queue[(first + count) % nodes] = v
                    count += 1


def scale_costs(
    tail: NDArray[Any], head: NDArray[Any], capacity: Integers, cost: Integers, supply: Integers, budget: int
) -> tuple[Integers, Integers] | None:
    """Flow and potentials of a minimum-cost flow, optimal up to rounding (see the module).

    Parameters
    ----------
    tail, head, capacity, cost
        (A,) arcs; a capacity beyond what all supplies together can send counts as that.
    supply
        (N,) integers that sum to zero.
    budget
        Arcs looked at beyond which to give up; a change of price counts as 50.

    Returns
    -------
    tuple or None
        (A,) flows that satisfy bounds and balance, and (N,) potentials; None past the budget or without any flow.
    """
    nodes = len(supply)
    total = int(supply[supply > 0].sum())
    arcs = np.flatnonzero((tail != head) & (capacity > 0))
    if not len(arcs):
        return None
    tail, head, cost, count = tail[arcs].astype(np.int64), head[arcs].astype(np.int64), cost[arcs], len(arcs)
    highest = max(int(np.abs(cost).max()), 1)
    factor = max(1, min(nodes + 1, _SAFE // highest))
    leaves = np.concatenate([tail, head])
    order = np.argsort(leaves, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(2 * count)
    start = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(leaves, minlength=nodes), out=start[1:])
    scaled = cost * factor
    room = np.minimum(capacity[arcs], total)
    r = _Residual(
        start=start,
        head=np.concatenate([head, tail])[order],
        partner=place[(order + count) % (2 * count)],
        room=np.concatenate([room, np.zeros(count, np.int64)])[order],
        cost=np.concatenate([scaled, -scaled])[order],
        excess=supply.copy(),
        price=np.zeros(nodes, np.int64),
        current=np.zeros(nodes, np.int64),
        queue=np.zeros(nodes, np.int64),
        queued=np.zeros(nodes, np.bool_),
    )
    epsilon = highest * factor
    while epsilon > 1:
        epsilon = max(1, epsilon // _SHRINK)
        budget = _refine(r, epsilon, budget)
        if budget < 0:
            return None
    _open(r)
    _round(r, factor, budget)
    flow = np.zeros(len(capacity), np.int64)
    flow[arcs] = r.room[r.partner[place[:count]]]
    return flow, -r.price
