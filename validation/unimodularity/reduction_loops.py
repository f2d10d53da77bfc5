"""Loops of `reductions`: repeated lines, found by hashing, and biconnected components.

Matrices come as CSC (``col_ptr, col_row``) and CSR (``row_ptr, row_col``) arrays of one support.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"
# numba infers the types; annotations would say nothing to it and little to a reader.
from __future__ import annotations

import numpy as np

from flowlex.formulations.loops import loop

__all__ = ["block_lines", "blocks", "reduce_lines"]


@loop
def _close(edge, count, block, edge_stack, top):
    """Number the edges of a block, which lie on the stack down to its first one; returns the new top."""
    while True:
        top -= 1
        block[edge_stack[top]] = count
        if edge_stack[top] == edge:
            return top


@loop
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


@loop
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


@loop
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


@loop
def _absolute(digest):
    """One key for a line and its negation."""
    minus = np.uint64(0) - digest
    return minus if minus < digest else digest


@loop
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


@loop
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


@loop
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
