"""Amounts with time windows on one resource, loaded as evenly as whole numbers allow.

Every item k has an integer amount and a window of slots ``start[k] .. stop[k] - 1``. Among all ways to spread the
amounts over their windows there is one whose load vector is *least majorised*: for every c at once it has the
smallest possible sum over the slots of ``max(load - c, 0)``. It is therefore the lexicographic minimum of the
sorted loads, and the minimum of every separable convex function. It needs no solver:

1. The interval of greatest intensity (amount that must lie inside / length) is loaded with just that intensity,
   rounded down or up slot by slot; nothing else may use it. Cut it out of time and repeat.
2. Inside such an interval, earliest deadline first meets all windows, because evenly rounded slot capacities
   leave every subinterval at least the whole part of what its length is due, and no demand exceeds that.

Why it is least: with S_c the slots of intensity above c, at least ``amount confined to S_c - c |S_c|`` lies
above c whatever one does (that is the dual bound), and here no more does.

Source: the critical intervals are those of Yao, Demers, Shenker, "A scheduling model for reduced CPU energy"
(1995); least majorised integral bases: Frank and Murota, "Decreasing minimization on M-convex sets" (2022).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from flowlex.formulations.arrays import Floats, Integers

__all__ = ["BalancedLoad", "balance", "check_total", "even_split", "greatest_intensity"]

#: Sums of amounts stay below this.
_SAFE = 2**62


@dataclass(frozen=True, eq=False)
class BalancedLoad:
    """The least majorised spread of some items over slots ``first .. first + len(band) - 1``.

    Attributes
    ----------
    band
        (slots,) the load of a slot lies in ``band .. band + 1``; -1 where no item has its window. ``band >= c``
        are the slots of S_c, the proof that no spread puts less above c.
    item, slot, amount
        (entries,) the spread: positive amounts only.
    """

    first: int
    band: Integers
    item: Integers
    slot: Integers
    amount: Integers


def balance(start: Integers, stop: Integers, amount: Integers) -> BalancedLoad:
    """Spread items as evenly as possible (see the module).

    Parameters
    ----------
    start, stop, amount
        (items,) int64; ``start < stop``, amounts positive.
    """
    if (start >= stop).any() or (amount <= 0).any():
        raise ValueError("every item needs a window of at least one slot and a positive amount")
    check_total(amount)
    low, high = int(start.min()), int(stop.max())
    free = np.arange(low, high)
    band = np.full(high - low, -1, np.int64)
    begin, end = start - low, stop - low
    left = np.arange(len(start))
    entries: list[tuple[int, int, int]] = []
    while len(left):
        a, b, total = _critical(begin[left], end[left], amount[left])
        if total <= b - a:  # at most one a slot everywhere: what is left needs no further cutting
            for k in left.tolist():
                inside = free[begin[k] : end[k]]
                band[inside - low] = 0
            entries += _earliest_deadline(left, begin, end, amount, free, np.ones(len(free), np.int64), 0)
            break
        inside = free[a:b]
        band[inside - low] = -(-total // (b - a)) - 1
        chosen = left[(begin[left] >= a) & (end[left] <= b)]
        entries += _earliest_deadline(chosen, begin, end, amount, inside, even_split(total, b - a), a)
        left = left[(begin[left] < a) | (end[left] > b)]
        free = np.concatenate([free[:a], free[b:]])
        begin = np.where(begin <= a, begin, np.maximum(begin - (b - a), a))
        end = np.where(end <= a, end, np.maximum(end - (b - a), a))
    found = np.array(entries, dtype=np.int64).reshape(-1, 3)
    return BalancedLoad(low, band, found[:, 0], found[:, 1], found[:, 2])


def even_split(total: int, length: int, phase: float = 0.0) -> Integers:
    """Split ``total`` into ``length`` whole parts whose every run sums to its share, rounded down or up.

    ``phase`` (0 to 1) says how soon the first part that is rounded up comes.
    """
    each, more = divmod(int(total), length)
    steps: Integers = (np.arange(length + 1) * more + int(phase * length)) // length
    return each + np.diff(steps)


def check_total(amount: Integers) -> None:
    """Refuse amounts whose sums could leave 64 bits."""
    if float(amount.sum(dtype=np.float64)) >= _SAFE:
        raise ValueError(f"the amounts sum to {sum(amount.tolist())}, the limit is {_SAFE}; use a coarser unit")


def greatest_intensity(start: Integers, stop: Integers, amount: Integers) -> tuple[int, int, int]:
    """The interval with the largest amount per slot confined to it: ``(first slot, end, amount)``."""
    return _critical(start, stop, amount)


def _critical(begin: Integers, end: Integers, amount: Integers) -> tuple[int, int, int]:
    starts, row = np.unique(begin, return_inverse=True)
    ends, column = np.unique(end, return_inverse=True)
    confined = np.zeros((len(starts), len(ends)), np.int64)
    np.add.at(confined, (row, column), amount)
    confined = confined[::-1].cumsum(axis=0)[::-1].cumsum(axis=1)
    length = ends[None, :] - starts[:, None]
    intensity: Floats = np.where(length > 0, confined / np.maximum(length, 1), -1.0)
    at = int(intensity.argmax())
    if float(confined.max()) * float(length.max()) >= 2**52:  # quotients may look equal that are not
        near = np.flatnonzero(intensity.ravel() >= intensity.max() * (1 - 1e-12))
        pairs = zip(confined.ravel()[near].tolist(), length.ravel()[near].tolist(), near.tolist(), strict=True)
        at = -max((Fraction(units, slots), -place) for units, slots, place in pairs)[1]
    row_best, column_best = np.unravel_index(at, intensity.shape)
    return int(starts[row_best]), int(ends[column_best]), int(confined[row_best, column_best])


def _earliest_deadline(
    chosen: Integers,
    begin: Integers,
    end: Integers,
    amount: Integers,
    slots: Integers,
    capacity: Integers,
    shift: int,
) -> list[tuple[int, int, int]]:
    """Serve the chosen items slot by slot, the one that ends first going first."""
    coming = sorted(chosen.tolist(), key=lambda k: int(begin[k]))
    todo = {k: int(amount[k]) for k in coming}
    active: list[tuple[int, int]] = []
    entries: list[tuple[int, int, int]] = []
    following = 0
    for position, room in enumerate(capacity.tolist()):
        while following < len(coming) and begin[coming[following]] - shift <= position:
            heapq.heappush(active, (int(end[coming[following]]), coming[following]))
            following += 1
        while room and active:
            deadline, k = active[0]
            sent = min(room, todo[k])
            assert deadline - shift > position, "an even split leaves no item behind"
            entries.append((k, int(slots[position]), sent))
            todo[k] -= sent
            room -= sent
            if todo[k] == 0:
                heapq.heappop(active)
    return entries
