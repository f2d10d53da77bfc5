"""Exact decimals, and integers in a common unit."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowlex.formulations.common_denominator import common_unit
from flowlex.instances.exact_rationals import rational, rationals


@pytest.mark.parametrize(
    ("number", "meant"),
    [
        (0.1, Fraction(1, 10)),
        ("0.29", Fraction(29, 100)),
        (np.float64(3.2), Fraction(16, 5)),
        (2**53 + 1, Fraction(2**53 + 1)),
        (np.int64(2**53 + 1), Fraction(2**53 + 1)),
        (1e22, Fraction(10**22)),
        ("1e-7", Fraction(1, 10**7)),
        (Decimal("2.30"), Fraction(23, 10)),
    ],
)
def test_a_number_is_what_its_text_says(number: object, meant: Fraction) -> None:
    assert rational(number) == meant  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), "x", Decimal("nan"), "1/0"])
def test_what_is_no_number_is_refused(number: object) -> None:
    with pytest.raises(ValueError, match="is no number"):
        rational(number)  # type: ignore[arg-type]


@given(st.integers(0, 10**12), st.integers(0, 6))
def test_decimals_of_a_file_come_back_to_the_digit(digits: int, places: int) -> None:
    text = f"{digits}e-{places}"
    assert rational(float(text)) == Fraction(digits, 10**places) == rational(text)


@given(st.lists(st.fractions(max_denominator=10**6, min_value=-(10**6), max_value=10**6)))
def test_whole_multiples_of_the_largest_common_unit(numbers: list[Fraction]) -> None:
    found = common_unit(numbers, limit=2**62)
    restored = [n * found.unit for n in found.whole.tolist()]
    if found.exact:
        assert restored == numbers
        assert not any(numbers) or np.gcd.reduce(found.whole) == 1
    else:
        assert max(abs(a - b) for a, b in zip(restored, numbers, strict=True)) == found.error
        assert max(map(abs, found.whole.tolist())) == 2**62


def test_what_does_not_fit_is_rounded_and_says_by_how_much() -> None:
    found = common_unit([Fraction(10**9), Fraction(1, 7)], limit=1000)
    assert (found.whole.tolist(), found.unit, found.error) == ([1000, 0], 10**6, Fraction(1, 7))
    assert not found.exact
    assert common_unit([]).whole.tolist() == []
    assert common_unit(rationals([0.0, 2.5, 2.5])).whole.tolist() == [0, 1, 1]
