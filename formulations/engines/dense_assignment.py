"""Dense assignments: SciPy's method for the pairs, and potentials that prove them.

Every origin supplies one unit, every target takes one, and most pairs of both have an arc.
"""

from __future__ import annotations

import numpy as np

from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.program_arrays import Integers

#: Share of all pairs that have an arc; with fewer the matrix is larger than the network.
_DENSE = 0.5
#: Sums of costs along a path stay below this, so that floats hold them exactly.
_EXACT = 2.0**52
#: Fewer arcs are solved before SciPy is imported.
_FEWEST = 10_000


def solve_dense_assignment(network: FlowNetwork) -> tuple[Integers, Integers] | None:
    """(A,) optimal flows and (N,) potentials of an assignment; None: it is no dense one, or has no answer."""
    supply, arcs = network.supply, network.arc_count
    count = network.node_count // 2
    if arcs < _FEWEST or arcs < _DENSE * count * count or not (np.abs(supply) == 1).all() or supply.sum():
        return None
    place = np.empty(2 * count, np.int64)  # of a node among the origins or among the targets
    place[supply > 0] = place[supply < 0] = np.arange(count)
    largest = max(int(network.cost.max()), -int(network.cost.min()))
    if (
        network.lower.any()
        or (network.upper < 1).any()
        or (supply[network.tail] < 0).any()
        or (supply[network.head] > 0).any()
        or 4.0 * (largest + 1) * (count + 1) > _EXACT
    ):
        return None
    pair = place[network.tail] * count + place[network.head]
    cost = np.full(count * count, np.inf)
    cost[pair] = network.cost
    if arcs > count * count or np.count_nonzero(np.isfinite(cost)) < arcs:  # two arcs of one pair
        return None
    from scipy.optimize import linear_sum_assignment

    matrix = cost.reshape(count, count)
    try:
        _, target = linear_sum_assignment(matrix)
    except ValueError:  # no assignment of all: another method finds out why
        return None
    potential = _potentials(matrix, target)
    own = np.empty(2 * count, np.int64)
    own[supply > 0] = potential
    own[np.flatnonzero(supply < 0)[target]] = potential - matrix[np.arange(count), target].astype(np.int64)
    return (target[place[network.tail]] == place[network.head]).astype(np.int64), own


def _potentials(matrix: np.ndarray[tuple[int, int], np.dtype[np.float64]], target: Integers) -> Integers:
    """Largest potentials ``u <= 0`` of the origins with ``u[i] - u[k] <= matrix[i, target[k]] - matrix[k, target[k]]``.

    They are shortest paths from origin to origin, by rounds of Bellman and Ford over those that got shorter.
    """
    count = len(target)
    more = matrix.T[target] - matrix[np.arange(count), target][:, None]  # from each origin (row) to each
    found = np.zeros(count)
    changed = np.arange(count)
    while len(changed):
        shorter = np.minimum(found, (more[changed] + found[changed, None]).min(axis=0))
        changed = np.flatnonzero(shorter < found)
        found = shorter
    return found.astype(np.int64)
