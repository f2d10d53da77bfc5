"""Simple schedules to compare with: earliest deadline first at full rate, and filling the bandwidth that is left."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Integers
from flowlex.models.jit.grid import Grid

__all__ = ["fill", "greedy_schedule"]


def greedy_schedule(grid: Grid) -> tuple[Integers, int]:
    """Send as early and as fast as the ports allow, the earliest deadline first.

    Returns
    -------
    rate
        (columns of the grid,) units in every slot of every window.
    missed
        Units that did not arrive within their windows.
    """
    columns = grid.columns
    rate = np.zeros(columns.count, np.int64)
    left = grid.units.copy()
    waiting = sorted(range(grid.count), key=lambda k: int(grid.start[k]), reverse=True)
    active: list[tuple[int, int]] = []
    slot = 0
    while waiting or active:
        if not active:
            slot = max(slot, int(grid.start[waiting[-1]]))
        while waiting and grid.start[waiting[-1]] <= slot:
            k = waiting.pop()
            heapq.heappush(active, (int(grid.stop[k]), k))
        out, into = grid.out_units.copy(), grid.in_units.copy()
        later = []
        for stop, k in sorted(active):
            if stop <= slot:
                continue
            i, j = grid.sender[k], grid.receiver[k]
            sent = min(int(left[k]), int(out[i]), int(into[j]))
            rate[columns.offset[k] + slot - grid.start[k]] = sent
            left[k] -= sent
            out[i] -= sent
            into[j] -= sent
            if left[k]:
                later.append((stop, k))
        active = later
        heapq.heapify(active)
        slot += 1
    return rate, int(left.sum())


def fill(
    out_room: NDArray[np.int64],
    in_room: NDArray[np.int64],
    out_units: Integers,
    in_units: Integers,
    sender: Integers,
    receiver: Integers,
    units: Integers,
    start: Integers,
) -> tuple[Integers, NDArray[np.int64]]:
    """Send items, first come first served, on what the ports have left.

    Parameters
    ----------
    out_room, in_room
        (M, horizon) units left; beyond the horizon ports are free.

    Returns
    -------
    end
        (items,) end slot of each.
    sent
        (n, 3) item, slot and units, in order of time.
    """
    entries: list[tuple[int, int, int]] = []
    end = np.zeros(len(units), np.int64)
    left = units.copy()
    waiting = sorted(range(len(units)), key=lambda k: (int(start[k]), k), reverse=True)
    active: list[int] = []
    slot, horizon = 0, out_room.shape[1]
    while waiting or active:
        if not active:
            slot = max(slot, int(start[waiting[-1]]))
        while waiting and start[waiting[-1]] <= slot:
            active.append(waiting.pop())
        out = out_room[:, slot].copy() if slot < horizon else out_units.copy()
        into = in_room[:, slot].copy() if slot < horizon else in_units.copy()
        slot += 1
        for k in active:
            sent = min(int(left[k]), int(out[sender[k]]), int(into[receiver[k]]))
            if sent:
                entries.append((k, slot - 1, sent))
            left[k] -= sent
            out[sender[k]] -= sent
            into[receiver[k]] -= sent
            if not left[k]:
                end[k] = slot
        active = [k for k in active if left[k]]
    return end, np.array(entries, np.int64).reshape(-1, 3)
