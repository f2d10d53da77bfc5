"""Storage of samples: each once, all of a batch or none, together with the last value of every series."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic import JsonValue

from flowlex.systems.telemetry.database import Database
from flowlex.systems.telemetry.database_tables import SAMPLE, SERIES, SOURCE
from flowlex.systems.telemetry.request_documents import Sample, encode_value

#: Known series and sources are cached in memory; above this number the cache is cleared.
MAX_KNOWN = 500_000

#: Node, source or None, samples.
Batch = tuple[str, str | None, Sequence[Sample]]


class SequenceConflict(Exception):
    """A source used a number for two different samples."""

    def __init__(self, node: str, source: str, seq: int) -> None:
        self.seq = seq
        super().__init__(f"number {seq} of source {source} on node {node} is stored with another content")


#: Series, time, value and exit code of a sample.
_Content = tuple[Any, ...]


class _Source(NamedTuple):
    id: int
    top: int


class _Row(NamedTuple):
    """A sample as it is stored."""

    series: int
    time: float
    arrived: float
    sampled: float
    value: str
    number: float | None
    unit: str
    exit_code: int
    error: str
    source: int | None
    seq: int | None


#: Rows per statement on SQLite, largest first; with few sizes each statement is prepared once.
SIZES = (64, 8, 1)


class BulkStatement:
    """A statement that inserts or updates from many rows: as arrays on PostgreSQL, some rows at a time on SQLite.

    A statement per row costs a round trip on PostgreSQL. On SQLite it costs a release of Python's global lock, which
    takes longer than the insert while other threads answer reads. ``{rows}`` in the text is replaced by a table ``new``
    with the ``columns``, whose types are PostgreSQL's.
    """

    def __init__(self, text: str, columns: Mapping[str, str]) -> None:
        one = f"({', '.join('?' * len(columns))})"
        named = ", ".join(f"column{k} AS {name}" for k, name in enumerate(columns, 1))
        self._by_rows = {
            size: text.format(rows=f"(SELECT {named} FROM (VALUES {', '.join([one] * size)})) AS new") for size in SIZES
        }
        arrays = ", ".join(f"%s::{kind}[]" for kind in columns.values())
        self._by_column = text.format(rows=f"unnest({arrays}) AS new({', '.join(columns)})")

    def run(self, connection: sa.Connection, rows: Sequence[tuple[Any, ...]]) -> int:
        """Execute the statement for these rows, and return how many rows of the table changed."""
        if not rows:
            return 0
        if connection.dialect.name == "postgresql":
            return connection.exec_driver_sql(self._by_column, tuple(map(list, zip(*rows, strict=True)))).rowcount
        touched = first = 0
        for size in SIZES:
            while len(rows) - first >= size:
                flat = tuple(chain.from_iterable(rows[first : first + size]))
                touched += connection.exec_driver_sql(self._by_rows[size], flat).rowcount
                first += size
        return touched


_S = SERIES.c
_TYPES = {
    "series": "bigint",
    "time": "float8",
    "arrived": "float8",
    "sampled": "float8",
    "value": "text",
    "number": "float8",
    "unit": "text",
    "exit_code": "integer",
    "error": "text",
    "source": "bigint",
    "seq": "bigint",
}


def _follow(**columns: Sequence[str]) -> BulkStatement:
    """Return the statement that stores a newer row: by arrival within a source, by sampling time between sources.

    ``columns`` are those of the last run (``run_``) and of the last good value (``value_``: no prefix).
    """
    prefixed = [(prefix.removeprefix("value_"), names) for prefix, names in columns.items()]
    put = ", ".join(f"{prefix}{name} = new.{name}" for prefix, names in prefixed for name in names)
    newer = " AND ".join(
        f"(series.{prefix}sampled IS NULL OR series.{prefix}sampled <= new.sampled "
        f"OR series.{prefix}source = new.source)"
        for prefix, _ in prefixed
    )
    return BulkStatement(f"UPDATE series SET {put} FROM {{rows}} WHERE series.id = new.series AND {newer}", _TYPES)


_STORED = [name for name in _TYPES if name != "sampled"]
_PUT_SAMPLE = BulkStatement(
    f"INSERT INTO sample ({', '.join(_STORED)}) SELECT {', '.join(_STORED)} FROM {{rows}}", _TYPES
)
_RUN = ("time", "sampled", "source", "exit_code", "error")
_VALUE = ("value", "unit", "time", "arrived", "sampled", "source")
_PUT_RUN, _PUT_VALUE, _PUT_BOTH = _follow(run_=_RUN), _follow(value_=_VALUE), _follow(run_=_RUN, value_=_VALUE)
_PUT_TOP = BulkStatement(
    "UPDATE source SET top = CASE WHEN source.top < new.top THEN new.top ELSE source.top END, seen = new.seen "
    "FROM {rows} WHERE source.id = new.id",
    {"id": "bigint", "top": "bigint", "seen": "float8"},
)


class SampleWriter:
    """Stores samples in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writing = threading.Lock()
        self._known_series: dict[tuple[str, str], int] = {}
        self._known_sources: dict[tuple[str, str], _Source] = {}

    def write(self, batches: Iterable[Batch], now: float) -> list[int]:
        """Store batches in one transaction that is on disk when this returns; return the number of new samples of each.

        A numbered sample that is stored already with the same time and content is skipped; with other content,
        `SequenceConflict` is raised and nothing of any batch is stored. ``now`` is the time of arrival by the service's
        clock.
        """
        batches = list(batches)
        with self._writing:
            try:
                return self._write_once(batches, now)
            except sa.exc.IntegrityError:  # another server stored or removed cached series or sources
                self.forget_known()
                return self._write_once(batches, now)

    def forget_known(self) -> None:
        """Clear the cache of series and sources."""
        self._known_series.clear()
        self._known_sources.clear()

    def _write_once(self, batches: Sequence[Batch], now: float) -> list[int]:
        if len(self._known_series) + len(self._known_sources) > MAX_KNOWN:
            self.forget_known()
        stored: list[int] = []
        try:
            with self._database.write() as connection:
                self._learn(connection, batches, now)
                rows: list[_Row] = []
                seen: dict[tuple[str, str], dict[int, _Content]] = {}
                for batch in batches:
                    before = len(rows)
                    rows += self._new_rows(connection, seen, batch, now)
                    stored.append(len(rows) - before)
                _PUT_SAMPLE.run(connection, rows)
                if rows:
                    self._follow(connection, rows, now)
        except BaseException:
            self.forget_known()  # the cached rows were rolled back
            raise
        return stored

    def _learn(self, connection: sa.Connection, batches: Sequence[Batch], now: float) -> None:
        """Cache the id of every series and source; create new ones."""
        known = self._known_series
        wanted = ((node, sample.name) for node, _, samples in batches for sample in samples)
        series = {(node, name) for node, name in wanted if (name, node) not in known}
        if series:
            # By node, so that the series of one node are on few pages.
            rows = [{"name": name, "node": node} for node, name in sorted(series)]
            connection.execute(self._database.insert(SERIES).on_conflict_do_nothing(), rows)
            for part in (rows[first : first + 500] for first in range(0, len(rows), 500)):
                keys = sa.tuple_(_S.name, _S.node).in_([(row["name"], row["node"]) for row in part])
                found = connection.execute(sa.select(_S.name, _S.node, _S.id).where(keys))
                self._known_series.update({(name, node): number for name, node, number in found})
        numbered = (batch for batch in batches if any(sample.seq is not None for sample in batch[2]))
        for key in {(node, _source(node, source)) for node, source, _ in numbered} - self._known_sources.keys():
            row = {"node": key[0], "source": key[1], "top": 0, "seen": now}
            connection.execute(self._database.insert(SOURCE).on_conflict_do_nothing(), row)
            of = (SOURCE.c.node == key[0], SOURCE.c.source == key[1])
            self._known_sources[key] = _Source(
                *connection.execute(sa.select(SOURCE.c.id, SOURCE.c.top).where(*of)).one()
            )

    def _new_rows(
        self, connection: sa.Connection, seen: dict[tuple[str, str], dict[int, _Content]], batch: Batch, now: float
    ) -> list[_Row]:
        """Return the rows of a batch that are neither stored nor ``seen`` in this transaction."""
        node, source, samples = batch
        key = (node, _source(node, source))
        known = self._known_sources.get(key)
        numbers = [sample.seq for sample in samples if sample.seq is not None]
        stored = seen.setdefault(key, {})
        if known is not None and numbers:
            if min(numbers) <= known.top:
                table = SAMPLE.c
                columns = (table.seq, table.series, table.time, table.value, table.exit_code)
                found = sa.select(*columns).where(table.source == known.id, table.seq.in_(numbers))
                stored |= {seq: tuple(rest) for seq, *rest in connection.execute(found)}
            self._known_sources[key] = known._replace(top=max(known.top, *numbers))
        new = []
        for sample in samples:
            row = self._row(node, sample, known, now)
            seq, content = sample.seq, (row.series, row.time, row.value, row.exit_code)
            if seq is None or seq not in stored:
                new.append(row)
            elif stored[seq] != content:
                raise SequenceConflict(*key, seq)
            if seq is not None:
                stored[seq] = content
        return new

    def _row(self, node: str, sample: Sample, source: _Source | None, now: float) -> _Row:
        waited = max(0.0, now - sample.time) if sample.age_s is None else sample.age_s
        return _Row(
            self._known_series[sample.name, node],
            sample.time,
            now,
            now - waited,
            encode_value(sample.value),
            _number(sample.value),
            sample.unit,
            sample.exit_code,
            sample.error.replace("\x00", " "),  # PostgreSQL stores no NUL
            None if sample.seq is None or source is None else source.id,
            sample.seq,
        )

    def _follow(self, connection: sa.Connection, rows: Sequence[_Row], now: float) -> None:
        """Update the last values and the sources from the stored rows."""
        runs: dict[int, _Row] = {}
        values: dict[int, _Row] = {}
        tops: dict[int, int] = {}
        for row in rows:
            _newest(runs, row)
            if row.exit_code == 0:
                _newest(values, row)
            if row.source is not None and row.seq is not None:
                tops[row.source] = max(row.seq, tops.get(row.source, 0))
        # In a fixed order, so that two servers cannot deadlock.
        if connection.dialect.name == "postgresql":
            for table, numbers in (("series", runs), ("source", tops)):
                lock = f"SELECT 1 FROM {table} WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"
                connection.exec_driver_sql(lock, (list(numbers),))
        # Usually the newest run of a series is also its newest value, and newer than both stored ones.
        both = list(runs.values())
        if runs != values or _PUT_BOTH.run(connection, both) < len(both):
            _PUT_RUN.run(connection, both)
            _PUT_VALUE.run(connection, list(values.values()))
        _PUT_TOP.run(connection, [(number, top, now) for number, top in tops.items()])


def _source(node: str, source: str | None) -> str:
    return source or f"node {node}"


def _newest(rows: dict[int, _Row], row: _Row) -> None:
    old = rows.get(row.series)
    same_source = old is not None and row.source is not None and row.source == old.source
    if old is None or same_source or row.sampled >= old.sampled:
        rows[row.series] = row


def _number(value: JsonValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer too large for a float
        return None
