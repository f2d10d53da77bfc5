"""The store: a database on SQLite or PostgreSQL, and the classes that operate on it."""

from __future__ import annotations

from typing import Any

from flowlex.systems.telemetry.database import Database
from flowlex.systems.telemetry.read_queries import Reader
from flowlex.systems.telemetry.registrations import Registry
from flowlex.systems.telemetry.retention import Upkeep
from flowlex.systems.telemetry.sample_writes import SampleWriter
from flowlex.systems.telemetry.stored_clock import ClockMarks


class Store:
    """A database (see `Database`) and its parts.

    ``options``: of `Database`. Every method of a part is one transaction and may be called from any thread.
    """

    def __init__(self, url: str, *, create: bool = True, **options: Any) -> None:
        self.database: Database = Database(url, create=create, **options)
        self.registry: Registry = Registry(self.database)
        self.reader: Reader = Reader(self.database)
        self.writer: SampleWriter = SampleWriter(self.database)
        self.upkeep: Upkeep = Upkeep(self.database)
        self.clock: ClockMarks = ClockMarks(self.database)

    def close(self) -> None:
        """Close all connections."""
        self.database.close()
