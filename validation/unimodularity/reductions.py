"""Steps 1 and 2: entries, and everything that makes the matrix smaller without changing the answer.

* an entry outside {-1, 0, 1} is a 1 x 1 witness;
* zero, unit and repeated (up to sign) rows and columns are removed until nothing changes;
* the rest falls into blocks: the connected components of the bipartite graph of rows and columns.

All of it is linear in the nonzeros. A square submatrix of what is left is a square submatrix of the original,
so witnesses only need their indices mapped back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from flowlex.formulations.program_arrays import Integers
from flowlex.validation.unimodularity.named_matrix import bipartite
from flowlex.validation.unimodularity.reduction_kernels import reduce_lines
from flowlex.validation.unimodularity.time_limit import Clock

#: Words for the reasons in the trace of `reduce_matrix`, by number.
REASONS = ("zero", "unit", "equal", "opposite")


@dataclass(frozen=True)
class Reduction:
    """What `reduce_matrix` removed and what is left."""

    #: One operation each, in order: the line removed (a row number, or rows + a column number), the place of its
    #: reason in `REASONS`, and for a unit line the line of its one entry, for a repeated one its twin.
    line: Integers
    why: Integers
    other: Integers
    #: Indices of what is left.
    rows: Integers
    columns: Integers


def bad_entry(matrix: sp.csc_array) -> tuple[int, int] | None:
    """Return row and column of the first entry outside {-1, 0, 1}, or None."""
    bad = np.flatnonzero(np.abs(matrix.data) != 1)
    if bad.size == 0:
        return None
    place = int(bad[0])
    return int(matrix.indices[place]), int(np.searchsorted(matrix.indptr, place, side="right")) - 1


def reduce_matrix(matrix: sp.csc_array, *, seed: int = 0, clock: Clock | None = None) -> Reduction:
    """Remove zero, unit and repeated lines of a {-1, 0, 1} matrix until nothing changes, in linear time."""
    rows, columns = map(int, matrix.shape)
    pointer, far, sign = lines_graph(matrix)
    weight = np.random.default_rng(seed).integers(0, 2**64, rows + columns, dtype=np.uint64)
    operations, alive = (clock or Clock()).run(
        reduce_lines, rows, columns, pointer, far, sign, weight, steps=10 * (len(far) + rows + columns)
    )
    return Reduction(
        line=operations[:, 0],
        why=operations[:, 1],
        other=operations[:, 2],
        rows=np.flatnonzero(alive[:rows]),
        columns=np.flatnonzero(alive[rows:]),
    )


def split_blocks(matrix: sp.csc_array) -> list[tuple[Integers, Integers]]:
    """Return rows and columns of each connected component of the bipartite graph that has both."""
    rows = int(matrix.shape[0])
    _, component = connected_components(bipartite(matrix), directed=False)
    order = np.argsort(component, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(component))[:-1])
    return [(part[part < rows], part[part >= rows] - rows) for part in parts if len(part) > 1]


def lines_graph(
    matrix: sp.csc_array,
) -> tuple[Integers, Integers, Integers]:
    """Return adjacency pointers, far ends and signs of the bipartite graph; columns follow the rows."""
    rows = int(matrix.shape[0])
    turned = matrix.tocsr()
    pointer = np.concatenate([turned.indptr, turned.indptr[-1] + matrix.indptr[1:]]).astype(np.int64)
    far = np.concatenate([turned.indices.astype(np.int64) + rows, matrix.indices.astype(np.int64)])
    sign = np.concatenate([turned.data, matrix.data]).astype(np.int64)
    return pointer, far, sign
