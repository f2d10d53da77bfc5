"""The best pattern of a node by depth-first enumeration with bounds (numba, cached on disk).

Pods of equal size are one *shape*; n of them have a concave profit. Shapes are enumerated by decreasing profit per
load. So the remaining shapes add at most ``ratio`` times their load to the profit, which gives a bound in closed form
for every convex cost of the load.
"""

# numba infers the types, so these functions have no annotations.
# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import njit
from flowlex.models.pods.problem.balance_measures import DEVIATION, LARGEST, MEAN_ABSOLUTE

EPSILON = 1e-9
#: Largest number of steps to pack cards (then a packing counts as possible), and of the subgradient method.
_PACKING, _PRICING = 2_000, 300


@njit(cache=True)
def node_cost(mode, low, high, slope, load):
    """Cost of a node by its scaled load."""
    if mode == DEVIATION:
        return (load - low) * (load - high) + slope * load
    if mode == MEAN_ABSOLUTE:
        return max(0.0, load - high, low - load) + slope * load
    return 0.0 if load <= high + EPSILON else np.inf


@njit(cache=True)
def potential(mode, low, high, slope, load, ratio, most):
    """Maximum of ``ratio * added - cost(load + added)`` over added >= 0 and loads up to ``most``."""
    if mode == DEVIATION:
        best = 0.5 * (ratio + low + high - slope)
    elif mode == MEAN_ABSOLUTE:
        gain = ratio - slope
        best = load if gain <= -1.0 else low if gain <= 0.0 else high if gain <= 1.0 else most
    else:
        best = high if ratio > 0.0 else load
    best = max(load, min(best, most))
    return ratio * (best - load) - node_cost(mode, low, high, slope, best)


@njit(cache=True)
def pack(need, many, counts, held, held_many, order, cards, size):
    """Return whether the pods fit the cards: 1 yes, 0 no, -1 unknown after `_PACKING` steps; first fit is tried first.

    ``order`` lists shapes and (with indices from len(counts) on) pods that cannot move, by descending memory. The slots
    of a pod use different cards, in ascending order.
    """
    shapes, slots = len(counts), 0
    for item in order:
        slots += many[item] * counts[item] if item < shapes else held_many[item - shapes]
    wants, pod, at, number = np.zeros(slots), np.zeros(slots, np.int64), 0, 0
    for item in order:
        wanted = need[item] if item < shapes else held[item - shapes]
        mine = many[item] if item < shapes else held_many[item - shapes]
        for _ in range(counts[item] if item < shapes else 1):
            wants[at : at + mine], pod[at : at + mine] = wanted, number
            at, number = at + mine, number + 1
    free, card_of, slot = np.full(cards, size), np.full(slots + 1, -1), 0
    for _ in range(_PACKING):
        if slot == slots:
            return 1
        follows = slot > 0 and pod[slot] == pod[slot - 1]
        several = follows or (slot + 1 < slots and pod[slot] == pod[slot + 1])
        card = card_of[slot]
        if card >= 0:
            free[card] += wants[slot]
        elif follows:
            card = card_of[slot - 1]
        card += 1
        while card < cards:
            alike = False  # an equally full card was tried
            for other in range(0 if several else card):
                alike |= free[other] == free[card]
            if not alike and free[card] >= wants[slot] - EPSILON:
                break
            card += 1
        card_of[slot] = card if card < cards else -1
        if card < cards:
            free[card] -= wants[slot]
            slot += 1
            card_of[slot] = -1
        else:
            slot -= 1
            if slot < 0:
                return 0
    return -1


@njit(cache=True)
def _surplus(used, most, profit, u, counts):
    """Largest profit minus resource cost at multipliers ``u``, by shape; writes the number of pods to ``counts``."""
    surplus = np.zeros(len(used))
    for h in range(len(used)):
        each, counts[h] = used[h] @ u, 0
        for n in range(1, int(most[h]) + 1):
            if profit[h, n] - n * each <= surplus[h]:
                break
            surplus[h], counts[h] = profit[h, n] - n * each, n
    return surplus


@njit(cache=True)
def resource_prices(used, most, profit, room):
    """(4,) resource multipliers with a small Lagrangian bound (subgradient method); all multipliers are valid."""
    scale, u = np.where(room > 0, room, 1.0), np.zeros(4)
    best, price, counts, step, stale = np.inf, np.zeros(4), np.zeros(len(used)), 1.0, 0
    for _ in range(_PRICING):
        value = u @ room + _surplus(used, most, profit, u, counts).sum()
        if value < best * (1 - 1e-9):
            best, stale = value, 0
            price[:] = u
        else:
            stale += 1
            if stale == 8:
                step, stale = 0.5 * step, 0
                u[:] = price
                continue
        slope = np.where(room > 0, room - counts @ used, 0.0) / scale
        length = slope @ slope
        if length < 1e-18:
            break
        u = np.maximum(0.0, u - step * 0.1 * value / length * slope / scale)
    return price


