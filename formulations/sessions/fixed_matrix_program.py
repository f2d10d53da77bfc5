"""A linear program in HiGHS whose bounds and costs change while its matrix stays.

Every solve starts from the last basis. If only bounds changed, that basis is still dual feasible and the dual simplex
method continues from it; presolve would discard it. Costs are mostly 0 and 1, so very many bases are equally good:
costs are perturbed more than by HiGHS's default, and restored at the end of every solve.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from flowlex.formulations.engines.highs import configured, outcome_of, pass_model, run
from flowlex.formulations.program_arrays import Floats, LinearProgramArrays
from flowlex.formulations.solver_outcome import Outcome, SolveOptions, Status

#: Multiple of HiGHS's own cost perturbation (levels of 70 VGG16 jobs: 3.3 s instead of 4.6; 200 times gave no more).
_PERTURBATION = 20.0


class BoundedProgram:
    """A program whose bounds and costs may change (see the module).

    ``arrays``: the program; a minimisation without integers. ``options``: of every solve, their time limit apart.
    ``left``: seconds that the next solve may take; None where there is no limit.
    """

    def __init__(
        self, arrays: LinearProgramArrays, options: SolveOptions, left: Callable[[], float | None] = lambda: None
    ) -> None:
        self._arrays, self._left = arrays, left
        self._highs = configured(replace(options, time_limit_s=None), "simplex", is_mip=False)
        self._highs.setOptionValue("presolve", "off")
        self._highs.setOptionValue("dual_simplex_cost_perturbation_multiplier", _PERTURBATION)
        pass_model(self._highs, arrays)

    def solve(self, cost: Floats, columns: tuple[Floats, Floats], rows: tuple[Floats, Floats]) -> Outcome:
        """Minimise a cost within lower and upper bounds of columns and of rows."""
        started = time.perf_counter()
        left = self._left()
        if left is not None and left <= 0.01:
            return Outcome(Status.TIME_LIMIT, "highs", message="time ran out")
        solver, arrays = self._highs, self._arrays
        every, each = np.arange(len(cost), dtype=np.int32), np.arange(len(rows[0]), dtype=np.int32)
        if (cost != arrays.cost).any():
            solver.changeColsCost(len(cost), every, cost)
        solver.changeColsBounds(len(cost), every, *columns)
        solver.changeRowsBounds(len(each), each, *rows)
        (column_lower, column_upper), (row_lower, row_upper) = columns, rows
        self._arrays = replace(
            arrays,
            cost=cost,
            column_lower=column_lower,
            column_upper=column_upper,
            row_lower=row_lower,
            row_upper=row_upper,
        )
        if left is not None:
            solver.setOptionValue("time_limit", solver.getRunTime() + left)
        run(solver)
        outcome = outcome_of(solver, self._arrays, "highs", "simplex", time.perf_counter() - started)
        if outcome.status in (Status.ERROR, Status.UNBOUNDED):  # a bad basis: try again without it
            solver.clearSolver()
            run(solver)
            outcome = outcome_of(solver, self._arrays, "highs", "simplex", time.perf_counter() - started)
        return outcome
