"""CMR, an independent program, gives the same verdicts on random matrices (if passagemath-cmr is installed)."""

import pytest

from benchmarks.unimodularity import ask, cmr_python, random_matrices
from flowlex.validation.unimodularity.check import check


@pytest.mark.slow
@pytest.mark.skipif(cmr_python() is None, reason="passagemath-cmr is not installed")
def test_agreement_with_cmr_on_thousands_of_random_matrices() -> None:
    matrices = [matrix for kind in random_matrices(1000).values() for matrix in kind]
    answers = [answer["verdict"] for answer in ask(matrices)]
    assert answers.count("error") < 30  # CMR's own errors
    for matrix, theirs in zip(matrices, answers, strict=True):
        verdict = check(matrix)
        assert verdict.verify(matrix)
        assert theirs in ("error", verdict.answer.value)
