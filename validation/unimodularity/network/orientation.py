"""Directions for the edges of a realisation, so that its paths give the signs of a matrix."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from flowlex.formulations.program_arrays import Booleans, Integers

Arcs: TypeAlias = tuple[Integers, Integers, Integers, Integers]


def orient(matrix: sp.csc_array, one: Integers, two: Integers) -> tuple[int, Arcs]:
    """Direct the edges ``one``-``two`` of the rows' tree.

    Where two edges of a column's path meet, the path arrives by one and leaves by the other. That says whether both run
    from ``one`` to ``two`` or just one of them does.
    Returns: the first column whose signs fit no directions of those before it (-1: all fit), then tails and heads of
    the tree's arcs and of the columns' arcs.
    """
    rows, columns = matrix.shape
    row, lengths = np.tile(matrix.indices.astype(np.int64), 2), np.diff(matrix.indptr)
    column = np.tile(np.repeat(np.arange(columns), lengths), 2)
    node = np.concatenate([one[row[: matrix.nnz]], two[row[: matrix.nnz]]])
    arrives = np.tile(matrix.data > 0, 2) == np.repeat([False, True], matrix.nnz)  # if the edge runs one to two
    order = np.argsort(column * (rows + 1) + node, kind="stable")
    row, column, node, arrives = (each[order] for each in (row, column, node, arrives))
    second = np.flatnonzero((column[1:] == column[:-1]) & (node[1:] == node[:-1])) + 1
    first, end = second - 1, np.ones(len(order), bool)
    end[first] = end[second] = False
    if not np.array_equal(np.bincount(column[end], minlength=columns), np.where(lengths > 0, 2, 0)):
        raise AssertionError("the realisation found is none; please report this matrix")
    turned, misfit = _two_colours(rows, row[first], row[second], column[first], arrives[first] == arrives[second])
    arrives ^= turned[row]
    tail, head = np.zeros(columns, np.int64), np.zeros(columns, np.int64)
    tail[column[end & ~arrives]], head[column[end & arrives]] = node[end & ~arrives], node[end & arrives]
    return misfit, (np.where(turned, two, one), np.where(turned, one, two), tail, head)


def _two_colours(count: int, one: Integers, two: Integers, time: Integers, differ: Booleans) -> tuple[Booleans, int]:
    """Colours of so many things by pairs that are alike or differ; the first time when no colours suit, or -1.

    The times must not decrease. A forest of the earliest pairs gives colours that suit as long as any do.
    """
    if not len(one):
        return np.zeros(count, bool), -1
    low, high = np.minimum(one, two), np.maximum(one, two)
    _, earliest = np.unique(low * count + high, return_index=True)
    weight = 2.0 * time[earliest] + differ[earliest] + 1
    ends = low[earliest].astype(np.int32), high[earliest].astype(np.int32)  # SciPy before 1.17.1 takes no others
    forest = minimum_spanning_tree(sp.csr_array((weight, ends), shape=(count, count))).tocoo()
    # Everything twice, once in either colour: a component holds what has one colour when its first thing has that.
    (row, col), shift = forest.coords, count * (1 - forest.data.astype(np.int64) % 2)
    both = np.concatenate([row, row + count]), np.concatenate([col + shift, col + count - shift])
    cover = sp.coo_array((np.ones(2 * len(row)), both), shape=(2 * count, 2 * count))
    _, component = connected_components(cover, directed=False)
    colour = component[:count] > component[count:]
    wrong = (colour[one] != colour[two]) != differ
    return colour, int(time[wrong][0]) if wrong.any() else -1
