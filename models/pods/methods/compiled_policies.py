"""Policies that place pods one after another, each on the node with the best score (numba, cached on disk).

==  ===================================================================================================
0   first fit: the first node
1   best fit: the node with the least remaining cores and GPU memory, as shares of the largest node's
2   dot product (Tetris): the node whose free cores and GPU memory have the least dot product with the request
3   GPU clustering: nodes with only equal GPU requests, then mixed, idle and other nodes; CPU pods: best fit
4   GPU packing: cards in use before idle cards before idle nodes; CPU pods: best fit
5   FGD: the node and cards on which expected fragmentation grows least
6   Kubernetes: LeastAllocated and BalancedAllocation in integers, with its default requests
7   random: any node, any cards
8   even: the node with the least deviation of the weighted loads afterwards
==  ===================================================================================================

Scores of 1 to 6 are integers from 0 to 100, and ties are broken at random, as in the Kubernetes framework of the
published comparison. Finer scores without ties give worse results (FGD 94.5 instead of 95.2 % of all GPUs).

Source of 1-5: Weng et al., *Beware of Fragmentation*, section 6, its definitions of section 3 and the scores of its
published simulator (in our words).
"""

# numba infers the types, so these functions have no annotations.
# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import njit
from flowlex.models.pods.methods.ruin_and_recreate import fits, like_its_kind, link, place, take, takes

FIRST, BEST, DOT, CLUSTERING, PACKING, FGD, KUBERNETES, RANDOM, EVEN = range(9)
_INFINITE = 1e300


@njit(cache=True)
def _gpu_left(s, node):
    """Free memory of all cards."""
    free = 0.0
    for card in range(s.card_free.shape[1]):
        free += max(0, s.card_free[node, card])
    return free


@njit(cache=True)
def _left(s, pod, node, top):
    """Mean of the remaining cores and GPU memory, each as a share of the largest node's."""
    left = (s.free[node, 0] - s.cpu[pod]) / top[0]
    if top[2] > 0:
        left += (_gpu_left(s, node) - s.many[pod] * s.gpu[s.row[pod], s.column[node]]) / top[2]
    return left / 2.0


@njit(cache=True)
def _dot(s, pod, node, top):
    product = (s.free[node, 0] / top[0]) * (s.cpu[pod] / top[0])
    if top[2] > 0:
        product += _gpu_left(s, node) / top[2] * (s.many[pod] * s.gpu[s.row[pod], s.column[node]] / top[2])
    return product / 2.0


@njit(cache=True)
def _request(s, pod, node, size):
    """Kind of GPU request: none, part of a card, one card, several."""
    need, many = s.gpu[s.row[pod], s.column[node]], s.many[pod]
    return 0 if many == 0 else 3 if many > 1 else 2 if need >= size[node] else 1


@njit(cache=True)
def _clustered(s, pod, node, size, top):
    """Integer score: nodes with this request only, with it and others, idle nodes, other nodes; fuller is better."""
    mine = _request(s, pod, node, size)
    if mine == 0:
        return int(100.0 * (1.0 - _left(s, pod, node, top)))
    like, unlike, other = False, False, s.head[node]
    while other >= 0:
        kind = _request(s, other, node, size)
        like |= kind == mine
        unlike |= kind != mine and kind != 0
        other = s.after[other]
    base = (50 if unlike else 75) if like else (0 if unlike else 25)
    return base + int(25.0 * (1.0 - _gpu_left(s, node) / max(1.0, top[2])))


@njit(cache=True)
def _packed(s, pod, node, size, top):
    """Integer score: used cards (fuller is better), then idle cards, then idle nodes."""
    if s.many[pod] == 0:
        return int(100.0 * (1.0 - _left(s, pod, node, top)))
    need, idle, cards = s.gpu[s.row[pod], s.column[node]], 0, 0
    for card in range(s.card_free.shape[1]):
        free = s.card_free[node, card]
        cards += free >= 0
        idle += free >= 0 and free == size[node]
    if idle == cards:
        return max(33 - idle, idle)
    taken, left, fresh = s.card_free[node].copy(), s.many[pod], 0
    part = 0.0
    for card in np.argsort(taken):
        if left and taken[card] >= need:
            left -= 1
            fresh += taken[card] == size[node]
            part += taken[card] / max(1, size[node])
    if fresh:
        return max(50 - fresh, 33)
    return max(100 - int(10.0 * part), 50)


