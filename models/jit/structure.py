"""Structure before solvers: lower bounds on all levels from windows alone, and schedules that meet them.

Without the port capacities every pair (or port) of machines is a resource of its own, whose least majorised load is
known without a solver (`flowlex.formulations.balanced_load`): the *band* of every slot, and the rule that a transfer
uses only the slots of the lowest band in its window. No schedule beats those loads at any level. So a schedule in
the bands that also respects the ports is a lexicographic optimum, and most instances have one:

1. spread every pair as evenly as possible;
2. where a port is over its capacity, move units within the bands to slots with room.

What to do where that gets stuck is in `flowlex.models.jit.levels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from flowlex.formulations.arrays import Integers
from flowlex.formulations.balanced_load import balance, even_split, greatest_intensity
from flowlex.models.jit.grid import Grid, Load, Runs

__all__ = ["Bands", "components", "find_bands", "port_overload", "relieve", "spread"]


@dataclass(frozen=True, eq=False)
class Bands:
    """Least majorised loads of every pair or port, without port capacities.

    Attributes
    ----------
    entries
        One row per pair or port: the slots from its first start to its last stop.
    band
        (entries,) the load lies in ``band .. band + 1``; -1 where no transfer has its window.
    allowed
        (columns of the grid,) slots a transfer may use: those of the lowest band in its window (for every load it
        counts towards).
    transfer_band
        (loads, F) that lowest band.
    rate
        (columns,) the spread of each pair, where load is ``pair``; zeros otherwise.
    """

    entries: Runs
    band: Integers
    allowed: NDArray[np.bool_]
    transfer_band: Integers
    rate: Integers

    @property
    def largest(self) -> int:
        """The lower bound K on the largest load."""
        return int(self.band.max(initial=-1)) + 1

    def largest_of(self, transfers: Integers) -> int:
        """The lower bound on the largest load of some transfers."""
        return int(self.transfer_band[:, transfers].max(initial=-1)) + 1


def find_bands(grid: Grid, load: Load) -> Bands:
    """Balance every pair or port on its own."""
    columns, count = grid.columns, grid.units_of_load(load)
    groups = grid.groups(load)
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, -1)
    for group in groups:
        np.minimum.at(first, group, grid.start)
        np.maximum.at(last, group, grid.stop)
    first = np.where(last < 0, 0, first)
    entries = Runs(first, np.maximum(last, first))
    band = np.full(entries.count, -1, np.int64)
    rate = np.zeros(columns.count, np.int64)
    for group in groups:
        _balance_groups(grid, group, entries, band, rate if load == "pair" else None)
    allowed = np.ones(columns.count, np.bool_)
    lowest = np.zeros((len(groups), grid.count), np.int64)
    for g, group in enumerate(groups):
        here = band[entries.entry(group[columns.row], columns.slot)]
        if grid.count:
            lowest[g] = np.minimum.reduceat(here, columns.offset[:-1])
        allowed &= here == lowest[g][columns.row]
    return Bands(entries, band, allowed, lowest, rate)


def _balance_groups(grid: Grid, group: Integers, entries: Runs, band: Integers, rate: Integers | None) -> None:
    """Fill ``band`` (and ``rate``) group by group; a transfer alone in its group needs no search."""
    order = np.argsort(group, kind="stable")
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    columns = grid.columns
    for members in np.split(order, cuts) if len(order) else []:
        if len(members) == 1:
            k = int(members[0])
            length, amount = int(grid.stop[k] - grid.start[k]), int(grid.units[k])
            at = int(entries.entry(group[members], grid.start[members])[0])
            band[at : at + length] = -(-amount // length) - 1
            if rate is not None:
                # A phase of its own for every transfer, so that single units do not all meet in one slot.
                phase = (k * 0.6180339887498949) % 1.0
                rate[columns.offset[k] : columns.offset[k + 1]] = even_split(amount, length, phase)
            continue
        balanced = balance(grid.start[members], grid.stop[members], grid.units[members])
        at = int(entries.entry(group[members[:1]], np.array([balanced.first]))[0])
        band[at : at + len(balanced.band)] = balanced.band
        if rate is not None:
            chosen = members[balanced.item]
            np.add.at(rate, columns.entry(chosen, balanced.slot), balanced.amount)


def spread(grid: Grid, runs: Runs, rate: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Load of every port and slot: egress and ingress, (M, slots) each."""
    used = np.flatnonzero(rate)
    row, slot = runs.row[used], runs.slot[used]
    shape = (len(grid.out_units), max(grid.horizon, int(runs.last.max(initial=0))))
    out, into = np.zeros(shape, rate.dtype), np.zeros(shape, rate.dtype)
    np.add.at(out, (grid.sender[row], slot), rate[used])
    np.add.at(into, (grid.receiver[row], slot), rate[used])
    return out, into


