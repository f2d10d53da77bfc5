"""Tasks that each take one of a few places: every source sends one unit to a place, or to the one sink at once.

A place holds as many units as its arcs to the sink carry, each at its cost (a *slot*). Sources bid for slots: the best
one's price rises until the second best is as good, and ``epsilon`` more, so that every source is content up to epsilon.
A free slot whose price has risen bids for the source that would gain most, until nobody would or its price is back.
Epsilon shrinks, prices stay; where costs are multiplied by more than there are sources, epsilon 1 is the optimum.
Prices of the costs as they are then come from shortest paths, and prove it.

Source: Bertsekas and Castanon, "A forward/reverse auction algorithm for asymmetric assignment problems" (1992).
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.loops import njit

__all__ = ["solve_by_auction"]

#: Epsilon begins at this part of the dearest cost, and shrinks by this factor; before that, prices fall by twice what
#: they may have risen too far.
_FIRST, _SHRINK, _FALL = 40, 5, 2
#: Arcs looked at, as multiples of those there are, beyond which the network simplex takes over.
_PATIENCE = 150
#: Most slots of a place, and on the average: they are looked through one by one.
_SLOTS, _MEAN_SLOTS = 64, 8
#: Prices stay below this.
_SAFE = 2**60
_FAR = 2**62
_NONE, _WAITS = -1, -2


class _Market(NamedTuple):
    """Sources (N), places (M), slots (S) place by place, and ways (W): arcs from sources, source by source."""

    start: Any  # (N + 1,) first way of each source
    place: Any  # (W,) int32 where it leads; M is the sink
    cost: Any  # (W,) scaled
    source: Any  # (W,) int32
    back: Any  # (M + 1,) first entry of each place in `ways`
    ways: Any  # (W',) int32 ways to each place
    first: Any  # (M + 1,) first slot of each place
    owner_place: Any  # (S,) int32 place of each slot
    base: Any  # (S,) scaled cost of each slot
    price: Any  # (S,) what a slot asks, its cost included
    owner: Any  # (S,) int32 source in it, or _NONE
    best: Any  # (M,) int32 cheapest slot of each place, _NONE where there is none
    slot: Any  # (N,) int32 slot of each source, _WAITS at the sink, _NONE
    way: Any  # (N,) int32 the way it took
    stack: Any  # (N + S,) int32


@njit(cache=True)
def _cheapest(m, j):
    """Find the cheapest slot of a place anew."""
    at, least = m.first[j], _FAR
    for s in range(m.first[j], m.first[j + 1]):
        if m.price[s] < least:
            at, least = s, m.price[s]
    m.best[j] = at


@njit(cache=True)
def _pays(m, i):
    """What a source pays now."""
    s = m.slot[i]
    return m.cost[m.way[i]] + (m.price[s] if s >= 0 else 0)


@njit(cache=True)
def _bid_all(start, place, cost, first, price, owner, best, slot, way, stack, count, epsilon, looks):
    """Let the ``count`` sources on the stack, and those they drive out, take their best slots; returns looks left.

    Arrays one by one and no calls: this is where the time goes.
    """
    places = len(best)
    while count > 0:
        i = stack[count - 1]
        looks -= start[i + 1] - start[i] + 5
        if looks < 0:
            return looks
        least, second, at = _FAR, _FAR, -1
        for w in range(start[i], start[i + 1]):
            j = place[w]
            value = cost[w]
            if j < places:
                if best[j] < 0:
                    continue
                value += price[best[j]]
            if value < least:
                least, second, at = value, least, w
            elif value < second:
                second = value
        if at < 0:  # none of its places has a slot
            return -1
        way[i] = at
        j = place[at]
        if j == places:
            slot[i] = _WAITS
            count -= 1
            continue
        s, cheapest, other = best[j], -1, _FAR
        for k in range(first[j], first[j + 1]):
            if k != s and price[k] < other:
                cheapest, other = k, price[k]
        if cheapest >= 0:  # another slot of the place is the second best, perhaps
            second = min(second, cost[at] + other)
        price[s] += min(second - least, _SAFE // 8) + epsilon
        if other < price[s]:
            best[j] = cheapest
        out = owner[s]
        owner[s], slot[i] = i, s
        if out >= 0:
            slot[out] = _NONE
            stack[count - 1] = out
        else:
            count -= 1
    return looks


@njit(cache=True)
def _offer(m, s, epsilon):
    """Lower the price of a free slot until a source takes it, or nobody would; returns the slot that gets free."""
    j = m.owner_place[s]
    gain, second, at = -_FAR, -_FAR, -1
    for k in range(m.back[j], m.back[j + 1]):
        w = m.ways[k]
        value = _pays(m, m.source[w]) - m.cost[w]
        if value > gain:
            gain, second, at = value, gain, w
        elif value > second:
            second = value
    if at < 0 or gain - epsilon <= m.base[s]:
        m.price[s] = m.base[s]
        _cheapest(m, j)
        return _NONE
    i = m.source[at]
    out = m.slot[i]
    m.price[s] = max(m.base[s], second - epsilon)
    m.owner[s], m.slot[i], m.way[i] = i, s, at
    if out >= 0:
        m.owner[out] = _NONE
    _cheapest(m, j)
    return out


@njit(cache=True)
def _phase(m, epsilon, looks):
    """Make every source content up to epsilon and every free slot cheap; returns the looks left, negative past them."""
    count, places = 0, len(m.best)
    for i in range(len(m.slot) - 1, -1, -1):
        if m.slot[i] != _NONE:
            best = _FAR
            for w in range(m.start[i], m.start[i + 1]):
                j = m.place[w]
                if j == places:
                    best = min(best, m.cost[w])
                elif m.best[j] >= 0:
                    best = min(best, m.cost[w] + m.price[m.best[j]])
            if _pays(m, i) <= best + epsilon:
                continue
            if m.slot[i] >= 0:
                m.owner[m.slot[i]] = _NONE
            m.slot[i] = _NONE
        m.stack[count] = i
        count += 1
    looks = _bid_all(
        m.start, m.place, m.cost, m.first, m.price, m.owner, m.best, m.slot, m.way, m.stack, count, epsilon, looks
    )
    if looks < 0:
        return looks
    for s in range(len(m.owner)):
        free = s
        while free >= 0 and m.owner[free] < 0 and m.price[free] > m.base[free]:
            j = m.owner_place[free]
            looks -= 2 * (m.back[j + 1] - m.back[j]) + 5
            if looks < 0:
                return looks
            free = _offer(m, free, epsilon)
    return looks


@njit(cache=True)
def _prove(tail, head, cost, upper, flow, pi, sources, passes):
    """Correct potentials until they prove the flow; False when that takes too many passes (or it is not optimal)."""
    pi[sources] = _FAR // 2
    for _ in range(passes):
        changed = False
        for a in range(len(tail)):
            u, v = tail[a], head[a]
            if flow[a] < upper[a] and cost[a] + pi[v] < pi[u]:
                pi[u] = cost[a] + pi[v]
                changed = True
            if flow[a] > 0 and pi[u] - cost[a] < pi[v]:
                pi[v] = pi[u] - cost[a]
                changed = True
        if not changed:
            return True
    return False


def solve_by_auction(network: FlowNetwork) -> tuple[Integers, Integers] | None:
    """Flow and potentials of an optimum of such a network; None of others, and where the auction takes too long."""
    sinks, sources = np.flatnonzero(network.supply < 0), np.flatnonzero(network.supply > 0)
    if len(sinks) != 1 or (network.supply[sources] != 1).any() or network.lower.any():
        return None
    made = _open_market(network, sources, int(sinks[0]))
    if made is None:
        return None
    m, scale, way_arc, slot_arc, places = made
    epsilon = max(1, int(np.abs(network.cost).max(initial=1)) * scale // _FIRST)
    looks = _PATIENCE * network.arc_count
    while (looks := _phase(m, epsilon, looks)) >= 0:
        if 2 * epsilon <= scale or epsilon == 1:  # it may be optimal already
            flow = np.zeros(network.arc_count, np.int64)
            flow[way_arc[m.way]] = 1
            np.add.at(flow, slot_arc[m.owner >= 0], 1)
            pi = np.zeros(network.node_count, np.int64)
            pi[places] = np.where(m.best >= 0, np.append(m.price, 0)[m.best] // scale, _FAR // 4)
            passes = 1000 if epsilon == 1 else 20
            if _prove(network.tail, network.head, network.cost, network.upper, flow, pi, sources, passes):
                shut = places[m.best < 0]  # nothing leaves them, so that they may cost anything from here on
                pi[shut] = pi[sources].max() + np.abs(network.cost).max() + 1
                return flow, pi
        if epsilon == 1:
            return None
        np.maximum(m.base, m.price - _FALL * epsilon, out=m.price)
        _price_places(m)
        epsilon = max(1, epsilon // _SHRINK)
    return None


def _open_market(
    network: FlowNetwork, sources: Integers, sink: int
) -> tuple[_Market, int, Integers, Integers, Integers] | None:
    """The network as a market with nobody placed, its scale, the arcs of ways and slots, and the places."""
    nodes, tail, head = network.node_count, network.tail, network.head
    kind = np.zeros(nodes, np.int8)  # 0 place, 1 source, 2 sink
    kind[sources], kind[sink] = 1, 2
    usable = network.upper > 0
    from_, to = kind[tail], kind[head]
    if (usable & ((from_ == 2) | (to == 1) | ((from_ == 0) & (to != 2)))).any():
        return None
    ways, links = np.flatnonzero(usable & (from_ == 1)), np.flatnonzero(usable & (from_ == 0))
    count = np.minimum(network.upper[links], len(sources))
    places = np.flatnonzero(kind == 0)
    number = np.full(nodes, len(places), np.int32)
    number[places] = np.arange(len(places))
    per_place = np.bincount(number[tail[links]], weights=count, minlength=len(places))
    per_source = np.bincount(tail[ways], minlength=nodes)[sources]
    scale = len(sources) + 1
    dearest = int(np.abs(network.cost).max(initial=1)) + 1
    if per_place.max(initial=0) > _SLOTS or per_place.sum() > _MEAN_SLOTS * len(places) or not per_source.all():
        return None
    if not len(places) or dearest * scale * scale >= _SAFE // 8:
        return None
    rank = np.zeros(nodes, np.int64)
    rank[sources] = np.arange(len(sources))
    ways = ways[np.argsort(rank[tail[ways]], kind="stable")]
    slot_arc = np.repeat(links, count)
    slot_arc = slot_arc[np.argsort(number[tail[slot_arc]], kind="stable")]
    way_place, slot_place = number[head[ways]], number[tail[slot_arc]]
    first, back = (_pointer(np.bincount(of, minlength=len(places) + 1)[:-1]) for of in (slot_place, way_place))
    base = network.cost[slot_arc] * scale
    small = np.int32
    market = _Market(
        start=_pointer(per_source),
        place=way_place,
        cost=network.cost[ways] * scale,
        source=rank[tail[ways]].astype(small),
        back=back,
        ways=np.argsort(way_place, kind="stable")[: back[-1]].astype(small),
        first=first,
        owner_place=slot_place,
        base=base,
        price=base.copy(),
        owner=np.full(len(base), _NONE, small),
        best=np.full(len(places), _NONE, small),
        slot=np.full(len(sources), _NONE, small),
        way=np.zeros(len(sources), small),
        stack=np.zeros(len(sources) + 1, small),
    )
    _price_places(market)
    return market, scale, ways, slot_arc, places


@njit(cache=True)
def _price_places(m):
    for j in range(len(m.best)):
        if m.first[j + 1] > m.first[j]:
            _cheapest(m, j)


def _pointer(counts: Integers) -> Integers:
    pointer: Integers = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=pointer[1:])
    return pointer
