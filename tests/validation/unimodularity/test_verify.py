"""Valid proofs are accepted, corrupted ones refused."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from flowlex.validation.unimodularity import examples
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.proof_types import Answer, Certificate, VerdictError
from flowlex.validation.unimodularity.verdict import Verdict, verification_error
from tests.validation.unimodularity.exhaustive import one_sum

PROVEN: dict[str, tuple[Any, str]] = {
    "incidence": (examples.incidence(12, 30), "auto"),
    "interval": (examples.interval(12, 30), "auto"),
    "network": (examples.network(12, 30), "network"),
    "transposed network": (sp.csc_array(examples.network(12, 30).T), "network"),
    "ghouila houri": (examples.r10(), "ghouila-houri"),
    "reduction": (examples.bordered_network(9, 22), "auto"),
    "blocks": (one_sum(examples.r10(), examples.r10()), "auto"),
    "two sum": (examples.two_sum(examples.r10(), examples.r10()), "sums"),
}


@pytest.mark.parametrize("name", PROVEN)
def test_certificates_verify_and_survive_a_file(name: str) -> None:
    matrix, method = PROVEN[name]
    verdict = check(matrix, method=method)
    assert verdict.answer is Answer.TU
    assert verification_error(verdict, matrix) == ""
    assert Verdict.from_json(verdict.to_json()).verify(matrix)


@pytest.mark.parametrize("name", PROVEN)
def test_a_certificate_of_another_matrix_is_refused(name: str) -> None:
    matrix, method = PROVEN[name]
    verdict = check(matrix, method=method)
    other = sp.csc_array(matrix).copy()
    other.data[0] = -other.data[0]
    assert "another matrix of the same shape" in verification_error(verdict, other)
    wider = sp.hstack([sp.csc_array(matrix), sp.csc_array(np.ones((matrix.shape[0], 1)))])
    assert "it speaks of" in verification_error(verdict, wider)


@pytest.mark.parametrize("name", PROVEN)
def test_certificates_do_not_prove_a_spoilt_matrix(name: str) -> None:
    """A proof with the fingerprint of another, not totally unimodular matrix must be refused by its content."""
    matrix, method = PROVEN[name]
    certificate = check(matrix, method=method).certificate
    generator = np.random.default_rng(1)
    spoilt_some = False
    for _ in range(80):
        dense = sp.csc_array(matrix).toarray().astype(int)
        row, column = generator.integers(dense.shape[0]), generator.integers(dense.shape[1])
        size = max(1, int(np.abs(dense).max()))
        dense[row, column] = size if dense[row, column] == 0 else generator.choice([0, -dense[row, column]])
        honest = check(dense)
        if honest.answer is Answer.NOT_TU:
            spoilt_some = True
            forged = replace(honest, answer=Answer.TU, witness=None, certificate=certificate)
            assert not forged.verify(dense)
    assert spoilt_some


def lists_in(value: Any) -> Iterator[list[Any]]:
    if isinstance(value, dict):
        for item in value.values():
            yield from lists_in(item)
    elif isinstance(value, list):
        if value and all(type(item) is int for item in value):
            yield value
        for item in value:
            yield from lists_in(item)


@pytest.mark.parametrize("name", ["network", "transposed network", "incidence", "blocks", "two sum"])
def test_an_index_out_of_place_is_noticed(name: str) -> None:
    matrix, method = PROVEN[name]
    verdict = check(matrix, method=method)
    pristine = json.dumps(verdict.to_document()["certificate"])
    for place in range(len(list(lists_in(json.loads(pristine))))):
        document = verdict.to_document()
        document["certificate"] = json.loads(pristine)
        list(lists_in(document["certificate"]))[place][0] = 10**6
        assert not Verdict.from_document(document).verify(matrix)


def test_witnesses() -> None:
    matrix = examples.jit_matrix(examples.LEMMA_3_FLOWS, 3)
    verdict = check(matrix)
    witness = verdict.witness
    assert witness is not None
    assert verdict.verify(matrix)
    for wrong, reason in (
        (replace(witness, determinant=-witness.determinant), "has determinant"),
        (replace(witness, rows=witness.rows[1:]), "not square"),
        (replace(witness, rows=(*witness.rows[1:], witness.rows[1])), "named twice"),
        (replace(witness, rows=(*witness.rows[1:], 99)), "outside the matrix"),
        (replace(witness, rows=witness.rows[:2], columns=witness.columns[:2], determinant=1), "determinant"),
        (replace(witness, kind="submatrix"), "of kind 'odd cycle'"),
        (replace(witness, row_names=("egress",) * 7), "rows of the witness are called"),
        (replace(witness, column_names=witness.column_names[1:]), "columns of the witness are called"),
    ):
        assert reason in verification_error(replace(verdict, witness=wrong), matrix)
    assert "witness and nothing else" in verification_error(replace(verdict, witness=None), matrix)


def test_made_up_arguments_are_refused() -> None:
    matrix = examples.r10()
    honest = check(matrix)
    everything = tuple(range(5))
    for forged in (
        Certificate("because", everything, everything),
        Certificate("blocks", everything, everything),
        Certificate("reduction", everything, everything, {"operations": []}),
        Certificate("cmr", everything, everything, {"tree": {}}),
        Certificate("eulerian_program", everything, everything),
        Certificate("ghouila_houri", everything[1:], everything, {"by": "rows"}),
        Certificate("reduction", everything, everything, {"operations": [["row", 0, "zero", -1]]}),
        Certificate("two_sum", everything, everything, {"rows": [1], "columns": [1], "entry": [0, 0]}),
        Certificate("network", everything, everything, {}),
    ):
        assert verification_error(replace(honest, certificate=forged), matrix)
    recursion = Certificate("reduction", everything, everything, {"operations": []})
    for _ in range(3000):
        recursion = Certificate("reduction", everything, everything, {"operations": []}, (recursion,))
    assert verification_error(replace(honest, certificate=recursion), matrix)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[1]", "no field 'verdict'"),
        ('{"verdict": "tu"}', "not a verdict"),
        ('{"verdict": "maybe", "shape": [1, 1], "nonzeros": 1, "method": ""}', "not a verdict"),
    ],
)
def test_files_that_are_no_verdict(text: str, message: str) -> None:
    with pytest.raises(VerdictError, match=message):
        Verdict.from_json(text)
