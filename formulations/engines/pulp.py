"""PuLP as an engine, with its traps handled (for names and signs see `flowlex.formulations.solver_conversion`).

* A run stopped by its time limit reads ``Optimal`` in ``status``: we read ``sol_status``.
* PuLP drops unknown solver options silently: options are typed and mapped one by one.
* An integer program's ``pi`` is 0.0: integer programs have no duals here.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pulp

from flowlex.formulations.engines.exact_integers import check_floats, in_integers
from flowlex.formulations.engines.highs import solve_arrays
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import LinearProgramArrays
from flowlex.formulations.solver_conversion import from_pulp, to_pulp
from flowlex.formulations.solver_outcome import EngineError, Outcome, SolveOptions, Status

_STATUS = {
    pulp.LpSolutionOptimal: Status.OPTIMAL,
    pulp.LpSolutionIntegerFeasible: Status.FEASIBLE,
    pulp.LpSolutionInfeasible: Status.INFEASIBLE,
    pulp.LpSolutionUnbounded: Status.UNBOUNDED,
    pulp.LpSolutionNoSolutionFound: Status.TIME_LIMIT,
}
#: Options that PuLP's solvers take by name.
_BY_NAME = {"time_limit_s", "gap", "threads", "log", "solver"}


def solve_with_pulp(formulation: LinearProgram | FlowNetwork, options: SolveOptions) -> Outcome:
    """Compile to PuLP and solve there, with HiGHS or with ``options.solver``."""
    started = time.perf_counter()
    if isinstance(formulation, FlowNetwork):
        check_floats(formulation)
    solver, arrays = asked_solver(options), formulation.arrays()
    names = formulation.column_names(), formulation.row_names()
    # Other solvers always minimise, so that duals have one sign; HiGHS gets the problem unchanged.
    if solver is not None and arrays.is_mip and not solver.mip:
        raise EngineError(f"solver {solver.name!r} has mip=False, which drops the integer requirements; leave it out")
    problem, variables = to_pulp(arrays, formulation.name, *names, minimizing=solver is not None)
    if solver is None:
        outcome = solve_arrays(from_pulp(problem, variables), options, engine="pulp")
    else:
        outcome = _solve_elsewhere(problem, variables, solver, options, arrays)
    outcome = replace(outcome, seconds=time.perf_counter() - started)
    return in_integers(formulation, outcome, started) if isinstance(formulation, FlowNetwork) else outcome


def asked_solver(options: SolveOptions) -> pulp.LpSolver | None:
    """The requested solver; None for HiGHS, which gets whole arrays and all options."""
    asked = options.solver
    if asked is None or asked == "HiGHS":
        return None
    installed = ", ".join(pulp.listSolvers(onlyAvailable=True))
    own = not isinstance(asked, str)
    name = str(getattr(asked, "name", asked))
    if not own and name not in pulp.listSolvers():
        raise EngineError(f"PuLP knows no solver {name!r}; available here: {installed}")
    for option in options.changed():
        if own and option != "solver":
            raise EngineError(f"solver {name!r} comes with its own options; set what {option!r} says on it instead")
        if option not in _BY_NAME:
            raise EngineError(f"engine 'pulp:{name}' has no option {option!r}; drop it or use solver='HiGHS'")
    keywords: dict[str, Any] = {"msg": options.log, "gapRel": options.gap}
    keywords |= {} if options.time_limit_s is None else {"timeLimit": options.time_limit_s}
    keywords |= {} if options.threads is None else {"threads": options.threads}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PuLP announces its version 4
        if not (asked if own else pulp.getSolver(name, msg=False)).available():
            raise EngineError(f"solver {name!r} is not installed; available here: {installed}")
        try:
            return asked if own else pulp.getSolver(name, **keywords)
        except TypeError as error:
            raise EngineError(f"PuLP's {name} does not take {', '.join(keywords)}: {error}") from error


def _solve_elsewhere(
    problem: pulp.LpProblem,
    variables: list[pulp.LpVariable],
    solver: pulp.LpSolver,
    options: SolveOptions,
    arrays: LinearProgramArrays,
) -> Outcome:
    """Solve with one of PuLP's solvers and read values and duals back in the program's own direction."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            problem.solve(solver)
    except pulp.PulpError as error:
        raise EngineError(f"PuLP's {solver.name} failed: {error}. Set log=True to see why") from error
    status = _STATUS.get(problem.sol_status, Status.ERROR)
    if problem.sol_status == pulp.LpSolutionNoSolutionFound and problem.status == pulp.LpStatusInfeasible:
        status = Status.INFEASIBLE  # CBC reports this for integer programs whose relaxation is feasible
    own = getattr(solver, "optionsDict", {})
    if status is Status.OPTIMAL and arrays.is_mip and (options.gap > 0 or own.get("gapRel") or own.get("gapAbs")):
        status = Status.FEASIBLE  # it may have stopped at the gap, and PuLP gives no bound
    if status is Status.TIME_LIMIT and solver.timeLimit is None and not own.get("maxNodes"):
        status = Status.ERROR
    outcome = Outcome(status, "pulp", algorithm=solver.name)
    if not status.has_answer:
        return outcome
    values = np.array([v.varValue for v in variables], dtype=np.float64)
    objective = float(arrays.cost @ values) + arrays.offset
    outcome = replace(outcome, objective=objective, values=values)
    if status is not Status.OPTIMAL:
        return outcome
    constraints = list(problem._constraints.values())
    if arrays.is_mip or any(c.pi is None for c in constraints):
        return replace(outcome, bound=objective)
    duals = (-1.0 if arrays.maximize else 1.0) * np.array([c.pi for c in constraints], dtype=np.float64)
    return replace(outcome, bound=objective, duals=duals, reduced_costs=arrays.cost - arrays.matrix.T @ duals)
