"""Ruin and recreate, and the compiled operations on a placement (numba, cached on disk).

Arrays as in `flowlex.models.pods.methods.search_state.SearchState`.
"""

# numba infers the types, so these functions have no annotations.
# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import njit


@njit(cache=True)
def obeys(s, pod, node):
    """Return whether the pod's rules allow it in the node's domains; outside domains only where it already runs."""
    for k in range(s.rule_start[pod], s.rule_start[pod + 1]):
        r = s.rule[k]
        d = s.domain[s.topology[r], node]
        if d < 0:
            if s.pin[pod] != node:
                return False
        elif s.room[s.offset[r] + d] < s.amount[k]:
            return False
    return True


@njit(cache=True)
def _count(s, pod, node, sign):
    """Update the room of the pod's rules after it was added to a node (sign 1) or removed (-1)."""
    for k in range(s.rule_start[pod], s.rule_start[pod + 1]):
        r = s.rule[k]
        d = s.domain[s.topology[r], node]
        if d >= 0:
            s.room[s.offset[r] + d] -= sign * s.amount[k]


@njit(cache=True)
def fits(s, pod, node):
    """Return whether the pod is allowed on the node and fits its free resources."""
    r, c = s.row[pod], s.column[node]
    if s.pin[pod] >= 0 and s.pin[pod] != node:
        return False
    if not s.allowed[r, c] or s.free[node, 0] < s.cpu[pod] or s.free[node, 1] < s.memory[pod]:
        return False
    if not obeys(s, pod, node):
        return False
    many = s.many[pod]
    if many:
        room = 0
        for card in range(s.card_free.shape[1]):
            room += takes(s, pod, node, card)
        return room >= many
    return True


@njit(cache=True)
def like_its_kind(s, pod):
    """Return whether the nodes that fit the pod are those that fit any pod of its row: it has no rules and no home."""
    return s.rule_start[pod + 1] == s.rule_start[pod] and s.pin[pod] < 0 and s.home[pod] < 0


@njit(cache=True)
def takes(s, pod, node, card):
    """Return whether the pod fits a card; on its home node only its own cards, if these are known."""
    if s.home[pod] == node and s.home_cards[pod] and not (s.home_cards[pod] >> np.uint64(card)) & np.uint64(1):
        return False
    enough = s.card_free[node, card] >= s.gpu[s.row[pod], s.column[node]]
    return enough and s.compute_free[node, card] >= s.compute[pod]


@njit(cache=True)
def place(s, pod, node):
    """Place a pod on a node if it fits, on the fullest cards that fit; return whether it was placed."""
    if not fits(s, pod, node):
        return False
    chosen = np.uint64(0)
    for _ in range(s.many[pod]):
        best = -1
        for card in range(s.card_free.shape[1]):
            taken = (chosen >> np.uint64(card)) & np.uint64(1)
            room = s.card_free[node, card]
            if not taken and takes(s, pod, node, card) and (best < 0 or room < s.card_free[node, best]):
                best = card
        chosen |= np.uint64(1) << np.uint64(best)
    link(s, pod, node, chosen)
    return True


@njit(cache=True)
def link(s, pod, node, chosen):
    """Place a pod on a node and its cards (bits) without checks."""
    if s.many[pod]:
        need = s.gpu[s.row[pod], s.column[node]]
        for card in range(s.card_free.shape[1]):
            if (chosen >> np.uint64(card)) & np.uint64(1):
                s.card_free[node, card] -= need
                s.compute_free[node, card] -= s.compute[pod]
    s.used[pod] = chosen
    s.free[node, 0] -= s.cpu[pod]
    s.free[node, 1] -= s.memory[pod]
    s.node[pod] = node
    first = s.head[node]
    s.after[pod], s.before[pod] = first, -1
    if first >= 0:
        s.before[first] = pod
    s.head[node] = pod
    s.many_on[node] += 1
    _count(s, pod, node, 1)


@njit(cache=True)
def take(s, pod):
    """Remove a pod from its node; ``used`` and ``node`` keep their values."""
    node = s.node[pod]
    chosen = s.used[pod]
    if s.many[pod]:
        need = s.gpu[s.row[pod], s.column[node]]
        for card in range(s.card_free.shape[1]):
            if (chosen >> np.uint64(card)) & np.uint64(1):
                s.card_free[node, card] += need
                s.compute_free[node, card] += s.compute[pod]
    s.free[node, 0] += s.cpu[pod]
    s.free[node, 1] += s.memory[pod]
    before, after = s.before[pod], s.after[pod]
    if before >= 0:
        s.after[before] = after
    else:
        s.head[node] = after
    if after >= 0:
        s.before[after] = before
    s.many_on[node] -= 1
    _count(s, pod, node, -1)


@njit(cache=True)
def _draw_nodes(rng, s, chosen):
    """Draw distinct nodes to empty, of any kind or all of the same kind; return their number."""
    nodes = len(s.head)
    wanted = min(nodes, rng.integers(1, len(chosen) + 1))
    chosen[0] = rng.integers(0, nodes)
    alike, k = rng.random() < 0.3, 1
    for _ in range(8 * wanted):
        if k == wanted:
            break
        node = rng.integers(0, nodes)
        new = not alike or s.column[node] == s.column[chosen[0]]
        for j in range(k):
            new &= chosen[j] != node
        if new:
            chosen[k] = node
            k += 1
    return k


