"""Step 4, first part: interval matrices in the given order.

A matrix whose columns each hold one block of consecutive equal entries is totally unimodular (Fulkerson and
Gross 1965); it is the network matrix of a path. Only the order in which the rows are given is looked at here;
other orders are found by `network_matrix`, since every interval matrix is a network matrix.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

__all__ = ["consecutive_ones"]


def consecutive_ones(matrix: sp.csc_array) -> str | None:
    """Return ``"columns"`` or ``"rows"``, whichever are intervals of equal signs in the given order, or None.

    Parameters
    ----------
    matrix
        Canonical CSC array with entries -1, 0, 1 (indices sorted).
    """
    if _intervals(matrix):
        return "columns"
    turned = sp.csc_array(matrix.T)
    turned.sort_indices()
    return "rows" if _intervals(turned) else None


def _intervals(matrix: sp.csc_array) -> bool:
    if matrix.nnz < 2:
        return True
    same_column = np.ones(matrix.nnz - 1, dtype=bool)
    starts = matrix.indptr[1:-1]
    starts = starts[(starts > 0) & (starts < matrix.nnz)]
    same_column[starts - 1] = False
    follows = np.diff(matrix.indices) == 1
    agrees = np.diff(matrix.data) == 0
    return bool(np.all(~same_column | (follows & agrees)))
