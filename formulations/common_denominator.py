"""Rationals in a common unit: integers that a network or a program can hold exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from flowlex.formulations.program_arrays import Integers


@dataclass(frozen=True, eq=False)
class InUnits:
    """Numbers as integer multiples of a unit."""

    whole: Integers  # (n,) int64
    unit: Fraction  # what one stands for
    error: Fraction  # the largest distance of ``whole * unit`` from the number meant; 0 when nothing was rounded

    @property
    def exact(self) -> bool:
        """Whether nothing was rounded."""
        return not self.error


def largest_common_unit(numbers: Iterable[Fraction]) -> Fraction:
    """Return the largest unit of which all numbers are integer multiples; 1 if there are none but zeros."""
    distinct = set(numbers) - {0}
    below = math.lcm(*(x.denominator for x in distinct))
    above = math.gcd(*(x.numerator * (below // x.denominator) for x in distinct))
    return Fraction(above or 1, below)


def common_unit(numbers: Sequence[Fraction], *, limit: int = 2**53) -> InUnits:
    """Return the largest unit that divides all numbers; beyond ``limit`` units, a coarser one with rounding.

    Examples
    --------
    >>> found = common_unit([Fraction(1, 2), Fraction(3), Fraction(5, 3)])
    >>> found.whole.tolist(), found.unit, found.exact
    ([3, 18, 10], Fraction(1, 6), True)
    """
    distinct = set(numbers) - {0}
    unit, largest = largest_common_unit(distinct), max(map(abs, distinct), default=Fraction(0))
    if largest <= limit * unit:
        whole = {x: int(x / unit) for x in distinct | {Fraction(0)}}
        return InUnits(np.array([whole[x] for x in numbers], dtype=np.int64), unit, Fraction(0))
    unit = largest / limit
    whole = {x: round(x / unit) for x in distinct | {Fraction(0)}}
    error = max(abs(x - n * unit) for x, n in whole.items())
    return InUnits(np.array([whole[x] for x in numbers], dtype=np.int64), unit, error)
