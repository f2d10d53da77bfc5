"""Project the feasible set of a program onto some columns, and find where two programs differ there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import Status
from flowlex.testing.canonical_program import TOLERANCE, Program, Stage, figure
from flowlex.testing.row_names import plain
from flowlex.testing.staged_optimum import Optimum, optimise, same

#: Most points to enumerate: evaluated at once, or, if there are further columns, with a program for each.
_EVALUATED, _SOLVED = 100_000, 400


@dataclass(frozen=True)
class Projection:
    """A program, projected onto some of its columns in an order."""

    program: Program
    columns: Integers

    @property
    def whole(self) -> bool:
        """Whether these are all columns."""
        return len(self.columns) == len(self.program.columns.names)

    def allows(self, values: Floats) -> bool:
        """Whether the other columns can be chosen so that everything holds."""
        if self.whole:
            point = np.empty(len(values))
            point[self.columns] = values
            return not self.program.violations(point)
        arrays = self.program.arrays
        low, high = arrays.column_lower.copy(), arrays.column_upper.copy()
        slack = TOLERANCE * np.maximum(1.0, np.abs(values))
        if (values < low[self.columns] - slack).any() or (values > high[self.columns] + slack).any():
            return False
        fractional = np.abs(values - np.round(values)) > TOLERANCE
        if (arrays.integrality[self.columns] & fractional).any():
            return False
        low[self.columns] = high[self.columns] = values
        fixed = replace(self.program, arrays=replace(arrays, column_lower=low, column_upper=high))
        return optimise(fixed, Stage("none", np.zeros(len(low)))).status is not Status.INFEASIBLE

    def best(self, direction: Floats) -> Optimum:
        """Maximise a linear function of these columns."""
        return optimise(self.program, Stage("direction", self.program.cost_by(self.columns, direction), maximize=True))

    def text(self, values: Floats) -> str:
        """The values of the columns by name."""
        point = np.zeros(len(self.program.columns.names))
        point[self.columns] = values
        return self.program.describe(point)

    def objection(self, values: Floats) -> str:
        """Why values are not allowed."""
        if not self.whole:
            return f"no values of the other columns of {self.program.name} complete it"
        point = np.empty(len(values))
        point[self.columns] = values
        return "; ".join(violation.text for violation in self.program.violations(point)[:3])


def projections(a: Program, b: Program, on: Any) -> tuple[Projection, Projection]:
    """Project two programs onto the same columns.

    ``on``: columns or families of columns of ``a``, which ``b`` must have as well; all columns when None.
    Raises `AssertionError`: one program lacks a column of the other.
    """
    names = [on] if isinstance(on, str) else list(a.columns.names if on is None else on)
    if not names:
        raise ValueError("expected at least one column or family of columns in `on`")
    first = np.unique(np.concatenate([a.column(name) for name in names]))
    known = {plain(name) for name in b.columns.names}
    for column in first.tolist():
        if plain(a.columns.names[column]) not in known:
            raise AssertionError(f"{b.name} has no column {a.columns.names[column]}, which {a.name} has")
    second = np.array([b.column(a.columns.names[column])[0] for column in first.tolist()])
    seen = range(len(b.columns.names)) if on is None else [j for name in names for j in b.column(name).tolist()]
    mine = {plain(a.columns.names[j]) for j in first.tolist()}
    for column in seen:
        if plain(b.columns.names[column]) not in mine:
            raise AssertionError(f"{a.name} has no column {b.columns.names[column]}, which {b.name} has")
    return Projection(a, first), Projection(b, second)


def difference(a: Projection, b: Projection, directions: int, seed: int) -> str:
    """Where two projections differ; empty when they agree.

    Few integer points are enumerated, which is exact; otherwise the optima in random directions are compared.
    """
    points = _points(a, b)
    if points is not None:
        for values in points[_allowed(a, points) != _allowed(b, points)]:
            return _refused(a, b, values) if a.allows(values) else _refused(b, a, values)
        return ""
    rng = np.random.default_rng(seed)
    for _ in range(directions):
        direction = rng.integers(-5, 6, len(a.columns)).astype(float)
        found, other = a.best(direction), b.best(direction)
        if found.status is other.status and all(same(x, y) for x, y in zip(found.values, other.values, strict=True)):
            continue
        return _apart(a, b, direction, found, other)
    return ""


def _apart(a: Projection, b: Projection, direction: Floats, found: Optimum, other: Optimum) -> str:
    terms = [f"{figure(c)}*{a.program.columns.names[j]}" for c, j in zip(direction, a.columns, strict=True) if c]
    said = f"the largest {' + '.join(terms)} is {found} in {a.program.name} and {other} in {b.program.name}"
    for one, answer, two in ((a, found, b), (b, other, a)):
        if answer.point is not None and not two.allows(values := answer.point[one.columns]):
            said += f"; {_refused(one, two, values)}"
    return said


def _refused(one: Projection, two: Projection, values: Floats) -> str:
    return f"{one.program.name} allows {one.text(values)}, {two.program.name} does not: {two.objection(values)}"


def _points(a: Projection, b: Projection) -> Floats | None:
    """All integer points within the wider bounds of both; None if these are too many or columns are not integer."""
    sides = []
    for each in (a, b):
        arrays = each.program.arrays
        if not arrays.integrality[each.columns].all():
            return None
        sides.append((arrays.column_lower[each.columns], arrays.column_upper[each.columns]))
    low, high = np.minimum(sides[0][0], sides[1][0]), np.maximum(sides[0][1], sides[1][1])
    if not np.isfinite(high - low).all():
        return None
    most = _EVALUATED if a.whole and b.whole else _SOLVED
    if np.log(np.maximum(high - low + 1, 1)).sum() > np.log(most):
        return None
    ranges = [range(int(np.ceil(x)), int(np.floor(y)) + 1) for x, y in zip(low, high, strict=True)]
    return np.array(list(product(*ranges)), np.float64).reshape(-1, len(ranges))


def _allowed(projection: Projection, points: Floats) -> Any:
    """Which of many points a projection allows."""
    if not projection.whole:
        return np.array([projection.allows(values) for values in points], bool)
    arrays = projection.program.arrays
    placed = np.empty_like(points)
    placed[:, projection.columns] = points
    allowed = ((placed >= arrays.column_lower) & (placed <= arrays.column_upper)).all(axis=1)
    activity = (arrays.matrix @ placed.T).T
    slack = TOLERANCE * np.maximum(1.0, np.abs(activity))
    return allowed & ((activity >= arrays.row_lower - slack) & (activity <= arrays.row_upper + slack)).all(axis=1)