@njit(cache=True)
def enumerate_patterns(shape, room, held, held_many, order, cards, size, profit, rank, law, tolerance, limit, met):
    """Find the pattern with the largest profit minus cost.

    - ``shape``: (H, 6) cores, memory, memory per card, cards, scaled load and most pods, of each shape.
    - ``room``: (4,) cores, memory, GPU memory, cards for pods of more than half a card.
    - ``held``, ``held_many``, ``order``: card needs of pods that cannot move; see `pack`. ``cards`` is 0 if memory is
      counted per node.
    - ``profit``: (H, M) profit of 0, 1, .. pods.
    - ``rank``: (H,) shapes in the order of enumeration.
    - ``law``: (6,) mode, low, high, slope, scaled load of the empty node, the largest scaled load.
    - ``tolerance``, ``limit``: smallest improvement that is searched for; largest number of steps.
    - Returns ``bound``: upper bound for all patterns; the bound of the root if the limit was reached.
    - Returns ``value, counts``: the best pattern found that packs; minus infinity if there is none.
    - ``met``: (K, H) is filled with the last patterns that were the best so far.
    - Returns ``kept``: number of patterns written to ``met`` in turn, each better than the one before.
    - Returns ``steps``: number of steps used.
    """
    mode, low, high, slope, start, most = int(law[0]), law[1], law[2], law[3], law[4], law[5]
    kinds = len(rank)
    counts, best_counts = np.zeros(kinds, np.int64), np.zeros(kinds, np.int64)
    need, many = shape[:, 2].copy(), shape[:, 3].astype(np.int64)
    large = (shape[:, 2] > size / 2 + EPSILON) & (cards > 0)
    used = shape[:, :4].copy()  # cores, memory, GPU memory, cards used by more than half
    used[:, 2] *= shape[:, 3]
    used[:, 3] *= large
    price = resource_prices(used, shape[:, 5], profit, room)
    surplus = _surplus(used, shape[:, 5], profit, price, counts)
    counts[:] = 0
    if mode == LARGEST:  # no cost of the load: order by profit per cost of resources
        rank = np.argsort(-profit[:, 1] / (used @ price + 1e-9))
    # From each position in ``rank`` on: largest profit per load of a first pod, and the sum of surpluses.
    ratio, gain = np.full(kinds + 1, -np.inf), np.zeros(kinds + 1)
    for d in range(kinds - 1, -1, -1):
        h = rank[d]
        each = (profit[h, 1] if shape[h, 5] >= 1 else 0.0) / max(shape[h, 4], 1e-12)
        ratio[d], gain[d] = max(ratio[d + 1], each), gain[d + 1] + surplus[h]
    ratio[-1] = 0.0
    # left[d]: cores, memory, GPU memory, large cards, load, profit before the shape of depth d is chosen.
    left = np.zeros((kinds + 1, 6))
    left[0, :4], left[0, 4] = room, start
    relaxed, value, steps, depth, descend = -np.inf, -np.inf, 0, 0, True
    kept, first = 0, np.inf
    while depth >= 0:
        steps += 1
        if steps > limit:
            return first, value, best_counts, kept, steps
        if depth == kinds:
            found = left[depth, 5] - node_cost(mode, low, high, slope, left[depth, 4])
            if found > relaxed:
                packs = 1 if cards == 0 else pack(need, many, counts, held, held_many, order, cards, size)
                if packs == 1 and found > value:
                    value = found
                    best_counts[:] = counts
                    met[kept % len(met)] = counts
                    kept += 1
                if packs != 0:
                    relaxed = found
                if packs != 1:
                    steps += _PACKING  # cost of the complete packing search
            depth, descend = depth - 1, False
            continue
        h = rank[depth]
        here = left[depth]
        if descend:
            above = here[5] + potential(mode, low, high, slope, here[4], ratio[depth], most)
            paid = gain[depth] + here[:4] @ price + EPSILON  # rounding may give slightly negative values
            above = min(above, here[5] + paid + potential(mode, low, high, slope, here[4], 0.0, most))
            if depth == 0:
                first = above
            if above <= relaxed + tolerance:
                depth, descend = depth - 1, False
                continue
            fits = shape[h, 5]
            for r in range(4):
                if used[h, r] > 0.0:
                    fits = min(fits, np.floor((here[r] + EPSILON) / used[h, r]))
            counts[h] = max(0, int(fits))
        else:
            counts[h] -= 1
            if counts[h] < 0:
                counts[h] = 0
                depth -= 1
                continue
        for r in range(4):
            left[depth + 1, r] = here[r] - counts[h] * used[h, r]
        left[depth + 1, 4] = here[4] + counts[h] * shape[h, 4]
        left[depth + 1, 5] = here[5] + profit[h, counts[h]]
        depth, descend = depth + 1, True
    return relaxed + tolerance, value, best_counts, kept, steps
