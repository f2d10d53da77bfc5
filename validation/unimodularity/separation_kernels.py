"""Compiled search of `sums`: sets closed under the implications of a low-rank separation.

Elements are rows 0..m-1 and columns m..m+n-1. ``forth[i, j]`` says that row i in X forces column j into X,
``back[i, j]`` that column j in X forces row i into X. Some elements are fixed on a side from the start.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"
# numba infers the types; annotations would say nothing to it and little to a reader.
from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["closed_set", "three_separation", "two_separation", "warm"]


def warm():
    """Compile, or load what was compiled before."""
    ptr, adj = np.array([0, 1], np.int64), np.zeros(1, np.int64)
    two_separation(ptr, adj, ptr, adj, 0, 0)
    three_separation(np.ones((2, 2), np.bool_), 0, 0, np.zeros(1, np.uint8))


@njit(cache=True, nogil=True)
def _reach(forth, back, start, backwards, free, seen):
    """Mark what ``start`` reaches (or what reaches it) among the free elements; returns how many."""
    m, n = forth.shape
    stack = np.empty(m + n, np.int64)
    stack[0] = start
    seen[:] = False
    seen[start] = True
    top = 1
    count = 1
    while top:
        top -= 1
        here = stack[top]
        if here < m:
            for j in range(n):
                hit = back[here, j] if backwards else forth[here, j]
                if hit and free[m + j] and not seen[m + j]:
                    seen[m + j] = True
                    stack[top] = m + j
                    top += 1
                    count += 1
        else:
            j = here - m
            for i in range(m):
                hit = forth[i, j] if backwards else back[i, j]
                if hit and free[i] and not seen[i]:
                    seen[i] = True
                    stack[top] = i
                    top += 1
                    count += 1
    return count


@njit(cache=True, nogil=True)
def closed_set(forth, back, free, least):
    """Find a closed set of free elements that has, and leaves out, at least ``least`` of them.

    Tries what some element reaches and what does not reach some element, and unions of small such sets.
    """
    m, n = forth.shape
    total = 0
    for e in range(m + n):
        total += free[e]
    chosen = np.zeros(m + n, np.bool_)
    if total < 2 * least:
        return False, chosen
    seen = np.empty(m + n, np.bool_)
    grown = np.zeros(m + n, np.bool_)
    size = 0
    for e in range(m + n):
        if not free[e]:
            continue
        count = _reach(forth, back, e, False, free, seen)
        if least <= count <= total - least:
            return True, seen
        if count < least:
            for f in range(m + n):
                if seen[f] and not grown[f]:
                    grown[f] = True
                    size += 1
            if least <= size <= total - least:
                return True, grown
        everything = count == total
        count = total - _reach(forth, back, e, True, free, seen)
        if everything and count == 0:
            return False, chosen  # strongly connected: nothing is closed
        if least <= count <= total - least:
            for f in range(m + n):
                chosen[f] = free[f] and not seen[f]
            return True, chosen
    return False, chosen


@njit(cache=True, nogil=True)
def two_separation(row_ptr, row_col, col_ptr, col_row, r, c):
    """Look for X with c in X, r not, no entry in X rows x other columns, rank 1 in other rows x X columns.

    The implications are read off the sparse matrix: a row forces its columns; a column j forces the rows where
    it differs from column c if row r has j, and all its rows if not. Returns ``(found, X)``.
    """
    m, n = len(row_ptr) - 1, len(col_ptr) - 1
    of_c = np.zeros(m, np.bool_)
    of_r = np.zeros(n, np.bool_)
    for e in range(col_ptr[c], col_ptr[c + 1]):
        of_c[col_row[e]] = True
    for e in range(row_ptr[r], row_ptr[r + 1]):
        of_r[row_col[e]] = True
    seen = np.zeros(m + n, np.bool_)
    hit = np.zeros(max(m, n), np.bool_)
    stack = np.empty(m + n, np.int64)
    start = 0 if r != 0 else 1
    for backwards in (False, True):
        seen[:] = False
        seen[r] = seen[m + c] = seen[start] = True
        stack[0] = start
        top, count = 1, 1
        while top:
            top -= 1
            here = stack[top]
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
                elif not seen[other + far]:
                    seen[other + far] = True
                    stack[top] = other + far
                    top += 1
                    count += 1
            if special:
                for e in range(first, last):
                    far = adj[e]
                    if hit[far]:
                        hit[far] = False
                        if not seen[other + far]:
                            seen[other + far] = True
                            stack[top] = other + far
                            top += 1
                            count += 1
        if count < m + n - 2:
            if backwards:
                seen = ~seen
            seen[r] = False
            seen[m + c] = True
            return True, seen
    return False, seen


@njit(cache=True, nogil=True)
def three_separation(a, r, c, stop):
    """Look for X with c in X, r not, and ranks that add up to 2 in the two off-diagonal parts, both sides >= 4.

    Returns ``(kind, r2, c2, X)``: kind 0 nothing; 1 rank 1 in each (row r2 in X, column c2 not); 2 rank 2 in
    other rows x X columns (r2 not in X, c2 in X), rank 0 in the other.
    """
    m, n = a.shape
    forth = np.empty((m, n), np.bool_)
    back = np.empty((m, n), np.bool_)
    free = np.ones(m + n, np.bool_)
    for r2 in range(m):
        if r2 == r:
            continue
        for c2 in range(n):
            if c2 == c:
                continue
            if stop[0]:
                return 0, 0, 0, np.zeros(m + n, np.bool_)
            free[:] = True
            free[r] = free[r2] = free[m + c] = free[m + c2] = False
            if a[r2, c2]:
                for i in range(m):
                    for j in range(n):
                        forth[i, j] = a[i, j] != (a[i, c2] and a[r2, j])
                        back[i, j] = a[i, j] != (a[i, c] and a[r, j])
                found, chosen = closed_set(forth, back, free, 2)
                if found and not _touches(forth, back, chosen, r, r2, c, c2, 1):
                    return 1, r2, c2, chosen
            if a[r2, c2] != (a[r, c2] and a[r2, c]):  # [r, r2] x [c, c2] is regular over GF(2)
                b, d, e = a[r, c2], a[r2, c], a[r2, c2]  # with a[r, c] = 1 its inverse is [e b; d 1]
                for i in range(m):
                    for j in range(n):
                        u = (a[i, c] and e) != (a[i, c2] and d)
                        v = (a[i, c] and b) != a[i, c2]
                        back[i, j] = a[i, j] != ((u and a[r, j]) != (v and a[r2, j]))
                found, chosen = closed_set(a, back, free, 2)
                if found and not _touches(a, back, chosen, r, r2, c, c2, 2):
                    return 2, r2, c2, chosen
    return 0, 0, 0, np.zeros(m + n, np.bool_)


@njit(cache=True, nogil=True)
def _touches(forth, back, chosen, r, r2, c, c2, kind):
    """Whether the closed set breaks the implications of the fixed elements, which the search left out."""
    m, n = forth.shape
    inside = chosen.copy()
    inside[m + c] = True
    if kind == 1:
        inside[r2] = True
    else:
        inside[m + c2] = True
    for i in range(m):
        for j in range(n):
            if inside[i] and not inside[m + j] and forth[i, j]:
                return True
            if inside[m + j] and not inside[i] and back[i, j]:
                return True
    return False
