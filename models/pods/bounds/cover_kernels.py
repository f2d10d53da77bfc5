"""All patterns near the best at some prices, and all ways to cover the pods with them (numba, cached on disk)."""

# numba infers the types; annotations would say nothing to it and little to a reader.
# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.loops import njit
from flowlex.models.pods.bounds.pattern_kernels import DEVIATION, fit_into, node_cost, pack, potential

__all__ = ["cover", "patterns_within"]


@njit(cache=True)
def patterns_within(shape, price, room, held, held_many, order, cards, size, law, floor, limit, table, met):
    """Write to ``table`` all patterns that earn at least ``floor``, to ``met`` their loads and what they earn.

    Returns how many, or -1 when steps or rows ran out.

    ``shape``, ``room`` and ``law`` as in `enumerate_patterns`, with one row and ``price`` per group, by falling price
    per load; ``order`` lists groups, then what is held, by falling memory. What may not pack after all is among them.
    """
    mode, low, high, slope, start, most = int(law[0]), law[1], law[2], law[3], law[4], law[5]
    groups = len(shape)
    counts, need, many = np.zeros(groups, np.int64), shape[:, 2].copy(), shape[:, 3].astype(np.int64)
    left = np.zeros((groups + 1, 6))
    left[0, :4], left[0, 4] = room, start
    found, steps, depth, descend = 0, 0, 0, True
    while depth >= 0:
        steps += 1
        here = left[depth]
        if steps > limit or found == len(table):
            return -1
        if depth == groups:
            earned = here[5] - node_cost(mode, low, high, slope, here[4])
            if earned >= floor and (cards == 0 or pack(need, many, counts, held, held_many, order, cards, size) != 0):
                table[found] = counts
                met[found] = here[4], earned
                found += 1
            depth, descend = depth - 1, False
            continue
        if descend:
            ratio = price[depth] / max(shape[depth, 4], 1e-12)
            if here[5] + potential(mode, low, high, slope, here[4], ratio, most) < floor:
                depth, descend = depth - 1, False
                continue
            counts[depth] = fit_into(shape[depth], here)
        else:
            counts[depth] -= 1
            if counts[depth] < 0:
                counts[depth] = 0
                depth -= 1
                continue
        n = counts[depth]
        after = left[depth + 1]
        for r in range(3):
            after[r] = here[r] - n * shape[depth, r] * (shape[depth, 3] if r == 2 else 1.0)
        after[4], after[5] = here[4] + n * shape[depth, 4], here[5] + n * price[depth]
        depth, descend = depth + 1, True
    return found


@njit(cache=True)
def _total(mode, loads):
    """Sum of squares, or of distances, from the mean."""
    mean, total = loads.mean(), 0.0
    for load in loads:
        total += (load - mean) ** 2 if mode == DEVIATION else abs(load - mean)
    return total


@njit(cache=True)
def _reach(pattern, start, kind):
    """(N + 1, G) the most of each group on the nodes from one on."""
    reach = np.zeros((len(kind) + 1, pattern.shape[1]), np.int64)
    for n in range(len(kind) - 1, -1, -1):
        top = np.zeros(pattern.shape[1], np.int64)
        for m in range(start[kind[n]], start[kind[n] + 1]):
            top = np.maximum(top, pattern[m])
        reach[n] = reach[n + 1] + top
    return reach


@njit(cache=True)
def _usable(pattern, left, most):
    """Whether a pattern takes no more of any group than is left, and leaves at most so many."""
    for g in range(len(left)):
        rest = left[g] - pattern[g]
        if rest < 0 or rest > most[g]:
            return False
    return True


@njit(cache=True)
def _meets(placed, worth, quota):
    """Whether the placed pods of every quota are worth it."""
    for q in range(len(quota)):
        total = 0.0
        for g in range(len(placed)):
            total += worth[q, g] * placed[g]
        if total != quota[q]:
            return False
    return True


@njit(cache=True)
def cover(mode, pattern, load, excess, moves, start, kind, least, most, worth, quota, budget, slack, value, limit):
    """The most even choice of a pattern for every node that places what has to be placed; depth first.

    Parameters
    ----------
    mode
        `DEVIATION` or `MEAN_ABSOLUTE`.
    pattern, load, excess, moves
        (M, G) counts, scaled load, reduced cost above the least of its class, and cost of moves, by class, then by
        rising excess.
    start, kind
        (C + 1,) first pattern of each class; (N,) class of each node, equal ones beside each other.
    least, most
        (G,) pods of each group that have to and may be placed.
    worth, quota
        (Q, G) and (Q,): the worth of what is placed of each quota.
    budget
        All moves may cost so much.
    slack
        A choice whose excesses sum to more is no better than ``value``, a total already known.

    Returns
    -------
    value, chosen
        The least total below ``value`` and its patterns; ``value`` as it was where there is none.
    whole
        Whether all was tried.
    """
    nodes, groups = len(kind), len(most)
    at, best = np.full(nodes + 1, -1), np.full(nodes, -1)
    left, loads = np.zeros((nodes + 1, groups), np.int64), np.zeros(nodes)
    spent, moved = np.zeros(nodes + 1), np.zeros(nodes + 1)
    left[0] = most
    spare, steps, n = most - least + _reach(pattern, start, kind), 0, 0
    while n >= 0:
        if n == nodes:
            if _meets(most - left[n], worth, quota):
                total = _total(mode, loads)
                if total < value:
                    slack -= value - total
                    value = total
                    best[:] = at[:nodes]
            n -= 1
            continue
        if at[n] < 0:
            at[n] = at[n - 1] if n and kind[n - 1] == kind[n] else start[kind[n]]  # equal nodes in rising order
        else:
            at[n] += 1
        found = False
        while at[n] < start[kind[n] + 1]:
            steps += 1
            if steps > limit:
                return value, best, False
            m = at[n]
            if spent[n] + excess[m] > slack:
                at[n] = start[kind[n] + 1]
                break
            found = moved[n] + moves[m] <= budget and _usable(pattern[m], left[n], spare[n + 1])
            if found:
                break
            at[n] += 1
        if not found:
            at[n] = -1
            n -= 1
            continue
        m = at[n]
        left[n + 1] = left[n] - pattern[m]
        spent[n + 1], moved[n + 1], loads[n] = spent[n] + excess[m], moved[n] + moves[m], load[m]
        n += 1
        at[n] = -1
    return value, best, True
