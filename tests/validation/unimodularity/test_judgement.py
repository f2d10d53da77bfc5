"""`judge`: every statement of a stored verdict is proven, quoted, reported or refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowlex.formulations.linear_program import LinearProgram
from flowlex.validation.unimodularity import examples
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.implied_integers.integrality_proof import ImpliedIntegers
from flowlex.validation.unimodularity.implied_integers.search import implied_integers
from flowlex.validation.unimodularity.matrix_adapters import matrix_of, read_matrix
from flowlex.validation.unimodularity.named_matrix import canonical, ternary
from flowlex.validation.unimodularity.network.largest_network_part import Extent, NetworkPart
from flowlex.validation.unimodularity.network.network_matrix import network_matrix
from flowlex.validation.unimodularity.proof_checks import Standing
from flowlex.validation.unimodularity.proof_types import Answer, Certificate, VerdictError
from flowlex.validation.unimodularity.verdict import Verdict, judge
from tests.validation.unimodularity.small_programs import QUADRATIC


def standings(verdict: Verdict, source: Any) -> dict[str, Standing]:
    return {one.statement: one.standing for one in judge(verdict, source)}


def side_constraints() -> LinearProgram:
    """Return a matrix with two network rows and two rows of which only one can be added."""
    lp = LinearProgram("side")
    x = lp.variables("x", 3, upper=2, integer=True)
    lp.constrain("network", x[:2].sum(), "<=", 1)
    lp.constrain("second", x[1:].sum(), "<=", 1)
    lp.constrain("third", x[0:1].sum() + x[2:].sum(), "<=", 1)
    lp.constrain("twice", x[0:1].sum() * 2 + x[1:2].sum(), "<=", 1)
    return lp


def test_every_statement_of_an_honest_verdict_is_proven() -> None:
    found = standings(check(side_constraints()), side_constraints())
    assert found.pop("seconds and steps") is Standing.REPORTED
    assert set(found.values()) == {Standing.PROVEN}
    assert {"matrix", "answer", "network part", "extent of the network part", "conclusion"} <= set(found)


def test_an_undecided_verdict_is_quoted_and_its_conclusion_drawn_again() -> None:
    matrix = examples.network(60, 150)
    undecided = check(matrix, time_limit=1e-9)
    assert undecided.answer is Answer.UNDECIDED
    found = standings(undecided, matrix)
    assert found["answer"] is Standing.QUOTED
    assert found["conclusion"] is Standing.PROVEN
    forged = replace(undecided, conclusion="Every vertex is integral: declarations are not needed.")
    assert standings(forged, matrix)["conclusion"] is Standing.REFUSED


def test_the_extent_of_a_network_part_is_searched_again() -> None:
    lp = side_constraints()
    honest = check(lp)
    part = honest.network
    assert part is not None
    assert part.extent is Extent.LARGEST
    assert len(part.rest) == 2
    only = one_row_of(lp, part.certificate.rows[0])
    for extent in (Extent.LARGEST, Extent.MAXIMAL):
        forged = replace(honest, network=replace(only, extent=extent))
        assert standings(forged, lp)["network part"] is Standing.PROVEN
        assert standings(forged, lp)["extent of the network part"] is Standing.REFUSED
    open_ = replace(honest, network=replace(only, extent=Extent.FOUND))
    assert "extent of the network part" not in standings(open_, lp)


def one_row_of(lp: LinearProgram, row: int) -> NetworkPart:
    """Return the network part of a single row, in indices of the complete program."""
    named = matrix_of(lp)
    tree = network_matrix(ternary(canonical(named.matrix.tocsr()[[row]])))
    data: dict[str, Any] = {"transposed": False}
    data |= {key: getattr(tree, key).tolist() for key in ("tree_tail", "tree_head", "arc_tail", "arc_head")}
    rest = tuple(other for other in range(named.shape[0]) if other != row)
    proof = Certificate("network", (row,), tuple(range(named.shape[1])), data)
    return NetworkPart(rest, named.names_of_rows(rest), Extent.LARGEST, proof)


@pytest.mark.parametrize("seconds", [float("nan"), -5, "soon", True, float("inf"), None])
def test_durations_that_are_none_are_refused(seconds: Any) -> None:
    document = check(examples.r10()).to_document()
    with pytest.raises(VerdictError, match="seconds"):
        Verdict.from_document(document | {"seconds": seconds})
    with pytest.raises(VerdictError, match="seconds"):
        Verdict.from_document(document | {"steps": [document["steps"][0] | {"seconds": seconds}]})
    proof = implied_integers(side_constraints()).to_document()
    with pytest.raises(VerdictError, match="seconds"):
        ImpliedIntegers.from_json(json.dumps(proof | {"seconds": seconds}))


def test_unknown_and_missing_fields_are_refused() -> None:
    document = check(examples.r10()).to_document()
    with pytest.raises(VerdictError, match="unknown field 'proof'"):
        Verdict.from_document(document | {"proof": "trust me"})
    del document["line"]
    with pytest.raises(VerdictError, match="field 'line' is missing"):
        Verdict.from_document(document)


def test_a_false_note_is_refused(tmp_path: Path) -> None:
    lp = side_constraints()
    found = implied_integers(lp)
    assert "the note should read ''" in replace(found, note="nothing else follows").error(lp)
    (tmp_path / "q.mps").write_text(QUADRATIC)
    quadratic = read_matrix(tmp_path / "q.mps")
    assert "the note should read" in replace(implied_integers(quadratic), note="").error(quadratic)
