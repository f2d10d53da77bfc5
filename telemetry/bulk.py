"""One statement over many rows, in the two dialects: PostgreSQL takes whole columns at once, SQLite row after row.

A round trip per row is what made PostgreSQL slow (a third of the samples per second); SQLite has no round trips.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

__all__ = ["Bulk"]


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
        one = ", ".join(f"? AS {name}" for name in columns)
        arrays = ", ".join(f"%s::{kind}[]" for kind in columns.values())
        self._by_row = text.format(rows=f"(SELECT {one}) AS new")
        self._by_column = text.format(rows=f"unnest({arrays}) AS new({', '.join(columns)})")

    def run(self, connection: sa.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Execute it for these rows; nothing for none."""
        if not rows:
            return
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(self._by_column, tuple(map(list, zip(*rows, strict=True))))
        else:
            connection.exec_driver_sql(self._by_row, list(rows))
