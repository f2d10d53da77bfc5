"""Loops on the decomposition that holds all realisations of a matrix at once (Tutte; Bixby and Wagner 1988).

Its members are

* polygons: cycles whose edges may stand in any order, kept as a size and the XOR of their edges;
* graphs: fixed up to what hangs on them, with two nodes per edge (a bond is a graph on two nodes).

Members are joined by pairs of markers, one edge in each; gluing a pair either way round gives a realisation. Every
member but a root knows the marker to its parent. A new column is a set of tree edges that must form a path.
`reduce` collects the members it meets, drops those it crosses from end to end of their marker (the marker joins
the path in the neighbour's place), and must be left with one member or a chain of them, from one end of the path to
the other. `merge_members.merge` turns the chain into one graph, cutting polygons into the piece on the path and
the rest; the ends of the path are then two of its nodes, and the new edge joins them.

Two departures from Bixby and Wagner keep this short. Edges parallel in a graph are left there, as only two markers
with the same ends can lose a realisation, and only when a path runs through both: they are split off then. And a
column that does not fit changes nothing before it is refused.

Layout: ``ed`` has a line per edge (rows, then columns, then markers), ``mb`` per member, with the columns named below;
``nd`` is the union-find of nodes, ``ct`` holds counts. ``work`` is (first, after, count, degree, links, met, queue,
seen, times, tick): for every member the list of its edges on the column and how many, its neighbours among the
members met and the XOR of the markers to them; stamps of members and nodes.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"
# numba infers the types; annotations would help neither numba nor a reader.
from __future__ import annotations

from flowlex.formulations.deferred_compilation import loop

#: Columns of ``ed``: the member that an edge is in, its nodes, and of a marker the other one of the pair.
IN, NODE_A, NODE_B, MATE = range(4)
#: Columns of ``mb``: union-find parent, whether it is a graph, of a polygon size and XOR, the marker to its parent.
PARENT, IS_GRAPH, SIZE, XOR, UP = range(5)
#: Entries of ``ct``: members, nodes, edges, and the first free pair of markers.
MEMBERS, NODES, EDGES, FREE = range(4)


@loop
def find(parent, x):
    while parent[x] != x:
        parent[x] = parent[parent[x]]
        x = parent[x]
    return x


@loop
def member(mb, x):
    return find(mb[:, PARENT], x)


@loop
def new_member(mb, ct, graph):
    m = ct[MEMBERS]
    ct[MEMBERS] += 1
    mb[m, PARENT], mb[m, IS_GRAPH], mb[m, SIZE], mb[m, XOR], mb[m, UP] = m, graph, 0, 0, -1
    return m


@loop
def new_node(nd, ct):
    v = ct[NODES]
    ct[NODES] += 1
    nd[v] = v
    return v


@loop
def new_pair(ed, ct):
    """Two markers that are each other's mate; freed pairs are used again."""
    x = ct[FREE]
    if x >= 0:
        ct[FREE] = ed[x, NODE_A]
        y = ed[x, MATE]
    else:
        x = ct[EDGES]
        y = x + 1
        ct[EDGES] += 2
    ed[x, MATE] = y
    ed[y, MATE] = x
    return x, y


@loop
def free_pair(ed, ct, x):
    y = ed[x, MATE]
    ed[x, IN] = ed[y, IN] = -1
    ed[x, NODE_A] = ct[FREE]
    ct[FREE] = x


@loop
def put(ed, edge, member, a, b):
    ed[edge, IN] = member
    ed[edge, NODE_A] = a
    ed[edge, NODE_B] = b


@loop
def _path(m, ed, nd, work):
    """Ends of the path that the member's edges on the column form; -1, -1 if they form none."""
    first, after, times, tick = work[0], work[1], work[8], work[9]
    tick[0] += 4
    base = tick[0]
    odd = xor = 0
    edge = first[m]
    while edge >= 0:
        for node in (NODE_A, NODE_B):
            v = find(nd, ed[edge, node])
            if times[v] < base:
                times[v] = base
                odd += 1
                xor ^= v
            elif times[v] == base:
                times[v] = base + 1
                odd -= 1
                xor ^= v
            else:
                return -1, -1
        edge = after[edge]
    if odd != 2:
        return -1, -1
    edge = first[m]
    while edge >= 0:
        for node in (NODE_A, NODE_B):
            v = find(nd, ed[edge, node])
            if times[v] == base:
                return v, xor ^ v
        edge = after[edge]
    return -1, -1


@loop
def ends_of(ed, nd, edge):
    return find(nd, ed[edge, NODE_A]), find(nd, ed[edge, NODE_B])


@loop
def _visit(m, clock, work, size):
    first, _, count, degree, links, met, _, seen, _, _ = work
    if seen[m] == clock:
        return size
    seen[m] = clock
    first[m] = -1
    count[m] = 0
    degree[m] = 0
    links[m] = 0
    met[size] = m
    return size + 1


