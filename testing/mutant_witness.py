"""Classify a surviving mutant: it changes the optimum, only the answers, or nothing on these instances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import EngineError, Status
from flowlex.testing.canonical_program import TOLERANCE, Program, Stage, Violation, changed_rows, figure, with_row
from flowlex.testing.feasible_projection import Projection, projections
from flowlex.testing.feasible_set_asserts import has_integer_vertices
from flowlex.testing.staged_optimum import optimise, same

#: Most rows, and most columns, to search for a witness; random directions in search of fractions.
_ROWS, _DIRECTIONS = 60, 10


@dataclass(frozen=True)
class Change:
    """What a mutant changes in one program, and a point that shows it."""

    what: Literal["optimum", "answers", "equivalent"]
    text: str = ""


def judge(before: Program, after: Program, on: Iterable[str] = ()) -> Change:
    """Compare a program with its mutant.

    ``before``, ``after``: the program as it was built, and with the mistake.
    ``on``: columns or families that are answers; the others are auxiliary. All when empty.
    """
    try:
        return _optimum(before, after) or _answers(before, after, tuple(on) or None) or Change("equivalent")
    except EngineError as error:
        return Change("equivalent", f"not decided: {error}")


def _optimum(before: Program, after: Program) -> Change | None:
    found, mutated = optimise(before), optimise(after)
    reached = dict(zip((stage.name for stage in after.stages), mutated.values, strict=False))
    pairs = ((value, reached.get(stage.name)) for stage, value in zip(before.stages, found.values, strict=False))
    if found.status is mutated.status and all(other is None or same(value, other) for value, other in pairs):
        return None
    text = f"the optimum changes: {found} -> {mutated}"
    for point, own, other in ((mutated.point, "the mutant", before), (found.point, "the program", after)):
        if point is not None and (broken := other.violations(point)):
            return Change("optimum", f"{text}; {own} allows {before.describe(point)}: {broken[0].text}")
    point = mutated.point if mutated.point is not None else found.point
    return Change("optimum", text if point is None else f"{text}; witness {before.describe(point)}")


def _answers(before: Program, after: Program, on: tuple[str, ...] | None) -> Change | None:
    """A point that only one of them allows, or an answer that only the mutant calls optimal."""
    seen = projections(before, after, on)
    for wide, narrow, said in ((seen[1], seen[0], "the mutant allows"), (seen[0], seen[1], "the mutant forbids")):
        for point, broken in _outside(wide.program, narrow.program):
            if narrow.whole or not narrow.allows(point[wide.columns]):
                return Change("answers", f"{said} {before.describe(point)}: {broken.text}")
    for stage, optimum in zip(before.stages, optimise(before).values, strict=False):
        worst = optimise(after, *after.stages, replace(stage, maximize=not stage.maximize))
        if worst.point is not None and not same(worst.values[-1], optimum) and _matters(seen[0], worst.point, stage):
            text = f"the mutant calls {before.describe(worst.point)} optimal: {stage.name} {figure(worst.values[-1])}"
            return Change("answers", f"{text}, expected {figure(optimum)}")
    return None


def _matters(before: Projection, point: Floats, stage: Stage) -> bool:
    """Whether no choice of the auxiliary columns makes the point optimal."""
    if before.whole:
        return True
    arrays, chosen = before.program.arrays, before.columns
    low, high = arrays.column_lower.copy(), arrays.column_upper.copy()
    low[chosen] = high[chosen] = point[chosen]
    fixed = replace(before.program, arrays=replace(arrays, column_lower=low, column_upper=high))
    found, best = optimise(fixed, stage), optimise(before.program, stage)
    return found.status is not Status.OPTIMAL or not same(found.values[0], best.values[0])


def _outside(wide: Program, narrow: Program) -> Iterator[tuple[Floats, Violation]]:
    """Points of ``wide`` that violate rows, bounds or integrality which ``narrow`` states differently."""
    for vector, low, high in _differences(wide, narrow):
        for side, maximize in ((high, True), (low, False)):
            point = _beyond(wide, vector, side, maximize) if np.isfinite(side) else None
            if point is not None and (broken := narrow.violations(point)):
                yield point, broken[0]
    lost = np.flatnonzero(narrow.arrays.integrality & ~wide.arrays.integrality)
    if len(lost):
        yield from _fractional(wide, narrow, lost)


def _differences(wide: Program, narrow: Program) -> Iterator[tuple[Floats, float, float]]:
    """Rows and bounds of ``narrow`` that ``wide`` states differently: coefficients, lower and upper side."""
    a, b = wide.arrays, narrow.arrays
    matrix = b.matrix.tocsr()
    for row in changed_rows(a, b)[:_ROWS]:
        yield matrix[[row]].toarray()[0], b.row_lower[row], b.row_upper[row]
    for column in np.flatnonzero((a.column_lower != b.column_lower) | (a.column_upper != b.column_upper))[:_ROWS]:
        yield narrow.cost_by(np.array([column])), b.column_lower[column], b.column_upper[column]


def _beyond(program: Program, vector: Floats, side: float, maximize: bool) -> Floats | None:
    """The point with the largest (smallest) value of a row; if that is unbounded, a point beyond its side."""
    found = optimise(program, Stage("excess", vector, maximize=maximize))
    if found.status is Status.UNBOUNDED:
        sides = (side + 1.0, np.inf) if maximize else (-np.inf, side - 1.0)
        more = replace(program, arrays=with_row(program.arrays, vector, *sides))
        found = optimise(more, Stage("none", np.zeros(len(vector))))
    return found.point


def _fractional(wide: Program, narrow: Program, lost: Integers) -> Iterator[tuple[Floats, Violation]]:
    """Optimal points with fractions, unless total unimodularity excludes them."""
    if not wide.arrays.integrality.any() and has_integer_vertices(wide):
        return
    rng, count = np.random.default_rng(0), len(wide.columns.names)
    random = (Stage("random", rng.integers(-5, 6, count).astype(float)) for _ in range(_DIRECTIONS))
    for stages in (wide.stages, *((stage,) for stage in random)):
        point = optimise(wide, *stages).point
        if point is not None and (np.abs(point[lost] - np.round(point[lost])) > TOLERANCE).any():
            yield point, narrow.violations(point)[0]
