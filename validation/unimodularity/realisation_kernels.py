"""Compiled loops of `network_matrix`: one node of Tutte's recursion.

Matrices are given by column as ``ptr, idx`` (the support only). See `network_matrix` for the method.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"
# numba infers the types; annotations would say nothing to it and little to a reader.
from __future__ import annotations

import numpy as np
from numba import njit

from flowlex.validation.unimodularity.kernels import _find

__all__ = ["children", "find_split", "glue", "plan", "two_sides"]


@njit(cache=True)
def find_split(rows, ptr, idx, order, budget):
    """Find a row whose star leaves the other rows disconnected, into small components if possible.

    Returns ``(row, label, parts, work)``: the row (-1 none, -2 budget spent), and for every other row the
    number of its component among the columns that avoid the row.
    """
    cols = len(ptr) - 1
    parent = np.empty(rows, np.int64)
    label = np.full(rows, -1, np.int64)
    number = np.empty(rows, np.int64)
    size = np.zeros(rows, np.int64)
    best, best_row, best_parts, tries = rows + 1, -1, 0, 0
    work = 0
    hit = np.full(cols, -1, np.int64)
    count = np.zeros(rows + 1, np.int64)
    for e in range(len(idx)):
        count[idx[e] + 1] += 1
    for r in range(rows):
        count[r + 1] += count[r]
    row_col = np.empty(len(idx), np.int64)
    fill = count[:-1].copy()
    for c in range(cols):
        for e in range(ptr[c], ptr[c + 1]):
            row_col[fill[idx[e]]] = c
            fill[idx[e]] += 1
    for k in range(len(order)):
        row = order[k]
        for e in range(count[row], count[row + 1]):
            hit[row_col[e]] = k
        for r in range(rows):
            parent[r] = r
        parts = rows - 1
        work += rows + count[row + 1] - count[row]
        for c in range(cols):
            if hit[c] == k or ptr[c + 1] == ptr[c]:
                continue
            first = _find(parent, idx[ptr[c]])
            for e in range(ptr[c] + 1, ptr[c + 1]):
                other = _find(parent, idx[e])
                if other != first:
                    parent[other] = first
                    parts -= 1
            work += ptr[c + 1] - ptr[c]
            if parts == 1:
                break
        if parts > 1:
            number[:] = -1
            size[:] = 0
            found = 0
            largest = 0
            for r in range(rows):
                if r == row:
                    continue
                root = _find(parent, r)
                if number[root] < 0:
                    number[root] = found
                    found += 1
                size[number[root]] += 1
                largest = max(largest, size[number[root]])
            if largest < best:
                best = largest
                best_row = row
                best_parts = parts
                for r in range(rows):
                    label[r] = -1 if r == row else number[_find(parent, r)]
            tries += 1
            if 3 * best <= 2 * rows or tries == 6:
                break
        if work > budget:
            return -2, label, 0, work
    return best_row, label, best_parts, work


@njit(cache=True)
def two_sides(parts, pairs):
    """Two-colour the components so that those that split each other differ; returns ``(possible, side)``.

    ``pairs`` lists (k, l) for "k splits l", grouped by l. Only pairs that occur both ways bind.
    """
    start = np.zeros(parts + 1, np.int64)
    for i in range(len(pairs)):
        start[pairs[i, 1] + 1] += 1
    for k in range(parts):
        start[k + 1] += start[k]
    splits = np.empty(len(pairs), np.int64)
    fill = start[:-1].copy()
    for i in range(len(pairs)):
        splits[fill[pairs[i, 1]]] = pairs[i, 0]
        fill[pairs[i, 1]] += 1
    parent = np.arange(2 * parts)
    mark = np.full(parts, -1, np.int64)
    # turned[start'[k]:...] lists the l that k splits; both lists meet in the binding pairs.
    count = np.zeros(parts + 1, np.int64)
    for i in range(len(pairs)):
        count[pairs[i, 0] + 1] += 1
    for k in range(parts):
        count[k + 1] += count[k]
    turned = np.empty(len(pairs), np.int64)
    fill = count[:-1].copy()
    for i in range(len(pairs)):
        turned[fill[pairs[i, 0]]] = pairs[i, 1]
        fill[pairs[i, 0]] += 1
    for k in range(parts):
        for i in range(start[k], start[k + 1]):
            mark[splits[i]] = k
        for i in range(count[k], count[k + 1]):
            if mark[turned[i]] == k:
                other = turned[i]
                parent[_find(parent, k)] = _find(parent, other + parts)
                parent[_find(parent, k + parts)] = _find(parent, other)
    side = np.zeros(parts, np.int64)
    for k in range(parts):
        one, two = _find(parent, k), _find(parent, k + parts)
        if one == two:
            return False, side
        side[k] = 1 if one > two else 0
    return True, side


@njit(cache=True)
def plan(rows, ptr, idx, row, label, parts):
    """Which columns through ``row`` touch which component, and which components split which.

    Returns ``(touch_ptr, touch_col, uneven, pairs)``: per component its columns among those through the row;
    whether some row of the component has only part of them; and all (k, l) such that a row of component k has
    some but not all of the columns of component l.
    """
    cols = len(ptr) - 1
    through = np.zeros(cols, np.bool_)
    touch_ptr = np.zeros(parts + 1, np.int64)
    seen = np.full(parts, -1, np.int64)
    for c in range(cols):
        for e in range(ptr[c], ptr[c + 1]):
            if idx[e] == row:
                through[c] = True
        if through[c]:
            for e in range(ptr[c], ptr[c + 1]):
                part = label[idx[e]]
                if part >= 0 and seen[part] != c:
                    seen[part] = c
                    touch_ptr[part + 1] += 1
    for k in range(parts):
        touch_ptr[k + 1] += touch_ptr[k]
    touch_col = np.empty(touch_ptr[parts], np.int64)
    fill = touch_ptr[:-1].copy()
    seen[:] = -1
    for c in range(cols):
        if through[c]:
            for e in range(ptr[c], ptr[c + 1]):
                part = label[idx[e]]
                if part >= 0 and seen[part] != c:
                    seen[part] = c
                    touch_col[fill[part]] = c
                    fill[part] += 1
    uneven = np.zeros(parts, np.bool_)
    share = np.zeros(rows, np.int64)
    met = np.empty(rows, np.int64)
    seen[:] = -1
    pairs = np.empty((64, 2), np.int64)
    found = 0
    for k in range(parts):
        size = touch_ptr[k + 1] - touch_ptr[k]
        meetings = 0
        for t in range(touch_ptr[k], touch_ptr[k + 1]):
            c = touch_col[t]
            for e in range(ptr[c], ptr[c + 1]):
                if label[idx[e]] >= 0:
                    if share[idx[e]] == 0:
                        met[meetings] = idx[e]
                        meetings += 1
                    share[idx[e]] += 1
        for i in range(meetings):
            r = met[i]
            if share[r] < size:
                part = label[r]
                if part == k:
                    uneven[k] = True
                elif seen[part] != k:
                    seen[part] = k
                    if found == len(pairs):
                        larger = np.empty((2 * found, 2), np.int64)
                        larger[:found] = pairs
                        pairs = larger
                    pairs[found, 0] = part
                    pairs[found, 1] = k
                    found += 1
            share[r] = 0
    return touch_ptr, touch_col, uneven, pairs[:found]


@njit(cache=True)
def children(rows, ptr, idx, row, label, parts):
    """Split the matrix into the components' matrices; the row chosen is the last row of each.

    Returns ``(place, size, start, child_ptr, entry_start, child_idx)``: number of each row inside its
    component; rows per component; where a component's column pointers and entries start. Columns left with
    fewer than two entries are dropped: every tree realises them.
    """
    cols = len(ptr) - 1
    size = np.zeros(parts, np.int64)
    place = np.full(rows, -1, np.int64)
    for r in range(rows):
        if label[r] >= 0:
            place[r] = size[label[r]]
            size[label[r]] += 1
    held = np.zeros(parts, np.int64)
    here = np.empty(parts, np.int64)
    columns = np.zeros(parts, np.int64)
    entries = np.zeros(parts, np.int64)
    start = np.zeros(parts + 1, np.int64)
    entry_start = np.zeros(parts + 1, np.int64)
    child_ptr = np.empty(0, np.int64)
    child_idx = np.empty(0, np.int64)
    for turn in range(2):
        for c in range(cols):
            touched = 0
            has = 0
            for e in range(ptr[c], ptr[c + 1]):
                part = label[idx[e]]
                if part < 0:
                    has = 1
                    continue
                if held[part] == 0:
                    here[touched] = part
                    touched += 1
                held[part] += 1
            for t in range(touched):
                part = here[t]
                if held[part] + has >= 2 and size[part] >= 2:
                    if turn == 1:
                        child_ptr[start[part] + columns[part] + 1] = entries[part] + held[part] + has
                        if has:
                            child_idx[entry_start[part] + entries[part] + held[part]] = size[part]
                    columns[part] += 1
                    entries[part] += held[part] + has
                else:
                    held[part] = 0
            if turn == 1:
                for t in range(touched):
                    here[t] = here[t]
                for e in range(ptr[c + 1] - 1, ptr[c] - 1, -1):
                    part = label[idx[e]]
                    if part >= 0 and held[part] > 0:
                        held[part] -= 1
                        child_idx[entry_start[part] + entries[part] - has - held[part] - 1] = place[idx[e]]
            for t in range(touched):
                held[here[t]] = 0
        if turn == 0:
            for k in range(parts):
                start[k + 1] = start[k] + columns[k] + 1
                entry_start[k + 1] = entry_start[k] + entries[k]
            child_ptr = np.zeros(start[parts], np.int64)
            child_idx = np.empty(entry_start[parts], np.int64)
            columns[:] = 0
            entries[:] = 0
    return place, size, start, child_ptr, entry_start, child_idx


@njit(cache=True)
def glue(ptr, idx, row, label, order, side, touch_ptr, touch_col, size, one, two):
    """Hang the components' trees on the two ends of the chosen row's edge.

    ``one, two`` are the ends of every row's edge inside its component's tree, where 0 is the root (the end it
    shares with the chosen edge) and 1..size the others; ``order`` lists components from the edge outwards.
    Returns ``(ok, one, two)`` for the whole tree.
    """
    rows = len(label)
    cols = len(ptr) - 1
    at = np.zeros((2, cols), np.int64)
    at[1] = 1
    base = 2
    where = np.empty(len(size), np.int64)
    bottom = np.empty(len(size), np.int64)
    for k in order:
        s = side[k]
        bottom[k] = base - 1  # local vertex v > 0 becomes base - 1 + v
        base += size[k]
        where[k] = s
        if touch_ptr[k + 1] > touch_ptr[k]:
            where[k] = at[s, touch_col[touch_ptr[k]]]
        for t in range(touch_ptr[k], touch_ptr[k + 1]):
            c = touch_col[t]
            if at[s, c] != where[k]:
                return False, one, two
            last = 0
            for e in range(ptr[c], ptr[c + 1]):
                if label[idx[e]] == k:
                    last ^= one[idx[e]] ^ two[idx[e]]
            if last > size[k]:
                return False, one, two
            if last > 0:
                at[s, c] = bottom[k] + last
    first = np.empty(rows, np.int64)
    second = np.empty(rows, np.int64)
    for r in range(rows):
        k = label[r]
        if r == row:
            first[r], second[r] = 0, 1
        else:
            first[r] = bottom[k] + one[r] if one[r] > 0 else where[k]
            second[r] = bottom[k] + two[r] if two[r] > 0 else where[k]
    return True, first, second
