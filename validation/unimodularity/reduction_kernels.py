"""Loops of `reductions`: repeated lines, found by hashing.

Matrices come as CSC (``col_ptr, col_row``) and CSR (``row_ptr, row_col``) arrays of one support.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"
# numba infers the types; annotations would help neither numba nor a reader.
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import loop


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
    for probe in range(64):  # missing a twin beyond that is never wrong
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
    """Remove a line from the degrees and hashes of the lines it meets, and queue them; return the queue's length."""
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
