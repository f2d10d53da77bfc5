"""Integer max-min fair shares by water filling, for one or several nested classes of a resource.

Jobs claim units of a resource. Units have a class 0 < 1 < ... < C-1 (GPU memory, say) and a claim that needs class c
can use any unit of class c or above. A job uses its least demanding claims first, so its claims of one class form an
interval of levels ``(a, b]``. With one class this is plain water filling: every job gets the same level, or all that it
asked for. With several, a scarce upper class stops the jobs whose level has reached their claims on it, and the level
rises for the others.

Every class c has a level at which its claims stop. Take consecutive classes that share units, and let ``spare(l)`` of
class c be the units of class c and above minus the claims on them below level l. Level l stops the classes from the
first minimum of ``spare`` on, and no others; neither part can then use units of the other. So all classes bisect
their levels in parallel, in integers. Between two neighbouring integers claims are linear, and pooling adjacent
classes whose levels would cross gives the exact fractions.

There is an integer allocation between floor and ceiling of every level, since servable allocations form an integral
polymatroid. Jobs whose fractional levels have the same ceiling form a group, also where they stop at different classes:
the sorted allocation, by which fairness is judged, depends on the group's total only. A later optimisation decides
which jobs of a group get the odd units (decreasingly minimal elements: Frank and Murota, 2022).

`whole_shares` does the same for weighted jobs and one class. It also gives out the odd units, in a fixed order, since
there each share becomes a bound of a network. With weights its answer need not round the fractional levels: the next
unit goes to the least (share + 1) / weight, and this rule (D'Hondt's) may leave floor and ceiling.

Source: water filling by decomposition, Fujishige, "Lexicographically optimal base of a polymatroid with respect to a
weight vector" (1980); the form for nested classes is reconstructed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowlex.formulations.program_arrays import Integers

#: Sums of units and claims stay below this in 64 bits; larger ones are added up as Python integers.
_SAFE = 2**61


@dataclass(frozen=True, eq=False)
class Shares:
    """Max-min fair shares of J jobs."""

    level: tuple[Fraction, ...]  # J exact fractions, the fair share if units could be split
    #: (J,) int64, floor and ceiling of the level: what an integer allocation may give.
    least: Integers
    most: Integers
    #: (J,) int64, jobs that share odd units: fractional levels of one ceiling; jobs with an integer level form one.
    group: Integers
    group_total: Integers  # (groups,) int64, units that each group gets in all

    @property
    def total(self) -> int:
        """Total number of units given out."""
        return sum(self.group_total.tolist())


def shares_of_claims(job: Integers, of: Integers, amount: Integers, units: Integers, held: Integers) -> Shares:
    """Share units max-min fairly; give out everything that can be served.

    ``job``, ``of``, ``amount``: (K,) claims sorted by job, then by class: ``amount`` units of class ``of`` for ``job``,
        each pair once.
    ``units``, ``held``: (C,) units by class; (J,) units that each job holds already, outside ``units``; its share
        counts them.
    Raises `ValueError`: units of a job that no 64-bit integer holds.
    """
    if (np.bincount(job, weights=amount, minlength=len(held)) + held >= 2**62).any():
        raise ValueError("a job's demand and floor sum to more than 2**62; use a coarser unit")
    before = np.cumsum(amount) - amount  # may wrap around 64 bits: only differences within a job count
    below = held[job] + before - before[np.searchsorted(job, job)]
    order = np.argsort(of, kind="stable")
    ramps = _Ramps(units, below[order], (below + amount)[order], of[order])
    low = ramps.whole_levels()
    return _stopped(ramps, job[order], held, low)


@dataclass(eq=False)
class _Ramps:
    """Claims as intervals ``(below, top]`` of levels, sorted by their class, and the (C,) units of the classes."""

    units: Integers
    below: Integers
    top: Integers
    of: Integers

    def __post_init__(self) -> None:
        # Every sum is at most this; beyond 64 bits the same operations run on Python integers.
        largest = float(self.units.sum(dtype=np.float64)) + float((self.top - self.below).sum(dtype=np.float64))
        self.exact: Any = np.int64 if largest < _SAFE else object
        self.edges = np.searchsorted(self.of, np.arange(len(self.units) + 1))

    def by_class(self, values: NDArray[Any]) -> NDArray[Any]:
        """(C,) sums over the ramps of each class."""
        sums = np.concatenate([[0], np.cumsum(values.astype(self.exact))])
        found: NDArray[Any] = sums[self.edges[1:]] - sums[self.edges[:-1]]
        return found

    def spare(self, level: Integers) -> NDArray[Any]:
        """(C,) units of each class minus the claims on it that lie below its level."""
        used = np.clip(level[self.of], self.below, self.top) - self.below
        left: NDArray[Any] = self.units.astype(self.exact) - self.by_class(used)
        return left

    def whole_levels(self) -> Integers:
        """(C,) the integer l of each class whose level lies in ``(l, l + 1]``; the highest level if it never stops."""
        classes = len(self.units)
        highest = int(self.top.max(initial=0))
        low, high = np.full(classes, -1), np.full(classes, highest + 1)
        starts = np.zeros(min(classes, 1), np.int64)  # where each part of consecutive classes begins
        while (high - low > 1).any():
            middle = low + (high - low) // 2
            total = np.concatenate([np.cumsum(self.spare(middle)[::-1])[::-1], [0]])
            ends = np.append(starts[1:], classes)
            least = np.minimum.reduceat(total[:-1], starts)
            part = np.repeat(np.arange(len(starts)), ends - starts)
            at_least = np.flatnonzero(total[:-1] == least[part])
            first = at_least[np.searchsorted(at_least, starts)]
            first = np.where(total[ends] < least, ends, first)  # no claims exceed the units: none stop
            stopped = np.arange(classes) >= first[part]
            low, high = np.where(stopped, low, middle), np.where(stopped, middle, high)
            starts = np.union1d(starts, first[first < classes])
        return low

    def fractions(self, low: Integers) -> tuple[list[tuple[int, int]], list[int]]:
        """Each class's level above ``low`` as (numerator, denominator), and the number of its pool."""
        rising = (self.below <= low[self.of]) & (low[self.of] < self.top)
        rates, spare = self.by_class(rising).tolist(), self.spare(low).tolist()
        pools: list[tuple[int, int, int, int]] = []  # integer level, spare units, rising claims, lowest class
        for c in range(len(low) - 1, -1, -1):
            level, left, rate = int(low[c]), spare[c], rates[c]
            while pools and pools[-1][0] == level and not _above(left, rate, *pools[-1][1:3]):
                _, more, rates_too, _ = pools.pop()
                left, rate = left + more, rate + rates_too
            pools.append((level, left, rate, c))
        fraction, pool = [(0, 1)] * len(low), [0] * len(low)
        for number, (_, left, rate, first) in enumerate(pools):
            last = pools[number - 1][3] if number else len(low)
            fraction[first:last] = [(left, rate) if rate else (0, 1)] * (last - first)
            pool[first:last] = [number] * (last - first)
        return fraction, pool


