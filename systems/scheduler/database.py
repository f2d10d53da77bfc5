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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from flowlex.systems.scheduler.core_protocol import Document
from flowlex.systems.telemetry.store import Store

#: The version of the tables and of what they hold.
FORMAT = 1
_META = sa.MetaData()
SERVICE = sa.Table(
    "scheduler_service",
    _META,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("options", sa.Text, nullable=False),  # of the first start; they stay in force
    sa.Column("epoch_s", sa.Double, nullable=False),  # wall-clock time of the service's second 0
)
LEASE = sa.Table(
    "scheduler_lease",
    _META,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("beat", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),  # `Holder` as JSON; empty: nobody leads
)
LOG = sa.Table(
    "scheduler_log",
    _META,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("record", sa.Text, nullable=False),
)
SNAPSHOT = sa.Table(
    "scheduler_snapshot",
    _META,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),  # of the last record in it
    sa.Column("state", sa.LargeBinary, nullable=False),  # what `Core.save` wrote, compressed
    sa.Column("answers", sa.Text, nullable=False),  # keys and decisions that may be asked for again
)
#: PostgreSQL: a process that is paused or cut off keeps no lock, and a server that does not answer is noticed.
_PATIENCE = (
    "-c idle_in_transaction_session_timeout=2000 -c statement_timeout=4000 -c synchronous_commit=on "
    "-c tcp_keepalives_idle=1 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=2"
)
_CONNECT = {
    "options": _PATIENCE,
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
    """State of a process (``T``: stopped), and clock ticks from boot to its start; with the number, these name it.

    Empty: unknown.
    """
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return words[0], words[19]
    except (OSError, IndexError):
        return "", ""


class SchedulerDatabase:
    """The tables of one service; every method is one transaction. Tokens are in the same database (``store``)."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        self.url = url
        self.store: Store = Store(url, create=create, connect=_CONNECT)
        self._database = self.store.database
        try:
            with self._database.write() as connection:
                if self._database.dialect == "postgresql":  # two processes may start at once
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7101976)")
                _META.create_all(connection)
        except BaseException:
            self.store.close()
            raise

    @property
    def place(self) -> str:
        """The database's URL without its password."""
        return self._database.place

    def close(self) -> None:
        """Close all connections."""
        self.store.close()

    # The first start -----------------------------------------------------------------------------------------
    def settled(self, kind: str, options: Document, given: set[str]) -> Settings:
        """Return the options of the first start; refuse an option that is given now and differs.

        ``given``: names of the options that a person gave now. Raises `ValueError`: the database belongs to another
        kind of service or a newer version, or was begun with other options.
        """
        first = {"id": 1, "format": FORMAT, "kind": kind, "options": json.dumps(options), "epoch_s": time.time()}
        with self._database.write() as connection:
            connection.execute(self._database.insert(SERVICE).values(first).on_conflict_do_nothing())
            row = connection.execute(sa.select(SERVICE)).one()
        if row.format > FORMAT:
            raise ValueError(f"{self.place} has format {row.format}, this version reads {FORMAT}; install a newer one")
        if row.kind != kind:
            raise ValueError(f"{self.place} belongs to a service {row.kind!r}, not {kind!r}; name another database")
        kept = json.loads(row.options)
        for name in sorted(given & options.keys()):
            if kept.get(name) != options[name]:
                shown = f"--{name.replace('_', '-')} {options[name]}"
                raise ValueError(f"{shown}: {self.place} was begun with {kept.get(name)}, which holds; drop the option")
        return Settings(kind, kept, row.epoch_s)

    def begin_with(self, settings: Settings, state: bytes) -> None:
        """Begin with a state from elsewhere, in one transaction."""
        row = {"id": 1, "format": FORMAT, "kind": settings.kind, "epoch_s": settings.epoch_s}
        with self._database.write() as connection:
            connection.execute(sa.insert(SERVICE).values(row | {"options": json.dumps(settings.options)}))
            connection.execute(sa.insert(SNAPSHOT).values(number=0, state=zlib.compress(state, 1), answers="{}"))

    def begun(self) -> Settings | None:
        """Return what the first start decided; None before it."""
        with self._database.read() as connection:
            row = connection.execute(sa.select(SERVICE)).one_or_none()
        return None if row is None else Settings(row.kind, json.loads(row.options), row.epoch_s)

    # The lease -----------------------------------------------------------------------------------------------
    def lease(self) -> Lease:
        """Read the lease; term 0 before the first leader."""
        with self._database.read() as connection:
            row = connection.execute(sa.select(LEASE)).one_or_none()
        return Lease(0, 0, None) if row is None else Lease(row.term, row.beat, json.loads(row.holder or "null"))

    def take_over(self, seen: Lease, holder: dict[str, Any]) -> int | None:
        """Become the leader if the lease is still as it was ``seen``; return the new term, or None."""
        values = {"id": 1, "term": seen.term + 1, "beat": seen.beat + 1, "holder": json.dumps(holder)}
        if seen.term == 0:
            statement = self._database.insert(LEASE).values(values).on_conflict_do_nothing()
        else:
            same = (LEASE.c.term == seen.term) & (LEASE.c.beat == seen.beat)
            statement = sa.update(LEASE).where(same).values(values)
        return seen.term + 1 if self._database.change(statement) else None

    def renew(self, term: int) -> None:
        """Say that the leader of a term is there; raise `LostLease` if another one leads."""
        with self._database.write() as connection:
            self._fence(connection, term)

    def release(self, term: int) -> None:
        """Let a follower take over at once."""
        self._database.change(sa.update(LEASE).where(LEASE.c.term == term).values(holder=""))

    def end_stopped(self, holder: dict[str, Any] | None) -> bool:
        """Kill a leader that is stopped, so on this machine, while a SQLite file is locked; say if one was.

        Its lock keeps everybody from writing, and only its end frees it. Its open transaction is undone. A leader that
        runs, and perhaps waits for the lock itself, is left alone.
        """
        if self._database.dialect != "sqlite" or holder is None or not holder["started"]:
            return False
        if _process(holder["pid"]) != ("T", holder["started"]):
            return False
        with contextlib.closing(sqlite3.connect(self._database.file, timeout=0.1, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.kill(holder["pid"], signal.SIGKILL)
                return True
        return False

    def _fence(self, connection: sa.Connection, term: int) -> None:
        beat = sa.update(LEASE).where(LEASE.c.term == term).values(beat=LEASE.c.beat + 1)
        if not connection.execute(beat.execution_options(preserve_rowcount=True)).rowcount:
            raise LostLease("another process leads this scheduler now")

    # The log -------------------------------------------------------------------------------------------------
    def append(self, term: int, after: int, records: Sequence[Document]) -> None:
        """Commit records with the numbers that follow ``after``; they survive a kill and a power cut.

        Raises `LostLease`: another process leads; nothing is written.
        """
        rows = [
            {"number": after + k, "term": term, "record": json.dumps(record, separators=(",", ":"), allow_nan=False)}
            for k, record in enumerate(records, 1)
        ]
        with self._database.write() as connection:
            self._fence(connection, term)
            # One statement: within a pipeline of several, no timeout of the server would end a client that is cut off.
            connection.execute(sa.insert(LOG).values(rows))

    def records(self, after: int, most: int = 2000) -> list[tuple[int, Document]]:
        """Return at most so many records after a number, in order; raise `LookupError` if some are gone already."""
        wanted = sa.select(LOG.c.number, LOG.c.record).where(LOG.c.number > after).order_by(LOG.c.number).limit(most)
        with self._database.read() as connection:
            rows = connection.execute(wanted).all()
        if rows and rows[0].number != after + 1:
            raise LookupError(f"records from {after + 1} to {rows[0].number - 1} are in a snapshot only")
        return [(row.number, json.loads(row.record)) for row in rows]

    # Snapshots -----------------------------------------------------------------------------------------------
    def snapshots(self) -> Iterator[tuple[int, bytes | None, Document]]:
        """Yield number, compressed state and answers of each, newest first, and at last the beginning (None)."""
        with self._database.read() as connection:
            numbers = connection.scalars(sa.select(SNAPSHOT.c.number).order_by(SNAPSHOT.c.number.desc())).all()
        for number in numbers:
            with self._database.read() as connection:
                row = connection.execute(sa.select(SNAPSHOT).where(SNAPSHOT.c.number == number)).one_or_none()
            if row is not None:
                yield number, bytes(row.state), json.loads(row.answers)
        yield 0, None, {}

    def keep_snapshot(self, number: int, state: bytes, answers: Document) -> None:
        """Store a state; drop what the one before it makes superfluous: older states and the records in them."""
        row = {"number": number, "state": zlib.compress(state, 1), "answers": json.dumps(answers)}
        with self._database.write() as connection:
            connection.execute(self._database.insert(SNAPSHOT).values(row).on_conflict_do_nothing())
            newest = sa.select(SNAPSHOT.c.number).order_by(SNAPSHOT.c.number.desc()).limit(2)
            numbers = connection.scalars(newest).all()
            if len(numbers) == 2:
                connection.execute(sa.delete(SNAPSHOT).where(SNAPSHOT.c.number < numbers[1]))
                connection.execute(sa.delete(LOG).where(LOG.c.number <= numbers[1]))

    def last_snapshot(self) -> int:
        """The number of the newest stored state; 0 if there is none."""
        with self._database.read() as connection:
            return connection.scalar(sa.select(sa.func.max(SNAPSHOT.c.number))) or 0
