"""``flowlex import``: public traces as instance files and event logs."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Annotated

import typer

from flowlex.cli.output import note, text_of, write_output

__all__ = ["app"]

app = typer.Typer(
    name="import",
    help="Turn public traces into instance files and event logs.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _group() -> None:
    """Turn public traces into instance files and event logs."""


@app.command()
def openb(
    nodes: Annotated[Path, typer.Argument(metavar="NODES", help="openb_node_list_*.csv, plain or gzip.")],
    pods: Annotated[Path, typer.Argument(metavar="PODS", help="openb_pod_list_*.csv, plain or gzip.")],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help=".json or .json.gz; '-': standard output.")
    ],
    at: Annotated[
        float | None, typer.Option("--at", metavar="S", help="Only pods that exist at this second of the trace.")
    ] = None,
    most_pods: Annotated[
        int | None, typer.Option("--pods", min=0, metavar="N", help="Only the first N of them, as listed.")
    ] = None,
    most_nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, metavar="N", help="Only the first N nodes.")
    ] = None,
) -> None:
    """Read node and pod list of the public Alibaba GPU-sharing trace as a pod-placement instance.

    Thousandths of a card become shares of a card; `gpu_spec` the card models that a pod takes; qos its priority
    (LS and Guaranteed 3, Burstable 2, BE 1). Exit code 2 when a file is not what it should be; the message names
    file and line.
    """
    from flowlex.instances.importers.openb import read_openb

    instance = read_openb(nodes, pods, at_s=at, most_pods=most_pods, most_nodes=most_nodes)
    data = (instance.model_dump_json(indent=1) + "\n").encode()
    write_output(output, gzip.compress(data, mtime=0) if output.endswith(".gz") else data)
    if output != "-":
        sizes = list(instance.summary().items())[:4]
        note(f"{output}: {instance.kind}: {', '.join(f'{what} {text_of(size)}' for what, size in sizes)}")


@app.command()
def google(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Holds task_events/, machine_events/ and so on.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Event log (JSON lines).")],
    until: Annotated[float | None, typer.Option("--until", metavar="S", help="Stop after this many seconds.")] = None,
    step: Annotated[float, typer.Option("--step", metavar="S", help="Seconds between decisions.")] = 60.0,
    slots: Annotated[int, typer.Option("--slots", min=1, help="Slots of a machine of CPU capacity 1.")] = 24,
    apart: Annotated[
        bool, typer.Option("--apart/--anywhere", help="Keep the rule that tasks of a flagged job run apart.")
    ] = True,
) -> None:
    """Read the tables of the 2011 Google cluster trace as an event log for ``flowlex replay``.

    Exit code 2 when a table is not what it should be; the message names file and line.
    """
    from flowlex.instances.base import InstanceError
    from flowlex.instances.events import write_event_log
    from flowlex.instances.importers.google import google_trace_events

    if not step > 0:
        raise InstanceError(f"--step is {step:g}; it must be a positive number of seconds")
    events = google_trace_events(folder, slots_per_unit=slots, step_s=step, until_s=until, different_machines=apart)
    write_event_log(events, output)
    note(f"{output}: event log")
