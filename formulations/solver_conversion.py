"""Solver arrays and names as PuLP problems and HiGHS models, and back.

Traps of PuLP that are handled here:

* ``a-1`` and ``a+1`` become one name: names are made safe and kept distinct.
* Variables without constraint or cost vanish from a problem: every variable is in the objective.
* Duals of a maximisation come with the sign of a minimisation: ``minimizing`` states the negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pulp
import scipy

from flowlex.formulations.program_arrays import Floats, LinearProgramArrays

if TYPE_CHECKING:
    import highspy

_UNSAFE = str.maketrans(dict.fromkeys("-+[]>/,; :'\"()*^<=\\", "_"))


def to_pulp(
    arrays: LinearProgramArrays,
    name: str,
    column_names: Sequence[str],
    row_names: Sequence[str],
    *,
    minimizing: bool = False,
) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    """Lower arrays to a PuLP problem; its variables come in the order of the columns (PuLP sorts its own list).

    ``minimizing``: state a maximisation as the minimisation of its negative.
    Raises `ValueError`: a row has two different sides, or none; PuLP holds one relation a row.
    """
    flip = minimizing and arrays.maximize
    direction = pulp.LpMaximize if arrays.maximize and not flip else pulp.LpMinimize
    problem = pulp.LpProblem(name.translate(_UNSAFE), direction)
    kinds = [pulp.LpInteger if flag else pulp.LpContinuous for flag in arrays.integrality.tolist()]
    bounds = (_finite_or_none(side) for side in (arrays.column_lower, arrays.column_upper))
    columns = zip(safe_names(column_names), *bounds, kinds, strict=True)
    variables = [problem.add_variable(*column) for column in columns]
    sign = -1.0 if flip else 1.0
    cost = (sign * arrays.cost).tolist()
    problem.setObjective(pulp.LpAffineExpression(zip(variables, cost, strict=True), sign * arrays.offset))
    rows = arrays.matrix.tocsr()
    pointer, column, value = rows.indptr.tolist(), rows.indices.tolist(), rows.data.tolist()
    members = list(map(variables.__getitem__, column))
    for row, (row_name, sense, rhs) in enumerate(zip(safe_names(row_names), *_relations(arrays), strict=True)):
        part = slice(pointer[row], pointer[row + 1])
        terms = pulp.LpAffineExpression(zip(members[part], value[part], strict=True))
        problem.addConstraint(pulp.LpConstraint(terms, sense, row_name, rhs))
    return problem, variables


def from_pulp(problem: pulp.LpProblem, variables: Sequence[pulp.LpVariable] | None = None) -> LinearProgramArrays:
    """Read a PuLP problem into solver arrays, in one pass over its nonzeros.

    ``variables``: the columns in order; PuLP's own order (by name) when omitted.
    """
    chosen = problem.variables() if variables is None else variables
    constraints = list(problem._constraints.values())
    position = {id(variable): index for index, variable in enumerate(chosen)}
    expressions = [constraint.expr for constraint in constraints]
    pointer = np.zeros(len(constraints) + 1, np.int64)
    np.cumsum([len(expression) for expression in expressions], out=pointer[1:])
    members = map(id, chain.from_iterable(expressions))
    columns = np.fromiter(map(position.__getitem__, members), np.int64, pointer[-1])
    values = np.fromiter(chain.from_iterable(e.values() for e in expressions), np.float64, pointer[-1])
    matrix = scipy.sparse.csr_array((values, columns, pointer), shape=(len(constraints), len(chosen))).tocsc()
    matrix.eliminate_zeros()
    cost = np.zeros(len(chosen))
    for variable, value in (problem.objective or {}).items():
        cost[position[id(variable)]] += value
    return LinearProgramArrays(
        matrix=matrix,
        row_lower=_filled([c.getLb() for c in constraints], -np.inf),
        row_upper=_filled([c.getUb() for c in constraints], np.inf),
        column_lower=_filled([v.lowBound for v in chosen], -np.inf),
        column_upper=_filled([v.upBound for v in chosen], np.inf),
        cost=cost,
        offset=float(getattr(problem.objective, "constant", 0.0)),
        integrality=np.array([v.cat == pulp.LpInteger for v in chosen], bool),
        maximize=problem.sense == pulp.LpMaximize,
    )


def to_highs(
    arrays: LinearProgramArrays, name: str, column_names: Sequence[str], row_names: Sequence[str]
) -> highspy.HighsLp:
    """Return a HiGHS model object with names."""
    import highspy

    model = highspy.HighsLp()
    model.model_name_ = name
    model.num_col_, model.num_row_ = len(arrays.cost), len(arrays.row_lower)
    model.col_cost_, model.offset_ = arrays.cost, arrays.offset
    model.col_lower_, model.col_upper_ = arrays.column_lower, arrays.column_upper
    model.row_lower_, model.row_upper_ = arrays.row_lower, arrays.row_upper
    model.sense_ = highspy.ObjSense.kMaximize if arrays.maximize else highspy.ObjSense.kMinimize
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = arrays.matrix.indptr
    model.a_matrix_.index_ = arrays.matrix.indices
    model.a_matrix_.value_ = arrays.matrix.data
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    if arrays.is_mip:
        model.integrality_ = [kinds[int(flag)] for flag in arrays.integrality]
    model.col_names_, model.row_names_ = list(column_names), list(row_names)
    return model


def safe_names(names: Sequence[str]) -> list[str]:
    """Names that PuLP and file formats keep as they are, and that stay distinct.

    ``x[a-1]`` and ``x[a+1]`` become ``x_a_1`` and ``x_a_1_2``.
    """
    joined = "\n".join(names).translate(_UNSAFE).split("\n")  # one call for all of them
    if len(joined) != len(names):  # a name contains a line break
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


def _relations(arrays: LinearProgramArrays) -> tuple[list[int], list[float]]:
    """PuLP's relation and right-hand side of every row."""
    low, high = arrays.row_lower, arrays.row_upper
    wrong = (low != high) & (np.isfinite(low) == np.isfinite(high))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"row {row} lies between {low[row]} and {high[row]}; PuLP holds one relation a row")
    sense = np.where(
        low == high, pulp.LpConstraintEQ, np.where(np.isfinite(low), pulp.LpConstraintGE, pulp.LpConstraintLE)
    )
    return sense.tolist(), np.where(np.isfinite(low), low, high).tolist()


def _filled(values: list[float | None], missing: float) -> Floats:
    return np.array([missing if value is None else value for value in values], dtype=np.float64)


def _finite_or_none(values: Any) -> list[float | None]:
    return [value if abs(value) != np.inf else None for value in values.tolist()]
