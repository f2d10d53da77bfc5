"""Mutants of a formulation: a family of rows or columns and an operator that makes a typical mistake in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.testing.canonical_program import Program
from flowlex.testing.row_names import Names


@dataclass(frozen=True)
class Mutant:
    """A typical modelling mistake, given by names alone, so that it applies to every instance."""

    family: str  # family of rows or columns, one row or column, or an objective
    operator: str  # what is done to it, such as ``drop`` or ``side + 1``
    term: str = ""  # family of columns whose terms change, where the operator changes terms

    def __str__(self) -> str:
        return f"{self.family}: {self.operator}{f' of {self.term}' if self.term else ''}"

    def apply(self, program: Program) -> Program | None:
        """The program with the mistake; None where it changes nothing."""
        if self.operator in _OF_STAGES:
            return _OF_STAGES[self.operator](program, self.family)
        names = program.columns if self.operator in _OF_COLUMNS else program.rows
        members = _members(names, self.family)
        if members is None or not len(members):
            return None
        if self.operator in _OF_TERMS:
            columns = _members(program.columns, self.term)
            return None if columns is None else _with_terms(program, members, columns, self.operator)
        return (_OF_COLUMNS | _OF_ROWS)[self.operator](program, members)


def mutants_of(program: Program, *, single: bool = False) -> Iterator[Mutant]:
    """All mutants that change a program.

    ``single``: also one for each row and column alone.
    """
    rows, columns = ([*names.families, *(names.names if single else ())] for names in (program.rows, program.columns))
    candidates = [Mutant(family, operator) for family in rows for operator in _OF_ROWS]
    candidates += [Mutant(row, way, term) for row in rows for term in program.columns.families for way in _OF_TERMS]
    candidates += [Mutant(family, operator) for family in columns for operator in _OF_COLUMNS]
    candidates += [Mutant(stage.name, operator) for stage in program.stages for operator in _OF_STAGES]
    for mutant in candidates:
        if mutant.apply(program) is not None:
            yield mutant


def _members(names: Names, family: str) -> Integers | None:
    if family in names.families:
        return names.families[family]
    return names.find(family) if family in names.names else None


def _with_sides(program: Program, rows: Integers, low: Floats, high: Floats) -> Program | None:
    arrays = program.arrays
    if np.array_equal(low, arrays.row_lower[rows]) and np.array_equal(high, arrays.row_upper[rows]):
        return None
    lower, upper = arrays.row_lower.copy(), arrays.row_upper.copy()
    lower[rows], upper[rows] = low, high
    return replace(program, arrays=replace(arrays, row_lower=lower, row_upper=upper))


def _drop(program: Program, rows: Integers) -> Program | None:
    """State ``0 <= 1`` in place of the rows, so that their names stay known."""
    kept = np.ones(len(program.rows.names))
    kept[rows] = 0
    matrix = scipy.sparse.csc_array(scipy.sparse.diags_array(kept) @ program.arrays.matrix)
    matrix.eliminate_zeros()
    lower, upper = program.arrays.row_lower.copy(), program.arrays.row_upper.copy()
    lower[rows], upper[rows] = -np.inf, 1.0
    return replace(program, arrays=replace(program.arrays, matrix=matrix, row_lower=lower, row_upper=upper))


def _shift(by: float) -> Callable[[Program, Integers], Program | None]:
    def shifted(program: Program, rows: Integers) -> Program | None:
        return _with_sides(program, rows, program.arrays.row_lower[rows] + by, program.arrays.row_upper[rows] + by)

    return shifted


def _flip(program: Program, rows: Integers) -> Program | None:
    low, high = program.arrays.row_lower[rows], program.arrays.row_upper[rows]
    at_most, at_least = np.isneginf(low) & np.isfinite(high), np.isfinite(low) & np.isposinf(high)
    flipped_low = np.where(at_most, high, np.where(at_least, -np.inf, low))
    return _with_sides(program, rows, flipped_low, np.where(at_least, low, np.where(at_most, np.inf, high)))


def _loosen(lower: bool) -> Callable[[Program, Integers], Program | None]:
    def loosened(program: Program, rows: Integers) -> Program | None:
        low, high = program.arrays.row_lower[rows].copy(), program.arrays.row_upper[rows].copy()
        side, infinite = (low, -np.inf) if lower else (high, np.inf)
        side[low == high] = infinite
        return _with_sides(program, rows, low, high)

    return loosened


def _swap_sides(program: Program, rows: Integers) -> Program | None:
    """Give each of the first two rows that differ in their side the side of the other."""
    low, high = program.arrays.row_lower[rows].copy(), program.arrays.row_upper[rows].copy()
    pair = _first_pair(np.stack([low, high]))
    if pair is None:
        return None
    low[pair], high[pair] = low[pair[::-1]], high[pair[::-1]]
    return _with_sides(program, rows, low, high)


def _first_pair(values: Floats) -> list[int] | None:
    """Two columns of the array that differ: the first, and the next one that is different."""
    unlike = np.flatnonzero((values != values[:, :1]).any(axis=0))
    return [0, int(unlike[0])] if len(unlike) else None


def _with_terms(program: Program, rows: Integers, columns: Integers, operator: str) -> Program | None:
    """Change terms of some columns in some rows: all, or (``double``) the first of each row."""
    matrix = program.arrays.matrix.tocoo()
    chosen = np.isin(matrix.coords[0], rows) & np.isin(matrix.coords[1], columns)
    data = matrix.data.copy()
    if operator == "unit terms":
        data[chosen] = np.sign(data[chosen])
    elif operator == "negated terms":
        data[chosen] *= -1
    else:
        order = np.flatnonzero(chosen)
        _, first = np.unique(matrix.coords[0][order], return_index=True)
        data[order[first]] *= 2
    if np.array_equal(data, matrix.data):
        return None
    changed = scipy.sparse.coo_array((data, matrix.coords), shape=matrix.shape).tocsc()
    return replace(program, arrays=replace(program.arrays, matrix=changed))


def _without_bound(lower: bool) -> Callable[[Program, Integers], Program | None]:
    def unbounded(program: Program, columns: Integers) -> Program | None:
        arrays = program.arrays
        side = (arrays.column_lower if lower else arrays.column_upper).copy()
        if not np.isfinite(side[columns]).any():
            return None
        side[columns] = -np.inf if lower else np.inf
        change = replace(arrays, column_lower=side) if lower else replace(arrays, column_upper=side)
        return replace(program, arrays=change)

    return unbounded


def _continuous(program: Program, columns: Integers) -> Program | None:
    integrality = program.arrays.integrality.copy()
    if not integrality[columns].any():
        return None
    integrality[columns] = False
    return replace(program, arrays=replace(program.arrays, integrality=integrality))


def _without_cost(program: Program, columns: Integers) -> Program | None:
    if not any(stage.cost[columns].any() for stage in program.stages):
        return None
    kept = np.ones(len(program.columns.names))
    kept[columns] = 0
    return program.with_stages(*(replace(stage, cost=stage.cost * kept) for stage in program.stages))


def _swap_columns(program: Program, columns: Integers) -> Program | None:
    """Give each of the first two columns that differ in cost or bounds those of the other."""
    arrays = program.arrays
    vectors = [arrays.column_lower, arrays.column_upper, *(stage.cost for stage in program.stages)]
    pair = _first_pair(np.stack([vector[columns] for vector in vectors]))
    if pair is None:
        return None
    order = np.arange(len(program.columns.names))
    order[columns[pair]] = columns[pair[::-1]]
    low, high, *costs = (vector[order] for vector in vectors)
    stages = (replace(stage, cost=cost) for stage, cost in zip(program.stages, costs, strict=True))
    return replace(program, arrays=replace(arrays, column_lower=low, column_upper=high)).with_stages(*stages)


def _drop_stage(program: Program, name: str) -> Program | None:
    """Set one of several objectives to zero, so that its name stays known."""
    zero = tuple(replace(s, cost=0 * s.cost, offset=0.0) if s.name == name else s for s in program.stages)
    lost = any(stage.cost.any() for stage in program.stages if stage.name == name)
    return program.with_stages(*zero) if lost and len(zero) > 1 else None


_OF_ROWS: dict[str, Callable[[Program, Integers], Program | None]] = {
    "drop": _drop,
    "side + 1": _shift(1.0),
    "side - 1": _shift(-1.0),
    "flipped relation": _flip,
    "<= for ==": _loosen(True),
    ">= for ==": _loosen(False),
    "swapped sides": _swap_sides,
}
_OF_TERMS = ("unit terms", "doubled term", "negated terms")
_OF_COLUMNS: dict[str, Callable[[Program, Integers], Program | None]] = {
    "lost lower bound": _without_bound(True),
    "lost upper bound": _without_bound(False),
    "lost integrality": _continuous,
    "lost cost": _without_cost,
    "swapped columns": _swap_columns,
}
_OF_STAGES: dict[str, Callable[[Program, str], Program | None]] = {"dropped stage": _drop_stage}
