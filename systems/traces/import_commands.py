"""Commands of ``flowlex import``: public traces and CSV tables as instance files and event logs."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowlex.cli.completion import kinds_starting
from flowlex.cli.console_output import console, note, noted, refuse_existing, rows_table, write_instance_output
from flowlex.cli.options import ForceOption, InstanceOutput, SettingsOption, named_texts, parse_settings

if TYPE_CHECKING:
    from flowlex.instances.instance_base import Instance


def openb(
    nodes: Annotated[Path, typer.Argument(metavar="NODES", help="openb_node_list_*.csv, plain or gzip.")],
    pods: Annotated[Path, typer.Argument(metavar="PODS", help="openb_pod_list_*.csv, plain or gzip.")],
    output: InstanceOutput,
    at: Annotated[
        float | None, typer.Option("--at", metavar="S", help="Only pods that exist at this second of the trace.")
    ] = None,
    most_pods: Annotated[
        int | None, typer.Option("--most-pods", min=0, metavar="N", help="Only the first N of them, as listed.")
    ] = None,
    most_nodes: Annotated[
        int | None, typer.Option("--most-nodes", min=1, metavar="N", help="Only the first N nodes.")
    ] = None,
    flow: Annotated[
        bool, typer.Option("--flow", help="As flow scheduling with capacities; the cards of a node are one amount.")
    ] = False,
    force: ForceOption = False,
) -> None:
    """Read node and pod list of the public Alibaba GPU-sharing trace as a pod-placement instance.

    With ``--flow``, pods become tasks that ask for CPU cores, GB and GPUs, and nodes machines that have them.
    Thousandths of a card become shares of a card; `gpu_spec` the card models that a pod takes; qos its priority
    (LS and Guaranteed 3, Burstable 2, BE 1). Exit code 2 when a file is not what it should be; the message names
    file and line.
    """
    from flowlex.systems.traces.openb import read_openb
    from flowlex.systems.traces.pods_as_tasks import flow_of_pods

    read = functools.partial(read_openb, nodes, pods, at_s=at, most_pods=most_pods, most_nodes=most_nodes)
    refuse_existing(force, output)
    instance = noted(read)
    write_instance_output(flow_of_pods(instance) if flow else instance, output)


def coflow(
    trace: Annotated[
        Path, typer.Argument(metavar="FILE", help="A coflow trace (FB2010-1Hr-150-0.txt), plain or gzip.")
    ],
    output: InstanceOutput,
    settings: SettingsOption = None,
    force: ForceOption = False,
) -> None:
    """Read a coflow trace as an instance of just-in-time bandwidth.

    ``--set`` takes rate_mbps, slack, slot_s, unit_mb and first. Exit code 2 when the file is not what it should be; the
    message names file and line.
    """
    from flowlex.systems.traces.coflow import read_coflow_trace

    refuse_existing(force, output)
    known = [name for name in inspect.signature(read_coflow_trace).parameters if name != "path"]
    values: dict[str, Any] = {}
    for name, text in parse_settings(settings).items():
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint="--set")
        try:
            values[name] = int(text) if name == "first" else float(text)
        except (TypeError, ValueError):
            raise typer.BadParameter(f"{name}={text!r} is not a number", param_hint="--set") from None
    write_instance_output(read_coflow_trace(trace, **values), output)


def csv(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE=FILE...", help="Tables of the kind, such as jobs=jobs.csv.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="What they describe.", autocompletion=kinds_starting)
    ] = "",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help=".json or .json.gz; '-': standard output.")
    ] = "",
    settings: SettingsOption = None,
    columns: Annotated[bool, typer.Option("--columns", help="List the tables of KIND and their columns.")] = False,
    force: ForceOption = False,
) -> None:
    """Read CSV files of your own, one per table of a kind of instance.

    A row of a nested table names its parents (a task its job); lists are joined by ';', mappings are key=value;... An
    empty cell is the field's default. --set gives the plain fields of the document, such as name or disk_mb_per_s.
    --columns lists tables and columns. Exit code 2 when a cell is not what it should be; the message names file, line
    and column.
    """
    from flowlex.instances.extensions import instance_class, kinds
    from flowlex.systems.traces.csv_tables import read_csv_tables

    if kind not in kinds():
        raise typer.BadParameter(f"{kind!r} is none of {', '.join(kinds())}", param_hint="--kind")
    if columns:
        _print_columns(instance_class(kind))
        return
    refuse_existing(force, output)
    paths = {name: Path(path) for name, path in named_texts(tables, "TABLE=FILE", "TABLE=FILE").items()}
    if not paths or not output:
        raise typer.BadParameter("which tables, and where to? TABLE=FILE... -o FILE; --columns lists the tables")
    write_instance_output(read_csv_tables(kind, paths, parse_settings(settings)), output)


def _print_columns(cls: type[Instance]) -> None:
    from flowlex.instances.instance_tables import WHOLE, tables_of

    rows = []
    for table in tables_of(cls).everywhere():
        needed = {*table.parents.values(), *table.required}
        name = "--set" if table.name == WHOLE else table.name
        names = [*table.parents.values(), *(column for column in table.columns if column not in ("kind", "version"))]
        rows += [(name, column, "yes" if column in needed else "") for column in names]
    console().print(rows_table("Tables", ("table", "column", "needed"), rows))


def google(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Holds task_events/, machine_events/ and so on.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Event log (JSON lines).")],
    until: Annotated[float | None, typer.Option("--until", metavar="S", help="Stop after this many seconds.")] = None,
    step: Annotated[float, typer.Option("--step", metavar="S", help="Seconds between decisions.")] = 60.0,
    slots: Annotated[
        int | None,
        typer.Option("--slots", min=1, help="Slots of a machine of CPU 1 (24); with --at of any (110)."),
    ] = None,
    apart: Annotated[
        bool, typer.Option("--apart/--anywhere", help="Keep the rule that tasks of a flagged job run apart.")
    ] = True,
    at: Annotated[
        float | None,
        typer.Option("--at", metavar="S", help="Instead an instance, with capacities, of what is there then."),
    ] = None,
    most_jobs: Annotated[
        int | None, typer.Option("--most-jobs", min=1, metavar="N", help="With --at: only the first N jobs there.")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Read the tables of the 2011 Google cluster trace as an event log for ``flowlex replay``.

    With ``--at``, machines with their CPU and memory and the tasks that are there become an instance to solve.
    Exit code 2 when a table is not what it should be; the message names file and line.
    """
    from flowlex.instances.instance_base import InstanceError
    from flowlex.systems.scheduler.event_log import write_event_log
    from flowlex.systems.traces.google import google_trace_events
    from flowlex.systems.traces.google_snapshot import google_snapshot

    if not step > 0:
        raise InstanceError(f"--step is {step:g}; it must be a positive number of seconds")
    refuse_existing(force, output)
    counts: Counter[str] = Counter()
    options: dict[str, Any] = {"counts": counts, "different_machines": apart}
    if at is not None:
        if until is not None or step != 60.0:
            raise typer.BadParameter("an instance has no --until and no --step; drop them", param_hint="--at")
        more: dict[str, Any] = {"slots": slots or 110, "most_jobs": most_jobs}
        write_instance_output(google_snapshot(folder, at, **more, **options), str(output))
    else:
        if most_jobs is not None:
            raise typer.BadParameter(
                "counts jobs that are there at one time; give that with --at", param_hint="--most-jobs"
            )
        events = google_trace_events(folder, slots_per_unit=slots or 24, step_s=step, until_s=until, **options)
        write_event_log(events, output)
        note(f"{output}: event log")
    for what, count in counts.items():
        if count:
            note(f"{count} {what}")
