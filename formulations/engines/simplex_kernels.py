"""The compiled loops of the live network simplex (see `network_session`), by numba, cached on disk.

Changes of any kind keep the tree primal feasible; loose parts are hung up again by the ratio test of the dual
simplex; then the arcs near what moved are priced, or all of them. Conventions: see `simplex_tree`.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np
from numba import njit

from flowlex.formulations.engines.simplex_tree import (
    ARTIFICIAL_COST,
    END,
    ENDLESS,
    LOOSE,
    MOVED,
    NEXT,
    PIVOTS,
    STAMP,
    Basis,
    attach,
    detach,
    mark,
    next_below,
    next_outside,
    push,
    rest,
    settle,
    shift,
    subtree_is_smaller,
    touch,
)

__all__ = [
    "ARTIFICIAL_COST",
    "ENDLESS",
    "Basis",
    "change_arcs",
    "change_supplies",
    "forget_moved",
    "optimise",
    "optimise_near",
    "plant",
    "reconnect",
    "star",
    "write_arcs",
]

#: Arcs looked at around a loose subtree before it is left to ordinary pricing.
LOOK = 30_000


@njit(cache=True)
def _loosen(t, v):
    if not t.is_loose[v]:
        t.is_loose[v] = True
        t.loose[t.counters[LOOSE]] = v
        t.counters[LOOSE] += 1


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
    inside = subtree_is_smaller(t, top)
    t.counters[STAMP] += 1
    stamp = t.counters[STAMP]
    v, looked = (top if inside else 0), 0
    while v >= 0:  # mark the smaller side
        t.stamp[v] = stamp
        looked += 4
        v = next_below(t, v, top) if inside else next_outside(t, v, top)
    best, chosen = 0, -1
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
        if looked > LOOK:
            return -1, looked
        v = next_below(t, v, top) if inside else next_outside(t, v, top)
    return chosen, looked


@njit(cache=True)
def reconnect(t):
    """Hang every loose subtree on the rest again by its best arc; returns the pivots made."""
    pivots = 0
    budget = 8 * t.counters[END] + 100_000  # arcs looked at before the rest is left to ordinary pricing
    while t.counters[LOOSE] > 0:
        t.counters[LOOSE] -= 1
        v = t.loose[t.counters[LOOSE]]
        t.is_loose[v] = False
        while budget > 0 and (t.pred[v] == 2 * v or t.pred[v] == 2 * v + 1):
            arc, looked = _best_around(t, v)
            budget -= looked
            if arc < 0:
                break
            push(t, arc, t.state[arc] > 0)
            budget -= 500
            pivots += 1
    t.counters[PIVOTS] += pivots
    return pivots


@njit(cache=True)
def _inject(t, v, amount):
    """Balance ``amount`` more (or less) supply at ``v`` by its artificial arcs."""
    if v == 0 or amount == 0:
        return
    over, under = 2 * v, 2 * v + 1
    touch(t, over)
    touch(t, under)
    net = t.flow[over] - t.flow[under] + amount
    t.flow[over] = max(net, 0)
    t.flow[under] = max(-net, 0)
    used, spare = (over, under) if net >= 0 else (under, over)
    if t.pred[v] == spare:
        t.pred[v] = used
        t.state[used] = 0
        shift(t, v, t.pi[0] + (ARTIFICIAL_COST if used == over else -ARTIFICIAL_COST) - t.pi[v])
    t.state[spare] = 1
    settle(t, used)
    if t.pred[v] == used:
        _loosen(t, v)


@njit(cache=True)
def _expel(t, v):
    """Hang ``v`` on the root by an artificial arc instead of its tree arc."""
    over, under = 2 * v, 2 * v + 1
    used = under if t.flow[under] > 0 else over
    detach(t, v)
    attach(t, v, 0, used)
    t.state[used] = 0
    shift(t, v, t.pi[0] + (ARTIFICIAL_COST if used == over else -ARTIFICIAL_COST) - t.pi[v])
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
            touch(t, arc)
        if hung >= 0:
            _expel(t, hung)
            hung = -1
        t.flow[arc] = keep
        if moved:
            _unlist(t, arc)
        t.tail[arc], t.head[arc], t.capacity[arc], t.cost[arc] = tail, head, capacity, cost
        if moved:
            _list(t, arc)
        rest(t, arc)
        mark(t, tail)
        _inject(t, u, flow - keep)
        _inject(t, v, keep - flow)
        return
    change = cost - t.cost[arc]
    t.capacity[arc], t.cost[arc] = capacity, cost
    mark(t, tail)
    if hung >= 0:
        if change != 0:
            shift(t, hung, change if t.tail[arc] == hung else -change)
        return
    settle(t, arc)


@njit(cache=True)
def change_arcs(t, arcs, tail, head, capacity, cost):
    """Give arcs new ends, capacities and costs, one after the other; the tree stays primal feasible."""
    for i in range(len(arcs)):
        _change(t, arcs[i], tail[i], head[i], capacity[i], cost[i])


@njit(cache=True)
def write_arcs(t, arcs, tail, head, capacity, cost):
    """Give arcs new ends, capacities and costs without minding flow and tree, which are made anew afterwards."""
    for i in range(len(arcs)):
        arc = arcs[i]
        _unlist(t, arc)
        t.tail[arc], t.head[arc], t.capacity[arc], t.cost[arc] = tail[i], head[i], capacity[i], cost[i]
        _list(t, arc)


@njit(cache=True)
def change_supplies(t, nodes, change):
    """Add to the supplies of nodes."""
    for i in range(len(nodes)):
        _inject(t, nodes[i], change[i])


@njit(cache=True)
def star(t, supply, count):
    """Start anew: no flow, every node hangs on the root by an artificial arc."""
    end = t.counters[END]
    for arc in range(end):
        if t.flow[arc] != 0:
            touch(t, arc)
            t.flow[arc] = 0
        t.state[arc] = 1 if t.capacity[arc] > 0 else 0
    t.parent[0], t.pred[0], t.child[0] = -1, -1, -1
    t.pi[0] = 0
    t.counters[LOOSE] = t.counters[MOVED] = 0
    t.is_loose[:] = False
    t.is_moved[:] = False
    for v in range(1, count):
        used = 2 * v if supply[v] >= 0 else 2 * v + 1
        t.child[v] = -1
        attach(t, v, 0, used)
        t.state[used] = 0
        t.flow[used] = abs(supply[v])
        t.pi[v] = ARTIFICIAL_COST if supply[v] >= 0 else -ARTIFICIAL_COST


@njit(cache=True)
def plant(t, order, parent, link, count):
    """Grow the tree anew from ``order`` (root first), each node's parent and the arc to it; flows stay."""
    for arc in range(t.counters[END]):
        rest(t, arc)
    t.counters[LOOSE] = t.counters[MOVED] = 0
    t.is_loose[:] = False
    t.is_moved[:] = False
    t.child[:] = -1
    t.parent[0], t.pred[0], t.pi[0] = -1, -1, 0
    for i in range(1, count):
        v = order[i]
        u, arc = parent[v], link[v]
        attach(t, v, u, arc)
        t.state[arc] = 0
        t.pi[v] = t.pi[u] + t.cost[arc] if t.tail[arc] == v else t.pi[u] - t.cost[arc]


