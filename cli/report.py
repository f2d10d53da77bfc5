"""What a run prints: JSON lines for programs, tables for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer

from flowlex.cli.output import console, facts_table, rows_table
from flowlex.cli.pool import Finished
from flowlex.cli.record import SOLVED
from flowlex.cli.summary import Line, summary_tables
from flowlex.cli.table_cells import PREVIEW_ROWS, text_of

__all__ = ["print_json", "print_report", "print_summary", "trouble"]

#: Comparisons with more figures are turned on their side.
_NARROW = 8


def print_json(record: dict[str, Any]) -> None:
    """Print one object on one line, at once."""
    typer.echo(json.dumps(record, allow_nan=False))


def trouble(record: dict[str, Any]) -> str:
    """What is wrong with an instance, for standard error; empty when it is solved and nothing cut that off."""
    if record["status"] in SOLVED and not record.get("cut_off"):
        return ""
    message = (record["explanation"] or {}).get("message") or record["message"]
    named = message.startswith(record["instance"])
    text = message if named else f"{record['instance']}: {message}"
    return text if record["status"] == "error" else f"{text.rstrip('.')} ({record['status']})"


def print_report(finished: Sequence[Finished], *, verbose: bool = False, listed: bool = True) -> None:
    """Print answers of short runs, comparisons, and the summary; of a single error `trouble` has said all."""
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
        facts["why"] = record["explanation"]["message"]
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
    title = summary_tables(list(map(Line.of, records)))[0].title
    columns = ("instance", "kind", "engine", "status", "objective", "gap", "certified", "seconds")
    return rows_table(title, columns, [_row(record) for record in records])


def print_summary(lines: Sequence[Line]) -> None:
    """Print the tables of a long run, each to so many rows."""
    for table in summary_tables(lines):
        most = len(table.rows) if table.columns[0] == "kind" else PREVIEW_ROWS
        console().print(rows_table(table.title, table.columns, table.rows[:most], total=len(table.rows)))


def _row(record: dict[str, Any]) -> tuple[Any, ...]:
    certified = {True: "yes", False: "FAILS", None: "-"}[record["certificate"]["ok"]]
    head = tuple(record[key] for key in ("instance", "kind", "engine", "status", "objective", "gap"))
    return (*head, certified, f"{Line.of(record).seconds:.3f}")


def _few(names: Sequence[Any], limit: int = 10) -> str:
    shown = ", ".join(text_of(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
