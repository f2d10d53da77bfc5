"""An agent's buffer on disk: what is collected is kept until the server has acknowledged it."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from itertools import accumulate
from pathlib import Path

from flowlex.telemetry.schemas import Sample

__all__ = ["Journal"]


class Journal:
    """Samples waiting for delivery, in a SQLite file that survives a killed agent.

    Each sample gets a number that is never used again (``AUTOINCREMENT``); with the journal's own
    identifier it lets the server store a sample once although it is sent twice.

    Parameters
    ----------
    path
        The file; made when absent. One agent at a time may use it.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
        # FULL: a sample that append() returned for survives a power cut too.
        for statement in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            "CREATE TABLE IF NOT EXISTS pending (seq INTEGER PRIMARY KEY AUTOINCREMENT, sample TEXT NOT NULL)",
            "CREATE TABLE IF NOT EXISTS refused (seq INTEGER PRIMARY KEY, sample TEXT NOT NULL, reason TEXT)",
            "CREATE TABLE IF NOT EXISTS identity (source TEXT NOT NULL)",
            "CREATE TABLE IF NOT EXISTS memory (name TEXT PRIMARY KEY, text TEXT NOT NULL)",
        ):
            self._connection.execute(statement)
        self._connection.execute("BEGIN IMMEDIATE")
        row = self._connection.execute("SELECT source FROM identity").fetchone()
        if row is None:
            row = (uuid.uuid4().hex,)
            self._connection.execute("INSERT INTO identity VALUES (?)", row)
        self._connection.execute("COMMIT")
        self.source: str = row[0]
        self._count: int = self._connection.execute("SELECT count(*) FROM pending").fetchone()[0]

    def __len__(self) -> int:
        return self._count

    def append(self, sample: Sample) -> int:
        """Put a sample on disk and return its number."""
        text = sample.model_dump_json(exclude={"seq"})
        with self._lock:
            cursor = self._connection.execute("INSERT INTO pending (sample) VALUES (?)", (text,))
            self._count += 1
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def oldest(self, limit: int, max_bytes: int = 1_000_000) -> list[Sample]:
        """Return the samples that have waited longest, numbered: at least one, if there are any."""
        query = "SELECT seq, sample FROM pending ORDER BY seq LIMIT ?"
        with self._lock:
            rows = self._connection.execute(query, (limit,)).fetchall()
        fit = sum(1 for end in accumulate(len(text) for _, text in rows) if end <= max_bytes)
        rows = rows[: max(1, fit)]
        return [Sample.model_validate_json(text).model_copy(update={"seq": seq}) for seq, text in rows]

    def forget(self, samples: list[Sample]) -> None:
        """Drop samples that the server has acknowledged."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("DELETE FROM pending WHERE seq = ?", [(s.seq,) for s in samples])
            self._connection.execute("COMMIT")
            self._count -= len(samples)

    def set_aside(self, sample: Sample, reason: str) -> None:
        """Keep a sample that the server will never take apart, so that it does not block the others."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(
                "INSERT OR REPLACE INTO refused VALUES (?, ?, ?)",
                (sample.seq, sample.model_dump_json(exclude={"seq"}), reason),
            )
            self._connection.execute("DELETE FROM pending WHERE seq = ?", (sample.seq,))
            self._connection.execute("COMMIT")
            self._count -= 1

    def refused(self) -> list[tuple[int, str]]:
        """Return number and reason of every sample that was set aside."""
        with self._lock:
            return self._connection.execute("SELECT seq, reason FROM refused ORDER BY seq").fetchall()

    def remember(self, name: str, text: str) -> None:
        """Keep a text over a restart."""
        with self._lock:
            self._connection.execute("INSERT OR REPLACE INTO memory VALUES (?, ?)", (name, text))

    def recall(self, name: str) -> str | None:
        """Return a text that was remembered, or None."""
        with self._lock:
            row = self._connection.execute("SELECT text FROM memory WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()
