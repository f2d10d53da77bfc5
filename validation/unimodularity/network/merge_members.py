"""Loops that make one graph of a chain of members; see `decomposition`."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"
# numba infers the types; annotations would help neither numba nor a reader.
from __future__ import annotations

from flowlex.formulations.deferred_compilation import loop
from flowlex.validation.unimodularity.network.decomposition import (
    IN,
    IS_GRAPH,
    MATE,
    NODE_A,
    PARENT,
    SIZE,
    UP,
    XOR,
    ends_of,
    find,
    free_pair,
    member,
    new_member,
    new_node,
    new_pair,
    put,
)


@loop
def _cut(m, pieces, xor, size, a, b, graph, ed, mb, ct):
    """Hang ``size`` edges of a polygon between two nodes of a graph: one edge as it is, more as a polygon.

    ``pieces`` is the polygon's new number. Returns the edge in the graph, and the marker in the polygon or -1.
    """
    if size == 1:
        put(ed, xor, graph, a, b)
        return xor, -1
    inner, outer = new_pair(ed, ct)
    put(ed, inner, graph, a, b)
    ed[outer, IN] = pieces
    mb[pieces, SIZE] = size + 1
    mb[pieces, XOR] = xor ^ outer
    mb[pieces, UP] = outer
    return inner, outer


@loop
def _open(m, before, onward, start, end, other_start, other_end, graph, ed, mb, work, ct):
    """Cut a polygon into the piece on the path (start to end) and the rest; returns the graph's way up, or -1."""
    first, after, count = work[0], work[1], work[2]
    up = mb[m, UP]
    outward = up >= 0 and up != before and up != onward
    xor = 0
    on_path = False
    edge = first[m]
    while edge >= 0:
        xor ^= edge
        on_path = on_path or edge == up
        edge = after[edge]
    rest = mb[m, SIZE] - count[m] - (before >= 0) - (onward >= 0)
    rest_xor = mb[m, XOR] ^ xor
    if before >= 0:
        rest_xor ^= before
    if onward >= 0:
        rest_xor ^= onward
    way = -1
    if count[m] > 0:
        piece = -1
        if count[m] > 1:
            piece = new_member(mb, ct, 0)
            edge = first[m]
            while edge >= 0:
                ed[edge, IN] = piece
                edge = after[edge]
        inner, outer = _cut(m, piece, xor, count[m], start, end, graph, ed, mb, ct)
        if outward and on_path:
            way = inner
            if outer >= 0:
                mb[piece, UP] = up
    if rest > 0:
        inner, outer = _cut(m, m, rest_xor, rest, other_start, other_end, graph, ed, mb, ct)
        if outward and not on_path:
            way = inner
            if outer >= 0:
                mb[m, UP] = up
    return way


@loop
def _part_markers(m, before, onward, crossed, ed, mb, nd, ct):
    """Two markers with the same ends get a graph of their own between them and the member."""
    bond = new_member(mb, ct, 1)
    p, q = new_node(nd, ct), new_node(nd, ct)
    x, y = ends_of(ed, nd, before)
    there, here = new_pair(ed, ct)
    put(ed, there, bond, p, q)
    put(ed, here, m, x, y)
    if mb[m, UP] == before or mb[m, UP] == onward:
        mb[bond, UP] = mb[m, UP]
        mb[m, UP] = here
    else:
        mb[bond, UP] = there
    for marker in (before, onward):
        same = find(nd, ed[marker, NODE_A]) == x
        put(ed, marker, bond, p if same else q, q if same else p)
    return bond, p, (q if crossed else p)


@loop
def _graph_inside(m, before, onward, start, end, graph, ed, mb, nd, work, ct):
    """A graph of the chain: ends of the path in it, the markers' other nodes, and its way up or -1."""
    if before >= 0 and onward >= 0:
        a, b = ends_of(ed, nd, before)
        c, d = ends_of(ed, nd, onward)
        if (a == c and b == d) or (a == d and b == c):
            m, start, end = _part_markers(m, before, onward, work[2][m] > 0, ed, mb, nd, ct)
    other_start = other_end = -1
    if before >= 0:
        a, b = ends_of(ed, nd, before)
        other_start = a ^ b ^ start
    if onward >= 0:
        a, b = ends_of(ed, nd, onward)
        other_end = a ^ b ^ end
    mb[m, PARENT] = graph
    up = mb[m, UP]
    return start, end, other_start, other_end, (up if up != before and up != onward else -1)


