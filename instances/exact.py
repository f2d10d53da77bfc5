"""Numbers as they are written: exact rationals from decimal text.

A float read from a file is the binary number next to what was written; the shortest decimal that names it is the text
itself (up to 15 digits, and the text again to 17). So ``0.1`` is one tenth here. Reading belongs to the instances;
bringing several rationals to a common unit is arithmetic and lives in `flowlex.formulations.exact`: neither room may
import the other, and both speak `fractions.Fraction`.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction

import numpy as np

__all__ = ["rational", "rationals"]


def rational(number: float | str | Decimal | Fraction) -> Fraction:
    """The number that the decimal text says; integers, of Python or NumPy, are kept.

    Raises
    ------
    ValueError
        Text that is no number, or NaN or infinity.

    Examples
    --------
    >>> rational(0.1), rational("2.50"), rational(7)
    (Fraction(1, 10), Fraction(5, 2), Fraction(7, 1))
    """
    if isinstance(number, float | np.floating):
        number = repr(float(number))
    elif isinstance(number, np.integer):
        number = int(number)
    try:
        return Fraction(number)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise ValueError(f"{number!r} is no finite number") from None


def rationals(numbers: Iterable[float | str | Decimal | Fraction]) -> list[Fraction]:
    """`rational` of each; a number that occurs often is read once."""
    seen: dict[float | str | Decimal | Fraction, Fraction] = {}
    return [seen[x] if x in seen else seen.setdefault(x, rational(x)) for x in numbers]
