"""Answers that miss rows within the tolerance: later objectives keep exactly what the answer attains."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from flowlex.validation.proofs.checker import judge
from flowlex.validation.proofs.exact_program import (
    Bounds,
    ColumnBlock,
    Exact,
    ExactProgram,
    Objective,
    RowBlock,
)
from flowlex.validation.proofs.proof import from_document

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
