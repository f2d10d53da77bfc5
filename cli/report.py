"""What a run prints: JSON lines for programs, tables for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import typer

from flowlex.cli.output import console, facts_table, rows_table
from flowlex.cli.pool import Finished
from flowlex.cli.record import SOLVED
from flowlex.cli.table_cells import text_of

__all__ = ["print_json", "print_report", "trouble"]

#: Longer runs are summed up by kind and status.
_LISTED = 60
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


def print_report(finished: Sequence[Finished], *, verbose: bool = False) -> None:
    """Print answers of short runs, comparisons, and the summary; of a single error `trouble` has said all."""
    out = console()
    if len(finished) == 1:
        if finished[0].record["status"] != "error":
            _print_one(finished[0], out, verbose)
    else:
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
    counts = Counter(record["status"] for record in records)
    title = f"{len(records)} instances: " + ", ".join(f"{n} {status}" for status, n in counts.most_common())
    if len(records) <= _LISTED:
        columns = ("instance", "kind", "engine", "status", "objective", "gap", "certified", "seconds")
        return rows_table(title, columns, [_row(record) for record in records])
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["kind"] or "-", record["status"]), []).append(record)
    rows = []
    for (kind, status), members in sorted(groups.items()):
        times = [_total_s(record) for record in members]
        slowest = members[times.index(max(times))]["instance"]
        rows.append((kind, status, len(members), f"{sum(times):.3f}", f"{max(times):.3f}", slowest))
    return rows_table(title, ("kind", "status", "instances", "seconds", "longest", "slowest instance"), rows)


def _row(record: dict[str, Any]) -> tuple[Any, ...]:
    certified = {True: "yes", False: "FAILS", None: "-"}[record["certificate"]["ok"]]
    head = tuple(record[key] for key in ("instance", "kind", "engine", "status", "objective", "gap"))
    return (*head, certified, f"{_total_s(record):.3f}")


def _total_s(record: dict[str, Any]) -> float:
    return float(sum(value for value in record["seconds"].values() if value is not None))


def _few(names: Sequence[Any], limit: int = 10) -> str:
    shown = ", ".join(text_of(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
