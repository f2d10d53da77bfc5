r"""Sorted vectors and convex costs as rows and variables.

The sum of the k largest entries of a vector e is the least of ``k t + sum of max(e_j - t, 0)`` over t. Minimising these
sums for k = 1, 2, ... one after the other makes the sorted vector lexicographically smallest, over integers as well.
Where all entries lie on known levels, the sums of what exceeds each level, from the largest down, do the same. Entries
of integer variables lie on the multiples of one step between their bounds: their largest is minimised first, then what
exceeds each level. This has fewer rows, and far better linear relaxations: of a network it stays one.
Source: Ogryczak and Sliwinski 2003 (sums of the k largest); the lambda-representation of convex functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from flowlex.formulations.language.expressions import Expression
from flowlex.formulations.language.labels import StatementError
from flowlex.formulations.language.statement import Statement, _integral, _range_of
from flowlex.formulations.lexicographic.sorted_vectors import SortedVector

#: Most entries of a vector that is sorted without breakpoints: the rows are the square of it.
_MOST = 400
#: Most levels of entries of integer variables; beyond, sums of the largest take fewer stages.
_LEVELS = 400


def sorted_stages(
    problem: Statement, name: str, entries: Expression, breakpoints: Sequence[float] | None, sign: int, words: str
) -> None:
    """Add the stages of a lexicographic min-max (``sign`` 1) or max-min (-1) of an expression's members."""
    if not isinstance(entries, Expression) or not entries.index.keys:
        raise StatementError(f"objective {name!r}: expected one expression for each label, such as x.sum(by='job')")
    if not entries.index.count:
        raise StatementError(f"objective {name!r}: there is nothing to sort")
    if breakpoints is not None:
        try:
            points = [float(point) for point in breakpoints]
        except (TypeError, ValueError):
            points = []
        if not points or not np.isfinite(points).all():
            raise StatementError(f"objective {name!r}: breakpoints are one finite number or more, got {breakpoints!r}")
        _by_breakpoints(problem, name, entries, breakpoints, sign, words)
        return
    count = entries.index.count
    levels = _integer_levels(problem, entries, sign)
    if levels is not None:
        _by_levels(problem, name, entries, levels, sign, words)
        return
    if count > _MOST:
        raise StatementError(
            f"objective {name!r}: {count} entries take {count**2} rows; give breakpoints=(values they may take)"
        )
    low, high = _range_of(problem, entries)
    ranks = range(1, count + 1)
    level = f"{name}_rank"
    whole = _takes_integers(problem, entries)
    domain: dict[str, Any] = {level: ranks}
    threshold = problem.variables(
        f"{name}_threshold",
        **domain,
        lower=float(low.min()),
        upper=float(high.max()),
        integer=whole,
        words=f"threshold of {name}",
    )
    reach = float(high.max() - low.min())
    a, b = problem.cross(threshold, entries)
    excess = problem.variables(
        f"{name}_excess",
        over=a,
        lower=0,
        upper=reach if np.isfinite(reach) else None,
        integer=whole,
        words=f"what lies beyond the threshold of {name}",
    )
    problem.constrain(
        f"{name}_sorted", excess >= (b - a if sign > 0 else a - b), words="what exceeds a threshold counts"
    )
    for k in ranks:
        total = threshold.sel(**{level: k}) * k + excess.sel(**{level: k}).sum() * sign
        which = "largest" if sign > 0 else "smallest"
        problem._objective(
            f"{name}_{k}", total, sign < 0, 0, words or f"sum of the {k} {which} of {name}", "", sorted_of=name
        )


