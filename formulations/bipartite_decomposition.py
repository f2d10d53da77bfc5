"""Cut an integer bipartite b-matching over L equal slots into L integer matchings, one per slot.

Given amounts on the edges of a bipartite multigraph that respect ``L * capacity`` at every node, there are L
integer parts, each within ``capacity``, in which every edge carries its mean rounded down or up (integer
decomposition of a bipartite b-matching; edge colouring is the special case of capacity one).

The parts start with every edge split evenly. While a node exceeds its capacity in one part, that part and another
in which the node has least are split anew: edges that differ between the two (by one) form a simple bipartite
graph, and colouring its trails alternately leaves no node with a difference above one. The sum of squared loads
falls each time, so this ends.

Source: de Werra, "Equitable colorations of graphs" (1971); the argument is reconstructed here.
"""

from __future__ import annotations

import numpy as np

from flowlex.formulations.balanced_load import even_split
from flowlex.formulations.expression import Integers

__all__ = ["alternate", "decompose"]


def decompose(
    left: Integers,
    right: Integers,
    amount: Integers,
    slots: int,
    left_capacity: Integers,
    right_capacity: Integers,
) -> Integers:
    """Split every edge's amount into ``slots`` whole parts.

    Parameters
    ----------
    left, right
        (edges,) node of each side; an edge may occur once only.
    amount
        (edges,) non-negative.
    slots
        Number of parts, L.
    left_capacity, right_capacity
        (nodes,) most a node may carry in one part.

    Returns
    -------
    (edges, slots) int64: every row sums to the amount and has entries ``amount // L`` or one more.

    Raises
    ------
    ValueError
        The amounts at a node exceed L times its capacity, or an edge occurs twice.
    """
    for side, node, capacity in (("left", left, left_capacity), ("right", right, right_capacity)):
        total = np.bincount(node, weights=amount, minlength=len(capacity)).astype(np.int64)
        if (total > slots * capacity).any():
            worst = int(np.argmax(total - slots * capacity))
            raise ValueError(f"{side} node {worst} carries {total[worst]}, above {slots} x {capacity[worst]}")
    if len(np.unique(np.stack([left, right]), axis=1).T) < len(left):
        raise ValueError("an edge occurs twice; add its amounts first")
    # Shifted phases spread the remainders, so that few nodes start above their capacity.
    phases = (np.arange(len(amount)) * 0.6180339887498949) % 1.0
    parts = np.array([even_split(int(a), slots, p) for a, p in zip(amount, phases, strict=True)], dtype=np.int64)
    parts = parts.reshape(len(amount), slots)
    for node, capacity in ((left, left_capacity), (right, right_capacity)):
        while True:
            load = np.zeros((len(capacity), slots), np.int64)
            np.add.at(load, node, parts)
            over = np.argwhere(load > capacity[:, None])
            if not len(over):
                break
            v, a = over[0].tolist()
            _rebalance(parts, left, right, a, int(load[v].argmin()))
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
