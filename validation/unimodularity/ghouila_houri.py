"""Ghouila-Houri's criterion, exhaustive on the short side.

A matrix is totally unimodular exactly when every set of its rows can be given signs so that the signed sum of
the rows has entries -1, 0, 1 only (Ghouila-Houri 1962): an equitable bicolouring. The sets
that can be coloured are the supports of the vectors s in {-1, 0, 1}**k with ``s A`` in {-1, 0, 1}, which can be listed
up to k = 11 or so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

#: Largest short side that `uncolourable_rows` takes: 3**11 = 177 147 sign vectors.
LIMIT = 11


def uncolourable_rows(matrix: sp.csc_array) -> tuple[int, ...] | None:
    """Return a smallest set of rows without an equitable bicolouring; None means totally unimodular.

    ``matrix``: {-1, 0, 1} matrix with at most `LIMIT` rows, any number of columns.
    Raises `ValueError` if it has more rows.
    """
    rows = int(matrix.shape[0])
    if rows > LIMIT:
        raise ValueError(f"{rows} rows are too many to list all sign vectors (limit {LIMIT})")
    columns = np.unique(matrix.toarray().astype(np.int8), axis=1)
    signs = _sign_vectors(rows)
    step = 16
    for start in range(0, columns.shape[1], step):
        sums = signs @ columns[:, start : start + step]
        signs = signs[np.all(np.abs(sums) <= 1, axis=1)]
    covered = np.zeros(1 << rows, dtype=bool)
    covered[(signs != 0) @ (1 << np.arange(rows))] = True
    missing = np.flatnonzero(~covered)
    if missing.size == 0:
        return None
    smallest = int(missing[np.argmin(np.bitwise_count(missing))])
    return tuple(row for row in range(rows) if smallest >> row & 1)


def _sign_vectors(rows: int) -> NDArray[np.int8]:
    """All vectors in {-1, 0, 1}**rows whose first nonzero is +1, and the zero vector."""
    vectors = np.indices((3,) * rows, np.int8).reshape(rows, -1).T
    vectors[vectors == 2] = -1
    lead = vectors[np.arange(len(vectors)), (vectors != 0).argmax(axis=1)]
    return np.asarray(vectors[lead >= 0])


def square_part(matrix: sp.csc_array, rows: Sequence[int]) -> tuple[int, ...]:
    """Return as many columns as ``rows`` that make them a square submatrix of determinant +-2.

    ``rows``: a set without an equitable bicolouring, all of whose proper subsets have one. Then columns can be dropped
        one by one as long as no bicolouring appears, and exactly ``len(rows)`` remain.
    """
    strip = matrix.tocsr()[list(rows)].toarray().astype(np.int64)
    even = np.flatnonzero((np.count_nonzero(strip, axis=0) % 2 == 0) & strip.any(axis=0))
    _, first = np.unique(strip[:, even], axis=1, return_index=True)
    columns = even[np.sort(first)]
    size = len(rows)
    signs = np.ones((1 << (size - 1), size), np.int64)
    for bit in range(size - 1):
        signs[:, bit] = np.where(np.arange(1 << (size - 1)) >> bit & 1, -1, 1)
    breaks = np.abs(signs @ strip[:, columns]) > 1
    times = breaks.sum(axis=1)
    kept = []
    for place, column in enumerate(columns):
        if np.all(times[breaks[:, place]] > 1):
            times -= breaks[:, place]
        else:
            kept.append(int(column))
    return tuple(kept)


@dataclass(frozen=True)
class SplitFailure:
    """A set of rows on which one fixed split of the rows is not equitable.

    ``total`` is the signed sum of ``column`` over ``rows``: 2 or more in absolute value.
    """

    rows: tuple[int, ...]
    column: int
    total: int


def bicoloring_counterexample(matrix: sp.csc_array, red: Sequence[int]) -> SplitFailure | None:
    """Show that splitting every row set into its red rows and the others is not always equitable.

    ``red``: the rows on one side of the fixed split that a proof uses for all subsets at once.
    Returns: the smallest set that breaks the split (two rows and a column), or None if it works for every set. A
    failure refutes the proof, not yet total unimodularity: that takes a set on which *no* split works
    (`uncolourable_rows`).
    """
    sign = np.full(int(matrix.shape[0]), -1, np.int64)
    sign[list(red)] = 1
    signed = matrix.data * sign[matrix.indices]
    for column in range(int(matrix.shape[1])):
        part = slice(int(matrix.indptr[column]), int(matrix.indptr[column + 1]))
        for value in (1, -1):
            same = matrix.indices[part][signed[part] == value]
            if len(same) >= 2:
                return SplitFailure((int(same[0]), int(same[1])), column, 2 * value)
    return None
