r"""What prices leave open on few nodes: every choice of a pattern for each node that could be more even, tried.

By prices a placement costs at least L + sum_i e_i: L the bound that they prove, e_i how far the pattern of node i is
from the best of its kind. What is below a total T has all e_i, and their sum, within T - L; these patterns are listed,
and all ways to take one for every node and to place what has to be placed are gone through (numba).
"""

# numba infers the types; annotations would say nothing to it and little to a reader.
# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.loops import njit
from flowlex.validation.certificates.pods.patterns import SQUARED, cost_of_load, packed, promise

__all__ = ["list_patterns", "none_below"]


@njit(cache=True)
def list_patterns(sizes, loads, most_of, price, room, held, order, card, cards, law, bounds, floor, limit, counts, met):
    """List in ``counts`` all patterns that earn ``floor`` or more, in ``met`` their load and that; how many, or -1.

    Groups come by falling price per load; other arguments as in `patterns.best_pattern`. -1: too many, or too long.
    """
    low, high, slope, start, most = bounds[0], bounds[1], bounds[2], bounds[3], bounds[4]
    groups, found, steps, depth = len(loads), 0, 0, 0
    taken = np.full(groups + 1, -1)
    left, load, earned = np.zeros((groups + 1, 3), np.int64), np.zeros(groups + 1), np.zeros(groups + 1)
    left[0], load[0] = room[:3], start
    while depth >= 0:
        steps += 1
        if steps > limit:
            return -1
        if depth == groups:
            value = earned[depth] - cost_of_load(law, low, high, slope, load[depth])
            if value >= floor and (cards == 0 or packed(sizes, taken[:groups], order, held, card, cards)):
                if found == len(counts):
                    return -1
                counts[found] = taken[:groups]
                met[found] = load[depth], value
                found += 1
            depth -= 1
            continue
        if taken[depth] < 0:  # entered: start from none
            able = True
            if loads[depth] > 0.0:
                ratio = price[depth] / loads[depth]
                able = earned[depth] + promise(law, low, high, slope, load[depth], ratio, np.inf, most) >= floor
            if not able:
                depth -= 1
                continue
            taken[depth] = 0
        else:
            taken[depth] += 1
        n, fits = taken[depth], taken[depth] <= most_of[depth]
        for r in range(3):
            left[depth + 1, r] = left[depth, r] - n * sizes[depth, r]
            fits &= left[depth + 1, r] >= 0
        if not fits:
            taken[depth] = -1
            depth -= 1
            continue
        load[depth + 1], earned[depth + 1] = load[depth] + n * loads[depth], earned[depth] + n * price[depth]
        depth += 1
        if depth < groups:
            taken[depth] = -1
    return found


@njit(cache=True)
def _uneven(law, loads):
    """Sum of the squares, or of the distances, of loads from their mean."""
    total, middle = 0.0, loads.sum() / len(loads)
    for each in loads:
        total += (each - middle) * (each - middle) if law == SQUARED else abs(each - middle)
    return total


@njit(cache=True)
def _later(counts, first, nodes):
    """(N + 1, K) the most of each group that patterns on the nodes from one on place."""
    later = np.zeros((len(nodes) + 1, counts.shape[1]), np.int64)
    for n in range(len(nodes) - 1, -1, -1):
        for g in range(counts.shape[1]):
            later[n, g] = later[n + 1, g] + counts[first[nodes[n]] : first[nodes[n] + 1], g].max()
    return later


@njit(cache=True)
def _fits(counts, left, later, must):
    """Whether a pattern's pods are left, and what has to be placed after it can be."""
    for g in range(len(left)):
        rest = left[g] - counts[g]
        if rest < 0 or (must[g] and rest > later[g]):
            return False
    return True


@njit(cache=True)
def _places(left, pods, placed):
    """Whether what is not left is the worth to be placed of every level."""
    many, _, level, worth = pods
    got = np.zeros(len(placed))
    for g in range(len(many)):
        if level[g] >= 0:
            got[level[g]] += worth[g] * (many[g] - left[g])
    return (got == placed).all()


@njit(cache=True)
def none_below(law, total, spare, pattern, first, nodes, pods, placed, budget, limit):
    """Whether it is shown that no choice of a pattern for each node has a sum below ``total``.

    Parameters
    ----------
    spare
        What excesses may sum to.
    pattern
        Counts, load, excess, moved: (M, K) pods by group, load, distance from the best, and cost of moves of patterns,
        kind by kind and by rising distance.
    first, nodes
        (C + 1,) first pattern of each kind; (N,) kind of each node, equal ones together.
    pods, placed
        (K,) many, must, level, worth: pods of each group, whether all have to be placed, level (-1: none) and worth;
        (L,) worth to be placed.
    """
    counts, load, excess, moved = pattern
    many, must, _, _ = pods
    size, groups, steps, depth = len(nodes), len(many), 0, 0
    on, load_of = np.full(size + 1, -1), np.zeros(size)
    left, used, spent = np.zeros((size + 1, groups), np.int64), np.zeros(size + 1), np.zeros(size + 1)
    later = _later(counts, first, nodes)
    left[0] = many
    while depth >= 0:
        if depth == size:
            if _places(left[depth], pods, placed) and _uneven(law, load_of) < total:
                return False
            depth -= 1
            continue
        kind = nodes[depth]
        if on[depth] >= 0:
            on[depth] += 1
        else:
            on[depth] = on[depth - 1] if depth > 0 and nodes[depth - 1] == kind else first[kind]
        while on[depth] < first[kind + 1]:
            steps += 1
            if steps > limit:
                return False
            m = on[depth]
            if used[depth] + excess[m] > spare:
                on[depth] = first[kind + 1]  # those that follow are no better
                break
            if spent[depth] + moved[m] <= budget and _fits(counts[m], left[depth], later[depth + 1], must):
                break
            on[depth] += 1
        if on[depth] == first[kind + 1]:
            on[depth] = -1
            depth -= 1
            continue
        m = on[depth]
        left[depth + 1], load_of[depth] = left[depth] - counts[m], load[m]
        used[depth + 1], spent[depth + 1] = used[depth] + excess[m], spent[depth] + moved[m]
        depth += 1
        on[depth] = -1
    return True
