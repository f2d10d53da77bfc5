"""Baseline schedules: earliest deadline first at full rate, and first come first served on the remaining bandwidth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.models.jit.interval_schedules import Blocks
from flowlex.models.jit.transfer_slot_grid import Grid

#: Port (ingress after egress), first slot, end, and units in use in each slot.
Taken = tuple[Integers, Integers, Integers, Integers]


def greedy_schedule(grid: Grid) -> tuple[Blocks, int]:
    """Send as early and as fast as the ports allow, the earliest deadline first.

    Returns the schedule and the number of units that it does not deliver within their windows.
    """
    stop = grid.stop.tolist()
    served = _serve(
        grid.out_units, grid.in_units, grid.sender, grid.receiver, grid.units, grid.start, stop, lambda k: (stop[k], k)
    )
    return served, int(grid.units.sum() - served.amount.sum())


def is_early(grid: Grid) -> bool:
    """Return whether sending as early as possible, earliest deadline first, meets all due slots."""
    return bool((grid.stop <= grid.due).all()) and greedy_schedule(grid)[1] == 0


def fill(
    out_units: Integers,
    in_units: Integers,
    sender: Integers,
    receiver: Integers,
    units: Integers,
    start: Integers,
    taken: Taken | None = None,
    due: Integers | None = None,
) -> tuple[Integers, Blocks]:
    """Send items, first come first served (or earliest ``due`` first), on the remaining capacity of the ports.

    Returns the end slot of each item, (items,), and the schedule.
    """
    begin = (start if due is None else due).tolist()
    served = _serve(out_units, in_units, sender, receiver, units, start, None, lambda k: (begin[k], k), taken)
    end = np.zeros(len(units), np.int64)
    np.maximum.at(end, served.item, served.end)
    return end, served


def _serve(
    out_units: Integers,
    in_units: Integers,
    sender: Integers,
    receiver: Integers,
    units: Integers,
    start: Integers,
    stop: list[int] | None,
    first: Callable[[int], tuple[int, int]],
    taken: Taken | None = None,
) -> Blocks:
    """Give each item, in order of priority, the remaining capacity of its ports. Rates change only at events: an item
    arrives, is sent or reaches its deadline, or the used capacity of a port changes.
    """
    machines = len(out_units)
    room = np.concatenate([out_units, in_units]).tolist()
    changes: dict[int, list[tuple[int, int]]] = {}
    for port, begin, end, amount in zip(*(each.tolist() for each in taken or ()), strict=True):
        changes.setdefault(begin, []).append((port, -amount))
        changes.setdefault(end, []).append((port, amount))
    marks = sorted(changes, reverse=True)
    out, into, left = sender.tolist(), (receiver + machines).tolist(), units.tolist()
    waiting = sorted(range(len(left)), key=lambda k: (int(start[k]), k), reverse=True)
    active: list[int] = []
    entries: list[tuple[int, int, int, int]] = []
    slot = 0
    while waiting or active:
        if not active:
            slot = max(slot, int(start[waiting[-1]]))
        while marks and marks[-1] <= slot:
            for port, change in changes[marks.pop()]:
                room[port] += change
        while waiting and start[waiting[-1]] <= slot:
            active.append(waiting.pop())
        active = sorted((k for k in active if stop is None or stop[k] > slot), key=first)
        free, sending = room.copy(), []
        for k in active:
            rate = min(left[k], free[out[k]], free[into[k]])
            if rate:
                sending.append((k, rate))
                free[out[k]] -= rate
                free[into[k]] -= rate
        until = [left[k] // rate for k, rate in sending]
        until += [marks[-1] - slot] if marks else []
        until += [int(start[waiting[-1]]) - slot] if waiting else []
        until += [stop[k] - slot for k in active] if stop is not None else []
        if not active:
            continue
        steps = min(until)
        for k, rate in sending:
            entries.append((k, slot, slot + steps, rate * steps))
            left[k] -= rate * steps
        active = [k for k in active if left[k]]
        slot += steps
    return Blocks.of(*np.array(entries, np.int64).reshape(-1, 4).T)
