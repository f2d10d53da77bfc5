"""CMR, a peer that shares no code: the same verdicts on random matrices, where passagemath-cmr is installed."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.unimodularity import cmr_many, cmr_python
from flowlex.validation.unimodularity import examples
from flowlex.validation.unimodularity.check import check


@pytest.mark.slow
@pytest.mark.skipif(cmr_python() is None, reason="passagemath-cmr is not installed")
def test_agreement_with_cmr_on_thousands_of_random_matrices() -> None:
    generator = np.random.default_rng(0)
    matrices = [
        generator.choice([-1, 0, 1], size=generator.integers(3, 13, 2), p=[0.15, 0.7, 0.15]) for _ in range(1000)
    ]
    matrices += [
        examples.jit_matrix(examples.random_flows(int(k), 4, seed=s), 3).toarray() for s, k in enumerate([4] * 1000)
    ]
    for seed in range(1000):
        dense = examples.network(8, 14, seed=seed).toarray()
        if seed % 2:
            row, column = generator.integers(8), generator.integers(14)
            dense[row, column] = (dense[row, column] + 2) % 3 - 1
        matrices.append(dense)
    answers = cmr_many(matrices)
    assert sum(theirs is None for theirs in answers) < 30  # CMR's own errors
    for matrix, theirs in zip(matrices, answers, strict=True):
        verdict = check(matrix)
        assert verdict.verify(matrix)
        assert theirs is None or verdict.is_tu == theirs
