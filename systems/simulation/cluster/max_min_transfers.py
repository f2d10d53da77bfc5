"""Transfers that share disks, links, uplinks and the aggregation, max-min fairly.

A transfer uses a few *resources*, each with a capacity that its transfers share (`flowlex.systems.simulation.max_min`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from flowlex.systems.simulation.decision_time import EveryNth
from flowlex.systems.simulation.event_queue import SimulationError
from flowlex.systems.simulation.max_min import Floats, Integers, fill

#: Transfers that end within a nanosecond end together.
TOGETHER_S = 1e-9
#: Most resources that a transfer may use.
WIDEST = 6
_SLACK = 1e-9


@dataclass(slots=True, eq=False)
class Transfer:
    """A transfer of data."""

    size_mb: float
    path: Sequence[int]  # resources that it uses
    done: Callable[[], None]  # called when the transfer is complete
    row: int = -1
    left_mb: float = field(init=False)  # remaining size; updated only when the transfer ends or is stopped

    def __post_init__(self) -> None:
        self.left_mb = self.size_mb

    @property
    def moved_mb(self) -> float:
        """The volume transferred so far, in MB."""
        return self.size_mb - self.left_mb


class Transfers:
    """All active transfers and their rates; each has a row in arrays.

    ``capacity``: (R,) MB/s of each resource. ``certify``: check the rates against their definition at every n-th
    change; 0: never.
    """

    def __init__(self, capacity: Floats, *, certify: int = 1) -> None:
        self.capacity, self.turn = capacity, EveryNth(certify)
        self.path: Integers = np.full((64, WIDEST), -1)  # resources by row; -1 where there are fewer
        self.rate: Floats = np.zeros(64)
        self._left: Floats = np.full(64, np.inf)  # infinite where there is no transfer
        self._at: list[Transfer | None] = [None] * 64
        self._started = [-1] * 64  # number of transfers started before
        self._unused = list(range(63, -1, -1))
        self._count = 0
        self._since_s = self._now_s = 0.0
        self._next_s = float("inf")

    def start(self, transfer: Transfer) -> None:
        """Add a transfer; it moves from the next `share` on."""
        if not self._unused:
            old = len(self._left)
            self._unused = list(range(2 * old - 1, old - 1, -1))
            self.path = np.concatenate([self.path, np.full_like(self.path, -1)])
            self.rate = np.append(self.rate, np.zeros(old))
            self._left = np.append(self._left, np.full(old, np.inf))
            self._at += [None] * old
            self._started += [-1] * old
        row = transfer.row = self._unused.pop()
        self._at[row], self._started[row] = transfer, self._count
        self._count += 1
        self.path[row, : len(transfer.path)] = transfer.path
        self._left[row] = transfer.left_mb

    def stop(self, transfer: Transfer) -> None:
        """Remove a transfer; call `advance` first."""
        row = transfer.row
        if row >= 0:
            transfer.left_mb = float(self._left[row] - self.rate[row] * (self._now_s - self._since_s))
            self._drop(row)

    def _drop(self, row: int) -> Transfer:
        transfer = self._at[row]
        assert transfer is not None
        transfer.row, self._at[row] = -1, None
        self.path[row], self.rate[row], self._left[row] = -1, 0.0, np.inf
        self._unused.append(row)
        return transfer

    def advance(self, now_s: float) -> list[Transfer]:
        """Advance time at the present rates; remove and return the transfers that have just ended."""
        self._now_s = now_s
        if now_s < self._next_s - TOGETHER_S:
            return []
        self._move()
        over = np.flatnonzero(self._left <= self.rate * TOGETHER_S)  # they need less than the resolution of time
        ended = [self._drop(row) for row in sorted(over.tolist(), key=self._started.__getitem__)]
        for transfer in ended:
            transfer.left_mb = 0.0
        self._next_s = self._first_end_s()
        return ended

    def _move(self) -> None:
        """Subtract what was sent since the last change."""
        self._left -= self.rate * (self._now_s - self._since_s)
        self._since_s = self._now_s

    def _first_end_s(self) -> float:
        moving = self.rate > 0.0
        return self._now_s + float((self._left[moving] / self.rate[moving]).min(initial=np.inf))

    def share(self) -> float:
        """Recompute the rates; return the seconds until the next transfer ends (infinite if none moves)."""
        self._move()
        rate = fill(self.path, np.ones(len(self.path), np.int64), self.capacity.copy())
        self.rate = np.where(self.path[:, 0] >= 0, rate, 0.0)
        if next(self.turn):
            self.check()
        self._next_s = self._first_end_s()
        return max(self._next_s - self._now_s, 0.0)

    def check(self) -> None:
        """Check the rates by definition: within the capacity, and each transfer is largest at some full resource.

        Raises
        ------
        SimulationError
            A resource is overfull, or a transfer could be faster.
        """
        row, entry = np.nonzero(self.path >= 0)
        at, rate = self.path[row, entry], self.rate[row]
        used, largest = np.bincount(at, rate, len(self.capacity)), np.zeros(len(self.capacity))
        np.maximum.at(largest, at, rate)
        slack = _SLACK * (1.0 + np.where(np.isfinite(self.capacity), self.capacity, 0.0))
        over = np.flatnonzero(used > self.capacity + slack)
        if len(over):
            reason = f"resource {over[0]} carries {used[over[0]]} of {self.capacity[over[0]]} MB/s"
            raise SimulationError(reason, at_s=self._now_s)
        slowed = np.zeros(len(self.rate), np.bool_)
        slowed[row[(used >= self.capacity - slack)[at] & (rate >= (largest - slack)[at])]] = True
        if not slowed[row].all():
            raise SimulationError(f"the transfer in row {row[~slowed[row]][0]} could be faster", at_s=self._now_s)
