"""Loops of `network_matrix`: column by column, a tree in which the support of every column is a path.

See `decomposition` for the decomposition that the columns are added to.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"
# numba infers the types; annotations would help neither numba nor a reader.
from __future__ import annotations

import numpy as np

from flowlex.formulations.deferred_compilation import loop
from flowlex.validation.unimodularity.network.decomposition import (
    EDGES,
    IN,
    IS_GRAPH,
    MATE,
    MEMBERS,
    NODE_A,
    NODE_B,
    NODES,
    SIZE,
    UP,
    XOR,
    find,
    member,
    new_member,
    new_node,
    new_pair,
    put,
    reduce,
)
from flowlex.validation.unimodularity.network.merge_members import hang, merge


@loop
def _grown(table, needed):
    """The table or vector, extended to at least ``needed`` rows."""
    if needed <= len(table):
        return table
    larger = np.full((2 * needed,) + table.shape[1:], -1, table.dtype)  # noqa: RUF005 (numba)
    larger[: len(table)] = table
    return larger


@loop
def _room(work, members, nodes, edges):
    """Scratch arrays for the given numbers of members, nodes and edges."""
    first, after, count, degree, links, met, queue, seen, times, tick = work
    first, count, degree = _grown(first, members), _grown(count, members), _grown(degree, members)
    links, met, seen = _grown(links, members), _grown(met, members), _grown(seen, members)
    queue, after, times = _grown(queue, 2 * members), _grown(after, edges), _grown(times, nodes)
    return first, after, count, degree, links, met, queue, seen, times, tick


@loop
def _by_component(column, turn, known, component, slot, stamp):
    """Sort the known rows of a column by component: ``(start, line)``, and how many rows are new."""
    groups = fresh = 0
    for place in range(len(column)):
        if not known[column[place]]:
            fresh += 1
            continue
        root = find(component, column[place])
        if stamp[root] != turn:
            stamp[root] = turn
            slot[root] = groups
            groups += 1
    start = np.zeros(groups + 1, np.int64)
    for place in range(len(column)):
        if known[column[place]]:
            start[slot[find(component, column[place])] + 1] += 1
    for g in range(groups):
        start[g + 1] += start[g]
    line = np.empty(start[groups], np.int64)
    fill = start.copy()
    for place in range(len(column)):
        if known[column[place]]:
            g = slot[find(component, column[place])]
            line[fill[g]] = column[place]
            fill[g] += 1
    return start, line, fresh


@loop
def _join(column, known, component, weight, home, ed, mb):
    """Put the new rows of a column into its polygon and make one component of all."""
    root = find(component, column[0])
    for place in range(len(column)):
        row = column[place]
        if not known[row]:
            known[row] = True
            ed[row, IN] = home
            mb[home, XOR] ^= row
        other = find(component, row)
        if other != root:
            if weight[other] > weight[root]:
                root, other = other, root
            component[other] = root
            weight[root] += weight[other]


@loop
def _add(edge, column, start, line, fresh, chain, joint, at, known, component, weight, ed, mb, nd, ct, work):
    """Add a column that fits: an edge beside its path, or a polygon through the paths and the new rows."""
    groups = len(start) - 1
    if groups == 1 and fresh == 0:
        graph, a, b = merge(chain, at[1], joint, ed, mb, nd, work, ct)
        put(ed, edge, graph, a, b)
        return
    if groups == 0 and fresh == 1:
        home = new_member(mb, ct, 1)
        a, b = new_node(nd, ct), new_node(nd, ct)
        put(ed, edge, home, a, b)
        put(ed, column[0], home, a, b)
        known[column[0]] = True
        return
    home = new_member(mb, ct, 0)
    mb[home, SIZE] = groups + fresh + 1
    mb[home, XOR] = edge
    ed[edge, IN] = home
    heaviest = 0
    for g in range(groups):
        if weight[find(component, line[start[g]])] > weight[find(component, line[start[heaviest]])]:
            heaviest = g
    for g in range(groups):
        graph, a, b = merge(chain[at[g] : at[g + 1]], at[g + 1] - at[g], joint[at[g] :], ed, mb, nd, work, ct)
        there, here = new_pair(ed, ct)
        put(ed, there, graph, a, b)
        ed[here, IN] = home
        mb[home, XOR] ^= here
        if g == heaviest:
            mb[home, UP] = here
        else:
            hang(member(mb, graph), there, ed, mb)
    _join(column, known, component, weight, home, ed, mb)


@loop
def _order(rows, ptr, idx):
    """Columns in breadth-first order, so that each shares a row with one before it where it can."""
    cols = len(ptr) - 1
    start, place = np.zeros(rows + 1, np.int64), np.empty(len(idx), np.int64)  # the columns of every row
    for e in range(len(idx)):
        start[idx[e] + 1] += 1
    for row in range(rows):
        start[row + 1] += start[row]
    fill = start[:-1].copy()
    for c in range(cols):
        for e in range(ptr[c], ptr[c + 1]):
            place[fill[idx[e]]] = c
            fill[idx[e]] += 1
    order, seen, seen_row = np.empty(cols, np.int64), np.zeros(cols, np.bool_), np.zeros(rows, np.bool_)
    head = tail = 0
    for first in range(cols):
        if not seen[first]:
            seen[first], order[tail] = True, first
            tail += 1
        while head < tail:
            c = order[head]
            head += 1
            for e in range(ptr[c], ptr[c + 1]):
                row = idx[e]
                if seen_row[row]:
                    continue
                seen_row[row] = True
                for g in range(start[row], start[row + 1]):
                    if not seen[place[g]]:
                        seen[place[g]], order[tail] = True, place[g]
                        tail += 1
    return order


@loop
def realise(rows, ptr, idx, stop):
    """Find a tree with one edge per row in which the columns are paths.

    Returns ``(status, one, two, refused)``: status 0 done, 1 stopped, 2 the column ``refused`` does not fit those
    before it, 3 an error of ours; the ends of every row's edge.
    """
    cols, order = len(ptr) - 1, _order(rows, ptr, idx)
    size = 4 * (rows + cols) + 64
    ed, mb, nd = np.full((2 * size, 4), -1, np.int64), np.zeros((size, 5), np.int64), np.zeros(2 * size, np.int64)
    ct = np.array([0, 0, rows + cols, -1], np.int64)
    no = np.full(1, -1, np.int64)
    work = _room((no, no, no, no, no, no, no, no, no, np.zeros(1, np.int64)), size, 2 * size, 2 * size)
    component, weight, known = np.arange(rows), np.ones(rows, np.int64), np.zeros(rows, np.bool_)
    slot, stamp = np.full(rows, -1, np.int64), np.full(rows, -1, np.int64)
    chain, joint = np.empty((64, 3), np.int64), np.empty((64, 2), np.int64)
    for turn in range(cols):
        if stop[0]:
            return 1, component, component, -1
        c = order[turn]
        column = idx[ptr[c] : ptr[c + 1]]
        if len(column) == 0:
            continue
        start, line, fresh = _by_component(column, turn, known, component, slot, stamp)
        groups = len(start) - 1
        at = np.zeros(groups + 1, np.int64)  # the chains of the groups follow each other
        for g in range(groups):
            chain, joint = _grown(chain, at[g] + ct[MEMBERS] + 2), _grown(joint, at[g] + ct[MEMBERS] + 2)
            length = reduce(line[start[g] : start[g + 1]], ed, mb, nd, turn, work, chain[at[g] :], joint[at[g] :])
            at[g + 1] = at[g] + length
            if length == 0:
                return 2, component, component, c
        more = 8 * (at[groups] + groups + 2)  # a member of a chain makes at most so many members, nodes, markers
        mb, nd, ed = _grown(mb, ct[MEMBERS] + more), _grown(nd, ct[NODES] + more), _grown(ed, ct[EDGES] + more)
        work = _room(work, len(mb), len(nd), len(ed))
        _add(rows + c, column, start, line, fresh, chain, joint, at, known, component, weight, ed, mb, nd, ct, work)
    done, one, two = _glue(rows, cols, ed, mb, nd, ct, known, component)
    return (0 if done else 3), one, two, -1


@loop
def _lay_out(ed, mb, ct):
    """Give the edges of every polygon nodes of their own, round the cycle; returns how many nodes there are then."""
    size = np.zeros(ct[MEMBERS] + 1, np.int64)
    for edge in range(ct[EDGES]):
        m = ed[edge, IN]
        if m >= 0 and not mb[member(mb, m), IS_GRAPH]:
            size[m + 1] += 1
    nodes = ct[NODES]
    offset = np.empty(ct[MEMBERS], np.int64)
    for m in range(ct[MEMBERS]):
        offset[m] = nodes
        nodes += size[m + 1]
    placed = np.zeros(ct[MEMBERS], np.int64)
    for edge in range(ct[EDGES]):
        m = ed[edge, IN]
        if m >= 0 and not mb[member(mb, m), IS_GRAPH]:
            ed[edge, NODE_A] = offset[m] + placed[m]
            placed[m] += 1
            ed[edge, NODE_B] = offset[m] + placed[m] % size[m + 1]
    return nodes


@loop
def _glue(rows, cols, ed, mb, nd, ct, known, component):
    """Put all members together, one way of the many: the tree's edges as pairs of nodes 0..rows."""
    nodes = _lay_out(ed, mb, ct)
    parent = np.arange(nodes + rows + 1)
    parent[: ct[NODES]] = nd[: ct[NODES]]
    for edge in range(rows + cols, ct[EDGES]):
        other = ed[edge, MATE]
        if ed[edge, IN] >= 0 and edge < other:
            parent[find(parent, ed[edge, NODE_A])] = find(parent, ed[other, NODE_A])
            parent[find(parent, ed[edge, NODE_B])] = find(parent, ed[other, NODE_B])
    hub = nodes + rows
    done = np.zeros(rows, np.bool_)
    for row in range(rows):
        if not known[row]:
            ed[row, NODE_A] = hub
            ed[row, NODE_B] = nodes + row
            continue
        root = find(component, row)
        if not done[root]:
            done[root] = True
            parent[find(parent, ed[row, NODE_A])] = find(parent, hub)
    number = np.full(len(parent), -1, np.int64)
    found = 0
    ends = np.empty((2, rows), np.int64)
    for row in range(rows):
        for k, node in enumerate((NODE_A, NODE_B)):
            v = find(parent, ed[row, node])
            if number[v] < 0:
                number[v] = found
                found += 1
            ends[k, row] = number[v]
    return found == rows + (1 if rows else 0), ends[0], ends[1]
