"""PuLP as an engine, with its traps handled (for names, signs and versions see `flowlex.formulations.pulp_adapter`).

* PuLP drops unknown solver options silently: options are typed and mapped one by one.
* An integer program's ``pi`` is 0.0: integer programs have no duals here.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pulp

from flowlex.formulations.engines.exact_integers import check_floats, in_integers
from flowlex.formulations.engines.highs import solve_arrays
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats, LinearProgramArrays
from flowlex.formulations.pulp_adapter import Relations, duals_of, from_pulp, run_solver, to_pulp
from flowlex.formulations.solver_outcome import EngineError, Outcome, SolveOptions, Status

#: Options that PuLP's solvers take by name.
_BY_NAME = {"time_limit_s", "gap", "threads", "log", "solver"}


def solve_with_pulp(formulation: LinearProgram | FlowNetwork, options: SolveOptions) -> Outcome:
    """Compile to PuLP and solve there, with HiGHS or with ``options.solver``."""
    started = time.perf_counter()
    if isinstance(formulation, FlowNetwork):
        check_floats(formulation)
    names = formulation.column_names(), formulation.row_names()
    outcome = solve_named(formulation.arrays(), formulation.name, *names, options)
    outcome = replace(outcome, seconds=time.perf_counter() - started)
    return in_integers(formulation, outcome, started) if isinstance(formulation, FlowNetwork) else outcome


def solve_named(
    arrays: LinearProgramArrays,
    name: str,
    column_names: Sequence[str],
    row_names: Sequence[str],
    options: SolveOptions,
) -> Outcome:
    """Compile arrays with names to PuLP and solve there, with HiGHS or with ``options.solver``.

    Values, duals and reduced costs are in the program's own direction and in the order of its columns and rows.
    Raises `EngineError`: the solver is not there, does not take an option, or failed.
    """
    started = time.perf_counter()
    solver = asked_solver(options)
    if solver is not None and arrays.is_mip and not solver.mip:
        raise EngineError(f"solver {solver.name!r} has mip=False, which drops the integer requirements; leave it out")
    # Other solvers always minimise, so that duals have one sign; HiGHS gets the problem unchanged.
    problem, variables = to_pulp(arrays, name, column_names, row_names, minimizing=solver is not None)
    if solver is not None:
        outcome = _solve_elsewhere(problem, variables, solver, options, arrays)
    else:
        outcome = solve_arrays(from_pulp(problem, variables), options, engine="pulp")
        if outcome.duals is not None:
            outcome = replace(outcome, duals=_by_row(arrays, outcome.duals))
    return replace(outcome, seconds=time.perf_counter() - started)


def _by_row(arrays: LinearProgramArrays, duals: Floats) -> Floats:
    """Duals of rows from those of their constraints; at most one of the two sides of a row has one other than 0."""
    by_row: Floats = np.zeros(len(arrays.row_lower))
    np.add.at(by_row, Relations.of(arrays).row, duals)
    return by_row


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
    status = run_solver(problem, solver)
    own = getattr(solver, "optionsDict", {})
    if status is Status.OPTIMAL and arrays.is_mip and (options.gap > 0 or own.get("gapRel") or own.get("gapAbs")):
        status = Status.FEASIBLE  # it may have stopped at the gap, and PuLP gives no bound
    outcome = Outcome(status, "pulp", algorithm=solver.name)
    if not status.has_answer:
        return outcome
    values = np.array([v.varValue for v in variables], dtype=np.float64)
    objective = float(arrays.cost @ values) + arrays.offset
    outcome = replace(outcome, objective=objective, values=values)
    if status is not Status.OPTIMAL:
        return outcome
    duals = duals_of(problem)
    if arrays.is_mip or any(each is None for each in duals):
        return replace(outcome, bound=objective)
    prices = (-1.0 if arrays.maximize else 1.0) * _by_row(arrays, np.array(duals, dtype=np.float64))
    return replace(outcome, bound=objective, duals=prices, reduced_costs=arrays.cost - arrays.matrix.T @ prices)
