"""Blocks of identical copies: a bound by hand, and leaves that name blocks wrongly."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from flowlex.validation.proofs.blocks import best_filling
from flowlex.validation.proofs.checker import Checker
from flowlex.validation.proofs.exact_program import Block, ExactProgram
from flowlex.validation.proofs.program_builder import ProgramBuilder
from flowlex.validation.proofs.proof import ProofError, from_document


def cards() -> ExactProgram:
    """Parts of 3 and 4 GB, five of each, on three cards of 7 GB: as many GB as possible."""
    of = ProgramBuilder()
    of.columns("parts", [{"size": 3}, {"size": 4}], upper=5)
    of.row("room", "", {0: 3, 1: 4}, "<=", 21)
    of.objective("placed", {0: 1, 1: 1}, maximize=True)
    program = of.program()

    def least(costs: Any, unit: Fraction) -> Fraction:
        return -best_filling([3, 4], [-int(v) for v in costs.tolist()], 7) * unit

    program.blocks = {"card": [Block(3, np.array([0, 1]), least)]}
    return program


def bound(leaf: dict[str, Any]) -> Fraction | None:
    program = cards()
    read = from_document({"format": 3, "stages": {"placed": [leaf]}}, program)
    return Checker(program).bound(read.stages["placed"], program.objectives[0], {}, 0)


def test_copies_bound_what_rows_do_not() -> None:
    assert bound({"rows": {"room": {"at": {"": "-1/3"}}}}) == -7  # 21 / 3
    assert bound({"blocks": ["card"]}) == -6  # two parts on each card
    assert bound({"rows": {"room": {"at": {"": "-1/3"}}}, "blocks": ["card", "card"]}) == -7  # what is paid is paid


def test_wrong_names_are_refused() -> None:
    for wrong in (["node"], [["card"]], "card", [1]):
        with pytest.raises(ProofError):
            bound({"blocks": wrong})


def test_the_best_filling_is_that_of_trying_all() -> None:
    for room in range(1, 30):
        sizes, values = [3, 4, 7, 9], [4, 5, 10, 11]
        best = [0] * (room + 1)
        for left in range(1, room + 1):
            best[left] = max(
                [best[left - 1], *(best[left - s] + v for s, v in zip(sizes, values, strict=True) if s <= left)]
            )
        assert best_filling(sizes, values, room) == best[room]
    with pytest.raises(ArithmeticError, match="no size"):
        best_filling([0], [1], 5)