@loop
def _polygon_inside(m, before, onward, graph, ed, mb, nd, work, ct):
    """The same of a polygon, which is cut into the piece on the path and the rest."""
    count = work[2]
    start = new_node(nd, ct)
    end = start if count[m] == 0 else new_node(nd, ct)
    rest = mb[m, SIZE] - count[m] - (before >= 0) - (onward >= 0)
    other_start = new_node(nd, ct) if before >= 0 else -1
    other_end = -1
    if onward >= 0:
        other_end = other_start if before >= 0 and rest == 0 else new_node(nd, ct)
    # At an end of the chain the rest runs from the end of the path back to the marker.
    one, two = other_start if before >= 0 else start, other_end if onward >= 0 else end
    way = _open(m, before, onward, start, end, one, two, graph, ed, mb, work, ct)
    return start, end, other_start, other_end, way


@loop
def merge(chain, length, joint, ed, mb, nd, work, ct):
    """Make one graph of a chain of members; returns it and the two nodes at the ends of the path."""
    if length == 1:
        m = chain[0, 0]
        if mb[m, IS_GRAPH]:
            return m, joint[0, 0], joint[0, 1]
        return _single_polygon(m, ed, mb, nd, work, ct)
    graph = new_member(mb, ct, 1)
    way = -1
    tip = tail = 0
    last_in = last_out = -1
    for place in range(length):
        m, before, onward = chain[place, 0], chain[place, 1], chain[place, 2]
        if mb[m, IS_GRAPH]:
            start, end = joint[place, 0], joint[place, 1]
            start, end, other_start, other_end, up = _graph_inside(
                m, before, onward, start, end, graph, ed, mb, nd, work, ct
            )
        else:
            start, end, other_start, other_end, up = _polygon_inside(m, before, onward, graph, ed, mb, nd, work, ct)
        if up >= 0:
            way = up
        if place == 0:
            tip = start
        else:
            nd[find(nd, start)] = find(nd, last_in)
            nd[find(nd, other_start)] = find(nd, last_out)
            free_pair(ed, ct, before)
        tail = end
        last_in, last_out = end, other_end
    mb[graph, UP] = way
    return graph, find(nd, tip), find(nd, tail)


@loop
def _single_polygon(m, ed, mb, nd, work, ct):
    """The path lies in one polygon: a bond beside its only edge (or the only other), or a cut into two."""
    first, after, count = work[0], work[1], work[2]
    xor = 0
    edge = first[m]
    while edge >= 0:
        xor ^= edge
        edge = after[edge]
    lone = -1
    if count[m] == 1:
        lone = xor
    elif count[m] == mb[m, SIZE] - 1:
        lone = mb[m, XOR] ^ xor
    if lone >= 0 and ed[lone, MATE] >= 0:
        a, b = ends_of(ed, nd, ed[lone, MATE])
        return member(mb, ed[ed[lone, MATE], IN]), a, b
    graph = new_member(mb, ct, 1)
    a, b = new_node(nd, ct), new_node(nd, ct)
    if lone >= 0:
        inner, outer = new_pair(ed, ct)
        put(ed, lone, graph, a, b)
        put(ed, inner, graph, a, b)
        ed[outer, IN] = m
        mb[m, XOR] ^= lone ^ outer
        mb[graph, UP] = inner
        return graph, a, b
    mb[graph, UP] = _open(m, -1, -1, a, b, a, b, graph, ed, mb, work, ct)
    return graph, a, b


@loop
def hang(m, marker, ed, mb):
    """Make a member the root of its tree and hang it on a marker."""
    below = marker
    while m >= 0:
        up = mb[m, UP]
        mb[m, UP] = below
        if up < 0:
            break
        below = ed[up, MATE]
        m = member(mb, ed[below, IN])
