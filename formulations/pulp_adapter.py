"""PuLP 3.3.1 to 4.x: the only module that knows its two interfaces, and its traps.

* ``a-1`` and ``a+1`` become one name: names are made safe and kept distinct.
* Variables without constraint or cost vanish from a problem of PuLP 3: every variable is in the objective.
* A constraint has one relation: a row with two sides becomes two, one without sides none.
* Duals of a maximisation come with the sign of a minimisation: ``minimizing`` states the negative.
* A run stopped by its time limit reads ``Optimal`` in the ``status`` of PuLP 3: ``sol_status`` is read.
* PuLP 4 has no standalone variables, returns statistics from ``solve``, and reserves names that begin with ``_``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pulp
import scipy

from flowlex.formulations.program_arrays import Floats, Integers, LinearProgramArrays
from flowlex.formulations.program_files.named_program import NamedProgram
from flowlex.formulations.program_files.written_names import free_name, written_names
from flowlex.formulations.solver_outcome import EngineError, Status

#: Whether this is PuLP 4, whose core is another one.
NEW_CORE = int(pulp.__version__.partition(".")[0]) >= 4

if NEW_CORE:
    _ENDED = {
        pulp.const.LpSolveStatus.Optimal: Status.OPTIMAL,
        pulp.const.LpSolveStatus.Infeasible: Status.INFEASIBLE,
        pulp.const.LpSolveStatus.Unbounded: Status.UNBOUNDED,
        pulp.const.LpSolveStatus.TimeLimit: Status.TIME_LIMIT,
        pulp.const.LpSolveStatus.NodeLimit: Status.TIME_LIMIT,
        pulp.const.LpSolveStatus.IterationLimit: Status.TIME_LIMIT,
        pulp.const.LpSolveStatus.SolutionLimit: Status.TIME_LIMIT,
        pulp.const.LpSolveStatus.Interrupted: Status.TIME_LIMIT,
        pulp.const.LpSolveStatus.GapLimit: Status.FEASIBLE,
    }
else:
    _ENDED = {
        pulp.LpSolutionOptimal: Status.OPTIMAL,
        pulp.LpSolutionIntegerFeasible: Status.FEASIBLE,
        pulp.LpSolutionInfeasible: Status.INFEASIBLE,
        pulp.LpSolutionUnbounded: Status.UNBOUNDED,
        pulp.LpSolutionNoSolutionFound: Status.TIME_LIMIT,
    }


@dataclass(frozen=True)
class Relations:
    """The constraints that state the rows of a program, in order: row, relation and right side of each."""

    row: Integers
    sense: Integers
    side: Floats

    @classmethod
    def of(cls, arrays: LinearProgramArrays) -> Relations:
        """One constraint for each row with one relation, two for one with two sides, none for a free row."""
        low, high = arrays.row_lower, arrays.row_upper
        equal = low == high
        lower, upper = np.isfinite(low) & ~equal, np.isfinite(high) & ~equal
        parts = (
            (equal, pulp.LpConstraintEQ, low),
            (lower, pulp.LpConstraintGE, low),
            (upper, pulp.LpConstraintLE, high),
        )
        row = np.concatenate([np.flatnonzero(which) for which, _, _ in parts])
        sense = np.concatenate([np.full(int(which.sum()), sense) for which, sense, _ in parts])
        side = np.concatenate([sides[which] for which, _, sides in parts])
        order = np.argsort(row, kind="stable")
        return cls(row[order], sense[order], side[order])

    def names(self, rows: Sequence[str]) -> list[str]:
        """Distinct names of the constraints; the second of a row ends in ``_upper``."""
        names = [rows[row] for row in self.row.tolist()]
        second = np.flatnonzero(self.row[1:] == self.row[:-1]) + 1
        taken = set(names) if len(second) else set()
        for place in second.tolist():
            names[place] = free_name(f"{names[place]}_upper", taken)
            taken.add(names[place])
        return written_names(names, "pulp")


def to_pulp(
    arrays: LinearProgramArrays,
    name: str,
    column_names: Sequence[str],
    row_names: Sequence[str],
    *,
    minimizing: bool = False,
) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    """Lower arrays to a PuLP problem.

    Parameters
    ----------
    arrays
        The program.
    name, column_names, row_names
        Any names; PuLP gets similar ones that it can hold.
    minimizing
        State a maximisation as the minimisation of its negative.

    Returns
    -------
    problem, variables
        The variables in the order of the columns. The constraints are those of `Relations.of`.
    """
    flip = minimizing and arrays.maximize
    direction = pulp.LpMaximize if arrays.maximize and not flip else pulp.LpMinimize
    problem = pulp.LpProblem(written_names([name or "program"], "pulp")[0], direction)
    kinds = [pulp.LpInteger if flag else pulp.LpContinuous for flag in arrays.integrality.tolist()]
    bounds = (_finite_or_none(side) for side in (arrays.column_lower, arrays.column_upper))
    columns = zip(written_names(column_names, "pulp"), *bounds, kinds, strict=True)
    variables = [problem.add_variable(*column) for column in columns]
    sign = -1.0 if flip else 1.0
    cost = (sign * arrays.cost).tolist()
    problem.setObjective(_expression(zip(variables, cost, strict=True), sign * arrays.offset))
    rows = arrays.matrix.tocsr()
    pointer, column, value = rows.indptr.tolist(), rows.indices.tolist(), rows.data.tolist()
    members = list(map(variables.__getitem__, column))
    stated = Relations.of(arrays)
    relations = (stated.row.tolist(), stated.names(row_names), stated.sense.tolist(), stated.side.tolist())
    for row, row_name, sense, side in zip(*relations, strict=True):
        part = slice(pointer[row], pointer[row + 1])
        _constrain(problem, zip(members[part], value[part], strict=True), sense, row_name, side)
    return problem, variables


def _expression(terms: Iterable[tuple[pulp.LpVariable, float]], constant: float) -> pulp.LpAffineExpression:
    if NEW_CORE:
        return pulp.LpAffineExpression.from_list(list(terms), constant)
    return pulp.LpAffineExpression(terms, constant)


def _constrain(
    problem: pulp.LpProblem, terms: Iterable[tuple[pulp.LpVariable, float]], sense: int, name: str, side: float
) -> None:
    if NEW_CORE:
        expression = _expression(terms, -side)
        expression.sense = sense
        problem.addConstraint(expression, name)
    else:
        problem.addConstraint(pulp.LpConstraint(_expression(terms, 0.0), sense, name, side))


def from_pulp(problem: pulp.LpProblem, variables: Sequence[pulp.LpVariable] | None = None) -> LinearProgramArrays:
    """Read a PuLP problem into solver arrays, in one pass over its nonzeros.

    ``variables``: the columns in order; PuLP's own order when omitted (by name in PuLP 3, as made in PuLP 4).
    """
    chosen = problem.variables() if variables is None else variables
    constraints = problem.constraints()
    key = _key
    position = {key(variable): index for index, variable in enumerate(chosen)}
    terms = [constraint.items() for constraint in constraints]
    pointer = np.zeros(len(constraints) + 1, np.int64)
    np.cumsum([len(each) for each in terms], out=pointer[1:])
    columns = np.fromiter(
        (position[key(variable)] for variable, _ in chain.from_iterable(terms)), np.int64, pointer[-1]
    )
    values = np.fromiter((value for _, value in chain.from_iterable(terms)), np.float64, pointer[-1])
    matrix = scipy.sparse.csr_array((values, columns, pointer), shape=(len(constraints), len(chosen))).tocsc()
    matrix.eliminate_zeros()
    cost = np.zeros(len(chosen))
    objective = problem.objective
    for variable, value in objective.items() if objective is not None else ():
        cost[position[key(variable)]] += value
    return LinearProgramArrays(
        matrix=matrix,
        row_lower=_filled([c.getLb() for c in constraints], -np.inf),
        row_upper=_filled([c.getUb() for c in constraints], np.inf),
        column_lower=_filled([v.lowBound for v in chosen], -np.inf),
        column_upper=_filled([v.upBound for v in chosen], np.inf),
        cost=cost,
        offset=float(getattr(objective, "constant", 0.0)),
        integrality=np.array([v.cat == pulp.LpInteger for v in chosen], bool),
        maximize=problem.sense == pulp.LpMaximize,
    )


def program_of_pulp(problem: pulp.LpProblem, *, beyond: bool = False) -> NamedProgram:
    """A PuLP problem with its names.

    Parameters
    ----------
    problem
        Any problem of PuLP, solved or not.
    beyond
        Also take problems with special ordered sets, as far as they are linear; see `NamedProgram`.

    Raises
    ------
    TypeError
        It has special ordered sets, and ``beyond`` is not set.
    ValueError
        Two variables or constraints have one name.
    """
    sets = bool(problem.has_sos() if NEW_CORE else problem.sos1 or problem.sos2)
    if sets and not beyond:
        raise TypeError(f"{problem.name}: SOS constraints are not supported; state them with binary variables")
    objective = getattr(problem.objective, "name", None) or "objective"
    columns = [variable.name for variable in problem.variables()]
    said = "it has SOS constraints" if sets else ""
    return NamedProgram(from_pulp(problem), columns, row_names(problem), problem.name, objective, said)


def row_names(problem: pulp.LpProblem) -> list[str]:
    """Names of the constraints in order, those that PuLP gives included."""
    return [each.name for each in problem.constraints()] if NEW_CORE else list(problem._constraints)


def terms_of(expression: Any) -> tuple[list[tuple[str, float]], float]:
    """The terms of a PuLP expression or variable, by name, and its constant."""
    if isinstance(expression, pulp.LpVariable):
        return [(expression.name, 1.0)], 0.0
    return [(variable.name, float(value)) for variable, value in expression.items()], float(expression.constant)


def values_of(problem: pulp.LpProblem) -> dict[str, float | None]:
    """The values of a solved problem by the names in PuLP; None where it has none."""
    return {variable.name: variable.varValue for variable in problem.variables()}


def replace_row(
    problem: pulp.LpProblem, row: int, terms: Mapping[pulp.LpVariable, float], sense: int, side: float
) -> None:
    """State a constraint of a problem anew, in place and under its name."""
    constraint = problem.constraints()[row]
    if NEW_CORE:
        for variable in list(constraint):
            constraint.set_coefficient(variable, 0.0)
        for variable, value in terms.items():
            constraint.set_coefficient(variable, value)
        constraint.sense = sense
        constraint.changeRHS(side)
    else:
        constraint.expr = pulp.LpAffineExpression(terms)
        constraint.sense, constraint.constant, constraint.modified = sense, -side, True


def replace_objective(problem: pulp.LpProblem, terms: Mapping[pulp.LpVariable, float], constant: float) -> None:
    """State the objective of a problem anew."""
    problem.objective = _expression(terms.items(), constant)


def run_solver(problem: pulp.LpProblem, solver: pulp.LpSolver) -> Status:
    """Solve a problem with a solver of PuLP; values and duals are then in its variables and constraints.

    Raises `EngineError`: the solver failed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            found = problem.solve(solver)
    except pulp.PulpError as error:
        raise EngineError(f"PuLP's {solver.name} failed: {error}. Set log=True to see why") from error
    own = getattr(solver, "optionsDict", {})
    if NEW_CORE:
        status = _ENDED.get(found.status, Status.ERROR)
        if found.has_solution and status is Status.TIME_LIMIT:
            return Status.FEASIBLE
        return status if found.has_solution or not status.has_answer else Status.ERROR
    status = _ENDED.get(problem.sol_status, Status.ERROR)
    if problem.sol_status == pulp.LpSolutionNoSolutionFound and problem.status == pulp.LpStatusInfeasible:
        return Status.INFEASIBLE  # CBC reports this for integer programs whose relaxation is feasible
    if status is Status.TIME_LIMIT and solver.timeLimit is None and not own.get("maxNodes"):
        return Status.ERROR
    return status


def duals_of(problem: pulp.LpProblem) -> list[float | None]:
    """The dual value of each constraint, as the solver left it."""
    return [constraint.pi for constraint in problem.constraints()]


def _key(variable: pulp.LpVariable) -> int:
    """What tells the variables of a problem apart; PuLP 4 makes a new object for each look at one."""
    return int(variable.id) if NEW_CORE else id(variable)


def _filled(values: list[float | None], missing: float) -> Floats:
    return np.array([missing if value is None else value for value in values], dtype=np.float64)


def _finite_or_none(values: Floats) -> list[float | None]:
    return [value if abs(value) != np.inf else None for value in values.tolist()]
