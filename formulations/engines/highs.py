"""HiGHS through its array interface: the whole model in one call, and plain data back."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache

import highspy
import numpy as np

from flowlex.formulations.engines.exact_integers import check_floats, in_integers
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats, LinearProgramArrays
from flowlex.formulations.solver_outcome import EngineError, Outcome, SolveOptions, Status

#: HiGHS drops coefficients up to this size. Its default is kept where nothing is that small: with another value, the
#: simplex method of HiGHS 1.15 ends some infeasible programs without a verdict (klein1, vol1).
SMALLEST = 1e-12
_SMALLEST_BY_DEFAULT = 1e-9
#: HiGHS refuses coefficients from this size on.
LARGEST = 1e15
#: A coefficient of a continuous column may be dropped if it changes its row by no more, as solvers tolerate far more.
_NOTHING = 1e-10

#: HiGHS presolve_rule_off: do not search for dependent equations. A network has one for each of its components;
#: finding them takes longer than the solve, and the simplex method then needs more iterations (benchmarks/).
_NO_DEPENDENT_EQUATIONS = 2**10

_STATUS = {
    highspy.HighsModelStatus.kOptimal: Status.OPTIMAL,
    highspy.HighsModelStatus.kModelEmpty: Status.OPTIMAL,
    highspy.HighsModelStatus.kInfeasible: Status.INFEASIBLE,
    highspy.HighsModelStatus.kUnbounded: Status.UNBOUNDED,
    highspy.HighsModelStatus.kTimeLimit: Status.TIME_LIMIT,
    highspy.HighsModelStatus.kInterrupt: Status.TIME_LIMIT,
    highspy.HighsModelStatus.kIterationLimit: Status.TIME_LIMIT,
    highspy.HighsModelStatus.kSolutionLimit: Status.TIME_LIMIT,
}
_ITERATION_LIMITS = ("simplex_iteration_limit", "ipm_iteration_limit", "pdlp_iteration_limit")
_FEASIBLE_POINT = 2  # HiGHS: kSolutionStatusFeasible
#: An integer optimum whose relative gap to the bound is larger is not proven (HiGHS's own feasibility tolerance).
_PROVEN = 1e-6


def solve_with_highs(formulation: LinearProgram | FlowNetwork, options: SolveOptions) -> Outcome:
    """Solve a formulation with HiGHS; a network's answer comes in exact integers."""
    if isinstance(formulation, LinearProgram):
        try:
            return solve_arrays(formulation.arrays(), options)
        except CoefficientError as error:
            row, column, _ = error.found
            names = formulation.row_names()[row], formulation.column_names()[column]
            raise CoefficientError(*names, error.found) from None
    started = time.perf_counter()
    check_floats(formulation)
    return in_integers(formulation, solve_arrays(formulation.arrays(), options), started)


def solve_arrays(arrays: LinearProgramArrays, options: SolveOptions, engine: str = "highs") -> Outcome:
    """Solve solver arrays; values, duals and reduced costs are in the problem's own direction."""
    started = time.perf_counter()
    algorithm = choose_algorithm(arrays, options)
    solver = configured(options, algorithm, is_mip=arrays.is_mip)
    if _is_network(arrays):
        solver.setOptionValue("presolve_rule_off", _NO_DEPENDENT_EQUATIONS)
    pass_model(solver, arrays)
    run(solver)
    outcome = outcome_of(solver, arrays, engine, algorithm, time.perf_counter() - started)
    ray = outcome.status is Status.UNBOUNDED and arrays.is_mip  # of the relaxation only
    # Presolve of HiGHS 1.15 calls some unbounded programs infeasible (tests/formulations: seed 3111).
    hasty = outcome.status is Status.INFEASIBLE and outcome.iterations == 0 and arrays.cost.any()
    if not ray and not hasty and solver.getModelStatus() != highspy.HighsModelStatus.kUnboundedOrInfeasible:
        return outcome
    # Infeasible or unbounded: a run without objective decides.
    answer = solve_arrays(replace(arrays, cost=np.zeros_like(arrays.cost), offset=0.0), options, engine)
    verdict = answer.status if not answer.status.has_answer else Status.UNBOUNDED
    seconds = time.perf_counter() - started
    return replace(outcome, status=verdict, message=str(verdict).capitalize(), seconds=seconds)


