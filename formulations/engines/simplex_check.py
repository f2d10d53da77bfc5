"""The live network simplex judged from its data alone: one compiled pass over arcs and nodes."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np
from numba import njit

from flowlex.formulations.engines.simplex_tree import END

__all__ = ["violations"]


@njit(cache=True)
def violations(t, supply, start, count):
    """Recompute what an optimum must satisfy, from arcs, flows and potentials alone.

    Returns the largest violation of flow conservation, of the bounds, of the signs of reduced costs, and the
    flow on artificial arcs: all zero exactly when the flow is a minimum-cost flow of the real arcs.
    """
    end = t.counters[END]
    excess = np.zeros(count, np.int64)
    bounds = 0
    signs = 0
    for arc in range(start, end):
        flow, capacity = t.flow[arc], t.capacity[arc]
        if flow != 0:
            excess[t.tail[arc]] += flow
            excess[t.head[arc]] -= flow
            bounds = max(bounds, -flow, flow - capacity)
        elif capacity == 0:
            continue
        reduced = t.cost[arc] - t.pi[t.tail[arc]] + t.pi[t.head[arc]]
        if reduced < 0 and flow < capacity:
            signs = max(signs, -reduced)
        elif reduced > 0 and flow > 0:
            signs = max(signs, reduced)
    conservation = 0
    artificial = 0
    for v in range(1, count):
        artificial = max(artificial, t.flow[2 * v] + t.flow[2 * v + 1])
        conservation = max(conservation, abs(excess[v] - supply[v]))
    return conservation, bounds, signs, artificial
