"""Answers that miss rows within the tolerance: later objectives keep what the answer attains, and a little more."""

from fractions import Fraction

import numpy as np
import pytest

import flowlex as fx
from flowlex.validation.proofs.checker import judge
from flowlex.validation.proofs.exact_program import (
    Bounds,
    ColumnBlock,
    Exact,
    ExactProgram,
    Objective,
    RowBlock,
)
from flowlex.validation.proofs.own_statement import exact_program
from flowlex.validation.proofs.proof import Branch, Leaf, Proof, from_document

NONE = np.zeros(2, bool)
ONE = np.ones(1, np.int64)


def two_shares() -> ExactProgram:
    """x <= 3/4 and x + y <= 1; first as much of x as possible, then of y."""
    both, place = np.array([0, 1]), np.zeros(2, np.int64)
    rows = {
        "most": RowBlock("most", 1, "<=", place[:1], both[:1], 4 * ONE, 3 * ONE, Fraction(1, 4), lambda: [""]),
        "all": RowBlock("all", 1, "<=", place, both, np.ones(2, np.int64), ONE, Fraction(1), lambda: [""]),
    }
    return ExactProgram(
        [ColumnBlock("x", 0, 1, lambda: [""]), ColumnBlock("y", 1, 1, lambda: [""])],
        Bounds(Exact(np.zeros(2, np.int64)), NONE),
        Bounds(Exact(np.ones(2, np.int64)), NONE),
        NONE,
        rows,
        [Objective(name, both[k : k + 1], ONE, 0, Fraction(1), maximize=True) for k, name in enumerate("xy")],
    )


@pytest.mark.parametrize(("x", "y", "claim"), [
    (0.75, 0.25, "optimal"),
    (0.75 + 1e-9, 0.25, "optimal"),  # both rows are missed
    (0.75 + 1e-9, 0.24, "bounded"),
    (0.74, 0.26, "bounded"),
    (0.75 + 1e-6, 0.25, "feasible"),
])  # fmt: skip
def test_the_second_objective_is_proven_with_a_multiplier_of_one_row(x: float, y: float, claim: str) -> None:
    program = two_shares()
    leaves = {"x": [{"rows": {"most": {"at": {"": -1.0}}}}], "y": [{"rows": {"all": {"at": {"": -1.0}}}}]}
    proof = from_document({"format": 3, "stages": leaves}, program)
    verdict = judge(program, Exact.of_floats(np.array([x, y])), proof)
    assert verdict.claim == claim and verdict.certificate.ok == (claim != "feasible")
    assert verdict.certificate.exact == (x in (0.74, 0.75))  # no row is missed


def test_a_row_that_is_missed_on_purpose_does_not_decide_later_objectives() -> None:
    """t is 10 with z = 0 or 1; with z = 1 and t a little less, z = 0 must not seem to be worse."""
    p = fx.Problem("two ways")
    t, z = p.variables("t", upper=100), p.variables("z", binary=True)
    p.constrain("a", t + 50 * z >= 10)
    p.constrain("b", t - 50 * z >= -40)
    p.minimize("first", t + 0)
    p.minimize("second", z + 0)
    program, one = exact_program(p), Exact.of([1])
    off, on = Branch.single(1, upper=True, side=0), Branch.single(1, upper=False, side=1)
    first = Leaf(rows={"a": one}, branches=(off,)), Leaf(rows={"b": one}, branches=(on,))
    empty = Leaf(rows={"a": one}, earlier={"first": Fraction(-1)}, branches=(off,), own=0)
    forged = Proof({"first": first, "second": (empty, Leaf(branches=(on,)))})
    for missed in (Fraction(1, 10**9), Fraction(1, 10**12)):
        verdict = judge(program, Exact.of([10 - missed, 1]), forged)
        assert verdict.claim == "bounded" and not verdict.stages[1].proven


def test_a_tolerance_on_tiny_numbers_is_no_licence_for_a_large_objective() -> None:
    """The value of x misses its bound by 1e-7, which is worth 1e-3 of an objective of 6.1."""
    p = fx.Problem("units")
    x = p.variables("x", upper=2.0**-14)
    p.maximize("goal", 1e4 * 10 * x)
    program, leaves = exact_program(p), {"goal": (Leaf(),)}
    at = Fraction(1, 2**14)
    assert judge(program, Exact.of([at]), Proof(leaves)).claim == "optimal"
    assert judge(program, Exact.of([at + Fraction(1, 10**12)]), Proof(leaves)).claim == "optimal"
    verdict = judge(program, Exact.of([at + Fraction(9, 10**8)]), Proof(leaves))
    assert (
        verdict.certificate.ok and verdict.claim != "optimal" and "beyond the proven bound" in verdict.stages[0].reason
    )
