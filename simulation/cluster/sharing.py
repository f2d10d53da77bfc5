"""Transfers that share disks, links, uplinks and the aggregation, max-min fairly.

A transfer uses a few *resources*, each with a rate that its transfers share (`flowlex.simulation.max_min`). Between two
changes of rates nothing is computed: what a transfer has left follows from its rate and the time since.
"""

# mypy: disallow-untyped-decorators=False
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flowlex.formulations.loops import njit
from flowlex.simulation.decision import EveryNth
from flowlex.simulation.kernel import SimulationError
from flowlex.simulation.max_min import Floats, Integers, max_min_rates

__all__ = ["Transfer", "Transfers", "require_max_min"]

#: Resources that a transfer may use at most.
WIDEST = 8
#: What ends within a nanosecond ends together.
TOGETHER_S = 1e-9
_SLACK = 1e-9


def require_max_min(paths: Integers, capacity: Floats, rates: Floats, at_s: float) -> None:
    """Check rates by the definition: within every capacity, and each transfer has a full resource where it is largest.

    Raises
    ------
    SimulationError
        A resource is overfull, or a transfer could be faster.
    """
    used, largest = _loads(paths, rates, len(capacity))
    slack = _SLACK * (1.0 + np.where(np.isfinite(capacity), capacity, 0.0))
    if (used > capacity + slack).any():
        worst = int(np.argmax(used - capacity))
        raise SimulationError(f"resource {worst} carries {used[worst]} of {capacity[worst]} MB/s", at_s=at_s)
    full = np.isfinite(capacity) & (used >= np.where(np.isfinite(capacity), capacity - slack, 0.0))
    bottleneck = np.zeros(len(rates), bool)
    for column in paths.T:
        where = np.maximum(column, 0)
        bottleneck |= (column >= 0) & full[where] & (rates >= largest[where] - slack[where])
    if not bottleneck.all():
        raise SimulationError(f"transfer {int(np.argmin(bottleneck))} could be faster", at_s=at_s)


@njit(cache=True)
def _loads(paths: Any, rates: Any, resources: int) -> Any:
    """(resources,) sum and largest of the rates through each."""
    used, largest = np.zeros(resources), np.zeros(resources)
    for k in range(len(paths)):
        for p in paths[k]:
            if p >= 0:
                used[p] += rates[k]
                largest[p] = max(largest[p], rates[k])
    return used, largest


class Transfer:
    """Data on their way.

    Attributes
    ----------
    size_mb, left_mb
        In all, and still to come; the latter is brought up to date when the transfer ends or is stopped.
    path
        Resources it uses.
    done
        Called when the last byte has come.
    """

    __slots__ = ("done", "left_mb", "path", "row", "size_mb")

    def __init__(self, size_mb: float, path: Sequence[int], done: Callable[[], None]) -> None:
        self.size_mb = self.left_mb = size_mb
        self.path, self.done = path, done
        self.row = -1

    @property
    def moved_mb(self) -> float:
        """What has come."""
        return self.size_mb - self.left_mb


class Transfers:
    """All transfers that are on their way, and their rates: a row of arrays for each.

    Parameters
    ----------
    capacity
        (R,) MB/s of each resource; may be changed between calls of `share`.
    certify
        Check the rates by their definition every so manieth time that they change; 0: never.
    """

    def __init__(self, capacity: Floats, *, certify: int = 1) -> None:
        self.capacity = capacity
        self.turn: EveryNth = EveryNth(certify)
        self._at: list[Transfer | None] = []  # by row
        self._started: Integers = np.empty(0, np.int64)  # by row, how many had started before; -1: unused
        self._count = 0
        self._unused: list[int] = []
        self._path: Integers = np.empty((0, WIDEST), np.int64)
        self._left: Floats = np.empty(0)
        self._rate: Floats = np.empty(0)
        self._since_s = self._now_s = 0.0
        self._next_s = float("inf")

    def start(self, transfer: Transfer) -> None:
        """Add a transfer; it moves from the next `share` on."""
        if not self._unused:
            old, new = len(self._left), max(2 * len(self._left), 64)
            self._unused = list(range(new - 1, old - 1, -1))
            self._path = np.vstack([self._path, np.full((new - old, WIDEST), -1)])
            self._left, self._rate = (np.append(a, np.zeros(new - old)) for a in (self._left, self._rate))
            self._started = np.append(self._started, np.full(new - old, -1))
            self._at += [None] * (new - old)
        row = transfer.row = self._unused.pop()
        self._at[row], self._started[row] = transfer, self._count
        self._count += 1
        self._path[row, : len(transfer.path)] = transfer.path
        self._left[row] = transfer.left_mb

    def stop(self, transfer: Transfer) -> None:
        """Take a transfer away; call `advance` first."""
        row = transfer.row
        if row >= 0:
            transfer.left_mb = float(self._left[row] - self._rate[row] * (self._now_s - self._since_s))
            self._drop(row)

    def _drop(self, row: int) -> Transfer:
        transfer = self._at[row]
        assert transfer is not None
        transfer.row, self._at[row] = -1, None
        self._started[row], self._path[row], self._rate[row] = -1, -1, 0.0
        self._unused.append(row)
        return transfer

    def advance(self, now_s: float) -> list[Transfer]:
        """Let time pass at the present rates; return the transfers that have just ended, taken away."""
        self._now_s = now_s
        if now_s < self._next_s - TOGETHER_S:
            return []
        self._move()
        rows = np.flatnonzero(self._started >= 0)
        # What less than a nanosecond of the present rate would bring has come: time is no finer than that.
        over = rows[self._left[rows] <= self._rate[rows] * TOGETHER_S]
        ended = [self._drop(row) for row in over[np.argsort(self._started[over])].tolist()]
        for transfer in ended:
            transfer.left_mb = 0.0
        self._next_s = self._first_end()
        return ended

    def _move(self) -> None:
        self._left -= self._rate * (self._now_s - self._since_s)
        self._since_s = self._now_s

    def _first_end(self) -> float:
        moving = self._rate > 0.0
        return self._since_s + float((self._left[moving] / self._rate[moving]).min(initial=np.inf))

    def share(self) -> float:
        """Set the rates anew; return the seconds until the next transfer ends (infinite: none moves)."""
        self._move()
        rows = np.flatnonzero(self._started >= 0)
        paths = self._path[rows]
        self._rate[rows] = rates = max_min_rates(paths, self.capacity)
        if len(rows) and next(self.turn):
            require_max_min(paths, self.capacity, rates, self._since_s)
        self._next_s = self._first_end()
        return max(self._next_s - self._since_s, 0.0)
