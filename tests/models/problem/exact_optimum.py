"""Optima of small problems by enumeration and an exact simplex method in fractions: no solver, no floats."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flowlex.formulations.language.statement import Statement

Row = tuple[list[Fraction], str, Fraction]


@dataclass
class Exact:
    """A problem in fractions: bounds (None: none), integrality, rows, objectives (as minimisations) and `within`."""

    bounds: list[tuple[Fraction | None, Fraction | None]]
    integer: list[bool]
    rows: list[Row]
    costs: list[tuple[list[Fraction], Fraction]]
    within: list[tuple[Fraction, bool]]


def fraction(value: float, unit: Fraction | None) -> Fraction:
    """What a stored number is."""
    return Fraction(value) * (1 if unit is None else unit)


def read(problem: Statement) -> Exact:
    """The arrays of a statement in fractions."""
    bounds: list[tuple[Fraction | None, Fraction | None]] = []
    integer: list[bool] = []
    for b in problem.blocks.values():
        for low, high, whole in zip(b.lower.tolist(), b.upper.tolist(), b.integer.tolist(), strict=True):
            bounds.append(
                tuple(None if abs(v) == float("inf") else Fraction(repr(v)) for v in (low, high))  # type: ignore[arg-type]
            )
            integer.append(whole)
    n = len(bounds)
    rows: list[Row] = []
    for r in problem.rows.values():
        made = [[Fraction(0)] * n for _ in range(r.index.count)]
        for i, j, v in zip(r.rows.tolist(), r.columns.tolist(), r.values.tolist(), strict=True):
            made[i][j] += fraction(v, r.unit)
        rows += [(c, r.relation, fraction(b, r.unit)) for c, b in zip(made, r.rhs.tolist(), strict=True)]
    costs, within = [], []
    for o in problem.objectives:
        sign = -1 if o.maximize else 1
        cost = [Fraction(0)] * n
        for j, v in zip(o.columns.tolist(), o.values.tolist(), strict=True):
            cost[j] += sign * fraction(v, o.unit)
        costs.append((cost, sign * fraction(o.constant, o.unit)))
        within.append((o.within, o.relative))
    return Exact(bounds, integer, rows, costs, within)


def assignments(exact: Exact, most: int) -> list[tuple[int, ...]] | None:
    """All values of the integer columns; None if they are unbounded or too many."""
    boxes, total = [], 1
    for (low, high), whole in zip(exact.bounds, exact.integer, strict=True):
        if whole:
            if low is None or high is None:
                return None
            boxes.append(range(-int(-low // 1), int(high // 1) + 1))
            total *= len(boxes[-1])
            if total > most:
                return None
    return list(itertools.product(*boxes))


def limit(value: Fraction, within: tuple[Fraction, bool]) -> Fraction:
    """How large an objective may become later."""
    return value + (within[0] * abs(value) if within[1] else within[0])


def exact_optima(problem: Statement, most: int = 3000) -> tuple[str, list[Fraction]] | None:
    """Status, and the optimum of each stage as a minimisation; None if the problem is too large to enumerate."""
    exact = read(problem)
    whole = [j for j, w in enumerate(exact.integer) if w]
    free = [j for j, w in enumerate(exact.integer) if not w]
    points = assignments(exact, most if not free else most // 50)
    if points is None:
        return None
    rows = list(exact.rows)
    found: list[Fraction] = []
    stages = exact.costs or [([Fraction(0)] * len(exact.bounds), Fraction(0))]
    for k, (cost, constant) in enumerate(stages):
        best: Fraction | None = None
        kept = []
        for point in points:
            status, value = _fixed(exact, rows, cost, whole, free, point)
            if status == "unbounded":
                return "unbounded", found
            if value is not None:
                kept.append(point)
                best = value if best is None else min(best, value)
        if best is None:
            return "infeasible", []
        points = kept
        found.append(best + constant)
        if k < len(exact.costs):
            rows.append((cost, "<=", limit(best + constant, exact.within[k]) - constant))
    return "optimal", found if exact.costs else []


def _fixed(
    exact: Exact, rows: Sequence[Row], cost: list[Fraction], whole: list[int], free: list[int], point: tuple[int, ...]
) -> tuple[str, Fraction | None]:
    at = dict(zip(whole, point, strict=True))
    fixed = sum((cost[j] * v for j, v in at.items()), Fraction(0))
    smaller = []
    for c, relation, side in rows:
        rest = side - sum((c[j] * v for j, v in at.items() if c[j]), Fraction(0))
        left = [c[j] for j in free]
        if not any(left):
            if not (rest >= 0 if relation == "<=" else rest <= 0 if relation == ">=" else rest == 0):
                return "infeasible", None
            continue
        smaller.append((left, relation, rest))
    if not free:
        return "optimal", fixed
    status, value = simplex([cost[j] for j in free], smaller, [exact.bounds[j] for j in free])
    return status, None if value is None else value + fixed


def simplex(
    cost: list[Fraction], rows: Sequence[Row], bounds: Sequence[tuple[Fraction | None, Fraction | None]]
) -> tuple[str, Fraction | None]:
    """Status and optimum of a linear program: two phases, Bland's rule."""
    columns: list[tuple[int, int]] = []  # variable and sign: x = offset + sum of sign * t
    offset = []
    more: list[Row] = []
    for j, (low, high) in enumerate(bounds):
        if low is not None:
            columns.append((j, 1))
            offset.append(low)
            if high is not None:
                more.append(([Fraction(int(k == j)) for k in range(len(cost))], "<=", high))
        elif high is not None:
            columns.append((j, -1))
            offset.append(high)
        else:
            columns += [(j, 1), (j, -1)]
            offset.append(Fraction(0))
    table: list[list[Fraction]] = []
    slacks = sum(r != "==" for _, r, _ in [*rows, *more])
    place = 0
    for c, relation, side in [*rows, *more]:
        right = side - sum((a * b for a, b in zip(c, offset, strict=True)), Fraction(0))
        line = [c[j] * s for j, s in columns] + [Fraction(0)] * slacks
        if relation != "==":
            line[len(columns) + place] = Fraction(1 if relation == "<=" else -1)
            place += 1
        line.append(right)
        table.append(line if right >= 0 else [-v for v in line])
    m, n = len(table), len(columns) + slacks
    for i, line in enumerate(table):
        line[n:n] = [Fraction(int(i == k)) for k in range(m)]
    basis = [n + i for i in range(m)]
    if _pivots(table, basis, [Fraction(0)] * n + [Fraction(1)] * m, n + m) != "optimal" or any(
        line[-1] for line, b in zip(table, basis, strict=True) if b >= n
    ):
        return "infeasible", None
    for i in range(m):  # artificial variables at 0 leave the basis, or their row is empty
        if basis[i] >= n and (k := next((k for k in range(n) if table[i][k]), None)) is not None:
            _pivot(table, basis, i, k)
    objective = [cost[j] * s for j, s in columns] + [Fraction(0)] * (slacks + m)
    if _pivots(table, basis, objective, n) == "unbounded":
        return "unbounded", None
    value = sum((objective[b] * line[-1] for line, b in zip(table, basis, strict=True)), Fraction(0))
    return "optimal", value + sum((c * o for c, o in zip(cost, offset, strict=True)), Fraction(0))


