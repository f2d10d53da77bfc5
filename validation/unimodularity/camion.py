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
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from flowlex.validation.unimodularity.camion_kernels import camion_pass
from flowlex.validation.unimodularity.time_limit import Clock, TimeIsUp

#: Passes that take short columns first; the rest are wholly random.
SORTED_ORDERS = 4
#: Visits of a first attempt, which is quick enough without compiling.
FEW_VISITS = 100_000


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
    visits: int = 500_000_000,
    clock: Clock | None = None,
) -> Hole | None:
    """Look for a violating hole in random row and column orders.

    ``matrix``: canonical CSC array with entries -1, 0, 1.
    ``orders``: number of passes; the first takes the columns as given, every second one works on the transpose.
    ``seed``: of the random orders; the same seed finds the same hole.
    ``seconds``, ``visits``: stop after that much processor time, or after so many visits of entries in one pass.
    ``clock``: raises `TimeIsUp` when its limit passes.
    Returns: None when no order found one, which proves nothing.
    """
    generator = np.random.default_rng(seed)
    start = time.thread_time()
    for turn in range(orders):
        if turn and time.thread_time() - start > seconds:
            return None
        turned = turn % 2 == 1
        work = matrix if not turned else sp.csc_array(matrix.T)
        rows, columns = map(int, work.shape)
        shuffle = np.arange(rows) if turn == 0 else generator.permutation(rows)
        order = np.arange(columns) if turn == 0 else generator.permutation(columns)
        if turn < SORTED_ORDERS:  # short columns first: the holes that close later are short as well
            order = order[np.argsort(np.diff(work.indptr)[order], kind="stable")]
        status, hole_rows, hole_columns = _pass(_with_rows(work, shuffle), order, 0, visits, clock)
        if status == 1:
            back = np.empty(rows, np.int64)
            back[shuffle] = np.arange(rows)
            found = back[hole_rows], hole_columns
            return Hole(*(found if not turned else found[::-1]), orders=turn + 1)
    return None


def hole_through(matrix: sp.csc_array, column: int, clock: Clock | None = None) -> Hole | None:
    """Look for a violating hole whose last column is ``column`` among the columns up to it, in linear time.

    If the columns before it are totally unimodular and the support of all these columns is that of a totally
    unimodular matrix, then None means that all of them together are totally unimodular.
    """
    order = np.arange(column + 1)
    status, rows, columns = _pass(matrix[:, : column + 1], order, column, 2**62, clock)
    return Hole(rows, columns, 1) if status == 1 else None


def _pass(matrix: sp.csc_array, order: NDArray[np.int64], trusted: int, visits: int, clock: Clock | None) -> Any:
    clock = clock or Clock()
    by_row = matrix.tocsr()
    arrays = (matrix.indptr, matrix.indices, matrix.data, by_row.indptr, by_row.indices)
    rows = int(matrix.shape[0])
    given = rows, order, trusted, *(part.astype(np.int64) for part in arrays)
    few = min(visits, FEW_VISITS)  # as plain Python first; most passes over small matrices end by then
    found = clock.run(camion_pass, *given, few, clock.stop, steps=matrix.nnz + few)
    if found[0] == -1 and few < visits:
        found = clock.run(camion_pass, *given, visits, clock.stop, steps=visits)
    if found[0] == -2:
        raise TimeIsUp
    return found


def _with_rows(matrix: sp.csc_array, place: NDArray[np.int64]) -> sp.csc_array:
    """Give row r the number ``place[r]`` and mix the order inside columns accordingly."""
    mixed = sp.csc_array((matrix.data, place[matrix.indices], matrix.indptr), shape=matrix.shape, copy=True)
    mixed.sort_indices()
    return mixed
