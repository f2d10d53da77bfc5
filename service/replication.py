"""Synchronous replication: with a standby attached, an answer is sent only once the standby has its records.

A silent standby stays attached: it may have taken over, and an answer of this service alone would then be lost. Until
the standby is back, or an admin detaches it, the service refuses all changes. A file of the folder stores the name of
the standby as fencing token, so that a restarted service is bound by it too.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from flowlex.instances.file_storage import write_atomically
from flowlex.service.write_ahead_log import Position

#: Delivers an answer: called with an empty text, or with the reason for failure.
Deliver = Callable[[str], None]


class Replication:
    """Delays answers until the attached standby has their records.

    ``file``: file with the name of the attached standby; missing if there is none. ``lease_s``: seconds of silence
    after which answers are refused instead of held. ``needed``: position up to which answers may have been sent without
    the standby; it must have this to take over.
    """

    def __init__(self, file: Path, lease_s: float = 5.0) -> None:
        self.lease_s, self._file = lease_s, file
        self.standby: str = file.read_text() if file.is_file() else ""
        self.needed: Position = (0, 0)
        self._lock = threading.RLock()
        self._lease_end = time.monotonic() + lease_s
        self._confirmed: Position = (0, 0)
        self._held: deque[tuple[Position, Deliver]] = deque()

    @property
    def waiting(self) -> bool:
        """Whether answers are held."""
        return bool(self._held)

    @property
    def trouble(self) -> str:
        """Why requests cannot be acknowledged; empty if they can."""
        if not self.standby or time.monotonic() < self._lease_end:
            return ""
        return (
            "the standby is silent, and may have taken over; start it again, or if it has not taken over and never "
            "will, ask POST /v1/replica/detach"
        )

    def covers(self, position: Position) -> bool:
        """Return whether the log up to a position survives a takeover."""
        return not self.standby or position <= self._confirmed

    def answer(self, position: Position, deliver: Deliver) -> None:
        """Deliver an answer once its records, up to a position, are on both disks."""
        with self._lock:
            if not self.covers(position):
                self._held.append((position, deliver))
                self.expire()
            else:
                deliver("")

    def attach(self, standby: str, end: Callable[[], Position]) -> None:
        """Wait for a standby from now on; ``end`` returns the end of the log."""
        with self._lock:
            if self.standby:
                return
            write_atomically(self._file, standby.encode())
            self._confirmed, self._lease_end = (0, 0), time.monotonic() + self.lease_s
            self.standby = standby
            self.needed = end()  # after `standby` is set, so that all answers without it are before this

    def confirm(self, position: Position, wait_s: float) -> None:
        """Record that the standby has the log up to a position, and will ask again within ``wait_s`` plus the lease."""
        with self._lock:
            self._lease_end = time.monotonic() + wait_s + self.lease_s
            if position < self._confirmed:  # the standby copies again
                self.needed = max(self.needed, self._confirmed)
            self._confirmed = position
            while self._held and self._held[0][0] <= position:
                self._held.popleft()[1]("")

    def detach(self) -> None:
        """Stop waiting for the standby, which must not take over after this."""
        with self._lock:
            self._file.unlink(missing_ok=True)
            self.standby = ""
            while self._held:
                self._held.popleft()[1]("")

    def expire(self) -> None:
        """Refuse the delayed answers if the standby is silent."""
        with self._lock:
            if trouble := self.trouble:
                self.refuse(trouble)

    def refuse(self, why: str) -> None:
        """Refuse all delayed answers; their records are in the log and may still take effect."""
        with self._lock:
            while self._held:
                self._held.popleft()[1](f"{why}. Whether the request counts is open: send it again with the same key")
