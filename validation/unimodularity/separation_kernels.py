"""Loops of `two_and_three_sums` and `three_separations`; elements are rows 0..m-1 and columns m..m+n-1."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"
# numba infers the types; annotations would help neither numba nor a reader.
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import loop


@loop
def _push(line, seen, stack, top):
    """Enter a line that is not known yet; returns the new top."""
    if seen[line]:
        return top
    seen[line] = True
    stack[top] = line
    return top + 1


@loop
def _forced(row_ptr, row_col, col_ptr, col_row, r, c, of_r, of_c, backwards, seen, stack, hit):
    """How many lines follow from those in ``stack[:1]``, all of them marked in ``seen``."""
    m = len(row_ptr) - 1
    top, count = 1, 1
    while top:
        top -= 1
        here, before = stack[top], top
        if here < m:
            low, high, adj, other, special = row_ptr[here], row_ptr[here + 1], row_col, m, backwards and of_c[here]
            first, last = row_ptr[r], row_ptr[r + 1]
        else:
            j = here - m
            low, high, adj, other, special = col_ptr[j], col_ptr[j + 1], col_row, 0, (not backwards) and of_r[j]
            first, last = col_ptr[c], col_ptr[c + 1]
        if special:
            for e in range(first, last):
                hit[adj[e]] = True
        for e in range(low, high):
            far = adj[e]
            if special and hit[far]:
                hit[far] = False  # in both: no implication
            else:
                top = _push(other + far, seen, stack, top)
        if special:
            for e in range(first, last):
                far = adj[e]
                if hit[far]:
                    hit[far] = False
                    top = _push(other + far, seen, stack, top)
        count += top - before
    return count


@loop
def _tree(row_ptr, row_col, col_ptr, col_row):
    """Entries (row, column) of a spanning tree of the bipartite graph, breadth first from row 0."""
    m, n = len(row_ptr) - 1, len(col_ptr) - 1
    rows, cols, edges = np.empty(m + n, np.int64), np.empty(m + n, np.int64), 0
    seen, queue = np.zeros(m + n, np.bool_), np.zeros(m + n, np.int64)
    seen[0], head, tail = True, 0, 1
    while head < tail:
        here = queue[head]
        head += 1
        low, high = (row_ptr[here], row_ptr[here + 1]) if here < m else (col_ptr[here - m], col_ptr[here - m + 1])
        for e in range(low, high):
            far = row_col[e] + m if here < m else col_row[e]
            if not seen[far]:
                seen[far], queue[tail] = True, far
                tail += 1
                rows[edges], cols[edges] = (here, far - m) if here < m else (far, here - m)
                edges += 1
    return rows[:edges], cols[:edges]


@loop
def two_separation(row_ptr, row_col, col_ptr, col_row, stop):
    """Look for X with no entry in X rows x other columns and rank 1 in other rows x X columns.

    A 2-separation crosses every spanning tree, so one of its edges (r, c) lies in the rank-1 part: c in X, r not. The
    rest are implications, read off the sparse matrix: a row forces its columns; a column j forces the rows where it
    differs from column c if row r has j, and all its rows if not.
    Returns ``(r, c, X)``; r is -1 if there is none, -2 when ``stop[0]`` was set.
    """
    m, n = len(row_ptr) - 1, len(col_ptr) - 1
    of_c, of_r = np.zeros(m, np.bool_), np.zeros(n, np.bool_)
    seen = np.zeros(m + n, np.bool_)
    hit = np.zeros(max(m, n), np.bool_)
    stack = np.empty(m + n, np.int64)
    rows, cols = _tree(row_ptr, row_col, col_ptr, col_row)
    for edge in range(len(rows)):
        if stop[0]:
            return -2, -1, seen
        r, c = rows[edge], cols[edge]
        of_c[:], of_r[:] = False, False
        for e in range(col_ptr[c], col_ptr[c + 1]):
            of_c[col_row[e]] = True
        for e in range(row_ptr[r], row_ptr[r + 1]):
            of_r[row_col[e]] = True
        start = 0 if r != 0 else 1
        for backwards in (False, True):
            seen[:] = False
            seen[r] = seen[m + c] = seen[start] = True
            stack[0] = start
            count = _forced(row_ptr, row_col, col_ptr, col_row, r, c, of_r, of_c, backwards, seen, stack, hit)
            if count < m + n - 2:
                if backwards:
                    seen = ~seen
                seen[r] = False
                seen[m + c] = True
                return r, c, seen
    return -1, -1, seen


@loop
def _rank(bits, chosen, mask):
    """Rank over GF(2) of the chosen rows restricted to the columns of a mask; 3 means more than 2."""
    one = two = 0
    for row in range(len(bits)):
        if not chosen >> row & 1:
            continue
        value = bits[row] & mask
        if value in (one, two) or value == one ^ two:
            continue
        if one == 0:
            one = value
        elif two == 0:
            two = value
        else:
            return 3
    return np.int64(one != 0) + np.int64(two != 0)


@loop
def three_separations(bits, columns, least, most, stop):
    """All sets X of rows and columns with ranks that add up to 2, both sides with ``least`` elements or more.

    Bit r of an answer is row r, bit m + c column c; every split is listed once (the last column is not in X).
    Returns at most ``most`` of them.
    """
    m = len(bits)
    total = m + columns
    found = np.empty(most, np.int64)
    count = 0
    every_row, every_column = (1 << m) - 1, (1 << columns) - 1
    for x in range(1 << (total - 1)):
        if x & 8191 == 0 and stop[0]:
            break
        size = 0
        rest = x
        while rest:
            rest &= rest - 1
            size += 1
        if size < least or total - size < least:
            continue
        rows, cols = x & every_row, x >> m
        high = _rank(bits, rows, every_column ^ cols)
        if high <= 2 and high + _rank(bits, every_row ^ rows, cols) == 2:
            found[count] = x
            count += 1
            if count == most:
                break
    return found[:count]
