"""The spanning tree of the live network simplex: its arrays, and pushing flow around a cycle (numba).

Conventions: the reduced cost of an arc is ``cost - pi[tail] + pi[head]``. Node 0 is the root and takes whatever
the others supply. Arc ``2 v`` (``v -> root``) and ``2 v + 1`` (``root -> v``) are the artificial arcs of node
``v``, without capacity and so dear that none carries flow when any flow without them exists. Tree arcs and arcs
of capacity 0 have state 0 (never priced), the others 1 at their lower bound (zero) and -1 at their capacity.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

__all__ = [
    "ARTIFICIAL_COST",
    "END",
    "ENDLESS",
    "LOOSE",
    "MOVED",
    "NEXT",
    "PIVOTS",
    "STAMP",
    "Basis",
    "attach",
    "detach",
    "mark",
    "next_below",
    "next_outside",
    "push",
    "rest",
    "settle",
    "shift",
    "subtree_is_smaller",
    "touch",
]

#: Cost of an artificial arc; real costs along any path must stay below half of it.
ARTIFICIAL_COST = 2**58
#: Capacity of an arc without capacity.
ENDLESS = 2**60

# Places in `Basis.counters`.
#: Where pricing continues, touched arcs, pivots, end of the arcs in use, loose nodes, last stamp, moved nodes.
NEXT, TOUCHED, PIVOTS, END, LOOSE, STAMP, MOVED = 0, 1, 2, 3, 4, 5, 6


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
def detach(t, v):
    above, left, right = t.parent[v], t.previous[v], t.following[v]
    if left >= 0:
        t.following[left] = right
    else:
        t.child[above] = right
    if right >= 0:
        t.previous[right] = left


@njit(cache=True)
def attach(t, v, above, arc):
    first = t.child[above]
    t.following[v] = first
    t.previous[v] = -1
    if first >= 0:
        t.previous[first] = v
    t.child[above] = v
    t.parent[v] = above
    t.pred[v] = arc


@njit(cache=True)
def next_below(t, v, top):
    """The node after ``v`` in the subtree of ``top``, or -1."""
    if t.child[v] >= 0:
        return t.child[v]
    while v != top:
        if t.following[v] >= 0:
            return t.following[v]
        v = t.parent[v]
    return -1


@njit(cache=True)
def next_outside(t, v, top):
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
def subtree_is_smaller(t, top):
    """Compare the subtree of ``top`` with the rest of the tree, in time proportional to the smaller."""
    v, w = top, 0
    while True:
        v = next_below(t, v, top)
        if v < 0:
            return True
        w = next_outside(t, w, top)
        if w < 0:
            return False


@njit(cache=True)
def mark(t, v):
    """Note that arcs of ``v`` must be priced again."""
    if not t.is_moved[v]:
        t.is_moved[v] = True
        t.moved[t.counters[MOVED]] = v
        t.counters[MOVED] += 1


@njit(cache=True)
def shift(t, top, sigma):
    """Raise the potentials below ``top`` by ``sigma`` against the others (by lowering those if they are fewer)."""
    if sigma == 0:
        return
    if subtree_is_smaller(t, top):
        v = top
        while v >= 0:
            t.pi[v] += sigma
            mark(t, v)
            v = next_below(t, v, top)
    else:
        v = 0
        while v >= 0:
            t.pi[v] -= sigma
            mark(t, v)
            v = next_outside(t, v, top)


@njit(cache=True)
def touch(t, arc):
    if t.before[arc] < 0:
        t.before[arc] = t.flow[arc]
        t.touched[t.counters[TOUCHED]] = arc
        t.counters[TOUCHED] += 1


@njit(cache=True)
def reduced(t, arc):
    return t.cost[arc] - t.pi[t.tail[arc]] + t.pi[t.head[arc]]


@njit(cache=True)
def rest(t, arc):
    """Set the state of an arc that leaves the tree."""
    if t.capacity[arc] == 0:
        t.state[arc] = 0
    elif t.flow[arc] == 0:
        t.state[arc] = 1
    else:
        t.state[arc] = -1


@njit(cache=True)
def meet(t, u, v):
    """The first common node of the ways from ``u`` and ``v`` to the root, climbed in turns."""
    t.counters[STAMP] += 1
    stamp = t.counters[STAMP]
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
def push(t, arc, forward):
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
    join = meet(t, first, second)
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
        touch(t, arc)
        t.flow[arc] += delta if forward else -delta
        u = first
        while u != join:
            e = t.pred[u]
            touch(t, e)
            t.flow[e] += -delta if t.tail[e] == u else delta
            u = t.parent[u]
        u = second
        while u != join:
            e = t.pred[u]
            touch(t, e)
            t.flow[e] += delta if t.tail[e] == u else -delta
            u = t.parent[u]
    if side == 0:
        rest(t, arc)
        return
    inner, outer = (first, second) if side == 1 else (second, first)
    rest(t, t.pred[out])
    # The path from inner up to out turns round and hangs on outer by the entering arc.
    v, above, link = inner, outer, arc
    while True:
        old_above, old_link = t.parent[v], t.pred[v]
        detach(t, v)
        attach(t, v, above, link)
        if v == out:
            break
        above, link, v = v, old_link, old_above
    t.state[arc] = 0
    sigma = reduced(t, arc)
    shift(t, inner, sigma if t.tail[arc] == inner else -sigma)


@njit(cache=True)
def settle(t, arc):
    """Bring an arc outside the tree, whose flow lies between its bounds, to a bound or into the tree."""
    if t.pred[t.tail[arc]] == arc or t.pred[t.head[arc]] == arc:
        return
    if t.flow[arc] == 0 or t.flow[arc] == t.capacity[arc]:
        rest(t, arc)
        return
    push(t, arc, reduced(t, arc) < 0)
