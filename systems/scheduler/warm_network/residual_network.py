"""The arrays of the live network (see `live_network`) and every change to them, compiled by numba.

Conventions: the reduced cost of an arc is ``cost - pi[tail] + pi[head]``. Node 0 is the root: it takes whatever the
other nodes supply. An arc is optimal for the potentials if it is empty at a positive reduced cost and full at a
negative one. Changes keep all arcs optimal and create excess (or deficit) at nodes.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowlex.formulations.deferred_compilation import njit

#: Capacity of an arc without capacity.
ENDLESS = 2**60
#: Distance of a node not reached.
FAR = 2**62

# Places in `Residual.counters`: touched arcs, unbalanced nodes, paths, arcs looked at, last stamp; of the search: heap,
# settled nodes, first and last of the nodes at the present distance.
TOUCHED, LOOSE, PATHS, LOOKS, STAMP, HEAP, DONE, FIRST, LAST = 0, 1, 2, 3, 4, 5, 6, 7, 8

#: Compiled without reference counting: the caller owns the arrays and kernels make none; counting each array at each
#: access took more time than the searches themselves (measured: half).
kernel = njit(cache=True, nogil=True, _nrt=False)


class Residual(NamedTuple):
    """Arcs, flows, potentials, and work arrays of the search. A: arcs, N: nodes."""

    tail: Any  # (A,) int32
    head: Any  # (A,) int32
    capacity: Any  # (A,) int64
    cost: Any  # (A,) int64
    flow: Any  # (A,) int64
    pi: Any  # (N,) int64
    excess: Any  # (N,) int64, supply + inflow - outflow
    first_out: Any  # (N,) int32, linked list of the arcs out of a node, -1 at the end; arcs with flow come first
    last_out: Any  # (N,) int32
    next_out: Any  # (A,) int32
    back_out: Any  # (A,) int32
    first_in: Any  # (N,) int32, the same for the arcs into a node
    last_in: Any  # (N,) int32
    next_in: Any  # (A,) int32
    back_in: Any  # (A,) int32
    touched: Any  # (A,) int32, arcs whose flow may have changed
    before: Any  # (A,) int64, their flow at first touch, -1 for an arc that is not touched
    loose: Any  # (N,) int32, stack of nodes that may be out of balance
    is_loose: Any  # (N,) bool
    counters: Any  # (9,) int64, see the places above
    distance: Any  # (N,) int64, valid where stamped
    link: Any  # (N,) int32, arc by which a node was reached
    stamp: Any  # (N,) int64, search that reached the node: 2 k when tentative, 2 k + 1 when settled
    near: Any  # (N,) int32, queue of the nodes at the current distance
    heap: Any  # (N,) int32, heap of the nodes farther away
    place: Any  # (N,) int32, position of a node in the heap, else -1
    settled: Any  # (N,) int32


@kernel
def _enter(first, last, ahead, back, v, arc, front):
    """Put an arc at the front or at the end of a list of node ``v``."""
    if front:
        ahead[arc], back[arc] = first[v], -1
        if first[v] >= 0:
            back[first[v]] = arc
        else:
            last[v] = arc
        first[v] = arc
    else:
        ahead[arc], back[arc] = -1, last[v]
        if last[v] >= 0:
            ahead[last[v]] = arc
        else:
            first[v] = arc
        last[v] = arc


@kernel
def _leave(first, last, ahead, back, v, arc):
    """Take an arc out of a list of node ``v``."""
    if back[arc] >= 0:
        ahead[back[arc]] = ahead[arc]
    else:
        first[v] = ahead[arc]
    if ahead[arc] >= 0:
        back[ahead[arc]] = back[arc]
    else:
        last[v] = back[arc]


@kernel
def _list(t, arc):
    """Insert an arc into the lists of its ends, arcs with flow first; a loop (a free slot) is in no list."""
    u, v, front = t.tail[arc], t.head[arc], t.flow[arc] != 0
    if u != v:
        _enter(t.first_out, t.last_out, t.next_out, t.back_out, u, arc, front)
        _enter(t.first_in, t.last_in, t.next_in, t.back_in, v, arc, front)


@kernel
def _unlist(t, arc):
    u, v = t.tail[arc], t.head[arc]
    if u != v:
        _leave(t.first_out, t.last_out, t.next_out, t.back_out, u, arc)
        _leave(t.first_in, t.last_in, t.next_in, t.back_in, v, arc)


@kernel
def put_flow(t, arc, flow):
    """Set the flow of an arc: record its flow before the first change, and keep the lists in order."""
    if t.before[arc] < 0:
        t.before[arc] = t.flow[arc]
        t.touched[t.counters[TOUCHED]] = arc
        t.counters[TOUCHED] += 1
    if (t.flow[arc] == 0) == (flow == 0):
        t.flow[arc] = flow
        return
    _unlist(t, arc)
    t.flow[arc] = flow
    _list(t, arc)


@kernel
def put_flows(t, flow):
    """`put_flow` for all arcs."""
    for arc in range(len(flow)):
        if t.flow[arc] != flow[arc]:
            put_flow(t, arc, flow[arc])


@kernel
def _loosen(t, v):
    if not t.is_loose[v] and v != 0:
        t.is_loose[v] = True
        t.loose[t.counters[LOOSE]] = v
        t.counters[LOOSE] += 1


@kernel
def _set_flow(t, arc, flow):
    more = flow - t.flow[arc]
    u, v = t.tail[arc], t.head[arc]
    put_flow(t, arc, flow)
    t.excess[u] -= more
    t.excess[v] += more
    _loosen(t, u)
    _loosen(t, v)


@kernel
def reset(t, supply, arcs):
    """Remove all flow, so that every supply becomes excess."""
    t.counters[LOOSE] = 0
    t.is_loose[:] = False
    for arc in range(arcs):
        if t.flow[arc] != 0:
            _set_flow(t, arc, 0)
    for v in range(len(supply)):
        t.excess[v] = supply[v]
        if supply[v] != 0:
            _loosen(t, v)


@kernel
def _write_arcs(t, changes):
    """Set ends, capacities and costs of arcs; remove flow that no longer fits."""
    for i in range(len(changes)):
        arc, tail, head = changes[i, 0], changes[i, 1], changes[i, 2]
        moved = t.tail[arc] != tail or t.head[arc] != head
        keep = 0 if moved else min(t.flow[arc], changes[i, 3])
        if keep != t.flow[arc]:
            _set_flow(t, arc, keep)
        if moved:
            _unlist(t, arc)
            t.tail[arc], t.head[arc] = tail, head
            _list(t, arc)
        t.capacity[arc], t.cost[arc] = changes[i, 3], changes[i, 4]


@kernel
def change_supplies(t, nodes, change):
    """Add to the supplies of nodes."""
    for i in range(len(nodes)):
        t.excess[nodes[i]] += change[i]
        _loosen(t, nodes[i])


@kernel
def price_fresh(t, fresh):
    """Set the potentials of new nodes to the costs of their cheapest paths, so that their arcs do not start full."""
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


@kernel
def _settle(t, arc):
    """Make an arc optimal for the potentials; return -1, or the tail of an arc without capacity that should be full."""
    reduced = t.cost[arc] - t.pi[t.tail[arc]] + t.pi[t.head[arc]]
    if reduced > 0:
        if t.flow[arc] != 0:
            _set_flow(t, arc, 0)
    elif reduced < 0 and t.flow[arc] != t.capacity[arc]:
        if t.capacity[arc] >= ENDLESS:
            return t.tail[arc]
        _set_flow(t, arc, t.capacity[arc])
    return -1


@kernel
def _settle_around(t, v):
    """Lower the potential of ``v`` until no arc without capacity should be full, settle its arcs, and repeat.

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
        following = t.first_out[u]
        while following >= 0:
            arc, following = following, t.next_out[following]  # settling may move the arc within its lists
            _settle(t, arc)
        following = t.first_in[u]
        while following >= 0:
            arc, following = following, t.next_in[following]
            above = _settle(t, arc)
            if above >= 0 and count < len(t.near):
                t.near[count] = above
                count += 1
    return True


