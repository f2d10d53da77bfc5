"""The computations of jobs: each starts when its data have arrived and its predecessors are done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flowlex.systems.simulation.event_queue import Kernel
from flowlex.systems.simulation.network.traffic_arrays import Floats, Ints, Traffic


class Computations:
    """Start and end of every computation.

    Once the times of a computation's data and predecessors are known, its start and end are known, even if they are in
    the future. They need no event, unless the computation produces transfers.

    ``missing``: (N,) number of transfers that each waits for; the network decreases it. ``arrive``: called with the
    transfers that may be sent from now on. ``start_s``, ``done_s``: (N,) start and end; NaN until they are known.
    """

    def __init__(self, traffic: Traffic, kernel: Kernel, missing: Any, arrive: Callable[[Ints], None]) -> None:
        count = len(traffic.seconds)
        self.missing: Any
        self.kernel: Kernel
        self.traffic, self.kernel, self.missing, self.arrive = traffic, kernel, missing, arrive
        self.start_s: Floats = np.full(count, np.nan)
        self.done_s: Floats = np.full(count, np.nan)
        self._seconds: list[float] = traffic.seconds.tolist()
        self._earliest: list[float] = traffic.coflow_arrival_s[traffic.job].tolist()
        self._before: list[int] = np.bincount(traffic.head, minlength=count).tolist()
        self._after: list[list[int]] = [[] for _ in range(count)]
        for tail, head in zip(traffic.tail.tolist(), traffic.head.tolist(), strict=True):
            self._after[tail].append(head)
        self._makes: dict[int, list[int]] = {}
        for f in np.flatnonzero(traffic.made_by >= 0).tolist():
            self._makes.setdefault(int(traffic.made_by[f]), []).append(f)
        self._release(np.flatnonzero(traffic.made_by < 0))
        self._begin([c for c in range(count) if not self._before[c]])

    def _release(self, transfers: Ints) -> None:
        """Plan the release of transfers that wait only for their own ready time."""
        order = transfers[np.argsort(self.traffic.ready_s[transfers], kind="stable")]
        ready = self.traffic.ready_s[order]
        for some in np.split(order, np.flatnonzero(np.diff(ready)) + 1) if len(order) else []:
            at = max(float(self.traffic.ready_s[some[0]]), self.kernel.now_s)
            self.kernel.at(at, lambda some=some: self.arrive(some))  # type: ignore[misc]

    def data_arrived(self, fed: Ints, now_s: float) -> None:
        """Process the arrival of transfers that feed these computations."""
        fed = fed[fed >= 0]
        ready = sorted(set(fed[self.missing[fed] == 0].tolist()))
        for c in ready:
            self._earliest[c] = max(self._earliest[c], now_s)
        self._begin([c for c in ready if not self._before[c]])

    def _begin(self, ready: list[int]) -> None:
        """Set start and end of the computations whose inputs are known, and of determined successors."""
        while ready:
            c = ready.pop()
            if self.missing[c]:
                continue
            start = self._earliest[c]
            done = start + self._seconds[c]
            self.start_s[c], self.done_s[c] = start, done
            for follower in self._after[c]:
                self._before[follower] -= 1
                self._earliest[follower] = max(self._earliest[follower], done)
                if not self._before[follower]:
                    ready.append(follower)
            if c in self._makes:
                made = np.array(self._makes[c], np.int64)
                self.kernel.at(done, lambda made=made: self._release(made))  # type: ignore[misc]

    def stop(self, now_s: float) -> None:
        """Discard starts and ends after the end of the run."""
        self.start_s[self.start_s > now_s] = np.nan
        self.done_s[self.done_s > now_s] = np.nan
