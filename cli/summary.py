"""The summary of a night: instances by kind and status, the slowest, the worst gaps, and what to run again.

A long run prints these tables, and writes them with a picture to ``summary.html`` in the folder of results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from flowlex.cli.record import SOLVED
from flowlex.cli.table_cells import text_of
from flowlex.instances.storage import write_atomically

__all__ = ["LISTED", "Line", "Table", "summary_tables", "write_page"]

#: Shorter runs list every instance instead.
LISTED = 60
#: Rows of the slowest and of the worst gaps; characters of a message.
_TOP, _MESSAGE = 10, 200
#: What makes another run end better, by what ended this one.
_REMEDIES = {
    "killed": "--resume",
    "memory limit": "--resume and a higher --memory-limit",
    "time limit": "--resume and a higher --time-limit",
    "time_limit": "--resume and a higher --time-limit",
    "error": "mend it (see the message), then --resume",
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse; font-size: 13px }} td {{ overflow-wrap: anywhere }}
th, td {{ border-bottom: 1px solid #ddd; padding: .15rem .7rem .15rem 0; text-align: left; vertical-align: top }}
svg {{ max-width: 100%; height: auto }}
</style></head><body><h1>{title}</h1>
{picture}
{tables}
</body></html>
"""


@dataclass(frozen=True)
class Line:
    """What the summary needs of a record (see `flowlex.cli.record`); ``seconds`` is the total."""

    instance: str
    kind: str
    status: str
    cut_off: str | None
    seconds: float
    objective: float | None
    bound: float | None
    gap: float | None
    message: str

    @classmethod
    def of(cls, record: dict[str, Any]) -> Line:
        """Take it from a record, so that a long run need not hold all records."""
        seconds = float(sum(value for value in record["seconds"].values() if value is not None))
        same = {key: record[key] for key in ("instance", "status", "objective", "bound", "gap")}
        message = record["message"][:_MESSAGE]
        return cls(kind=record["kind"] or "-", cut_off=record.get("cut_off"), seconds=seconds, message=message, **same)

    @property
    def remedy(self) -> str | None:
        """How to run it again with a better end; None if it ended as it should."""
        return _REMEDIES.get(self.cut_off or self.status)


@dataclass(frozen=True)
class Table:
    """A title, columns and rows."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def summary_tables(lines: Sequence[Line]) -> list[Table]:
    """The tables of a run; what has no rows is left out."""
    counts = Counter(line.status for line in lines)
    title = f"{len(lines)} instances: " + ", ".join(f"{n} {status}" for status, n in counts.most_common())
    slowest = sorted(lines, key=lambda line: -line.seconds)[:_TOP]
    gaps = sorted((line for line in lines if line.gap), key=lambda line: -(line.gap or 0))
    again = [line for line in lines if line.remedy]
    found = [
        Table(title, ("kind", "status", "instances", "seconds", "longest", "slowest instance"), _groups(lines)),
        Table(
            "Slowest instances",
            ("instance", "kind", "status", "seconds"),
            [(line.instance, line.kind, line.status, f"{line.seconds:.3f}") for line in slowest],
        ),
        Table(
            "Worst gaps",
            ("instance", "kind", "objective", "bound", "gap"),
            [(line.instance, line.kind, line.objective, line.bound, line.gap) for line in gaps[:_TOP]],
        ),
        Table(
            "To run again",
            ("instance", "ended by", "run again with", "message"),
            [(line.instance, line.cut_off or line.status, line.remedy, line.message) for line in again],
        ),
    ]
    return [table for table in found if table.rows]


def _groups(lines: Sequence[Line]) -> list[tuple[Any, ...]]:
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.kind, line.status), []).append(line)
    rows = []
    for (kind, status), members in sorted(groups.items()):
        longest = max(members, key=lambda line: line.seconds)
        total = sum(line.seconds for line in members)
        rows.append((kind, status, len(members), f"{total:.3f}", f"{longest.seconds:.3f}", longest.instance))
    return rows


def write_page(path: Path, lines: Sequence[Line]) -> None:
    """Write the tables and the picture of a run as one HTML page that needs no network."""
    tables = summary_tables(lines)
    parts = [_html(table) for table in tables]
    page = _PAGE.format(title=escape(tables[0].title), picture=_picture(lines), tables="\n".join(parts))
    write_atomically(path, page.encode("utf-8", "backslashreplace"))


def _html(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = ("".join(f"<td>{escape(text_of(cell))}</td>" for cell in row) for row in table.rows)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f"<h2>{escape(table.title)}</h2>\n<table><tr>{head}</tr>\n{body}</table>"


def _picture(lines: Sequence[Line]) -> str:
    """How many instances of each kind had an answer within how many seconds, as SVG."""
    from matplotlib.figure import Figure

    from flowlex.formulations.pictures import colours, picture_bytes

    solved: dict[str, list[float]] = {}
    for line in lines:
        if line.status in SOLVED:
            solved.setdefault(line.kind, []).append(line.seconds)
    axes = Figure(figsize=(9, 4), layout="constrained").subplots()
    for (kind, seconds), colour in zip(sorted(solved.items()), colours(len(solved)), strict=True):
        axes.step(sorted(seconds), range(1, len(seconds) + 1), where="post", color=colour, label=kind)
    axes.set(xlabel="seconds", ylabel="instances with an answer", xscale="log", title="Answers within so many seconds")
    if solved:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    svg = picture_bytes(axes, "svg").decode()
    return svg[svg.find("<svg") :]
