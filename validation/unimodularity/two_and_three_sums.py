"""Step 6, third part: 2-sums and 3-sums, so that the checker is complete for sums of what it can decide.

Rows and columns split into X and Y. With no entries in (X rows, Y columns) and rank 1 in (Y rows, X columns)
the matrix is the 2-sum of two of its own submatrices. With rank 1 in both it is Seymour's 3-sum

    [A ab; dc B]  of  [A a a; c 0 s]  and  [s 0 b; d d B],   s = +1 or -1,

and with ranks 0 and 2 it is such a sum after one pivot (which keeps total unimodularity both ways). If the
operands are totally unimodular, so is the sum (Seymour 1980; Schrijver, section 19.4).

`separation_kernels.two_separation` finds 2-separations in (m + n) x nonzeros. For 3-separations see
`three_separations`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Booleans, Integers
from flowlex.validation.unimodularity.named_matrix import canonical, ternary
from flowlex.validation.unimodularity.separation_kernels import two_separation
from flowlex.validation.unimodularity.time_limit import Clock, TimeIsUp


@dataclass(frozen=True)
class Separation:
    """A split of the rows and columns, and the entries that determine the low-rank parts (local indices)."""

    #: True for those in X.
    rows: Booleans
    columns: Booleans
    #: A nonzero entry of (Y rows, X columns).
    row: int
    column: int
    #: With a 3-sum: a nonzero entry of (X rows, Y columns), after the pivot if there is one; else -1.
    other_row: int = -1
    other_column: int = -1
    pivot: tuple[int, int] | None = None  # entry to pivot on first, or None

    def places(self) -> tuple[tuple[Integers, Integers], tuple[Integers, Integers]]:
        """Rows and columns of the two operands of a 2-sum: X with the row of the entry, the rest with its column."""
        x_rows, y_rows = np.flatnonzero(self.rows), np.flatnonzero(~self.rows)
        x_columns, y_columns = np.flatnonzero(self.columns), np.flatnonzero(~self.columns)
        return (np.append(x_rows, self.row), x_columns), (y_rows, np.insert(y_columns, 0, self.column))

    def data(self, sign: int = 1) -> dict[str, Any]:
        """Plain data for a certificate."""
        data: dict[str, Any] = {
            "rows": self.rows.astype(int).tolist(),
            "columns": self.columns.astype(int).tolist(),
            "entry": [self.row, self.column],
        }
        if self.other_row >= 0:
            data["other_entry"] = [self.other_row, self.other_column]
            data["pivot"] = None if self.pivot is None else list(self.pivot)
            data["sign"] = sign
        return data


def two_sum_parts(matrix: sp.csc_array, clock: Clock | None = None) -> Separation | None:
    """Find a 2-separation of a connected {-1, 0, 1} matrix with at least two elements on each side, or None."""
    clock = clock or Clock()
    rows = int(matrix.shape[0])
    by_row = matrix.tocsr()
    arrays = [part.astype(np.int64) for part in (by_row.indptr, by_row.indices, matrix.indptr, matrix.indices)]
    if sum(matrix.shape) < 4:
        return None
    row, column, inside = clock.run(two_separation, *arrays, clock.stop, steps=5.0 * matrix.nnz * sum(matrix.shape))
    if row == -2:
        raise TimeIsUp
    return None if row < 0 else Separation(inside[:rows], inside[rows:], int(row), int(column))


def separation_of(matrix: sp.csc_array, rows: Booleans, columns: Booleans) -> Separation | None:
    """Make a `Separation` of a split of rows and columns, if it is one that gives smaller operands."""
    support = (matrix.toarray() != 0).astype(np.int64)
    upper = _rank(support[rows][:, ~columns])
    lower = _rank(support[~rows][:, columns])
    least = min(int(rows.sum() + columns.sum()), int((~rows).sum() + (~columns).sum()))
    if upper > lower:
        return separation_of(matrix, ~rows, ~columns)
    if upper + lower > 2 or lower == 0 or least < (2 if upper + lower == 1 else 4):
        return None
    low = np.argwhere(support[~rows][:, columns])[0]
    row, column = int(np.flatnonzero(~rows)[low[0]]), int(np.flatnonzero(columns)[low[1]])
    if upper == 0:
        return (
            Separation(rows, columns, row, column) if lower == 1 else _after_pivot(matrix, rows, columns, row, column)
        )
    high = np.argwhere(support[rows][:, ~columns])[0]
    other = int(np.flatnonzero(rows)[high[0]]), int(np.flatnonzero(~columns)[high[1]])
    return Separation(rows, columns, row, column, *other)


def _rank(part: NDArray[np.int64]) -> int:
    """Rank over GF(2)."""
    rows = [int("".join(map(str, line)), 2) for line in part.tolist() if any(line)]
    rank = 0
    while rows:
        lead = max(rows)
        rows = [min(row, row ^ lead) for row in rows if row != lead]
        rows = [row for row in rows if row]
        rank += 1
    return rank


def _after_pivot(matrix: sp.csc_array, rows: Booleans, columns: Booleans, row: int, column: int) -> Separation | None:
    """Turn ranks 2 and 0 into 1 and 1: after the pivot on (Y row, X column) the two change sides."""
    dense = pivot(matrix.toarray().astype(np.int64), row, column)
    rows, columns = rows.copy(), columns.copy()
    rows[row], columns[column] = True, False
    low = np.argwhere(dense[~rows][:, columns])
    if low.size == 0 or np.abs(dense).max() > 1:
        return None
    first = int(np.flatnonzero(~rows)[low[0, 0]]), int(np.flatnonzero(columns)[low[0, 1]])
    return Separation(rows, columns, *first, row, column, (row, column))


def pivot(dense: NDArray[np.int64], row: int, column: int) -> NDArray[np.int64]:
    """Pivot on an entry +-1: the simplex exchange of ``row`` and ``column``, which keeps their places."""
    value = int(dense[row, column])
    if value not in (-1, 1):
        raise ValueError(f"the pivot is {value}, it must be 1 or -1")
    result: NDArray[np.int64] = dense - value * np.outer(dense[:, column], dense[row])
    result[row] = value * dense[row]
    result[:, column] = -value * dense[:, column]
    result[row, column] = value
    return result


def operands(matrix: sp.csc_array, split: Separation, sign: int = 1) -> tuple[sp.csc_array, sp.csc_array]:
    """Return the two operands of the sum.

    Raises `ValueError` if the matrix is not the sum that the separation says.
    """
    if split.other_row < 0:
        return _two_operands(matrix, split)
    dense = matrix.toarray().astype(np.int64)
    if split.pivot is not None:
        dense = pivot(dense, *split.pivot)
        if np.abs(dense).max() > 1:
            raise ValueError("the pivot leads outside {-1, 0, 1}")
    inside, across = split.rows, split.columns
    if inside[split.row] or not across[split.column] or dense[split.row, split.column] == 0:
        raise ValueError("the entry of the sum is not where it must be")
    c = dense[split.row, across]
    d = dense[~inside, split.column] * dense[split.row, split.column]
    if not np.array_equal(dense[~inside][:, across], np.outer(d, c)):
        raise ValueError("the part that should have rank 1 does not")
    upper, lower = dense[inside][:, across], dense[~inside][:, ~across]
    corner = dense[inside][:, ~across]
    if not inside[split.other_row] or across[split.other_column] or sign not in (1, -1):
        raise ValueError("the second entry of the sum is not where it must be")
    a = dense[inside, split.other_column]
    b = dense[split.other_row, ~across] * dense[split.other_row, split.other_column]
    if not np.array_equal(corner, np.outer(a, b)) or not a.any():
        raise ValueError("the second part that should have rank 1 does not")
    one = np.block([[upper, a[:, None], a[:, None]], [c, np.array([0, sign])]])
    two = np.block([[np.array([sign, 0]), b], [d[:, None], d[:, None], lower]])
    return _matrix(one), _matrix(two)


def _two_operands(matrix: sp.csc_array, split: Separation) -> tuple[sp.csc_array, sp.csc_array]:
    """The operands of a 2-sum are submatrices."""
    (one_rows, x_columns), (y_rows, two_columns) = split.places()
    by_row = matrix.tocsr()
    entry = int(by_row[split.row, split.column])
    if split.rows[split.row] or not split.columns[split.column] or entry == 0:
        raise ValueError("the entry of the sum is not where it must be")
    if by_row[one_rows[:-1]][:, two_columns[1:]].nnz:
        raise ValueError("the part that should be zero is not")
    low = by_row[y_rows][:, x_columns].tocoo()
    c = by_row[[split.row]][:, x_columns].toarray().ravel().astype(np.int64)
    d = by_row[y_rows][:, [split.column]].toarray().ravel().astype(np.int64) * entry
    full = low.nnz == np.count_nonzero(c) * np.count_nonzero(d)
    if not full or np.any(low.data != d[low.row] * c[low.col]):
        raise ValueError("the part that should have rank 1 does not")
    one, two = by_row[one_rows][:, x_columns], by_row[y_rows][:, two_columns]
    return ternary(canonical(one)), ternary(canonical(two))


def _matrix(dense: NDArray[np.int64]) -> sp.csc_array:
    return ternary(canonical(dense))