@kernel
def change_arcs(t, changes, fresh):
    """Change arcs (see `_write_arcs`), price new nodes, and make the changed arcs optimal.

    ``changes``: (C, 5) slot, tail, head, capacity and cost. Returns False on a cycle of negative cost without capacity.
    """
    _write_arcs(t, changes)
    price_fresh(t, fresh)
    for i in range(len(changes)):
        v = _settle(t, changes[i, 0])
        if v >= 0 and not _settle_around(t, v):
            return False
    return True


@njit(cache=True)
def violations(t, supply, nodes, arcs):
    """Recompute the optimality conditions from arcs, flows and potentials alone.

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
    """Arrays for the given numbers of nodes and arcs, none in use."""
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
        last_out=np.full(nodes, -1, small),
        next_out=np.full(arcs, -1, small),
        back_out=np.full(arcs, -1, small),
        first_in=np.full(nodes, -1, small),
        last_in=np.full(nodes, -1, small),
        next_in=np.full(arcs, -1, small),
        back_in=np.full(arcs, -1, small),
        touched=np.zeros(arcs, small),
        before=np.full(arcs, -1, wide),
        loose=np.zeros(nodes, small),
        is_loose=np.zeros(nodes, np.bool_),
        counters=np.zeros(9, wide),
        distance=np.zeros(nodes, wide),
        link=np.full(nodes, -1, small),
        stamp=np.zeros(nodes, wide),
        near=np.zeros(nodes, small),
        heap=np.zeros(nodes, small),
        place=np.full(nodes, -1, small),
        settled=np.zeros(nodes, small),
    )
