"""Pods placed one after another by a policy, with room for one that fits nowhere by a chain of moves (numba)."""

# numba infers the types, so these functions have no annotations.
# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import njit
from flowlex.models.pods.search.node_scoring import changed, choose, settle
from flowlex.models.pods.search.ruin_and_recreate import fits, like_its_kind, link, place, take


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
