"""Decompose a fractional assignment of rows to columns into integer ones (Birkhoff; a column may take several rows).

A point of the transportation polytope ``row sums <= length, column sums <= capacity * length`` is a weighted sum of
vertices. Each vertex here is an assignment that gives every tight column its full capacity and leaves no tight row
idle. It is repaired from the previous one: when a row's amount is used up or a column becomes tight, rows move along
a path of columns.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from flowlex.formulations.program_arrays import Booleans, Floats, Integers

#: Amounts and slacks below this count as zero.
_NOTHING = 1e-12


def whole_assignments(amount: Floats, capacity: Integers, length: float) -> list[tuple[float, Integers]] | None:
    """Return weights that sum to ``length``, each with the (R,) column of every row (C if the row is idle).

    ``amount``: (R, C) amounts of every row in every column.
    ``capacity``: (C,) how many rows a column takes at once.
    Returns: None where rounding errors of the amounts leave no assignment.

    Examples
    --------
    >>> for weight, column in whole_assignments(np.full((3, 2), 1 / 3), np.array([1, 1]), 1.0):
    ...     print(round(weight, 6), column.tolist())
    0.333333 [0, 1, 2]
    0.333333 [1, 2, 0]
    0.333333 [2, 0, 1]
    """
    rows, columns = amount.shape
    idle = np.maximum(length - amount.sum(axis=1), 0.0)
    left_over = np.column_stack([np.where(amount > _NOTHING, amount, 0.0), np.where(idle > _NOTHING, idle, 0.0)])
    most = np.append(capacity, rows)
    found: list[tuple[float, Integers]] = []
    at, left = left_over.argmax(axis=1), length
    every = np.arange(rows)
    while left > _NOTHING * (1 + 10 * columns):
        slack = np.append(capacity * left - left_over[:, :-1].sum(axis=0), np.inf)
        if not _repaired(at, left_over, most, slack <= _NOTHING * 100):
            return found if left < 1e-9 else None
        count = np.bincount(at, minlength=columns + 1)
        open_ = (count < most) & np.isfinite(slack)
        step = min(left, *left_over[every, at].tolist(), *(slack[open_] / (most - count)[open_]).tolist())
        if step > 0:
            found.append((step, at.copy()))
        left_over[every, at] -= step
        left_over[left_over <= _NOTHING] = 0.0
        left -= step
        gone = np.flatnonzero(left_over[every, at] == 0)
        at[gone] = left_over[gone].argmax(axis=1)
    return found


def _repaired(at: Integers, amount: Floats, most: Integers, tight: Booleans) -> bool:
    """Move rows until no column exceeds its capacity and tight columns are full; return whether that was possible."""
    while True:
        count = np.bincount(at, minlength=len(most))
        over, under = np.flatnonzero(count > most), np.flatnonzero(tight & (count < most))
        if not len(over) and not len(under):
            return True
        if len(over):
            path = _path(at, amount, over[:1], under) if len(under) else None
            path = path or _path(at, amount, over[:1], np.flatnonzero(count < most))
        else:
            path = _path(at, amount, np.flatnonzero((count > 0) & ~tight), under)
        if path is None:
            return False
        for row, column in path:
            at[row] = column


def _path(at: Integers, amount: Floats, sources: Integers, targets: Integers) -> list[tuple[int, int]] | None:
    """Return moves (row, next column) along a shortest path from a source to a target; None without a path."""
    came: dict[int, tuple[int, int] | None] = {c: None for c in sources.tolist()}
    queue, goal = deque(sources.tolist()), set(targets.tolist())
    while queue:
        column = queue.popleft()
        if column in goal:
            moves = []
            while (step := came[column]) is not None:
                before, row = step
                moves.append((row, column))
                column = before
            return moves
        mine = np.flatnonzero(at == column)
        for other in np.flatnonzero((amount[mine] > 0).any(axis=0)).tolist():
            if other not in came:
                came[other] = column, int(mine[amount[mine, other].argmax()])
                queue.append(other)
    return None
