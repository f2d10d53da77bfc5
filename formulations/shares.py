"""Integer max-min fair shares by water filling, also where resources come in nested classes.

Jobs claim units of a resource. Units have a class 0 < 1 < ... < C-1 (GPU memory, say) and a claim that needs
class c can use any unit of class c or above. With one class this is plain water filling: everybody gets the
same level, or all it asked for. With several, a scarce upper class freezes the jobs that depend on it and the
water goes on rising for the others.

The fractional levels are exact (`fractions.Fraction`). An integer allocation between floor and ceiling of every
level, with the total of every group of jobs frozen together, exists: allocations that can be served form an
integral polymatroid. Which job of a group gets an odd unit is left open, for an optimum to decide.

`whole_shares` fills the same water for weighted jobs and one class, and gives the odd units out too, in a fixed order:
there a share becomes one bound of a network. With weights its answer is no rounding of the fractional levels (next
unit to the least (share + 1) / weight: D'Hondt's rule may leave floor and ceiling), so the two end differently.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowlex.formulations.expression import Integers

__all__ = ["Shares", "max_min_shares", "whole_shares"]


@dataclass(frozen=True, eq=False)
class Shares:
    """Max-min fair shares of J jobs.

    Attributes
    ----------
    level
        J exact fractions, the fair share if units could be split.
    least, most
        (J,) int64, floor and ceiling of the level: what an integer allocation may give.
    group
        (J,) int64, jobs that were frozen together (they share the odd units).
    group_total
        (groups,) int64, units that each group gets in all.
    """

    level: tuple[Fraction, ...]
    least: Integers
    most: Integers
    group: Integers
    group_total: Integers

    @property
    def total(self) -> int:
        """Units given out in all."""
        return int(self.group_total.sum())


def max_min_shares(demand: ArrayLike, supply: ArrayLike, floor: ArrayLike = 0) -> Shares:
    """Share units out max-min fairly.

    Parameters
    ----------
    demand
        (J,) or (J, C) integers: units that each job still asks for, by the class they need.
    supply
        scalar or (C,) integers: units there are, by class.
    floor
        (J,) integers: units that each job holds already, outside ``supply``; its share counts them.

    Returns
    -------
    Shares
        Shares include the floor. Everything that can be served is given out.

    Raises
    ------
    ValueError
        Negative numbers or shapes that do not match.
    """
    claims = np.asarray(demand, np.int64)
    claims = claims[:, None] if claims.ndim == 1 else claims
    units = np.atleast_1d(np.asarray(supply, np.int64))
    held = np.broadcast_to(np.asarray(floor, np.int64), (len(claims),))
    if claims.ndim != 2 or units.shape != (claims.shape[1],):
        raise ValueError(f"demand of shape {claims.shape} does not match supply of shape {units.shape}")
    if (claims < 0).any() or (units < 0).any() or (held < 0).any():
        raise ValueError("demand, supply and floor must not be negative")
    return _fill(_Water(claims, units, held))


def whole_shares(least: ArrayLike, most: ArrayLike, weight: ArrayLike, units: int) -> Integers:
    """Whole units for each job, weighted max-min fair: the next unit goes where (share + 1) / weight is least.

    Parameters
    ----------
    least, most
        (J,) units of each job at least and at most, ``0 <= least <= most``.
    weight
        (J,) whole weights of at least 1.
    units
        Units there are. When the minima exceed them, every job gets its minimum all the same.

    Notes
    -----
    Ties go to the earlier job.
    """
    low, high, w = (np.asarray(x, np.int64) for x in (least, most, weight))
    left = units - int(low.sum())
    if left <= 0 or not len(low):
        return low
    water = _Water((high - low)[:, None], np.array([left]), low, w)
    everyone = np.ones(len(low), np.bool_)
    down, up = 0.0, float((high / w).max())
    if water.slack(up, everyone)[0] >= 0:
        return high
    for _ in range(100):  # until each job has about one unit left between the levels
        if int((water.stand(up) - water.stand(down)).sum()) <= max(len(low), 64):
            break
        middle = (down + up) / 2
        down, up = (middle, up) if water.slack(middle, everyone)[0] >= 0 else (down, middle)
    share = water.stand(down)
    more = water.stand(up) - share
    job = np.repeat(np.arange(len(low)), more)
    nth = np.arange(len(job)) - np.repeat(np.cumsum(more) - more, more) + 1
    order = np.argsort((share[job] + nth) / w[job], kind="stable")[: left - int((share - low).sum())]
    return share + np.bincount(job[order], minlength=len(low))


class _Water:
    """Which levels can be served: jobs take units for their least demanding claims first.

    With x_j units for job j, the units needed of class c and above are the sum over j of
    ``max(0, x_j - easy[j, c])``, where ``easy[j, c]`` counts what it holds and the claims that need less than c.
    A job of weight w stands w times as high.
    """

    def __init__(self, claims: Integers, units: Integers, held: Integers, weight: Integers | None = None) -> None:
        self.held, self.weight = held, weight
        self.ceiling = held + claims.sum(axis=1)
        self.easy = np.cumsum(claims, axis=1) - claims + held[:, None]
        self.available = np.cumsum(units[::-1])[::-1].tolist()
        self.used = [Fraction(0)] * len(units)  # by the jobs that are frozen

    def stand(self, level: float) -> Integers:
        """Whole units of each job at ``level``, within its limits."""
        x = level if self.weight is None else np.floor(level * self.weight).astype(np.int64)
        found: Integers = np.clip(x, self.held, self.ceiling)
        return found

    def slack(self, level: float, active: NDArray[np.bool_]) -> list[Fraction]:
        """Units left of each class and above when every active job stands at ``level`` within its limits."""
        x = self.stand(level)[active]
        need = np.maximum(x[:, None] - self.easy[active], 0).sum(axis=0).tolist()
        return [have - used - n for have, used, n in zip(self.available, self.used, need, strict=True)]

    def next_stop(self, active: NDArray[np.bool_], low: int) -> tuple[Fraction, NDArray[np.bool_]]:
        """Highest level the active jobs can reach together, and who of them stops there."""
        high = int(self.ceiling[active].max())
        if min(self.slack(high, active)) >= 0:
            return Fraction(high), active
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if min(self.slack(middle, active)) >= 0 else (low, middle)
        rising = active & (self.held <= low) & (low < self.ceiling)
        rates = (rising[:, None] & (low >= self.easy)).sum(axis=0).tolist()
        steps = [left / rate if rate else None for left, rate in zip(self.slack(low, active), rates, strict=True)]
        step = min(s for s in steps if s is not None)
        tight = np.array([s == step for s in steps])
        stuck = (np.maximum(self.held, low)[:, None] >= self.easy[:, tight]).any(axis=1)
        return low + step, active & ((self.ceiling <= low) | stuck)

    def freeze(self, jobs: NDArray[np.bool_], level: Fraction) -> list[Fraction]:
        """Fix the jobs at ``level`` within their limits; returns their exact levels."""
        exact = []
        for held, ceiling, easy in zip(
            self.held[jobs].tolist(), self.ceiling[jobs].tolist(), self.easy[jobs].tolist(), strict=True
        ):
            x = min(max(level, Fraction(held)), Fraction(ceiling))
            exact.append(x)
            self.used = [used + max(x - e, Fraction(0)) for used, e in zip(self.used, easy, strict=True)]
        return exact


def _fill(water: _Water) -> Shares:
    """Raise the water from stop to stop until every job is frozen."""
    count = len(water.held)
    level = [Fraction(0)] * count
    group, totals = np.zeros(count, np.int64), list[int]()
    active, low = np.ones(count, bool), 0
    while active.any():
        stop, frozen = water.next_stop(active, low)
        exact = water.freeze(frozen, stop)
        for job, x in zip(np.flatnonzero(frozen).tolist(), exact, strict=True):
            level[job] = x
        total = sum(exact, Fraction(0))
        assert total.denominator == 1, "tight sets of an integral polymatroid have integral totals"
        group[frozen] = len(totals)
        totals.append(int(total))
        active &= ~frozen
        low = math.floor(stop)
    least = np.array([math.floor(x) for x in level], dtype=np.int64)
    most = np.array([math.ceil(x) for x in level], dtype=np.int64)
    return Shares(tuple(level), least, most, group, np.array(totals, dtype=np.int64))