@loop
def _collect(group, ed, mb, clock, work):
    """Enter the members with the group's edges, and those between them in the tree, in ``met``; returns how many.

    Each climbs to its parent in turn, and ends at a member that another has met, until one is left.
    """
    first, after, count, degree, links, met, active, seen, _, _ = work
    size = 0
    for place in range(len(group)):
        row = group[place]
        m = member(mb, ed[row, IN])
        size = _visit(m, clock, work, size)
        after[row] = first[m]
        first[m] = row
        count[m] += 1
    climbing = size
    for place in range(size):
        active[place] = met[place]
    at_root = 0
    while climbing + at_root > 1:
        place = 0
        while place < climbing and climbing + at_root > 1:
            m = active[place]
            marker = mb[m, UP]
            if marker < 0:  # it waits there for the others
                at_root = 1
                climbing -= 1
                active[place] = active[climbing]
                continue
            far = ed[marker, MATE]
            above = member(mb, ed[far, IN])
            new = seen[above] != clock
            size = _visit(above, clock, work, size)
            degree[m] += 1
            degree[above] += 1
            links[m] ^= marker
            links[above] ^= far
            if new:
                active[place] = above
                place += 1
            else:
                climbing -= 1
                active[place] = active[climbing]
    return size


@loop
def _crossed(m, marker, ed, mb, nd, work):
    """Whether the member's edges on the column are none, or run from end to end of its marker."""
    count = work[2]
    if count[m] == 0:
        return True
    if not mb[m, IS_GRAPH]:
        return count[m] == mb[m, SIZE] - 1
    one, two = _path(m, ed, nd, work)
    a, b = ends_of(ed, nd, marker)
    return (one == a and two == b) or (one == b and two == a)


@loop
def _drop_ends(size, ed, mb, nd, work):
    """Drop members crossed from end to end, from the outside in; how many are left."""
    first, after, count, degree, links, met, queue, _, _, _ = work
    waiting, head, left = 0, 0, size
    for place in range(size):
        if degree[met[place]] <= 1:
            queue[waiting] = met[place]
            waiting += 1
    while head < waiting:
        m = queue[head]
        head += 1
        marker = links[m]
        if degree[m] != 1 or not _crossed(m, marker, ed, mb, nd, work):
            continue
        far = ed[marker, MATE]
        other = member(mb, ed[far, IN])
        if count[m] > 0:
            after[far] = first[other]
            first[other] = far
            count[other] += 1
        degree[m] = -1
        left -= 1
        degree[other] -= 1
        links[other] ^= far
        if degree[other] <= 1:
            queue[waiting] = other
            waiting += 1
    return left


@loop
def reduce(group, ed, mb, nd, clock, work, chain, joint):
    """Find the chain of members that the group's path runs through; its length, or 0 if there is no path.

    ``chain`` gets (member, marker to the one before, marker to the one after); ``joint`` the node of the member
    at which the path comes in and the one at which it goes out (or ends).
    """
    degree, links, met = work[3], work[4], work[5]
    size = _collect(group, ed, mb, clock, work)
    left = _drop_ends(size, ed, mb, nd, work)
    m = before = -1
    for place in range(size):
        if degree[met[place]] > 2:
            return 0
        if degree[met[place]] in (0, 1):
            m = met[place]
    for place in range(left):
        if degree[m] == 0 or (degree[m] == 1 and before >= 0):
            onward = -1
        else:
            onward = links[m] if before < 0 else links[m] ^ before
        chain[place, 0] = m
        chain[place, 1] = before
        chain[place, 2] = onward
        if mb[m, IS_GRAPH] and not _joints(m, before, onward, ed, nd, work, joint, place):
            return 0
        if onward >= 0:
            before = ed[onward, MATE]
            m = member(mb, ed[before, IN])
    return left


@loop
def _joints(m, before, onward, ed, nd, work, joint, place):
    """Where the path enters and leaves a graph of the chain; False if it cannot."""
    count = work[2]
    one = two = -1
    if count[m]:
        one, two = _path(m, ed, nd, work)
        if one < 0:
            return False
    if before < 0 and onward < 0:
        joint[place, 0] = one
        joint[place, 1] = two
        return True
    a, b = ends_of(ed, nd, before if before >= 0 else onward)
    if before < 0 or onward < 0:
        if one != a and one != b:
            one, two = two, one
        if one != a and one != b:
            return False
        joint[place, 0] = two if before < 0 else one
        joint[place, 1] = one if before < 0 else two
        return True
    c, d = ends_of(ed, nd, onward)
    if one < 0:
        one = two = a if (a in (c, d)) else b
        if one != c and one != d:
            return False
    elif not ((one in (a, b)) and (two in (c, d))):
        one, two = two, one
        if not ((one in (a, b)) and (two in (c, d))):
            return False
    joint[place, 0] = one
    joint[place, 1] = two
    return True
