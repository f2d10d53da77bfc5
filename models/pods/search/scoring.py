"""Policies that place pods one after another, each on the node with the best score (numba, cached on disk).

==  ===================================================================================================
0   first fit: the first node
1   best fit: the node with the least left of all resources, each as a share of the largest node's
2   dot product (Tetris): the node whose free resources have the least product with the request
3   GPU clustering: a node that already holds pods of the same GPU request, then as best fit
4   GPU packing: cards in use before idle cards before idle nodes, then as best fit
5   FGD: the node and cards on which expected fragmentation grows least
6   Kubernetes: LeastAllocated and BalancedAllocation in integers, with its default requests
7   random: any node
8   even: the node after which the weighted loads differ least
==  ===================================================================================================

Source of 1-5: Weng et al., *Beware of Fragmentation*, section 6 and its definitions of section 3 (in our words).
"""

# numba infers the types; annotations would say nothing to it and little to a reader.
# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.compiled import njit
from flowlex.models.pods.search.filling import fits, link, place

__all__ = ["place_all"]

FIRST, BEST, DOT, CLUSTERING, PACKING, FGD, KUBERNETES, RANDOM, EVEN = range(9)
_INFINITE = 1e300


@njit(cache=True)
def _left(s, pod, node, top):
    """What is left of the node's resources, each as a share of the largest node's."""
    left = (s.free[node, 0] - s.cpu[pod]) / top[0] + (s.free[node, 1] - s.memory[pod]) / top[1]
    if top[2] > 0:
        free = 0.0
        for card in range(s.card_free.shape[1]):
            free += max(0, s.card_free[node, card])
        left += (free - s.many[pod] * s.gpu[s.row[pod], s.column[node]]) / top[2]
    return left


@njit(cache=True)
def _dot(s, pod, node, top):
    product = (s.free[node, 0] / top[0]) * (s.cpu[pod] / top[0]) + (s.free[node, 1] / top[1]) * (s.memory[pod] / top[1])
    if top[2] > 0:
        free = 0.0
        for card in range(s.card_free.shape[1]):
            free += max(0, s.card_free[node, card])
        product += (free / top[2]) * (s.many[pod] * s.gpu[s.row[pod], s.column[node]] / top[2])
    return product


@njit(cache=True)
def _like(s, pod, node, size):
    """0 when the node holds a pod of the same GPU request (none, part of a card, one card, several), else 1."""
    need, many = s.gpu[s.row[pod], s.column[node]], s.many[pod]
    mine = 0 if many == 0 else 3 if many > 1 else 2 if need >= size[node] else 1
    other = s.head[node]
    while other >= 0:
        need, many = s.gpu[s.row[other], s.column[node]], s.many[other]
        if mine == (0 if many == 0 else 3 if many > 1 else 2 if need >= size[node] else 1):
            return 0
        other = s.after[other]
    return 1


@njit(cache=True)
def _packed(s, pod, node, size):
    """0 when cards in use suffice, 1 when the node is in use, 2 when it is idle."""
    if s.many[pod]:
        need, room = s.gpu[s.row[pod], s.column[node]], 0
        for card in range(s.card_free.shape[1]):
            free = s.card_free[node, card]
            room += free >= need and free < size[node]
        if room >= s.many[pod]:
            return 0
    return 1 if s.head[node] >= 0 else 2


@njit(cache=True)
def _fragments(s, kinds, node, cpu, memory, free, order):
    """Expected GPU memory, in cards, that a pod drawn from the workload cannot use on a node with this much free.

    ``kinds`` lists (row, share of the workload, cores, memory, cards); ``order`` holds the cards by rising free.
    """
    total, c = 0.0, s.column[node]
    for card in range(len(free)):
        if free[card] > 0:
            total += free[card]
    if total == 0.0:
        return 0.0
    expected = 0.0
    for t in range(len(kinds)):
        row, many = int(kinds[t, 0]), int(kinds[t, 4])
        if many == 0 or not s.allowed[row, c] or kinds[t, 2] > cpu or kinds[t, 3] > memory:
            expected += kinds[t, 1] * total
            continue
        need, below, room = s.gpu[row, c], 0.0, 0
        for card in order:
            if free[card] >= need:
                room += 1
            elif free[card] > 0:
                below += free[card]
        expected += kinds[t, 1] * (below if room >= many else total)
    return expected


