"""A connection to SQLite or PostgreSQL: creates the schema, and runs reads and writes as transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from flowlex.systems.telemetry.database_tables import META, VERSION

#: The version of the schema in `flowlex.systems.telemetry.database_tables`.
SCHEMA = "1"
#: How long a statement waits for a lock that another process holds, in seconds.
LOCK_WAIT_S = 2.0


class SchemaError(ValueError):
    """The database does not exist, or has a schema that this version of flowlex does not read."""


class EmptyDatabaseError(SchemaError):
    """The database does not exist, or has no tables."""


class Database:
    """Connections to one database with the newest schema: ``sqlite:///file.db``, ``postgresql+psycopg://user@host/name``.

    With ``create``, a missing database and the tables of an empty one are created; otherwise both are a `SchemaError`.
    ``connect``: options of a connection to PostgreSQL. ``more_tables``: made too, whether with ``create`` or not.
    """

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        connect: Mapping[str, Any] | None = None,
        more_tables: sa.MetaData | None = None,
    ) -> None:
        parsed = _parse(url)
        self.dialect: str = parsed.get_backend_name()
        more: dict[str, Any] = {"pool_timeout": 5.0}
        if self.dialect == "sqlite":
            if not create and not Path(parsed.database or "").is_file():
                raise EmptyDatabaseError(
                    f"there is no database {parsed.database}; `flowlex telemetry migrate` creates it"
                )
            self.insert: Any = sqlite.insert
        else:
            more |= {"pool_pre_ping": True, "connect_args": {"connect_timeout": 5, **(connect or {})}}
            self.insert = postgresql.insert
        # hide_parameters: error messages must not repeat stored values, which may be secret.
        self.engine = sa.create_engine(parsed, pool_size=20, max_overflow=40, hide_parameters=True, **more)
        if self.dialect == "sqlite":
            sa.event.listen(self.engine, "connect", _prepare_sqlite)
        try:
            self.migrated_from: str | None = self._own_tables(create)
            if more_tables is not None:
                self.make_tables(more_tables)
        except BaseException as error:
            self.engine.dispose()
            if self.dialect == "sqlite" and isinstance(error, sa.exc.DatabaseError):
                raise SchemaError(_unusable(Path(self.file), str(error.orig))) from error
            raise

    @property
    def place(self) -> str:
        """The database's URL without its password."""
        return self.engine.url.render_as_string(hide_password=True)

    @property
    def file(self) -> str:
        """The path of a SQLite database."""
        return str(self.engine.url.database)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def ping(self) -> None:
        """Raise if the database does not answer."""
        with self.read() as connection:
            connection.execute(sa.select(sa.literal(1)))

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a connection for reading; each statement is a transaction, so that none stays open in between."""
        with self.engine.connect() as connection:
            if self.dialect == "postgresql":
                connection.execution_options(isolation_level="AUTOCOMMIT")
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open one transaction, which is on disk when the block ends."""
        with self.engine.begin() as connection:
            if self.dialect == "sqlite":  # lock at once: a later lock would fail without waiting
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(1000 * LOCK_WAIT_S)}")
            yield connection

    def change(self, statement: sa.Executable) -> int:
        """Execute a statement as a transaction; return how many rows it changed."""
        with self.write() as connection:
            return int(connection.execute(statement.execution_options(preserve_rowcount=True)).rowcount)

    def make_tables(self, tables: sa.MetaData) -> None:
        """Create tables, all or none; where they are there, this takes no lock, which another process may hold."""
        first = next(iter(tables.tables))
        with self.read() as connection:
            if sa.inspect(connection).has_table(first):
                return
        with self.write() as connection:
            if self.dialect == "postgresql":  # two servers may start at once
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7101975)")
            tables.create_all(connection)

    def _own_tables(self, create: bool) -> str | None:
        """Create the tables of an empty database; return the schema version found before (None: empty)."""
        with self.read() as connection:
            made = sa.inspect(connection).has_table(VERSION.name)
            found = connection.scalar(sa.select(VERSION.c.version_num)) if made else None
        if found is None and not create:
            raise EmptyDatabaseError(f"{self.place} has schema none; run `flowlex telemetry migrate` on it")
        if found not in (None, SCHEMA):
            raise SchemaError(f"{self.place} has schema {found}, unknown to this version; install a newer flowlex")
        self.make_tables(META)
        return found


@sa.event.listens_for(VERSION, "after_create")
def _number(table: sa.Table, connection: sa.Connection, **_: Any) -> None:
    connection.execute(sa.insert(table).values(version_num=SCHEMA))


def _parse(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise ValueError("not a database URL; give sqlite:///file.db or postgresql+psycopg://...") from error
    if parsed.drivername == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ValueError(f"{parsed.get_backend_name()} is not supported; give a sqlite or postgresql URL")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ValueError("the service needs a file: sqlite:///file.db")
    return parsed


def _unusable(file: Path, said: str) -> str:
    """Name the file of SQLite that cannot be opened, and the remedy."""
    remedy = f"let this user write it and its folder {file.parent}"
    if not file.parent.is_dir():
        remedy = f"make its folder {file.parent}"
    elif file.is_dir():
        remedy = "it is a folder; name a file"
    elif "not a database" in said:
        remedy = "name another file, or restore it from a backup"
    elif "locked" in said:
        remedy = "end the process that holds its lock"
    elif "full" in said:
        remedy = "free some space"
    return f"the database {file} cannot be used: {said}; {remedy}"


def _prepare_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # `Database.write` begins transactions
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={int(1000 * LOCK_WAIT_S)}")
    if not cursor.execute("PRAGMA page_count").fetchone()[0]:  # later it has no effect, but takes the write lock
        cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")
    # WAL: readers never wait for the writer. FULL: a commit is on disk before it is acknowledged.
    for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()
