"""PuLP: the only module that imports it, and where its traps stop.

* A run stopped by its time limit reads ``Optimal`` in ``status``: we read ``sol_status``.
* Duals of a maximisation come with the sign of a minimisation: problems are handed over as minimisations.
* An unknown solver option is dropped in silence: options are typed and mapped one by one.
* ``a-1`` and ``a+1`` become one name: names are made safe and kept distinct.
* An integer program's ``pi`` is 0.0: integer programs have no duals here.
* Variables without constraint or cost vanish from a problem: every variable is in the objective.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import numpy as np
import pulp
from scipy import sparse

from flowlex.formulations.engines.highs import solve_arrays
from flowlex.formulations.linear_program import LinearProgram, LinearProgramArrays
from flowlex.formulations.outcome import EngineError, Outcome, SolveOptions, Status

__all__ = ["BulkHighs", "problem_arrays", "safe_names", "solve_with_pulp", "to_pulp"]

_SENSE = {"<=": pulp.LpConstraintLE, ">=": pulp.LpConstraintGE, "==": pulp.LpConstraintEQ}
_UNSAFE = str.maketrans(dict.fromkeys("-+[]>/,; :'\"()*^<=\\", "_"))
_STATUS = {
    pulp.LpSolutionOptimal: Status.OPTIMAL,
    pulp.LpSolutionIntegerFeasible: Status.FEASIBLE,
    pulp.LpSolutionInfeasible: Status.INFEASIBLE,
    pulp.LpSolutionUnbounded: Status.UNBOUNDED,
    pulp.LpSolutionNoSolutionFound: Status.TIME_LIMIT,
}


class BulkHighs(pulp.LpSolver):  # type: ignore[misc]
    """A PuLP solver that hands HiGHS the whole problem in one call, instead of column by column.

    Use it like any PuLP solver: ``problem.solve(BulkHighs(SolveOptions(time_limit_s=60)))``. Duals have the
    sign of the problem's own direction; ``sol_status`` tells a proven optimum from a stopped run; an integer
    program's duals are None.
    """

    name = "BulkHighs"

    def __init__(self, options: SolveOptions | None = None) -> None:
        super().__init__(mip=True, msg=False)
        self.options = options or SolveOptions()
        self.outcome: Outcome | None = None

    def available(self) -> bool:
        """HiGHS is a dependency, so always."""
        return True

    def actualSolve(self, lp: pulp.LpProblem, **_: Any) -> int:
        """Solve ``lp`` and write values, duals and status into it."""
        variables, constraints, arrays = problem_arrays(lp)
        outcome = self.outcome = solve_arrays(arrays, self.options, engine="pulp")
        for variable, value in zip(variables, _or_none(outcome.values), strict=False):
            variable.varValue = value
        for variable, value in zip(variables, _or_none(outcome.reduced_costs), strict=False):
            variable.dj = value
        for constraint, value in zip(constraints, _or_none(outcome.duals), strict=False):
            constraint.pi = value
        status = {s: k for k, s in _STATUS.items()}.get(outcome.status, pulp.LpSolutionNoSolutionFound)
        overall = {
            Status.OPTIMAL: pulp.LpStatusOptimal,
            Status.INFEASIBLE: pulp.LpStatusInfeasible,
            Status.UNBOUNDED: pulp.LpStatusUnbounded,
        }.get(outcome.status, pulp.LpStatusNotSolved)
        lp.assignStatus(overall, status)
        return int(overall)


def to_pulp(program: LinearProgram, *, minimizing: bool = False) -> pulp.LpProblem:
    """Lower a program to PuLP, its expressions built from arrays.

    Parameters
    ----------
    program
        What to lower.
    minimizing
        State a maximisation as the minimisation of its negative.
    """
    problem, _, _ = _lower(program, program.arrays(), minimizing=minimizing)
    return problem


def solve_with_pulp(program: LinearProgram, options: SolveOptions, *, explain: bool = True) -> Outcome:
    """Compile to PuLP and solve there, with HiGHS or with ``options.solver``.

    Parameters
    ----------
    explain
        Look for an irreducible infeasible set when there is no answer.
    """
    started = time.perf_counter()
    arrays, solver = program.arrays(), _solver(options)
    problem, variables, constraints = _lower(program, arrays, minimizing=True)
    if isinstance(solver, BulkHighs):
        problem.solve(solver)
        assert solver.outcome is not None  # set by actualSolve, or it raised
        outcome = solver.outcome
    else:
        status = _solve_elsewhere(problem, solver, options, arrays)
        outcome = Outcome(status, "pulp", algorithm=str(options.solver))
    outcome = replace(outcome, seconds=time.perf_counter() - started)
    if outcome.status is Status.INFEASIBLE and explain:
        from flowlex.formulations.engines.infeasibility import explain_program

        return explain_program(program, arrays, outcome)
    if not outcome.status.has_answer:
        return outcome
    return _collect(arrays, variables, constraints, outcome)


def problem_arrays(
    problem: pulp.LpProblem,
) -> tuple[list[pulp.LpVariable], list[pulp.LpConstraint], LinearProgramArrays]:
    """Read a PuLP problem into solver arrays, in one pass over its nonzeros."""
    variables = problem.variables()
    constraints = list(problem._constraints.values())
    position = {id(variable): index for index, variable in enumerate(variables)}
    lengths = np.fromiter((len(c.expr) for c in constraints), np.int64, len(constraints))
    total = int(lengths.sum())
    expressions = [constraint.expr for constraint in constraints]
    members = map(id, chain.from_iterable(expressions))
    columns = np.fromiter(map(position.__getitem__, members), np.int64, total)
    values = np.fromiter(chain.from_iterable(e.values() for e in expressions), np.float64, total)
    pointer = np.concatenate([[0], np.cumsum(lengths)])
    matrix = sparse.csr_array((values, columns, pointer), shape=(len(constraints), len(variables))).tocsc()
    matrix.eliminate_zeros()
    cost = np.zeros(len(variables))
    objective = problem.objective
    for variable, value in objective.items():
        cost[position[id(variable)]] += value
    low, high = [c.getLb() for c in constraints], [c.getUb() for c in constraints]
    arrays = LinearProgramArrays(
        matrix=matrix,
        row_lower=_filled(low, -np.inf),
        row_upper=_filled(high, np.inf),
        column_lower=_filled([v.lowBound for v in variables], -np.inf),
        column_upper=_filled([v.upBound for v in variables], np.inf),
        cost=cost,
        offset=float(objective.constant),
        integrality=np.array([v.cat == pulp.LpInteger for v in variables], bool),
        maximize=problem.sense == pulp.LpMaximize,
    )
    return variables, constraints, arrays


def safe_names(names: list[str]) -> list[str]:
    """Names that PuLP and file formats keep as they are, and that stay distinct.

    ``x[a-1]`` and ``x[a+1]`` become ``x_a_1`` and ``x_a_1_2``.
    """
    joined = "\n".join(names).translate(_UNSAFE).split("\n")  # one call for all of them
    if len(joined) != len(names):  # somebody's name holds a line break
        joined = [name.translate(_UNSAFE).replace("\n", "_") for name in names]
    safe = [name.rstrip("_") or "_" for name in joined]
    if len(set(safe)) == len(safe):
        return safe
    taken, times = set(safe), dict[str, int]()
    for index, name in enumerate(safe):
        times[name] = count = times.get(name, 0) + 1
        if count > 1:
            candidate = f"{name}_{count}"
            while candidate in taken:
                count += 1
                candidate = f"{name}_{count}"
            times[name] = count
            taken.add(candidate)
            safe[index] = candidate
    return safe


def _lower(
    program: LinearProgram, arrays: LinearProgramArrays, *, minimizing: bool
) -> tuple[pulp.LpProblem, list[pulp.LpVariable], list[pulp.LpConstraint]]:
    flip = minimizing and arrays.maximize
    direction = pulp.LpMaximize if arrays.maximize and not flip else pulp.LpMinimize
    problem = pulp.LpProblem(program.name.translate(_UNSAFE), direction)
    kinds = [pulp.LpInteger if flag else pulp.LpContinuous for flag in arrays.integrality.tolist()]
    variables = [
        problem.add_variable(*column)
        for column in zip(
            safe_names(program.column_names()),
            _finite_or_none(arrays.column_lower),
            _finite_or_none(arrays.column_upper),
            kinds,
            strict=True,
        )
    ]
    sign = -1.0 if flip else 1.0
    cost = (sign * arrays.cost).tolist()
    problem.setObjective(pulp.LpAffineExpression(zip(variables, cost, strict=True), sign * arrays.offset))
    constraints = _constraints(program, arrays, variables)
    for constraint in constraints:
        problem.addConstraint(constraint)
    return problem, variables, constraints


def _constraints(
    program: LinearProgram, arrays: LinearProgramArrays, variables: list[pulp.LpVariable]
) -> list[pulp.LpConstraint]:
    rows = arrays.matrix.tocsr()
    pointer, column, value = rows.indptr.tolist(), rows.indices.tolist(), rows.data.tolist()
    members = list(map(variables.__getitem__, column))
    names = iter(safe_names(program.row_names()))
    constraints = []
    for block in program.constraint_blocks.values():
        sense = _SENSE[block.relation]
        for row, rhs in zip(range(block.rows.start, block.rows.stop), block.rhs.tolist(), strict=True):
            part = slice(pointer[row], pointer[row + 1])
            terms = pulp.LpAffineExpression(zip(members[part], value[part], strict=True))
            constraints.append(pulp.LpConstraint(terms, sense, next(names), rhs))
    return constraints


def _solver(options: SolveOptions) -> pulp.LpSolver:
    if options.solver is None or options.solver == "HiGHS":
        options.only("pulp", "time_limit_s", "gap", "seed", "threads", "log", "algorithm", "solver")
        return BulkHighs(options)
    if options.solver not in pulp.listSolvers():
        known = ", ".join(pulp.listSolvers(onlyAvailable=True))
        raise EngineError(f"PuLP knows no solver {options.solver!r}; available here: {known}")
    options.only(f"pulp:{options.solver}", "time_limit_s", "gap", "threads", "log", "solver")
    keywords: dict[str, Any] = {"msg": options.log}
    for key, value in (("timeLimit", options.time_limit_s), ("threads", options.threads)):
        if value is not None:
            keywords[key] = value
    keywords["gapRel"] = options.gap
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PuLP announces its version 4
        if not pulp.getSolver(options.solver, msg=False).available():
            known = ", ".join(pulp.listSolvers(onlyAvailable=True))
            raise EngineError(f"solver {options.solver!r} is not installed; available here: {known}")
        try:
            return pulp.getSolver(options.solver, **keywords)
        except TypeError as error:
            raise EngineError(f"PuLP's {options.solver} cannot be told {', '.join(keywords)}: {error}") from error


def _solve_elsewhere(
    problem: pulp.LpProblem, solver: pulp.LpSolver, options: SolveOptions, arrays: LinearProgramArrays
) -> Status:
    """Solve with a solver of PuLP's and say how it ended; only a proven optimum is optimal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            problem.solve(solver)
    except pulp.PulpError as error:
        raise EngineError(f"PuLP's {options.solver} failed: {error}. Set log=True to see why") from error
    status = _STATUS.get(problem.sol_status, Status.ERROR)
    if status is Status.OPTIMAL and arrays.is_mip and options.gap > 0:
        return Status.FEASIBLE  # it may have stopped at the gap, and PuLP has no bound to tell
    if status is Status.TIME_LIMIT and options.time_limit_s is None:
        return Status.ERROR
    return status


