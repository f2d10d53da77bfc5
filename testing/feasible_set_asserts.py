"""Asserts about the points that a program allows: equal to another's, integer, totally unimodular.

PYTEST_DONT_REWRITE: messages are these, not those of pytest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import Status
from flowlex.testing.canonical_program import Program, Stage
from flowlex.testing.feasible_projection import difference, projections
from flowlex.testing.program_adapters import program_of
from flowlex.testing.staged_optimum import optimise, same
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.named_matrix import NamedMatrix, canonical
from flowlex.validation.unimodularity.verdict import Verdict


def assert_equivalent(
    a: Any, b: Any, on: str | Iterable[str] | None = None, *, directions: int = 30, seed: int = 0
) -> None:
    """Assert that two programs allow the same values of some columns, whatever their objectives.

    Parameters
    ----------
    a, b
        See `assert_optimum`. Columns are matched by name; ``x[A,1]`` and PuLP's ``x_A_1`` are one name.
    on
        Columns, or families of columns; all columns of both when None. The others are auxiliary.
    directions, seed
        If there are few integer points, all are tried, which proves the assertion. Otherwise the optima in this many
        random directions are compared, which can only refute it.

    Examples
    --------
    >>> import pulp
    >>> from flowlex.testing import assert_equivalent
    >>> def program(name, *rows):
    ...     problem = pulp.LpProblem(name)
    ...     x, y = (problem.add_variable(each, cat="Binary") for each in "xy")
    ...     for row in rows:
    ...         problem += row(x, y)
    ...     return problem
    >>> one, two = program("one", lambda x, y: x + y <= 1), program("two", lambda x, y: x + 2 * y <= 2)
    >>> assert_equivalent(one, two)
    >>> assert_equivalent(one, program("three", lambda x, y: x + 2 * y <= 3))
    Traceback (most recent call last):
    ...
    AssertionError: three allows x = 1, y = 1, one does not: _C1: x + y = 2, expected at most 1
    """
    __tracebackhide__ = True
    said = difference(*projections(program_of(a), program_of(b), on), directions, seed)
    assert not said, said


def assert_totally_unimodular(model: Any, *, time_limit: float = 60.0) -> None:
    """Assert that the matrix of the rows is totally unimodular.

    Parameters
    ----------
    model
        See `assert_optimum`.
    time_limit
        Seconds; a matrix that is undecided by then fails the assertion, too.

    Examples
    --------
    >>> import pulp
    >>> from flowlex.testing import assert_totally_unimodular
    >>> odd = pulp.LpProblem("odd")
    >>> x = odd.add_variable_dicts("x", range(3), 0)
    >>> for k in range(3):
    ...     odd += x[k] + x[(k + 1) % 3] <= 1, f"e_{k}"
    >>> assert_totally_unimodular(odd)
    Traceback (most recent call last):
    ...
    AssertionError: odd is not totally unimodular: rows e_0, e_1, e_2 and columns x_0, x_1, x_2 have determinant 2 but
    for its sign
    """
    __tracebackhide__ = True
    program = program_of(model)
    verdict = _verdict(program, time_limit)
    if verdict is None or verdict.is_tu:
        return
    assert verdict.witness is not None, f"{program.name}: total unimodularity is undecided: {verdict.conclusion}"
    rows = ", ".join(program.rows.names[row] for row in sorted(verdict.witness.rows))
    columns = ", ".join(program.columns.names[column] for column in sorted(verdict.witness.columns))
    said = f"rows {rows} and columns {columns} have determinant {abs(verdict.witness.determinant)} but for its sign"
    raise AssertionError(f"{program.name} is not totally unimodular: {said}")


def assert_integral(model: Any, on: str | Iterable[str] | None = None, *, directions: int = 20, seed: int = 0) -> None:
    """Assert that the optimum of the linear relaxation is one of the integer program, whatever the objective.

    Parameters
    ----------
    model
        See `assert_optimum`.
    on
        Columns, or families of columns, that must be integer; those declared so when None, all if there are none.
    directions, seed
        If the matrix is totally unimodular and sides and bounds are integers, this proves the assertion. Otherwise the
        program's objective and this many random ones are tried, which can only refute it.

    Examples
    --------
    >>> import pulp
    >>> from flowlex.testing import assert_integral
    >>> problem = pulp.LpProblem("small", pulp.LpMaximize)
    >>> x = problem.add_variable("x", 0, cat="Integer")
    >>> problem += x
    >>> problem += 2 * x <= 3, "memory"
    >>> assert_integral(problem)
    Traceback (most recent call last):
    ...
    AssertionError: small: the relaxation has the optimum 1.5 at x = 1.5, with integers 1 at x = 1
    """
    __tracebackhide__ = True
    program = program_of(model)
    columns = _integer_columns(program, on)
    if has_integer_vertices(program):
        return
    strict, relaxed = (_with_integers(program, each) for each in (columns, columns[:0]))
    rng, count = np.random.default_rng(seed), len(program.columns.names)
    random = [Stage("random", rng.integers(-5, 6, count).astype(float)) for _ in range(directions)]
    for stages in (program.stages[:1], *([stage] for stage in random)):
        found, other = optimise(relaxed, *stages), optimise(strict, *stages)
        if found.point is None:
            continue
        objective = "" if stages[0].name != "random" else f" of {relaxed.describe(stages[0].cost)} (as factors)"
        ours = f"the relaxation has the optimum{objective} {found} at {program.describe(found.point)}"
        theirs = f"{other} at {program.describe(other.point)}" if other.point is not None else str(other)
        agree = other.status is Status.OPTIMAL and same(found.values[0], other.values[0])
        assert agree, f"{program.name}: {ours}, with integers {theirs}"


def has_integer_vertices(program: Program) -> bool:
    """Whether total unimodularity and integer sides and bounds prove that every vertex is integer."""
    arrays = program.arrays
    figures = np.concatenate([arrays.row_lower, arrays.row_upper, arrays.column_lower, arrays.column_upper])
    finite = figures[np.isfinite(figures)]
    if (finite != np.round(finite)).any():
        return False
    verdict = _verdict(program, 5.0)
    return verdict is None or verdict.is_tu


def _verdict(program: Program, time_limit: float) -> Verdict | None:
    """The checker's verdict; None for a matrix without entries."""
    if not program.arrays.matrix.nnz:
        return None
    rows, columns = program.rows.names, program.columns.names
    return check(NamedMatrix(canonical(program.arrays.matrix), lambda: rows, lambda: columns), time_limit=time_limit)


def _integer_columns(program: Program, on: str | Iterable[str] | None) -> Integers:
    if on is not None:
        return np.concatenate([program.column(name) for name in ([on] if isinstance(on, str) else on)])
    declared = np.flatnonzero(program.arrays.integrality)
    return declared if len(declared) else np.arange(len(program.columns.names))


def _with_integers(program: Program, columns: Integers) -> Program:
    integrality = np.zeros(len(program.columns.names), bool)
    integrality[columns] = True
    return replace(program, arrays=replace(program.arrays, integrality=integrality))
