"""Everything that is stored, behind one class; on SQLite or PostgreSQL."""

from __future__ import annotations

import time

import sqlalchemy as sa

from flowlex.telemetry.clock import Clock, boot, boot_s
from flowlex.telemetry.reads import Reads
from flowlex.telemetry.registry import Registry
from flowlex.telemetry.tables import AGENT, CLOCK, SERIES
from flowlex.telemetry.upkeep import Upkeep
from flowlex.telemetry.writes import Writes

__all__ = ["Store"]


class Store(Registry, Reads, Writes, Upkeep):
    """The tables behind methods; every method is one transaction and may be called from any thread.

    See `Database` for the parameters and what is raised.
    """

    def start_clock(self) -> Clock:
        """Return the service's clock: where it stood when this machine was booted, else the wall clock's time.

        A wall clock behind what is stored went back while the machine was off. Then time goes on from what is
        stored, and what arrived before is of unknown age.
        """
        with self._write() as connection:
            row = connection.execute(sa.select(CLOCK).where(CLOCK.c.boot == boot())).one_or_none()
            if row is not None:
                return Clock(row.time, row.boot_s, row.unsure)
            wall = time.time()
            marks = (sa.func.max(CLOCK.c.time), sa.func.max(SERIES.c.arrived), sa.func.max(AGENT.c.last_seen))
            stored = max((connection.scalar(sa.select(mark)) or 0.0 for mark in marks), default=0.0)
            clock = Clock(max(wall, stored), boot_s(), stored if wall < stored else None)
            connection.execute(sa.insert(CLOCK).values(self._mark(clock)))
        return clock

    def keep_clock(self, clock: Clock) -> None:
        """Store where the clock stands, for the next start."""
        with self._write() as connection:
            connection.execute(sa.update(CLOCK).where(CLOCK.c.boot == boot()).values(self._mark(clock)))

    @staticmethod
    def _mark(clock: Clock) -> dict[str, object]:
        return {"boot": boot(), "boot_s": boot_s(), "time": clock.now(), "unsure": clock.unsure}
