"""Round unsteady blocks at nearly full ports: choose the slots that get one more unit.

An unsteady block does not determine which of its slots get one more unit, so a port must have capacity for it in all of
them. Here the remaining units are placed, pair by pair, in the latest slots where the ports have capacity. Loads stay
least: a pair has its mean, rounded down or up, in every slot.

Benchmark: 70 jobs with all transfers planned (``share=1.0``) take 0.5 s instead of 17 s; by bytes, 0.3 s instead of 13.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from flowlex.models.jit.interval_schedules import Blocks, port_pieces, share_runs
from flowlex.models.jit.transfer_slot_grid import Grid

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