def run(solver: highspy.Highs) -> bool:
    """Run HiGHS; return whether it succeeded. Retry once, since it fails if an earlier run used other ``threads``."""
    if solver.run() != highspy.HighsStatus.kError:
        return True
    highspy.Highs.resetGlobalScheduler(True)
    return bool(solver.run() != highspy.HighsStatus.kError)


def choose_algorithm(arrays: LinearProgramArrays, options: SolveOptions) -> str:
    """Return the requested HiGHS algorithm; "auto" is the dual simplex method, in integer programs HiGHS's choice.

    At 100 000 columns the dual simplex took 0.3 s of processor time for a relaxed assignment and 2.7 s for lots with
    stock, HiPO 7.0 and 8.1 s, the older interior-point method no less. On networks with 32 000 arcs it was 7 times
    faster than interior-point methods with or without crossover, 20 times faster than the primal simplex, and as fast
    as PDLP, which is inexact; at 220 000 arcs 3.5 s, while HiPO and PDLP took over 30 s.
    """
    if options.algorithm == "hipo" and not _has_hipo():
        raise EngineError("this HiGHS has no HiPO solver; install highspy[extras] or choose another algorithm")
    if arrays.is_mip and options.algorithm == "pdlp":
        raise EngineError("algorithm 'pdlp' cannot solve the relaxations of an integer program; choose another")
    if options.algorithm != "auto":
        return options.algorithm
    return "choose" if arrays.is_mip else "simplex"


def _is_network(arrays: LinearProgramArrays) -> bool:
    """Whether every column has at most one +1 and one -1, as those of a flow network have."""
    matrix = arrays.matrix
    if (np.diff(matrix.indptr) > 2).any() or (np.abs(matrix.data) != 1).any():
        return False
    return bool((np.abs(matrix.sum(axis=0)) <= 1).all())


def quiet(**settings: bool | float | str) -> highspy.Highs:
    """A HiGHS solver without a log."""
    solver = highspy.Highs()
    for key, value in {"output_flag": False, "small_matrix_value": SMALLEST, **settings}.items():
        if solver.setOptionValue(key, value) != highspy.HighsStatus.kOk:
            raise EngineError(f"HiGHS refuses option {key}={value!r}")
    return solver


@lru_cache(maxsize=1)
def _has_hipo() -> bool:
    return bool(quiet().setOptionValue("solver", "hipo") == highspy.HighsStatus.kOk)


def configured(options: SolveOptions, algorithm: str, *, is_mip: bool) -> highspy.Highs:
    """A HiGHS solver with the options of a solve."""
    settings: dict[str, bool | float | str] = {
        "output_flag": options.log,
        "random_seed": options.seed,
        "mip_rel_gap": options.gap,
        "mip_abs_gap": 1e-9,
        # In HiGHS, "solver" drops the integrality of an integer program: choose the solver of its relaxations instead.
        "mip_lp_solver" if is_mip else "solver": algorithm,
    }
    if options.threads is not None:
        settings["threads"] = options.threads
    if options.time_limit_s is not None:
        settings["time_limit"] = float(options.time_limit_s)
    if options.max_steps is not None:
        steps = min(options.max_steps, 2**31 - 1)
        settings |= {"mip_max_nodes": steps} if is_mip else dict.fromkeys(_ITERATION_LIMITS, steps)
    return quiet(**settings)


def pass_model(solver: highspy.Highs, arrays: LinearProgramArrays) -> None:
    """Hand HiGHS the whole program in one call, as a minimisation."""
    matrix = arrays.matrix
    keep_small(solver, matrix.data)
    if (found := out_of_range(arrays)) is not None:
        raise CoefficientError(f"row number {found[0]}", f"column number {found[1]}", found)
    sign = -1.0 if arrays.maximize else 1.0  # always minimise, so that duals have one sign convention
    if arrays.matrix.nnz > np.iinfo(np.int32).max:
        raise EngineError(f"HiGHS holds at most 2**31 - 1 nonzeros, this program has {arrays.matrix.nnz}")
    status = solver.passModel(
        len(arrays.cost),
        len(arrays.row_lower),
        matrix.nnz,
        int(highspy.MatrixFormat.kColwise),
        int(highspy.ObjSense.kMinimize),
        sign * arrays.offset,
        sign * arrays.cost,
        arrays.column_lower,
        arrays.column_upper,
        arrays.row_lower,
        arrays.row_upper,
        matrix.indptr.astype(np.int32),
        matrix.indices.astype(np.int32),
        matrix.data.astype(np.float64, copy=False),
        arrays.integrality.astype(np.int32),
    )
    if status == highspy.HighsStatus.kError:
        raise EngineError("HiGHS refuses the model; check its bounds, sides and costs for numbers beyond 1e20")


