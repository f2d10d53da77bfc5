r"""Gomory's mixed-integer cuts and mixed-integer rounding, each as a split of the answers on whose sides it holds.

A fractional basic integer variable gives a row of the tableau, ``x_j + sum a_k t_k + sum a_i s_i = beta`` in the
distances t and s of columns and rows from their sides. With f the fractional part of beta and integer multiples taken
into the split ``x_j + sum p_k t_k``, one side implies ``sum d t + sum a s >= f`` and the other ``<= f - 1``, so that

.. math:: \sum \max(d_k / f, -d_k / (1 - f)) t_k + \sum \max(a_i / f, -a_i / (1 - f)) s_i \ge 1.

Both implications are combinations of rows: the cut carries their multipliers, and its side is what these prove.
Mixed-integer rounding does the same with other sums of rows, without a basic variable.
Source: Gomory 1960; Cook, Kannan, Schrijver 1990 (split cuts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from flowlex.formulations.lexicographic.branch_and_bound_leaves import Cut, Leaf
from flowlex.formulations.lexicographic.stage_program import WHOLE, StageProgram, close_to
from flowlex.formulations.program_arrays import Floats

#: Denominators by which the coefficients of a cut may become integers, so that its proof holds small numbers.
_DENOMINATORS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 21, 24, 30, 36, 40, 60, 100, 120, 360)
#: Else coefficients are multiples of ``1 / GRAIN``.
GRAIN = 2**20
#: Cuts of a round, fractional parts that are worth one, largest ratio of coefficients, smallest violation.
_MOST, _AWAY, _RANGE, _VIOLATION = 40, 0.01, 1e4, 1e-3
#: Share of the gap that a round must close to count; after three that do not, branching begins.
_WORTH = 0.01
#: Largest cosine between two cuts of a round.
_PARALLEL = 0.95
_LOWER, _UPPER, _BASIC = (
    highspy.HighsBasisStatus.kLower,
    highspy.HighsBasisStatus.kUpper,
    highspy.HighsBasisStatus.kBasic,
)


def strengthened(program: StageProgram, cost: Floats, rounds: int) -> tuple[Leaf, Floats | None]:
    """The relaxation after some rounds of cuts: its leaf and vertex."""
    slow, best = 0, np.inf if program.best is None else float(cost @ program.best)
    leaf, x = program.relax((), cost)
    for _ in range(rounds):
        if x is None or program.integral(x) or leaf.bound >= best - close_to(best, 0) or slow == 3 or program.late:
            break
        cuts = _cuts(program, x)
        if not cuts:
            break
        for cut in cuts:
            program.add_cut(cut)
        after, found = program.relax((), cost)
        if found is None:
            return (after, found) if not after.own else (leaf, x)
        program.drop_slack_cuts()
        open_ = best - leaf.bound if np.isfinite(best) else max(1.0, abs(leaf.bound))
        slow = 0 if after.bound - leaf.bound > _WORTH * open_ else slow + 1
        leaf, x = after, found
    return leaf, x


def _cuts(program: StageProgram, x: Floats) -> list[Cut]:
    lp, a = program.lp, program.arrays
    low, high = a.column_lower, a.column_upper
    found: list[tuple[float, Cut]] = []

    def consider(made: Cut | None) -> None:
        if made is None:
            return
        size = float(np.linalg.norm(made.values))
        violation = made.side - float(made.values @ x[made.columns])
        if violation > _VIOLATION * size:
            found.append((violation / size, made))

    for rho, beta, state, row_state in program.rounding.sums(x):
        rows = _Rows(row_state, a.row_lower, a.row_upper)
        consider(_cut(program, rho, None, beta, state, rows, low, high))
    basis = lp.getBasis()
    if not basis.valid:
        return _apart(found, len(x))
    _, basic = lp.getBasicVariables()
    column_state = np.array([_side(s) for s in basis.col_status], float)
    extra = [(program.cuts[k].side, np.inf) if is_cut else (-np.inf, program.kept[k][1]) for is_cut, k in program.added]
    rows = _Rows(
        np.array([_side(s) for s in basis.row_status], float),
        np.concatenate([a.row_lower, [low for low, _ in extra]]),
        np.concatenate([a.row_upper, [high for _, high in extra]]),
    )
    away = np.abs(x - np.rint(x))
    places = [
        (min(away[j], 0.5), i, int(j))
        for i, j in enumerate(basic.tolist())
        if j >= 0 and a.integrality[j] and away[j] > max(_AWAY, WHOLE)
    ]
    for _, i, j in sorted(places, reverse=True)[: 3 * _MOST]:
        _, multipliers = lp.getBasisInverseRow(i)
        consider(_cut(program, np.array(multipliers), j, float(x[j]), column_state, rows, low, high))
    return _apart(found, len(x))


def _apart(found: list[tuple[float, Cut]], columns: int) -> list[Cut]:
    """The deepest cuts, no two of them almost parallel."""
    chosen: list[Cut] = []
    directions = np.zeros((_MOST, columns))
    for _, cut in sorted(found, key=lambda pair: -pair[0]):
        direction = cut.values / np.linalg.norm(cut.values)
        if (directions[: len(chosen), cut.columns] @ direction <= _PARALLEL).all():
            directions[len(chosen), cut.columns] = direction
            chosen.append(cut)
            if len(chosen) == _MOST:
                break
    return chosen


@dataclass(frozen=True)
class _Rows:
    """The rows of the relaxation: at which side each is (see `_side`), and both sides."""

    state: Floats
    low: Floats
    high: Floats


def _side(state: Any) -> int:
    """1 at the lower side, -1 at the upper, 0 basic or free."""
    return 1 if state == _LOWER else -1 if state == _UPPER else 0


def _cut(
    program: StageProgram,
    rho: Floats,
    column: int | None,
    beta: float,
    column_state: Floats,
    rows_at: _Rows,
    low: Floats,
    high: Floats,
) -> Cut | None:
    a = program.arrays
    m, n = len(a.row_lower), len(low)
    rho = np.where(np.abs(rho) < 1e-11, 0.0, rho)
    y, more = rho[:m], rho[m:]
    row = program.added_to(np.asarray(program.transposed @ y), more)
    f = beta - np.floor(beta)
    # Distances of columns: x = low + t or high - t.
    if column is not None:
        row[column] -= 1.0
    used = np.flatnonzero(np.abs(row) > 1e-10)
    sign = column_state[used]
    if ((sign == 0) & (np.abs(row[used]) > 1e-7)).any():
        return None  # a nonbasic free column
    alpha = row[used] * sign
    whole = a.integrality[used]
    part = alpha - np.floor(alpha)
    pi = np.where(whole, np.where(part <= f, np.floor(alpha), np.ceil(alpha)), 0.0)
    delta = np.where(np.abs(alpha - pi) < 1e-11, 0.0, alpha - pi)
    gamma = np.maximum(delta / f, -delta / (1 - f))
    gamma[low[used] == high[used]] = 0.0
    # Distances of rows: activity = lower + s or upper - s.
    rows = np.flatnonzero(rho)
    row_sign = rows_at.state[rows]
    equal = rows_at.low[rows] == rows_at.high[rows]
    row_sign[equal & (row_sign == 0)] = 1.0
    if (row_sign == 0).any():
        return None
    row_alpha = -rho[rows] * row_sign
    row_gamma = np.where(equal, 0.0, np.maximum(row_alpha / f, -row_alpha / (1 - f)))
    g = np.zeros(n)
    g[used] += gamma * sign
    full = np.zeros(m + len(more))
    full[rows] = row_gamma * row_sign
    g = program.added_to(g + program.transposed @ full[:m], full[m:])
    size = float(np.abs(g).max(initial=0.0))
    if not np.isfinite(size) or size < 1e-9:
        return None
    coefficients = _whole(g, size, low, high)
    if coefficients is None:
        return None
    values, grain, scale = coefficients
    kept = np.flatnonzero(values)
    if len(kept) > 0.5 * n + 200 or (np.abs(values[kept]).min(initial=1) * _RANGE * 100 < grain and len(kept) > 1000):
        return None
    split_columns, split_values = used[pi != 0], (pi * sign)[pi != 0]
    if column is not None:
        split_columns, split_values = np.append(split_columns, column), np.append(split_values, 1.0)
    if not len(split_columns):
        return None
    constant = float((np.where(sign > 0, low[used], -high[used]) * 1.0 * pi)[pi != 0].sum())
    # x_j + sum p t <= floor(beta), with t = x - low or high - x.
    floor = int(np.rint(np.floor(beta) + constant))
    if np.abs(split_values).max() > 2**40 or abs(floor) > 2**40:
        return None
    sides = []
    rounded = np.zeros(n)
    rounded[kept] = values[kept] / grain
    pi_x = np.zeros(n)
    pi_x[split_columns] += split_values
    for multiplier, times in ((-1 / f, -row_alpha / f), (1 / (1 - f), row_alpha / (1 - f))):
        both = np.zeros(m + len(more))
        both[rows] = row_sign * (row_gamma + times) * scale
        mine, earlier, cuts = program.apart(both)
        mine = program.signed(mine)
        of_split = multiplier * scale
        side = floor if multiplier < 0 else floor + 1
        bound = program.total(rounded - of_split * pi_x, mine, earlier, cuts, low, high, extra=of_split * side)
        sides.append((bound, mine, earlier, cuts, of_split))
    bound = min(each[0] for each in sides)
    if not np.isfinite(bound):
        return None
    first, second = sides
    return Cut(
        kept,
        values[kept].astype(np.int64),
        grain,
        bound,
        (split_columns, split_values.astype(np.int64), floor),
        (first[1], second[1]),
        (first[2], second[2]),
        (first[3], second[3]),
        (first[4], second[4]),
        len(program.kept),
    )


def _whole(g: Floats, size: float, low: Floats, high: Floats) -> tuple[Floats, int, float] | None:
    """Integer coefficients of a cut, their denominator, and by how much the cut is scaled.

    None: a coefficient of a column without any bound would be rounded, and the cut would not follow.
    """
    used = np.abs(g[np.abs(g) > 1e-9 * size])
    some = g[g != 0]
    for unit in (size, float(used.min())):
        fine = np.outer(_DENOMINATORS, some / unit)
        whole = np.rint(fine)
        close = np.abs(fine - whole).max(axis=1) <= 1e-7 * np.array(_DENOMINATORS)
        found = np.flatnonzero(close & (np.abs(whole).max(axis=1) <= GRAIN))
        if len(found):
            best = int(found[0])
            values = np.zeros(len(g))
            values[g != 0] = whole[best]
            grain = max(int(np.abs(values).max()), 1)
            return values, grain, _DENOMINATORS[best] / unit / grain
    if (g[~np.isfinite(low) & ~np.isfinite(high)] != 0).any():
        return None
    fine = g / size * GRAIN
    # Rounded so that what is left over counts at a bound that the column has.
    values = np.where(np.isfinite(high), np.rint(fine), np.ceil(fine - 1e-6))
    return np.where(np.isfinite(low), values, np.floor(fine + 1e-6)), GRAIN, 1.0 / size