def sorted_vectors(problem: Statement) -> list[SortedVector]:
    """Where the stages stand that sort the sums of the largest or smallest entries, as `sorted_stages` states them."""
    found, names = [], [o.name for o in problem.objectives]
    starts = dict(zip(problem.rows, np.cumsum([0, *(b.index.count for b in problem.rows.values())]), strict=False))
    for name in dict.fromkeys(o.sorted_of for o in problem.objectives if o.sorted_of):
        threshold, excess = problem.blocks.get(f"{name}_threshold"), problem.blocks.get(f"{name}_excess")
        rows = problem.rows.get(f"{name}_sorted")
        if threshold is None or excess is None or rows is None or f"{name}_1" not in names:
            continue
        n, first = threshold.index.count, names.index(f"{name}_1")
        if names[first : first + n] == [f"{name}_{k}" for k in range(1, n + 1)] and n * n == rows.index.count:
            square = np.arange(n * n).reshape(n, n)
            columns = threshold.start + np.arange(n)
            found.append(SortedVector(first, columns, excess.start + square, int(starts[rows.name]) + square))
    return found


def _integer_levels(problem: Statement, entries: Expression, sign: int) -> list[Fraction] | None:
    """The values that entries of integer variables may take, the worst first; None if there are none or too many."""
    unit = entries._unit
    if unit is None or not _integral(problem, entries):
        return None
    low, high = (bound / float(unit) for bound in _range_of(problem, entries))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None
    step = int(np.gcd.reduce(np.abs(entries._values).astype(np.int64))) or 1
    first = int(entries._constant[0])
    if ((entries._constant - first) % step != 0).any():
        return None
    bottom, top = int(np.ceil((low.min() - first) / step)), int(np.floor((high.max() - first) / step))
    if top - bottom > _LEVELS or (top - bottom) * entries.index.count > _MOST**2:
        return None
    numbers = range(top, bottom - 1, -1) if sign > 0 else range(bottom, top + 1)
    return [(first + k * step) * unit for k in numbers]


def _by_levels(
    problem: Statement, name: str, entries: Expression, levels: Sequence[Fraction], sign: int, words: str
) -> None:
    which, beyond = ("largest", "above") if sign > 0 else ("smallest", "below")
    whole = all(level.denominator == 1 for level in levels)
    low, high = _range_of(problem, entries)
    extreme = problem.variables(
        f"{name}_{which}", lower=low.min(), upper=high.max(), integer=whole, words=f"{which} of {name}"
    )
    problem.constrain(f"{name}_{which}", entries <= extreme if sign > 0 else entries >= extreme, words=f"the {which}")
    problem._objective(f"{name}_1", extreme, sign < 0, 0, words or f"{which} of {name}", "", sorted_of=name)
    points = [plain(level) for level in levels[1:]]
    marks = np.array(points, np.float64)
    # An entry that never lies beyond a level has no variable there.
    pairs = marks[:, None] < high[None, :] if sign > 0 else marks[:, None] > low[None, :]
    used = pairs.any(axis=1)
    points = [points[k] for k in np.flatnonzero(used).tolist()]
    if not points:
        return
    level = f"{name}_level"
    problem.set(level, points)
    values = problem.as_data(_series(points, level), f"levels of {name!r}", entries.index)
    a, b = problem.cross(values, entries)
    members = np.flatnonzero(pairs[used].ravel())
    index = a.index.take(members)
    a, b = a._gather(members, index, a.formula), b._gather(members, index, b.formula)
    excess = problem.variables(
        f"{name}_excess", over=a, lower=0, integer=whole, words=f"what lies {beyond} each level of {name}"
    )
    problem.constrain(
        f"{name}_sorted", excess >= (b - a if sign > 0 else a - b), words="what lies beyond a level counts"
    )
    for k, point in enumerate(points, 2):
        total = excess.sel(**{level: point}).sum()
        said = words or f"sum of what lies {beyond} {point:g} of {name}"
        problem._objective(f"{name}_{k}", total, False, 0, said, "", sorted_of=name)


def plain(number: Fraction) -> int | float:
    """The integer, or the float."""
    return int(number) if number.denominator == 1 else float(number)


