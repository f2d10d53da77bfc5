"""Successive shortest paths on the live network (see `live_network`), compiled by numba.

The excess of a node is sent along a shortest path of the residual network to a deficit or the root; a deficit is met
in the reverse direction. Lengths are reduced costs. Raising the potentials of all nodes nearer than the end of the path
keeps every arc optimal (Jewell; Iri; Busacker and Gowen; potentials by Edmonds and Karp, and Tomizawa). The work is
proportional to the nearer nodes. A search may stop early: raising the potentials of all nodes nearer than any distance
also keeps every arc optimal (as in Bertsekas's auction and relaxation methods).
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

from flowlex.systems.scheduler.warm_network.residual_network import (
    DONE,
    FAR,
    FIRST,
    HEAP,
    LAST,
    LOOKS,
    LOOSE,
    PATHS,
    STAMP,
    kernel,
    put_flow,
)

#: Arcs that a search may scan before it is postponed; each round allows four times as many. In an overfull cluster of
#: 10 000 machines, 1000 events, this needs a third of the scans of searches without a limit.
_FIRST_LOOKS = 256


@kernel
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


@kernel
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


@kernel
def _next(t, reached):
    """The nearest node that is reached and not settled, or -1."""
    while t.counters[FIRST] < t.counters[LAST]:
        u = t.near[t.counters[FIRST]]
        t.counters[FIRST] += 1
        if t.stamp[u] == reached:
            return u
    t.counters[FIRST] = t.counters[LAST] = 0
    while t.counters[HEAP] > 0:
        u = _pop(t)
        if t.stamp[u] == reached:
            return u
    return -1


@kernel
def _reach(t, w, now, reached):
    """Insert a node with a lower distance into the queue or the heap of `_next`."""
    fresh = t.stamp[w] != reached
    if fresh:
        t.stamp[w] = reached
        t.place[w] = -1
    if t.distance[w] == now:
        if t.place[w] >= 0:
            _sift_up(t, w)  # it leaves the heap later, as a settled node
        t.near[t.counters[LAST]] = w
        t.counters[LAST] += 1
        return
    if t.place[w] < 0:
        t.place[w] = t.counters[HEAP]
        t.heap[t.counters[HEAP]] = w
        t.counters[HEAP] += 1
    _sift_up(t, w)


@kernel
def _scan(t, u, reached, forward, target):
    """Scan the residual arcs of a settled node; return the nearest target so far."""
    now, price = t.distance[u], t.pi[u]
    limit = t.distance[target] if target >= 0 else FAR
    for out in range(2):
        following = t.first_out[u] if out == 0 else t.first_in[u]
        adds = forward == (out == 0)  # whether the path adds flow to the arcs
        while following >= 0:
            t.counters[LOOKS] += 1
            arc = following
            if adds:
                if t.flow[arc] >= t.capacity[arc]:
                    following = t.next_out[arc] if out == 0 else t.next_in[arc]
                    continue
            elif t.flow[arc] == 0:
                break  # the arcs after it carry no flow either
            w = t.head[arc] if out == 0 else t.tail[arc]
            following = t.next_out[arc] if out == 0 else t.next_in[arc]
            if t.stamp[w] == reached + 1:
                continue
            reduced = t.cost[arc] + (t.pi[w] - price if out == 0 else price - t.pi[w])
            length = now + (reduced if adds else -reduced)
            if length >= limit or (t.stamp[w] == reached and length >= t.distance[w]):
                continue
            t.distance[w], t.link[w] = length, arc
            if w == 0 or (t.excess[w] < 0 if forward else t.excess[w] > 0):
                target, limit = w, length
                t.stamp[w] = reached
                if length == now:
                    return target
            else:
                _reach(t, w, now, reached)
    return target


@kernel
def _search(t, source, forward, budget):
    """Find the nearest node that can balance ``source``, and raise the settled potentials; return it, or -1.

    From an excess the search follows residual arcs to a deficit or the root; from a deficit it follows them backwards
    to an excess or the root. Beyond the budget of arcs it stops early and returns -2; the raised potentials shorten
    the next search.
    """
    t.counters[STAMP] += 2
    reached = t.counters[STAMP]  # settled nodes are stamped with one more
    t.counters[HEAP] = t.counters[DONE] = t.counters[FIRST] = t.counters[LAST] = 0
    t.distance[source], t.link[source] = 0, -1
    _reach(t, source, 0, reached)
    target, now, stop = -1, 0, t.counters[LOOKS] + budget
    while target < 0 or t.distance[target] > now:
        u = _next(t, reached)
        if u < 0 or (target >= 0 and t.distance[u] >= t.distance[target]):
            break
        if t.distance[u] > now and t.counters[LOOKS] > stop:
            target, now = -2, t.distance[u]
            break
        now = t.distance[u]
        t.stamp[u] = reached + 1
        t.settled[t.counters[DONE]] = u
        t.counters[DONE] += 1
        target = _scan(t, u, reached, forward, target)
    if target == -1:
        return -1
    end = now if target < 0 else t.distance[target]
    for i in range(t.counters[DONE]):
        u = t.settled[i]
        more = end - t.distance[u]
        t.pi[u] += more if forward else -more
    return target


@kernel
def cheapest(t, source, without, ordered):
    """Find the cheapest paths from a node of an optimum to all others, without one arc; return the stamp of those.

    ``ordered``: the lists of arcs into a node begin with those that carry flow.
    """
    t.counters[STAMP] += 2
    reached = t.counters[STAMP]
    t.counters[HEAP] = t.counters[FIRST] = t.counters[LAST] = 0
    t.distance[source], t.link[source] = 0, -1
    _reach(t, source, 0, reached)
    u = _next(t, reached)
    while u >= 0:
        t.stamp[u] = reached + 1
        now, price = t.distance[u], t.pi[u]
        for out in range(2):
            following = t.first_out[u] if out == 0 else t.first_in[u]
            while following >= 0:
                arc = following
                following = t.next_out[arc] if out == 0 else t.next_in[arc]
                full = t.flow[arc] >= t.capacity[arc] if out == 0 else t.flow[arc] == 0
                if full and out == 1 and ordered:
                    break
                w = t.head[arc] if out == 0 else t.tail[arc]
                if full or arc == without or t.stamp[w] == reached + 1:
                    continue
                length = now + t.pi[w] - price + (t.cost[arc] if out == 0 else -t.cost[arc])
                if t.stamp[w] != reached or length < t.distance[w]:
                    t.distance[w], t.link[w] = length, arc
                    _reach(t, w, now, reached)
        u = _next(t, reached)
    return reached + 1


@kernel
def _send(t, source, target, forward):
    """Send as much along the path found as source, target and arcs allow."""
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
        put_flow(t, arc, t.flow[arc] + (amount if adds else -amount))
        v = t.tail[arc] if t.head[arc] == v else t.head[arc]
    t.excess[source] -= amount if forward else -amount
    t.excess[target] += amount if forward else -amount
    t.counters[PATHS] += 1


@kernel
def balance(t, budget):
    """Balance all nodes by shortest paths; return 0, or a node that cannot be balanced, or -1 beyond the budget.

    Long searches wait until the short ones are done, which often shortens them.
    """
    t.counters[LOOKS] = 0
    patience, stuck = _FIRST_LOOKS, 0
    while t.counters[LOOSE] > 0 and stuck == 0:
        count, t.counters[LOOSE] = t.counters[LOOSE], 0
        for i in range(count):
            v = t.loose[i]
            while t.excess[v] != 0 and stuck == 0:
                forward = t.excess[v] > 0
                target = -2 if t.counters[LOOKS] > budget else _search(t, v, forward, patience)
                if target < 0:
                    stuck = v if target == -1 else stuck
                    break
                _send(t, v, target, forward)
            if t.excess[v] == 0:
                t.is_loose[v] = False
            else:
                t.loose[t.counters[LOOSE]] = v
                t.counters[LOOSE] += 1
        patience *= 4
        if t.counters[LOOSE] > 0 and stuck == 0 and t.counters[LOOKS] > budget:
            stuck = -1
    return stuck
