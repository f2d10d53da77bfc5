"""Asserts about one program, or about the optima of two.

PYTEST_DONT_REWRITE: messages are these, not those of pytest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import Status
from flowlex.testing.canonical_program import TOLERANCE, Program, Stage, figure, sides_of
from flowlex.testing.program_adapters import program_of
from flowlex.testing.row_names import UnknownNameError, find
from flowlex.testing.staged_optimum import Optimum, optimise, same


def assert_optimum(model: Any, value: float | Sequence[float], *, tolerance: float = TOLERANCE) -> None:
    """Assert the optimum of a program.

    Parameters
    ----------
    model
        A `flowlex.Problem`, a PuLP problem, a `LinearProgram`, a `FlowNetwork`, `Staged`, a model of ours, the path of
        an MPS or LP file, a HiGHS model, or anything with ``compile()``.
    value
        The optimum, or one for each of several objectives in order.
    tolerance
        Largest difference, relative to the figures (absolute below one).

    Raises
    ------
    AssertionError
        The optimum is another one, or there is none.

    Examples
    --------
    >>> import pulp
    >>> from flowlex.testing import assert_optimum
    >>> problem = pulp.LpProblem("small", pulp.LpMaximize)
    >>> x = problem.add_variable("x", 0, 3)
    >>> problem += 2 * x
    >>> assert_optimum(problem, 5)
    Traceback (most recent call last):
    ...
    AssertionError: small: expected the optimum 5, got 6 at x = 3
    """
    __tracebackhide__ = True
    program = program_of(model)
    wanted = tuple(np.atleast_1d(np.asarray(value, np.float64)).tolist())
    if len(wanted) != len(program.stages):
        raise ValueError(f"{program.name} has {len(program.stages)} objectives; expected as many values, got {value!r}")
    found = optimise(program)
    said = f"{program.name}: expected the optimum {', then '.join(map(figure, wanted))}, got {_shown(program, found)}"
    assert found.status is Status.OPTIMAL, said
    assert all(same(a, b, tolerance) for a, b in zip(wanted, found.values, strict=True)), said


def assert_same_optimum(a: Any, b: Any, *, tolerance: float = TOLERANCE) -> None:
    """Assert that two programs have the same optimum, or are both infeasible, or both unbounded.

    Parameters
    ----------
    a, b
        See `assert_optimum`.
    tolerance
        Largest difference, relative to the figures.

    Examples
    --------
    >>> import pulp
    >>> from flowlex.testing import assert_same_optimum
    >>> most, least = pulp.LpProblem("most", pulp.LpMaximize), pulp.LpProblem("least")
    >>> most += 2 * most.add_variable("x", 0, 3)
    >>> least += 9 - least.add_variable("x", 0, 3)
    >>> assert_same_optimum(most, least)
    """
    __tracebackhide__ = True
    first, second = program_of(a), program_of(b)
    found, other = optimise(first), optimise(second)
    pairs = zip_longest(found.values, other.values, fillvalue=np.nan)
    agree = found.status is other.status and all(same(x, y, tolerance) for x, y in pairs)
    assert agree, f"the optima differ: {_two(first, found, second, other)}"


def assert_relaxation(a: Any, b: Any, *, tolerance: float = TOLERANCE) -> None:
    """Assert that the optimum of ``a`` is as good as that of ``b`` or better, as it must be if ``a`` relaxes ``b``.

    Parameters
    ----------
    a, b
        See `assert_optimum`; with several objectives the first that differs decides. Both minimise or both maximise.
    tolerance
        Largest difference, relative to the figures.

    Examples
    --------
    >>> import pulp
    >>> from flowlex.testing import assert_relaxation
    >>> def program(kind):
    ...     problem = pulp.LpProblem(kind, pulp.LpMaximize)
    ...     problem += problem.add_variable("x", 0, 2.5, kind)
    ...     return problem
    >>> assert_relaxation(program("Continuous"), program("Integer"))
    """
    __tracebackhide__ = True
    first, second = program_of(a), program_of(b)
    if [stage.maximize for stage in first.stages] != [stage.maximize for stage in second.stages]:
        raise ValueError(f"{first.name} and {second.name} do not minimise and maximise in the same order")
    found, other = optimise(first), optimise(second)
    said = f"{first.name} is no relaxation of {second.name}: {_two(first, found, second, other)}"
    if Status.OPTIMAL in (found.status, other.status) and found.status is not other.status:
        assert found.status is Status.UNBOUNDED or other.status is Status.INFEASIBLE, said
    assert (found.status, other.status) != (Status.INFEASIBLE, Status.UNBOUNDED), said
    for stage, x, y in zip(first.stages, found.values, other.values, strict=False):
        if not same(x, y, tolerance):
            assert (x > y) == stage.maximize, said
            return


def assert_feasible(model: Any, values: Any) -> None:
    """Assert that a point satisfies all rows, bounds and integer requirements.

    Parameters
    ----------
    model
        See `assert_optimum`.
    values
        A number for each column in order; or a mapping from columns (by name, or PuLP variables) to numbers and from
        families of columns to arrays. Columns left out of a mapping are zero.

    Examples
    --------
    >>> import pulp
    >>> from flowlex.testing import assert_feasible
    >>> problem = pulp.LpProblem("small")
    >>> x = problem.add_variable_dicts("x", ["A", "B"], 0)
    >>> problem += x["A"] + 2 * x["B"] <= 4, "share"
    >>> assert_feasible(problem, {"x_A": 1, "x_B": 2})
    Traceback (most recent call last):
    ...
    AssertionError: small: the point x_A = 1, x_B = 2 violates share: x_A + 2*x_B = 5, expected at most 4
    """
    __tracebackhide__ = True
    program = program_of(model)
    point = program.point(values)
    found = program.violations(point)
    said = "; ".join(violation.text for violation in found)
    assert not found, f"{program.name}: the point {program.describe(point)} violates {said}"


def assert_violates(model: Any, values: Any, *names: str, only: bool = False) -> None:
    """Assert that a point violates the named rows or columns.

    Parameters
    ----------
    model, values
        See `assert_feasible`.
    names
        Rows, or columns whose bound or integer requirement the point violates; of a family at least one member.
    only
        Also assert that it violates nothing else.

    Examples
    --------
    >>> import pulp
    >>> from flowlex.testing import assert_violates
    >>> problem = pulp.LpProblem("small")
    >>> x = problem.add_variable_dicts("x", ["A", "B"], 0)
    >>> problem += x["A"] + 2 * x["B"] <= 4, "share"
    >>> assert_violates(problem, {"x_B": 3}, "share", only=True)
    """
    __tracebackhide__ = True
    if not names:
        raise TypeError("assert_violates needs the name of a row, of a column or of a family")
    program = program_of(model)
    point = program.point(values)
    found = program.violations(point)
    asked: set[tuple[str, int]] = set()
    for name in names:
        where, indices = find(name, program.rows, program.columns)
        members = {(where.what, int(index)) for index in indices}
        said = "; ".join(violation.text for violation in found) or "nothing"
        kept = f" ({_kept(program, int(indices[0]), point)})" if where.what == "row" and len(indices) == 1 else ""
        broken = any((violation.what, violation.index) in members for violation in found)
        assert broken, f"{program.name}: {program.describe(point)} keeps {name}{kept}; it violates {said}"
        asked |= members
    others = [violation.text for violation in found if (violation.what, violation.index) not in asked]
    assert not (only and others), f"{program.name}: {program.describe(point)} also violates {'; '.join(others)}"


def assert_infeasible(model: Any, because: Iterable[str] | None = None) -> None:
    """Assert that no point is feasible, and which rows conflict.

    Parameters
    ----------
    model
        See `assert_optimum`.
    because
        Rows or families of rows that form an irreducible conflict (with the bounds of the columns). Other rows may
        conflict, too: irreducible infeasible sets are not unique.

    Examples
    --------
    >>> import pulp
    >>> from flowlex.testing import assert_infeasible
    >>> problem = pulp.LpProblem("small")
    >>> x = problem.add_variable("x", 0)
    >>> problem += x <= 2, "memory"
    >>> problem += x >= 3, "share"
    >>> problem += x >= 1, "least"
    >>> assert_infeasible(problem, because={"share", "memory"})
    >>> assert_infeasible(problem, because={"share", "memory", "least"})
    Traceback (most recent call last):
    ...
    AssertionError: small: least can be spared: memory, share conflict without it
    """
    __tracebackhide__ = True
    program = program_of(model)
    nothing = Stage("none", np.zeros(len(program.columns.names)))
    found = optimise(program, nothing)
    said = f"{program.name}: expected no feasible point, got"
    assert found.status is Status.INFEASIBLE, f"{said} {_point(program, found)}"
    if because is None:
        return
    if isinstance(because, str):
        raise TypeError(f"because={because!r}: expected a set of names")
    named = {name: program.row(name) for name in sorted(because)}
    alone = optimise(program.with_rows(_joined(named.values())), nothing)
    together = f"{program.name}: {', '.join(named) or 'the bounds'} do not conflict by themselves"
    assert alone.status is Status.INFEASIBLE, f"{together}: {_point(program, alone)} keeps them"
    for name in named:
        others = {other: rows for other, rows in named.items() if other != name}
        left = optimise(program.with_rows(_joined(others.values())), nothing)
        text = f"{program.name}: {name} can be spared: {', '.join(others) or 'the bounds'} conflict without it"
        assert left.status is not Status.INFEASIBLE, text


def assert_binding(model: Any, *names: str) -> None:
    """Assert that rows hold with equality in every optimal answer.

    Parameters
    ----------
    model
        See `assert_optimum`.
    names
        Rows, or families, all of whose rows must be binding.

    Examples
    --------
    >>> import pulp
    >>> from flowlex.testing import assert_binding
    >>> problem = pulp.LpProblem("small", pulp.LpMaximize)
    >>> x = problem.add_variable("x", 0)
    >>> problem += x
    >>> problem += x <= 2, "memory"
    >>> problem += x <= 3, "share"
    >>> assert_binding(problem, "memory")
    >>> assert_binding(problem, "share")
    Traceback (most recent call last):
    ...
    AssertionError: small: share is not binding: x = 2, expected 3 in every optimal answer; optimum 2 at x = 2
    """
    __tracebackhide__ = True
    program = program_of(model)
    if not names:
        raise TypeError("assert_binding needs the name of a row or of a family of rows")
    matrix, arrays = program.arrays.matrix.tocsr(), program.arrays
    for row in _joined(program.row(name) for name in names):
        low, high = arrays.row_lower[row], arrays.row_upper[row]
        side = high if np.isfinite(high) else low
        slack = Stage("slack", matrix[[row]].toarray()[0], 0.0, maximize=not np.isfinite(high))
        found = optimise(program, *program.stages, slack)
        name = program.rows.names[row]
        assert found.point is not None, f"{program.name}: expected {name} to bind, got {found}: no optimal answer"
        text = f"{name} is not binding: {program.expression(row)} = {figure(found.values[-1])}, expected {figure(side)}"
        best = Optimum(found.status, found.values[:-1], found.point)
        said = f"{program.name}: {text} in every optimal answer; optimum {_shown(program, best)}"
        assert same(found.values[-1], side), said


def _joined(groups: Iterable[Integers]) -> Integers:
    return np.unique(np.concatenate([*groups, np.zeros(0, np.int64)]).astype(np.int64))


def _kept(program: Program, row: int, point: Any) -> str:
    """What a point that keeps a row makes of it."""
    low, high = program.arrays.row_lower[row], program.arrays.row_upper[row]
    activity = (program.arrays.matrix.tocsr()[[row]] @ point)[0]
    return f"{program.expression(row)} = {figure(activity)}, {sides_of(low, high)}"


def _shown(program: Program, found: Optimum) -> str:
    return str(found) if found.point is None else f"{found} at {program.describe(found.point)}"


def _point(program: Program, found: Optimum) -> str:
    return str(found) if found.point is None else program.describe(found.point)


def _two(a: Program, found: Optimum, b: Program, other: Optimum) -> str:
    """Both optima, and, if the programs share their columns, what the first answer violates in the second."""
    said = f"{a.name} has {_shown(a, found)}; {b.name} has {_shown(b, other)}"
    for one, answer, two in ((a, found, b), (b, other, a)):
        if answer.point is None:
            continue
        try:
            point = two.point(dict(zip(one.columns.names, answer.point, strict=True)))
        except (UnknownNameError, ValueError):
            continue
        broken = "; ".join(violation.text for violation in two.violations(point)[:3])
        said += f"; the answer of {one.name} violates in {two.name}: {broken}" if broken else ""
    return said
