"""The service's clock: Unix time that never steps, so that an age is what really passed.

The wall clock is set by people and by NTP: after a step back old values would look fresh. Here time is the wall
clock's once, and from then on what the machine's monotonic clock (``CLOCK_BOOTTIME``, which counts sleep too) adds.
The wall clock is the database's, so that services on several machines agree about ages. The database keeps where the
clock stood by the machine's boot, so that a restart of the service goes on exactly; only a restart of the machine asks
the wall clock again, and then time never goes back before what is stored.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path


def boot() -> str:
    """Return what names this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def boot_s() -> float:
    """Return the seconds since the machine was booted, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Clock:
    """Unix time since a start, in seconds."""

    start: float  # Unix time at ``started``
    started: float  # `boot_s` at the start
    # what arrived until then is of unknown age, because the wall clock went back while the machine was off; None where
    # nothing is
    unsure: float | None = None

    def now(self) -> float:
        """Return the time."""
        return self.start + (boot_s() - self.started)
