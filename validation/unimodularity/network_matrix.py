"""Step 4, second part: network matrices, recognised exactly.

A network matrix has a row per arc of a directed tree and a column per further arc: +1 where the tree path from
the arc's tail to its head runs along the tree arc, -1 where against it. They, and their transposes, are
totally unimodular (Tutte 1965).

The tree is found by Tutte's method (1960), as told by Schrijver, Theory of Linear and Integer Programming,
section 20.1, for the support. Take a row r whose star disconnects the others: rows that share a column
avoiding r must lie on one side of its edge, so their components C_1..C_p do. Two components exclude each other
from a side if each has a row that holds some but not all of the other's columns through r; this graph must be
two-colourable, and each C_k with r must be realisable (recursively; a matrix with at most two entries per
column is realised by a star). The trees are then hung on the edge of r, those with more columns nearer to it.
If no row disconnects and some column has three entries, there is no realisation.

Signs come last: every column is a path by then, and one two-colouring of rows and columns directs all arcs.
By Camion's theorem the signs of a realisable support are unique up to negating lines, so if they do not fit
this tree they fit none, and the matrix is not totally unimodular.

Trying a row costs a union-find over the columns until everything is connected; rows with many entries are
tried first, so that the recursion stays shallow. The work is counted and can be bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["NetworkResult", "network_matrix", "realise"]

Array = NDArray[np.int64]


@dataclass(frozen=True)
class NetworkResult:
    """Answer of `network_matrix`.

    Attributes
    ----------
    status
        ``"network"``; ``"wrong signs"`` (the support is realisable, the signs are not: not totally
        unimodular, and `camion.hole_through` finds the hole); ``"no"``; or ``"gave up"`` (budget).
    transposed
        Whether the transpose was asked for: then rows and columns change places below.
    tree_tail, tree_head
        Ends of the tree arc of every row; nodes are 0..number of rows.
    arc_tail, arc_head
        Ends of the arc of every column.
    work
        Entries visited.
    misfit
        With wrong signs: the first column (row, if transposed) that does not fit those before it.
    """

    status: str
    transposed: bool
    tree_tail: Array | None = None
    tree_head: Array | None = None
    arc_tail: Array | None = None
    arc_head: Array | None = None
    work: int = 0
    misfit: int = -1


def network_matrix(matrix: sp.csc_array, *, transposed: bool = False, budget: int = 2**62) -> NetworkResult:
    """Recognise a network matrix (or the transpose of one) and return its tree and arcs.

    Parameters
    ----------
    matrix
        Canonical CSC array with entries -1, 0, 1, of any shape, connected or not.
    transposed
        Look at the transpose.
    budget
        Give up after visiting so many entries.
    """
    from flowlex.validation.unimodularity import orientation_kernels as kernels

    work = sp.csc_array(matrix.T) if transposed else matrix
    rows, columns = map(int, work.shape)
    ptr, idx = work.indptr.astype(np.int64), work.indices.astype(np.int64)
    status, ends, spent = realise(rows, ptr, idx, budget=budget)
    if ends is None:
        return NetworkResult(status, transposed, work=spent)
    code, *arcs = kernels.orient(rows, columns, ptr, idx, work.data.astype(np.int64), *ends)
    if code == 1:
        raise AssertionError("the realisation found is none; please report this matrix")
    if code == 2:
        return NetworkResult("wrong signs", transposed, work=spent, misfit=int(arcs[2][0]))
    return NetworkResult("network", transposed, arcs[0], arcs[1], arcs[2], arcs[3], work=spent)


@dataclass
class _Node:
    """One matrix of the recursion; ``parent`` is the place of its parent, ``part`` its component there."""

    rows: int
    ptr: Array
    idx: Array
    parent: int
    part: int
    split: dict[str, Any] = field(default_factory=dict)
    ends: tuple[Array, Array] | None = None


def realise(rows: int, ptr: Array, idx: Array, *, budget: int = 2**62) -> tuple[str, Any, int]:
    """Find a tree in which the support of every column is a path.

    Returns
    -------
    status, ends, work
        ``("network", (one, two), work)`` with the two ends of every row's edge, or ``("no", None, work)`` if
        there is no such tree, or ``("gave up", None, work)``.
    """
    nodes = [_Node(rows, ptr, idx, -1, -1)]
    work = 0
    place = 0
    while place < len(nodes):
        node = nodes[place]
        if int(np.diff(node.ptr).max(initial=0)) <= 2:
            node.ends = np.zeros(node.rows, np.int64), np.arange(1, node.rows + 1)
        else:
            status, spent = _split(node, place, nodes, budget - work)
            work += spent
            if status != "network":
                return status, None, work
        place += 1
    for node in reversed(nodes):
        if node.split and not _join(node):
            raise AssertionError("components of one side do not nest; please report this matrix")
        if node.parent >= 0:
            _hand_over(node, nodes[node.parent])
    return "network", nodes[0].ends, work


def _split(node: _Node, place: int, nodes: list[_Node], budget: int) -> tuple[str, int]:
    from flowlex.validation.unimodularity import realisation_kernels as kernels

    row, label, parts, work = kernels.find_split(node.rows, node.ptr, node.idx, _candidates(node), budget)
    if row < 0:
        return ("no" if row == -1 else "gave up"), work
    touch_ptr, touch_col, uneven, pairs = kernels.plan(node.rows, node.ptr, node.idx, row, label, parts)
    possible, side = kernels.two_sides(parts, pairs)
    if not possible:
        return "no", work
    inside, size, start, child_ptr, entry_start, child_idx = kernels.children(
        node.rows, node.ptr, node.idx, row, label, parts
    )
    node.split = {
        "row": row,
        "label": label,
        "order": np.lexsort((uneven, -np.diff(touch_ptr))),
        "side": side,
        "touch": (touch_ptr, touch_col),
        "size": size,
        "rows_of": np.split(np.argsort(label, kind="stable")[1:], np.cumsum(size)[:-1]),
        "one": np.zeros(node.rows, np.int64),
        "two": inside + 1,  # a component of one row is an edge from the root to vertex 1
    }
    for part in np.flatnonzero(size >= 2):
        nodes.append(
            _Node(
                int(size[part]) + 1,
                child_ptr[start[part] : start[part + 1]],
                child_idx[entry_start[part] : entry_start[part + 1]],
                place,
                int(part),
            )
        )
    return "network", work


def _candidates(node: _Node) -> Array:
    """Rows in the order to be tried: a few drawn in proportion to their entries, then by entries.

    Rows with few entries are mostly leaves of the tree, which split nothing; always taking the fullest row
    would peel a path from its end.
    """
    drawn = node.idx[np.random.default_rng(node.rows).integers(0, len(node.idx), 12)]
    by_entries = np.argsort(-np.bincount(node.idx, minlength=node.rows), kind="stable")
    return np.concatenate([drawn, by_entries])


def _join(node: _Node) -> bool:
    from flowlex.validation.unimodularity import realisation_kernels as kernels

    split = node.split
    ok, one, two = kernels.glue(
        node.ptr,
        node.idx,
        split["row"],
        split["label"],
        split["order"],
        split["side"],
        *split["touch"],
        split["size"],
        split["one"],
        split["two"],
    )
    node.ends = one, two
    node.split = {}
    return bool(ok)


def _hand_over(node: _Node, parent: _Node) -> None:
    """Give the parent this component's tree, renumbered: root 0, the leaf of the shared edge dropped."""
    assert node.ends is not None
    one, two = node.ends
    degree = np.bincount(np.concatenate(node.ends), minlength=node.rows + 1)
    ends = (int(one[-1]), int(two[-1]))
    leaf, root = ends if degree[ends[0]] == 1 else ends[::-1]
    number = np.zeros(node.rows + 1, np.int64)
    others = np.setdiff1d(np.arange(node.rows + 1), [leaf, root])
    number[others] = np.arange(1, len(others) + 1)
    rows = parent.split["rows_of"][node.part]
    parent.split["one"][rows] = number[one[:-1]]
    parent.split["two"][rows] = number[two[:-1]]
