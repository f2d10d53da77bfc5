"""Max-min fair rates that are computed anew only where they change.

A transfer gets its rate from its *bottleneck*: a full resource where no transfer is faster. When transfers start or
end, the resources on their paths are filled again; the other transfers through these keep the rates of their
bottlenecks. Where a new rate changes what another bottleneck has left, or overfills a resource, that resource joins the
set and the set is filled again. Sums are added in the order of `flowlex.simulation.max_min.fill`: rates differ from its
rates at most in the last bit, where two bottlenecks have the same level.
"""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-calls=False
from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from flowlex.formulations.deferred_compilation import njit
from flowlex.simulation.max_min import Floats, Integers

__all__ = ["Flows", "join", "leave", "make_flows", "refill", "unfair"]

#: Resources that a transfer may use at most.
WIDEST = 8
#: Places in `Flows.numbers`: how many resources are listed in `changed`; the present attempt to fill.
CHANGED, ATTEMPT = range(2)
#: So many attempts with a part of the resources, then all are filled.
_ATTEMPTS = 8
_SLACK = 1e-9


class Flows(NamedTuple):
    """Transfers by row, R resources. A transfer's k-th resource is *entry* ``WIDEST * row + k``."""

    path: Integers  # (rows, WIDEST), -1 where a transfer uses fewer
    rate: Floats  # (rows,) 0 where there is no transfer
    bottleneck: Integers  # (rows,) -1 where there is none (yet)
    new_rate: Floats  # (rows,) of the present attempt; negative: not yet known
    new_bottleneck: Integers  # (rows,)
    seen: Integers  # (rows,) the last attempt that met the transfer
    after: Integers  # (rows * WIDEST,) the next entry of the same resource, -1 at the end
    before: Integers  # (rows * WIDEST,)
    first: Integers  # (R,) first entry of each resource, -1 if none
    amount: Integers  # (R,) transfers through it
    filled: Integers  # (R,) transfers of which it is the bottleneck
    changed: Integers  # (R,) resources to be filled, as many as counted
    chosen: Integers  # (R,) whether it is listed there
    numbers: Integers


def make_flows(resources: int, rows: int, old: Flows | None = None) -> Flows:
    """Rows for transfers, those of ``old`` first."""

    def longer(values: Any, length: int, fill: float, kind: Any = np.int64) -> Any:
        made = np.full(length, fill, kind)
        if values is not None:
            made[: len(values)] = values
        return made

    entries = rows * WIDEST
    return Flows(
        path=longer(None if old is None else old.path.ravel(), entries, -1).reshape(rows, WIDEST),
        rate=longer(None if old is None else old.rate, rows, 0.0, np.float64),
        bottleneck=longer(None if old is None else old.bottleneck, rows, -1),
        new_rate=np.zeros(rows),
        new_bottleneck=np.zeros(rows, np.int64),
        seen=longer(None if old is None else old.seen, rows, 0),
        after=longer(None if old is None else old.after, entries, -1),
        before=longer(None if old is None else old.before, entries, -1),
        first=np.full(resources, -1) if old is None else old.first,
        amount=np.zeros(resources, np.int64) if old is None else old.amount,
        filled=np.zeros(resources, np.int64) if old is None else old.filled,
        changed=np.zeros(resources, np.int64) if old is None else old.changed,
        chosen=np.zeros(resources, np.int64) if old is None else old.chosen,
        numbers=np.zeros(2, np.int64) if old is None else old.numbers,
    )


@njit(cache=True)
def _choose(net, p):
    """List a resource to be filled; True if it was not listed."""
    if net.chosen[p]:
        return False
    net.chosen[p] = 1
    net.changed[net.numbers[CHANGED]] = p
    net.numbers[CHANGED] += 1
    return True


@njit(cache=True)
def join(net, row):
    """A transfer has come; its path stands in its row."""
    for k in range(WIDEST):
        p = net.path[row, k]
        if p >= 0:
            entry, head = WIDEST * row + k, net.first[p]
            net.after[entry], net.before[entry] = head, -1
            if head >= 0:
                net.before[head] = entry
            net.first[p] = entry
            net.amount[p] += 1
            _choose(net, p)


@njit(cache=True)
def leave(net, row):
    """A transfer has ended: its row is empty."""
    for k in range(WIDEST):
        p = net.path[row, k]
        if p >= 0:
            after, before = net.after[WIDEST * row + k], net.before[WIDEST * row + k]
            if before >= 0:
                net.after[before] = after
            else:
                net.first[p] = after
            if after >= 0:
                net.before[after] = before
            net.amount[p] -= 1
            net.path[row, k] = -1
            _choose(net, p)
    if net.bottleneck[row] >= 0:
        net.filled[net.bottleneck[row]] -= 1
    net.rate[row], net.bottleneck[row] = 0.0, -1


