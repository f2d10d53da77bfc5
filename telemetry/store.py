"""Everything that reads or writes the tables, on SQLite or PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy.dialects import postgresql, sqlite

from flowlex.telemetry.schemas import Registration, Sample, encode_value
from flowlex.telemetry.tables import AGENT, LATEST, META, REGISTRATION, SAMPLE, TOKEN

__all__ = ["AgentRow", "DuplicateRegistration", "LatestRow", "SampleRow", "Store", "TokenRow", "decode"]


class DuplicateRegistration(Exception):
    """The data name is registered already."""


@dataclass(frozen=True)
class TokenRow:
    """A stored token: the digest of its secret and its rights."""

    digest: str
    role: str
    node: str | None
    label: str
    created: float


@dataclass(frozen=True)
class AgentRow:
    """A node that has introduced itself."""

    node: str
    labels: dict[str, str]
    programs: list[str]
    running: list[str]
    buffered: int
    last_seen: float


class LatestRow(NamedTuple):
    """The last good value of a name on a node (``value`` is JSON text) and how its last run ended."""

    name: str
    node: str
    value: str | None
    unit: str | None
    time: float | None
    last_run: float
    last_exit_code: int
    last_error: str


@dataclass(frozen=True)
class SampleRow:
    """One entry of the history; ``value`` is JSON text."""

    name: str
    node: str
    time: float
    value: str
    unit: str
    exit_code: int
    error: str


class Store:
    """The tables behind methods; every method is one transaction and may be called from any thread.

    Parameters
    ----------
    url
        A SQLAlchemy URL: ``sqlite:///file.db`` or ``postgresql+psycopg://user@host/name``.

    Raises
    ------
    ValueError
        A URL of another database, or one that SQLAlchemy cannot read.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.make_url(url)
        except sa.exc.ArgumentError as error:
            raise ValueError("not a database URL; give sqlite:///file.db or postgresql+psycopg://...") from error
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        self.dialect: str = parsed.get_backend_name()
        if self.dialect not in ("sqlite", "postgresql"):
            raise ValueError(f"{self.dialect} is not supported; give a sqlite or postgresql URL")
        if self.dialect == "sqlite":
            if parsed.database in (None, "", ":memory:"):
                raise ValueError("the service needs a file: sqlite:///file.db")
            self._engine = sa.create_engine(parsed, pool_size=20, max_overflow=40)
            sa.event.listen(self._engine, "connect", _prepare_sqlite)
            self._insert: Any = sqlite.insert
        else:
            self._engine = sa.create_engine(parsed, pool_size=20, max_overflow=40, pool_pre_ping=True)
            self._insert = postgresql.insert
        self._prepare_statements()
        self._create_tables()

    def _prepare_statements(self) -> None:
        """Make the statements of every write once."""
        self._put_sample = self._insert(SAMPLE).on_conflict_do_nothing().execution_options(preserve_rowcount=True)
        run = self._insert(LATEST)
        columns = ("last_run", "last_exit_code", "last_error")
        self._put_run = run.on_conflict_do_update(
            index_elements=["name", "node"],
            set_={column: run.excluded[column] for column in columns},
            where=run.excluded.last_run >= LATEST.c.last_run,
        )
        table = LATEST.c
        self._put_good = (
            sa.update(LATEST)
            .where(table.name == sa.bindparam("of_name"), table.node == sa.bindparam("of_node"))
            .where(sa.or_(table.time.is_(None), table.time <= sa.bindparam("at")))
            .values(value=sa.bindparam("new"), unit=sa.bindparam("in_unit"), time=sa.bindparam("at"))
        )
        self._get_one = sa.select(LATEST).where(table.name == sa.bindparam("n"), table.node == sa.bindparam("m"))

    def _create_tables(self) -> None:
        with self._engine.begin() as connection:
            if self.dialect == "postgresql":  # two servers may start at once
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(7101975)"))
            META.create_all(connection)

    @property
    def place(self) -> str:
        """The database's URL without its password."""
        return self._engine.url.render_as_string(hide_password=True)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with self._engine.connect() as connection:
            yield connection

    def ping(self) -> None:
        """Raise when the database does not answer."""
        with self._read() as connection:
            connection.execute(sa.select(sa.literal(1)))

    # Registrations

    def add_registration(self, registration: Registration) -> None:
        """Store a new registration, or raise `DuplicateRegistration`."""
        values = {"name": registration.name, "document": registration.model_dump_json()}
        statement = self._insert(REGISTRATION).values(values).on_conflict_do_nothing()
        statement = statement.execution_options(preserve_rowcount=True)
        with self._engine.begin() as connection:
            if connection.execute(statement).rowcount != 1:
                raise DuplicateRegistration(registration.name)

    def update_registration(self, registration: Registration) -> bool:
        """Replace a registration; False when there is none of that name."""
        statement = sa.update(REGISTRATION).where(REGISTRATION.c.name == registration.name)
        with self._engine.begin() as connection:
            result = connection.execute(statement.values(document=registration.model_dump_json()))
            return bool(result.rowcount)

    def remove_registration(self, name: str) -> bool:
        """Remove a registration (its data stay); False when there is none of that name."""
        with self._engine.begin() as connection:
            result = connection.execute(sa.delete(REGISTRATION).where(REGISTRATION.c.name == name))
            return bool(result.rowcount)

    def registration(self, name: str) -> Registration | None:
        """Return one registration or None."""
        with self._read() as connection:
            text = connection.scalar(sa.select(REGISTRATION.c.document).where(REGISTRATION.c.name == name))
        return None if text is None else Registration.model_validate_json(text)

    def registrations(self) -> list[Registration]:
        """Return all registrations by name."""
        with self._read() as connection:
            texts = connection.scalars(sa.select(REGISTRATION.c.document).order_by(REGISTRATION.c.name)).all()
        return [Registration.model_validate_json(text) for text in texts]

    # Agents

    def put_agent(self, node: str, labels: Mapping[str, str], programs: Sequence[str], now: float) -> None:
        """Store a node that introduces itself, or what it newly says of itself."""
        said = {"labels": json.dumps(dict(labels)), "programs": json.dumps(list(programs)), "last_seen": now}
        values = {"node": node, "running": "[]", "buffered": 0, **said}
        statement = self._insert(AGENT).values(values).on_conflict_do_update(index_elements=["node"], set_=said)
        with self._engine.begin() as connection:
            connection.execute(statement)

    def touch_agent(self, node: str, running: Sequence[str], buffered: int, now: float) -> bool:
        """Store a heartbeat; False when the node has not introduced itself."""
        statement = sa.update(AGENT).where(AGENT.c.node == node)
        values = {"running": json.dumps(list(running)), "buffered": buffered, "last_seen": now}
        with self._engine.begin() as connection:
            return bool(connection.execute(statement.values(values)).rowcount)

    def remove_agent(self, node: str) -> bool:
        """Forget a node (its data stay); False when it is not known."""
        with self._engine.begin() as connection:
            return bool(connection.execute(sa.delete(AGENT).where(AGENT.c.node == node)).rowcount)

    def agents(self) -> list[AgentRow]:
        """Return all nodes by name."""
        with self._read() as connection:
            rows = connection.execute(sa.select(AGENT).order_by(AGENT.c.node)).all()
        return [
            AgentRow(
                row.node,
                json.loads(row.labels),
                json.loads(row.programs),
                json.loads(row.running),
                row.buffered,
                row.last_seen,
            )
            for row in rows
        ]

    # Tokens

    def add_token(self, row: TokenRow) -> None:
        """Store a token's digest."""
        with self._engine.begin() as connection:
            connection.execute(sa.insert(TOKEN).values(asdict(row)))

    def remove_token(self, prefix: str) -> int:
        """Revoke the tokens whose digest starts so; return how many."""
        with self._engine.begin() as connection:
            return connection.execute(
                sa.delete(TOKEN).where(TOKEN.c.digest.startswith(prefix, autoescape=True))
            ).rowcount

    def tokens(self) -> list[TokenRow]:
        """Return all tokens, oldest first."""
        with self._read() as connection:
            return [TokenRow(*row) for row in connection.execute(sa.select(TOKEN).order_by(TOKEN.c.created))]

    # Data

    def write(self, batches: Iterable[tuple[str, str | None, Sequence[Sample]]], now: float) -> list[int]:
        """Store batches ``(node, source, samples)`` in one transaction that is on disk when this returns.

        A time stamp ahead of the server's clock is stored as ``now``, so that no value is younger than its
        arrival. A numbered sample that is stored already is passed over.

        Returns
        -------
        list of int
            For each batch how many of its samples were new.
        """
        stored = []
        good: dict[tuple[str, str], dict[str, Any]] = {}
        last: dict[tuple[str, str], dict[str, Any]] = {}
        with self._engine.begin() as connection:
            for node, source, samples in batches:
                rows = [_sample_row(node, source, sample, now) for sample in samples]
                result = connection.execute(self._put_sample, rows)
                stored.append(result.rowcount)
                for row in rows:
                    _newest(last, row)
                    if row["exit_code"] == 0:
                        _newest(good, row)
            self._upsert_latest(connection, last, good)
        return stored

    def _upsert_latest(
        self,
        connection: sa.Connection,
        last: Mapping[tuple[str, str], Mapping[str, Any]],
        good: Mapping[tuple[str, str], Mapping[str, Any]],
    ) -> None:
        # Sorted: two writers that lock rows in one order cannot block each other.
        connection.execute(
            self._put_run,
            [
                {
                    "name": row["name"],
                    "node": row["node"],
                    "last_run": row["time"],
                    "last_exit_code": row["exit_code"],
                    "last_error": row["error"],
                }
                for _, row in sorted(last.items())
            ],
        )
        if not good:
            return
        rows = [
            {
                "of_name": row["name"],
                "of_node": row["node"],
                "at": row["time"],
                "new": row["value"],
                "in_unit": row["unit"],
            }
            for _, row in sorted(good.items())
        ]
        connection.execute(self._put_good, rows)

    def latest(self, names: Sequence[str], nodes: Sequence[str]) -> list[LatestRow]:
        """Return the last values of these names on these nodes (empty: all), those with a value only."""
        statement = sa.select(LATEST).where(LATEST.c.value.is_not(None))
        statement = _among(statement, LATEST, names, nodes)
        with self._read() as connection:
            return list(map(LatestRow._make, connection.execute(statement.order_by("name", "node"))))

    def latest_one(self, name: str, node: str) -> LatestRow | None:
        """Return one row, which may lack a value, or None."""
        with self._read() as connection:
            row = connection.execute(self._get_one, {"n": name, "m": node}).one_or_none()
        return None if row is None else LatestRow(*row)

    def history(
        self, names: Sequence[str], nodes: Sequence[str], since: float, until: float, limit: int
    ) -> tuple[list[SampleRow], bool]:
        """Return the newest ``limit`` samples of ``since <= time <= until``, oldest first, and whether more exist."""
        columns = [SAMPLE.c[name] for name in ("name", "node", "time", "value", "unit", "exit_code", "error")]
        statement = sa.select(*columns).where(SAMPLE.c.time >= since, SAMPLE.c.time <= until)
        statement = _among(statement, SAMPLE, names, nodes)
        statement = statement.order_by(SAMPLE.c.time.desc(), SAMPLE.c.id.desc()).limit(limit + 1)
        with self._read() as connection:
            rows = [SampleRow(*row) for row in connection.execute(statement)]
        return rows[:limit][::-1], len(rows) > limit

    def count_samples(self) -> int:
        """Return the number of samples in the history."""
        with self._read() as connection:
            return connection.scalar(sa.select(sa.func.count()).select_from(SAMPLE)) or 0

    def sequence_numbers(self, source: str) -> set[int]:
        """Return which numbered samples of a source are stored (to prove that none is lost)."""
        with self._read() as connection:
            return set(connection.scalars(sa.select(SAMPLE.c.seq).where(SAMPLE.c.source == source)))

    def forget_before(self, time: float) -> int:
        """Drop the history before ``time`` and return how many samples went; last values stay."""
        with self._engine.begin() as connection:
            return connection.execute(sa.delete(SAMPLE).where(SAMPLE.c.time < time)).rowcount


