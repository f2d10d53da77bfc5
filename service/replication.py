"""Answers that wait until a standby has the log too.

While a standby follows, an answer goes out once the standby has the records on its disk as well. A standby that is
silent for longer than its lease is waited for no more.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

__all__ = ["Position", "Replication"]

#: Number of a log and bytes of it.
Position = tuple[int, int]


class Replication:
    """Answers that wait for a standby.

    Parameters
    ----------
    lease_s
        Seconds of silence after which a standby is waited for no more.
    """

    def __init__(self, lease_s: float = 5.0) -> None:
        self.lease_s = lease_s
        self._lock = threading.Lock()
        self._until = 0.0
        self._confirmed: Position = (0, 0)
        self._held: deque[tuple[Position, Callable[[], None]]] = deque()

    @property
    def waiting(self) -> bool:
        """Whether answers wait."""
        return bool(self._held)

    @property
    def attached(self) -> bool:
        """Whether a standby follows."""
        return time.monotonic() < self._until

    def answer(self, position: Position, deliver: Callable[[], None]) -> None:
        """Deliver an answer once a standby, if there is one, has the log up to a position."""
        with self._lock:
            if self.attached and position > self._confirmed:
                self._held.append((position, deliver))
                return
        deliver()

    def confirm(self, position: Position, wait_s: float) -> None:
        """A standby has the log up to a position, and asks again within ``wait_s`` and the lease."""
        with self._lock:
            self._until = time.monotonic() + wait_s + self.lease_s
            self._confirmed = position
            ready = [self._held.popleft()[1] for held in list(self._held) if held[0] <= position]
        for deliver in ready:
            deliver()

    def detach(self) -> None:
        """Wait for no standby any more."""
        self._until = 0.0
        self.expire()

    def expire(self) -> None:
        """Deliver what waits for a standby that is gone."""
        with self._lock:
            ready = [] if self.attached else [deliver for _, deliver in self._held]
            if ready:
                self._held.clear()
        for deliver in ready:
            deliver()
