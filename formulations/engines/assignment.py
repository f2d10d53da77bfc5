"""Assignment: every source sends its unit to one sink, and there is an arc from every source to every sink.

Shortest augmenting paths on the whole matrix of costs, with prices of rows and columns that prove the answer; columns
are first priced at their least cost, so that most rows need no path (Jonker and Volgenant, "A shortest augmenting path
algorithm for dense and sparse linear assignment problems", 1987; the reduction of rows is left out).
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.loops import njit

__all__ = ["complete_assignment", "solve_assignment"]

#: Looks at the matrix, as multiples of its size, beyond which the network simplex takes over.
_PATIENCE = 300


@njit(cache=True)
def _price_columns(cost, column_price, row_of, column_of, before):
    """Price each column at its least cost, and give it to the row that has it, if that is free."""
    size = len(cost)
    column_price[:] = cost[0]
    for i in range(1, size):
        for j in range(size):
            if cost[i, j] < column_price[j]:
                column_price[j], before[j] = cost[i, j], i
    for j in range(size):
        if column_of[before[j]] < 0:
            column_of[before[j]], row_of[j] = j, before[j]


@njit(cache=True)
def _nearest(columns, settled, distance, row_of):
    """Bring the nearest columns that are not settled to the front: their end, their distance, a free one or -1."""
    ready, least = settled, distance[columns[settled]]
    for k in range(settled, len(columns)):
        j = columns[k]
        if distance[j] <= least:
            if distance[j] < least:
                ready, least = settled, distance[j]
            columns[k], columns[ready] = columns[ready], j
            ready += 1
    for k in range(settled, ready):
        if row_of[columns[k]] < 0:
            return ready, least, columns[k]
    return ready, least, -1


@njit(cache=True)
def _augment(free, end, row_of, column_of, before):
    """Hand columns on along the path from a free row to a free column."""
    while True:
        row = before[end]
        row_of[end] = row
        end, column_of[row] = column_of[row], end
        if row == free:
            return


@njit(cache=True)
def _assign(cost, column_price, row_of, column_of):
    """Assign every row to a column of its own at least total cost; False when that takes too many looks."""
    size = len(cost)
    looks = _PATIENCE * size * size
    distance, before = np.empty(size, np.int64), np.zeros(size, np.int64)
    _price_columns(cost, column_price, row_of, column_of, before)
    columns = np.arange(size)
    for free in range(size):
        if column_of[free] >= 0:
            continue
        for j in range(size):
            distance[j], before[j] = cost[free, j] - column_price[j], free
        settled, ready, end, least = 0, 0, -1, np.int64(0)
        while end < 0:
            if settled == ready:  # the nearest columns come next
                ready, least, end = _nearest(columns, settled, distance, row_of)
                if end >= 0:
                    break
            across = columns[settled]
            settled += 1
            looks -= size - ready
            row = row_of[across]
            shift = cost[row, across] - column_price[across] - least
            for k in range(ready, size):
                j = columns[k]
                length = cost[row, j] - column_price[j] - shift
                if length < distance[j]:
                    distance[j], before[j] = length, row
                    if length == least:
                        if row_of[j] < 0:
                            end = j
                            break
                        columns[k], columns[ready] = columns[ready], j
                        ready += 1
        if looks < 0:
            return False
        for k in range(settled):
            column_price[columns[k]] += distance[columns[k]] - least
        _augment(free, end, row_of, column_of, before)
    return True


def complete_assignment(network: FlowNetwork) -> tuple[Integers, Integers, Integers] | None:
    """(n,) sources, (n,) sinks and the (n, n) arcs between them, if the network is of this kind."""
    arcs, nodes = network.arc_count, network.node_count
    size = nodes // 2
    if 2 * size != nodes or arcs != size * size or (np.abs(network.supply) != 1).any():
        return None
    if network.lower.any() or (network.upper < 1).any():
        return None
    sources, sinks = np.flatnonzero(network.supply > 0), np.flatnonzero(network.supply < 0)
    place = np.full(nodes, -1)
    place[sources] = np.arange(size)
    row = place[network.tail]
    place[sources], place[sinks] = -1, np.arange(size)
    column = place[network.head]
    if (row < 0).any() or (column < 0).any():
        return None
    table = np.full(arcs, -1)
    table[row * size + column] = np.arange(arcs)
    return None if (table < 0).any() else (sources, sinks, table.reshape(size, size))


def solve_assignment(network: FlowNetwork) -> tuple[Integers, Integers] | None:
    """Flow and potentials of an optimum of a complete assignment; None of others, or where paths are long."""
    found = complete_assignment(network)
    if found is None:
        return None
    sources, sinks, arcs = found
    cost = network.cost[arcs]
    size = len(sources)
    column_price, row_of, column_of = np.zeros(size, np.int64), np.full(size, -1), np.full(size, -1)
    if not _assign(cost, column_price, row_of, column_of):
        return None
    rows = np.arange(size)
    flow = np.zeros(network.arc_count, np.int64)
    flow[arcs[rows, column_of]] = 1
    potentials = np.zeros(network.node_count, np.int64)
    potentials[sinks] = -column_price
    potentials[sources] = cost[rows, column_of] - column_price[column_of]
    return flow, potentials
