"""Step 3: at most two nonzeros per column (or per row), decided exactly in linear time.

Heller and Tompkins (1956): such a {-1, 0, 1} matrix is totally unimodular exactly when its rows split into two
parts so that two entries of a column lie in different parts if their signs agree and in one part if they
differ. That is a two-colouring of a signed graph (rows are vertices, columns are edges); where it fails there
is a cycle with an odd number of columns of equal signs, a square submatrix of determinant +-2.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, connected_components

__all__ = ["TwoColouring", "heller_tompkins"]


@dataclass(frozen=True)
class TwoColouring:
    """Result of `heller_tompkins`.

    Attributes
    ----------
    by
        ``"columns"`` or ``"rows"``: which of them have at most two nonzeros each.
    part
        0 or 1 per line of the other side, when the matrix is totally unimodular; else None.
    odd_cycle
        Rows and columns of a simple odd cycle, in the order of the cycle, when it is not; else None.
    """

    by: str
    part: NDArray[np.int64] | None
    odd_cycle: tuple[NDArray[np.int64], NDArray[np.int64]] | None


def heller_tompkins(matrix: sp.csc_array) -> TwoColouring | None:
    """Decide a {-1, 0, 1} matrix with at most two nonzeros per column or per row.

    Parameters
    ----------
    matrix
        Canonical CSC array with entries -1, 0, 1.

    Returns
    -------
    TwoColouring or None
        None when some column and some row have three nonzeros, so that the theorem does not apply.
    """
    if int(np.diff(matrix.indptr).max(initial=0)) <= 2:
        part, cycle = _colour(matrix)
        return TwoColouring("columns", part, cycle)
    counts = np.bincount(matrix.indices, minlength=matrix.shape[0])
    if int(counts.max(initial=0)) > 2:
        return None
    turned = sp.csc_array(matrix.T)
    turned.sort_indices()
    part, cycle = _colour(turned)
    return TwoColouring("rows", part, None if cycle is None else (cycle[1], cycle[0]))


def _colour(
    matrix: sp.csc_array,
) -> tuple[NDArray[np.int64] | None, tuple[NDArray[np.int64], NDArray[np.int64]] | None]:
    """Two-colour the rows of a matrix with at most two nonzeros per column.

    Every row r becomes two vertices, r and r + m, for its two colours; a column joins those that go together.
    A row whose two vertices are connected cannot be coloured.
    """
    rows = int(matrix.shape[0])
    edges = np.flatnonzero(np.diff(matrix.indptr) == 2)
    first, second = matrix.indptr[edges], matrix.indptr[edges] + 1
    one, two = matrix.indices[first].astype(np.int64), matrix.indices[second].astype(np.int64)
    differ = matrix.data[first] == matrix.data[second]
    ends = np.where(differ, two + rows, two), np.where(differ, two, two + rows)
    cover = sp.csr_array(
        (np.ones(2 * len(edges), np.int8), (np.concatenate([one, one + rows]), np.concatenate(ends))),
        shape=(2 * rows, 2 * rows),
    )
    _, label = connected_components(cover, directed=False)
    clash = np.flatnonzero(label[:rows] == label[rows:])
    if clash.size == 0:
        return (label[:rows] > label[rows:]).astype(np.int64), None
    return None, _odd_cycle(cover, rows, int(clash[0]), (one, two, differ, edges))


def _odd_cycle(
    cover: sp.csr_array,
    rows: int,
    start: int,
    graph: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut a simple odd cycle out of a shortest walk from one colour of ``start`` to the other."""
    one, two, differ, edges = graph
    _, before = breadth_first_order(cover, start, directed=False)
    walk = [start + rows]
    while walk[-1] != start:
        walk.append(int(before[walk[-1]]))
    # The first row met in both colours closes a simple cycle of odd parity.
    seen: dict[int, int] = {}
    low, high = 0, len(walk) - 1
    for place, vertex in enumerate(walk):
        if vertex % rows in seen:
            low, high = seen[vertex % rows], place
            break
        seen[vertex % rows] = place
    cycle = walk[low : high + 1]
    inside = np.zeros(rows, dtype=bool)
    inside[[vertex % rows for vertex in cycle]] = True
    near = np.flatnonzero(inside[one] & inside[two])
    joins = {
        key: int(edges[edge])
        for edge in near
        for a, b in ((int(one[edge]), int(two[edge])), (int(two[edge]), int(one[edge])))
        for key in ((a, b, bool(differ[edge])),)
    }
    columns = [joins[a % rows, b % rows, (a < rows) != (b < rows)] for a, b in pairwise(cycle)]
    return np.array([vertex % rows for vertex in cycle[:-1]]), np.array(columns)
