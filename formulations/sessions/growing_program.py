"""A program in HiGHS that gains rows and columns and changes its costs, for column generation.

Only plain data goes in and out; a linear program is solved again from its last basis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import ArrayLike

from flowlex.formulations.engines.highs import quiet, run
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import Status

INFINITY = float(highspy.kHighsInf)
_STATUS = {
    highspy.HighsModelStatus.kOptimal: Status.OPTIMAL,
    highspy.HighsModelStatus.kInfeasible: Status.INFEASIBLE,
    highspy.HighsModelStatus.kUnboundedOrInfeasible: Status.INFEASIBLE,
    highspy.HighsModelStatus.kTimeLimit: Status.TIME_LIMIT,
    highspy.HighsModelStatus.kIterationLimit: Status.TIME_LIMIT,
    highspy.HighsModelStatus.kInterrupt: Status.TIME_LIMIT,
    highspy.HighsModelStatus.kSolutionLimit: Status.TIME_LIMIT,
}


@dataclass(frozen=True)
class Round:
    """One solve."""

    # ``optimal`` also when an integer program stopped at the gap that was asked for; ``error`` when HiGHS failed
    status: Status
    # Minus infinity as a bound when there is none
    objective: float
    bound: float
    # (columns,), (rows,); None without an answer, and no duals of integer programs
    values: Floats | None
    duals: Floats | None


class GrowingProgram:
    """A minimisation; columns and rows are numbered in the order in which they are added.

    ``primal`` selects the primal simplex method: the last answer stays feasible when only columns are added.
    """

    def __init__(self, *, seed: int = 0, primal: bool = False) -> None:
        self._highs = quiet(random_seed=seed, threads=1)
        if primal:
            self._highs.setOptionValue("simplex_strategy", 4)
        self._mip = False

    def use_interior(self) -> None:
        """Use the interior point method from now on: after many new columns the last basis is no help."""
        self._highs.setOptionValue("solver", "ipm")

    @property
    def columns(self) -> int:
        """Number of columns."""
        return int(self._highs.getNumCol())

    def add_column(
        self,
        cost: float,
        upper: float = INFINITY,
        *,
        rows: Sequence[int] = (),
        values: Sequence[float] = (),
        integer: bool = False,
    ) -> int:
        """Add a column with its coefficients in rows that exist; return its number."""
        index = np.asarray(rows, np.int32)
        self._highs.addCol(cost, 0.0, upper, len(index), index, np.asarray(values, np.float64))
        if integer:
            self._mip = True
            self._highs.changeColIntegrality(self.columns - 1, highspy.HighsVarType.kInteger)
        return self.columns - 1

    def add_row(self, lower: float, upper: float, columns: Sequence[int] = (), values: Sequence[float] = ()) -> int:
        """Add a row over columns that exist; return its number."""
        index = np.asarray(columns, np.int32)
        self._highs.addRow(lower, upper, len(index), index, np.asarray(values, np.float64))
        return int(self._highs.getNumRow()) - 1

    def set_cost(self, columns: Sequence[int], costs: ArrayLike) -> None:
        """Change objective coefficients."""
        for column, cost in zip(columns, np.asarray(costs, np.float64).tolist(), strict=True):
            self._highs.changeColCost(column, cost)

    def solve(
        self,
        *,
        time_limit_s: float | None = None,
        gap: float = 0.0,
        absolute_gap: float = 0.0,
        max_nodes: int | None = None,
        max_iterations: int | None = None,
    ) -> Round:
        """Minimise from the last basis; ``max_nodes`` limits the search tree of an integer program.

        ``max_iterations`` stops the simplex method (status ``time_limit``); its last point may violate rows slightly.
        """
        if max_iterations is not None:
            self._highs.setOptionValue("simplex_iteration_limit", max_iterations)
            self._highs.setOptionValue("presolve", "off")  # so that the last point is in these columns
        self._highs.setOptionValue("mip_max_nodes", 2**31 - 1 if max_nodes is None else max_nodes)
        limit = INFINITY if time_limit_s is None else self._highs.getRunTime() + max(0.01, time_limit_s)
        self._highs.setOptionValue("time_limit", limit)
        self._highs.setOptionValue("mip_rel_gap", gap)
        self._highs.setOptionValue("mip_abs_gap", max(absolute_gap, 1e-9))
        failed = not run(self._highs)
        if failed:  # after presolve HiGHS may find its own answer infeasible by rounding
            self._highs.setOptionValue("presolve", "off")
            failed = not run(self._highs)
            self._highs.setOptionValue("presolve", "choose")
        if failed:
            return Round(Status.ERROR, math.inf, -math.inf, None, None)  # proves nothing, and claims nothing
        status = _STATUS.get(self._highs.getModelStatus(), Status.ERROR)
        info, solution = self._highs.getInfo(), self._highs.getSolution()
        feasible = info.primal_solution_status == 2 or max_iterations is not None
        values = np.array(solution.col_value) if feasible else None
        objective = float(info.objective_function_value) if feasible else math.inf
        if self._mip:
            return Round(status, objective, float(info.mip_dual_bound), values, None)
        duals = np.array(solution.row_dual) if status is Status.OPTIMAL else None
        return Round(status, objective, objective if status is Status.OPTIMAL else -math.inf, values, duals)
