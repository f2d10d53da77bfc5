"""The paper's programs over slots or intervals, for all or some transfers of a grid.

The equations are those of `flowlex.models.jit.statement`. A cell is a slot, or an interval of L slots in which
no window starts or ends; port capacities and loads are then multiplied by L.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.lexicographic.lexicographic_problem import LexicographicProgram
from flowlex.formulations.linear_expression import Expression, Variables
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Integers
from flowlex.models.jit.interval_schedules import Blocks, blocks_of_cells
from flowlex.models.jit.transfer_slot_grid import Grid, Load, Runs
from flowlex.models.model_base import ModelError

Horizon: TypeAlias = Literal["slots", "intervals"]

#: Largest number of columns of a program.
MOST_COLUMNS = 20_000_000


@dataclass(frozen=True, eq=False)
class Cells:
    """Some transfers of a grid over slots, or over intervals between consecutive starts and stops."""

    grid: Grid  # grid that contains the transfers
    which: Integers  # (F',) positions of the transfers in the grid
    stop: Integers  # (F',) end of each run: the end of the window, or later for elastic windows
    horizon: Horizon  # ``slots`` or ``intervals``
    # (M,) bool for egress and for ingress: ports whose capacity is a constraint; None: all ports
    ports: tuple[NDArray[np.bool_], NDArray[np.bool_]] | None = None
    start: Integers | None = None  # (F',) begin of each run; None: begin of the window
    # additional ends of intervals; None: the ends of late slots in windows that the grid widened
    marks: Integers | None = None
    # keys (machine * cells + cell) of the egress and of the ingress ports that must be full; None: no port
    full: tuple[Integers, Integers] | None = None

    @property
    def first(self) -> Integers:
        """(F',) begin of each run."""
        return self.grid.start[self.which] if self.start is None else self.start

    @cached_property
    def edges(self) -> Integers:
        """(cells + 1,) first slot of every cell, and the end."""
        start = self.first
        if not len(self.which):
            return np.zeros(1, np.int64)
        if self.horizon == "slots":
            self._refuse_sizes(self.stop - start)
            return np.arange(start.min(), self.stop.max() + 1)
        marks = self.grid.widened_slots(self.which) if self.marks is None else self.marks
        return np.unique(np.concatenate([start, self.stop, marks]))

    def _refuse_sizes(self, slots: Integers) -> None:
        """Raise `ModelError` if a program over slots would not fit into memory."""
        if slots.sum() <= MOST_COLUMNS:
            return
        k, slot_s = int(slots.argmax()), self.grid.instance.slot_s
        raise ModelError(
            f"the program has {slots.sum():.3g} rates, one per transfer and slot of {slot_s:g} s, of "
            f"{self.grid.name(int(self.which[k]))!r} alone {slots[k]:.3g}; at most {MOST_COLUMNS:.0e} are solved for: "
            "use integrality='auto', strict windows with horizon='intervals', a longer slot_s, or a smaller share"
        )

    def blocks(self, amount: NDArray[Any]) -> Blocks:
        """Convert amounts per column to blocks of the grid's transfers."""
        return blocks_of_cells(self.which, self.edges, self.columns, amount)

    @cached_property
    def length(self) -> Integers:
        """(cells,) slots in each cell."""
        return np.diff(self.edges)

    @cached_property
    def columns(self) -> Runs:
        """One row per transfer: its cells."""
        return Runs(np.searchsorted(self.edges, self.first), np.searchsorted(self.edges, self.stop))

    @cached_property
    def entry_keys(self) -> tuple[Integers, ...]:
        """(columns,) per kind of port: machine * cells + cell."""
        columns, cells = self.columns, len(self.length)
        return tuple(
            port[self.which][columns.row] * cells + columns.slot for port in (self.grid.sender, self.grid.receiver)
        )

    @cached_property
    def most(self) -> Integers:
        """(columns,) largest amount that a transfer can send in a cell."""
        row, cell = self.columns.row, self.columns.slot
        return np.asarray(
            np.minimum(self.grid.cap[self.which][row] * self.length[cell], self.grid.units[self.which][row])
        )

    def port_rows(self, side: int) -> tuple[Integers, Integers, Integers]:
        """Rows of (4) or (5): port, cell, and for every column its row (-1: none).

        Rows that no rates can violate are omitted, unless they must be full.
        """
        limit = (self.grid.out_units, self.grid.in_units)[side]
        size = max(len(self.length), 1)
        used, row = np.unique(self.entry_keys[side], return_inverse=True)
        most = np.bincount(row, weights=self.most, minlength=len(used))
        kept = most > limit[used // size] * self.length[used % size]
        if self.ports is not None:
            kept &= self.ports[side][used // size]
        if self.full is not None:
            kept |= np.isin(used, self.full[side])
        number = np.where(kept, np.cumsum(kept) - 1, -1)
        return used[kept] // size, used[kept] % size, number[row]

    def load_entries(self, load: Load) -> tuple[Integers, Integers, tuple[Integers, ...]]:
        """Loads with columns: number of the load, cell, and for every column its loads."""
        columns, cells = self.columns, len(self.length)
        keys = [group[self.which][columns.row] * cells + columns.slot for group in self.grid.loads(load).groups]
        used, inverse = np.unique(np.concatenate(keys), return_inverse=True)
        parts = tuple(np.split(inverse, len(keys)))
        size = max(cells, 1)
        return used // size, used % size, parts


def base_program(cells: Cells, *, name: str, labels: bool = True) -> LinearProgram:
    """Return the program of constraints (4) to (7) with variables ``rate``, without an objective.

    Port constraints that no choice of rates can violate are omitted. ``labels``: name rows and columns after transfers
    and machines.
    """
    grid, columns = cells.grid, cells.columns
    program = LinearProgram(name)
    begin = cells.edges[:-1]
    names = np.array([grid.name(int(k)) for k in cells.which], dtype=object) if labels else cells.which
    rate = program.variables("rate", columns.count, upper=cells.most, labels=(names[columns.row], begin[columns.slot]))
    machine = np.array([m.name for m in grid.instance.machines], dtype=object)
    for side, (row_name, limit) in enumerate((("egress", grid.out_units), ("ingress", grid.in_units))):
        port, cell, row = cells.port_rows(side)
        kept = row >= 0
        load, right = rate[kept].sum_by(row[kept], len(port)), limit[port] * cells.length[cell]
        program.constrain(row_name, load, "<=", right, labels=(machine[port], begin[cell]))
        if cells.full is not None:
            at = np.flatnonzero(np.isin(port * len(cells.length) + cell, cells.full[side]))
            program.constrain(f"{row_name}_full", load[at], ">=", right[at])
    program.constrain("size", rate.sum_by(columns.row, len(cells.which)), "==", grid.units[cells.which], labels=names)
    return program


def lexicographic_program(cells: Cells, load: Load, *, name: str, elastic: bool = False) -> LexicographicProgram:
    """Return the base program with its loads; with ``elastic``, total lateness is the first objective."""
    grid, rate = cells.grid, Variables(np.arange(cells.columns.count))
    unit, cell, parts = cells.load_entries(load)
    loads = Expression.empty(len(unit))
    for part in parts:
        loads = loads + rate.sum_by(part, len(unit))
    late = np.maximum(cells.edges[cells.columns.slot] + 1 - grid.due[cells.which][cells.columns.row], 0)
    return LexicographicProgram(
        base=base_program(cells, name=name, labels=False),
        loads=loads,
        levels=int(grid.loads(load).most[np.unique(unit)].max(initial=1)),
        width=cells.length[cell].astype(np.float64),
        first=(rate * late).sum() if elastic else None,
        constant_sum=float(grid.units[cells.which].sum() * len(grid.loads(load).groups)),
    )


def latest_end(grid: Grid, members: Integers) -> Integers:
    """Slots by which every schedule of least lateness has ended; at most the firm ends.

    For a unit sent later, there would be an earlier slot with free capacity at both its ports.
    """
    busy = 0
    for port, limit in ((grid.sender, grid.out_units), (grid.receiver, grid.in_units)):
        total = np.bincount(port[members], weights=grid.units[members], minlength=len(limit)).astype(np.int64)
        busy += int((-(-total // limit)).max())
    end = max(int(grid.start[members].max()), int(grid.stop[members].max())) + busy
    return np.minimum(end, grid.firm[members])
