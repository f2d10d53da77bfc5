"""Output of a run: JSON lines for programs, tables for people, and for long runs an HTML summary.

The summary counts instances by kind and status and lists the slowest, the worst gaps, and what to run again. A long run
prints it, and writes it to ``summary.html`` in the folder of results.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import typer

from flowlex.cli.console_output import PREVIEW_ROWS, console, facts_table, rows_table, text_of
from flowlex.cli.result_record import SOLVED
from flowlex.cli.worker_pool import Finished
from flowlex.instances.file_storage import write_atomically
from flowlex.instances.input_errors import counted

#: Comparisons with more figures are transposed.
_NARROW = 8
#: Runs of at most this many instances list every instance instead.
LISTED = 60
#: Rows of the tables of slowest instances and worst gaps; characters of a message.
_TOP, _MESSAGE = 10, 200
#: What to change in another run, by the reason that ended this one.
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
</style></head><body><h1>{title}</h1>
{tables}
</body></html>
"""


@dataclass(frozen=True)
class Line:
    """The fields of a record that the summary needs (see `flowlex.cli.result_record`); ``seconds`` is the total."""

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
        """Extract the fields of a record, so that a long run need not keep all records."""
        seconds = float(sum(value for value in record["seconds"].values() if value is not None))
        same = {key: record[key] for key in ("instance", "status", "objective", "bound", "gap")}
        message = record["message"][:_MESSAGE]
        return cls(kind=record["kind"] or "-", cut_off=record.get("cut_off"), seconds=seconds, message=message, **same)

    @property
    def remedy(self) -> str | None:
        """How to run it again with success; None if it ended normally."""
        return _REMEDIES.get(self.cut_off or self.status)


