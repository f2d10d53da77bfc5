"""One statement over many rows, in the two dialects: PostgreSQL takes whole columns at once, SQLite some rows at once.

A round trip per row is what made PostgreSQL slow. SQLite has no round trips, but Python gives its global lock away and
takes it back with every statement: a statement per row cost more than the row where other threads answered reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import sqlalchemy as sa

__all__ = ["Bulk"]

#: Rows of one statement on SQLite, largest first; few sizes, so that each statement is prepared once.
SIZES = (64, 8, 1)


class Bulk:
    """A statement that reads new rows.

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
        """Execute it for these rows; nothing for none. Returns how many rows of the table it touched."""
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