def _sample_row(node: str, source: str | None, sample: Sample, now: float) -> dict[str, Any]:
    return {
        "name": sample.name,
        "node": node,
        "time": min(sample.time, now),
        "value": encode_value(sample.value),
        "unit": sample.unit,
        "exit_code": sample.exit_code,
        "error": sample.error.replace("\x00", " "),  # PostgreSQL stores no NUL
        "source": None if sample.seq is None else source or f"node {node}",
        "seq": sample.seq,
    }


def _newest(rows: dict[tuple[str, str], dict[str, Any]], row: dict[str, Any]) -> None:
    key = (row["name"], row["node"])
    if key not in rows or row["time"] >= rows[key]["time"]:
        rows[key] = row


def _among(statement: sa.Select[Any], table: sa.Table, names: Sequence[str], nodes: Sequence[str]) -> sa.Select[Any]:
    if names:
        statement = statement.where(table.c.name.in_(names))
    if nodes:
        statement = statement.where(table.c.node.in_(nodes))
    return statement


def decode(value: str) -> JsonValue:
    """Return a stored value."""
    decoded: JsonValue = json.loads(value)
    return decoded


def _prepare_sqlite(connection: Any, record: object) -> None:
    cursor = connection.cursor()
    # WAL: readers never wait for the writer. FULL: a commit is on disk before it is acknowledged.
    for statement in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {statement}")
    cursor.close()
