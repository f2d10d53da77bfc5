"""CSV files as an instance: a file per table, a column per field; see `flowlex.instances.instance_tables`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flowlex.instances.extensions import instance_class
from flowlex.instances.file_storage import read_text
from flowlex.instances.instance_base import Instance, InstanceError
from flowlex.instances.instance_tables import WHOLE, Row, instance_of_rows


def read_csv_tables(kind: str, paths: Mapping[str, str | Path], fields: Mapping[str, Any] | None = None) -> Instance:
    r"""Read an instance from CSV files.

    - ``kind``: the kind of instance.
    - ``paths``: the file of each table (plain or gzip, UTF-8, a header line, commas).
    - ``fields``: the plain fields of the document, as numbers or text.

    `InstanceError`: the input is wrong; the error names file, line and column.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     nodes, blocks = Path(folder, "nodes.csv"), Path(folder, "blocks.csv")
    ...     _ = nodes.write_text("name,configuration\na,2\nb,1\n")
    ...     _ = blocks.write_text("name,items,holders\nlog,6,a;b\n")
    ...     read_csv_tables("load-partition", {"nodes": nodes, "blocks": blocks}, {"seconds_per_item": "0.5"}).name
    'unnamed'
    """
    rows = {
        table: [Row(f"{path}: line {line}", cells) for line, cells in csv_rows(path)] for table, path in paths.items()
    }
    if fields:
        rows[WHOLE] = [Row("--set", dict(fields))]
    return instance_of_rows(instance_class(kind), rows)


def csv_rows(path: str | Path, needs: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells by column of each non-blank row; the header must have the columns ``needs``."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if not header or len(set(header)) < len(header):
            twice = next((name for name in header if header.count(name) > 1), None)
            raise InstanceError(f"column {twice!r} is there twice" if twice else "the file is empty", path=path)
        if missing := [column for column in needs if column not in header]:
            reason = f"the header lacks {', '.join(missing)}; expected: {','.join(needs)}"
            raise InstanceError(reason, place="line 1", path=path)
        for cells in reader:
            if any(cell.strip() for cell in cells):
                if len(cells) != len(header):
                    reason = f"{len(cells)} cells where the header has {len(header)} columns; is the row cut off?"
                    raise InstanceError(reason, place=f"line {reader.line_num}", path=path)
                yield reader.line_num, dict(zip(header, (cell.strip() for cell in cells), strict=True))
    except csv.Error as error:
        raise InstanceError(f"not CSV ({error})", place=f"line {reader.line_num}", path=path) from None
