"""Amounts with time windows on one resource, loaded as evenly as integers allow.

Every item k has an integer amount and a window of slots ``start[k] .. stop[k] - 1``. Among all ways to spread the
amounts over their windows there is one whose load vector is *least majorised*: for every c at once it has the
smallest possible sum over the slots of ``max(load - c, 0)``. It is therefore the lexicographic minimum of the
sorted loads, and the minimum of every separable convex function. It needs no solver:

1. The interval of greatest intensity (amount that must lie inside / length) is loaded with just that intensity,
   rounded down or up; nothing else may use it. Cut it out of time and repeat.
2. Inside such an interval, earliest deadline first meets all windows: with evenly rounded capacities of its cells,
   every run of cells gets at least the floor of its proportional share, and no demand exceeds that.

Proof: let S_c be the slots of intensity above c. In every spread at least ``amount confined to S_c - c |S_c|`` lies
above c (the dual bound); here exactly that lies above c.

Source: the critical intervals are those of Yao, Demers, Shenker, "A scheduling model for reduced CPU energy"
(1995); least majorised integral bases: Frank and Murota, "Decreasing minimization on M-convex sets" (2022).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from flowlex.formulations.program_arrays import Floats, Integers

#: Sums of amounts stay below this.
_SAFE = 2**62


@dataclass(frozen=True, eq=False)
class BalancedLoad:
    """The least majorised spread of items over the N cells between neighbouring starts and stops."""

    edge: Integers  # (N + 1,) first slot of every cell, and the end
    #: (N,) the load of every slot of a cell lies in ``band .. band + 1``; -1 where no item has its window. The slots
    #: of ``band >= c`` are S_c, the proof that no spread puts less above c.
    band: Integers
    #: (entries,) the spread: positive amounts only. A cell's load is its total, slot by slot as even as can be.
    item: Integers
    cell: Integers
    amount: Integers


def balance(start: Integers, stop: Integers, amount: Integers, also: Integers | None = None) -> BalancedLoad:
    """Spread items as evenly as possible (see the module); work grows with items, not with slots.

    ``start``, ``stop``, ``amount``: (items,) int64; ``start < stop``, amounts positive.
    ``also``: more slots at which cells begin.
    """
    if (start >= stop).any() or (amount <= 0).any():
        raise ValueError("every item needs a window of at least one slot and a positive amount")
    check_total(amount)
    edge = np.unique(np.concatenate([start, stop] if also is None else [start, stop, also]))
    edge = edge[(edge >= start.min()) & (edge <= stop.max())]
    length = np.diff(edge)
    first, last = np.searchsorted(edge, start), np.searchsorted(edge, stop)
    band = np.full(len(length), -1, np.int64)
    free = np.ones(len(length), np.bool_)  # cells that no critical interval has taken
    left = np.arange(len(start))
    entries: list[tuple[int, int, int]] = []
    while len(left):
        clock = np.concatenate([[0], np.cumsum(np.where(free, length, 0))])
        begin, end = clock[first[left]], clock[last[left]]
        a, b, total = greatest_intensity(begin, end, amount[left])
        if total <= b - a:  # at most one per slot everywhere: no further cutting is needed
            used = np.zeros(len(length) + 1, np.int64)
            np.add.at(used, first[left], 1)
            np.add.at(used, last[left], -1)
            inside = np.flatnonzero(free & (np.cumsum(used)[:-1] > 0))
            band[inside] = 0
            entries += _earliest_deadline(left, first, last, amount, inside, length[inside].tolist())
            break
        inside = np.flatnonzero(free & (clock[:-1] >= a) & (clock[1:] <= b))
        band[inside] = -(-total // (b - a)) - 1
        chosen = left[(begin >= a) & (end <= b)]
        steps = [(int(at) - a) * total // (b - a) for at in [*clock[inside].tolist(), b]]  # Python: no overflow
        room = [high - low for low, high in pairwise(steps)]
        entries += _earliest_deadline(chosen, first, last, amount, inside, room)
        left = left[(begin < a) | (end > b)]
        free[inside] = False
    found = np.array(entries, dtype=np.int64).reshape(-1, 3)
    return BalancedLoad(edge, band, found[:, 0], found[:, 1], found[:, 2])


def even_split(total: int, length: int, phase: float = 0.0) -> Integers:
    """Split ``total`` into ``length`` integer parts; every run of parts sums to its share, rounded down or up.

    ``phase`` (0 to 1) determines how soon the first part that is rounded up comes.
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
    starts, row = np.unique(start, return_inverse=True)
    ends, column = np.unique(stop, return_inverse=True)
    confined = np.zeros((len(starts), len(ends)), np.int64)
    np.add.at(confined, (row, column), amount)
    confined = confined[::-1].cumsum(axis=0)[::-1].cumsum(axis=1)
    length = ends[None, :] - starts[:, None]
    intensity: Floats = np.where(length > 0, confined / np.maximum(length, 1), -1.0)
    at = int(intensity.argmax())
    if float(confined.max()) * float(length.max()) >= 2**52:  # different quotients may round to one float
        near = np.flatnonzero(intensity.ravel() >= intensity.max() * (1 - 1e-12))
        pairs = zip(confined.ravel()[near].tolist(), length.ravel()[near].tolist(), near.tolist(), strict=True)
        at = -max((Fraction(units, slots), -place) for units, slots, place in pairs)[1]
    row_best, column_best = np.unravel_index(at, intensity.shape)
    return int(starts[row_best]), int(ends[column_best]), int(confined[row_best, column_best])


def _earliest_deadline(
    chosen: Integers, first: Integers, last: Integers, amount: Integers, cells: Integers, capacity: list[int]
) -> list[tuple[int, int, int]]:
    """Serve the chosen items cell by cell, earliest deadline first; return entries (item, cell, amount)."""
    coming = sorted(chosen.tolist(), key=lambda k: int(first[k]))
    todo = {k: int(amount[k]) for k in coming}
    active: list[tuple[int, int]] = []
    entries: list[tuple[int, int, int]] = []
    following = 0
    for cell, room in zip(cells.tolist(), capacity, strict=True):
        while following < len(coming) and first[coming[following]] <= cell:
            heapq.heappush(active, (int(last[coming[following]]), coming[following]))
            following += 1
        while room and active:
            deadline, k = active[0]
            sent = min(room, todo[k])
            assert deadline > cell, "an even split leaves no item behind"
            entries.append((k, cell, sent))
            todo[k] -= sent
            room -= sent
            if todo[k] == 0:
                heapq.heappop(active)
    return entries
