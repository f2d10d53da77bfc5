"""Exact arithmetic on numbers of documents, and comparison of stated with recomputed numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.exact_rationals import rational

#: A number of a document: integers as they are, others as decimal or as text, ``"6063/5"`` or ``"1212.6"``.
Number: TypeAlias = int | float | str

#: Sums and differences of fewer than four numbers below this stay within 64 bits.
_SAFE = 2**60


def agrees(stated: Number, true: Fraction | int, tolerance: float = 0.0) -> bool:
    """Whether a stated number is the true one: itself, the 64-bit float nearest to it, or within a tolerance."""
    number = rational(stated)
    if number == true:
        return True
    if tolerance and abs(number - true) <= Fraction(tolerance) * (abs(Fraction(true)) + 1):
        return True
    try:
        return isinstance(stated, float) and float(true) == stated
    except OverflowError:
        return False


def text(value: Fraction | int) -> int | str:
    """A rational number for a document: integers as they are, others as the text of a fraction."""
    return int(value) if Fraction(value).denominator == 1 else str(value)


def written(value: Fraction | int) -> Number:
    """A rational number for a document: integer or decimal where that is exact, else a fraction's text."""
    if Fraction(value).denominator != 1:
        try:
            if rational(near := float(value)) == value:
                return near
        except (OverflowError, ValueError):  # no finite float is near it
            pass
    return text(value)


def wide(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same integers, as Python integers where sums of two could leave 64 bits."""
    if values.dtype == object:
        return values
    large = bool(len(values)) and (int(values.max()) >= _SAFE or int(values.min()) <= -_SAFE)
    return values.astype(object) if large else values