@njit(cache=True)
def _fragments(s, kinds, node, cpu, memory, free, order):
    """Expected free GPU memory that a pod drawn from the workload cannot use, on a node with these free resources.

    ``kinds`` lists (row, share of the workload, cores, memory, cards); ``order`` lists the cards by free memory.
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
    """Least growth of fragmentation in cards, and the cards (bits) with this growth."""
    need, many = s.gpu[s.row[pod], s.column[node]], s.many[pod]
    free = s.card_free[node].copy()
    order = np.argsort(free)
    before = _fragments(s, kinds, node, s.free[node, 0], s.free[node, 1], free, order)
    cpu, memory = s.free[node, 0] - s.cpu[pod], s.free[node, 1] - s.memory[pod]
    scale = max(1, size[node])
    if many != 1:  # whole cards are interchangeable
        chosen, left = np.uint64(0), many
        for card in order:
            if left and takes(s, pod, node, card):
                free[card] -= need
                chosen |= np.uint64(1) << np.uint64(card)
                left -= 1
        return (_fragments(s, kinds, node, cpu, memory, free, order) - before) / scale, chosen
    best, chosen, last = _INFINITE, np.uint64(0), -1
    for card in order:
        if free[card] == last or not takes(s, pod, node, card):
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
    """Sum of two integer scores (0 to 100): mean free share of cores and memory, and their balance."""
    points, used = 0, np.zeros(2)
    for r in range(2):
        asked = (s.cpu[pod] if r == 0 else s.memory[pod]) or default[r]
        taken = whole[node, r] - s.free[node, r] + asked
        points += max(0, (whole[node, r] - taken) * 100 // whole[node, r])
        used[r] = min(1.0, taken / whole[node, r])
    return points // 2 + int((1.0 - abs(used[0] - used[1]) / 2.0) * 100)


@njit(cache=True)
def _score(s, t, policy, pod, node):
    """Score of a node, smaller is better; for EVEN without the term of the total load, which `choose` subtracts."""
    if policy == FIRST:
        return float(node)
    if policy == BEST:
        return float(-int(100.0 * (1.0 - _left(s, pod, node, t.top))))
    if policy == DOT:
        return float(-int(100.0 * (1.0 - _dot(s, pod, node, t.top))))
    if policy == CLUSTERING:
        return float(-_clustered(s, pod, node, t.size, t.top))
    if policy == PACKING:
        return float(-_packed(s, pod, node, t.size, t.top))
    if policy == FGD:
        return float(-int(100.0 / (1.0 + np.exp(_growth(s, t.kinds, pod, node, t.size)[0]))))
    if policy == KUBERNETES:
        return float(-_kubernetes(s, pod, node, t.whole, t.default))
    if policy == RANDOM:
        return 0.0
    added, load = s.load[s.row[pod], s.column[node]], s.loads[node]
    return (2.0 * load + added) * added - added * added / len(s.head)


@njit(cache=True)
def _random_cards(s, pod, node, rng):
    """Random cards (bits) among those that fit the pod."""
    chosen, left = np.uint64(0), s.many[pod]
    for card in rng.permutation(s.card_free.shape[1]):
        if left and takes(s, pod, node, card):
            chosen |= np.uint64(1) << np.uint64(card)
            left -= 1
    return chosen


@njit(cache=True)
def choose(s, t, policy, pod, but, rng):
    """Return the feasible node with the least score, not in ``but``, with random tie-breaking; -1 if none."""
    row, best, spot, met = s.row[pod], _INFINITE, -1, 0
    kept = t.cost.shape[0] > 1 and like_its_kind(s, pod)
    taken_off = 2.0 * t.total[0] / len(s.head) if policy == EVEN else 0.0
    for n in range(len(s.head)):
        if len(but) and n in but:
            continue
        if kept and t.known[row, n] == t.version[n]:
            points = t.cost[row, n]
        else:
            points = _INFINITE
            if fits(s, pod, n):
                points = _score(s, t, policy, pod, n)
            if kept:
                t.cost[row, n], t.known[row, n] = points, t.version[n]
        if policy == EVEN:
            points -= taken_off * s.load[row, s.column[n]]
        if points < best:
            best, spot, met = points, n, 1
            if policy == FIRST:
                break
        elif points == best and spot >= 0 and policy != EVEN:
            met += 1
            if rng.integers(0, met) == 0:
                spot = n
    return spot


@njit(cache=True)
def settle(s, t, policy, pod, node, rng):
    """Place a pod on a node where it fits, on cards chosen by the policy."""
    if policy == FGD and s.many[pod]:
        link(s, pod, node, _growth(s, t.kinds, pod, node, t.size)[1])
    elif policy == RANDOM and s.many[pod]:
        link(s, pod, node, _random_cards(s, pod, node, rng))
    else:
        place(s, pod, node)
    changed(s, t, pod, node, 1.0)


@njit(cache=True)
def changed(s, t, pod, node, sign):
    """Update loads and versions after a pod was added to a node (sign 1) or removed (-1)."""
    added = sign * s.load[s.row[pod], s.column[node]]
    s.loads[node] += added
    t.total[0] += added
    t.version[node] += 1


@njit(cache=True)
def _chain(s, t, policy, pod, moves, path, dead, rng):
    """Place a pod with at most ``moves`` moves of others, to nodes chosen by the policy; return the moves, or -1.

    ``path``: nodes of this chain, which are not used again. ``dead``: (M, R) whether a kind of pods is known to have
    no chain with this many moves since the last change.
    """
    row, common = s.row[pod], like_its_kind(s, pod)
    if common and dead[moves, row]:
        return -1
    spot = choose(s, t, policy, pod, path, rng)
    if spot >= 0:
        settle(s, t, policy, pod, spot, rng)
        return 0
    if moves == 0:
        dead[0, row] |= common
        return -1
    for n in range(len(s.head)):
        if not s.allowed[row, s.column[n]] or n in path:
            continue
        longer = np.append(path, n)
        there = np.empty(s.many_on[n], np.int64)
        other = s.head[n]
        for k in range(len(there)):
            there[k] = other
            other = s.after[other]
        for other in there:
            if not s.movable[other] or s.row[other] == row:
                continue
            used = s.used[other]
            take(s, other)
            if fits(s, pod, n):
                place(s, pod, n)
                made = _chain(s, t, policy, other, moves - 1, longer, dead, rng)
                if made >= 0:
                    changed(s, t, pod, n, 1.0)
                    changed(s, t, other, n, -1.0)
                    return made + 1
                take(s, pod)
                s.node[pod] = -1
            link(s, other, n, used)
    dead[moves, row] |= common
    return -1


@njit(cache=True)
def arrive(s, t, policy, pods, moves, dead, rng, movable):
    """Place pods in order, each with at most ``moves`` moves of others, or let it wait; return the moves made.

    ``movable``: whether they may then move for others.
    """
    total, path = 0, np.zeros(0, np.int64)
    for pod in pods:
        made = _chain(s, t, policy, pod, moves, path, dead, rng)
        s.movable[pod] = movable and made >= 0
        if made >= 0:
            if made:  # without moves, free resources have only decreased
                dead[:] = False
            total += made
    return total


@njit(cache=True)
def depart(s, t, pods, dead):
    """Remove pods that have ended from their nodes."""
    for pod in pods:
        node = s.node[pod]
        if node >= 0:
            take(s, pod)
            changed(s, t, pod, node, -1.0)
            s.node[pod], s.movable[pod] = -1, False
            dead[:] = False
