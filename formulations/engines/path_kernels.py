"""The compiled loops of the live network (see `network_session`): successive shortest paths, by numba.

Conventions: the reduced cost of an arc is ``cost - pi[tail] + pi[head]``. Node 0 is the root: it takes whatever the
other nodes supply. Between calls every arc is optimal for the potentials: empty where its reduced cost is
positive, full where it is negative. What changes shows as excess (or deficit) of nodes; each is then sent along a
shortest path of the residual network, which keeps all arcs optimal. Work is in proportion to what lies nearer
than the end of these paths.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

__all__ = [
    "ENDLESS",
    "Residual",
    "balance",
    "change_arcs",
    "change_supplies",
    "empty",
    "reset",
    "violations",
    "write_arcs",
]

#: Capacity of an arc without capacity.
ENDLESS = 2**60
#: Distance of a node not reached.
FAR = 2**62

# Places in `Residual.counters`: touched arcs, unbalanced nodes, paths, arcs looked at, last stamp, heap, settled.
TOUCHED, LOOSE, PATHS, LOOKS, STAMP, HEAP, DONE = 0, 1, 2, 3, 4, 5, 6


class Residual(NamedTuple):
    """Arcs, flows, potentials, and room for the search. A: arcs, N: nodes."""

    tail: Any  # (A,) int32
    head: Any  # (A,) int32
    capacity: Any  # (A,) int64
    cost: Any  # (A,) int64
    flow: Any  # (A,) int64
    pi: Any  # (N,) int64
    excess: Any  # (N,) int64, supply + inflow - outflow
    first_out: Any  # (N,) int32, list of the arcs that leave a node, -1 at the end
    next_out: Any  # (A,) int32
    back_out: Any  # (A,) int32
    first_in: Any  # (N,) int32, list of the arcs that enter a node
    next_in: Any  # (A,) int32
    back_in: Any  # (A,) int32
    touched: Any  # (A,) int32, arcs whose flow may have changed
    before: Any  # (A,) int64, their flow at first touch, -1 for an arc that is not touched
    loose: Any  # (N,) int32, stack of nodes that may be out of balance
    is_loose: Any  # (N,) bool
    counters: Any  # (8,) int64, see the places above
    distance: Any  # (N,) int64, valid where stamped
    link: Any  # (N,) int32, arc by which a node was reached
    stamp: Any  # (N,) int64, search that reached the node: 2 k when tentative, 2 k + 1 when settled
    near: Any  # (N,) int32, nodes at the present distance, first come first served
    heap: Any  # (N,) int32, nodes farther away
    place: Any  # (N,) int32, where a node is in the heap, -1 if it is not
    settled: Any  # (N,) int32


@njit(cache=True)
def _list(t, arc):
    """Enter an arc in the lists of its ends; a loop (a slot given up) is in none."""
    u, v = t.tail[arc], t.head[arc]
    if u == v:
        return
    t.next_out[arc], t.back_out[arc] = t.first_out[u], -1
    if t.first_out[u] >= 0:
        t.back_out[t.first_out[u]] = arc
    t.first_out[u] = arc
    t.next_in[arc], t.back_in[arc] = t.first_in[v], -1
    if t.first_in[v] >= 0:
        t.back_in[t.first_in[v]] = arc
    t.first_in[v] = arc


@njit(cache=True)
def _unlist(t, arc):
    if t.tail[arc] == t.head[arc]:
        return
    left, right = t.back_out[arc], t.next_out[arc]
    if left >= 0:
        t.next_out[left] = right
    else:
        t.first_out[t.tail[arc]] = right
    if right >= 0:
        t.back_out[right] = left
    left, right = t.back_in[arc], t.next_in[arc]
    if left >= 0:
        t.next_in[left] = right
    else:
        t.first_in[t.head[arc]] = right
    if right >= 0:
        t.back_in[right] = left


@njit(cache=True)
def _loosen(t, v):
    if not t.is_loose[v] and v != 0:
        t.is_loose[v] = True
        t.loose[t.counters[LOOSE]] = v
        t.counters[LOOSE] += 1


@njit(cache=True)
def _set_flow(t, arc, flow):
    if t.before[arc] < 0:
        t.before[arc] = t.flow[arc]
        t.touched[t.counters[TOUCHED]] = arc
        t.counters[TOUCHED] += 1
    more = flow - t.flow[arc]
    u, v = t.tail[arc], t.head[arc]
    t.flow[arc] = flow
    t.excess[u] -= more
    t.excess[v] += more
    _loosen(t, u)
    _loosen(t, v)


@njit(cache=True)
def reset(t, supply, arcs):
    """Take all flow off."""
    t.counters[LOOSE] = 0
    t.is_loose[:] = False
    for arc in range(arcs):
        if t.flow[arc] != 0:
            _set_flow(t, arc, 0)
    for v in range(len(supply)):
        t.excess[v] = supply[v]
        if supply[v] != 0:
            _loosen(t, v)


@njit(cache=True)
def write_arcs(t, arcs, tail, head, capacity, cost):
    """Give arcs new ends, capacities and costs; flow that no longer fits is taken off."""
    for i in range(len(arcs)):
        arc = arcs[i]
        moved = t.tail[arc] != tail[i] or t.head[arc] != head[i]
        keep = 0 if moved else min(t.flow[arc], capacity[i])
        if keep != t.flow[arc]:
            _set_flow(t, arc, keep)
        if moved:
            _unlist(t, arc)
            t.tail[arc], t.head[arc] = tail[i], head[i]
            _list(t, arc)
        t.capacity[arc], t.cost[arc] = capacity[i], cost[i]


@njit(cache=True)
def change_supplies(t, nodes, change):
    """Add to the supplies of nodes."""
    for i in range(len(nodes)):
        t.excess[nodes[i]] += change[i]
        _loosen(t, nodes[i])


@njit(cache=True)
def _price_fresh(t, fresh):
    """Give new nodes the price of their cheapest way on, so that their arcs do not start out full."""
    t.counters[STAMP] += 2
    unknown = t.counters[STAMP]
    for i in range(len(fresh)):
        t.stamp[fresh[i]] = unknown
        t.pi[fresh[i]] = 0
    for _ in range(len(fresh) + 1):
        changed = False
        for i in range(len(fresh) - 1, -1, -1):
            v = fresh[i]
            best = FAR
            arc = t.first_out[v]
            while arc >= 0:
                w = t.head[arc]
                if t.capacity[arc] > 0 and t.stamp[w] != unknown:
                    best = min(best, t.cost[arc] + t.pi[w])
                arc = t.next_out[arc]
            if best < FAR and (t.stamp[v] == unknown or best < t.pi[v]):
                t.pi[v] = best
                t.stamp[v] = 0
                changed = True
        if not changed:
            return


@njit(cache=True)
def _settle(t, arc):
    """Make an arc optimal for the potentials, but for one without capacity that ought to be full: return its tail."""
    reduced = t.cost[arc] - t.pi[t.tail[arc]] + t.pi[t.head[arc]]
    if reduced > 0:
        if t.flow[arc] != 0:
            _set_flow(t, arc, 0)
    elif reduced < 0 and t.flow[arc] != t.capacity[arc]:
        if t.capacity[arc] >= ENDLESS:
            return t.tail[arc]
        _set_flow(t, arc, t.capacity[arc])
    return -1


@njit(cache=True)
def _settle_around(t, v):
    """Lower the price of ``v`` until no arc without capacity ought to be full, and settle its arcs, and so on.

    Returns False on a cycle of negative cost without capacity.
    """
    t.near[0] = v
    count, left = 1, 16 * len(t.near) + 1000
    while count > 0:
        left -= 1
        if left < 0:
            return False
        count -= 1
        u = t.near[count]
        arc = t.first_out[u]
        while arc >= 0:
            if t.capacity[arc] >= ENDLESS:
                t.pi[u] = min(t.pi[u], t.cost[arc] + t.pi[t.head[arc]])
            arc = t.next_out[arc]
        arc = t.first_out[u]
        while arc >= 0:
            _settle(t, arc)
            arc = t.next_out[arc]
        arc = t.first_in[u]
        while arc >= 0:
            above = _settle(t, arc)
            if above >= 0 and count < len(t.near):
                t.near[count] = above
                count += 1
            arc = t.next_in[arc]
    return True


@njit(cache=True)
def change_arcs(t, arcs, tail, head, capacity, cost, fresh):
    """Change arcs (see `write_arcs`), price new nodes, and make the changed arcs optimal.

    Returns False on a cycle of negative cost without capacity.
    """
    write_arcs(t, arcs, tail, head, capacity, cost)
    _price_fresh(t, fresh)
    for i in range(len(arcs)):
        v = _settle(t, arcs[i])
        if v >= 0 and not _settle_around(t, v):
            return False
    return True


@njit(cache=True)
def _sift_up(t, v):
    at = t.place[v]
    key = t.distance[v]
    while at > 0:
        above = (at - 1) // 2
        w = t.heap[above]
        if t.distance[w] <= key:
            break
        t.heap[at] = w
        t.place[w] = at
        at = above
    t.heap[at] = v
    t.place[v] = at


@njit(cache=True)
def _pop(t):
    """Take the nearest node off the heap."""
    top = t.heap[0]
    t.place[top] = -1
    t.counters[HEAP] -= 1
    size = t.counters[HEAP]
    if size == 0:
        return top
    v = t.heap[size]
    key = t.distance[v]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and t.distance[t.heap[below + 1]] < t.distance[t.heap[below]]:
            below += 1
        w = t.heap[below]
        if t.distance[w] >= key:
            break
        t.heap[at] = w
        t.place[w] = at
        at = below
    t.heap[at] = v
    t.place[v] = at
    return top


@njit(cache=True)
def _search(t, source, forward):
    """Find the nearest node that evens ``source`` out; raise the settled potentials. Returns it, or -1.

    From a node of excess the search goes along residual arcs to a deficit or the root; to a node of deficit it
    goes against them, from an excess or the root.
    """
    t.counters[STAMP] += 2
    reached = t.counters[STAMP]
    t.counters[HEAP] = t.counters[DONE] = 0
    t.distance[source], t.stamp[source], t.link[source] = 0, reached, -1
    t.near[0] = source
    first, last = 0, 1
    now = 0
    target, limit = -1, FAR
    while True:
        if first < last:
            u = t.near[first]
            first += 1
            if t.stamp[u] != reached:
                continue
        else:
            u = -1
            while t.counters[HEAP] > 0:
                w = _pop(t)
                if t.stamp[w] == reached:
                    u = w
                    break
            if u < 0 or t.distance[u] >= limit:
                break
            now = t.distance[u]
            first = last = 0
        t.stamp[u] = reached + 1
        t.settled[t.counters[DONE]] = u
        t.counters[DONE] += 1
        for out in range(2):
            arc = t.first_out[u] if out == 0 else t.first_in[u]
            adds = forward == (out == 0)  # the way along the arc sends more over it
            while arc >= 0:
                t.counters[LOOKS] += 1
                this = arc
                w = t.head[arc] if out == 0 else t.tail[arc]
                arc = t.next_out[arc] if out == 0 else t.next_in[arc]
                if (t.flow[this] >= t.capacity[this]) if adds else (t.flow[this] == 0):
                    continue
                if t.stamp[w] == reached + 1:
                    continue
                reduced = t.cost[this] - t.pi[t.tail[this]] + t.pi[t.head[this]]
                length = now + (reduced if adds else -reduced)
                if length >= limit or (t.stamp[w] == reached and length >= t.distance[w]):
                    continue
                t.distance[w], t.link[w] = length, this
                if w == 0 or (t.excess[w] < 0 if forward else t.excess[w] > 0):
                    target, limit = w, length
                    t.stamp[w] = reached
                    if length == now:
                        break
                elif length == now:
                    if t.stamp[w] != reached:
                        t.stamp[w] = reached
                        t.place[w] = -1
                    elif t.place[w] >= 0:
                        _sift_up(t, w)  # it comes off the heap as settled
                    t.near[last] = w
                    last += 1
                else:
                    if t.stamp[w] != reached or t.place[w] < 0:
                        t.stamp[w] = reached
                        t.place[w] = t.counters[HEAP]
                        t.heap[t.counters[HEAP]] = w
                        t.counters[HEAP] += 1
                    _sift_up(t, w)
            if limit == now:
                break
        if limit == now:
            break
    if target < 0:
        return -1
    for i in range(t.counters[DONE]):
        u = t.settled[i]
        more = limit - t.distance[u]
        t.pi[u] += more if forward else -more
    return target


@njit(cache=True)
def _send(t, source, target, forward):
    """Send what source and target can over the path that was found."""
    amount = abs(t.excess[source])
    if target != 0:
        amount = min(amount, abs(t.excess[target]))
    v = target
    while v != source:
        arc = t.link[v]
        adds = (t.head[arc] == v) == forward
        amount = min(amount, t.capacity[arc] - t.flow[arc] if adds else t.flow[arc])
        v = t.tail[arc] if t.head[arc] == v else t.head[arc]
    v = target
    while v != source:
        arc = t.link[v]
        adds = (t.head[arc] == v) == forward
        if t.before[arc] < 0:
            t.before[arc] = t.flow[arc]
            t.touched[t.counters[TOUCHED]] = arc
            t.counters[TOUCHED] += 1
        t.flow[arc] += amount if adds else -amount
        v = t.tail[arc] if t.head[arc] == v else t.head[arc]
    t.excess[source] -= amount if forward else -amount
    t.excess[target] += amount if forward else -amount
    t.counters[PATHS] += 1


@njit(cache=True)
def balance(t, budget):
    """Even all nodes out by shortest paths; returns 0, or a node that cannot be balanced, or -1 past the budget."""
    t.counters[LOOKS] = 0
    while t.counters[LOOSE] > 0:
        v = t.loose[t.counters[LOOSE] - 1]
        while t.excess[v] != 0:
            if t.counters[LOOKS] > budget:
                return -1
            forward = t.excess[v] > 0
            target = _search(t, v, forward)
            if target < 0:
                return v
            _send(t, v, target, forward)
        t.is_loose[v] = False
        t.counters[LOOSE] -= 1
    return 0


@njit(cache=True)
def violations(t, supply, nodes, arcs):
    """Recompute what an optimum must satisfy, from arcs, flows and potentials alone.

    Returns the largest violation of flow conservation, of the bounds and of the signs of reduced costs: all zero
    exactly when the flow is a minimum-cost flow.
    """
    excess = np.zeros(nodes, np.int64)
    bounds = 0
    signs = 0
    for arc in range(arcs):
        flow, capacity = t.flow[arc], t.capacity[arc]
        if flow != 0:
            excess[t.tail[arc]] += flow
            excess[t.head[arc]] -= flow
            bounds = max(bounds, -flow, flow - capacity)
        elif capacity == 0:
            continue
        reduced = t.cost[arc] - t.pi[t.tail[arc]] + t.pi[t.head[arc]]
        if reduced < 0 and flow < capacity:
            signs = max(signs, -reduced)
        elif reduced > 0 and flow > 0:
            signs = max(signs, reduced)
    conservation = 0
    for v in range(1, nodes):
        conservation = max(conservation, abs(excess[v] - supply[v]))
    return conservation, bounds, signs


def empty(nodes: int, arcs: int) -> Residual:
    """Room for so many nodes and arcs, none in use."""
    small, wide = np.int32, np.int64
    return Residual(
        tail=np.zeros(arcs, small),
        head=np.zeros(arcs, small),
        capacity=np.zeros(arcs, wide),
        cost=np.zeros(arcs, wide),
        flow=np.zeros(arcs, wide),
        pi=np.zeros(nodes, wide),
        excess=np.zeros(nodes, wide),
        first_out=np.full(nodes, -1, small),
        next_out=np.full(arcs, -1, small),
        back_out=np.full(arcs, -1, small),
        first_in=np.full(nodes, -1, small),
        next_in=np.full(arcs, -1, small),
        back_in=np.full(arcs, -1, small),
        touched=np.zeros(arcs, small),
        before=np.full(arcs, -1, wide),
        loose=np.zeros(nodes, small),
        is_loose=np.zeros(nodes, np.bool_),
        counters=np.zeros(8, wide),
        distance=np.zeros(nodes, wide),
        link=np.full(nodes, -1, small),
        stamp=np.zeros(nodes, wide),
        near=np.zeros(nodes, small),
        heap=np.zeros(nodes, small),
        place=np.full(nodes, -1, small),
        settled=np.zeros(nodes, small),
    )
