"""One form for every kind of program: columns and rows by name and family, and the objectives in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from flowlex.formulations.program_arrays import Floats, Integers, LinearProgramArrays
from flowlex.testing.row_names import Names, find

#: Relative size of what counts as equal (HiGHS works with 1e-7).
TOLERANCE = 1e-6
_TERMS = 8


@dataclass(frozen=True)
class Stage:
    """One objective: ``cost @ x + offset``, optimised while the stages before it keep their optima.

    ``within``: how much of its optimum the stages after it may give up; a share of its size if ``relative``.
    """

    name: str
    cost: Floats
    offset: float = 0.0
    maximize: bool = False
    within: float = 0.0
    relative: bool = False

    def allowed(self, value: float) -> float:
        """How much the stages after it may give up, once its optimum is known."""
        return self.within * (abs(value) if self.relative else 1.0)


@dataclass(frozen=True)
class Violation:
    """A row, bound or integer requirement that a point violates."""

    what: str
    index: int
    name: str
    text: str


@dataclass(frozen=True)
class Program:
    """The form of a program on which asserts and mutants work."""

    name: str
    #: Their names in order, and their families.
    rows: Names
    columns: Names
    arrays: LinearProgramArrays  # matrix, sides, bounds and integrality; its objective is that of the first stage
    stages: tuple[Stage, ...]  # the objectives, the first first; at least one

    def row(self, name: str) -> Integers:
        """Indices of a row or of a family of rows."""
        return find(name, self.rows)[1]

    def column(self, name: str) -> Integers:
        """Indices of a column or of a family of columns."""
        return find(name, self.columns)[1]

    def with_rows(self, chosen: Integers) -> Program:
        """The program of some rows alone, with all columns."""
        arrays = self.arrays
        part = replace(
            arrays,
            matrix=arrays.matrix.tocsr()[chosen].tocsc(),
            row_lower=arrays.row_lower[chosen],
            row_upper=arrays.row_upper[chosen],
        )
        rows = Names(self.rows.what, [self.rows.names[row] for row in chosen], {})
        return replace(self, rows=rows, arrays=part)

    def with_stages(self, *stages: Stage) -> Program:
        """The same rows and columns with other objectives."""
        return replace(self, stages=stages)

    def cost_by(self, column: Integers, value: Any = 1.0) -> Floats:
        """A vector of costs that is zero outside some columns."""
        cost = np.zeros(len(self.columns.names))
        cost[column] = value
        return cost

    def point(self, values: Any) -> Floats:
        """Values of all columns.

        ``values``: a number per column in order; or a mapping from columns (names, or PuLP variables) to numbers and
            from families to one number for each member, where columns left out are zero.
        """
        if not isinstance(values, Mapping):
            point = np.asarray(values, np.float64)
            if point.shape != (len(self.columns.names),):
                raise ValueError(f"expected {len(self.columns.names)} values, one per column; got shape {point.shape}")
        else:
            point = np.zeros(len(self.columns.names))
            for key, value in values.items():
                where = self.column(str(getattr(key, "name", key)))
                each = np.asarray(value, np.float64)
                if each.shape not in ((), where.shape) or (each.ndim == 0 and len(where) > 1):
                    raise ValueError(f"{key} has {len(where)} columns; expected as many values, got {value!r}")
                point[where] = each
        if not np.isfinite(point).all():
            raise ValueError(f"the value of {self.columns.names[int(np.argmin(np.isfinite(point)))]} is not finite")
        return point

    def violations(self, point: Floats) -> list[Violation]:
        """What a point violates, rows first."""
        arrays = self.arrays
        found = []
        activity = arrays.matrix @ point
        for row in _outside(activity, arrays.row_lower, arrays.row_upper):
            name = self.rows.names[row]
            wanted = sides_of(arrays.row_lower[row], arrays.row_upper[row])
            text = f"{name}: {self.expression(row)} = {figure(activity[row])}, expected {wanted}"
            found.append(Violation("row", int(row), name, text))
        for column in _outside(point, arrays.column_lower, arrays.column_upper):
            name, wanted = (
                self.columns.names[column],
                sides_of(arrays.column_lower[column], arrays.column_upper[column]),
            )
            text = f"{name} = {figure(point[column])}, expected {wanted}"
            found.append(Violation("column", int(column), name, text))
        fractional = np.abs(point - np.round(point)) > TOLERANCE
        for column in np.flatnonzero(arrays.integrality & fractional).tolist():
            name = self.columns.names[column]
            text = f"{name} = {figure(point[column])}, expected an integer"
            found.append(Violation("column", int(column), name, text))
        return found

    def expression(self, row: int) -> str:
        """The left side of a row as text."""
        matrix = self.arrays.matrix.tocsr()
        part = slice(matrix.indptr[row], matrix.indptr[row + 1])
        pairs = zip(matrix.indices[part].tolist(), matrix.data[part].tolist(), strict=True)
        terms = [f"{'' if a == 1 else '-' if a == -1 else f'{figure(a)}*'}{self.columns.names[j]}" for j, a in pairs]
        return _shortened(terms, " + ").replace("+ -", "- ") or "0"

    def describe(self, point: Floats) -> str:
        """The columns of a point that are not zero."""
        used = np.flatnonzero(np.abs(point) > TOLERANCE).tolist()
        return _shortened([f"{self.columns.names[j]} = {figure(point[j])}" for j in used], ", ") or "all columns zero"


def with_row(arrays: LinearProgramArrays, cost: Floats, lower: float, upper: float) -> LinearProgramArrays:
    """The same arrays with one more row."""
    return replace(
        arrays,
        matrix=scipy.sparse.csc_array(scipy.sparse.vstack([arrays.matrix, scipy.sparse.csr_array(cost[None, :])])),
        row_lower=np.append(arrays.row_lower, lower),
        row_upper=np.append(arrays.row_upper, upper),
    )


def changed_rows(a: LinearProgramArrays, b: LinearProgramArrays) -> Integers:
    """Rows of which a side or a term differs."""
    differ = (a.row_lower != b.row_lower) | (a.row_upper != b.row_upper)
    terms = scipy.sparse.coo_array(a.matrix - b.matrix)
    differ[terms.coords[0][terms.data != 0]] = True
    return np.flatnonzero(differ)


def figure(value: float) -> str:
    """A number as a person writes it."""
    nearest = round(value) if np.isfinite(value) else value
    return str(nearest) if abs(value - nearest) < 1e-9 else f"{value:.9g}"


def _outside(values: Floats, lower: Floats, upper: Floats) -> Sequence[int]:
    slack = TOLERANCE * np.maximum(1.0, np.abs(values))
    found: list[int] = np.flatnonzero((values < lower - slack) | (values > upper + slack)).tolist()
    return found


def sides_of(low: float, high: float) -> str:
    """The bounds of a row or column, in words."""
    if low == high:
        return figure(low)
    if np.isfinite(low) and np.isfinite(high):
        return f"between {figure(low)} and {figure(high)}"
    return f"at least {figure(low)}" if np.isfinite(low) else f"at most {figure(high)}"


def _shortened(parts: list[str], joint: str) -> str:
    more = f"{joint}... ({len(parts) - _TERMS} more)" if len(parts) > _TERMS else ""
    return joint.join(parts[:_TERMS]) + more
