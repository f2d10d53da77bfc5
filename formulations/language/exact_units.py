"""Numbers as integers times a unit, so that decimals and fractions are added and multiplied without rounding.

A vector is held as floats that are integers below 2**53, and a unit (a fraction). Numbers that have no such unit are
plain floats; their unit is None.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from flowlex.formulations.program_arrays import Floats

Unit: TypeAlias = Fraction | None
#: Larger integers are not exact in double precision.
EXACT = 2.0**53
#: Most digits after the point that a decimal unit is looked for.
_DIGITS = 12
_ONE = Fraction(1)
#: Units of larger numbers are not divided as floats: these have at most 308 digits.
_LARGEST = 10**250


def exact_numbers(values: Any) -> tuple[Floats, Unit]:
    """Numbers of any kind as floats and a unit.

    Raises `TypeError` for values that are no numbers, with the first of them. NaN and infinity pass, without a unit.
    """
    array = np.asarray(values)
    if array.dtype.kind in "iu":
        floats = array.astype(np.float64)
        large = bool(len(array.reshape(-1))) and max(abs(int(array.max())), abs(int(array.min()))) > EXACT
        return floats, None if large else _ONE
    if array.dtype.kind == "b":
        raise TypeError(f"expected numbers, got {array.reshape(-1)[0]!r}")
    if array.dtype.kind == "f":
        return _of_floats(array.astype(np.float64))
    return _of_objects(array)


def _of_floats(array: Floats) -> tuple[Floats, Unit]:
    """Integers and the largest decimal unit; a few of the numbers already rule out most units."""
    sample = array.reshape(-1)[:64]
    for digits in range(_DIGITS + 1):
        power = 10.0**digits
        if _has_digits(sample, power) and _has_digits(array, power):
            return (array, _ONE) if not digits else (np.rint(array * power), Fraction(1, 10**digits))
    return array, None


def _has_digits(array: Floats, power: float) -> bool:
    """Whether the numbers are those of decimals that are multiples of 1 / ``power``."""
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.rint(array * power)
        return bool(((scaled / power == array) & (np.abs(scaled) <= EXACT)).all())


def _of_objects(array: Any) -> tuple[Floats, Unit]:
    fractions: list[Fraction] = []
    for each in array.reshape(-1).tolist():
        each = each.item() if isinstance(each, (np.integer, np.floating)) else each
        if isinstance(each, bool) or not isinstance(each, (int, float, Fraction, Decimal)):
            raise TypeError(f"expected numbers, got {each!r}")
        if isinstance(each, float) and not math.isfinite(each):
            return array.astype(np.float64), None
        fractions.append(Fraction(repr(each)) if isinstance(each, float) else Fraction(each))
    unit = Fraction(1, math.lcm(*(f.denominator for f in fractions)))
    whole = [int(f / unit) for f in fractions]
    if any(abs(w) > EXACT for w in whole):  # as multiples of a large number they may be exact
        plain = np.array([float(f) for f in fractions]).reshape(array.shape)
        unit *= math.gcd(*whole)
        whole = [int(f / unit) for f in fractions]
        if any(abs(w) > EXACT for w in whole):
            return plain, None
    return np.array(whole, np.float64).reshape(array.shape), unit


def to_floats(values: Floats, unit: Unit) -> Floats:
    """The numbers themselves."""
    if unit is None or unit == 1:
        return values
    if max(unit.numerator, unit.denominator) <= _LARGEST:
        return values * float(unit.numerator) / float(unit.denominator)
    each = [Fraction(value) * unit for value in values.reshape(-1).tolist()]
    return np.array([float(value) for value in each]).reshape(values.shape)


def common_unit(
    first: tuple[list[Floats], Unit], second: tuple[list[Floats], Unit]
) -> tuple[list[Floats], list[Floats], Unit]:
    """Two groups of vectors in one unit; as plain floats if there is none that is exact."""
    (a, one), (b, two) = first, second
    if one == two:
        return a, b, one
    if one is not None and two is not None:
        unit = Fraction(
            math.gcd(one.numerator * two.denominator, two.numerator * one.denominator),
            one.denominator * two.denominator,
        )
        scaled_a, scaled_b = _scaled(a, one / unit), _scaled(b, two / unit)
        if scaled_a is not None and scaled_b is not None:
            return scaled_a, scaled_b, unit
    return [to_floats(v, one) for v in a], [to_floats(v, two) for v in b], None


def _scaled(vectors: list[Floats], factor: Fraction) -> list[Floats] | None:
    if factor == 1:
        return vectors
    largest = max((float(np.abs(v).max(initial=0.0)) for v in vectors), default=0.0)
    return None if Fraction(largest) * factor > EXACT else [v * float(min(factor, Fraction(EXACT))) for v in vectors]


def product(a: Floats, one: Unit, b: Floats, two: Unit) -> tuple[Floats, Unit]:
    """Entry by entry, of vectors of one length."""
    if one is not None and two is not None:
        found = a * b
        if float(np.abs(found).max(initial=0.0)) <= EXACT:
            return found, one * two
    return to_floats(a, one) * to_floats(b, two), None
