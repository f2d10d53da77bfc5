"""An agent's buffer on disk: stores samples until the service has acknowledged them."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from itertools import accumulate
from pathlib import Path

from flowlex.systems.telemetry.request_documents import Sample
from flowlex.systems.telemetry.service_clock import boot, boot_s


class ForeignJournal(Exception):
    """The journal belongs to another node: a copied file, as in a cloned image."""


class Journal:
    """Samples waiting for delivery, in a SQLite file that survives a killed agent; one agent at a time may use it.

    A sample has a number and a *source*, which identifies one opening of the journal. With both, the service stores a
    sample once even if it is sent twice. Every opening is a new source, so that a restored or copied file never uses
    a number for two different samples; waiting samples keep their source.
    """

    def __init__(self, path: Path, node: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
        # FULL: after append() returns, the sample survives even a power cut.
        for statement in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            "CREATE TABLE IF NOT EXISTS pending (seq INTEGER PRIMARY KEY AUTOINCREMENT, sample TEXT NOT NULL, "
            "source TEXT NOT NULL, boot TEXT, boot_s REAL)",
            "CREATE TABLE IF NOT EXISTS refused (seq INTEGER PRIMARY KEY, sample TEXT NOT NULL, reason TEXT)",
            "CREATE TABLE IF NOT EXISTS identity (source TEXT NOT NULL, node TEXT NOT NULL)",
            "CREATE TABLE IF NOT EXISTS memory (name TEXT PRIMARY KEY, text TEXT NOT NULL)",
        ):
            self._connection.execute(statement)
        self.identity: str = self._bind(path, node)
        self.source = self._new_source()
        self._count: int = self._connection.execute("SELECT count(*) FROM pending").fetchone()[0]

    def _bind(self, path: Path, node: str) -> str:
        """Create the journal's identity, or check that it belongs to this node."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        row = execute("SELECT source, node FROM identity").fetchone()
        if row is None:
            row = (uuid.uuid4().hex, node)
            execute("INSERT INTO identity (source, node) VALUES (?, ?)", row)
        execute("COMMIT")
        if row[1] != node:
            self._connection.close()
            raise ForeignJournal(
                f"{path} is the journal of node {row[1]}, not of {node}; what waits in it belongs there. "
                "Give this node a journal of its own (--journal), or remove a copied file"
            )
        return str(row[0])

    def _new_source(self) -> str:
        return f"{self.identity[:32]}-{uuid.uuid4().hex[:16]}"

    def __len__(self) -> int:
        return self._count

    def append(self, sample: Sample) -> int:
        """Put a sample on disk and return its number."""
        text = sample.model_dump_json(exclude={"seq", "age_s"})
        with self._lock:
            row = (text, self.source, boot(), boot_s())
            query = "INSERT INTO pending (sample, source, boot, boot_s) VALUES (?, ?, ?, ?)"
            cursor = self._connection.execute(query, row)
            self._count += 1
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def oldest(self, limit: int, max_bytes: int = 1_000_000) -> tuple[str, list[Sample]]:
        """Return a source and its oldest waiting samples: at least one, if any waits.

        Each has its age by the monotonic clock; a sample from before the last boot has none, so that the service uses
        its time stamp.
        """
        query = "SELECT seq, sample, source, boot, boot_s FROM pending ORDER BY seq LIMIT ?"
        with self._lock:
            rows = self._connection.execute(query, (limit,)).fetchall()
        source = rows[0][2] if rows else self.source
        fit = sum(1 for end in accumulate(len(row[1]) for row in rows) if end <= max_bytes)
        here, now = boot(), boot_s()
        samples = []
        for seq, text, of, booted, at in rows[: max(1, fit)]:
            if of != source:
                break
            more = {"seq": seq, "age_s": max(0.0, now - at) if booted == here else None}
            samples.append(Sample.model_validate_json(text).model_copy(update=more))
        return source, samples

    def renumber(self, source: str) -> None:
        """Move the waiting samples of a source to a new one: the service has its numbers with other content."""
        with self._lock:
            self.source = self._new_source()
            self._connection.execute("UPDATE pending SET source = ? WHERE source = ?", (self.source, source))

    def forget(self, samples: list[Sample]) -> None:
        """Drop samples that the server has acknowledged."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("DELETE FROM pending WHERE seq = ?", [(s.seq,) for s in samples])
            self._connection.execute("COMMIT")
            self._count -= len(samples)

    def set_aside(self, sample: Sample, reason: str) -> None:
        """Store a sample that the server will never accept separately, so that it does not block the others."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(
                "INSERT OR REPLACE INTO refused VALUES (?, ?, ?)",
                (sample.seq, sample.model_dump_json(exclude={"seq", "age_s"}), reason),
            )
            self._connection.execute("DELETE FROM pending WHERE seq = ?", (sample.seq,))
            self._connection.execute("COMMIT")
            self._count -= 1

    def refused(self) -> list[tuple[int, str]]:
        """Return number and reason of every sample that was set aside."""
        with self._lock:
            return self._connection.execute("SELECT seq, reason FROM refused ORDER BY seq").fetchall()

    def remember(self, name: str, text: str) -> None:
        """Store a text across restarts."""
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
