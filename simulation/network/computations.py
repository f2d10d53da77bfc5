"""The computations of jobs: each starts when its data have arrived and those before it are done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flowlex.simulation.kernel import Kernel
from flowlex.simulation.network.traffic import Floats, Ints, Traffic

__all__ = ["Computations"]


class Computations:
    """Start and end of every computation, on the kernel's clock.

    Parameters
    ----------
    missing
        (N,) transfers that each still waits for; the network counts them down.
    arrive
        Called with the transfers that may be sent from now on.

    Attributes
    ----------
    start_s, done_s
        (N,) NaN before.
    """

    def __init__(self, traffic: Traffic, kernel: Kernel, missing: Any, arrive: Callable[[Ints], None]) -> None:
        count = len(traffic.seconds)
        self.missing: Any
        self.kernel: Kernel
        self.traffic, self.kernel, self.missing, self.arrive = traffic, kernel, missing, arrive
        self.start_s: Floats = np.full(count, np.nan)
        self.done_s: Floats = np.full(count, np.nan)
        self._before = np.bincount(traffic.head, minlength=count).tolist()
        self._after: list[list[int]] = [[] for _ in range(count)]
        for tail, head in zip(traffic.tail.tolist(), traffic.head.tolist(), strict=True):
            self._after[tail].append(head)
        self._makes: dict[int, list[int]] = {}
        for f in np.flatnonzero(traffic.made_by >= 0).tolist():
            self._makes.setdefault(int(traffic.made_by[f]), []).append(f)
        self._release(np.flatnonzero(traffic.made_by < 0))
        for c in range(count):
            self._begin_if_ready(c, 0.0)

    def _release(self, transfers: Ints) -> None:
        """Plan when these transfers may be sent, as far as only their own time counts."""
        order = transfers[np.argsort(self.traffic.ready_s[transfers], kind="stable")]
        ready = self.traffic.ready_s[order]
        for some in np.split(order, np.flatnonzero(np.diff(ready)) + 1) if len(order) else []:
            at = max(float(self.traffic.ready_s[some[0]]), self.kernel.now_s)
            self.kernel.at(at, lambda some=some: self.arrive(some))  # type: ignore[misc]

    def data_arrived(self, fed: Ints, now_s: float) -> None:
        """Transfers that feed these computations have arrived."""
        for c in np.unique(fed[fed >= 0]).tolist():
            self._begin_if_ready(c, now_s)

    def _begin_if_ready(self, c: int, now_s: float) -> None:
        if self.missing[c] or self._before[c]:
            return
        start = max(float(self.traffic.coflow_arrival_s[self.traffic.job[c]]), now_s)
        self.start_s[c] = start
        self.kernel.at(start + float(self.traffic.seconds[c]), lambda: self._end(c))

    def _end(self, c: int) -> None:
        now = self.kernel.now_s
        self.done_s[c] = now
        for follower in self._after[c]:
            self._before[follower] -= 1
            self._begin_if_ready(follower, now)
        if c in self._makes:
            self._release(np.array(self._makes[c], np.int64))
