"""Reads of one last value on the event loop, without pool, transaction or thread.

A read in a thread acquires Python's global lock four times, each time in competition with the thread that stores.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any
from urllib.parse import quote

import psycopg
from fastapi.concurrency import run_in_threadpool

from flowlex.telemetry.reads import ONE_ON_POSTGRES, ONE_ON_SQLITE, LatestRow
from flowlex.telemetry.store import Store

__all__ = ["SingleValueReads"]

#: Idle connections to PostgreSQL, and seconds that one answer may take.
MAX_IDLE, ANSWER_S = 4, 5.0


class SingleValueReads:
    """Reads of one row on separate connections.

    SQLite is queried directly: the query reads a few pages and never waits for a lock. If a lock excludes readers, or a
    connection is lost, the store reads the row in a thread.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sqlite: sqlite3.Connection | None = None
        self._idle: list[psycopg.AsyncConnection[Any]] = []

    async def latest(self, name: str, node: str) -> LatestRow | None:
        """Return the row of a name on a node, which may lack a value, or None."""
        try:
            row = self._ask_sqlite(name, node) if self._store.dialect == "sqlite" else await self._ask(name, node)
        except (sqlite3.Error, psycopg.Error, TimeoutError):
            return await run_in_threadpool(self._store.latest_one, name, node)
        return None if row is None else LatestRow._make(row)

    async def close(self) -> None:
        """Close the connections."""
        if self._sqlite is not None:
            self._sqlite.close()
        for connection in self._idle:
            await connection.close()
        self._sqlite, self._idle = None, []

    def _ask_sqlite(self, name: str, node: str) -> tuple[Any, ...] | None:
        if self._sqlite is None:
            # Read only and without waiting for locks: the event loop must not block.
            path = f"file:{quote(self._store.file)}?mode=ro"
            self._sqlite = sqlite3.connect(path, uri=True, timeout=0, isolation_level=None)
        row: tuple[Any, ...] | None = self._sqlite.execute(ONE_ON_SQLITE, {"n": name, "m": node}).fetchone()
        return row

    async def _ask(self, name: str, node: str) -> tuple[Any, ...] | None:
        async with asyncio.timeout(ANSWER_S):
            connection = self._idle.pop() if self._idle else await self._store.connect_async()
            try:
                found: tuple[Any, ...] | None = await (
                    await connection.execute(ONE_ON_POSTGRES, {"n": name, "m": node})
                ).fetchone()
            except BaseException:
                await connection.close()
                raise
        if len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            await connection.close()
        return found
