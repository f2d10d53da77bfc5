"""Column generation for linear programs with too many columns to write down.

A restricted master program stays in HiGHS with its basis. After each solve a pricing function gets the row duals. It
searches all columns without building them, and returns columns to add and a bound of the full program that these
duals prove. If value and bound meet, or there is no column to add, the restricted optimum is optimal for all columns.

Source: Gilmore and Gomory (1961); the bound of Farley and Lasdon makes the duals feasible for every column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import highspy
import numpy as np
import scipy

from flowlex.formulations.engines.highs import quiet, run
from flowlex.formulations.highs_adapter import to_highs
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats, LinearProgramArrays
from flowlex.formulations.solver_outcome import EngineError, Status

#: Primal simplex: the last answer stays feasible when columns are added.
_PRIMAL = 4


@dataclass(frozen=True, eq=False)
class Priced:
    """What a pricing function returns."""

    #: (k,) objective coefficients and (rows, k) coefficients of columns to add, from 0 up without bound; none: k = 0.
    cost: Floats
    matrix: scipy.sparse.csc_array
    bound: float  # no answer of the whole program is better than this


@dataclass(frozen=True, eq=False)
class Generated:
    """The outcome of column generation."""

    status: Status  # ``optimal``, that of the restricted program if it has no answer, or ``time_limit``
    #: Of the first columns, then those that were added, in order; of the rows. Empty without answer.
    values: Floats
    duals: Floats
    #: Of the restricted program; the best bound proven for the whole program.
    objective: float
    bound: float
    rounds: int  # programs solved


def generate_columns(
    first: LinearProgramArrays,
    price: Callable[[Floats], Priced],
    *,
    gap: float = 1e-9,
    time_limit_s: float | None = None,
    seed: int = 0,
    log: bool = False,
    max_rounds: int = 10_000,
) -> Generated:
    """Solve a linear program by column generation.

    ``first``: the restricted program to begin with; it must have an answer.
    ``price``: from (rows,) duals to columns to add and a bound; it never returns a column twice.
    ``gap``: stop when bound and value are within ``gap * max(1, |value|)``.
    Raises `EngineError`: HiGHS fails on a restricted program, or there are more than ``max_rounds``.
    """
    began, sign = processor_seconds(), 1.0 if first.maximize else -1.0
    highs = quiet(threads=1, random_seed=seed, output_flag=log)
    highs.passModel(to_highs(first, "restricted", (), ()))
    best = np.inf
    for rounds in range(1, max_rounds + 1):
        left = np.inf if time_limit_s is None else time_limit_s - (processor_seconds() - began)
        if left <= 0:
            return Generated(Status.TIME_LIMIT, np.zeros(0), np.zeros(0), np.nan, sign * best, rounds)
        if not run(highs):
            raise EngineError("HiGHS failed on a restricted program; solve it with all columns")
        if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            infeasible = highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible
            status = Status.INFEASIBLE if infeasible else Status.ERROR
            return Generated(status, np.zeros(0), np.zeros(0), np.nan, sign * np.inf, rounds)
        solution, value = highs.getSolution(), float(highs.getInfo().objective_function_value)
        duals = np.array(solution.row_dual)
        priced = price(duals)
        best = min(best, sign * priced.bound)
        if not len(priced.cost) or best - sign * value <= gap * max(1.0, abs(value)):
            return Generated(Status.OPTIMAL, np.array(solution.col_value), duals, value, sign * best, rounds)
        _add(highs, priced)
        highs.setOptionValue("simplex_strategy", _PRIMAL)
    raise EngineError(f"column generation did not end in {max_rounds} rounds; solve the program with all columns")


def _add(highs: highspy.Highs, priced: Priced) -> None:
    k, matrix = len(priced.cost), priced.matrix
    highs.addCols(
        k,
        priced.cost,
        np.zeros(k),
        np.full(k, highspy.kHighsInf),
        matrix.nnz,
        matrix.indptr[:-1].astype(np.int32),
        matrix.indices.astype(np.int32),
        matrix.data,
    )