def _above(left: int, rate: int, other_left: int, other_rate: int) -> bool:
    """Whether ``rate`` units per level exhaust ``left`` units at a higher level than the other rate its units."""
    if not rate:
        return left >= 0 and other_rate > 0
    return other_rate > 0 and left * other_rate > other_left * rate


def _stopped(ramps: _Ramps, job: Integers, held: Integers, low: Integers) -> Shares:
    """Shares of the jobs: each stops on the first of its ramps that it cannot finish."""
    fraction, pool = ramps.fractions(low)
    reached = low[ramps.of]
    least = held.copy()
    np.maximum.at(least, job, np.where(reached >= ramps.top, ramps.top, 0))
    # Of a job's unfinished ramps, only the first may be partly climbed, if it begins at or below the level reached.
    partly = np.flatnonzero((ramps.below <= reached) & (reached < ramps.top))
    stopped, of = job[partly], ramps.of[partly]
    least[stopped] = low[of]
    most, group, totals = least.copy(), np.zeros(len(held), np.int64), [0]
    levels: list[Any] = least.tolist()
    number: dict[int, int] = {}
    counted: set[int] = set()
    for j, c in zip(stopped.tolist(), of.tolist(), strict=True):
        units, jobs = fraction[c]  # odd units, and the number of jobs that share them
        most[j] += 1
        if units == jobs:
            levels[j] = least[j] = most[j]
            continue
        levels[j] = Fraction(levels[j] * jobs + units, jobs)
        group[j] = number.setdefault(int(most[j]), len(totals))
        totals += [0] * (len(number) + 1 - len(totals))
        if pool[c] not in counted:
            counted.add(pool[c])
            totals[group[j]] += units
    for j, at_least in enumerate(least.tolist()):
        totals[int(group[j])] += at_least
    kind = np.int64 if max(totals) < 2**63 else object
    return Shares(tuple(map(Fraction, levels)), least, most, group, np.array(totals, dtype=kind))


