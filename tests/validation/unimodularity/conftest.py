"""A matrix that needs a 3-sum to be proven."""

from __future__ import annotations

import numpy as np
import pytest

from flowlex.validation.unimodularity import examples
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.matrix import canonical, ternary


@pytest.fixture(scope="session")
def three_sum() -> np.ndarray:
    """3-sum of a network matrix and the transpose of one, 3-connected: (32, 31)."""
    one = examples.bordered_network(9, 22, seed=0)
    net = examples.network(12, 24, seed=50).toarray().astype(int)
    fullest = int(np.argmax(np.abs(net).sum(axis=1)))
    series = np.vstack([net[fullest], net[fullest], np.delete(net, fullest, 0)])
    two = np.hstack([np.eye(len(series), 1, dtype=int), series]).T
    two[0] = [1, 0, 0, 0, 0, 1, 0, 0, -1, 0, 0, 0, 0]  # keeps the operand totally unimodular
    assert check(two).is_tu
    return examples.three_sum(one, ternary(canonical(two))).toarray().astype(int)
