"""Transfers that share disks, links, uplinks and the aggregation, max-min fairly.

A transfer uses a few *resources*, each with a rate that its transfers share. Rates are max-min fair: none can grow
without taking from one that has no more. Found by filling: all rates rise together until a resource is full, its
transfers stop there, the rest goes on (Bertsekas and Gallager, Data Networks, section 6.5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.loops import njit
from flowlex.simulation.decision import EveryNth
from flowlex.simulation.kernel import SimulationError

__all__ = ["Floats", "Integers", "Transfer", "Transfers", "max_min_rates", "require_max_min"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
#: Resources that a transfer may use at most.
WIDEST = 8
_SLACK = 1e-9


@njit(cache=True)
def _fill(paths: Integers, capacity: Floats) -> Floats:
    flows, width = paths.shape
    left = capacity.copy()
    users = np.zeros(len(capacity), np.int64)
    for f in range(flows):
        for k in range(width):
            if paths[f, k] >= 0:
                users[paths[f, k]] += 1
    rate = np.full(flows, -1.0)
    open_flows = flows
    while open_flows:
        level, full = np.inf, -1
        for r in range(len(capacity)):
            if users[r] and left[r] / users[r] < level:
                level, full = left[r] / users[r], r
        for f in range(flows):
            if rate[f] >= 0.0:
                continue
            stops = False
            for k in range(width):
                stops |= paths[f, k] == full
            if stops:
                rate[f] = max(level, 0.0)
                open_flows -= 1
                for k in range(width):
                    r = paths[f, k]
                    if r >= 0:
                        left[r] = max(left[r] - level, 0.0)
                        users[r] -= 1
    return rate


def max_min_rates(paths: Integers, capacity: Floats) -> Floats:
    """Fair rates.

    Parameters
    ----------
    paths
        (F, K) resources of each transfer, -1 where it has fewer than K; at least one each, none twice.
    capacity
        (R,) rate of each resource.

    Returns
    -------
    ndarray
        (F,) rates.
    """
    rates: Floats = _fill(np.ascontiguousarray(paths, np.int64), np.ascontiguousarray(capacity, np.float64))
    return rates


def require_max_min(paths: Integers, capacity: Floats, rates: Floats, at_s: float) -> None:
    """Check rates by the definition: within every capacity, and each transfer has a full resource where it is largest.

    Raises
    ------
    SimulationError
        A resource is overfull, or a transfer could be faster.
    """
    used, largest = np.zeros(len(capacity)), np.zeros(len(capacity))
    for column in paths.T:
        here = column >= 0
        np.add.at(used, column[here], rates[here])
        np.maximum.at(largest, column[here], rates[here])
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


class Transfer:
    """Data on their way.

    Attributes
    ----------
    size_mb, left_mb
        In all, and still to come.
    path
        Resources it uses.
    done
        Called when the last byte has come.
    """

    __slots__ = ("done", "left_mb", "path", "size_mb")

    def __init__(self, size_mb: float, path: Sequence[int], done: Callable[[], None]) -> None:
        self.size_mb = self.left_mb = size_mb
        self.path: Integers = np.full(WIDEST, -1, np.int64)
        self.path[: len(path)] = path
        self.done = done

    @property
    def moved_mb(self) -> float:
        """What has come."""
        return self.size_mb - self.left_mb


class Transfers:
    """All transfers that are on their way, and their rates.

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
        self.active: dict[Transfer, None] = {}
        self._rates: Floats = np.empty(0)
        self._rated: list[Transfer] = []
        self._since_s = 0.0

    def start(self, transfer: Transfer) -> None:
        """Add a transfer; it moves from the next `share` on."""
        self.active[transfer] = None

    def stop(self, transfer: Transfer) -> None:
        """Take a transfer away; call `advance` first."""
        self.active.pop(transfer, None)

    def advance(self, now_s: float) -> list[Transfer]:
        """Let time pass at the present rates; return the transfers that have just ended, taken away."""
        seconds, ended = now_s - self._since_s, []
        self._since_s = now_s
        for transfer, rate in zip(self._rated, self._rates.tolist(), strict=True):
            if transfer in self.active:
                transfer.left_mb -= rate * seconds
                # What less than a nanosecond of the present rate would bring has come: time is no finer than that.
                if transfer.left_mb <= rate * 1e-9 + transfer.size_mb * 1e-12:
                    transfer.left_mb = 0.0
                    del self.active[transfer]
                    ended.append(transfer)
        return ended

    def share(self) -> float:
        """Set the rates anew; return the seconds until the next transfer ends (infinite: none moves)."""
        self._rated = list(self.active)
        if not self._rated:
            self._rates = np.empty(0)
            return float("inf")
        paths = np.array([transfer.path for transfer in self._rated])
        self._rates = max_min_rates(paths, self.capacity)
        if next(self.turn):
            require_max_min(paths, self.capacity, self._rates, self._since_s)
        left = np.array([transfer.left_mb for transfer in self._rated])
        moving = self._rates > 0.0
        return float((left[moving] / self._rates[moving]).min()) if moving.any() else float("inf")