def relieve(
    grid: Grid, bands: Bands, rate: Integers, movable: NDArray[np.bool_], out: Integers, into: Integers
) -> None:
    """Move units of movable transfers within the bands, until no port is over its capacity or nothing helps.

    Parameters
    ----------
    rate
        (columns of the grid,) changed in place; read for movable transfers only.
    out, into
        (M, slots) loads of the ports by all transfers, changed in place.
    """
    entries, columns = bands.entries, grid.columns
    load = np.zeros(entries.count, np.int64)
    entry = entries.entry(grid.pair[columns.row], columns.slot)
    np.add.at(load, entry, rate)
    for side, (total, limit) in enumerate(((out, grid.out_units), (into, grid.in_units))):
        for machine, slot in np.argwhere(total > limit[:, None]).tolist():
            while total[machine, slot] > limit[machine]:
                if not _move_one(grid, bands, rate, load, entry, movable, (out, into), machine, slot, side):
                    break


def _move_one(
    grid: Grid,
    bands: Bands,
    rate: Integers,
    load: Integers,
    entry: Integers,
    movable: NDArray[np.bool_],
    ports: tuple[Integers, Integers],
    machine: int,
    slot: int,
    side: int,
) -> bool:
    """Move one unit out of a slot of a port, to the slot of the same transfer with most room."""
    columns, (out, into) = grid.columns, ports
    port = grid.sender if side == 0 else grid.receiver
    there = np.flatnonzero((port == machine) & (grid.start <= slot) & (grid.stop > slot) & movable)
    for k in there.tolist():
        run = slice(int(columns.offset[k]), int(columns.offset[k + 1]))
        here = run.start + slot - int(grid.start[k])
        if rate[here] == 0 or load[entry[here]] <= bands.band[entry[here]]:
            continue
        i, j = int(grid.sender[k]), int(grid.receiver[k])
        slots = slice(int(grid.start[k]), int(grid.stop[k]))
        room = np.minimum(grid.out_units[i] - out[i, slots], grid.in_units[j] - into[j, slots])
        free = bands.allowed[run] & (load[entry[run]] <= bands.band[entry[run]]) & (room > 0)
        if not free.any():
            continue
        goal = run.start + int(np.where(free, room, -1).argmax())
        for place, change in ((here, -1), (goal, 1)):
            rate[place] += change
            load[entry[place]] += change
            out[i, columns.slot[place]] += change
            into[j, columns.slot[place]] += change
        return True
    return False


def components(grid: Grid, load: Load, ports: tuple[NDArray[np.bool_], NDArray[np.bool_]]) -> Integers:
    """(F,) component of every transfer; two meet if they share a load, or a port that is a constraint."""
    count = grid.units_of_load(load)
    machines = len(grid.out_units)
    tails, heads = [], []
    for group in grid.groups(load):
        tails.append(np.arange(grid.count))
        heads.append(grid.count + group)
    for side, port in enumerate((grid.sender, grid.receiver)):
        at = np.flatnonzero(ports[side][port])
        tails.append(at)
        heads.append(grid.count + count + side * machines + port[at])
    tail, head = np.concatenate(tails), np.concatenate(heads)
    nodes = grid.count + count + 2 * machines
    graph = sparse.coo_array((np.ones(len(tail)), (tail, head)), shape=(nodes, nodes))
    return np.asarray(csgraph.connected_components(graph, directed=False)[1][: grid.count], np.int64)


def port_overload(grid: Grid) -> tuple[str, tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Ports and intervals into which more must go than fits: the first in words, and which ports they are."""
    slot_s, first = grid.instance.slot_s, ""
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
            first = first or (
                f"{name} of machine {grid.instance.machines[machine].name!r}: {grid.names(inside)} must send "
                f"{amount} units between {a * slot_s:g} s and {b * slot_s:g} s, where {(b - a) * limit[machine]} "
                "fit. Pass windows='elastic' to accept the least total lateness."
            )
    return first, found
