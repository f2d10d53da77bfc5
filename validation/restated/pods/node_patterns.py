"""Maximise profit minus cost of load over the patterns of one node: depth-first branch and bound (numba).

A pattern states the number of pods of each shape (equal sizes and load) on a node. Sizes are integers. Shapes are tried
by decreasing profit per load. The remaining shapes earn at most their best profit per unit of load, and at most what is
left of the resources costs at any prices, plus what each shape earns beyond these prices.
"""

# numba infers the types; annotations would help neither numba nor a reader.
# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import njit

#: Cost of a load u: (u - low) (u - high); its distance from [low, high]; none up to high, beyond it impossible.
SQUARED, OUTSIDE, CAPPED = 0, 1, 2
#: Steps after which a packing of cards counts as possible.
_PACKING = 5_000
#: Steps of the search for prices of resources.
_PRICES = 300


@njit(cache=True)
def cost_of_load(law, low, high, slope, load):
    if law == SQUARED:
        return (load - low) * (load - high) + slope * load
    if law == OUTSIDE:
        return max(0.0, load - high, low - load) + slope * load
    return 0.0 if load <= high + 1e-12 else np.inf


@njit(cache=True)
def _least_at(law, low, high, slope, ratio, start, most):
    """The load between ``start`` and ``most`` that minimises cost - ``ratio`` * load."""
    if law == SQUARED:
        best = 0.5 * (low + high - slope + ratio)
    elif law == OUTSIDE:
        rise = slope - ratio
        best = most if rise <= -1.0 else high if rise <= 0.0 else low if rise <= 1.0 else start
    else:
        best = min(high, most) if ratio > 0.0 else start
    return max(start, min(best, most))


@njit(cache=True)
def promise(law, low, high, slope, load, ratio, gain, most):
    """Bound on earnings of remaining pods, ``ratio`` per load and at most ``gain``, minus the cost of the load."""
    if law == CAPPED and load > high + 1e-12:
        return -np.inf
    at = _least_at(law, low, high, slope, ratio, load, most)
    if ratio * (at - load) <= gain:
        return ratio * (at - load) - cost_of_load(law, low, high, slope, at)
    flat = min(most, load + gain / ratio)  # beyond this, more load earns no more
    at = _least_at(law, low, high, slope, 0.0, flat, most)
    return gain - cost_of_load(law, low, high, slope, at)


@njit(cache=True)
def _packs(slot, owner, room):
    """Whether slots (decreasing) fit on cards with this room, those of a pod on different cards; True if unknown."""
    many = len(slot)
    on, k, steps = np.full(many + 1, -1), 0, 0
    while k < many:
        steps += 1
        if steps > _PACKING:
            return True
        if on[k] >= 0:
            room[on[k]] += slot[k]
        first = on[k] + 1
        if on[k] < 0 and k and owner[k] == owner[k - 1]:
            first = on[k - 1] + 1
        on[k] = -1
        for card in range(first, len(room)):
            fresh = True
            alone = (k == 0 or owner[k] != owner[k - 1]) and (k + 1 >= many or owner[k + 1] != owner[k])
            for other in range(card if alone else 0):  # an equally full card was tried
                fresh &= room[other] != room[card]
            if fresh and room[card] >= slot[k]:
                on[k] = card
                break
        if on[k] >= 0:
            room[on[k]] -= slot[k]
            k += 1
            on[k] = -1
        else:
            k -= 1
            if k < 0:
                return False
    return True


@njit(cache=True)
def packed(sizes, counts, order, held, card, cards):
    """Whether the counted and the held pods fit the cards."""
    many = len(held)
    for h in order:
        many += counts[h] * sizes[h, 4]
    slot, owner = np.zeros(many, np.int64), np.zeros(many, np.int64)
    at, pod, k = 0, 0, 0
    for h in order:
        while k < len(held) and held[k, 0] >= sizes[h, 3]:
            slot[at], owner[at] = held[k, 0], -1 - held[k, 1]
            at, k = at + 1, k + 1
        for _ in range(counts[h]):
            pod += 1
            for _ in range(sizes[h, 4]):
                slot[at], owner[at] = sizes[h, 3], pod
                at += 1
    while k < len(held):
        slot[at], owner[at] = held[k, 0], -1 - held[k, 1]
        at, k = at + 1, k + 1
    return _packs(slot, owner, np.full(cards, card))


@njit(cache=True)
def _surplus(used, most_of, profit, price, taken):
    """(H,) largest profit minus resource payments of each shape; ``taken`` gets the numbers of pods that attain it."""
    surplus = np.zeros(len(used))
    for h in range(len(used)):
        cost = 0.0
        for r in range(used.shape[1]):
            cost += used[h, r] * price[r]
        taken[h] = 0.0
        for n in range(1, most_of[h] + 1):
            if profit[h, n] - n * cost > surplus[h]:
                surplus[h], taken[h] = profit[h, n] - n * cost, n
    return surplus


