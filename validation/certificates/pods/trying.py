"""Small instances, tried in all ways: the most of every level, then the most even loads (numba)."""

# numba infers the types; annotations would say nothing to it and little to a reader.
# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

from itertools import combinations

import numpy as np

from flowlex.formulations.loops import njit

__all__ = ["choices_of_cards", "try_all"]


def choices_of_cards(cards: int) -> tuple[np.ndarray, np.ndarray]:
    """(M, B) ways to choose 0, 1, .. of so many cards, as bits, and (M,) how many ways there are."""
    ways = [[sum(1 << k for k in chosen) for chosen in combinations(range(cards), m)] for m in range(cards + 1)]
    table = np.zeros((cards + 1, max(map(len, ways))), np.int64)
    for m, chosen in enumerate(ways):
        table[m, : len(chosen)] = chosen
    return table, np.array([len(chosen) for chosen in ways], np.int64)


@njit(cache=True)
def _fits(free, pod, node, need, chosen, own, distinct):
    """Whether the chosen cards take the pod, are its own if it has some, else the first among equally free ones."""
    cards = free.shape[1]
    if own[pod, node] and chosen != own[pod, node]:
        return False
    for a in range(cards):
        on = (chosen >> a) & 1
        if on and free[node, a] < need[pod, node]:
            return False
        for b in range(a + 1, 0 if on or distinct[node] else cards):
            if (chosen >> b) & 1 and free[node, b] == free[node, a]:
                return False
    return True


@njit(cache=True)
def _move(size, need, room, card, pod, node, chosen, sign):
    """Take a pod's sizes from a node and its cards (sign -1), or give them back (1)."""
    room[node, 0] += sign * size[pod, 0]
    room[node, 1] += sign * size[pod, 1]
    for a in range(card.shape[1]):
        if (chosen >> a) & 1:
            card[node, a] += sign * need[pod, node]


@njit(cache=True)
def _value(mode, loads):
    """Deviation, mean absolute deviation or largest load."""
    if mode == 2:
        return loads.max()
    mean, total = loads.mean(), 0.0
    for load in loads:
        total += (load - mean) ** 2 if mode == 0 else abs(load - mean)
    return np.sqrt(total / len(loads)) if mode == 0 else total / len(loads)


@njit(cache=True)
def _less(placed, left, best):
    """Whether even with all that is left, less is placed than in the best."""
    for k in range(len(best)):
        most = placed[k] + left[k]
        if most != best[k]:
            return most < best[k]
    return False


@njit(cache=True)
def _ahead(placed, best, found, value):
    """Whether more is placed by level, or as much and more evenly."""
    for k in range(len(best)):
        if placed[k] != best[k]:
            return placed[k] > best[k]
    return found < value


@njit(cache=True)
def _later(level, worth, levels):
    """(P + 1, L) worth of each level of the pods from one on."""
    left = np.zeros((len(level) + 1, levels), np.int64)
    for p in range(len(level) - 1, -1, -1):
        left[p] = left[p + 1]
        if level[p] >= 0:
            left[p, level[p]] += worth[p]
    return left


@njit(cache=True)
def try_all(
    size,
    need,
    many,
    may,
    own,
    distinct,
    cost,
    must,
    level,
    worth,
    like,
    load,
    room,
    card,
    ways,
    number,
    budget,
    mode,
    limit,
):
    """The lexicographically most worth by level, the best balance with it, and whether all was tried.

    Parameters
    ----------
    size, need, many
        (P, 2) cores and memory, (P, N) memory of each card, (P,) cards.
    may, cost, must
        (P, N) whether the pod may be there, what its move there costs; (P,) whether it must run.
    own, distinct
        (P, N) the cards that it has to use there, as bits, 0: any; (N,) whether cards are told apart by such pods.
    level, worth, like
        (P,) level (-1 for none) and worth; whether it is equal to the pod before.
    load
        (P, N) what it adds to a node's load.
    room, card
        (N, 2) and (N, K); changed in place.
    ways, number
        See `choices_of_cards`.
    """
    pods, nodes, levels = len(many), len(room), level.max() + 1 if len(level) else 0
    left = _later(level, worth, levels)
    placed, best = np.zeros(levels, np.int64), np.full(levels, -1)
    loads, value, spent, steps, p = np.zeros(nodes), np.inf, 0, 0, 0
    node, way, before = np.zeros(pods + 1, np.int64), np.zeros(pods + 1, np.int64), np.zeros(pods + 1)
    state = np.zeros(pods + 1, np.int64)  # 0 to be tried, 1 on a node, 2 waits
    while p >= 0:
        steps += 1
        if steps > limit:
            return best, value, False
        if p == pods:
            found = _value(mode, loads)
            if _ahead(placed, best, found, value):
                best[:], value = placed, found
            p -= 1
            continue
        n, chosen = node[p], ways[many[p], way[p]]
        if state[p] == 2:
            p -= 1
            continue
        if state[p] == 1:  # take it back from where it is, and go on with the next way
            _move(size, need, room, card, p, n, chosen, 1)
            loads[n], spent = before[p], spent - cost[p, n]
            if level[p] >= 0:
                placed[level[p]] -= worth[p]
            way[p] += 1
        while n < nodes:
            able = may[p, n] and room[n, 0] >= size[p, 0] and room[n, 1] >= size[p, 1] and spent + cost[p, n] <= budget
            while (
                able and way[p] < number[many[p]] and not _fits(card, p, n, need, ways[many[p], way[p]], own, distinct)
            ):
                way[p] += 1
            if able and way[p] < number[many[p]]:
                break
            n, way[p] = n + 1, 0
        node[p] = n
        if n == nodes:
            state[p] = 2
            if must[p] or _less(placed, left[p + 1], best):
                continue
        else:
            state[p] = 1
            _move(size, need, room, card, p, n, ways[many[p], way[p]], -1)
            before[p] = loads[n]
            loads[n], spent = loads[n] + load[p, n], spent + cost[p, n]
            if level[p] >= 0:
                placed[level[p]] += worth[p]
            if _less(placed, left[p + 1], best):
                continue
        p += 1
        if p < pods:
            node[p], way[p], state[p] = (node[p - 1] if like[p] else 0), 0, 0
    return best, value, True