def summary_tables(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return the tables of a run as arguments of `rows_table`; empty tables are left out."""
    counts = Counter(line.status for line in lines)
    title = f"{counted(len(lines), 'instance')}: " + ", ".join(f"{n} {status}" for status, n in counts.most_common())
    slowest = sorted(lines, key=lambda line: -line.seconds)[:_TOP]
    gaps = sorted((line for line in lines if line.gap), key=lambda line: -(line.gap or 0))
    again = [line for line in lines if line.remedy]
    found = [
        (
            title,
            ("kind", "status", "instances", "seconds", "half within", "90 % within", "longest", "slowest instance"),
            _groups(lines),
        ),
        (
            "Slowest instances",
            ("instance", "kind", "status", "seconds"),
            [(line.instance, line.kind, line.status, f"{line.seconds:.3f}") for line in slowest],
        ),
        (
            "Worst gaps",
            ("instance", "kind", "objective", "bound", "gap"),
            [(line.instance, line.kind, line.objective, line.bound, line.gap) for line in gaps[:_TOP]],
        ),
        (
            "To run again",
            ("instance", "ended by", "run again with", "message"),
            [(line.instance, line.cut_off or line.status, line.remedy, line.message) for line in again],
        ),
    ]
    names = ("title", "columns", "rows")
    return [dict(zip(names, table, strict=True)) for table in found if table[2]]


def _groups(lines: Sequence[Line]) -> list[tuple[Any, ...]]:
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.kind, line.status), []).append(line)
    rows = []
    for (kind, status), members in sorted(groups.items()):
        ordered, many = sorted(members, key=lambda line: line.seconds), len(members)
        within = (ordered[-(-many * share // 10) - 1] for share in (5, 9, 10))
        total = sum(line.seconds for line in members)
        seconds = (f"{value:.3f}" for value in (total, *(line.seconds for line in within)))
        rows.append((kind, status, many, *seconds, ordered[-1].instance))
    return rows


def write_page(path: Path, lines: Sequence[Line]) -> None:
    """Write the tables of a run as one self-contained HTML page."""
    tables = summary_tables(lines)
    parts = [_html(**table) for table in tables]
    page = _PAGE.format(title=escape(tables[0]["title"]), tables="\n".join(parts))
    write_atomically(path, page.encode("utf-8", "backslashreplace"))


def _html(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    cells = ("".join(f"<td>{escape(text_of(cell))}</td>" for cell in row) for row in rows)
    body = "\n".join(f"<tr>{row}</tr>" for row in cells)
    return f"<h2>{escape(title)}</h2>\n<table><tr>{head}</tr>\n{body}</table>"


def print_json(record: dict[str, Any]) -> None:
    """Print one object on one line, at once."""
    typer.echo(json.dumps(record, allow_nan=False))


def trouble(record: dict[str, Any]) -> str:
    """Return the problem with an instance, for standard error; empty if it was solved and not cut off."""
    if record["status"] in SOLVED and not record.get("cut_off"):
        return ""
    message = _why(record)
    named = message.startswith(record["instance"])
    text = message if named else f"{record['instance']}: {message}"
    return text if record["status"] == "error" else f"{text.rstrip('.')} ({record['status']})"


def _why(record: dict[str, Any]) -> str:
    """Return the explanation of an infeasible problem together with the solution's own message."""
    said, message = (record["explanation"] or {}).get("message") or "", record["message"]
    return message if said in message else f"{said} {message}".strip()


def print_report(finished: Sequence[Finished], *, verbose: bool = False, listed: bool = True) -> None:
    """Print answers of short runs, comparisons, and the summary; `trouble` has already reported a single error."""
    out = console()
    if listed and len(finished) == 1:
        if finished[0].record["status"] != "error":
            _print_one(finished[0], out, verbose)
    elif listed:
        out.print(_summary([item.record for item in finished]))
    for item in finished:
        comparison = item.record.get("comparison")
        if comparison:
            _print_comparison(item.record["instance"], comparison, out)


def _print_one(item: Finished, out: Any, verbose: bool) -> None:
    record, display = item.record, item.display
    if "table" in display:
        out.print(rows_table(**display["table"]))
    facts = {key: record[key] for key in ("instance", "kind", "model", "engine", "status", "objective", "bound", "gap")}
    facts |= record["metrics"]
    if record["explanation"]:
        facts["why"] = _why(record)
        facts |= {key: _few(names) for key, names in record["explanation"].items() if key != "message" and names}
    elif record["message"] and (record["status"] not in SOLVED or record.get("cut_off")):
        facts["message"] = record["message"]
    seconds = {key: value for key, value in record["seconds"].items() if value is not None}
    facts["seconds"] = ", ".join(f"{key} {value:.3f}" for key, value in seconds.items()) or None
    if record["solution"]:
        facts["solution file"] = record["solution"]
    out.print(facts_table("Result", facts))
    if "certificate" in display:
        summary, *checks = display["certificate"].splitlines()
        out.print("\n".join([f"Certificate: {summary}", *(checks if verbose else ())]), markup=False)


def _print_comparison(instance: str, comparison: dict[str, Any], out: Any) -> None:
    rows = comparison.get("rows")
    if not rows:
        out.print(f"No comparison of {instance}: {comparison.get('message', 'nothing to compare')}", markup=False)
        return
    columns, table = list(rows[0]), [list(row.values()) for row in rows]
    if len(columns) > _NARROW:  # one column per policy reads better than one per figure
        columns, *table = map(list, zip(columns, *table, strict=True))
    out.print(rows_table(f"Comparison: {instance}", columns, table))


def _summary(records: Sequence[dict[str, Any]]) -> Any:
    title = summary_tables(list(map(Line.of, records)))[0]["title"]
    columns = ("instance", "kind", "engine", "status", "objective", "gap", "certified", "seconds")
    return rows_table(title, columns, [_row(record) for record in records])


def print_summary(lines: Sequence[Line]) -> None:
    """Print the tables of a long run, each with at most `PREVIEW_ROWS` rows, except the counts."""
    for table in summary_tables(lines):
        rows = table["rows"]
        most = len(rows) if table["columns"][0] == "kind" else PREVIEW_ROWS
        console().print(rows_table(**table | {"rows": rows[:most]}, total=len(rows)))


def _row(record: dict[str, Any]) -> tuple[Any, ...]:
    certified = {True: "yes", False: "FAILS", None: "-"}[record["certificate"]["ok"]]
    head = tuple(record[key] for key in ("instance", "kind", "engine", "status", "objective", "gap"))
    return (*head, certified, f"{Line.of(record).seconds:.3f}")


def _few(names: Sequence[Any], limit: int = 10) -> str:
    shown = ", ".join(text_of(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
