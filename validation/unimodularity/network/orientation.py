"""Directions for the edges of a realisation, so that its paths give the signs of a matrix."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"
# numba infers the types; annotations would help neither numba nor a reader.
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import loop


@loop
def _root(parent, differs, row):
    """The representative of a row, and whether the two are directed differently."""
    differ = False
    while parent[row] != row:
        up = parent[row]
        if parent[up] != up:
            differs[row] ^= differs[up]
            parent[row] = parent[up]
        differ ^= differs[row]
        row = parent[row]
    return row, differ


@loop
def orient(rows, ptr, idx, positive, one, two):
    """Direct the edges ``one``-``two`` of the rows' tree.

    Where two edges of a column's path meet, the path arrives by one and leaves by the other. That says whether both run
    from ``one`` to ``two`` or just one of them does; a union-find of rows keeps what is known.
    Returns: the first column whose signs fit no directions of those before it (-1: all fit, -2: a column is no path),
    then tails and heads of the tree's arcs and of the columns' arcs.
    """
    cols = len(ptr) - 1
    parent, differs = np.arange(rows), np.zeros(rows, np.bool_)
    met = np.full(rows + 1, -1, np.int64)  # the column that met a node last, by which row, and whether it arrived there
    by, arrived = np.zeros(rows + 1, np.int64), np.zeros(rows + 1, np.bool_)
    tree_tail, tree_head = one.copy(), two.copy()
    tail, head = np.zeros(cols, np.int64), np.zeros(cols, np.int64)
    for c in range(cols):
        for e in range(ptr[c], ptr[c + 1]):
            row = idx[e]
            for side in (0, 1):
                node = two[row] if side else one[row]
                arrives = positive[e] == (side == 1)
                if met[node] != c:
                    met[node], by[node], arrived[node] = c, row, arrives
                    continue
                differ = arrived[node] == arrives
                near, near_differs = _root(parent, differs, by[node])
                far, far_differs = _root(parent, differs, row)
                differ ^= near_differs ^ far_differs
                if near != far:
                    parent[far], differs[far] = near, differ
                elif differ:
                    return c, tree_tail, tree_head, tail, head
    for row in range(rows):
        if _root(parent, differs, row)[1]:
            tree_tail[row], tree_head[row] = two[row], one[row]
    net = np.zeros(rows + 1, np.int64)  # arcs of the path that leave a node, less those that enter it
    for c in range(cols):
        for e in range(ptr[c], ptr[c + 1]):
            step = 1 if positive[e] else -1
            net[tree_tail[idx[e]]] += step
            net[tree_head[idx[e]]] -= step
        ends = 0
        for e in range(ptr[c], ptr[c + 1]):
            for node in (tree_tail[idx[e]], tree_head[idx[e]]):
                if net[node] == 1:
                    tail[c] = node
                elif net[node] == -1:
                    head[c] = node
                ends += abs(net[node])
                net[node] = 0
        if ends != (2 if ptr[c] < ptr[c + 1] else 0):
            return -2, tree_tail, tree_head, tail, head
    return -1, tree_tail, tree_head, tail, head