@njit(cache=True)
def refill(net, capacity):
    """Set the rates that change since transfers joined and left; return the resources of which the load changes."""
    free, left = np.empty(len(capacity)), np.empty(len(capacity), np.int64)
    rows = np.empty(len(net.rate), np.int64)
    for attempt in range(_ATTEMPTS + 1):
        if attempt == _ATTEMPTS:
            for p in range(len(capacity)):
                _choose(net, p)
        net.numbers[ATTEMPT] += 1
        listed = net.numbers[CHANGED]
        met = _fill(net, capacity, free, left, rows)
        if met:
            _spread(net, capacity, rows[:met])
        if net.numbers[CHANGED] == listed:
            break
        if 4 * met > len(rows):  # most are met: to find the rest step by step would take longer
            for p in range(len(capacity)):
                _choose(net, p)
    for k in range(met):
        row = rows[k]
        if net.bottleneck[row] >= 0:
            net.filled[net.bottleneck[row]] -= 1
        net.filled[net.new_bottleneck[row]] += 1
        if net.rate[row] != net.new_rate[row]:
            for p in net.path[row]:
                if p >= 0:
                    _choose(net, p)
        net.rate[row], net.bottleneck[row] = net.new_rate[row], net.new_bottleneck[row]
    changed = net.changed[: net.numbers[CHANGED]].copy()
    net.chosen[changed] = 0
    net.numbers[CHANGED] = 0
    return changed


@njit(cache=True)
def _fill(net, capacity, free, left, rows):
    """Fill the chosen resources; list the transfers through them in ``rows`` and return how many there are.

    A transfer with a bottleneck elsewhere has its rate already, and takes it when the common level comes there.
    """
    now, met = net.numbers[ATTEMPT], 0
    levels = [(0.0, np.int64(0), np.int64(0)) for _ in range(0)]
    for k in range(net.numbers[CHANGED]):
        p = net.changed[k]
        free[p], left[p] = capacity[p], net.amount[p]
        if left[p]:
            levels.append((max(free[p] / left[p], 0.0), p, np.int64(-1)))
        entry = net.first[p]
        while entry >= 0:
            row = entry // WIDEST
            if net.seen[row] != now:
                net.seen[row], net.new_rate[row], rows[met] = now, -1.0, row
                met += 1
                at = net.bottleneck[row]
                if at >= 0 and not net.chosen[at]:
                    levels.append((net.rate[row], at, row))
            entry = net.after[entry]
    heapify(levels)
    while levels:
        old, p, row = heappop(levels)
        if row >= 0:
            if net.new_rate[row] < 0.0:
                _freeze(net, row, net.rate[row], p, free, left)
            continue
        if not left[p]:
            continue
        level = max(free[p] / left[p], 0.0)
        if level > old:
            heappush(levels, (level, p, row))
            continue
        entry = net.first[p]
        while entry >= 0:
            row = entry // WIDEST
            if net.new_rate[row] < 0.0:
                _freeze(net, row, level, p, free, left)
            entry = net.after[entry]
        free[p] = 0.0
    return met


@njit(cache=True)
def _freeze(net, row, level, p, free, left):
    """Give a transfer its rate, and take it from the chosen resources on its path."""
    net.new_rate[row], net.new_bottleneck[row] = level, p
    for k in range(WIDEST):
        q = net.path[row, k]
        if q >= 0 and net.chosen[q]:
            free[q] = max(free[q] - level, 0.0)
            left[q] -= 1


@njit(cache=True)
def _spread(net, capacity, rows):
    """Choose the resources that new rates change: bottlenecks of others, and what would be overfull."""
    for row in rows:
        at = net.bottleneck[row]
        if net.new_rate[row] == net.rate[row] and at >= 0:
            continue
        if at >= 0:
            _choose(net, at)
        for k in range(WIDEST):
            p = net.path[row, k]
            if p >= 0 and not net.chosen[p] and (net.filled[p] or _used(net, p) > (1.0 - _SLACK) * capacity[p]):
                _choose(net, p)


@njit(cache=True)
def _used(net, p):
    """The rates through a resource, together."""
    total, entry = 0.0, net.first[p]
    while entry >= 0:
        row = entry // WIDEST
        total += net.new_rate[row] if net.seen[row] == net.numbers[ATTEMPT] else net.rate[row]
        entry = net.after[entry]
    return total


@njit(cache=True)
def unfair(net, capacity, resources):
    """Check rates by the definition: within the capacity, and each transfer has a full resource where it is largest.

    Returns
    -------
    The first of ``resources`` that carries too much, and the first row through them whose transfer could be faster; -1
    where there is none.
    """
    used, largest = np.full(len(capacity), -1.0), np.zeros(len(capacity))
    net.numbers[ATTEMPT] += 1
    for p in resources:
        _add_up(net, p, used, largest)
        if used[p] > capacity[p] + _SLACK * (1.0 + capacity[p]):
            return p, -1
    for p in resources:
        entry = net.first[p]
        while entry >= 0:
            row = entry // WIDEST
            if net.seen[row] != net.numbers[ATTEMPT]:
                net.seen[row] = net.numbers[ATTEMPT]
                if not _slowed(net, row, capacity, used, largest):
                    return -1, row
            entry = net.after[entry]
    return -1, -1


@njit(cache=True)
def _slowed(net, row, capacity, used, largest):
    """Whether a transfer is largest at a full resource."""
    for p in net.path[row]:
        if p >= 0:
            if used[p] < 0.0:
                _add_up(net, p, used, largest)
            slack = _SLACK * (1.0 + capacity[p])
            if used[p] >= capacity[p] - slack and net.rate[row] >= largest[p] - slack:
                return True
    return False


@njit(cache=True)
def _add_up(net, p, used, largest):
    """Sum and largest of the rates through a resource."""
    used[p], entry = 0.0, net.first[p]
    while entry >= 0:
        rate = net.rate[entry // WIDEST]
        used[p] += rate
        largest[p] = max(largest[p], rate)
        entry = net.after[entry]
