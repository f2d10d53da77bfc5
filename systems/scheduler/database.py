"""The service's state in a database: the log of acknowledged records, snapshots, and the lease of the one leader.

Every transaction of the leader begins by raising the ``beat`` of the lease row *where the term is its own*. After a
takeover the row has another term, so the database refuses all writes of the old leader, also after a pause or a cut.
A follower takes over when the beat has not changed for a while by its own monotonic clock; wall clocks do not matter.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from flowlex.systems.scheduler.documents import Document
from flowlex.systems.telemetry.store import Store

#: The version of the tables and of what they hold.
FORMAT = 1


class _Json(sa.TypeDecorator[Any]):
    """JSON in a column of text; an empty text is None."""

    impl, cache_ok = sa.Text, True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        return json.loads(value or "null")


_META = sa.MetaData()
SERVICE = sa.Table(
    "scheduler_service",
    _META,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("options", _Json, nullable=False),  # of the first start; they stay in force
    sa.Column("epoch_s", sa.Double, nullable=False),  # wall-clock time of the service's second 0
)
LEASE = sa.Table(
    "scheduler_lease",
    _META,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("beat", sa.BigInteger, nullable=False),
    sa.Column("holder", _Json, nullable=False),  # what `me` says of it; None: nobody leads
)
LOG = sa.Table(
    "scheduler_log",
    _META,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("record", _Json, nullable=False),
)
SNAPSHOT = sa.Table(
    "scheduler_snapshot",
    _META,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),  # of the last record in it
    sa.Column("state", sa.LargeBinary, nullable=False),  # what `Core.save` wrote, compressed
    sa.Column("answers", _Json, nullable=False),  # keys and decisions that may be asked for again
)
#: PostgreSQL: a process that is paused or cut off keeps no lock, and a server that does not answer is noticed.
_CONNECT = {
    "options": "-c idle_in_transaction_session_timeout=2000 -c statement_timeout=4000 -c synchronous_commit=on "
    "-c tcp_keepalives_idle=1 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=2",
    "connect_timeout": 2,
    "tcp_user_timeout": 3000,
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 3,
}


class LostLease(Exception):
    """Another process leads now; nothing was written."""


class Lease(NamedTuple):
    """The lease row; ``holder`` is None if nobody leads."""

    term: int
    beat: int
    holder: dict[str, Any] | None


class Settings(NamedTuple):
    """What the first start of a service decided."""

    kind: str
    options: Document
    epoch_s: float


def me(url: str) -> dict[str, Any]:
    """Describe this process as a holder of the lease: its address, and who it is on this machine."""
    return {"url": url, "pid": os.getpid(), "started": _process(os.getpid())[1]}


def _process(pid: int) -> tuple[str, str]:
    """State (``T``: stopped) and start of a process (ticks since boot), which tells it from others; or empty."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return words[0], words[19]
    except (OSError, IndexError):
        return "", ""


