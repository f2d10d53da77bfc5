"""Exact rationals from decimal text.

A float is the binary number nearest to the text of the file, and its ``repr`` is the shortest decimal of the same
float. Up to 15 significant digits, ``repr`` gives the number of the text. So ``0.1`` is one tenth here. Common
denominators are computed in `flowlex.formulations.common_denominator`; neither package may import the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

#: Digits and exponents are bounded: the number of a short text such as "1e999999999" would exhaust the memory.
_TEXT = re.compile(r"-?\d{1,4000}(/0*[1-9]\d{0,3999}|(\.\d{1,4000})?([eE][-+]?\d{1,3})?)")


def rational(number: float | str | Decimal | Fraction) -> Fraction:
    """Return the exact value of a decimal text, a float (by its shortest text) or an integer (Python or NumPy).

    Instances, models and certificates all read exact numbers with this function.

    Examples
    --------
    >>> rational(0.1), rational("2.50"), rational("6063/5"), rational(2**53 + 1)
    (Fraction(1, 10), Fraction(5, 2), Fraction(6063, 5), Fraction(9007199254740993, 1))
    """
    if isinstance(number, float | np.floating):
        return _read(repr(float(number)))
    if isinstance(number, str):
        return _read(number)
    try:
        return Fraction(int(number) if isinstance(number, np.integer) else number)
    except (ValueError, OverflowError):
        raise ValueError(f"{number!r} is no number") from None


@lru_cache(maxsize=2**14)
def _read(text: str) -> Fraction:
    if not _TEXT.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is no number: write 12, 1.5 or 3/2")
    return Fraction(text)


def rationals(numbers: Iterable[float | str | Decimal | Fraction]) -> list[Fraction]:
    """Apply `rational` to each number; repeated numbers are read once."""
    seen: dict[float | str | Decimal | Fraction, Fraction] = {}
    return [seen[x] if x in seen else seen.setdefault(x, rational(x)) for x in numbers]
