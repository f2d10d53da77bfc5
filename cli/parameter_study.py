"""``flowlex study``: one table of many solves, interrupted and resumed like a batch."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from flowlex.cli.console_output import note
from flowlex.cli.options import (
    EngineOption,
    GapOption,
    MemoryLimitOption,
    SettingsOption,
    TimeLimitOption,
    named_texts,
    parse_settings,
    place,
)
from flowlex.instances.input_errors import counted


def study(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Instance files or folders.", parser=place)],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for study.csv and a folder per combination.")
    ],
    over: Annotated[
        list[str] | None,
        typer.Option("--over", metavar="KEY=V1,V2", help="An option with the values to try; repeat for more."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--changes", metavar="NAME=FILE", help="Changes to try beside the unchanged model; repeatable."),
    ] = None,
    settings: SettingsOption = None,
    engine: EngineOption = "auto",
    time_limit: TimeLimitOption = None,
    gap: GapOption = 0.0,
    memory_limit: MemoryLimitOption = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, metavar="N", help="Processes.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Skip what DIR already holds.")] = False,
) -> None:
    """Solve instance files under every combination of options and changes, into one table.

    Each combination has a folder of its own in DIR, with solution files and results.jsonl as `flowlex solve` writes
    them; DIR/study.csv has a line for each instance and combination. Exit codes are those of `flowlex solve`.
    """
    from flowlex.cli.batch_runner import Batch, Job, opened
    from flowlex.cli.solve import find_files, run_batch
    from flowlex.instances.model_changes import read_changes
    from flowlex.models.parameter_study import combinations

    fixed = parse_settings(settings)
    varied = _varied(over)
    if both := fixed.keys() & varied.keys():
        raise typer.BadParameter(f"{min(both)!r} is in --set and in --over", param_hint="--over")
    sets: dict[str, dict[str, Any] | None] = {"unchanged": None}
    for name, file in named_texts(changes, "NAME=FILE", "--changes").items():
        if name in sets:
            raise typer.BadParameter("'unchanged' names the model without changes", param_hint="--changes")
        sets[name] = read_changes(file).plain()
    files = find_files(context, list(paths), output, None, None)
    code, lines = 0, []
    extra: dict[str, Any] = {} if memory_limit is None else {"memory_limit_mb": memory_limit}
    for chosen in combinations(varied):
        for name, document in sets.items():
            labels = {**chosen, **({"changes": name} if changes else {})}
            folder = output / (_folder(labels) or "all")
            values = {**fixed, **chosen, **({"changes": document} if document else {})}
            options = {
                "engine": engine,
                "settings": values,
                "time_limit_s": time_limit,
                "gap": gap,
                "compare": False,
            }
            note(f"{folder.name}: {counted(len(files), 'file')}")
            with opened(folder) as (journal, _):
                todo = list(map(Job.solving, files))
                batch = Batch(todo, options | extra, journal=journal, processes=jobs, resume=resume)
                code = max(code, run_batch(batch, json_lines=False))
            lines += _lines(folder / "results.jsonl", labels)
    _write(output / "study.csv", lines)
    note(f"{output / 'study.csv'}: {counted(len(lines), 'line')}")
    raise typer.Exit(code)


def _varied(over: list[str] | None) -> dict[str, list[str]]:
    found = {}
    for name, values in named_texts(over, "KEY=VALUE,VALUE", "--over", dashes=False).items():
        found[name] = [value.strip() for value in values.split(",") if value.strip()]
        if not found[name]:
            raise typer.BadParameter(f"{f'{name}={values}'!r} is not KEY=VALUE,VALUE", param_hint="--over")
    return found


def _folder(labels: dict[str, Any]) -> str:
    """Name of the folder of a combination."""
    return re.sub(r"[^\w=.,-]+", "_", ",".join(f"{key}={value}" for key, value in labels.items()))[:150]


def _lines(path: Path, labels: dict[str, Any]) -> list[dict[str, Any]]:
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(text)
        seconds = sum(each or 0.0 for each in record["seconds"].values())
        kept = {key: record[key] for key in ("status", "objective", "bound", "gap", "message")}
        claim = {"claim": record["certificate"]["claim"]}
        lines.append(
            {"instance": record["instance"], **labels, **kept, **claim, "seconds": seconds, **record["metrics"]}
        )
    return lines


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    from flowlex.instances.file_storage import write_atomically

    columns = list(dict.fromkeys(key for line in lines for key in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    writer.writerows(lines)
    write_atomically(path, text.getvalue().encode())