@njit(cache=True)
def _widest(s, node):
    """Largest free memory of a card."""
    most = 0
    for card in range(s.card_free.shape[1]):
        most = max(most, s.card_free[node, card])
    return most


@njit(cache=True)
def _refill(rng, s, level, worth, size, waiting, first, chosen, k, least):
    """Fill k nodes with waiting pods; return the placed value by level; stop early once it is below ``least``."""
    placed = np.zeros(len(least), np.int64)
    active = np.flatnonzero(waiting)
    noise = 0.05 + 0.6 * rng.random()
    sign = -1.0 if rng.random() < 0.9 else 1.0  # mostly the largest first
    key = np.empty(len(active))
    for a in range(len(active)):
        key[a] = level[active[a]] * 1e9 + sign * size[active[a]] * np.exp(noise * rng.normal())
    best_fit, now, better = rng.random() < 0.5, 0, False
    widest = np.empty(k, np.int64)
    for j in range(k):
        widest[j] = _widest(s, chosen[j])
    for a in np.argsort(key):
        g = active[a]
        while now < level[g]:
            if placed[now] < least[now] and not better:
                return placed
            better |= placed[now] > least[now]
            now += 1
        spot = -1
        while waiting[g]:
            pod = first[g]
            if spot < 0 or not fits(s, pod, chosen[spot]):
                spot, least_left = -1, np.inf
                for j in range(k):
                    n = chosen[j]
                    if s.free[n, 0] < s.cpu[pod] or s.free[n, 1] < s.memory[pod]:  # fast test: most fail here
                        continue
                    if s.many[pod] and widest[j] < s.gpu[s.row[pod], s.column[n]]:
                        continue
                    if fits(s, pod, n):
                        if not best_fit:
                            spot = j
                            break
                        left = (s.free[n, 0] - s.cpu[pod]) / (s.free[n, 0] + 1.0)
                        if s.many[pod]:
                            left += (s.free[n, 1] - s.memory[pod]) / (s.free[n, 1] + 1.0)
                        if left < least_left:
                            spot, least_left = j, left
            if spot < 0:
                break
            following = s.after[pod]
            place(s, pod, chosen[spot])
            widest[spot] = _widest(s, chosen[spot])
            first[g] = following
            waiting[g] -= 1
            placed[level[g]] += worth[g]
    return placed


@njit(cache=True)
def _empty(s, nodes, group, waiting, first, fixed, pods, where, used):
    """Remove movable pods from nodes; record pods, nodes and used cards; return the number of removed pods.

    They wait in the list of their group, linked by ``after``.
    """
    many = 0
    for node in nodes:
        pod = s.head[node]
        while pod >= 0:
            following = s.after[pod]
            if not fixed[pod]:
                pods[many], where[many], used[many] = pod, node, s.used[pod]
                many += 1
                take(s, pod)
                g = group[pod]
                s.node[pod], s.after[pod] = -1, first[g]
                first[g] = pod
                waiting[g] += 1
            pod = following
    return many


@njit(cache=True)
def recreate(s, group, level, worth, size, waiting, first, fixed, steps, rng, enough):
    """Empty and refill a few nodes, at most ``steps`` times; accept results that are lexicographically no worse.

    - ``group``: (P,) group of each pod; pods of a group are interchangeable.
    - ``level``, ``worth``, ``size``: (G,) level, 0 is the most important; value of one pod; largest share of a node
      that it uses.
    - ``waiting``, ``first``: (G,) number of waiting pods of the group, and the first of them.
    - ``fixed``: (P,) pods that must not move.
    - ``enough``: (L,) value of the waiting pods of each level at which to stop.
    """
    levels, chosen = len(enough), np.zeros(3, np.int64)
    waits = np.zeros(levels, np.int64)
    for g in range(len(level)):
        waits[level[g]] += waiting[g] * worth[g]
    old, where, used = np.zeros(len(s.node), np.int64), np.zeros(len(s.node), np.int64), s.used.copy()
    unread = old.copy(), where.copy(), used.copy()
    for step in range(steps):
        if (waits <= enough).all():
            return step
        k, before = _draw_nodes(rng, s, chosen), np.zeros(levels, np.int64)
        many = _empty(s, chosen[:k], group, waiting, first, fixed, old, where, used)
        for pod in old[:many]:
            before[level[group[pod]]] += worth[group[pod]]
        placed = _refill(rng, s, level, worth, size, waiting, first, chosen, k, before)
        apart = np.flatnonzero(placed != before)
        if len(apart) == 0 or placed[apart[0]] > before[apart[0]]:
            waits += before - placed
            continue
        _empty(s, chosen[:k], group, waiting, first, fixed, *unread)
        # The pods of a group are interchangeable, so the first waiting one takes the old place.
        for m in range(many):
            g = group[old[m]]
            pod = first[g]
            first[g] = s.after[pod]
            waiting[g] -= 1
            link(s, pod, where[m], used[m])
    return steps
