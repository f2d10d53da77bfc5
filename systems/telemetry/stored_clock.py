"""Storage of the service's clock in the database; see `flowlex.systems.telemetry.service_clock`."""

from __future__ import annotations

import logging
import time

import sqlalchemy as sa

from flowlex.systems.telemetry.database import Database
from flowlex.systems.telemetry.database_tables import AGENT, CLOCK, SERIES
from flowlex.systems.telemetry.service_clock import Clock, boot, boot_s

_LOG = logging.getLogger(__name__)
#: Difference between two clocks, in seconds, above which it is reported.
MAX_SKEW_S = 5.0


class ClockMarks:
    """Restores the clock at a start and stores its reading."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def wall_s(self, connection: sa.Connection) -> float:
        """Return the database's wall clock: PostgreSQL's, or this machine's for SQLite."""
        if self._database.dialect == "sqlite":
            return time.time()
        return float(connection.scalar(sa.text("SELECT extract(epoch FROM clock_timestamp())")) or 0.0)

    def start(self) -> Clock:
        """Return the service's clock: the one stored for this boot of the machine, else the database's wall clock.

        If the wall clock is behind the stored time, it went back while the machine was off. Then time continues from
        the stored time, and values that arrived before have unknown age.
        """
        with self._database.write() as connection:
            wall = self.wall_s(connection)
            _tell(time.time() - wall)
            row = connection.execute(sa.select(CLOCK).where(CLOCK.c.boot == boot())).one_or_none()
            if row is not None:
                return Clock(row.time, row.boot_s, row.unsure)
            marks = (sa.func.max(CLOCK.c.time), sa.func.max(SERIES.c.arrived), sa.func.max(AGENT.c.last_seen))
            stored = max((connection.scalar(sa.select(mark)) or 0.0 for mark in marks), default=0.0)
            clock = Clock(max(wall, stored), boot_s(), stored if wall < stored else None)
            connection.execute(sa.insert(CLOCK).values(self._mark(clock)))
        return clock

    def keep(self, clock: Clock) -> float:
        """Store the clock for the next start; return the seconds by which it is ahead of the database's wall clock."""
        with self._database.write() as connection:
            connection.execute(sa.update(CLOCK).where(CLOCK.c.boot == boot()).values(self._mark(clock)))
            return clock.now() - self.wall_s(connection)

    @staticmethod
    def _mark(clock: Clock) -> dict[str, object]:
        return {"boot": boot(), "boot_s": boot_s(), "time": clock.now(), "unsure": clock.unsure}


def _tell(ahead_s: float) -> None:
    if abs(ahead_s) > MAX_SKEW_S:
        side = "ahead of" if ahead_s > 0 else "behind"
        _LOG.warning("this machine's clock is %.0f s %s the database's; ages follow the database's", abs(ahead_s), side)
