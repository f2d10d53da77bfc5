"""The service's clock: Unix time that never steps, so that ages are true elapsed times.

The wall clock is set by people and NTP; after a step back, old values would look fresh. This clock reads the wall
clock once and then adds the machine's monotonic clock (``CLOCK_BOOTTIME``, which includes sleep).
The wall clock is the database's, so that services on several machines agree about ages. The database stores the
clock's reading by boot of the machine, so that a restarted service continues exactly. Only a restart of the machine
reads the wall clock again; even then time never goes back before stored times.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path


def boot() -> str:
    """Return the identifier of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def boot_s() -> float:
    """Return the seconds since the machine was booted, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Clock:
    """Unix time since a start, in seconds."""

    start: float  # Unix time at ``started``
    started: float  # `boot_s` at the start
    # values that arrived until then have unknown age, because the wall clock went back while the machine was off; None
    # if there are none
    unsure: float | None = None

    def now(self) -> float:
        """Return the time."""
        return self.start + (boot_s() - self.started)
