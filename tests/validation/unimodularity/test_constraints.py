"""Free rows, fixed columns and polyhedra without vertices: verdicts compared with brute force."""

from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations.linear_program import LinearProgram
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.named_matrix import NamedMatrix
from flowlex.validation.unimodularity.proof_types import Answer
from flowlex.validation.unimodularity.verdict import Verdict, verification_error
from tests.validation.unimodularity.small_programs import program, vertices

INFINITE = (-np.inf, np.inf)


def test_a_free_row_is_no_row() -> None:
    named = program([[1, 2], [1, 1]], [INFINITE, (-np.inf, 3)], [(0, 5), (0, 5)])
    verdict = check(named)
    assert verdict.is_tu
    assert verdict.shape == (1, 2)
    assert "1 free row(s) left out" in verdict.conclusion
    assert "2 integer declaration(s) are not needed" in verdict.conclusion
    assert verdict.verify(named)


def test_fixed_columns_are_constants() -> None:
    named = program([[1, 2, 1], [1, 1, 0]], [(-np.inf, 7), (-np.inf, 3)], [(0, 5), (2, 2), (0, 5)])
    verdict = check(named)
    assert verdict.is_tu
    assert verdict.shape == (2, 2)
    assert "1 fixed column(s) taken as constants" in verdict.conclusion
    assert "3 integer declaration(s) are not needed" in verdict.conclusion
    assert verdict.verify(named)
    half = program([[1, 0.5]], [(-np.inf, 7)], [(0, 5), (3, 3)])
    assert "the side 7 of row 'r0' is not integral less the 3/2 of fixed columns" in check(half).conclusion
    exact = program([[1, 0.1, 0.2]], [(-np.inf, 0.3)], [(0, 5), (1, 1), (1, 1)])
    assert "declaration(s) are not needed" in check(exact).conclusion


def test_an_integer_column_fixed_at_a_fraction_is_named() -> None:
    """The integer program is infeasible and its relaxation is not, so the declaration is needed."""
    named = program([[1, 1]], [(-np.inf, 7)], [(0, 5), (0.5, 0.5)])
    assert "the bound 1/2 of 'c1' is not integral" in check(named).conclusion
    assert "are not needed" in check(replace_integer(named)).conclusion


def replace_integer(named: NamedMatrix) -> NamedMatrix:
    """The same with the second column continuous and a compensating constant in the first row."""
    assert named.program is not None
    integer = np.array([True, False])
    sides = np.array([[-np.inf], [7.5]])
    return replace(named, program=replace(named.program, integer=integer, sides=sides))


def test_models_without_rows_or_columns() -> None:
    lp = LinearProgram("no_rows")
    lp.minimize(lp.variables("x", 2, upper=3, integer=True).sum())
    verdict = check(lp)
    assert verdict.is_tu
    assert "2 integer declaration(s) are not needed" in verdict.conclusion
    assert verdict.verify(lp)
    assert Verdict.from_json(verdict.to_json()) == verdict
    assert check(np.zeros((0, 3))).is_tu
    assert check(np.zeros((3, 0))).is_tu
    all_fixed = program([[2]], [(0, 4)], [(1, 1)])
    assert check(all_fixed).is_tu
    assert check(all_fixed).verify(all_fixed)


def test_a_polyhedron_without_vertices_says_so() -> None:
    """x - y <= 1 with x and y free contains lines; together with x + 2 y <= 3 the polyhedron has a vertex."""
    lines = program([[1, -1]], [(-np.inf, 1)], [INFINITE, INFINITE])
    verdict = check(lines)
    assert verdict.line == ((0, 1), (1, 1))
    assert "The polyhedron has no vertices, since it contains every line that moves c0 by 1, c1 by 1." in (
        verdict.conclusion
    )
    assert "every minimal face holds an integral point" in verdict.conclusion
    assert verdict.verify(lines)
    assert Verdict.from_json(verdict.to_json()) == verdict
    for forged in (((0, 1),), ((0, 1), (1, 2)), ((0, 1), (7, 1)), (), ((0, 0), (1, 0))):
        assert not replace(verdict, line=forged).verify(lines)
    assert "the conclusion" not in verification_error(verdict, lines)
    assert verification_error(replace(verdict, line=None), lines).startswith("what follows is")
    assert check(program([[1, -1], [1, 2]], [(-np.inf, 1), (-np.inf, 3)], [INFINITE, INFINITE])).line is None
    two = check(program([[2, -3]], [(-np.inf, 1)], [INFINITE, INFINITE]))
    assert two.line == ((0, 3), (1, 2))
    assert "It was not decided whether every minimal face" in two.conclusion


def random_program(generator: np.random.Generator) -> NamedMatrix:
    rows, columns = generator.integers(1, 4, 2).tolist()
    dense = generator.choice([0, 0, 1, -1, 1, 2], (rows, columns)) * generator.choice([1, 1, 2])
    side = generator.integers(-1, 4, rows)
    kind = generator.integers(0, 4, rows)  # <=, >=, ==, free
    low = np.where((kind == 0) | (kind == 3), -np.inf, side)
    high = np.where((kind == 1) | (kind == 3), np.inf, side)
    lower = generator.integers(-1, 2, columns).astype(float)
    upper = lower + generator.integers(0, 3, columns)
    free = generator.random(columns) < 0.3
    lower[free], upper[free] = INFINITE
    return program(dense, np.stack([low, high], 1), np.stack([lower, upper], 1))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=75, deadline=None)
def test_verdicts_agree_with_brute_force(seed: int) -> None:
    named = random_program(np.random.default_rng(seed))
    if not named.matrix.nnz:
        return
    verdict = check(named)
    assert verdict.verify(named)
    assert named.program is not None
    low, high = named.program.sides
    dense = named.matrix.toarray()[np.isfinite(low) | np.isfinite(high)]
    free = dense[:, named.program.free]
    rank = np.linalg.matrix_rank(free) if free.size else 0
    assert (verdict.line is not None) == (rank < free.shape[1])
    assert verdict.answer is not Answer.UNDECIDED
    moving = dense[:, named.program.bounds[0] != named.program.bounds[1]]
    assert verdict.is_tu == all(
        abs(round(np.linalg.det(moving[np.ix_(r, c)]))) <= 1
        for size in range(1, min(moving.shape) + 1)
        for r in combinations(range(moving.shape[0]), size)
        for c in combinations(range(moving.shape[1]), size)
    )
    if "are not needed" in verdict.conclusion and verdict.line is None:
        for point in vertices(named):
            assert np.allclose(point, np.rint(point)), (dense, point)