@njit(cache=True)
def _growth(s, kinds, pod, node, size):
    """By how much fragmentation grows, in cards, and the cards (bits) on which it grows least."""
    need, many = s.gpu[s.row[pod], s.column[node]], s.many[pod]
    free = s.card_free[node].copy()
    order = np.argsort(free)
    before = _fragments(s, kinds, node, s.free[node, 0], s.free[node, 1], free, order)
    cpu, memory = s.free[node, 0] - s.cpu[pod], s.free[node, 1] - s.memory[pod]
    scale = max(1, size[node])
    if many != 1:  # whole cards are alike
        chosen, left = np.uint64(0), many
        for card in order:
            if left and free[card] >= need:
                free[card] -= need
                chosen |= np.uint64(1) << np.uint64(card)
                left -= 1
        return (_fragments(s, kinds, node, cpu, memory, free, order) - before) / scale, chosen
    best, chosen, last = _INFINITE, np.uint64(0), -1
    for card in order:
        if free[card] < need or free[card] == last:
            continue
        last = free[card]
        free[card] -= need
        grows = (_fragments(s, kinds, node, cpu, memory, free, order) - before) / scale
        free[card] += need
        if grows < best:
            best, chosen = grows, np.uint64(1) << np.uint64(card)
    return best, chosen


@njit(cache=True)
def _kubernetes(s, pod, node, whole, default):
    """Integer scores of 0 to 100: mean free share of cores and memory, and 100 less their spread."""
    points, used = 0, np.zeros(2)
    for r in range(2):
        asked = (s.cpu[pod] if r == 0 else s.memory[pod]) or default[r]
        taken = whole[node, r] - s.free[node, r] + asked
        points += max(0, (whole[node, r] - taken) * 100 // whole[node, r])
        used[r] = min(1.0, taken / whole[node, r])
    return points // 2 + int((1.0 - abs(used[0] - used[1]) / 2.0) * 100)


@njit(cache=True)
def _score(s, policy, pod, node, whole, size, top, kinds, default, totals):
    """Smaller is better."""
    if policy == FIRST:
        return float(node)
    if policy == BEST:
        return _left(s, pod, node, top)
    if policy == DOT:
        return _dot(s, pod, node, top)
    if policy == CLUSTERING:
        return 1e3 * _like(s, pod, node, size) + _left(s, pod, node, top)
    if policy == PACKING:
        return 1e3 * _packed(s, pod, node, size) + _left(s, pod, node, top)
    if policy == FGD:
        return _growth(s, kinds, pod, node, size)[0]
    if policy == KUBERNETES:
        return -float(_kubernetes(s, pod, node, whole, default))
    added, load = s.load[s.row[pod], s.column[node]], s.loads[node]
    return (2.0 * load + added) * added - (2.0 * totals[0] * added + added * added) / len(s.head)


@njit(cache=True)
def place_all(s, policy, pods, whole, size, kinds, default, rng):
    """Place pods in order, each where its score is least (the first of equals) or wait; return how many were placed.

    Parameters
    ----------
    whole, size
        (N, 2) cores and memory of the empty nodes, (N,) memory of a card.
    kinds
        (T, 5) the workload, see `_fragments`.
    default
        (2,) requests that Kubernetes scores when none is made.
    """
    nodes, placed = len(s.head), 0
    top = np.zeros(3)
    for n in range(nodes):
        for r in range(2):
            top[r] = max(top[r], float(whole[n, r]))
        cards = 0
        for card in range(s.card_free.shape[1]):
            cards += s.card_free[n, card] >= 0
        top[2] = max(top[2], float(size[n] * cards))
    top[:2] = np.maximum(top[:2], 1.0)
    rows = s.gpu.shape[0]
    kept = rows * nodes <= 20_000_000 and policy not in (EVEN, RANDOM)
    cost = np.zeros((rows if kept else 1, nodes))
    known = np.zeros((rows if kept else 1, nodes), np.int32)
    version = np.ones(nodes, np.int32)
    full, totals = np.zeros(rows, np.bool_), np.zeros(1)
    totals[0] = s.loads.sum()
    for pod in pods:
        row = s.row[pod]
        if full[row]:
            continue
        best, spot = _INFINITE, -1
        met = 0
        for n in range(nodes):
            if policy in (RANDOM, FIRST):
                if fits(s, pod, n):
                    met += 1
                    if policy == FIRST or rng.integers(0, met) == 0:
                        spot = n
                    if policy == FIRST:
                        break
                continue
            if kept and known[row, n] == version[n]:
                points = cost[row, n]
            else:
                points = _INFINITE
                if fits(s, pod, n):
                    points = _score(s, policy, pod, n, whole, size, top, kinds, default, totals)
                if kept:
                    cost[row, n], known[row, n] = points, version[n]
            if points < best:
                best, spot = points, n
        if spot < 0:
            full[row] = True  # nothing leaves, so it never fits again
            continue
        if policy == FGD and s.many[pod]:
            link(s, pod, spot, _growth(s, kinds, pod, spot, size)[1])
        else:
            place(s, pod, spot)
        added = s.load[row, s.column[spot]]
        s.loads[spot] += added
        totals[0] += added
        version[spot] += 1
        placed += 1
    return placed
