"""Retention, aggregation and deletion, in steps short enough for writers to run in between."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from flowlex.systems.telemetry.database import Database
from flowlex.systems.telemetry.database_tables import ROLLUP, SAMPLE, SERIES, SOURCE, STATE

#: Samples of one step; of one step on a full disk.
CHUNK, FEW = 5_000, 100
#: Reserved disk space for a SQLite database: deleting writes a log first, even on a full disk.
RESERVE_BYTES = 16_000_000
#: Pages that SQLite frees in one step.
PAGES = 500
#: Seconds of an aggregate by its name.
ROLLUP_STEPS = {"minute": 60, "hour": 3_600}
_LOG = logging.getLogger(__name__)
_ROLLED = "rolled up to sample"
T = TypeVar("T")

_ROLL = """
INSERT INTO rollup (series, step, start, count, total, least, most)
SELECT series, :step, CAST({floor}(time / :step) AS BIGINT) * :step AS start,
       count(number), sum(number), min(number), max(number)
FROM sample WHERE id > :first AND id <= :last AND number IS NOT NULL AND exit_code = 0 GROUP BY series, start
ORDER BY series, start
ON CONFLICT (series, step, start) DO UPDATE SET count = rollup.count + excluded.count,
    total = rollup.total + excluded.total,
    least = CASE WHEN excluded.least < rollup.least THEN excluded.least ELSE rollup.least END,
    most = CASE WHEN excluded.most > rollup.most THEN excluded.most ELSE rollup.most END
"""


class Upkeep:
    """Maintenance steps: each is one short transaction and returns whether there is more to do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def roll_up(self, until: float) -> bool:
        """Add some samples that arrived before ``until`` to the aggregates; return whether more wait."""
        table = SAMPLE.c
        with self._database.write() as connection:
            done = connection.scalar(sa.select(STATE.c.number).where(STATE.c.name == _ROLLED))
            first = done or 0
            ids = sa.select(table.id).where(table.id > first, table.arrived < until).order_by(table.id).limit(CHUNK)
            found = list(connection.scalars(ids))
            if not found:
                return False
            # A cast truncates on SQLite and rounds on PostgreSQL.
            roll = sa.text(_ROLL.format(floor="" if self._database.dialect == "sqlite" else "floor"))
            for step in ROLLUP_STEPS.values():
                connection.execute(roll, {"step": step, "first": first, "last": found[-1]})
            row = {"name": _ROLLED, "number": found[-1]}
            put = self._database.insert(STATE).values(row).on_conflict_do_update(index_elements=["name"], set_=row)
            connection.execute(put)
            return len(found) == CHUNK

    def forget_some(self, arrived: float) -> int:
        """Delete some of the oldest samples that arrived before a time, aggregated or not; return their number."""
        return self._freeing(lambda limit: self._forget_some(arrived, limit))

    def _forget_some(self, arrived: float, limit: int) -> int:
        table = SAMPLE.c
        with self._database.write() as connection:
            oldest = connection.execute(sa.select(table.id, table.arrived).order_by(table.id).limit(limit)).all()
            ids = [row.id for row in oldest if row.arrived < arrived]
            if not ids:
                return 0
            gone = sa.delete(SAMPLE).where(table.id >= ids[0], table.id <= ids[-1], table.arrived < arrived)
            return connection.execute(gone).rowcount

    def forget_rollups(self, step: int, start: float) -> int:
        """Delete some aggregates that begin before ``start``; return their number."""
        table = ROLLUP.c
        old = sa.select(table.series, table.step, table.start).where(table.step == step, table.start < start)
        key = sa.tuple_(table.series, table.step, table.start)
        return self._database.change(sa.delete(ROLLUP).where(key.in_(old.limit(CHUNK))))

    def forget_sources(self, seen: float) -> int:
        """Delete sources that have been silent since a time and have no samples left; return their number."""
        left = sa.select(SAMPLE.c.id).where(SAMPLE.c.source == SOURCE.c.id).exists()
        return self._database.change(sa.delete(SOURCE).where(SOURCE.c.seen < seen, ~left))

    def give_back(self) -> bool:
        """Release some free pages of a SQLite file; return whether more are free. Keep the reserve."""
        if self._database.dialect != "sqlite":
            return False
        with self._database.engine.connect() as connection:
            # A script runs to its end; a statement would release only one page.
            connection.connection.driver_connection.executescript(f"PRAGMA incremental_vacuum({PAGES})")  # type: ignore[union-attr]
            more = (connection.exec_driver_sql("PRAGMA freelist_count").scalar() or 0) > PAGES
        if not more:
            self._set_aside()
        return more

    def remove_some(self, name: str | None, node: str) -> tuple[int, int]:
        """Delete some of a series' history, or the series if none is left (no name: of all series of a node).

        Return the numbers of deleted series and samples; zeros when all are gone.
        """
        return self._freeing(lambda limit: self._remove_some(name, node, limit))

    def _remove_some(self, name: str | None, node: str, limit: int) -> tuple[int, int]:
        table = SERIES.c
        meant = sa.select(table.id).where(table.node == node).order_by(table.id).limit(1)
        with self._database.write() as connection:
            number = connection.scalar(meant if name is None else meant.where(table.name == name))
            if number is None:
                return 0, 0
            some = sa.select(SAMPLE.c.id).where(SAMPLE.c.series == number).limit(limit)
            samples = connection.execute(sa.delete(SAMPLE).where(SAMPLE.c.id.in_(some))).rowcount
            if samples < limit:
                connection.execute(sa.delete(ROLLUP).where(ROLLUP.c.series == number))
                connection.execute(sa.delete(SERIES).where(table.id == number))
            return int(samples < limit), samples

    def check_reserve(self) -> None:
        """At the start: see that the whole reserve is on disk, and say so in the log if it has no room."""
        if self._database.dialect == "sqlite" and not self._set_aside():
            _LOG.error(
                "the disk of %s has no room for the reserve of %d MB that deleting on a full disk needs; free some",
                self._database.file,
                RESERVE_BYTES // 10**6,
            )

    def _set_aside(self) -> bool:
        """Create the reserve if it is missing or cut off and the disk has room; return whether it is there."""
        reserve = Path(f"{self._database.file}.reserve")
        if reserve.exists() and reserve.stat().st_blocks * 512 >= RESERVE_BYTES:
            return True
        try:
            with reserve.open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, RESERVE_BYTES)
        except OSError:  # the next round tries again
            reserve.unlink(missing_ok=True)
            return False
        return True

    def _freeing(self, delete: Callable[[int], T]) -> T:
        """Call a deleting step with its number of samples.

        On a full disk, the reserve is released for SQLite's log; steps are small until it is restored.
        """
        reserve = Path(f"{self._database.file}.reserve")
        if self._database.dialect != "sqlite" or reserve.exists():
            try:
                return delete(CHUNK)
            except sa.exc.OperationalError as error:
                if "disk is full" not in str(error.orig) or not reserve.exists():
                    raise
            reserve.unlink()
        return delete(FEW)
