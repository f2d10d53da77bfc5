"""Certificates of linear and integer programs, to a stated tolerance."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np

from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats, LinearProgramArrays
from flowlex.formulations.solver_outcome import Outcome, Status, Unboundedness
from flowlex.validation.certificates.certificate import Certificate, Check

#: Largest violation accepted, relative to 1 + the size of the numbers in the row.
TOLERANCE = 1e-6


def certify_program(program: LinearProgram, outcome: Outcome, *, tolerance: float = TOLERANCE) -> Certificate:
    """Prove or refute an outcome from the program alone.

    A linear program is proven optimal: rows, bounds, signs of duals and reduced costs, and the dual objective are
    recomputed. Of an integer program feasibility and integrality are proven and the solver's bound is quoted.
    Multipliers that contradict the rows prove an infeasible program, a point and a ray an unbounded one.

    Parameters
    ----------
    program
        The program with n columns and m rows that was solved.
    outcome
        ``values`` (n,), ``duals`` (m,) and ``reduced_costs`` (n,), where it has them. A wrong shape is a failed check.
    tolerance
        Largest violation accepted, relative to 1 + the size of the numbers in the row. Infeasibility is proven exactly.
    """
    arrays = program.arrays()
    if outcome.infeasibility is not None and outcome.infeasibility.farkas is not None:
        return Certificate("infeasible", True, (_contradiction(arrays, outcome.infeasibility.farkas),))
    endless = outcome.unboundedness
    if endless is not None and endless.point is not None and endless.ray is not None and not arrays.is_mip:
        return Certificate("unbounded", False, tuple(_endless(program, arrays, endless, tolerance)), tolerance)
    values = outcome.values
    if values is None or outcome.objective is None:
        return Certificate("feasible", False, (Check("has an answer", False, detail=f"status {outcome.status}"),))
    shape = _shape(program, outcome)
    if not shape.ok:
        return Certificate("feasible", False, (shape,), tolerance)
    checks = _primal(program, arrays, values, float(outcome.objective), tolerance)
    if arrays.is_mip:
        checks += _integer(program, arrays, values, outcome, tolerance)
        return Certificate("feasible", False, tuple(checks), tolerance)
    if outcome.status is not Status.OPTIMAL or outcome.duals is None:
        return Certificate("feasible", False, tuple(checks), tolerance)
    checks += _dual(program, arrays, outcome.duals, float(outcome.objective), tolerance)
    checks += _stated(program, arrays, outcome, tolerance)
    return Certificate("optimal", False, tuple(checks), tolerance)


def _primal(
    program: LinearProgram, arrays: LinearProgramArrays, values: Floats, stated: float, tolerance: float
) -> list[Check]:
    activity = arrays.matrix @ values
    scale = 1.0 + abs(arrays.matrix) @ np.abs(values)
    row = np.maximum(arrays.row_lower - activity, activity - arrays.row_upper).clip(0) / scale
    column = np.maximum(arrays.column_lower - values, values - arrays.column_upper).clip(0) / (1.0 + np.abs(values))
    objective = float(arrays.cost @ values) + arrays.offset
    return [
        _small("every constraint holds", row, program.row_names, tolerance),
        _small("every variable is within its bounds", column, program.column_names, tolerance),
        _equal("objective recomputed from the values", objective, stated, tolerance),
    ]


def _contradiction(arrays: LinearProgramArrays, farkas: Floats) -> Check:
    """Check in exact rationals that within the column bounds ``y'Ax`` is less than the rows require."""
    name = "the rows contradict the bounds of the columns"
    if np.shape(farkas) != arrays.row_lower.shape or not np.isfinite(farkas).all():
        return Check(name, False, detail=f"{len(arrays.row_lower)} finite multipliers expected")
    sides = np.where(farkas > 0, arrays.row_lower, arrays.row_upper)
    used = np.flatnonzero(farkas)
    if not np.isfinite(sides[used]).all():
        return Check(name, False, detail="a multiplier against a side that a row does not have")
    asked = sum((Fraction(farkas[i]) * Fraction(sides[i]) for i in used.tolist()), Fraction(0))
    rate: dict[int, Fraction] = defaultdict(Fraction)
    matrix = arrays.matrix.tocsr()
    for i in used.tolist():
        part = slice(matrix.indptr[i], matrix.indptr[i + 1])
        for j, value in zip(matrix.indices[part].tolist(), matrix.data[part].tolist(), strict=True):
            rate[j] += Fraction(farkas[i]) * Fraction(value)
    for j, slope in rate.items():
        side = arrays.column_upper[j] if slope > 0 else arrays.column_lower[j]
        if slope and not np.isfinite(side):
            return Check(name, False, detail=f"column {j} has no bound that the multipliers need")
        asked -= slope * Fraction(side) if slope else 0
    return Check(name, asked > 0, float(max(-asked, Fraction(0))), f"the rows ask for {float(asked):.6g} more")