@njit(cache=True)
def _resource_prices(used, most_of, profit):
    """(4,) prices of the node's resources with a small sum of prices and surplus; any prices >= 0 give a bound.

    Projected subgradient steps, halved when the sum has not decreased for some time.
    """
    price, best_price, taken = np.zeros(used.shape[1]), np.zeros(used.shape[1]), np.zeros(len(used))
    least, step, waited = np.inf, 0.1, 0
    for _ in range(_PRICES):
        total = price.sum() + _surplus(used, most_of, profit, price, taken).sum()
        if total < least * (1.0 - 1e-9):
            least, waited = total, 0
            best_price[:] = price
        else:
            waited += 1
        if waited == 8:
            step, waited = step / 2.0, 0
            price[:] = best_price
            continue
        rise = np.ones(len(price))
        for h in range(len(used)):
            rise -= taken[h] * used[h]
        norm = (rise * rise).sum()
        if norm < 1e-18:
            break
        price = np.maximum(price - step * total / norm * rise, 0.0)
    return best_price


@njit(cache=True)
def _shares(sizes, room, half, cards):
    """(H, 4) share of the free resources (as in ``room``) that a pod of each shape takes."""
    used = np.zeros((len(sizes), 4))
    for h in range(len(sizes)):
        for r in range(3):
            used[h, r] = sizes[h, r] / room[r] if room[r] > 0 else 0.0
        if cards and sizes[h, 3] > half and room[3] > 0:
            used[h, 3] = sizes[h, 4] / room[3]
    return used


@njit(cache=True)
def best_pattern(sizes, loads, most_of, profit, room, half, held, order, card, cards, law, bounds, tolerance, limit):
    """Upper bound on a pattern's profit minus the cost of its load; minus infinity without a pattern.

    A depth-first search: at each depth, one more shape gets pods, first as many as fit, then one less at a time.

    - ``sizes``: (H, 5) cores, memory, GPU memory in all, of each slot, slots of each shape; by falling profit per load.
    - ``loads``, ``most_of``: (H,) load (above 0) and most pods of each shape.
    - ``profit``: (H, M) of 0, 1, .. pods: concave.
    - ``room``: (4,) cores, memory, GPU memory, and cards for slots of more than ``half`` that are left.
    - ``held``, ``order``: (S, 2) slots of pods that stay, falling, with their owner; shapes by falling slot.
    - ``card``, ``cards``: size and number of cards; 0 cards when they are not told apart.
    - ``law``, ``bounds``: form of the cost, and (5,) low, high, slope, load of the empty node, the largest load.
    - ``tolerance``, ``limit``: what is better by less is left out and added; steps after which the first bound has to
      do.
    """
    low, high, slope, start, most = bounds[0], bounds[1], bounds[2], bounds[3], bounds[4]
    shapes = len(loads)
    used = _shares(sizes, room, half, cards)
    price = _resource_prices(used, most_of, profit)
    surplus = _surplus(used, most_of, profit, price, np.zeros(shapes))
    # Of the shapes from each one on: the best profit of a first pod per load, and what all earn beyond the prices.
    ratio, beyond = np.full(shapes + 1, -np.inf), np.zeros(shapes + 1)
    for h in range(shapes - 1, -1, -1):
        ratio[h], beyond[h] = max(ratio[h + 1], profit[h, 1] / loads[h]), beyond[h + 1] + surplus[h]
    # By depth: what is left of the room, the load and the profit of the shapes before; ``root``: bound on all patterns.
    left, load, earned = np.zeros((shapes + 1, 4), np.int64), np.zeros(shapes + 1), np.zeros(shapes + 1)
    left[0], load[0] = room, start
    counts = np.zeros(shapes, np.int64)
    best, root, depth, enter, steps = -np.inf, np.inf, 0, True, 0
    while depth >= 0:
        steps += 1
        if steps > limit:
            return root
        if depth == shapes:
            found = earned[depth] - cost_of_load(law, low, high, slope, load[depth])
            if found > best and (cards == 0 or packed(sizes, counts, order, held, card, cards)):
                best = found
            depth, enter = depth - 1, False
            continue
        if enter:
            gain = beyond[depth]
            for r in range(4):
                gain += price[r] * (left[depth, r] / room[r] if room[r] > 0 else 0.0)
            gain *= 1.0 + 1e-9
            above = earned[depth] + promise(law, low, high, slope, load[depth], ratio[depth], gain, most)
            root = min(root, above) if depth == 0 else root
            if above <= best + tolerance:
                depth, enter = depth - 1, False
                continue
            fit = most_of[depth]
            for r in range(3):
                if sizes[depth, r] > 0:
                    fit = min(fit, left[depth, r] // sizes[depth, r])
            if cards and sizes[depth, 3] > half:
                fit = min(fit, left[depth, 3] // sizes[depth, 4])
            counts[depth] = fit
        else:
            counts[depth] -= 1
            if counts[depth] < 0:
                counts[depth] = 0
                depth -= 1
                continue
        n = counts[depth]
        for r in range(3):
            left[depth + 1, r] = left[depth, r] - n * sizes[depth, r]
        left[depth + 1, 3] = left[depth, 3] - (n * sizes[depth, 4] if cards and sizes[depth, 3] > half else 0)
        load[depth + 1], earned[depth + 1] = load[depth] + n * loads[depth], earned[depth] + profit[depth, n]
        depth, enter = depth + 1, True
    return best + tolerance
