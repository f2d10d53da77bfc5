"""Recognise a JIT matrix with full windows by its entries alone, so that `jit_rule` can refute it at once.

Looked for is what every bandwidth program of ours and of the paper has: all entries +1, three per column, one in
each of three blocks of rows. One block are demands (a row per transfer, a column per slot); in the other two,
rows that meet are of one slot, and the rows of a machine meet the same transfers in every slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from flowlex.formulations.arrays import Integers
from flowlex.validation.unimodularity.jit_rule import LEAST_SLOTS, Column, Row, odd_walk

__all__ = ["FullWindows", "jit_shaped", "recognise_full_windows"]


@dataclass(frozen=True)
class FullWindows:
    """A matrix read as a JIT matrix.

    Attributes
    ----------
    flows
        Sender and receiver of every transfer (numbers of our own).
    slots
        Number of slots.
    columns
        (F, slots) column of transfer and slot.
    rows
        (3, columns) rows of every column: sender's, receiver's, demand.
    """

    flows: tuple[tuple[int, int], ...]
    slots: int
    columns: Integers
    rows: Integers

    def witness(self) -> tuple[list[int], list[int]] | None:
        """Rows and columns of an odd closed walk (determinant +-2), or None when the rule says TU."""
        found = odd_walk(self.flows)
        if found is None:
            return None
        _, rows, columns = found
        return [self._row(row) for row in rows], [self._column(column) for column in columns]

    def _column(self, column: Column) -> int:
        return int(self.columns[column])

    def _row(self, row: Row) -> int:
        kind, number, slot = row
        if kind == "demand":
            return int(self.rows[2, self.columns[number, 0]])
        side = 0 if kind == "egress" else 1
        transfer = next(f for f, ends in enumerate(self.flows) if ends[side] == number)
        return int(self.rows[side, self.columns[transfer, slot]])


def jit_shaped(matrix: sp.csc_array) -> bool:
    """Whether every column holds three +1 and nothing else."""
    three = matrix.nnz == 3 * matrix.shape[1] and bool(np.all(np.diff(matrix.indptr) == 3))
    return three and bool(np.all(matrix.data == 1))


def recognise_full_windows(matrix: sp.csc_array) -> FullWindows | None:
    """Read a canonical {-1, 0, 1} matrix as a JIT matrix with full windows and at least 3 slots, or return None."""
    if not jit_shaped(matrix):
        return None
    parts = matrix.indices.reshape(-1, 3).astype(np.int64).T  # sorted inside every column
    blocks = [np.unique(part) for part in parts]
    if len(np.unique(np.concatenate(blocks))) != sum(map(len, blocks)):
        return None
    for demand in (2, 1, 0):
        ports = [part for place, part in enumerate(parts) if place != demand]
        found = _read(ports[0], ports[1], parts[demand], int(matrix.shape[0]))
        if found is not None:
            return found
    return None


def _read(sender: Integers, receiver: Integers, demand: Integers, rows: int) -> FullWindows | None:
    columns = len(demand)
    _, flow, counts = np.unique(demand, return_inverse=True, return_counts=True)
    slots = int(counts[0])
    if slots < LEAST_SLOTS or np.any(counts != slots):
        return None
    # Columns that share a port row are of one slot.
    everything = np.concatenate([np.arange(columns), np.arange(columns)])
    meets = sp.csr_array(
        (np.ones(2 * columns, np.int8), (everything, columns + np.concatenate([sender, receiver]))),
        shape=(columns + rows, columns + rows),
    )
    _, label = connected_components(meets, directed=False)
    table = np.lexsort((label[:columns], flow)).reshape(-1, slots)
    kind = label[table]
    if np.any(np.diff(kind, axis=1) == 0):
        return None  # a transfer meets itself: not one column per slot
    machines = []
    for side in (sender, receiver):
        first = np.full(rows, len(counts), np.int64)
        np.minimum.at(first, side, flow)
        machine = first[side[table]]  # the least transfer that each port row meets
        if np.any(machine != machine[:, :1]) or np.any(kind != kind[machine[:, 0]]):
            return None
        if np.any(side[table] != side[table[machine[:, 0]]]):
            return None
        machines.append(machine[:, 0])
    flows = tuple(zip(*(side.tolist() for side in machines), strict=True))
    return FullWindows(flows, slots, table, np.stack([sender, receiver, demand]))
