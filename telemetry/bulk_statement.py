"""One statement for many rows, in two dialects: PostgreSQL reads columns as arrays, SQLite some rows at a time.

A statement per row costs PostgreSQL a round trip. On SQLite it costs a release of Python's global lock, which takes
longer than the insert while other threads answer reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import sqlalchemy as sa

__all__ = ["BulkStatement"]

#: Rows per statement on SQLite, largest first; with few sizes each statement is prepared once.
SIZES = (64, 8, 1)


class BulkStatement:
    """A statement that inserts or updates from new rows.

    Parameters
    ----------
    text
        SQL; ``{rows}`` stands for the new rows, a table called ``new``.
    columns
        Columns of ``new`` and their types in PostgreSQL, in the order of the rows' entries.
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
