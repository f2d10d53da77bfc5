"""Scale the coefficients of a linear program to at most about 1, and scale its answer back.

Solvers check rows and duals with absolute tolerances, so every answer satisfies a row of coefficients near 1e-13.
Factors are powers of two: nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import Outcome

#: Scaled coefficients below this become zero: solvers drop them as well.
_DUST = 1e-9
#: In a row's geometric mean, the smallest coefficient counts as at least this fraction of the largest.
_SPREAD = 1e-6
#: A row that demands a positive amount is scaled by that amount, or this fraction of its largest coefficient if larger.
_LEAST = 1e-8
#: Scaled right-hand sides are clipped to this; coefficients of 1 and fractions of time cannot reach it.
_FAR = 1e15


@dataclass(frozen=True, eq=False)
class Scales:
    """Factors of (m,) rows, (n,) columns and the objective; the scaled matrix is ``row[:, None] * A * column``."""

    row: Floats
    column: Floats
    objective: float

    def restored(self, outcome: Outcome) -> Outcome:
        """Convert an outcome of the scaled program to one of the original program."""
        values, duals, reduced = outcome.values, outcome.duals, outcome.reduced_costs
        found = outcome.infeasibility
        if found is not None and found.farkas is not None:
            found = replace(found, farkas=found.farkas * self.row)
        return replace(
            outcome,
            objective=None if outcome.objective is None else outcome.objective / self.objective,
            bound=None if outcome.bound is None else outcome.bound / self.objective,
            values=None if values is None else values * self.column,
            duals=None if duals is None else duals * self.row / self.objective,
            reduced_costs=None if reduced is None else reduced / self.column / self.objective,
            infeasibility=found,
        )


def scale_program(program: LinearProgram, free: tuple[str, ...] = ()) -> tuple[LinearProgram, Scales]:
    """Scale rows, the columns named ``free`` and the objective; other columns keep their unit.

    ``free``: names of variables that have no unit of their own, bounded by 0 or nothing. Rows are scaled without them.
    """
    loose = np.zeros(program.column_count, bool)
    for name in free:
        loose[program.variable_blocks[name].columns] = True
    row = np.ones(program.row_count)
    largest = np.zeros(program.column_count)
    for block in program.constraint_blocks.values():
        terms = block.expression
        size = np.abs(terms.value)
        unit = _middle(terms.row, np.where(loose[terms.column], 0.0, size), block.count)
        if not loose[terms.column].any():
            largest_in = np.zeros(block.count)
            np.maximum.at(largest_in, terms.row, size)
            asked = (block.relation == ">=") & (block.rhs > 0)
            unit = np.where(asked, np.maximum(block.rhs, _LEAST * largest_in), unit)
        factor = 1 / _power(unit)
        row[block.rows] = factor
        np.maximum.at(largest, terms.column, size * factor[terms.row])
    column = np.where(loose, 1 / _power(largest), 1.0)
    goal = program.objective
    objective = float(1 / _power(np.abs(goal.value * column[goal.column]).max(initial=0.0)))
    scales = Scales(row, column, objective)
    return _rewritten(program, scales), scales


def _middle(row: Integers, size: Floats, count: int) -> Floats:
    """Geometric mean of the largest and the smallest coefficient of each row."""
    most, least = np.zeros(count), np.full(count, np.inf)
    np.maximum.at(most, row, size)
    np.minimum.at(least, row[size > 0], size[size > 0])
    return np.asarray(np.sqrt(most) * np.sqrt(np.maximum(np.minimum(least, most), _SPREAD * most)))


def _power(size: Floats) -> Floats:
    """The power of two nearest to each number; 1 for 0."""
    return np.asarray(np.exp2(np.round(np.log2(np.where(size > 0, size, 1.0)))))


def _rewritten(program: LinearProgram, scales: Scales) -> LinearProgram:
    scaled = program.copy()
    for name, block in program.constraint_blocks.items():
        factor, terms = scales.row[block.rows], block.expression
        value = terms.value * factor[terms.row] * scales.column[terms.column]
        value = np.where(np.abs(value) < _DUST, 0.0, value)
        expression = Expression(terms.row, terms.column, value, terms.constant)
        side = np.clip(block.rhs * factor, -_FAR, _FAR)
        scaled.constraint_blocks[name] = replace(block, expression=expression, rhs=side)
    goal = program.objective
    value = goal.value * scales.column[goal.column] * scales.objective
    goal = Expression(goal.row, goal.column, value, goal.constant * scales.objective)
    (scaled.maximize if program.maximizing else scaled.minimize)(goal)
    return scaled