def _pivots(table: list[list[Fraction]], basis: list[int], cost: list[Fraction], n: int) -> str:
    while True:
        prices = [(line, cost[b]) for line, b in zip(table, basis, strict=True) if cost[b]]
        enter = next((k for k in range(n) if cost[k] < sum((line[k] * c for line, c in prices), Fraction(0))), None)
        if enter is None:
            return "optimal"
        ratios = [(line[-1] / line[enter], basis[i], i) for i, line in enumerate(table) if line[enter] > 0]
        if not ratios:
            return "unbounded"
        _pivot(table, basis, min(ratios)[2], enter)


def _pivot(table: list[list[Fraction]], basis: list[int], i: int, k: int) -> None:
    by = table[i][k]
    table[i] = [v / by if v else v for v in table[i]]
    for other, line in enumerate(table):
        if other != i and line[k]:
            times = line[k]
            table[other] = [v - times * w if w else v for v, w in zip(line, table[i], strict=True)]
    basis[i] = k


def scipy_optima(problem: Statement) -> tuple[str, list[float]]:
    """The same with SciPy's milp, within its tolerances."""
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    a = problem.arrays(None)
    matrix, low, high = [np.asarray(a.matrix.todense())], [a.row_lower], [a.row_upper]
    found: list[float] = []
    for o in problem.objectives or [None]:  # type: ignore[list-item]
        sign = -1.0 if o is not None and o.maximize else 1.0
        cost: Any = sign * o.cost(problem.column_count) if o is not None else np.zeros(problem.column_count)
        rows = LinearConstraint(np.vstack(matrix), np.concatenate(low), np.concatenate(high))
        got = milp(
            cost,
            constraints=rows if sum(map(len, matrix)) else None,
            bounds=Bounds(a.column_lower, a.column_upper),
            integrality=a.integrality.astype(int),
            options={"mip_rel_gap": 0},
        )
        if got.status:
            return {2: "infeasible", 3: "unbounded"}.get(got.status, "unknown"), found
        if o is not None:
            value = got.fun + sign * o.offset
            found.append(value)
            allowed = float(o.within) * (abs(value) if o.relative else 1.0)
            matrix.append(cost[None])
            low.append(np.array([-np.inf]))
            high.append(np.array([got.fun + allowed + 1e-9]))
    return "optimal", found
