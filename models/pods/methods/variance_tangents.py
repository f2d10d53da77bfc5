"""The least variance of loads in a changed model: tangents of the squares are added at the last answer.

Without it ``balance="deviation"`` of a changed model ends at the bound of the first tangents, up to 12 % below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from fractions import Fraction

import numpy as np

from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import SolveOptions, Status
from flowlex.models.statement.rows_and_objectives import Statement
from flowlex.models.statement.solve_statement import StatementRun, run_statement

#: By what the objective is multiplied for the solver, so that rounded multipliers prove it to less than the tolerance.
_FINER = 1000
#: Denominator of the grid of further points; rounds of adding them; relative gap of variance and bound that counts as
#: zero (the accuracy of squares in programs).
_GRID, _ROUNDS, _MET = 2**16, 40, 1e-6


def with_tangents(
    state: Callable[[Collection[tuple[int, Fraction]]], Statement], options: SolveOptions, start: Floats | None
) -> StatementRun:
    """Solve the statement of the variance repeatedly, with new tangents at the last solution.

    ``state``: returns the changed statement with these tangent points.
    """
    until = math.inf if options.time_limit_s is None else processor_seconds() + options.time_limit_s
    options = replace(options, gap=max(options.gap, 0.5 * _MET))
    points: dict[tuple[int, Fraction], None] = {}
    for _ in range(_ROUNDS):
        left = None if options.time_limit_s is None else max(0.1, until - processor_seconds())
        found = run_statement(_finer(state(points)), replace(options, time_limit_s=left), main="balance", start=start)
        if not found.answered:
            return found
        squared = with_squares(found)
        steps = np.rint(np.cumsum(squared.values["distance"]) * _GRID)  # rounded so that the sum is kept
        new = dict.fromkeys((n, Fraction(int(step), _GRID)) for n, step in enumerate(np.diff(steps, prepend=0.0)))
        if squared.outcome.status is found.outcome.status or {*new} <= {*points} or processor_seconds() > until:
            return squared
        points, start = points | new, squared.outcome.values
    return squared


def _finer(statement: Statement) -> Statement:
    stages = (
        replace(each, expression=each.expression * _FINER, unit=each.unit / _FINER) if each.name == "balance" else each
        for each in statement.stages
    )
    return replace(statement, stages=tuple(stages))


def with_squares(run: StatementRun) -> StatementRun:
    """Return the run with true squares instead of tangents; not optimal if the variance exceeds the bound."""
    statement = run.statement
    assert run.outcome.values is not None
    values = _squared(statement, run.outcome.values)
    stage = statement.stage("balance")
    value, bound = stage.value_of(float(stage.cost(len(values)) @ values)), run.bounds.get("balance")
    outcome = replace(run.outcome, values=values)
    if outcome.status is Status.OPTIMAL and bound is not None and value - bound > 0.9 * _MET * max(1.0, float(value)):
        message = f"the variance is {float(value):g}, at least {float(bound):g}, in squared percent"
        outcome = replace(outcome, status=Status.FEASIBLE, message=message)
    return replace(run, outcome=outcome, stages={**run.stages, "balance": value})


def _squared(statement: Statement, values: Floats) -> Floats:
    """Values with true squares around the mean load, or around the present centre if a change excludes the mean.

    With tangents, several centres may have equal objectives; true squares are minimal around the mean.
    """
    program, arrays = statement.program, statement.program.arrays()
    centre, distance, square = (program.variable_blocks[name].columns for name in ("centre", "distance", "square"))
    matrix, own = arrays.matrix.tocsr(), program.constraint_blocks["distance"].rows
    moved, mean = np.r_[centre, distance], values.copy()
    mean[moved] = 0.0
    loads = (matrix @ mean)[own] / -matrix[[own.start], [centre.start]]
    mean[centre], mean[distance] = loads.mean(), loads - loads.mean()
    mean[square] = mean[distance] ** 2
    added = [program.constraint_blocks[name].rows for name in statement.own if name in program.constraint_blocks]
    activity = matrix @ mean
    holds = _within(mean, arrays.column_lower, arrays.column_upper) and all(
        _within(activity[rows], arrays.row_lower[rows], arrays.row_upper[rows]) for rows in added
    )
    if holds and not any(stage.cost(len(mean))[moved].any() for stage in statement.stages):
        return mean
    values = values.copy()
    values[square] = values[distance] ** 2
    return values


def _within(values: Floats, lower: Floats, upper: Floats) -> bool:
    slack = 1e-7 * np.maximum(1.0, abs(values))
    return bool(((values >= lower - slack) & (values <= upper + slack)).all())
