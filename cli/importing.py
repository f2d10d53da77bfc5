"""``flowlex import``: public traces as instance files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Annotated

import typer

from flowlex.cli.output import note, text_of, write_output

__all__ = ["app"]

app = typer.Typer(
    name="import", help="Turn public traces into instance files.", no_args_is_help=True, add_completion=False
)


@app.callback()
def _group() -> None:
    """Turn public traces into instance files."""


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
    from flowlex.instances.openb import read_openb

    instance = read_openb(nodes, pods, at_s=at, most_pods=most_pods, most_nodes=most_nodes)
    data = (instance.model_dump_json(indent=1) + "\n").encode()
    write_output(output, gzip.compress(data, mtime=0) if output.endswith(".gz") else data)
    if output != "-":
        sizes = list(instance.summary().items())[:4]
        note(f"{output}: {instance.kind}: {', '.join(f'{what} {text_of(size)}' for what, size in sizes)}")