def _collect(
    arrays: LinearProgramArrays,
    variables: list[pulp.LpVariable],
    constraints: list[pulp.LpConstraint],
    outcome: Outcome,
) -> Outcome:
    """Read values and duals back in the program's own order and direction."""
    sign = -1.0 if arrays.maximize else 1.0
    values = np.array([v.varValue for v in variables], dtype=np.float64)
    objective = float(arrays.cost @ values) + arrays.offset
    optimal = outcome.status is Status.OPTIMAL
    duals = reduced = None
    if optimal and not arrays.is_mip and (not constraints or constraints[0].pi is not None):
        duals = sign * np.array([c.pi for c in constraints], dtype=np.float64)
        reduced = arrays.cost - arrays.matrix.T @ duals
    bound = None if outcome.bound is None else sign * outcome.bound
    if optimal and (bound is None or not arrays.is_mip):
        bound = objective
    return replace(outcome, objective=objective, bound=bound, values=values, duals=duals, reduced_costs=reduced)


def _or_none(values: Any) -> Any:
    return repeat(None) if values is None else values.tolist()


def _filled(values: list[float | None], missing: float) -> Any:
    return np.array([missing if value is None else value for value in values], dtype=np.float64)


def _finite_or_none(values: Any) -> list[float | None]:
    return [value if abs(value) != np.inf else None for value in values.tolist()]
