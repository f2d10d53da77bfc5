"""Integer max-min shares compared with brute force over all feasible allocations."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations.fair_shares import Shares, shares_of_claims, whole_shares


def max_min_shares(demand: object, supply: object, floor: object = 0) -> Shares:
    """Return shares of jobs (rows) with demands by class (columns)."""
    claims = np.asarray(demand, np.int64)
    claims = claims[:, None] if claims.ndim == 1 else claims
    job, of = np.nonzero(claims)
    held = np.broadcast_to(np.asarray(floor, np.int64), (len(claims),))
    return shares_of_claims(job, of, claims[job, of], np.atleast_1d(np.asarray(supply, np.int64)), held)


def test_nothing_to_share() -> None:
    assert max_min_shares([3, 4], 0).total == 0
    assert max_min_shares(np.zeros((0, 1)), 5).total == 0


def _brute_force(claims: np.ndarray, units: np.ndarray, held: np.ndarray) -> tuple[list[int], list[tuple[int, ...]]]:
    """Return the lexicographically largest sorted allocation, and all feasible allocations."""
    easy = np.cumsum(claims, axis=1) - claims
    available = np.cumsum(units[::-1])[::-1]
    served = [
        tuple((np.array(x) + held).tolist())
        for x in itertools.product(*(range(int(total) + 1) for total in claims.sum(axis=1)))
        if (np.maximum(np.array(x)[:, None] - easy, 0).sum(axis=0) <= available).all()
    ]
    return max(sorted(x) for x in served), served


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_allocations_left_open_are_all_lexicographically_max_min_ones(seed: int) -> None:
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
    assert allowed == [x for x in served if sorted(x) == best]


@pytest.mark.parametrize(
    ("least", "most", "weight", "units", "shares"),
    [
        ([0, 0], [10, 10], [1, 3], 8, [2, 6]),
        ([0, 0, 0], [1, 9, 9], [1, 1, 1], 8, [1, 4, 3]),
        ([5, 0], [9, 9], [1, 1], 6, [5, 1]),
        ([3, 3], [9, 9], [1, 1], 2, [3, 3]),
        ([0, 2], [3, 4], [1, 1], 99, [3, 4]),
        ([], [], [], 3, []),
        ([0, 2], [0, 7], [49525, 50663], 6, [0, 6]),  # a level in floating point gave seven
        ([1, 1], [20, 16], [544105, 285279], 35, [20, 15]),
    ],
)
def test_whole_shares_by_hand(
    least: list[int], most: list[int], weight: list[int], units: int, shares: list[int]
) -> None:
    assert whole_shares(least, most, weight, units).tolist() == shares


def _filled(claims: np.ndarray, units: np.ndarray, held: np.ndarray) -> list[Fraction]:
    """Return levels by water filling from one event to the next, in fractions."""
    jobs, classes = claims.shape
    ramps = []  # (job, class, from level, to level)
    for j in range(jobs):
        at = int(held[j])
        for c in range(classes):
            if claims[j, c]:
                ramps.append((j, c, at, at + int(claims[j, c])))
                at += int(claims[j, c])
    level = [Fraction(int(h)) for h in held]
    spare = [Fraction(sum(units[c:].tolist())) for c in range(classes)]
    water, open_classes = Fraction(0), classes
    events = sorted({edge for _, _, a, b in ramps for edge in (a, b)})
    while True:
        rising = [(j, c) for j, c, a, b in ramps if a <= water < b and c < open_classes]
        rate = [sum(1 for _, of in rising if of >= c) for c in range(open_classes)]
        tight = [c for c in range(open_classes) if rate[c] and spare[c] == 0]
        if tight:
            open_classes = tight[0]
            continue
        ahead = [Fraction(e) for e in events if e > water]
        if not ahead:
            return level
        step = min([ahead[0] - water, *(spare[c] / rate[c] for c in range(open_classes) if rate[c])])
        water += step
        for j, _ in rising:
            level[j] = water
        spare = [s - (rate[c] * step if c < open_classes else 0) for c, s in enumerate(spare)]


def _check_levels(seed: int, largest: int) -> None:
    rng = np.random.default_rng(seed)
    jobs, classes = (int(n) for n in rng.integers(1, 6, 2))
    claims = rng.integers(0, largest, (jobs, classes)) * (rng.random((jobs, classes)) < 0.7)
    units = rng.integers(0, 2 * largest, classes)
    held = rng.integers(0, largest, jobs)
    shares = max_min_shares(claims, units, held)
    assert list(shares.level) == _filled(claims, units, held)
    assert shares.least.tolist() == [x.numerator // x.denominator for x in shares.level]
    assert shares.most.tolist() == [-(-x.numerator // x.denominator) for x in shares.level]
    for number, total in enumerate(shares.group_total.tolist()):
        assert sum((x for x, g in zip(shares.level, shares.group.tolist(), strict=True) if g == number), 0) == total


def _check_whole(seed: int, largest: int, heaviest: int) -> None:
    """All units are given out, and in the right order: compared by products of integers."""
    rng = np.random.default_rng(seed)
    jobs = int(rng.integers(1, 12))
    least = rng.integers(0, largest, jobs)
    most = least + rng.integers(0, largest, jobs)
    weight = rng.integers(1, heaviest, jobs)
    units = int(rng.integers(0, 2 * largest)) * jobs
    share = whole_shares(least, most, weight, units)
    assert sum(share.tolist()) == max(min(units, sum(most.tolist())), sum(least.tolist()))
    s, w, low, high = share.tolist(), weight.tolist(), least.tolist(), most.tolist()
    assert all(a <= x <= b for a, x, b in zip(low, s, high, strict=True))
    for i, j in itertools.permutations(range(jobs), 2):
        if s[i] > low[i] and s[j] < high[j]:
            mine, theirs = s[i] * w[j], (s[j] + 1) * w[i]
            assert mine < theirs or (mine == theirs and i < j)


SIZES = (3, 40, 10**6, 2**53, 2**56)
WEIGHTS = (2, 50, 10**6, 10**12)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(SIZES), st.sampled_from(WEIGHTS))
def test_shares_of_any_size_are_exact(seed: int, largest: int, heaviest: int) -> None:
    _check_levels(seed, largest)
    _check_whole(seed, largest, heaviest)


def test_a_job_that_asks_for_more_than_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a job's demand and floor sum to more than 2\*\*62; use a coarser unit"):
        max_min_shares([[2**61, 2**61], [1, 1]], [5, 5], [2**62, 0])
    with pytest.raises(ValueError, match="job 1 has weight 0, least 0 and most 3; weights start at 1"):
        whole_shares([0, 0], [3, 3], [1, 0], 3)
