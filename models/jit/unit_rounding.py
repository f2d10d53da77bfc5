"""Round unsteady blocks at nearly full ports: choose the slots that get one more unit.

An unsteady block does not determine which of its slots get one more unit, so a port must have capacity for it in all of
them. Here the remaining units are placed, pair by pair, in the latest slots where the ports have capacity. Loads stay
least: a pair has its mean, rounded down or up, in every slot.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers
from flowlex.models.jit.interval_schedules import Blocks, port_pieces
from flowlex.models.jit.transfer_slot_grid import Grid

#: First slot, end, units in each.
Run = tuple[int, int, int]
#: Largest number of ports times slots for which loads are computed by slot.
_MOST = 20_000_000


def settle(grid: Grid, blocks: Blocks, movable: NDArray[np.bool_]) -> Blocks:
    """Return the blocks, with those of movable transfers made steady if their ports have capacity."""
    rough, steady, machines = np.flatnonzero(~blocks.steady & movable[blocks.item]), blocks.steady, len(grid.out_units)
    until = int(blocks.end.max(initial=0))
    if not len(rough) or 2 * machines * until > _MOST:
        return blocks
    length = blocks.end - blocks.begin
    at_least = np.where(steady, blocks.rate, -(-blocks.amount // length))
    at_least[rough] = 0
    room = np.repeat(np.concatenate([grid.out_units, grid.in_units])[:, None], until, axis=1)
    taken = port_pieces(grid, Blocks(blocks.item, blocks.begin, blocks.end, at_least * length))
    for port, begin, end, load in zip(*(each.tolist() for each in taken), strict=True):
        room[port, begin:end] -= load
    key = np.stack([blocks.begin, grid.pair[blocks.item], blocks.end], axis=1)[rough]
    kind, inverse = np.unique(key, axis=0, return_inverse=True)
    total = np.bincount(inverse.ravel(), blocks.amount[rough]).astype(np.int64)
    some = np.zeros(len(kind), np.int64)
    some[inverse.ravel()] = blocks.item[rough]
    ports = np.stack([grid.sender[some], grid.receiver[some] + machines], axis=1)
    for (first, _, last), amount, both in zip(kind.tolist(), total.tolist(), ports, strict=True):
        room[both, first:last] -= amount // (last - first)
    kept, rows = np.ones(len(steady), np.bool_), []
    for n, ((first, _, last), amount, both) in enumerate(zip(kind.tolist(), total.tolist(), ports, strict=True)):
        each, more = divmod(amount, last - first)
        free = room[both, first:last].min(axis=0)
        chosen = np.flatnonzero(free > 0)[::-1][:more]
        if len(chosen) < more:
            room[both, first:last] -= 1
            continue
        room[both[:, None], first + chosen] -= 1
        extra = np.zeros(last - first, np.int64)
        extra[chosen] = 1
        edges = np.concatenate([[0], np.flatnonzero(np.diff(extra)) + 1, [last - first]])
        runs = [(first + a, first + b, each + int(extra[a])) for a, b in pairwise(edges.tolist())]
        members = rough[inverse.ravel() == n]
        kept[members] = False
        rows += share_runs(blocks, members, runs)
    old = (each[kept] for each in (blocks.item, blocks.begin, blocks.end, blocks.amount))
    new = np.array(rows, np.int64).reshape(-1, 4).T
    return Blocks.of(*(np.concatenate(pair) for pair in zip(old, new, strict=True)))


def share_runs(blocks: Blocks, members: Integers, runs: list[Run]) -> list[tuple[int, int, int, int]]:
    """Assign a pair's runs to its transfers one after the other: (item, first slot, end, total units)."""
    rows: list[tuple[int, int, int, int]] = []
    waiting = [(int(blocks.item[k]), int(blocks.amount[k])) for k in members]
    item, left = waiting.pop(0)
    for first, last, rate in runs:
        slot, room = first, rate  # room: units left in the slot for the next transfer
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