@njit(cache=True)
def optimise_near(t):
    """Pivot until no arc of a moved node improves; return False when so much moved that all should be priced.

    Between optima the reduced costs that can change sign are those of changed arcs and of arcs with one end whose
    potential moved. All of them have a moved end, so pricing those suffices, in time proportional to the change.
    """
    budget = t.counters[END] + 100_000
    pivots = 0
    while t.counters[MOVED] > 0:
        t.counters[MOVED] -= 1
        v = t.moved[t.counters[MOVED]]
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
            mark(t, v)
            push(t, entering, t.state[entering] > 0)
            budget -= 500
            pivots += 1
        if budget < 0:
            break
    t.counters[PIVOTS] += pivots
    return t.counters[MOVED] == 0


@njit(cache=True)
def forget_moved(t):
    """Everything has been priced."""
    while t.counters[MOVED] > 0:
        t.counters[MOVED] -= 1
        t.is_moved[t.moved[t.counters[MOVED]]] = False


@njit(cache=True)
def optimise(t, start, most):
    """Pivot until no arc from ``start`` on improves; return whether ``most`` pivots sufficed (block search)."""
    end = t.counters[END]
    count = end - start
    if count <= 0:
        return True
    block = max(int(np.sqrt(count)), 50)
    at = t.counters[NEXT]
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
            push(t, entering, t.state[entering] > 0)
            pivots += 1
            if pivots > most:
                t.counters[PIVOTS] += pivots
                return False
            seen, best, entering = 0, 0, -1
        if left == 0:
            left = block
    t.counters[NEXT] = at
    t.counters[PIVOTS] += pivots
    return True