def _endless(
    program: LinearProgram, arrays: LinearProgramArrays, found: Unboundedness, tolerance: float
) -> list[Check]:
    """Check that the ray stays feasible from a feasible point, and that the objective improves along it."""
    point, ray = (np.asarray(part, float) for part in (found.point, found.ray))
    if point.shape != arrays.cost.shape or ray.shape != arrays.cost.shape:
        return [Check("a point and a ray, one number per column", False)]
    objective = float(arrays.cost @ point) + arrays.offset
    way, size = arrays.matrix @ ray, 1.0 + abs(arrays.matrix) @ np.abs(ray)
    row = np.where(np.isfinite(arrays.row_upper), way.clip(0), 0) + np.where(
        np.isfinite(arrays.row_lower), -way.clip(max=0), 0
    )
    column = np.where(np.isfinite(arrays.column_upper), ray.clip(0), 0)
    column += np.where(np.isfinite(arrays.column_lower), -ray.clip(max=0), 0)
    gain = float(arrays.cost @ ray) * (1.0 if arrays.maximize else -1.0)
    least = tolerance * (1.0 + float(np.abs(arrays.cost) @ np.abs(ray)))
    return [
        *_primal(program, arrays, point, objective, tolerance)[:2],
        _small("the ray keeps every constraint", row / size, program.row_names, tolerance),
        _small("the ray keeps every bound", column / (1.0 + np.abs(ray)), program.column_names, tolerance),
        Check("the ray is better and better", gain > least, max(0.0, least - gain), f"{gain:.6g} a step"),
    ]


def _integer(
    program: LinearProgram, arrays: LinearProgramArrays, values: Floats, outcome: Outcome, tolerance: float
) -> list[Check]:
    off = np.where(arrays.integrality, np.abs(values - np.rint(values)), 0.0)
    checks = [_small("integer variables are integers", off, program.column_names, tolerance)]
    if outcome.bound is not None and outcome.objective is not None:
        gain = float(outcome.bound - outcome.objective) * (-1.0 if arrays.maximize else 1.0)
        accepted = tolerance * (1.0 + abs(float(outcome.objective)))
        detail = f"solver's bound {outcome.bound:.10g}, objective {outcome.objective:.10g}"
        name = "the answer does not beat the bound"
        checks.append(Check(name, gain <= accepted, max(gain, 0.0), detail, "quoted"))
        if outcome.status is Status.OPTIMAL:
            checks.append(Check("an optimum meets the bound", abs(gain) <= accepted, abs(gain), detail, "quoted"))
    return checks


def _shape(program: LinearProgram, outcome: Outcome) -> Check:
    sizes = (
        ("values", outcome.values, program.column_count),
        ("duals", outcome.duals, program.row_count),
        ("reduced costs", outcome.reduced_costs, program.column_count),
    )
    wrong = [
        f"{count} {what} expected, got shape {np.asarray(a).shape}" for what, a, count in sizes if _differs(a, count)
    ]
    return Check("one number per row and column", not wrong, detail="; ".join(wrong))


def _differs(array: Floats | None, count: int) -> bool:
    return array is not None and np.shape(array) != (count,)


def _stated(program: LinearProgram, arrays: LinearProgramArrays, outcome: Outcome, tolerance: float) -> list[Check]:
    """Check the statements of an outcome beside its values and duals."""
    checks = []
    assert outcome.duals is not None and outcome.objective is not None
    if outcome.bound is not None:
        checks.append(_equal("the stated bound is the objective", float(outcome.objective), outcome.bound, tolerance))
    if outcome.reduced_costs is not None:
        off = np.abs(arrays.cost - arrays.matrix.T @ outcome.duals - outcome.reduced_costs)
        scale = 1.0 + np.abs(arrays.cost) + abs(arrays.matrix).T @ np.abs(outcome.duals)
        name = "reduced costs recomputed from the duals"
        checks.append(_small(name, off / scale, program.column_names, tolerance))
    return checks


def _dual(
    program: LinearProgram, arrays: LinearProgramArrays, duals: Floats, objective: float, tolerance: float
) -> list[Check]:
    sign = -1.0 if arrays.maximize else 1.0  # judged as a minimisation
    dual, cost = sign * duals, sign * arrays.cost
    reduced = cost - arrays.matrix.T @ dual
    scale = 1.0 + np.abs(cost) + abs(arrays.matrix).T @ np.abs(dual)
    # A price against an infinite side would make the dual bound minus infinity.
    row = np.where(np.isinf(arrays.row_lower), dual.clip(0), 0) + np.where(
        np.isinf(arrays.row_upper), -dual.clip(max=0), 0
    )
    column = np.where(np.isinf(arrays.column_lower), reduced.clip(0), 0)
    column += np.where(np.isinf(arrays.column_upper), -reduced.clip(max=0), 0)
    bound = _side(dual, arrays.row_lower, arrays.row_upper) + _side(reduced, arrays.column_lower, arrays.column_upper)
    total = sign * bound + arrays.offset
    return [
        _small("every dual has the sign of its constraint", row / (1.0 + np.abs(dual)), program.row_names, tolerance),
        _small("every reduced cost has the sign of its bound", column / scale, program.column_names, tolerance),
        _equal("dual objective equals the objective", total, objective, tolerance),
    ]


def _side(price: Floats, lower: Floats, upper: Floats) -> float:
    """Sum of prices times their binding sides; prices against infinite sides are checked elsewhere."""
    side = np.where(price > 0, lower, upper)
    used = (price != 0) & np.isfinite(side)
    return float(price[used] @ side[used])


def _small(name: str, violation: Floats, names: object, tolerance: float) -> Check:
    worst = float(violation.max(initial=0.0))
    if worst <= tolerance:
        return Check(name, True, worst)
    assert callable(names)
    first = int(np.argmax(violation))
    return Check(name, False, worst, f"{names()[first]} is off by {worst:.3g}")


def _equal(name: str, computed: float, stated: float, tolerance: float) -> Check:
    off = abs(computed - stated) / (1.0 + abs(stated))
    return Check(name, off <= tolerance, off, f"{computed:.12g} (stated {stated:.12g})")
