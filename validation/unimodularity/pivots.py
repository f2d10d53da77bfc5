"""Step 5 again in other bases: random pivots, then Camion's signing.

Pivoting keeps total unimodularity both ways, and it changes which cycles are holes. With the identity put
beside the matrix, every pivot exchanges a row's unit column against a column; minors of the pivoted matrix are,
up to sign, minors of the original one. So a violating submatrix of any pivoted matrix names one of the
original: the rows whose unit columns left, against the columns that came in.
"""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp

from flowlex.validation.unimodularity.camion import camion
from flowlex.validation.unimodularity.determinant import violates

__all__ = ["pivot", "pivoted_hole"]


def pivot(dense: np.ndarray, row: int, column: int) -> np.ndarray:
    """Pivot on an entry +-1: the simplex exchange of ``row`` and ``column``, which keeps their places."""
    value = int(dense[row, column])
    if value not in (-1, 1):
        raise ValueError(f"the pivot is {value}, it must be 1 or -1")
    result: np.ndarray = dense - value * np.outer(dense[:, column], dense[row])
    result[row] = value * dense[row]
    result[:, column] = -value * dense[:, column]
    result[row, column] = value
    return result


def pivoted_hole(
    matrix: sp.csc_array, *, seed: int = 0, seconds: float = 10.0, bases: int = 60
) -> tuple[list[int], list[int]] | None:
    """Walk through random bases and look for a hole in each.

    Returns
    -------
    rows, columns of the original matrix
        A square submatrix of determinant beyond +-1, or None when none was found (which proves nothing).
    """
    generator = np.random.default_rng(seed)
    stop = time.thread_time() + seconds
    rows, columns = map(int, matrix.shape)
    dense = matrix.toarray().astype(np.int64)
    if not dense.any():
        return None
    # label >= 0: a column of the original; label < 0: the unit column of row -label - 1.
    row_label = -1 - np.arange(rows)
    column_label = np.arange(columns)
    for _ in range(bases):
        for _ in range(max(1, min(rows, columns) // 4)):
            places = np.argwhere(dense)
            row, column = places[generator.integers(len(places))]
            dense = pivot(dense, int(row), int(column))
            row_label[row], column_label[column] = column_label[column], row_label[row]
            bad = np.argwhere(np.abs(dense) > 1)
            if bad.size:
                return _original(row_label, column_label, bad[0][:1], bad[0][1:], rows)
            if time.thread_time() > stop:
                return None
        pivoted = sp.csc_array(dense.astype(np.int8))
        hole = camion(pivoted, orders=2, seed=int(generator.integers(2**31)))
        if hole is not None:
            found = _original(row_label, column_label, hole.rows, hole.columns, rows)
            if violates(matrix.tocsr()[found[0]][:, found[1]]):
                return found
    return None


def _original(
    row_label: np.ndarray, column_label: np.ndarray, hole_rows: np.ndarray, hole_columns: np.ndarray, rows: int
) -> tuple[list[int], list[int]]:
    """Rows and columns of the original submatrix with the same determinant, up to sign."""
    basis = row_label.tolist()
    for row in sorted(hole_rows.tolist()):
        basis[row] = None
    inside = [label for label in basis if label is not None] + column_label[hole_columns].tolist()
    came_in = sorted(label for label in inside if label >= 0)
    stayed = {-label - 1 for label in inside if label < 0}
    return [row for row in range(rows) if row not in stayed], came_in
