"""Queries of last values, histories and aggregates, by pages, so that the cost of a query is bounded."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from flowlex.systems.telemetry.database import Database
from flowlex.systems.telemetry.database_tables import ROLLUP, SERIES
from flowlex.systems.telemetry.request_documents import Aggregate

#: Most series of one history query, and number of series that one statement merges.
MAX_SERIES, MERGED = 2_000, 200
#: Characters of values after which a page ends.
PAGE_CHARS = 8_000_000

_Row = TypeVar("_Row", bound="LatestRow | SampleRow")


class TooMuch(ValueError):
    """A query exceeds the limit of one answer; the message says how to reduce it."""


class LatestRow(NamedTuple):
    """The last good value of a name on a node (``value`` is JSON text) and how its last run ended."""

    name: str
    node: str
    value: str | None
    unit: str | None
    time: float | None
    arrived: float | None
    sampled: float | None
    last_run: float
    last_exit_code: int
    last_error: str


class SampleRow(NamedTuple):
    """One entry of the history; ``value`` is JSON text."""

    name: str
    node: str
    time: float
    arrived: float
    value: str
    unit: str
    exit_code: int
    error: str


_S = SERIES.c
_LATEST = sa.select(
    *(_S[name] for name in ("name", "node", "value", "unit", "time", "arrived", "sampled")),
    *(_S[name] for name in ("run_time", "run_exit_code", "run_error")),
).where(_S.run_time.is_not(None))
_ONE = _LATEST.where(_S.name == sa.bindparam("n"), _S.node == sa.bindparam("m"))


class Reader:
    """Last values, histories and aggregates of a database; every method may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def latest(
        self,
        names: Sequence[str] = (),
        nodes: Sequence[str] = (),
        *,
        after: tuple[str, str] | None = None,
        limit: int = 10_000,
    ) -> tuple[list[LatestRow], bool]:
        """Return the rows of these names on these nodes (empty: all) by name and node, and whether more follow.

        Rows without a good value are included.
        """
        statement = _among(_LATEST, names, nodes)
        if after is not None:
            statement = statement.where(sa.tuple_(_S.name, _S.node) > sa.tuple_(*map(sa.literal, after)))
        statement = statement.order_by(_S.name, _S.node).limit(limit + 1)
        with self._stream() as connection:
            return _page(map(LatestRow._make, connection.execute(statement)), limit)

    def latest_one(self, name: str, node: str) -> LatestRow | None:
        """Return one row, which may lack a value, or None."""
        with self._database.read() as connection:
            row = connection.execute(_ONE, {"n": name, "m": node}).one_or_none()
        return None if row is None else LatestRow(*row)

    def history(
        self, names: Sequence[str], nodes: Sequence[str], since: float, until: float, limit: int
    ) -> tuple[list[SampleRow], bool]:
        """Return the newest ``limit`` samples of ``since <= time <= until``, oldest first, and whether more exist."""
        with self._stream() as connection:
            series = self._series(connection, names, nodes)
            numbers = list(series)
            parts = [
                self._newest(connection, numbers[first : first + MERGED], since, until, limit + 1)
                for first in range(0, len(numbers), MERGED)
            ]
        newest = heapq.merge(*parts, key=lambda row: (-row[1], -row[7]))
        page, more = _page((SampleRow(*series[row[0]], *row[1:7]) for row in newest), limit)
        return page[::-1], more

    def rollups(
        self, names: Sequence[str], nodes: Sequence[str], since: float, until: float, *, step: int, limit: int
    ) -> tuple[list[Aggregate], bool]:
        """Return the first ``limit`` aggregates that begin in ``since <= start <= until``, and whether more follow."""
        table = ROLLUP.c
        statement = sa.select(
            table.series, table.start, table.count, table.total / table.count, table.least, table.most
        ).where(table.step == step, table.start >= since, table.start <= until)
        with self._stream() as connection:
            series = self._series(connection, names, nodes)
            statement = statement.where(table.series.in_(list(series))).order_by(table.start, table.series)
            rows = connection.execute(statement.limit(limit + 1)).all()
        names = tuple(Aggregate.model_fields)
        found = [Aggregate(**dict(zip(names, (*series[row[0]], *row[1:]), strict=True))) for row in rows[:limit]]
        return found, len(rows) > limit

    def stored_names(self, names: Sequence[str]) -> set[str]:
        """Return which of these data names are stored on any node."""
        statement = sa.select(_S.name).where(_S.name.in_(names), _S.value.is_not(None)).distinct()
        with self._database.read() as connection:
            return set(connection.scalars(statement))

    def _series(
        self, connection: sa.Connection, names: Sequence[str], nodes: Sequence[str]
    ) -> dict[int, tuple[str, str]]:
        statement = _among(sa.select(_S.id, _S.name, _S.node), names, nodes).limit(MAX_SERIES + 1)
        found = {row.id: (row.name, row.node) for row in connection.execute(statement)}
        if len(found) > MAX_SERIES:
            raise TooMuch(f"more than {MAX_SERIES} series are meant; name fewer data names or nodes")
        return found

    def _newest(
        self, connection: sa.Connection, series: Sequence[int], since: float, until: float, limit: int
    ) -> list[tuple[Any, ...]]:
        # One ordered read per series: the database merges them by its index and stops at the limit.
        one = "SELECT series, time, arrived, value, unit, exit_code, error, id FROM sample WHERE series = {} AND "
        window = "time >= :since AND time <= :until"
        union = " UNION ALL ".join(one.format(int(number)) + window for number in series)
        statement = sa.text(f"{union} ORDER BY time DESC, id DESC LIMIT :limit")
        rows = connection.execute(statement, {"since": since, "until": until, "limit": limit})
        kept, chars = [], 0
        for row in rows:
            kept.append(tuple(row))
            if chars > PAGE_CHARS:  # one more than a page holds, to know whether more follow
                break
            chars += len(row[3])
        rows.close()
        return kept

    def _stream(self) -> Any:
        """Open a connection that streams rows instead of reading them all at once."""
        return self._database.engine.connect().execution_options(stream_results=True, max_row_buffer=500)


def _page(rows: Iterable[_Row], limit: int) -> tuple[list[_Row], bool]:
    """Return the first rows up to the limits of one answer, and whether more follow."""
    page: list[_Row] = []
    chars = 0
    for row in rows:
        if len(page) == limit or chars > PAGE_CHARS:
            return page, True
        page.append(row)
        chars += len(row.value or "")
    return page, False


def _among(statement: sa.Select[Any], names: Sequence[str], nodes: Sequence[str]) -> sa.Select[Any]:
    if names:
        statement = statement.where(_S.name.in_(names))
    if nodes:
        statement = statement.where(_S.node.in_(nodes))
    return statement
