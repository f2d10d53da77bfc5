"""Step 5: refutation by Camion's signing, the quickest way to a witness.

If the support of a matrix is that of some totally unimodular matrix, its signs are forced along any spanning
forest and any set of chordless cycles that covers the rest (Camion 1963). Where the given signs differ, the
chordless cycle found has entries that sum to 2 mod 4, a square submatrix of determinant +-2 all of whose proper
submatrices are totally unimodular. One pass that finds nothing proves nothing by itself, but other orders of
rows and columns look at other cycles. A complete clean pass does have a use: if the support is that of *some*
totally unimodular matrix, then this matrix is one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["Hole", "camion"]


@dataclass(frozen=True)
class Hole:
    """A chordless cycle: the submatrix ``rows`` x ``columns`` (in cycle order) has determinant +-2."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    orders: int


def camion(
    matrix: sp.csc_array,
    *,
    orders: int = 200,
    seed: int = 0,
    seconds: float = np.inf,
    visits: int = 2_000_000_000,
) -> Hole | None:
    """Look for a violating hole in random row and column orders.

    Parameters
    ----------
    matrix
        Canonical CSC array with entries -1, 0, 1.
    orders
        Number of passes; the first takes the columns as given, every second one works on the transpose.
    seed
        Of the random orders; the same seed finds the same hole.
    seconds, visits
        Stop after that much time, or after so many visits of entries in one pass.

    Returns
    -------
    Hole or None
        None when no order found one, which proves nothing.
    """
    from flowlex.validation.unimodularity import kernels

    generator = np.random.default_rng(seed)
    start = time.perf_counter()
    for turn in range(orders):
        if turn and time.perf_counter() - start > seconds:
            return None
        turned = turn % 2 == 1
        work = matrix if not turned else sp.csc_array(matrix.T)
        rows, columns = map(int, work.shape)
        shuffle = np.arange(rows) if turn == 0 else generator.permutation(rows)
        order = np.arange(columns) if turn == 0 else generator.permutation(columns)
        mixed = _with_rows(work, shuffle)
        by_row = mixed.tocsr()
        status, hole_rows, hole_columns = kernels.camion_pass(
            rows,
            order,
            mixed.indptr.astype(np.int64),
            mixed.indices.astype(np.int64),
            mixed.data.astype(np.int64),
            by_row.indptr.astype(np.int64),
            by_row.indices.astype(np.int64),
            visits,
        )
        if status == 1:
            back = np.empty(rows, np.int64)
            back[shuffle] = np.arange(rows)
            found = back[hole_rows], hole_columns
            return Hole(*(found if not turned else found[::-1]), orders=turn + 1)
    return None


def _with_rows(matrix: sp.csc_array, place: NDArray[np.int64]) -> sp.csc_array:
    """Give row r the number ``place[r]`` and mix the order inside columns accordingly."""
    mixed = sp.csc_array((matrix.data, place[matrix.indices], matrix.indptr), shape=matrix.shape, copy=True)
    mixed.sort_indices()
    return mixed
