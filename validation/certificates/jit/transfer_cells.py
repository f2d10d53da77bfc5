"""The columns of one part: transfers in *cells*, the slots between neighbouring changes of prices or windows.

Transfers that share a load or a port share a clock (time line); the clocks follow each other on one axis of slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from flowlex.formulations.program_arrays import Integers
from flowlex.validation.certificates.jit.prices_and_windows import Allowed, LevelProof, Prices


@dataclass(frozen=True, eq=False)
class _Units:
    """Loads of one kind, or ports of one side: the sorted units, the unit of each transfer, the start of its clock."""

    unit: Integers
    of: Integers
    start: Integers

    @classmethod
    def among(cls, group: Integers, start: Integers) -> _Units:
        """The units that transfers count towards."""
        unit, first, of = np.unique(group, return_index=True, return_inverse=True)
        return cls(unit, of, start[first])

    def runs(self, prices: Prices) -> tuple[Integers, Integers, Integers, Integers]:
        """Position of the unit, first slot and end on the axis, and price, for each price whose unit is used."""
        known = np.isin(prices.unit, self.unit)
        place = np.searchsorted(self.unit, prices.unit[known])
        begin, end = (self.start[place] + np.maximum(each[known], 0) for each in (prices.begin, prices.end))
        return place, begin, end, prices.price[known]


@dataclass(frozen=True, eq=False)
class Rows:
    """One row per unit over the cells that its transfers use; entries are numbered consecutively."""

    units: _Units
    first: Integers
    offset: Integers
    # unit, cell: (entries,) the unit and the cell of every entry
    unit: Integers
    cell: Integers
    column: Integers  # (columns,) the entry of every column

    @classmethod
    def of(cls, units: _Units, row: Integers, cell: Integers) -> Rows:
        """Rows for columns given by transfer and cell."""
        unit = units.of[row]
        low, high = np.full(len(units.unit), 1 << 62), np.full(len(units.unit), -1)
        np.minimum.at(low, unit, cell)
        np.maximum.at(high, unit, cell)
        count = np.maximum(high - low + 1, 0)
        offset = np.concatenate([[0], np.cumsum(count)])
        cells = np.arange(int(offset[-1])) + np.repeat(low - offset[:-1], count)
        return cls(units, low, offset, np.repeat(units.unit, count), cells, offset[unit] + cell - low[unit])

    def paint(self, prices: Prices, edge: Integers) -> Integers:
        """(entries,) the price of every entry."""
        total = np.zeros(int(self.offset[-1]) + 1, np.int64)
        place, begin, end, price = self.units.runs(prices)
        size = np.diff(self.offset)[place]
        for when, sign in ((begin, 1), (end, -1)):
            at = np.searchsorted(edge, when) - self.first[place]
            np.add.at(total, self.offset[place] + np.clip(at, 0, size), sign * price)
        return np.asarray(np.cumsum(total)[:-1])


@dataclass(frozen=True, eq=False)
class Cells:
    """The columns of a part. Sizes: C columns."""

    edge: Integers  # first slot of every cell, on the axis of all clocks
    size: Integers  # (cells,) slots of each cell
    # row, begin, length: (C,) the transfer of each column, and the first slot and the slots of its cell
    row: Integers
    begin: Integers
    length: Integers
    # loads, sides: `Rows` of each kind of load, and of each side
    loads: list[Rows]
    sides: list[Rows]

    @classmethod
    def of(
        cls,
        groups: tuple[Integers, ...],
        ports: tuple[Integers, ...],
        allowed: Allowed,
        due: Integers,
        proofs: tuple[LevelProof, ...],
    ) -> Cells:
        """Cells between all marks of windows and prices; parameters as in `Board`.

        Raises `ValueError`: prices of slots in which there is nothing to send.
        """
        told = max((int(each.end.max(initial=0)) for p in proofs for each in (p.load, p.port)), default=0)
        span = max(told, int(allowed.end.max(initial=0))) + 2
        if span > allowed.latest:
            raise ValueError(f"prices of slot {span - 2}; there is nothing to send after slot {allowed.latest}")
        if (allowed.until[allowed.open_end] < told).any():
            raise ValueError("prices of slots after the last distinct one")
        joined = (*groups, *ports) if any(len(p.port.unit) for p in proofs) or len(allowed.full.unit) else groups
        start = together(len(due), joined) * span
        loads, sides = ([_Units.among(each, start) for each in kind] for kind in (groups, ports))
        begin, end = (start[allowed.row] + each for each in (allowed.begin, allowed.end))
        marks = [begin, end]
        if any(p.nu for p in proofs):
            marks.append(np.clip(start[allowed.row] + due[allowed.row], begin, end))
        for kind, prices in ((loads, [p.load for p in proofs]), (sides, [*(p.port for p in proofs), allowed.full])):
            every = _joined(prices)
            for units in kind:
                marks += units.runs(every)[1:3]
        edge = np.unique(np.concatenate(marks))
        first = np.searchsorted(edge, begin)
        count = np.searchsorted(edge, end) - first
        row = np.repeat(allowed.row, count)
        cell = np.arange(len(row)) + np.repeat(first - np.cumsum(count) + count, count)
        size = np.diff(edge, append=edge[-1:] + 1)
        rows = [[Rows.of(units, row, cell) for units in kind] for kind in (loads, sides)]
        return cls(edge, size, row, edge[cell] % span, size[cell], *rows)


def _joined(many: Sequence[Prices]) -> Prices:
    """Concatenate several `Prices`."""
    none = Prices()
    fields = ("unit", "begin", "end", "price")
    return Prices(*(np.concatenate([getattr(none, f), *(getattr(each, f) for each in many)]) for f in fields))


def together(count: int, groups: tuple[Integers, ...]) -> Integers:
    """(count,) clock of each transfer; transfers that share a unit share a clock."""
    offset, tails, heads = count, [], []
    for group in groups:
        used, inverse = np.unique(group, return_inverse=True)
        tails.append(np.arange(count))
        heads.append(inverse + offset)
        offset += len(used)
    tail, head = np.concatenate(tails), np.concatenate(heads)
    graph = scipy.sparse.coo_array((np.ones(len(tail)), (tail, head)), shape=(offset, offset))
    return np.asarray(scipy.sparse.csgraph.connected_components(graph, directed=False)[1][:count], np.int64)
