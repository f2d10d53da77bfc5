"""Every method compared with the definition; operations that preserve total unimodularity keep the answer."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flowlex.validation.unimodularity import examples
from flowlex.validation.unimodularity.check import METHODS, check
from flowlex.validation.unimodularity.proof_types import Answer
from flowlex.validation.unimodularity.two_and_three_sums import pivot
from flowlex.validation.unimodularity.verdict import Verdict
from tests.validation.unimodularity.exhaustive import bordered_second, brute_force, one_sum

EXACT = ("auto", "ghouila-houri")
SMALL = st.tuples(st.integers(1, 5), st.integers(1, 6))
SIGNS = st.sampled_from([0, 0, 1, 1, -1])
MATRICES = SMALL.flatmap(lambda shape: arrays(np.int64, shape, elements=SIGNS))


@pytest.mark.parametrize("method", METHODS)
@given(matrix=MATRICES)
@settings(max_examples=15, deadline=None)
def test_method_agrees_with_all_determinants(method: str, matrix: np.ndarray) -> None:
    verdict = check(matrix, method=method)
    if verdict.answer is Answer.UNDECIDED:
        assert method not in EXACT
        return
    assert verdict.is_tu == (brute_force(matrix) is None)
    assert verdict.verify(matrix)
    assert Verdict.from_json(verdict.to_json()) == verdict


def mixed_up(matrix: sp.csc_array, generator: np.random.Generator, pivots: int = 0) -> np.ndarray:
    """Rows and columns permuted, after some random pivots."""
    dense = matrix.toarray().astype(np.int64)
    for _ in range(pivots):
        places = np.argwhere(dense)
        dense = pivot(dense, *places[generator.integers(len(places))])
    return dense[generator.permutation(len(dense))][:, generator.permutation(dense.shape[1])]


@pytest.mark.parametrize("seed", range(6))
def test_sums_of_what_is_decidable_are_decided(seed: int) -> None:
    generator = np.random.default_rng(seed)
    net = examples.network(9, 16, seed=seed)
    turned = sp.csc_array(examples.network(9, 16, seed=seed + 50).T)
    for built in (
        one_sum(examples.r10(), net),
        examples.two_sum(examples.r10(), examples.r10()),
        examples.two_sum(examples.two_sum(examples.r10(), net), turned),
        examples.three_sum(
            examples.bordered_network(7, 12, seed=seed),
            bordered_second(examples.bordered_network(7, 12, seed=seed + 9)),
        ),
    ):
        matrix = mixed_up(built, generator, pivots=10)
        verdict = check(matrix)
        assert verdict.is_tu, str(verdict)
        assert verdict.verify(matrix)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", ["random", "path", "deep"])
def test_a_planted_violation_in_a_large_tu_matrix_is_found(seed: int, shape: str) -> None:
    matrix = examples.network(120, 300, shape=shape, seed=seed)
    generator = np.random.default_rng(seed)
    for _ in range(200):  # some sign flips are harmless: they leave a totally unimodular matrix
        spoilt = matrix.copy()
        place = int(generator.integers(spoilt.nnz))
        spoilt.data[place] = -spoilt.data[place]
        column = int(np.searchsorted(spoilt.indptr, place, side="right")) - 1
        if spoilt.indptr[column + 1] - spoilt.indptr[column] >= 4:
            break
    verdict = check(spoilt)
    assert verdict.answer is not Answer.UNDECIDED
    assert verdict.verify(spoilt)
    assert check(examples.with_gap(matrix, seed=seed)).answer is Answer.NOT_TU


@pytest.mark.loops
def test_classics() -> None:
    assert check(examples.r10()).is_tu
    assert not check(examples.fano()).is_tu
    assert check(examples.incidence(20, 60)).method == "network"
    assert check(examples.interval(30, 60)).method == "network"
    assert check(examples.network(30, 60)).method == "network"
    assert check(sp.csc_array(examples.network(30, 60).T)).method == "network"
    assert not check(examples.with_gap(examples.interval(30, 60))).is_tu


def test_undecided_says_what_was_tried_and_what_would_help() -> None:
    verdict = check(examples.r10(), method="network")
    assert verdict.answer is Answer.UNDECIDED
    assert "network" in verdict.conclusion
    assert "Try a longer time limit" in verdict.conclusion
    assert not verdict.verify(examples.r10())
