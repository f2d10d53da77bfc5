"""Integer max-min shares against brute force over all allocations that can be served."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations.shares import max_min_shares, whole_shares


def test_equal_jobs_share_equally() -> None:
    shares = max_min_shares([4, 3, 2], 6)
    assert shares.least.tolist() == shares.most.tolist() == [2, 2, 2]


def test_a_small_demand_leaves_the_rest_to_the_others_and_odd_units_stay_open() -> None:
    shares = max_min_shares([5, 1, 9], 8)
    assert shares.level == (Fraction(7, 2), Fraction(1), Fraction(7, 2))
    assert shares.least.tolist() == [3, 1, 3]
    assert shares.most.tolist() == [4, 1, 4]
    assert shares.total == 8


def test_what_a_job_holds_already_counts() -> None:
    assert max_min_shares([2, 2, 2], 4, floor=[3, 0, 0]).least.tolist() == [3, 2, 2]


def test_a_scarce_upper_class_freezes_only_those_who_need_it() -> None:
    shares = max_min_shares([[0, 3], [4, 0], [4, 0]], [4, 1])
    assert shares.least.tolist() == [1, 2, 2]
    assert shares.group_total.tolist() == [1, 4]


def test_nothing_to_share() -> None:
    assert max_min_shares([3, 4], 0).total == 0
    assert max_min_shares(np.zeros((0, 1)), 5).total == 0


@pytest.mark.parametrize(
    ("demand", "supply", "message"),
    [([-1], 3, "must not be negative"), ([1], -3, "must not be negative"), ([[1, 2]], [3], "does not match")],
)
def test_bad_shapes_and_signs(demand: list[int], supply: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        max_min_shares(demand, supply)  # type: ignore[arg-type]


def _brute_force(claims: np.ndarray, units: np.ndarray, held: np.ndarray) -> tuple[list[int], list[tuple[int, ...]]]:
    """The lexicographically largest sorted allocation, and all allocations that can be served."""
    easy = np.cumsum(claims, axis=1) - claims
    available = np.cumsum(units[::-1])[::-1]
    served = [
        tuple((np.array(x) + held).tolist())
        for x in itertools.product(*(range(int(total) + 1) for total in claims.sum(axis=1)))
        if (np.maximum(np.array(x)[:, None] - easy, 0).sum(axis=0) <= available).all()
    ]
    return max(sorted(x) for x in served), served


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_allocation_left_open_is_lexicographically_max_min(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs, classes = rng.integers(1, 4, 2)
    claims, units, held = rng.integers(0, 4, (jobs, classes)), rng.integers(0, 4, classes), rng.integers(0, 3, jobs)
    shares = max_min_shares(claims, units, held)
    best, served = _brute_force(claims, units, held)
    allowed = [
        x
        for x in served
        if all(shares.least <= x)
        and all(x <= shares.most)
        and (np.bincount(shares.group, weights=x, minlength=len(shares.group_total)) == shares.group_total).all()
    ]
    assert allowed
    assert all(sorted(x) == best for x in allowed)


@pytest.mark.parametrize(
    ("least", "most", "weight", "units", "shares"),
    [
        ([0, 0], [10, 10], [1, 3], 8, [2, 6]),
        ([0, 0, 0], [1, 9, 9], [1, 1, 1], 8, [1, 4, 3]),
        ([5, 0], [9, 9], [1, 1], 6, [5, 1]),
        ([3, 3], [9, 9], [1, 1], 2, [3, 3]),
        ([0, 2], [3, 4], [1, 1], 99, [3, 4]),
        ([], [], [], 3, []),
    ],
)
def test_whole_shares_by_hand(
    least: list[int], most: list[int], weight: list[int], units: int, shares: list[int]
) -> None:
    assert whole_shares(least, most, weight, units).tolist() == shares


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whole_shares_go_unit_by_unit_to_the_least_served(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = int(rng.integers(1, 90))
    least, weight = rng.integers(0, 4, jobs), rng.integers(1, 1 + 10 ** int(rng.integers(1, 7)), jobs)
    most, units = least + rng.integers(0, 9, jobs), int(rng.integers(0, 9 * jobs))
    share = least.copy()
    for _ in range(units - int(least.sum())):
        level = [Fraction(int(s) + 1, int(w)) if s < m else None for s, m, w in zip(share, most, weight, strict=True)]
        if all(x is None for x in level):
            break
        share[min((x, j) for j, x in enumerate(level) if x is not None)[1]] += 1
    assert whole_shares(least, most, weight, units).tolist() == share.tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whole_shares_of_equal_jobs_are_max_min_shares_with_the_odd_units_given_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    least, more = rng.integers(0, 5, 6), rng.integers(0, 9, 6)
    units = int(rng.integers(0, 30))
    whole = whole_shares(least, least + more, np.ones(6, int), int(least.sum()) + units)
    fractional = max_min_shares(more, units, least)
    assert (fractional.least <= whole).all()
    assert (whole <= fractional.most).all()
    assert np.bincount(fractional.group, weights=whole).tolist() == fractional.group_total.tolist()
