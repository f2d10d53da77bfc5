"""Fractional assignments as convex combinations of integer ones: random ones are decomposed exactly."""

import numpy as np
import pytest

from flowlex.formulations.birkhoff_decomposition import whole_assignments
from tests.seeds import seeds


@pytest.mark.parametrize("seed", seeds(25, 100))
def test_mixtures_come_apart_into_whole_assignments(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    capacity, length = rng.integers(0, 4, columns), float(rng.uniform(0.1, 1))
    amount = np.zeros((rows, columns))
    for weight in rng.dirichlet(np.ones(int(rng.integers(1, 8)))) * length:
        left = capacity.copy()
        for row in rng.permutation(rows):
            column = int(rng.integers(-1, columns))
            if column >= 0 and left[column] > 0:
                left[column] -= 1
                amount[row, column] += weight
    found = whole_assignments(amount, capacity, length)
    assert found is not None
    mixed = np.zeros((rows, columns + 1))
    for weight, at in found:
        assert weight > 0 and (np.bincount(at, minlength=columns + 1)[:columns] <= capacity).all()
        mixed[np.arange(rows), at] += weight
    assert np.abs(mixed[:, :columns] - amount).max() < 1e-12
    assert sum(weight for weight, _ in found) == pytest.approx(length)
    assert len(found) <= np.count_nonzero(amount) + columns + 1


def test_what_is_no_mixture_has_none() -> None:
    assert whole_assignments(np.array([[0.9], [0.9]]), np.array([1]), 1.0) is None
