"""Compiled loop of `network_matrix` that directs the edges of a realisation."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"
# numba infers the types; annotations would say nothing to it and little to a reader.
from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["orient"]


@njit(cache=True)
def orient(rows, cols, ptr, idx, sign, one, two):
    """Direct the edges of a realisation so that it gives the signs.

    Returns ``(status, tree_tail, tree_head, arc_tail, arc_head)``: status 0 done, 1 some column is no path,
    2 the signs fit no orientation: ``arc_tail[0]`` is then the first column that does not fit those before.
    """
    nodes = rows + 1
    degree = np.zeros(nodes + 1, np.int64)
    for r in range(rows):
        degree[one[r] + 1] += 1
        degree[two[r] + 1] += 1
    for v in range(nodes):
        degree[v + 1] += degree[v]
    near = np.empty(2 * rows, np.int64)
    fill = degree[:-1].copy()
    for r in range(rows):
        near[fill[one[r]]] = r
        fill[one[r]] += 1
        near[fill[two[r]]] = r
        fill[two[r]] += 1
    enter = np.full(nodes, -1, np.int64)
    leave = np.zeros(nodes, np.int64)
    child = np.empty(rows, np.int64)
    stack = np.empty(nodes, np.int64)
    cursor = degree[:-1].copy()
    stack[0] = 0
    enter[0] = 0
    clock = 1
    depth = 1
    while depth:
        v = stack[depth - 1]
        if cursor[v] < degree[v + 1]:
            r = near[cursor[v]]
            cursor[v] += 1
            far = one[r] ^ two[r] ^ v
            if enter[far] < 0:
                enter[far] = clock
                clock += 1
                child[r] = far
                stack[depth] = far
                depth += 1
        else:
            leave[v] = clock
            depth -= 1
    arc_tail = np.zeros(cols, np.int64)
    arc_head = np.zeros(cols, np.int64)
    if clock != nodes:
        return 1, one, two, arc_tail, arc_head
    odd = np.zeros(nodes, np.int64)
    parent = np.arange(rows + cols)
    flip = np.zeros(rows + cols, np.int64)  # parity to the parent
    for c in range(cols):
        for e in range(ptr[c], ptr[c + 1]):
            odd[one[idx[e]]] ^= 1
            odd[two[idx[e]]] ^= 1
        ends = 0
        for e in range(ptr[c], ptr[c + 1]):
            for v in (one[idx[e]], two[idx[e]]):
                if odd[v]:
                    odd[v] = 0
                    if ends == 0:
                        arc_tail[c] = v
                    else:
                        arc_head[c] = v
                    ends += 1
        if ends != 2 and ptr[c + 1] > ptr[c]:
            return 1, one, two, arc_tail, arc_head
        for e in range(ptr[c], ptr[c + 1]):
            r = idx[e]
            below = child[r]
            up = enter[below] <= enter[arc_tail[c]] < leave[below]
            differs = np.int64((sign[e] > 0) != up)
            a, b, parity = r, rows + c, differs
            while parent[a] != a:
                parity ^= flip[a]
                a = parent[a]
            while parent[b] != b:
                parity ^= flip[b]
                b = parent[b]
            if a != b:
                parent[a] = b
                flip[a] = parity
            elif parity:
                arc_tail[0] = c
                return 2, one, two, arc_tail, arc_head
            # path halving would need the parity too; compress the row's path instead
            x, held = r, np.int64(0)
            while parent[x] != x:
                held ^= flip[x]
                x = parent[x]
            walk = r
            while parent[walk] != walk:
                step, parity = parent[walk], flip[walk]
                parent[walk] = x
                flip[walk] = held
                held ^= parity
                walk = step
    tree_tail = np.empty(rows, np.int64)
    tree_head = np.empty(rows, np.int64)
    for line in range(rows + cols):
        parity = np.int64(0)
        x = line
        while parent[x] != x:
            parity ^= flip[x]
            x = parent[x]
        if line < rows:
            low = child[line]
            high = one[line] ^ two[line] ^ low
            tree_tail[line] = high if parity else low
            tree_head[line] = low if parity else high
        elif parity:
            c = line - rows
            arc_tail[c], arc_head[c] = arc_head[c], arc_tail[c]
    return 0, tree_tail, tree_head, arc_tail, arc_head
