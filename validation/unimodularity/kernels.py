"""The loops that NumPy cannot vectorise, compiled by numba on first use and cached.

This module is imported only inside the functions that need it, so that numba's start-up (about a second, and
some seconds once per machine for compiling) is paid by those who use it. Matrices come as CSC
(``col_ptr, col_row``) and CSR (``row_ptr, row_col``) arrays of one support.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"
# numba infers the types; annotations would say nothing to it and little to a reader.
from __future__ import annotations

import numpy as np

from flowlex.formulations.compiled import njit

__all__ = ["block_lines", "blocks", "camion_pass", "reduce_lines", "warm"]


def warm():
    """Compile, or load what was compiled before."""
    ptr, adj, sign = np.array([0, 1, 2], np.int64), np.array([1, 0], np.int64), np.ones(2, np.int64)
    block, count = blocks(2, ptr, adj)
    block_lines(2, ptr, adj, block, count)
    reduce_lines(1, 1, ptr, adj, sign, np.ones(2, np.uint64))
    one = np.array([0, 1], np.int64), np.zeros(1, np.int64)
    camion_pass(1, one[1], 0, *one, one[1] + 1, *one, 9, np.zeros(1, np.uint8))


@njit(cache=True, nogil=True)
def _find(parent, x):
    root = x
    while parent[root] != root:
        root = parent[root]
    while parent[x] != root:
        parent[x], x = root, parent[x]
    return root


@njit(cache=True, nogil=True)
def _close(edge, count, block, edge_stack, top):
    """Number the edges of a block, which lie on the stack down to its first one; returns the new top."""
    while True:
        top -= 1
        block[edge_stack[top]] = count
        if edge_stack[top] == edge:
            return top


@njit(cache=True, nogil=True)
def blocks(lines, ptr, adj):
    """Biconnected components of a graph given by adjacency lists; returns a block number per directed edge.

    ``adj[e]`` is the far end of the directed edge ``e``; both directions of an edge get the same number.
    """
    number = np.full(lines, -1, np.int64)
    low = np.zeros(lines, np.int64)
    parent_edge = np.full(lines, -1, np.int64)
    cursor = ptr[:-1].copy()
    block = np.full(len(adj), -1, np.int64)
    edge_stack = np.empty(len(adj), np.int64)
    top = 0
    path = np.empty(lines, np.int64)
    count = 0
    clock = 0
    for root in range(lines):
        if number[root] >= 0:
            continue
        number[root] = low[root] = clock
        clock += 1
        path[0] = root
        depth = 1
        while depth:
            here = path[depth - 1]
            if cursor[here] < ptr[here + 1]:
                edge = cursor[here]
                cursor[here] += 1
                there = adj[edge]
                if number[there] < 0:
                    edge_stack[top] = edge
                    top += 1
                    number[there] = low[there] = clock
                    clock += 1
                    parent_edge[there] = edge
                    path[depth] = there
                    depth += 1
                elif number[there] < number[here]:
                    back = parent_edge[here]
                    if back < 0 or path[depth - 2] != there:
                        edge_stack[top] = edge
                        top += 1
                        low[here] = min(low[here], number[there])
                continue
            depth -= 1
            if depth:
                above = path[depth - 1]
                low[above] = min(low[above], low[here])
                if low[here] >= number[above]:
                    top = _close(parent_edge[here], count, block, edge_stack, top)
                    count += 1
    return block, count


@njit(cache=True, nogil=True)
def block_lines(lines, ptr, adj, block, count):
    """List the lines of every block; returns ``(start, line)``, block k holding ``line[start[k]:start[k+1]]``."""
    start = np.zeros(count + 1, np.int64)
    for e in range(len(adj)):
        if block[e] >= 0:
            start[block[e] + 1] += 1
    for k in range(count):
        start[k + 1] += start[k]
    near = np.empty(start[count], np.int64)
    far = np.empty(start[count], np.int64)
    fill = start[:-1].copy()
    for line in range(lines):
        for e in range(ptr[line], ptr[line + 1]):
            if block[e] >= 0:
                near[fill[block[e]]] = line
                far[fill[block[e]]] = adj[e]
                fill[block[e]] += 1
    stamp = np.full(lines, -1, np.int64)
    size = np.zeros(count + 1, np.int64)
    held = np.empty(2 * start[count], np.int64)
    found = 0
    for k in range(count):
        for e in range(start[k], start[k + 1]):
            for line in (near[e], far[e]):
                if stamp[line] != k:
                    stamp[line] = k
                    held[found] = line
                    found += 1
        size[k + 1] = found
    return size, held[:found]


@njit(cache=True, nogil=True)
def _twins(one, two, ptr, adj, sign, alive, stamp, clock):
    """Return 1 if two live lines of one degree are equal, -1 if opposite, 0 if neither."""
    for e in range(ptr[one], ptr[one + 1]):
        if alive[adj[e]]:
            stamp[adj[e]] = clock * 2 + (sign[e] > 0)
    relation = 0
    for e in range(ptr[two], ptr[two + 1]):
        if alive[adj[e]]:
            held = stamp[adj[e]]
            if held // 2 != clock:
                return 0
            product = sign[e] if held % 2 else -sign[e]
            if relation == 0:
                relation = product
            elif relation != product:
                return 0
    return relation


@njit(cache=True, nogil=True)
def _absolute(digest):
    """One key for a line and its negation."""
    minus = np.uint64(0) - digest
    return minus if minus < digest else digest


@njit(cache=True, nogil=True)
def _twin_of(line, rows, ptr, adj, sign, alive, degree, digest, table, keys, stamp, clock):
    """Look a line up in the hash table, and enter it if none like it is there: relation, twin, clock."""
    key, last = _absolute(digest[line]), len(table) - 1
    side = np.uint64(1) if line < rows else np.uint64(0)
    home = np.int64(((key ^ (key >> np.uint64(29))) * np.uint64(2) + side) & np.uint64(last))
    free = -1
    for probe in range(64):  # a twin missed beyond that costs size, never truth
        slot = (home + probe) & last
        there = table[slot]
        if there == -1 or (there == line and keys[slot] == key):
            free = slot if free < 0 or there == line else free
            break
        if there == line or not alive[there] or _absolute(digest[there]) != keys[slot]:  # stale
            free = slot if free < 0 else free
        elif keys[slot] == key and (there < rows) == (line < rows) and degree[there] == degree[line]:
            relation = _twins(there, line, ptr, adj, sign, alive, stamp, clock)
            clock += 1
            if relation != 0:
                return relation, there, clock
    if free >= 0:
        table[free], keys[free] = line, key
    return 0, -1, clock


@njit(cache=True, nogil=True)
def _leave(line, ptr, adj, sign, weight, alive, degree, digest, queue, queued, head, waiting):
    """Take a line from the degrees and hashes of those it meets, which are looked at again; returns how many wait."""
    for e in range(ptr[line], ptr[line + 1]):
        near = adj[e]
        if alive[near]:
            degree[near] -= 1
            digest[near] -= weight[line] if sign[e] > 0 else np.uint64(0) - weight[line]
            if not queued[near]:
                queued[near] = True
                queue[(head + waiting) % len(queue)] = near
                waiting += 1
    return waiting


@njit(cache=True, nogil=True)
def reduce_lines(rows, cols, ptr, adj, sign, weight):
    """Remove zero, unit and repeated (up to sign) lines until nothing changes.

    Lines 0..rows-1 are rows, the rest columns; ``adj``/``sign`` hold every entry once per direction.
    ``weight`` are random 64-bit numbers per line; the hash of a line is the signed sum of the weights of the
    live lines it meets. Returns the operations (line, why, other) with why 0 zero, 1 unit, 2 equal,
    3 negated, in order of removal, and the live flags.
    """
    lines = rows + cols
    alive = np.ones(lines, np.bool_)
    degree = ptr[1:] - ptr[:-1]
    digest = np.zeros(lines, np.uint64)
    for line in range(lines):
        for e in range(ptr[line], ptr[line + 1]):
            digest[line] += weight[adj[e]] if sign[e] > 0 else np.uint64(0) - weight[adj[e]]
    size = 1
    while size < 4 * lines:
        size *= 2
    table, keys = np.full(size, -1, np.int64), np.zeros(size, np.uint64)
    stamp, clock = np.zeros(lines, np.int64), 1
    ops, done = np.empty((lines, 3), np.int64), 0
    queue, queued = np.arange(lines), np.ones(lines, np.bool_)
    head, waiting = 0, lines
    while waiting:
        line = queue[head % lines]
        head += 1
        waiting -= 1
        queued[line] = False
        if not alive[line]:
            continue
        why, other = min(degree[line], 2), -1
        if why == 1:
            for e in range(ptr[line], ptr[line + 1]):
                if alive[adj[e]]:
                    other = adj[e]
                    break
        elif why == 2:
            relation, other, clock = _twin_of(
                line, rows, ptr, adj, sign, alive, degree, digest, table, keys, stamp, clock
            )
            if relation == 0:
                continue
            why = 2 if relation > 0 else 3
        ops[done, 0], ops[done, 1], ops[done, 2] = line, why, other
        done += 1
        alive[line] = False
        waiting = _leave(line, ptr, adj, sign, weight, alive, degree, digest, queue, queued, head, waiting)
    return ops[:done], alive


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _others(component, start, low, high, col_row):
    """How many other rows of a column lie in the component of one of them."""
    mine, found = _find(component, start), -1
    for e in range(low, high):
        if _find(component, col_row[e]) == mine:
            found += 1
    return found


@njit(cache=True, nogil=True, inline="always")
def _holes_from(start, k, missing, place, col_ptr, col_row, col_sign, row_ptr, row_col, tree, stop):
    """Search from one neighbour of the k-th column for ``missing`` others, breadth first among the columns before it.

    Returns
    -------
    (far, near, work): two neighbours that close a violating cycle, (-1, -1) without one, (-2, -1) when ``stop[0]`` was
    set; visits of edges.
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


@njit(cache=True, nogil=True)
def camion_pass(rows, order, trusted, col_ptr, col_row, col_sign, row_ptr, row_col, budget, stop):
    """One pass of Camion's signing in a given column order; returns the first violating hole.

    Columns are added one by one. Between two neighbours of the new column, a path that a breadth-first search
    finds in the graph of the old ones closes a chordless cycle; its entries must sum to 0 mod 4. The first
    ``trusted`` columns are known to be totally unimodular and are added without a search.

    Returns
    -------
    (status, hole_rows, hole_cols): status 1 a violation (rows and columns in the order of the cycle),
    0 a complete pass that found none, -1 the budget of edge visits ran out, -2 ``stop[0]`` was set.
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
            component[_find(component, col_row[e])] = _find(component, col_row[low])
    return 0, nothing, nothing
