"""Presolve: lower bounds on all levels from windows alone, and schedules that attain them.

Measured (benchmark *jit_bandwidth*): 70 jobs at share 1.0 are solved by it alone in 0.3 s.

Without port capacities, every load (pair or port) is an independent resource. Its least majorised load is computed
without a solver (`flowlex.formulations.balanced_load`): the *band* of every slot, and the rule that a transfer uses
only slots of the lowest band in its window. No schedule has smaller loads at any level. So a schedule within the bands
that respects the ports is a lexicographic optimum, and most instances have one: every pair is spread as evenly as
possible.

Bands are not computed by slot: they are pieces between consecutive starts and stops of a unit's windows.

`flowlex.models.jit.methods.load_levels` uses the bands, and handles ports that they violate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from flowlex.formulations.balanced_load import balance, greatest_intensity
from flowlex.formulations.program_arrays import Integers
from flowlex.models.jit.interval_schedules import Blocks
from flowlex.models.jit.transfer_slot_grid import Grid, Load, run_label

#: What a message about strict windows ends with.
ELASTIC = "Pass windows='elastic' to accept the least total lateness."


@dataclass(frozen=True, eq=False)
class Bands:
    """Least majorised loads of every pair or port, without port capacities. P pieces, in order of unit and time."""

    # (P,) pair or port of the piece, and its slots ``begin .. end - 1``
    unit: Integers
    begin: Integers
    end: Integers
    band: Integers  # (P,) the load of these slots lies in ``band .. band + 1``; -1 outside the windows of all transfers
    # (loads, F) lowest band in the transfer's window, for every load it counts towards; it is sent only in that band
    transfer_band: Integers
    blocks: Blocks  # schedule with balanced loads; empty if transfers count towards two loads

    @property
    def largest(self) -> int:
        """The lower bound K on the largest load."""
        return int(self.band.max(initial=-1)) + 1

    def largest_of(self, transfers: Integers) -> int:
        """The lower bound on the largest load of some transfers."""
        return int(self.transfer_band[:, transfers].max(initial=-1)) + 1

    def lowest(self, unit: Integers, start: Integers, stop: Integers) -> Integers:
        """The lowest band of units over windows."""
        first, last = self._piece(unit, start, "right") - 1, self._piece(unit, stop, "left")
        padded = np.append(self.band, np.iinfo(np.int64).max)
        return np.asarray(np.minimum.reduceat(padded, np.stack([first, last], axis=1).ravel())[::2])

    def _piece(self, unit: Integers, slot: Integers, side: Literal["left", "right"]) -> Integers:
        span = int(self.end.max(initial=0)) + 1
        return np.asarray(np.searchsorted(self.unit * span + self.begin, unit * span + slot, side=side))


@dataclass(frozen=True, eq=False)
class Overload:
    """Transfers (positions in the grid) that a port cannot send in the slots ``begin .. end - 1`` of their windows."""

    members: Integers
    side: int  # 0: egress, 1: ingress
    machine: int
    begin: int
    end: int

    def document(self, grid: Grid) -> dict[str, Any]:
        """The proof that there is no schedule, as plain data."""
        names = [grid.name(k) for k in self.members.tolist()]
        label = run_label(grid.instance.machines[self.machine].name, self.begin, self.end)
        rows = {"size": {"at": dict.fromkeys(names, 1)}, ("egress", "ingress")[self.side]: {"at": {label: -1}}}
        return {"transfers": names, "empty": [{"own": 0, "rows": rows}]}


def find_bands(grid: Grid, load: Load, *, widened: bool = True) -> Bands:
    """Balance every load separately; ``widened``: slots by which windows were widened are separate pieces."""
    groups = grid.loads(load).groups
    pieces, amounts = [], []  # arrays (unit, begin, end, band) and (transfer, begin, end, units to send)
    for unit in groups:
        alone = np.bincount(unit)[unit] == 1  # a single transfer is spread over its window
        if widened:
            alone &= grid.stop <= grid.due
        at = np.flatnonzero(alone)
        begin, end, units = grid.start[at], grid.stop[at], grid.units[at]
        pieces.append((unit[at], begin, end, -(-units // (end - begin)) - 1))
        amounts.append((at, begin, end, units))
        order = np.argsort(unit, kind="stable")
        order = order[~alone[order]]
        for members in np.split(order, np.flatnonzero(np.diff(unit[order])) + 1) if len(order) else []:
            also = grid.widened_slots(members) if widened else None
            balanced = balance(grid.start[members], grid.stop[members], grid.units[members], also)
            begin, end = balanced.edge[:-1], balanced.edge[1:]
            pieces.append((np.full(len(begin), unit[members[0]]), begin, end, balanced.band))
            cell = balanced.cell
            amounts.append((members[balanced.item], begin[cell], end[cell], balanced.amount))
    if len(groups) > 1:  # the loads that a transfer counts towards were balanced in different ways
        amounts = []
    none = (np.zeros(0, np.int64),) * 4
    unit, begin, end, band = (np.concatenate(each) for each in zip(none, *pieces, strict=True))
    blocks = Blocks.of(*(np.concatenate(each) for each in zip(none, *amounts, strict=True)))
    order = np.lexsort((begin, unit))
    bands = Bands(unit[order], begin[order], end[order], band[order], np.zeros((0, grid.count), np.int64), blocks)
    lowest = [bands.lowest(group, grid.start, grid.stop) for group in groups]
    return replace(bands, transfer_band=np.stack(lowest))


def components(
    grid: Grid, load: Load, ports: tuple[NDArray[np.bool_], NDArray[np.bool_]], together: Sequence[Integers] = ()
) -> Integers:
    """(F,) component of every transfer; transfers are joined by a common load, constrained port, or ``together``."""
    loads = grid.loads(load)
    count = loads.count
    machines = len(grid.out_units)
    tails, heads = [], []
    for group in loads.groups:
        tails.append(np.arange(grid.count))
        heads.append(grid.count + group)
    for side, port in enumerate((grid.sender, grid.receiver)):
        at = np.flatnonzero(ports[side][port])
        tails.append(at)
        heads.append(grid.count + count + side * machines + port[at])
    nodes = grid.count + count + 2 * machines
    for number, members in enumerate(together):
        tails.append(members)
        heads.append(np.full(len(members), nodes + number))
    nodes += len(together)
    tail, head = np.concatenate(tails), np.concatenate(heads)
    graph = scipy.sparse.coo_array((np.ones(len(tail)), (tail, head)), shape=(nodes, nodes))
    return np.asarray(scipy.sparse.csgraph.connected_components(graph, directed=False)[1][: grid.count], np.int64)


def port_overload(grid: Grid) -> tuple[str, Overload | None, tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Find ports whose transfers exceed the capacity in an interval: a message about the first, it, and the ports."""
    slot_s, first, overload = grid.instance.slot_s, "", None
    found = (np.zeros(len(grid.out_units), np.bool_), np.zeros(len(grid.out_units), np.bool_))
    sides = (("egress", grid.sender, grid.out_units), ("ingress", grid.receiver, grid.in_units))
    for side, (name, port, limit) in enumerate(sides):
        for machine in np.unique(port).tolist():
            members = np.flatnonzero(port == machine)
            a, b, amount = greatest_intensity(grid.start[members], grid.stop[members], grid.units[members])
            if amount <= (b - a) * limit[machine]:
                continue
            found[side][machine] = True
            inside = members[(grid.start[members] >= a) & (grid.stop[members] <= b)]
            overload = overload or Overload(inside, side, machine, int(a), int(b))
            first = first or (
                f"{name} of machine {grid.instance.machines[machine].name!r}: {grid.names(inside)} must send "
                f"{amount} units between {a * slot_s:g} s and {b * slot_s:g} s, where {(b - a) * limit[machine]} "
                f"fit. {ELASTIC}"
            )
    return first, overload, found