class CoefficientError(EngineError):
    """A coefficient that HiGHS refuses or takes for 0; ``found``: its row, its column and its value."""

    def __init__(self, row: str, column: str, found: tuple[int, int, float]) -> None:
        self.found = found
        size = "large" if abs(found[2]) > 1 else "small"
        super().__init__(
            f"{row}: the coefficient {found[2]:g} of {column} is too {size} for a solver, in any units; "
            "state amounts whose sizes are closer"
        )


def out_of_range(arrays: LinearProgramArrays) -> tuple[int, int, float] | None:
    """Row, column and value of a coefficient that HiGHS refuses or drops although it matters; None: there is none."""
    size = np.abs(arrays.matrix.data)
    wrong = np.flatnonzero((size >= LARGEST) | ((size <= SMALLEST) & (size > 0)))
    if not len(wrong):
        return None
    column = np.searchsorted(arrays.matrix.indptr, wrong, "right") - 1
    reach = np.maximum(np.abs(arrays.column_lower), np.abs(arrays.column_upper))[column]
    large = (size[wrong] >= LARGEST) | (size[wrong] * reach > _NOTHING)
    matters = np.flatnonzero(large | arrays.integrality[column])
    if not len(matters):
        return None
    k, at = int(wrong[matters[0]]), int(column[matters[0]])
    return int(arrays.matrix.indices[k]), at, float(arrays.matrix.data[k])


def keep_small(solver: highspy.Highs, *coefficients: Floats) -> None:
    """Let HiGHS keep the smallest of these coefficients, and be as by default if none is small."""
    small = any(((np.abs(v) <= _SMALLEST_BY_DEFAULT) & (v != 0)).any() for v in coefficients)
    solver.setOptionValue("small_matrix_value", SMALLEST if small else _SMALLEST_BY_DEFAULT)


def _zero_is_feasible(arrays: LinearProgramArrays) -> bool:
    """Whether the rows allow zero; HiGHS reports a program without columns as empty and ignores its rows."""
    return bool((arrays.row_lower <= 0).all() and (arrays.row_upper >= 0).all())


def outcome_of(
    solver: highspy.Highs, arrays: LinearProgramArrays, engine: str, algorithm: str, seconds: float
) -> Outcome:
    """Convert the result of a HiGHS run to an outcome in the problem's own direction."""
    model_status = solver.getModelStatus()
    status = _STATUS.get(model_status, Status.ERROR)
    info = solver.getInfo()
    sign = -1.0 if arrays.maximize else 1.0
    iterations = int(info.simplex_iteration_count + max(info.ipm_iteration_count, 0))
    message = str(solver.modelStatusToString(model_status))
    if status is Status.TIME_LIMIT and info.primal_solution_status == _FEASIBLE_POINT:
        status = Status.FEASIBLE
    if model_status == highspy.HighsModelStatus.kModelEmpty and not _zero_is_feasible(arrays):
        status, message = Status.INFEASIBLE, "Infeasible"
    common = {"engine": engine, "algorithm": algorithm, "iterations": iterations, "seconds": seconds}
    if not status.has_answer:
        return Outcome(status, message=message, **common)  # type: ignore[arg-type]
    solution = solver.getSolution()
    values = np.array(solution.col_value)
    objective = float(arrays.cost @ values) + arrays.offset
    bound: float | None = objective if status is Status.OPTIMAL else None
    duals = reduced = None
    if arrays.is_mip:
        bound = sign * float(info.mip_dual_bound)
        if status is Status.OPTIMAL and abs(objective - bound) > _PROVEN * max(1.0, abs(objective)):
            status = Status.FEASIBLE  # HiGHS reports optimal when it stops at the requested gap
    elif solution.dual_valid and status is Status.OPTIMAL:
        duals = sign * np.array(solution.row_dual)
        reduced = sign * np.array(solution.col_dual)
    return Outcome(
        status,
        objective=objective,
        bound=bound if bound is not None and np.isfinite(bound) else None,
        values=values,
        duals=duals,
        reduced_costs=reduced,
        message=message,
        **common,  # type: ignore[arg-type]
    )
