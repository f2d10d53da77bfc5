"""Values as the text of a table's cells."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

__all__ = ["cells", "printable", "text_of"]

#: Rows of a long table that are printed.
PREVIEW_ROWS = 20


def printable(text: object) -> str:
    """Text that any stream can take: names of files may hold bytes that are no characters."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def text_of(value: Any) -> str:
    """A cell of a table."""
    if value is None or value != value:  # missing, or not a number: frames say both
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return printable(value)


def cells(title: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns and first rows of a table as plain data for `flowlex.cli.output.rows_table`."""
    return {
        "title": title,
        "columns": list(columns),
        "rows": [list(map(text_of, row)) for row in islice(zip(*columns.values(), strict=True), PREVIEW_ROWS)],
        "total": len(next(iter(columns.values()), ())),
    }
