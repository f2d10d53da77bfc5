"""Conclusions of verdicts about programs: quadratic objectives, equations, scaled rows, decimals."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations.linear_program import LinearProgram
from flowlex.validation.unimodularity import examples
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.determinant import determinant
from flowlex.validation.unimodularity.matrix_adapters import read_matrix
from flowlex.validation.unimodularity.named_matrix import NamedMatrix
from flowlex.validation.unimodularity.proof_types import Answer, VerdictError
from flowlex.validation.unimodularity.verdict import Verdict, verification_error
from tests.validation.unimodularity.small_programs import QUADRATIC, program


def test_a_quadratic_objective_needs_its_integers(tmp_path: Path) -> None:
    path = tmp_path / "q.mps"
    path.write_text(QUADRATIC)
    named = read_matrix(path)
    verdict = check(named)
    assert verdict.is_tu
    assert "the objective is quadratic" in verdict.conclusion
    assert "2 integer declaration(s) may be needed" in verdict.conclusion
    assert verdict.verify(named)
    path.write_text("Minimize\n obj: x + y\nSubject To\n c1: x + y <= 4\nSemi-Continuous\n x\nEnd\n")
    path.rename(path.with_suffix(".lp"))
    # HiGHS requires a bound of semi-continuous variables, which is missing here: no claim is made in either case.
    assert "are not needed" not in check(read_matrix(path.with_suffix(".lp"))).conclusion


def test_equations_can_make_up_for_a_two() -> None:
    named = program([[1, 2], [0, 1]], [(7, 7), (3, 3)])
    verdict = check(named)
    assert verdict.answer is Answer.NOT_TU
    assert verdict.senses is not None
    assert verdict.senses.answer is Answer.TU
    assert "its 2 integer declaration(s) are not needed" in verdict.conclusion
    assert verdict.verify(named)
    assert Verdict.from_json(verdict.to_json()).verify(named)
    wide = program([[1, 2, 0], [0, 1, 3]], [(7, 7), (3, 3)])
    verdict = check(wide)
    assert verdict.senses is not None
    assert verdict.senses.answer is Answer.NOT_TU
    assert "give fractional vertices" in verdict.conclusion
    assert verdict.verify(wide)
    assert "With equations (Ax = b) or free variables that need not be so" in check([[1, 2], [0, 1]]).conclusion


def test_equations_that_follow_from_others_are_left_out() -> None:
    """The third equation is the first plus twice the second; the first two are unimodular in spite of the 2."""
    dense, sides = [[1, 2], [0, 1], [1, 4]], [(7, 7), (3, 3), (13, 13)]
    named = program(dense, sides)
    verdict = check(named)
    assert verdict.senses is not None
    assert len(verdict.senses.redundant) == 1
    assert verdict.senses.answer is Answer.TU
    assert "its 2 integer declaration(s) are not needed" in verdict.conclusion
    assert verdict.verify(named)
    assert Verdict.from_json(verdict.to_json()) == verdict
    ((row, terms),) = verdict.senses.redundant
    (other, factor), *rest = terms
    for forged in (
        ((row, ((other, factor + 1), *rest)),),
        ((row, terms), (row, terms)),
        ((7, terms),),
        (),
    ):
        assert not replace(verdict, senses=replace(verdict.senses, redundant=forged)).verify(named)
    loose = program(dense, [(7, 7), (3, 3), (-np.inf, 13)])
    other_senses = check(loose).senses
    assert other_senses is not None
    assert other_senses.redundant == ()
    # Half of an equation is no integral combination, so the conclusion is left open.
    open_ = check(program([[2, 2, 1], [2, 2, 1], [0, 0, 3]], [(2, 2), (2, 2), (3, 3)]))
    assert open_.senses is None or open_.verify(program([[2, 2, 1], [2, 2, 1], [0, 0, 3]], [(2, 2), (2, 2), (3, 3)]))


def bases(named: NamedMatrix) -> list[int]:
    """Determinants of all bases that hold every free variable, rows as equations with slacks for the others."""
    assert named.program is not None
    dense = named.matrix.toarray()
    slacks = np.eye(len(dense), dtype=int)[:, ~named.program.equations]
    whole = np.hstack([dense, slacks])
    for row in reversed(range(len(whole))):  # rows that follow from others go
        rest = np.delete(whole, row, axis=0)
        if len(rest) and np.linalg.matrix_rank(rest) == np.linalg.matrix_rank(whole):
            whole = rest
    free = set(np.flatnonzero(named.program.free).tolist())
    chosen = (set(c) for c in combinations(range(whole.shape[1]), len(whole)))
    return [int(determinant(whole[:, sorted(columns)])) for columns in chosen if free <= columns]


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_row_senses_agree_with_all_bases(seed: int) -> None:
    generator = np.random.default_rng(seed)
    shape = generator.integers(1, 4, 2)
    dense = generator.integers(-1, 3, shape)
    if not dense.any():
        return
    sides = [(1, 1) if generator.random() < 0.5 else (-np.inf, 1) for _ in range(shape[0])]
    named = program(dense, sides, (0, np.inf) if generator.random() < 0.6 else (-np.inf, np.inf))
    verdict = check(named)
    if verdict.senses is None or verdict.scaled is not None:
        return
    dets = bases(named) or [0]  # no basis, no vertex
    assert (verdict.senses.answer is Answer.TU) == (max(map(abs, dets)) <= 1)
    assert verdict.verify(named)


def test_a_verdict_is_about_the_matrix_as_given() -> None:
    verdict = check([[2]])
    assert verdict.answer is Answer.NOT_TU
    assert verdict.scaled is not None
    assert dict(verdict.scaled.divisors) == {0: 2}
    assert verdict.scaled.answer is Answer.TU
    assert "after dividing a row by a constant" in verdict.conclusion
    assert verdict.verify([[2]])
    assert Verdict.from_json(verdict.to_json()) == verdict
    not_tu = check([[2, 2], [3, -3]])
    assert not_tu.scaled is not None
    assert not_tu.scaled.witness is not None
    assert abs(not_tu.scaled.witness.determinant) == 2
    assert not_tu.verify([[2, 2], [3, -3]])


@pytest.mark.parametrize(("side", "needed"), [(0.3, False), (0.35, True), (3, False)])
def test_decimals_are_read_as_the_rationals_they_stand_for(side: float, needed: bool) -> None:
    lp = LinearProgram("decimals")
    x = lp.variables("x", 2, upper=5, integer=True)
    lp.constrain("share", (x * 0.1).sum(), "<=", side)
    verdict = check(lp)
    assert ("are not needed" in verdict.conclusion) != needed
    assert ("not integral when divided by 1/10" in verdict.conclusion) == needed
    assert verdict.verify(lp)


def test_forged_documents_are_refused() -> None:
    named = program([[2, 2], [0, 1]], [(-np.inf, 4), (-np.inf, 3)])
    verdict = check(named)
    pristine = json.dumps(verdict.to_document())
    for path, value in (
        (("method",), "network"),
        (("shape",), [2.9, 2]),
        (("nonzeros",), 3.0),
        (("witness", "rows"), [0.9]),
        (("witness", "columns"), [True]),
        (("witness", "row_names"), [3]),
        (("witness", "determinant"), 2.0),
        (("scaled", "divisors"), {"0": 2.0}),
        (("scaled", "certificate", "rows"), [0.5, 1]),
    ):
        document = json.loads(pristine)
        place = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        with pytest.raises(VerdictError):
            Verdict.from_document(document)


def test_forged_verdicts_do_not_verify() -> None:
    named = program([[2, 2], [0, 1]], [(-np.inf, 5), (-np.inf, 3)])
    verdict = check(named)
    assert verdict.verify(named)
    assert verdict.scaled is not None
    assert "side 5" in verdict.conclusion
    assert verdict.witness is not None
    for forged, reason in (
        (replace(verdict, conclusion="Nothing is needed."), "what follows is"),
        (replace(verdict, witness=replace(verdict.witness, row_names=("x",))), "rows of the witness are called"),
        (replace(verdict, scaled=None), "what follows is"),
        (replace(verdict, scaled=replace(verdict.scaled, divisors={0: 4})), "no multiple of 4"),
        (replace(verdict, scaled=replace(verdict.scaled, divisors={0: -2})), "divided by -2"),
        (replace(verdict, scaled=replace(verdict.scaled, divisors={7: 2})), "outside the matrix"),
        (replace(verdict, answer=Answer.TU, witness=None, certificate=verdict.scaled.certificate), "outside"),
    ):
        assert reason in verification_error(forged, named)
    equal = program([[1, 2], [0, 1]], [(7, 7), (3, 3)])
    honest = check(equal)
    assert honest.senses is not None
    for senses in (
        replace(honest.senses, determinant=-honest.senses.determinant),
        replace(honest.senses, basis=(0, 2)),
        replace(honest.senses, basis=(0,)),
        replace(honest.senses, entries=((0, 0, 1),)),
        replace(honest.senses, answer=Answer.NOT_TU),
    ):
        assert not replace(honest, senses=senses).verify(equal)
    assert not replace(check(examples.r10()), senses=honest.senses).verify(examples.r10())
