r"""The integer program of just-in-time bandwidth by slot, which changed models solve.

It has units of every transfer by slot, loads divided into steps of one unit, and the objectives in order: total
lateness (elastic windows), the largest load, then for every level from the highest down the number of loads that reach
it. It uses slots, not intervals, because user rules may treat slots differently.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.exact_rationals import rational
from flowlex.models.jit.multipliers import level_count
from flowlex.models.jit.slot_programs import Cells, latest_end
from flowlex.models.jit.transfer_slot_grid import Grid, Load
from flowlex.models.statement.rows_and_objectives import Stage, Statement
from flowlex.models.statement.variable_labels import Index

#: Rows that changes must not drop, with the reasons.
NEEDED = {
    "size": "nothing would be sent",
    "level_link": "the levels would no longer count the loads",
    "level_order": "a load could reach a level without those below it",
    "largest_link": "the largest load would be no load's",
}


def rate_cells(grid: Grid, members: Integers, *, elastic: bool) -> Cells:
    """Return the slots in which some transfers of the grid may be sent.

    Elastic windows end ``grid.extra_slots`` after every schedule of least lateness of the unchanged model has ended, or
    at firm ends.
    """
    return Cells(grid, members, window_ends(grid, elastic=elastic)[members], "slots")


def window_ends(grid: Grid, *, elastic: bool) -> Integers:
    """(F,) end of every transfer's window in the statement."""
    if not elastic or not grid.count:
        return grid.stop
    return np.minimum(latest_end(grid, np.arange(grid.count)) + grid.extra_slots, grid.firm)


def state_bandwidth(
    grid: Grid,
    load: Load,
    *,
    elastic: bool,
    levels: bool,
    whole: bool,
    rows: Collection[str],
    members: Integers | None = None,
) -> Statement:
    """Formulate the problem of some transfers of a grid (all if None), without the others.

    ``levels``: count loads level by level (P2) instead of minimising only the largest load (P1). ``whole``: rates are
    integer units. ``rows``: the declared names of constraints.
    """
    cells = rate_cells(grid, np.arange(grid.count) if members is None else members, elastic=elastic)
    s = Statement.start(grid.instance.name, rows, NEEDED)
    labels = _Labels(cells, int(window_ends(grid, elastic=elastic).max(initial=0)))
    s.variables("rate", labels.rates(), upper=cells.most, integer=whole)
    for row, port, cell in cells.port_constraints(binding_only=False):
        index = Index.coded(machine=(labels.machines, port), **labels.times(cell)).named_by("machine", "slot")
        s.constrain(row.name, row.left, "<=", row.right, index)
    size = cells.size_constraint()
    s.constrain(size.name, size.left, "==", size.right, Index.coded(transfer=(labels.transfers, cells.which)))
    stages = _count_loads(s, cells, load, labels, levels=levels, whole=whole)
    if elastic:
        late = np.maximum(cells.columns.slot + cells.edges[0] + 1 - grid.due[cells.which][cells.columns.row], 0)
        stages.insert(0, Stage("lateness", (cells.rate * late).sum()))
    return s.with_stages(*stages)


def _count_loads(s: Statement, cells: Cells, load: Load, labels: _Labels, *, levels: bool, whole: bool) -> list[Stage]:
    """Add rows and variables of loads, of the largest load, and of their steps; return the stages."""
    grid = cells.grid
    loads, unit, cell = cells.loads(load)
    within = loads.evaluate(cells.most).astype(np.int64)
    top = level_count(grid, load)
    key, named = labels.loads(load, unit)
    times = labels.times(cell)
    index = Index.coded(**named, **times).named_by(key, "slot")
    largest = s.variables("largest", Index({}, {}, 1), upper=top, integer=whole)
    s.constrain("largest_link", loads - largest.repeated(len(unit)), "<=", 0, index)
    stages = [Stage("largest", largest.sum())]
    if not levels:
        return stages
    reach = np.minimum(grid.load_most(load)[unit], within)
    row = np.repeat(np.arange(len(unit)), reach)
    step = np.arange(len(row)) - np.repeat(np.cumsum(reach) - reach, reach) + 1
    steps = Index(
        {**index.levels, "step": tuple(range(1, top + 1))},
        {**{level: code[row] for level, code in index.codes.items()}, "step": step - 1},
        len(row),
        (key, "slot", "step"),
    )
    reached = s.variables("level", steps, upper=1, integer=whole)
    s.constrain("level_link", loads - reached.sum_by(row, len(unit)), "==", 0, index)
    below = np.flatnonzero(step < reach[row])
    s.constrain("level_order", reached[below + 1] - reached[below], "<=", 0, steps.take(below))
    return [*stages, *(Stage(f"level_{k}", reached[step == k].sum()) for k in range(top, 0, -1))]


class _Labels:
    """Labels of transfers, ports, loads and slots, always of the whole grid."""

    def __init__(self, cells: Cells, end: int) -> None:
        self.cells, grid = cells, cells.grid
        self.machines = [machine.name for machine in grid.instance.machines]
        self.transfers = [grid.name(k) for k in range(grid.count)]
        self.slots = range(end)
        slot_s = rational(grid.instance.slot_s)
        self.seconds = [float(slot_s * (slot + grid.origin)) for slot in self.slots]

    def times(self, cell: Integers) -> dict[str, Any]:
        """Labels slot and time (seconds at which the slot begins)."""
        slot = cell + int(self.cells.edges[0])
        return {"slot": (self.slots, slot), "time": (self.seconds, slot)}

    def links(self) -> tuple[list[str], Integers, Integers]:
        """Label, sender and receiver of every pair."""
        grid = self.cells.grid
        _, first = np.unique(grid.pair, return_index=True)
        sender, receiver = grid.sender[first], grid.receiver[first]
        names = [
            f"{self.machines[a]}>{self.machines[b]}" for a, b in zip(sender.tolist(), receiver.tolist(), strict=True)
        ]
        return names, sender, receiver

    def rates(self) -> Index:
        """Labels of every column: transfer, slot, time, job, sender, receiver and link."""
        grid = self.cells.grid
        transfer = self.cells.which[self.cells.columns.row]
        job = grid.instance.arrays.job[grid.transfer]
        index = Index.coded(
            transfer=(self.transfers, transfer),
            **self.times(self.cells.columns.slot),
            job=([each.name for each in grid.instance.jobs], job[transfer]),
            sender=(self.machines, grid.sender[transfer]),
            receiver=(self.machines, grid.receiver[transfer]),
            link=(self.links()[0], grid.pair[transfer]),
        )
        return index.named_by("transfer", "slot")

    def loads(self, load: Load, unit: NDArray[Any]) -> tuple[str, dict[str, Any]]:
        """Name of the level of loads, and the labels of the loads ``unit``."""
        if load == "pair":
            names, sender, receiver = self.links()
            return "link", {
                "link": (names, unit),
                "sender": (self.machines, sender[unit]),
                "receiver": (self.machines, receiver[unit]),
            }
        count = len(self.machines)
        side = unit // count if load == "port" else np.full(len(unit), int(load == "receiver"))
        names = [f"{machine} {way}" for way in ("out", "in") for machine in self.machines]
        return "port", {
            "port": (names, unit % count + side * count),
            "machine": (self.machines, unit % count),
            "side": (("out", "in"), side),
        }
