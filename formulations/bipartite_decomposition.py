"""Split integer amounts on the edges of a bipartite graph into L parts, as evenly as integers allow.

In every part each edge carries its mean rounded down or up, and so does each node. Amounts that respect
``L * capacity`` at every node therefore give parts that respect ``capacity`` (integer decomposition of a bipartite
b-matching; edge colouring is the special case of capacity one).

First every edge is split evenly. While a node's loads in two parts differ by two or more, these parts are split
again: the edges that differ between the two (by one) form a simple bipartite graph, and colouring its trails
alternately leaves no node with a difference above one. The algorithm ends since the sum of squared loads falls.

Source: de Werra, "Equitable colorations of graphs" (1971); the argument is reconstructed here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse.csgraph

from flowlex.formulations.balanced_load import check_total, even_split
from flowlex.formulations.program_arrays import Integers

#: Up to so many slots, one after the other is quicker than a program for each run.
_FEW = 64


def decompose(left: Integers, right: Integers, amount: Integers, slots: int) -> Integers:
    """Split every edge's amount into ``slots`` integer parts.

    ``left``, ``right``: (edges,) node of each side; an edge may occur once only.
    ``amount``: (edges,) non-negative.
    ``slots``: number of parts, L.
    Returns: (edges, slots) int64: rows sum to the amounts; entries of an edge, and sums at a node, differ by at most
    one. Raises `ValueError`: an edge occurs twice, or the amounts sum to more than 64 bits hold.
    """
    if len(np.unique(np.stack([left, right]), axis=1).T) < len(left):
        raise ValueError("an edge occurs twice; add its amounts first")
    check_total(amount)
    # Shifted phases spread the remainders, so that most nodes start nearly even.
    phases = (np.arange(len(amount)) * 0.6180339887498949) % 1.0
    parts = np.array([even_split(int(a), slots, p) for a, p in zip(amount, phases, strict=True)], dtype=np.int64)
    parts = parts.reshape(len(amount), slots)
    for node in (left, right):
        load = np.zeros((int(node.max(initial=-1)) + 1, slots), np.int64)
        np.add.at(load, node, parts)
        while True:
            uneven = np.flatnonzero(load.max(axis=1, initial=0) - load.min(axis=1, initial=1 << 62) > 1)
            if not len(uneven):
                break
            a, b = int(load[uneven[0]].argmax()), int(load[uneven[0]].argmin())
            _rebalance(parts, left, right, a, b)
            load[:, [a, b]] = 0
            for slot in (a, b):
                np.add.at(load[:, slot], node, parts[:, slot])
    return parts


def _rebalance(parts: Integers, left: Integers, right: Integers, a: int, b: int) -> None:
    """Split slots a and b anew: every node's loads in the two then differ by at most one."""
    differ = np.flatnonzero(parts[:, a] != parts[:, b])
    low = np.minimum(parts[differ, a], parts[differ, b])
    first = alternate(left[differ], right[differ])
    parts[differ, a] = low + first
    parts[differ, b] = low + 1 - first


def alternate(left: Integers, right: Integers) -> Integers:
    """Colour the edges of a bipartite multigraph 0 or 1 so that at every node the colours differ by at most one."""
    offset = int(left.max(initial=-1)) + 1
    at: dict[int, list[int]] = {}
    ends = [(u, v + offset) for u, v in zip(left.tolist(), right.tolist(), strict=True)]
    for k, (u, v) in enumerate(ends):
        at.setdefault(u, []).append(k)
        at.setdefault(v, []).append(k)
    colour = np.full(len(ends), -1, np.int64)
    odd = [node for node, edges in at.items() if len(edges) % 2]
    for node in [*odd, *at]:  # trails between odd nodes first; what remains are even closed trails
        shade, here = 0, node
        while True:
            edges = at[here]
            while edges and colour[edges[-1]] >= 0:
                edges.pop()
            if not edges:
                break
            k = edges.pop()
            colour[k] = shade
            shade = 1 - shade
            here = ends[k][0] + ends[k][1] - here
    return colour


def decompose_runs(left: Integers, right: Integers, amount: Integers, slots: int) -> list[tuple[int, Integers]]:
    """`decompose` into runs of equal slots: the number of slots of each run, and (edges,) what every slot carries.

    Each run lasts until another edge or node must be rounded the same way in all slots that are left. So there are at
    most as many runs as edges and nodes, whatever the number of slots.

    Examples
    --------
    >>> decompose_runs(np.array([0, 0]), np.array([0, 1]), np.array([1000, 500]), 1500)
    [(1000, array([1, 0])), (500, array([0, 1]))]
    """
    if slots <= _FEW:
        columns, count = np.unique(decompose(left, right, amount, slots), axis=1, return_counts=True)
        return list(zip(count.tolist(), columns.T, strict=True))
    each, rest = np.divmod(amount, slots)
    nodes = [np.unique(node, return_inverse=True)[1] for node in (left, right)]
    found: list[tuple[int, Integers]] = []
    while slots:
        sums = [np.bincount(node, rest).astype(np.int64) for node in nodes]
        extra = _rounded(nodes, rest, sums, slots)
        room = [np.where(extra > 0, rest, slots - rest)]
        for node, total in zip(nodes, sums, strict=True):
            used, low = np.bincount(node, extra).astype(np.int64), total // slots
            room.append(np.where(used > low, total - low * slots, (low + 1) * slots - total))
        run = max(1, int(min(part[part > 0].min(initial=slots) for part in room)))
        found.append((run, each + extra))
        rest, slots = rest - run * extra, slots - run
    return found


def _rounded(nodes: Sequence[Integers], rest: Integers, sums: Sequence[Integers], slots: int) -> Integers:
    """(edges,) 0 or 1: shares ``rest / slots`` of edges, rounded down or up so that the sums at nodes are, too.

    A flow through the edges that are neither empty nor full: what nodes must carry comes from ``give`` and goes to
    ``take`` and is all there if the flow is greatest; what they may carry beside it passes ``source`` and ``sink``.
    """
    found: Integers = (rest == slots).astype(np.int64)
    edges = np.flatnonzero((rest > 0) & (rest < slots))
    if not len(edges):
        return found
    full = [
        np.bincount(node, found, minlength=len(total)).astype(np.int64) for node, total in zip(nodes, sums, strict=True)
    ]
    must = [total // slots - fixed for total, fixed in zip(sums, full, strict=True)]
    may = [(total % slots > 0).astype(np.int64) for total in sums]
    left, right = np.arange(len(sums[0])), len(sums[0]) + np.arange(len(sums[1]))
    give, take, source, sink = (len(left) + len(right) + k for k in range(4))
    arcs = [
        (left[nodes[0][edges]], right[nodes[1][edges]], 1),
        (give, left, must[0]),
        (source, left, may[0]),
        (right, take, must[1]),
        (right, sink, may[1]),
        (source, take, must[0].sum()),
        (give, sink, must[1].sum()),
        (sink, source, len(edges)),
    ]
    even = [np.broadcast_arrays(*map(np.atleast_1d, arc)) for arc in arcs]
    tail, head, most = (np.concatenate(part) for part in zip(*even, strict=True))
    ends = give + 4
    capacity = scipy.sparse.csr_array((most.astype(np.int32), (tail, head)), shape=(ends, ends))
    flow = scipy.sparse.csgraph.maximum_flow(capacity, give, take).flow
    found[edges] = np.asarray(flow[tail[: len(edges)], head[: len(edges)]]).ravel()
    return found
