"""Loops of `camion`: a search for chordless cycles whose entries sum to 2 mod 4."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"
# numba infers the types; annotations would help neither numba nor a reader.
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import loop
from flowlex.validation.unimodularity.network.decomposition import find


@loop
def _hole(far, near, new, row_from, col_from):
    """Rows and columns of the cycle from a row back to ``near`` along the tree, closed by the new column."""
    length, walk = 1, far
    while walk != near:
        walk = col_from[row_from[walk]]
        length += 1
    rows, cols = np.empty(length, np.int64), np.empty(length, np.int64)
    walk = far
    for step in range(length - 1):
        rows[step], cols[step] = walk, row_from[walk]
        walk = col_from[row_from[walk]]
    rows[length - 1], cols[length - 1] = walk, new
    return rows, cols


@loop
def _others(component, start, low, high, col_row):
    """How many other rows of a column lie in the component of one of them."""
    mine, found = find(component, start), -1
    for e in range(low, high):
        if find(component, col_row[e]) == mine:
            found += 1
    return found


@loop
def _holes_from(start, k, missing, place, col_ptr, col_row, col_sign, row_ptr, row_col, tree, stop):
    """Search from one neighbour of the k-th column for ``missing`` others, breadth first among the columns before it.

    Returns: (far, near, work): two neighbours that close a violating cycle, (-1, -1) without one, (-2, -1) when
    ``stop[0]`` was set; visits of edges.
    """
    row_seen, col_seen, row_from, col_from, total, last, wanted, want_sign, queue = tree
    row_seen[start], row_from[start], last[start], total[start] = k, -1, start, 0
    queue[0] = start
    head, tail, work = 0, 1, 0
    while missing and head < tail:
        if stop[0]:
            return -2, -1, work
        row = queue[head]
        head += 1
        work += row_ptr[row + 1] - row_ptr[row]
        for g in range(row_ptr[row], row_ptr[row + 1]):
            col = row_col[g]
            if place[col] >= k or col_seen[col] == k:
                continue
            col_seen[col] = k
            col_from[col] = row
            here = total[row]
            work += col_ptr[col + 1] - col_ptr[col]
            for h in range(col_ptr[col], col_ptr[col + 1]):
                if col_row[h] == row:
                    here += col_sign[h]
            for h in range(col_ptr[col], col_ptr[col + 1]):
                far = col_row[h]
                if row_seen[far] == k:
                    continue
                row_seen[far] = k
                row_from[far] = col
                total[far] = here + col_sign[h]
                last[far] = last[row]
                if wanted[far] == k:
                    near = last[row]
                    if (total[far] - total[near] + want_sign[far] + want_sign[near]) % 4 != 0:
                        return far, near, work
                    last[far] = far
                    missing -= 1
                queue[tail] = far
                tail += 1
    return -1, -1, work


@loop
def camion_pass(rows, order, trusted, col_ptr, col_row, col_sign, row_ptr, row_col, budget, stop):
    """One pass of Camion's signing in a given column order; returns the first violating hole.

    Columns are added one by one. Between two neighbours of the new column, a path that a breadth-first search
    finds in the graph of the old ones closes a chordless cycle; its entries must sum to 0 mod 4. The first
    ``trusted`` columns are known to be totally unimodular and are added without a search.

    Returns: (status, hole_rows, hole_cols): status 1 a violation (rows and columns in the order of the cycle), 0 a
    complete pass that found none, -1 the budget of edge visits ran out, -2 ``stop[0]`` was set.
    """
    cols = len(order)
    place = np.empty(cols, np.int64)
    for k in range(cols):
        place[order[k]] = k
    component = np.arange(rows)
    row_seen, col_seen = np.full(rows, -1, np.int64), np.full(cols, -1, np.int64)
    row_from, col_from = np.full(rows, -1, np.int64), np.full(cols, -1, np.int64)  # the column, the row before it
    wanted, want_sign = np.full(rows, -1, np.int64), np.zeros(rows, np.int64)
    total = np.zeros(rows, np.int64)  # signed sum of the entries along the tree path to this row
    last = np.full(rows, -1, np.int64)  # nearest neighbour of the new column on the tree path
    queue, nothing = np.empty(rows, np.int64), np.empty(0, np.int64)
    tree = row_seen, col_seen, row_from, col_from, total, last, wanted, want_sign, queue
    work = 0
    for k in range(cols):
        new = order[k]
        low, high = col_ptr[new], col_ptr[new + 1]
        for e in range(low, high):
            wanted[col_row[e]] = k
            want_sign[col_row[e]] = col_sign[e]
        for e in range(low, high if k >= trusted else low):
            start = col_row[e]
            if row_seen[start] == k:
                continue
            missing = _others(component, start, low, high, col_row)
            far, near, more = _holes_from(
                start, k, missing, place, col_ptr, col_row, col_sign, row_ptr, row_col, tree, stop
            )
            work += more
            if far >= 0:
                hole = _hole(far, near, new, row_from, col_from)
                return 1, hole[0], hole[1]
            if far == -2 or work > budget:
                return -2 if far == -2 else -1, nothing, nothing
        for e in range(low, high):
            component[find(component, col_row[e])] = find(component, col_row[low])
    return 0, nothing, nothing
