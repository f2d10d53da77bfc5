"""Where ports are nearly full, choose the slots that get one unit more, instead of leaving them open.

A block that its slots do not divide leaves open which of them get a unit more, so a port must have room for it in all.
Here the units that are left over are put where the ports have most room, pair by pair. Loads stay least: a pair has its
mean, rounded down or up, in every slot.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Integers
from flowlex.models.jit.blocks import Blocks
from flowlex.models.jit.grid import Grid

__all__ = ["settle", "share_runs"]

#: First slot, end, units in each.
Run = tuple[int, int, int]


class _Port:
    """Load of a port over time: ``height[k]`` between ``edge[k]`` and the next."""

    def __init__(self, begin: Integers, end: Integers, rate: Integers, limit: int) -> None:
        self.edge, self.limit = np.unique(np.concatenate([begin, end])), limit
        change = np.zeros(len(self.edge), np.int64)
        np.add.at(change, np.searchsorted(self.edge, begin), rate)
        np.add.at(change, np.searchsorted(self.edge, end), -rate)
        self.height = np.cumsum(change)

    def room(self, at: Integers) -> Integers:
        """What is left in slots."""
        return np.asarray(self.limit - self.height[np.searchsorted(self.edge, at, side="right") - 1])

    def add(self, begin: int, end: int) -> None:
        """One unit more in some slots."""
        for mark in (begin, end):
            k = int(np.searchsorted(self.edge, mark))
            if self.edge[k] != mark:
                self.edge = np.insert(self.edge, k, mark)
                self.height = np.insert(self.height, k, self.height[k - 1])
        self.height[np.searchsorted(self.edge, begin) : np.searchsorted(self.edge, end)] += 1


def settle(
    grid: Grid, blocks: Blocks, over: tuple[NDArray[np.bool_], NDArray[np.bool_]], movable: NDArray[np.bool_]
) -> Blocks:
    """The same blocks, those of movable transfers at the given ports steady where there is room for them."""
    rough = ~blocks.steady & movable[blocks.item]
    rough &= over[0][grid.sender[blocks.item]] | over[1][grid.receiver[blocks.item]]
    at = np.flatnonzero(rough)
    if not len(at):
        return blocks
    key = np.stack([grid.pair[blocks.item[at]], blocks.begin[at], blocks.end[at]], axis=1)
    kind, inverse = np.unique(key, axis=0, return_inverse=True)
    total, some = np.zeros(len(kind), np.int64), np.zeros(len(kind), np.int64)
    np.add.at(total, inverse.ravel(), blocks.amount[at])
    some[inverse.ravel()] = blocks.item[at]
    begin, end = kind[:, 1], kind[:, 2]
    ports = _ports(grid, blocks, rough, (some, begin, end, total // (end - begin)), over)
    order = np.argsort(inverse.ravel(), kind="stable")
    members = np.split(at[order], np.flatnonzero(np.diff(inverse.ravel()[order])) + 1)
    kept, rows = np.ones(len(rough), np.bool_), []
    for n in np.argsort(begin, kind="stable").tolist():
        first, last, machines = int(begin[n]), int(end[n]), len(over[0])
        mine = (int(grid.sender[some[n]]), int(grid.receiver[some[n]]) + machines)
        length = last - first
        runs = _even(first, last, int(total[n]) % length, [ports[p] for p in mine if p in ports])
        if runs is not None:
            kept[members[n]] = False
            each = int(total[n]) // length
            rows += share_runs(blocks, members[n], [(a, b, each + more) for a, b, more in runs])
    item, start, stop, amount = np.array(rows, np.int64).reshape(-1, 4).T
    old = (blocks.item[kept], blocks.begin[kept], blocks.end[kept], blocks.amount[kept])
    both = zip(old, (item, start, stop, amount), strict=True)
    return Blocks.of(*(np.concatenate(pair) for pair in both))


def _ports(
    grid: Grid,
    blocks: Blocks,
    rough: NDArray[np.bool_],
    floors: tuple[Integers, Integers, Integers, Integers],
    over: tuple[NDArray[np.bool_], NDArray[np.bool_]],
) -> dict[int, _Port]:
    """The given ports, with all that is settled, and the rest rounded down."""
    item = np.concatenate([blocks.item[~rough], floors[0]])
    begin = np.concatenate([blocks.begin[~rough], floors[1]])
    end = np.concatenate([blocks.end[~rough], floors[2]])
    open_ones = (~blocks.steady)[~rough]
    rate = np.concatenate([blocks.rate[~rough] + open_ones, floors[3]])
    found = {}
    for side, (port, limit) in enumerate(((grid.sender, grid.out_units), (grid.receiver, grid.in_units))):
        machine = port[item]
        order = np.argsort(machine, kind="stable")
        cuts = np.searchsorted(machine[order], np.arange(len(limit) + 1))
        for m in np.flatnonzero(over[side]).tolist():
            own = order[cuts[m] : cuts[m + 1]]
            found[m + side * len(limit)] = _Port(begin[own], end[own], rate[own], int(limit[m]))
    return found


def _even(first: int, last: int, more: int, ports: list[_Port]) -> list[Run] | None:
    """Runs of slots ``first .. last - 1``; ``more`` of them get a unit more, where most room is. None: nowhere."""
    marks = [port.edge[(port.edge > first) & (port.edge < last)] for port in ports]
    edge = np.unique(np.concatenate([[first, last], *marks]))
    room = np.min([port.room(edge[:-1]) for port in ports], axis=0)
    length = np.diff(edge)
    order = np.argsort(-room, kind="stable")
    order = order[room[order] > 0]
    take = np.clip(more - (np.cumsum(length[order]) - length[order]), 0, length[order])
    if take.sum() < more:
        return None
    runs: list[Run] = []
    chosen = dict(zip(order.tolist(), take.tolist(), strict=True))
    for k, (a, b) in enumerate(zip(edge[:-1].tolist(), edge[1:].tolist(), strict=True)):
        middle = a + chosen.get(k, 0)
        runs += [(x, y, units) for x, y, units in ((a, middle, 1), (middle, b, 0)) if y > x]
        if middle > a:
            for port in ports:
                port.add(a, middle)
    return runs


def share_runs(blocks: Blocks, members: Integers, runs: list[Run]) -> list[tuple[int, int, int, int]]:
    """What the transfers of a pair send, one after the other: item, first slot, end, units in all."""
    rows: list[tuple[int, int, int, int]] = []
    waiting = [(int(blocks.item[k]), int(blocks.amount[k])) for k in members]
    item, left = waiting.pop(0)
    for first, last, rate in runs:
        slot, room = first, rate  # room: what the slot has left for the next transfer
        while slot < last and rate:
            steps = min(left // rate, last - slot) if room == rate else 0
            sent, end = (steps * rate, slot + steps) if steps else (min(left, room), slot + 1)
            rows.append((item, slot, end, sent))
            left -= sent
            room = rate if steps else room - sent
            if steps or not room:
                slot, room = end, rate
            if not left and waiting:
                item, left = waiting.pop(0)
            elif not left:
                return rows
    return rows
