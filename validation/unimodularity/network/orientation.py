"""Loop of `network_matrix` that directs the edges of a realisation."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"
# numba infers the types; annotations would say nothing to it and little to a reader.
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import loop

__all__ = ["orient"]


@loop
def _top(parent, flip, x):
    """Root and parity of a line, with path compression."""
    root, parity = x, np.int64(0)
    while parent[root] != root:
        parity ^= flip[root]
        root = parent[root]
    held = parity
    while parent[x] != root and x != root:
        step, own = parent[x], flip[x]
        parent[x] = root
        flip[x] = held
        held ^= own
        x = step
    return root, parity


@loop
def _walk(rows, one, two):
    """Walk a tree from node 0: nodes reached, when each was entered and left, and the lower end of every edge."""
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
    return clock, enter, leave, child


@loop
def _ends(start, stop, idx, one, two, odd):
    """Count the nodes that an odd number of a column's edges meets; the first and the last; ``odd`` is 0 again."""
    for e in range(start, stop):
        odd[one[idx[e]]] ^= 1
        odd[two[idx[e]]] ^= 1
    count, first, last = 0, 0, 0
    for e in range(start, stop):
        for v in (one[idx[e]], two[idx[e]]):
            if odd[v]:
                odd[v] = 0
                if count == 0:
                    first = v
                else:
                    last = v
                count += 1
    return count, first, last


@loop
def _agree(c, start, stop, idx, sign, parent, flip, child, enter, leave, tail, asked, wanted):
    """Whether a column's rows agree about its direction, which stands in ``wanted`` by class then."""
    fits = True
    for e in range(start, stop):
        a, parity = _top(parent, flip, idx[e])
        low = child[idx[e]]
        parity ^= np.int64((sign[e] > 0) != (enter[low] <= enter[tail] < leave[low]))
        if asked[a] != c:
            asked[a] = c
            wanted[a] = parity
        fits = fits and wanted[a] == parity
    return fits


@loop
def _directed(rows, cols, parent, flip, child, one, two, arc_tail, arc_head):
    """Tails and heads of the tree's edges; arcs that run the other way are turned."""
    tree_tail = np.empty(rows, np.int64)
    tree_head = np.empty(rows, np.int64)
    for line in range(rows + cols):
        _, parity = _top(parent, flip, line)
        if line < rows:
            low = child[line]
            high = one[line] ^ two[line] ^ low
            tree_tail[line] = high if parity else low
            tree_head[line] = low if parity else high
        elif parity:
            c = line - rows
            arc_tail[c], arc_head[c] = arc_head[c], arc_tail[c]
    return tree_tail, tree_head


@loop
def orient(rows, cols, ptr, idx, sign, one, two):
    """Direct the edges of a realisation so that it gives the signs.

    Returns ``(status, misfit, tree_tail, tree_head, arc_tail, arc_head)``: status 0 done, 1 some column is no path,
    2 the signs of column ``misfit`` fit no orientation of those before it.
    """
    nodes = rows + 1
    reached, enter, leave, child = _walk(rows, one, two)
    arc_tail = np.zeros(cols, np.int64)
    arc_head = np.zeros(cols, np.int64)
    if reached != nodes:
        return 1, -1, one, two, arc_tail, arc_head
    odd = np.zeros(nodes, np.int64)
    parent = np.arange(rows + cols)
    flip = np.zeros(rows + cols, np.int64)  # parity to the parent
    asked = np.full(rows + cols, -1, np.int64)
    wanted = np.zeros(rows + cols, np.int64)
    for c in range(cols):
        ends, arc_tail[c], arc_head[c] = _ends(ptr[c], ptr[c + 1], idx, one, two, odd)
        if ends != 2 and ptr[c + 1] > ptr[c]:
            return 1, c, one, two, arc_tail, arc_head
        # The column's rows must agree about its direction; rows of one class do so already or never will.
        start, stop = ptr[c], ptr[c + 1]
        if not _agree(c, start, stop, idx, sign, parent, flip, child, enter, leave, arc_tail[c], asked, wanted):
            return 2, c, one, two, arc_tail, arc_head
        for e in range(start, stop):
            a, _ = _top(parent, flip, idx[e])
            if a != rows + c:
                parent[a] = rows + c
                flip[a] = wanted[a]
    tree_tail, tree_head = _directed(rows, cols, parent, flip, child, one, two, arc_tail, arc_head)
    return 0, -1, tree_tail, tree_head, arc_tail, arc_head
