"""One more optimum from the last: a network changed a little, its flow and potentials repaired along shortest paths.

Arcs that the potentials say should be full or empty are made so; what then is too much at some nodes goes to where it
lacks, along paths of least reduced cost. For a lasting network with many changes see `NetworkSession`.

Source: successive shortest paths, Ahuja, Magnanti and Orlin (1993), section 9.7.
"""

from __future__ import annotations

import itertools

import numpy as np
import scipy

from flowlex.formulations.arrays import Integers
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork

__all__ = ["repair"]

#: Distances below this are exact in floating point.
_EXACT = 2**53


def repair(network: FlowNetwork, flow: Integers, potentials: Integers, paths: int = 50) -> Integers | None:
    """An optimal flow from one of a similar network; None when that is not found in so many paths.

    Parameters
    ----------
    flow, potentials
        (A,) and (N,), any whole numbers; the closer to an optimum the better.
    """
    reduced, pi = network.reduced_costs(potentials), potentials
    if (largest := int(np.abs(reduced).max(initial=0))) * network.node_count >= 2**62 or largest >= _EXACT:
        return None
    if ((reduced < 0) & (network.upper == UNBOUNDED)).any():
        return None
    flow = np.clip(flow, network.lower, network.upper)
    flow = np.where(reduced > 0, network.lower, np.where(reduced < 0, network.upper, flow))
    for _ in range(paths):
        excess = network.excess(flow)
        sources = np.flatnonzero(excess > 0)
        if not len(sources):
            return flow
        reduced = network.reduced_costs(pi)
        graph, arc_of = _residual(network, flow, reduced)
        distance, before, _ = scipy.sparse.csgraph.dijkstra(
            graph, indices=sources, min_only=True, return_predecessors=True
        )
        lacking = np.flatnonzero(excess < 0)
        end = int(lacking[np.argmin(distance[lacking])])
        if not distance[end] < _EXACT:
            return None
        pi = pi - np.minimum(distance, distance[end]).astype(np.int64)
        path = [end]
        while before[path[-1]] >= 0:
            path.append(int(before[path[-1]]))
        steps = np.array([arc_of[b, a] for a, b in itertools.pairwise(path)])
        arcs, forward = np.abs(steps) - 1, steps > 0
        room = np.where(forward, network.upper[arcs] - flow[arcs], flow[arcs] - network.lower[arcs])
        units = min(int(room.min()), int(excess[path[-1]]), int(-excess[end]))
        flow[arcs] += np.where(forward, units, -units)
    return None


def _residual(
    network: FlowNetwork, flow: Integers, reduced: Integers
) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    """Reduced costs of the residual network, and of which arc each is: ``arc + 1``, negative against its direction."""
    ahead, back = np.flatnonzero(flow < network.upper), np.flatnonzero(flow > network.lower)
    tail = np.concatenate([network.tail[ahead], network.head[back]])
    head = np.concatenate([network.head[ahead], network.tail[back]])
    cost = np.concatenate([reduced[ahead], -reduced[back]])
    arc = np.concatenate([ahead + 1, -back - 1])
    order = np.lexsort((cost, head, tail))
    tail, head, cost, arc = tail[order], head[order], cost[order], arc[order]
    first = np.append(True, (tail[1:] != tail[:-1]) | (head[1:] != head[:-1])) if len(tail) else np.zeros(0, bool)
    pointer = np.searchsorted(tail[first], np.arange(network.node_count + 1))
    shape = (network.node_count, network.node_count)
    entries = head[first].astype(np.int32), pointer.astype(np.int32)
    return (
        scipy.sparse.csr_array((cost[first].astype(np.float64), *entries), shape=shape),
        scipy.sparse.csr_array((arc[first], *entries), shape=shape),
    )