def whole_shares(least: ArrayLike, most: ArrayLike, weight: ArrayLike, units: int) -> Integers:
    """Integer units for each job, weighted max-min fair: the next unit goes where (share + 1) / weight is least.

    Ties go to the earlier job. Levels are integer multiples of ``2**-bits``: the k-th unit of a job of weight w lies at
    ``floor(k * 2**bits / w)``, and ``bits`` is large enough to order these integers like the fractions.

    ``least``, ``most``: (J,) units of each job at least and at most, ``0 <= least <= most``.
    ``weight``: (J,) whole weights of at least 1.
    ``units``: units there are. When the minima exceed them, every job gets its minimum all the same.
    Raises `ValueError`: a weight below 1, or a job whose most is below its least.
    """
    low, high, w = (np.asarray(x, np.int64) for x in (least, most, weight))
    if (w < 1).any() or (low < 0).any() or (high < low).any():
        j = int(((w < 1) | (low < 0) | (high < low)).argmax())
        raise ValueError(
            f"job {j} has weight {w[j]}, least {low[j]} and most {high[j]}; weights start at 1, least at 0"
        )
    shares, tops, weights = low.tolist(), high.tolist(), w.tolist()
    left = int(units) - sum(shares)
    if left <= 0 or not shares:
        return low.copy()
    if sum(tops) <= int(units):
        return high.copy()
    bits = 2 * max(weights).bit_length()

    def stand(level: int) -> list[int]:
        return [min(max(level * x >> bits, a), b) for x, a, b in zip(weights, low.tolist(), tops, strict=True)]

    # Level ``down`` uses few enough units, ``up`` too many; a floating-point guess narrows the interval.
    down, up = 0, (max(b * (1 << bits) // x for b, x in zip(tops, weights, strict=True)) + 1)
    for guess in _guesses(low, high, w, int(units), bits):
        if down < guess < up:
            down, up = (guess, up) if sum(stand(guess)) <= units else (down, guess)
    while True:
        shares, reached = stand(down), stand(up)
        if sum(reached) - sum(shares) <= max(len(shares), 64) or up - down <= 1:
            break
        middle = (down + up) // 2
        down, up = (middle, up) if sum(stand(middle)) <= units else (down, middle)
    coming = [
        ((k << bits) // x, j)
        for j, (x, a, b) in enumerate(zip(weights, shares, reached, strict=True))
        for k in range(a + 1, b + 1)
    ]
    for _, j in sorted(coming)[: int(units) - sum(shares)]:
        shares[j] += 1
    return np.array(shares, dtype=np.int64)


def _guesses(low: Integers, high: Integers, weight: Integers, units: int, bits: int) -> list[int]:
    """Levels, in units of ``2**-bits``, just below and above the one at which the units run out."""
    down, up = 0.0, float((high / weight).max())
    for _ in range(60):
        middle = (down + up) / 2
        few = float(np.clip(middle * weight, low, high).sum()) <= units
        down, up = (middle, up) if few else (down, middle)
    return [int(Fraction(x) * (1 << bits)) for x in (down * (1 - 1e-9), up * (1 + 1e-9))]