class SchedulerDatabase(Store):
    """A store (of tokens) with the tables of one service; every method is one transaction."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        super().__init__(url, create=create, connect=_CONNECT, more_tables=_META)
        self.url, self.place = url, self.database.place  # the second without its password

    def settled(self, kind: str, options: Document, given: set[str]) -> Settings:
        """Return the options of the first start; refuse an option that is given now and differs.

        ``given``: names of the options of a person. Raises `ValueError`: another kind, a newer version, other options.
        """
        while (found := self.begun()) is None:
            row = Settings(kind, options, time.time())._asdict() | {"id": 1, "format": FORMAT}
            self.database.change(self.database.insert(SERVICE).values(row).on_conflict_do_nothing())
        if found.kind != kind:
            raise ValueError(f"{self.place} belongs to a service {found.kind!r}, not {kind!r}; name another database")
        for name in sorted(given & options.keys()):
            if (first := found.options.get(name)) != options[name]:
                shown = f"--{name.replace('_', '-')} {options[name]}"
                raise ValueError(f"{shown}: {self.place} was begun with {first}, which holds; drop the option")
        return found

    def begin_with(self, settings: Settings, state: bytes) -> None:
        """Begin with a state from elsewhere, in one transaction."""
        with self.database.write() as connection:
            connection.execute(sa.insert(SERVICE).values(id=1, format=FORMAT, **settings._asdict()))
            connection.execute(sa.insert(SNAPSHOT).values(number=0, state=zlib.compress(state, 1), answers={}))

    def begun(self) -> Settings | None:
        """Return what the first start decided, None before it; raise `ValueError` if a newer version did."""
        with self.database.read() as connection:
            row = connection.execute(sa.select(SERVICE)).one_or_none()
        if row is not None and row.format > FORMAT:
            raise ValueError(f"{self.place} has format {row.format}, this version reads {FORMAT}; install a newer one")
        return None if row is None else Settings(row.kind, row.options, row.epoch_s)

    def lease(self) -> Lease:
        """Read the lease; term 0 before the first leader."""
        with self.database.read() as connection:
            row = connection.execute(sa.select(LEASE)).one_or_none()
        return Lease(0, 0, None) if row is None else Lease(row.term, row.beat, row.holder)

    def take_over(self, seen: Lease, holder: dict[str, Any]) -> int | None:
        """Become the leader if the lease is still as it was ``seen``; return the new term, or None."""
        row = {"id": 1, "term": seen.term + 1, "beat": seen.beat + 1, "holder": holder}
        same = (LEASE.c.term == seen.term) & (LEASE.c.beat == seen.beat)
        insert = self.database.insert(LEASE).values(row)
        taken = self.database.change(insert.on_conflict_do_update(index_elements=["id"], set_=row, where=same))
        return seen.term + 1 if taken else None

    def renew(self, term: int) -> None:
        """Say that the leader of a term is there; raise `LostLease` if another one leads."""
        with self.database.write() as connection:
            self._fence(connection, term)

    def release(self, term: int) -> None:
        """Let a follower take over at once."""
        self.database.change(sa.update(LEASE).where(LEASE.c.term == term).values(holder=None))

    def end_stopped(self, holder: dict[str, Any] | None) -> bool:
        """Kill a leader that is stopped, so on this machine, while a SQLite file is locked; say if one was.

        Only its end frees its lock; its transaction is undone. A leader that runs, and perhaps waits, is left alone.
        """
        if self.database.dialect != "sqlite" or holder is None or not holder["started"]:
            return False
        if _process(holder["pid"]) != ("T", holder["started"]):
            return False
        try:
            with contextlib.closing(sqlite3.connect(self.database.file, timeout=0.1, isolation_level=None)) as found:
                found.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            os.kill(holder["pid"], signal.SIGKILL)
            return True
        return False

    def _fence(self, connection: sa.Connection, term: int) -> None:
        beat = sa.update(LEASE).where(LEASE.c.term == term).values(beat=LEASE.c.beat + 1)
        if not connection.execute(beat.execution_options(preserve_rowcount=True)).rowcount:
            raise LostLease("another process leads this scheduler now")

    def append(self, term: int, after: int, records: Sequence[Document]) -> None:
        """Commit records with the numbers that follow ``after``; they survive a kill and a power cut.

        Raises `LostLease`: another process leads; nothing is written.
        """
        rows = [{"number": after + k, "term": term, "record": record} for k, record in enumerate(records, 1)]
        with self.database.write() as connection:
            self._fence(connection, term)
            # One statement: within a pipeline of several, no timeout of the server would end a client that is cut off.
            connection.execute(sa.insert(LOG).values(rows))

    def records(self, after: int, most: int) -> list[tuple[int, Document]]:
        """Return at most so many records after a number, in order; raise `LookupError` if some are gone already."""
        wanted = sa.select(LOG.c.number, LOG.c.record).where(LOG.c.number > after).order_by(LOG.c.number).limit(most)
        with self.database.read() as connection:
            rows = connection.execute(wanted).all()
        if rows and rows[0].number != after + 1:
            raise LookupError(f"records from {after + 1} to {rows[0].number - 1} are in a snapshot only")
        return [(row.number, row.record) for row in rows]

    def snapshots(self) -> list[tuple[int, bytes | None, Document]]:
        """Return number, compressed state and answers of each, newest first, and at last the beginning (None)."""
        with self.database.read() as connection:
            rows = connection.execute(sa.select(SNAPSHOT).order_by(SNAPSHOT.c.number.desc())).all()
        return [*((row.number, bytes(row.state), row.answers) for row in rows), (0, None, {})]

    def keep_snapshot(self, number: int, state: bytes, answers: Document) -> None:
        """Store a state; drop what the one before it makes superfluous: older states and the records in them."""
        row = {"number": number, "state": zlib.compress(state, 1), "answers": answers}
        with self.database.write() as connection:
            connection.execute(self.database.insert(SNAPSHOT).values(row).on_conflict_do_nothing())
            newest = sa.select(SNAPSHOT.c.number).order_by(SNAPSHOT.c.number.desc())
            if (before := connection.scalar(newest.offset(1).limit(1))) is not None:
                connection.execute(sa.delete(SNAPSHOT).where(SNAPSHOT.c.number < before))
                connection.execute(sa.delete(LOG).where(LOG.c.number <= before))