def _by_breakpoints(
    problem: Statement, name: str, entries: Expression, breakpoints: Sequence[float], sign: int, words: str
) -> None:
    points = sorted(set(breakpoints), reverse=sign > 0)
    if len(points) != len(list(breakpoints)):
        raise StatementError(f"objective {name!r}: a breakpoint occurs twice")
    low, high = _range_of(problem, entries)
    level = f"{name}_breakpoint"
    edge = (points[-1], points[0]) if sign > 0 else (points[0], points[-1])
    if (low.min() < edge[0] - 1e-9 and sign < 0) or (high.max() > edge[1] + 1e-9 and sign > 0):
        raise StatementError(
            f"objective {name!r}: entries range from {low.min():g} to {high.max():g}, breakpoints from {edge[0]:g} to "
            f"{edge[1]:g}"
        )
    problem.set(level, points)
    marks = problem.as_data(_series(points, level), f"breakpoints of {name!r}", entries.index)
    a, b = problem.cross(marks, entries)
    whole = _takes_integers(problem, entries) and all(float(point).is_integer() for point in points)
    excess = problem.variables(
        f"{name}_excess", over=a, lower=0, integer=whole, words=f"what lies beyond each breakpoint of {name}"
    )
    problem.constrain(
        f"{name}_sorted", excess >= (b - a if sign > 0 else a - b), words="what exceeds a breakpoint counts"
    )
    for k, point in enumerate(points, 1):
        beyond = "above" if sign > 0 else "below"
        problem._objective(
            f"{name}_{k}",
            excess.sel(**{level: point}).sum(),
            False,
            0,
            words or f"sum of what lies {beyond} {point:g} of {name}",
            "",
            sorted_of=name,
        )


def _takes_integers(problem: Statement, entries: Expression) -> bool:
    """Whether all entries are integers where the integer variables are."""
    unit = entries._unit
    return unit is not None and unit.denominator == 1 and _integral(problem, entries)


def _series(points: Sequence[float], level: str) -> Any:
    import pandas as pd

    return pd.Series(list(points), index=pd.Index(list(points), name=level))


def convex_cost(
    problem: Statement, name: str, amount: Expression, steps: Sequence[tuple[float | None, float]]
) -> Expression:
    """The cost of amounts whose rate rises in steps; see `flowlex.Problem.convex_cost`."""
    if not isinstance(amount, Expression):
        raise StatementError(f"convex_cost {name!r}: expected an expression, got {amount!r}")
    try:
        rates = [rate for _, rate in steps]
        widths = [np.inf if width is None else float(width) for width, _ in steps]
        falls = any(later < before for before, later in pairwise(map(float, rates)))
    except (TypeError, ValueError) as error:
        raise StatementError(
            f"convex_cost {name!r}: expected pairs of width and rate such as (8, 10), got {steps!r}"
        ) from error
    if not steps or falls:
        raise StatementError(f"convex_cost {name!r}: rates must not fall from step to step, got {rates}")
    if any(not width > 0 for width in widths) or any(np.isinf(width) for width in widths[:-1]):
        raise StatementError(f"convex_cost {name!r}: widths are positive, and only the last may be None, got {widths}")
    import pandas as pd

    level = f"{name}_step"
    number = pd.Index(range(1, len(steps) + 1), name=level)
    problem.set(level, range(1, len(steps) + 1))
    marks = problem.as_data(pd.Series(rates, index=number), f"rates of {name!r}", amount.index)
    over, _ = problem.cross(amount, marks)
    pieces = problem.variables(
        name, over=over, lower=0, upper=pd.Series(widths, index=number), words=f"amount in each step of {name}"
    )
    keys = amount.index.keys
    problem.constrain(f"{name}_steps", pieces.sum(by=keys) == amount, words="steps add up to the amount")
    return (pieces * pd.Series(rates, index=number, name=f"{name}_rate")).sum(by=keys)
