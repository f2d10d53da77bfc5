"""The compiled loops of the live network simplex (see `network_session`), by numba, cached on disk.

Conventions: the reduced cost of an arc is ``cost - pi[tail] + pi[head]``. Node 0 is the root and takes whatever
the others supply. Arc ``2 v`` (``v -> root``) and ``2 v + 1`` (``root -> v``) are the artificial arcs of node
``v``, without capacity and so dear that none carries flow when any flow without them exists. Tree arcs and arcs
of capacity 0 have state 0 (never priced), the others 1 at their lower bound (zero) and -1 at their capacity.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

__all__ = [
    "ARTIFICIAL_COST",
    "ENDLESS",
    "Basis",
    "change_arcs",
    "change_supplies",
    "forget_moved",
    "optimise",
    "optimise_near",
    "reconnect",
    "star",
    "violations",
]

#: Cost of an artificial arc; real costs along any path must stay below half of it.
ARTIFICIAL_COST = 2**58
#: Capacity of an arc without capacity.
ENDLESS = 2**60

# Places in `Basis.counters`.
#: Where pricing continues, touched arcs, pivots, end of the arcs in use, loose nodes, last stamp, moved nodes.
_NEXT, _TOUCHED, _PIVOTS, _END, _LOOSE, _STAMP, _MOVED = 0, 1, 2, 3, 4, 5, 6
#: Arcs looked at around a loose subtree before it is left to ordinary pricing.
_LOOK = 30_000


class Basis(NamedTuple):
    """Arcs, and the spanning tree as parents and lists of children. A: arcs, N: nodes."""

    tail: Any  # (A,) int32
    head: Any  # (A,) int32
    capacity: Any  # (A,) int64
    cost: Any  # (A,) int64
    flow: Any  # (A,) int64
    state: Any  # (A,) int8
    pi: Any  # (N,) int64
    parent: Any  # (N,) int32, -1 at the root
    pred: Any  # (N,) int32, arc to the parent
    child: Any  # (N,) int32, first child or -1
    following: Any  # (N,) int32, next sibling or -1
    previous: Any  # (N,) int32, previous sibling or -1
    touched: Any  # (A,) int32, arcs whose flow may have changed
    before: Any  # (A,) int64, their flow at first touch, -1 for an arc that is not touched
    counters: Any  # (8,) int64, see the places above
    first_out: Any  # (N,) int32, list of the arcs that leave a node (real arcs only)
    next_out: Any  # (A,) int32
    back_out: Any  # (A,) int32
    first_in: Any  # (N,) int32, list of the arcs that enter a node
    next_in: Any  # (A,) int32
    back_in: Any  # (A,) int32
    loose: Any  # (N,) int32, stack of nodes that were hung on an artificial arc
    is_loose: Any  # (N,) bool
    stamp: Any  # (N,) int64, marks the subtree under search
    moved: Any  # (N,) int32, stack of nodes whose arcs must be priced again
    is_moved: Any  # (N,) bool


@njit(cache=True)
def _detach(t, v):
    above, left, right = t.parent[v], t.previous[v], t.following[v]
    if left >= 0:
        t.following[left] = right
    else:
        t.child[above] = right
    if right >= 0:
        t.previous[right] = left


@njit(cache=True)
def _attach(t, v, above, arc):
    first = t.child[above]
    t.following[v] = first
    t.previous[v] = -1
    if first >= 0:
        t.previous[first] = v
    t.child[above] = v
    t.parent[v] = above
    t.pred[v] = arc


@njit(cache=True)
def _next_below(t, v, top):
    """The node after ``v`` in the subtree of ``top``, or -1."""
    if t.child[v] >= 0:
        return t.child[v]
    while v != top:
        if t.following[v] >= 0:
            return t.following[v]
        v = t.parent[v]
    return -1


@njit(cache=True)
def _next_outside(t, v, top):
    """The node after ``v`` in the whole tree without the subtree of ``top``, or -1."""
    w = t.child[v]
    if w == top:
        w = t.following[w]
    while w < 0:
        if v == 0:
            return -1
        w = t.following[v]
        if w == top:
            w = t.following[w]
        v = t.parent[v]
    return w


@njit(cache=True)
def _subtree_is_smaller(t, top):
    """Compare the subtree of ``top`` with the rest of the tree, in time proportional to the smaller."""
    v, w = top, 0
    while True:
        v = _next_below(t, v, top)
        if v < 0:
            return True
        w = _next_outside(t, w, top)
        if w < 0:
            return False


@njit(cache=True)
def _mark(t, v):
    """Note that arcs of ``v`` must be priced again."""
    if not t.is_moved[v]:
        t.is_moved[v] = True
        t.moved[t.counters[_MOVED]] = v
        t.counters[_MOVED] += 1


@njit(cache=True)
def _shift(t, top, sigma):
    """Raise the potentials below ``top`` by ``sigma`` against the others (by lowering those if they are fewer)."""
    if sigma == 0:
        return
    if _subtree_is_smaller(t, top):
        v = top
        while v >= 0:
            t.pi[v] += sigma
            _mark(t, v)
            v = _next_below(t, v, top)
    else:
        v = 0
        while v >= 0:
            t.pi[v] -= sigma
            _mark(t, v)
            v = _next_outside(t, v, top)


@njit(cache=True)
def _touch(t, arc):
    if t.before[arc] < 0:
        t.before[arc] = t.flow[arc]
        t.touched[t.counters[_TOUCHED]] = arc
        t.counters[_TOUCHED] += 1


@njit(cache=True)
def _reduced(t, arc):
    return t.cost[arc] - t.pi[t.tail[arc]] + t.pi[t.head[arc]]


@njit(cache=True)
def _rest(t, arc):
    """Set the state of an arc that leaves the tree."""
    if t.capacity[arc] == 0:
        t.state[arc] = 0
    elif t.flow[arc] == 0:
        t.state[arc] = 1
    else:
        t.state[arc] = -1


@njit(cache=True)
def _meet(t, u, v):
    """The first common node of the ways from ``u`` and ``v`` to the root, climbed in turns."""
    t.counters[_STAMP] += 1
    stamp = t.counters[_STAMP]
    while True:
        if u >= 0:
            if t.stamp[u] == stamp:
                return u
            t.stamp[u] = stamp
            u = t.parent[u]
        if v >= 0:
            if t.stamp[v] == stamp:
                return v
            t.stamp[v] = stamp
            v = t.parent[v]


@njit(cache=True)
def _push(t, arc, forward):
    """Push flow around the cycle that ``arc`` closes, and exchange it for the tree arc that blocks.

    Of several blocking arcs the last one met from the top of the cycle is taken (Cunningham), which keeps a
    strongly feasible tree strongly feasible.
    """
    if forward:
        first, second = t.tail[arc], t.head[arc]
        delta = t.capacity[arc] - t.flow[arc]
    else:
        first, second = t.head[arc], t.tail[arc]
        delta = t.flow[arc]
    join = _meet(t, first, second)
    side = 0
    out = -1
    u = first
    while u != join:
        e = t.pred[u]
        room = t.flow[e] if t.tail[e] == u else t.capacity[e] - t.flow[e]
        if room < delta:
            delta, out, side = room, u, 1
        u = t.parent[u]
    u = second
    while u != join:
        e = t.pred[u]
        room = t.capacity[e] - t.flow[e] if t.tail[e] == u else t.flow[e]
        if room <= delta:
            delta, out, side = room, u, 2
        u = t.parent[u]
    if delta > 0:
        _touch(t, arc)
        t.flow[arc] += delta if forward else -delta
        u = first
        while u != join:
            e = t.pred[u]
            _touch(t, e)
            t.flow[e] += -delta if t.tail[e] == u else delta
            u = t.parent[u]
        u = second
        while u != join:
            e = t.pred[u]
            _touch(t, e)
            t.flow[e] += delta if t.tail[e] == u else -delta
            u = t.parent[u]
    if side == 0:
        _rest(t, arc)
        return
    inner, outer = (first, second) if side == 1 else (second, first)
    _rest(t, t.pred[out])
    # The path from inner up to out turns round and hangs on outer by the entering arc.
    v, above, link = inner, outer, arc
    while True:
        old_above, old_link = t.parent[v], t.pred[v]
        _detach(t, v)
        _attach(t, v, above, link)
        if v == out:
            break
        above, link, v = v, old_link, old_above
    t.state[arc] = 0
    reduced = _reduced(t, arc)
    _shift(t, inner, reduced if t.tail[arc] == inner else -reduced)


@njit(cache=True)
def _settle(t, arc):
    """Bring an arc outside the tree, whose flow lies between its bounds, to a bound or into the tree."""
    if t.pred[t.tail[arc]] == arc or t.pred[t.head[arc]] == arc:
        return
    if t.flow[arc] == 0 or t.flow[arc] == t.capacity[arc]:
        _rest(t, arc)
        return
    _push(t, arc, _reduced(t, arc) < 0)


@njit(cache=True)
def _loosen(t, v):
    if not t.is_loose[v]:
        t.is_loose[v] = True
        t.loose[t.counters[_LOOSE]] = v
        t.counters[_LOOSE] += 1


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
def _best_around(t, top):
    """Find the arc between the subtree of ``top`` and the settled rest that improves most, or -1.

    As the subtree is priced by an artificial arc, this is the ratio test of the dual simplex: taking the arc
    leaves every other arc around the subtree with a reduced cost of the right sign.
    """
    inside = _subtree_is_smaller(t, top)
    t.counters[_STAMP] += 1
    stamp = t.counters[_STAMP]
    v = top if inside else 0
    while v >= 0:  # mark the smaller side
        t.stamp[v] = stamp
        v = _next_below(t, v, top) if inside else _next_outside(t, v, top)
    best, chosen, looked = 0, -1, 0
    low, high = t.pi[0] - ARTIFICIAL_COST // 2, t.pi[0] + ARTIFICIAL_COST // 2
    v = top if inside else 0
    while v >= 0:
        settled = low < t.pi[v] < high
        arc = t.first_out[v]
        while arc >= 0:
            w = t.head[arc]
            if t.state[arc] != 0 and t.stamp[w] != stamp and ((low < t.pi[w] < high) if inside else settled):
                reduced = t.state[arc] * (t.cost[arc] - t.pi[v] + t.pi[w])
                if reduced < best:
                    best, chosen = reduced, arc
            looked += 1
            arc = t.next_out[arc]
        arc = t.first_in[v]
        while arc >= 0:
            w = t.tail[arc]
            if t.state[arc] != 0 and t.stamp[w] != stamp and ((low < t.pi[w] < high) if inside else settled):
                reduced = t.state[arc] * (t.cost[arc] - t.pi[w] + t.pi[v])
                if reduced < best:
                    best, chosen = reduced, arc
            looked += 1
            arc = t.next_in[arc]
        if looked > _LOOK:
            return -1
        v = _next_below(t, v, top) if inside else _next_outside(t, v, top)
    return chosen


@njit(cache=True)
def reconnect(t):
    """Hang every loose subtree on the rest again by its best arc; returns the pivots made."""
    pivots = 0
    while t.counters[_LOOSE] > 0:
        t.counters[_LOOSE] -= 1
        v = t.loose[t.counters[_LOOSE]]
        t.is_loose[v] = False
        for _ in range(2000):
            if t.pred[v] != 2 * v and t.pred[v] != 2 * v + 1:
                break
            arc = _best_around(t, v)
            if arc < 0:
                break
            _push(t, arc, t.state[arc] > 0)
            pivots += 1
    t.counters[_PIVOTS] += pivots
    return pivots


@njit(cache=True)
def _inject(t, v, amount):
    """Balance ``amount`` more (or less) supply at ``v`` by its artificial arcs."""
    if v == 0 or amount == 0:
        return
    over, under = 2 * v, 2 * v + 1
    _touch(t, over)
    _touch(t, under)
    net = t.flow[over] - t.flow[under] + amount
    t.flow[over] = max(net, 0)
    t.flow[under] = max(-net, 0)
    used, spare = (over, under) if net >= 0 else (under, over)
    if t.pred[v] == spare:
        t.pred[v] = used
        t.state[used] = 0
        _shift(t, v, t.pi[0] + (ARTIFICIAL_COST if used == over else -ARTIFICIAL_COST) - t.pi[v])
    t.state[spare] = 1
    _settle(t, used)
    if t.pred[v] == used:
        _loosen(t, v)


@njit(cache=True)
def _expel(t, v):
    """Hang ``v`` on the root by an artificial arc instead of its tree arc."""
    over, under = 2 * v, 2 * v + 1
    used = under if t.flow[under] > 0 else over
    _detach(t, v)
    _attach(t, v, 0, used)
    t.state[used] = 0
    _shift(t, v, t.pi[0] + (ARTIFICIAL_COST if used == over else -ARTIFICIAL_COST) - t.pi[v])
    _loosen(t, v)


@njit(cache=True)
def _change(t, arc, tail, head, capacity, cost):
    moved = t.tail[arc] != tail or t.head[arc] != head
    flow = t.flow[arc]
    keep = 0 if moved else min(flow, capacity)
    u, v = t.tail[arc], t.head[arc]
    hung = u if t.pred[u] == arc else v if t.pred[v] == arc else -1
    if flow != keep or moved:
        if flow != keep:
            _touch(t, arc)
        if hung >= 0:
            _expel(t, hung)
            hung = -1
        t.flow[arc] = keep
        if moved:
            _unlist(t, arc)
        t.tail[arc], t.head[arc], t.capacity[arc], t.cost[arc] = tail, head, capacity, cost
        if moved:
            _list(t, arc)
        _rest(t, arc)
        _mark(t, tail)
        _inject(t, u, flow - keep)
        _inject(t, v, keep - flow)
        return
    change = cost - t.cost[arc]
    t.capacity[arc], t.cost[arc] = capacity, cost
    _mark(t, tail)
    if hung >= 0:
        if change != 0:
            _shift(t, hung, change if t.tail[arc] == hung else -change)
        return
    _settle(t, arc)


@njit(cache=True)
def change_arcs(t, arcs, tail, head, capacity, cost):
    """Give arcs new ends, capacities and costs, one after the other; the tree stays primal feasible."""
    for i in range(len(arcs)):
        _change(t, arcs[i], tail[i], head[i], capacity[i], cost[i])


@njit(cache=True)
def change_supplies(t, nodes, change):
    """Add to the supplies of nodes."""
    for i in range(len(nodes)):
        _inject(t, nodes[i], change[i])


@njit(cache=True)
def star(t, supply, count):
    """Start anew: no flow, every node hangs on the root by an artificial arc."""
    end = t.counters[_END]
    for arc in range(end):
        t.flow[arc] = 0
        t.state[arc] = 1 if t.capacity[arc] > 0 else 0
    t.parent[0], t.pred[0], t.child[0] = -1, -1, -1
    t.pi[0] = 0
    t.counters[_LOOSE] = t.counters[_MOVED] = 0
    t.is_loose[:] = False
    t.is_moved[:] = False
    for v in range(1, count):
        used = 2 * v if supply[v] >= 0 else 2 * v + 1
        t.child[v] = -1
        _attach(t, v, 0, used)
        t.state[used] = 0
        t.flow[used] = abs(supply[v])
        t.pi[v] = ARTIFICIAL_COST if supply[v] >= 0 else -ARTIFICIAL_COST


@njit(cache=True)
def optimise_near(t):
    """Pivot until no arc of a moved node improves; return False when so much moved that all should be priced.

    Between optima the reduced costs that can change sign are those of changed arcs and of arcs with one end whose
    potential moved. All of them have a moved end, so pricing those suffices, in time proportional to the change.
    """
    budget = 2 * (t.counters[_END] + 1000)
    pivots = 0
    while t.counters[_MOVED] > 0:
        t.counters[_MOVED] -= 1
        v = t.moved[t.counters[_MOVED]]
        t.is_moved[v] = False
        if v == 0:
            budget -= 1000
        best, entering = 0, -1
        arc = t.first_out[v]
        while arc >= 0:
            reduced = t.state[arc] * (t.cost[arc] - t.pi[v] + t.pi[t.head[arc]])
            if reduced < best:
                best, entering = reduced, arc
            budget -= 1
            arc = t.next_out[arc]
        arc = t.first_in[v]
        while arc >= 0:
            reduced = t.state[arc] * (t.cost[arc] - t.pi[t.tail[arc]] + t.pi[v])
            if reduced < best:
                best, entering = reduced, arc
            budget -= 1
            arc = t.next_in[arc]
        if entering >= 0:
            _mark(t, v)
            _push(t, entering, t.state[entering] > 0)
            pivots += 1
        if budget < 0:
            break
    t.counters[_PIVOTS] += pivots
    return t.counters[_MOVED] == 0


@njit(cache=True)
def forget_moved(t):
    """Everything has been priced."""
    while t.counters[_MOVED] > 0:
        t.counters[_MOVED] -= 1
        t.is_moved[t.moved[t.counters[_MOVED]]] = False


@njit(cache=True)
def optimise(t, start, most):
    """Pivot until no arc from ``start`` on improves; return whether ``most`` pivots sufficed (block search)."""
    end = t.counters[_END]
    count = end - start
    if count <= 0:
        return True
    block = max(int(np.sqrt(count)), 50)
    at = t.counters[_NEXT]
    if at < start or at >= end:
        at = start
    pivots = 0
    seen = 0
    left = block
    best = 0
    entering = -1
    while seen < count:
        reduced = t.state[at] * (t.cost[at] - t.pi[t.tail[at]] + t.pi[t.head[at]])
        if reduced < best:
            best, entering = reduced, at
        at += 1
        if at == end:
            at = start
        seen += 1
        left -= 1
        if (left == 0 or seen == count) and entering >= 0:
            _push(t, entering, t.state[entering] > 0)
            pivots += 1
            if pivots > most:
                t.counters[_PIVOTS] += pivots
                return False
            seen, best, entering = 0, 0, -1
        if left == 0:
            left = block
    t.counters[_NEXT] = at
    t.counters[_PIVOTS] += pivots
    return True


@njit(cache=True)
def violations(t, supply, start, count):
    """Recompute what an optimum must satisfy, from arcs, flows and potentials alone.

    Returns the largest violation of flow conservation, of the bounds, of the signs of reduced costs, and the
    flow on artificial arcs: all zero exactly when the flow is a minimum-cost flow of the real arcs.
    """
    end = t.counters[_END]
    excess = np.zeros(count, np.int64)
    bounds = 0
    signs = 0
    for arc in range(start, end):
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
    artificial = 0
    for v in range(1, count):
        artificial = max(artificial, t.flow[2 * v] + t.flow[2 * v + 1])
        conservation = max(conservation, abs(excess[v] - supply[v]))
    return conservation, bounds, signs, artificial
