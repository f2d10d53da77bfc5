"""Numbers as they are written: exact rationals from decimal text.

A float read from a file is the binary number next to what was written; the shortest decimal that names it is the text
itself (up to 15 digits, and the text again to 17). So ``0.1`` is one tenth here. Reading belongs to the instances;
bringing several rationals to a common unit is arithmetic and lives in `flowlex.formulations.common_denominator`.
Neither package may import the other; both use `fractions.Fraction`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

#: Digits and exponents are bounded: "1e999999999" is a short text and a number that fills the memory.
_TEXT = re.compile(r"-?\d{1,4000}(/0*[1-9]\d{0,3999}|(\.\d{1,4000})?([eE][-+]?\d{1,3})?)")


def rational(number: float | str | Decimal | Fraction) -> Fraction:
    """The number that the decimal text says; integers, of Python or NumPy, are kept.

    The one reader of exact numbers: instances, models and certificates all read by it.

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
    """`rational` of each; a number that occurs often is read once."""
    seen: dict[float | str | Decimal | Fraction, Fraction] = {}
    return [seen[x] if x in seen else seen.setdefault(x, rational(x)) for x in numbers]
