"""The least variance of loads in a changed model: tangents of the squares are added at the last answer.

Without it ``balance="deviation"`` of a changed model ends at the bound of the first tangents, up to 12 % below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from fractions import Fraction

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.language.program_conversion import flat_program
from flowlex.formulations.language.statement import Statement
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import SolveOptions, Status
from flowlex.models.pods.problem.stage_programs import touching
from flowlex.models.problem import Problem
from flowlex.models.problem_solution import ProblemSolution, StageAnswers, plain_number
from flowlex.validation.proofs.checker import Checker
from flowlex.validation.proofs.exact_program import Exact

#: Rounds of adding tangents; relative gap of variance and bound that counts as zero (the accuracy of squares in
#: programs).
_ROUNDS, _MET = 40, 1e-6


def with_tangents(
    state: Callable[[Collection[tuple[int, Fraction]]], Problem],
    own: Collection[str],
    options: SolveOptions,
    start: Floats | None,
    certify: bool,
    first: Collection[tuple[int, Fraction]] = (),
) -> ProblemSolution:
    """Solve the problem of the variance repeatedly, with new tangents at the last solution.

    ``state``: returns the changed problem with these tangent points, first with ``first``. ``own``: names of rows that
    changes added.
    """
    until = math.inf if options.time_limit_s is None else processor_seconds() + options.time_limit_s
    options = replace(options, gap=max(options.gap, 0.5 * _MET))

    def left() -> SolveOptions:
        limited = options.time_limit_s is not None
        return replace(options, time_limit_s=max(0.1, until - processor_seconds()) if limited else None)

    points = dict.fromkeys(first)
    for _ in range(_ROUNDS):
        found = state(points).solve_with(left(), certify=certify, leaves=not certify, first=start, strong=False)
        if found.numbers is None:
            return found
        squared = with_squares(found, own)
        assert squared.numbers is not None
        distance = squared.numbers[squared.problem.blocks["distance"].columns]
        new = dict.fromkeys(touching(distance))
        if squared.status is found.status or {*new} <= {*points} or processor_seconds() > until:
            return squared
        points, start = points | new, squared.numbers
        before = {name: stage.exact[0] for name, stage in found.stages.items()}
        while processor_seconds() <= until:  # the balance alone, without proof, is solved in a moment
            problem = state(points)
            outcome = solve(flat_program(problem.alone("balance", before), 0), "highs", left())
            if outcome.values is None:
                break
            distance = outcome.values[problem.blocks["distance"].columns]
            new = dict.fromkeys(touching(distance - distance.mean()))
            if {*new} <= {*points} or len(points) > 40 * len(distance):
                break
            short = float((distance**2).mean()) - float(outcome.objective or 0.0)
            points |= new
            if short <= 0.5 * _MET:
                break
    return squared


def with_squares(found: ProblemSolution, own: Collection[str]) -> ProblemSolution:
    """Return the solution with true squares instead of tangents; not optimal if the variance exceeds the bound."""
    assert found.numbers is not None and found.program is not None
    values = _squared(found.problem, found.numbers, own)
    exact = Exact.of_floats(np.where(found.program.integer, np.rint(values), values))
    checker = Checker(found.program)
    stages = StageAnswers(found.stages)
    for objective in found.program.objectives:
        before = found.stages[objective.name]
        value = checker.value(objective, exact)
        stages[objective.name] = replace(before, value=plain_number(value), exact=(value, before.exact[1]))
    value, bound = stages["balance"].exact
    squared = replace(found, numbers=exact.floats, exact=exact, stages=stages)
    if found.status is Status.OPTIMAL:
        if bound is not None and value - bound > 0.9 * _MET * max(1.0, float(value)):
            message = f"the variance is {float(value):g}, at least {float(bound):g}, in squared percent"
            return replace(squared, status=Status.FEASIBLE, message=message)
        squared = replace(squared, certificate=None)  # optimal within what the model allows; the verifier judges it
    return squared


def _squared(problem: Statement, values: Floats, own: Collection[str]) -> Floats:
    """Values with true squares around the mean load, or around the present centre if a change excludes the mean.

    With tangents, several centres may have equal objectives; true squares are minimal around the mean.
    """
    program = flat_program(problem, None)
    arrays = program.arrays()
    centre, distance, square = (program.variable_blocks[name].columns for name in ("centre", "distance", "square"))
    matrix, rows = arrays.matrix.tocsr(), program.constraint_blocks["distance"].rows
    moved, mean = np.r_[centre, distance], values.copy()
    mean[moved] = 0.0
    loads = (matrix @ mean)[rows] / -matrix[[rows.start], [centre.start]]
    mean[centre], mean[distance] = loads.mean(), loads - loads.mean()
    mean[square] = mean[distance] ** 2
    added = [program.constraint_blocks[name].rows for name in own if name in program.constraint_blocks]
    activity = matrix @ mean
    holds = _within(mean, arrays.column_lower, arrays.column_upper) and all(
        _within(activity[rows], arrays.row_lower[rows], arrays.row_upper[rows]) for rows in added
    )
    if holds and not any(objective.cost(len(mean))[moved].any() for objective in problem.objectives):
        return mean
    values = values.copy()
    values[square] = values[distance] ** 2
    return values


def _within(values: Floats, lower: Floats, upper: Floats) -> bool:
    slack = 1e-7 * np.maximum(1.0, abs(values))
    return bool(((values >= lower - slack) & (values <= upper + slack)).all())
