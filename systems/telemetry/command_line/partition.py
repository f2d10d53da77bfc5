"""``flowlex run-partition``: partition items, run a program on each node's share, write how long each took."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flowlex.cli.console_output import complain, note
from flowlex.instances.input_errors import counted

if TYPE_CHECKING:
    from pydantic import JsonValue

    from flowlex.instances.load import LoadPartitionInstance
    from flowlex.systems.telemetry.command_line.partition_dispatch import Finished


#: Variable with a token that may write for every node; on a command line others could see it.
WRITER_VARIABLE = "FLOWLEX_TELEMETRY_WRITER_TOKEN"
Evaluation = Literal["configuration", "cpu_load", "history", "performance"]


def run_partition(
    context: typer.Context,
    command: Annotated[list[str], typer.Argument(help="After --: program and arguments, with {node} and {items}.")],
    instance: Annotated[Path | None, typer.Option(help="Instance file of a load partition.")] = None,
    from_telemetry: Annotated[
        str | None, typer.Option(metavar="URL", help="The live values of a node information service instead.")
    ] = None,
    max_age: Annotated[float, typer.Option(min=0.0, metavar="SECONDS", help="Older live values are left out.")] = 60.0,
    capacity: Annotated[Evaluation, typer.Option(help="How a node's capacity is evaluated.")] = "configuration",
    objective: Annotated[Literal["targets", "makespan"], typer.Option(help="See the model.")] = "targets",
    level: Annotated[Literal["node", "item"], typer.Option(help="item: replicas serve as well.")] = "node",
    rounds: Annotated[int, typer.Option(min=1, max=1_000, help="Partition and run so often; from history later.")] = 1,
    time_limit: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="For one node's program.")] = 3_600.0,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for logs and runs.jsonl.")
    ] = Path("run-partition"),
) -> None:
    """Partition items over nodes, run a program on every node's share at once, and keep how long each took.

    Each program gets {"node", "items", "blocks"} on its standard input, and FLOWLEX_NODE and FLOWLEX_ITEMS. The times
    go to DIR/runs.jsonl, and to the service as `run_history` when FLOWLEX_TELEMETRY_WRITER_TOKEN holds a token of role
    agent for any node. With more rounds, each next partition uses the speeds measured so far.

    Exit code 1: a program failed; its time is not kept.
    """
    if (instance is None) == (from_telemetry is None):
        raise typer.BadParameter("give an instance file or --from-telemetry URL, one of them", param_hint="--instance")
    problem = _problem(context, instance, from_telemetry, max_age, output)
    failed = False
    for number in range(1, rounds + 1):
        history = number > 1 and all(node.history for node in problem.nodes)
        options = {"capacity": "history" if history else capacity, "objective": objective, "level": level}
        runs = _round(problem, options, command, time_limit, output / f"round-{number}")
        _keep(runs, number, output / "runs.jsonl")
        if from_telemetry is not None:
            _report(runs, from_telemetry)
        failed = failed or any(run.problem for run in runs)
        problem = _learned(problem, runs)
    raise typer.Exit(1 if failed else 0)


def _problem(
    context: typer.Context, instance: Path | None, url: str | None, max_age: float, output: Path
) -> LoadPartitionInstance:
    from flowlex.instances.files import read_instance
    from flowlex.instances.load import LoadPartitionInstance
    from flowlex.systems.telemetry.command_line.telemetry_options import snapshot

    output.mkdir(parents=True, exist_ok=True)
    if url is not None:
        instance = snapshot(context, url, output, max_age_s=max_age)
    assert instance is not None
    found = read_instance(instance)
    if not isinstance(found, LoadPartitionInstance):
        raise typer.BadParameter(f"{instance} is a {found.kind}; a load-partition is needed", param_hint="--instance")
    return found


def _round(
    problem: LoadPartitionInstance, options: dict[str, Any], command: list[str], time_limit: float, logs: Path
) -> list[Finished]:
    from flowlex.models.load.model import LoadPartition
    from flowlex.systems.telemetry.command_line.partition_dispatch import dispatch

    solution = LoadPartition(problem, **options).solve()
    if solution.share is None:
        complain(f"no partition: {solution.status}")
        raise typer.Exit(1)
    shares = {
        node.name: {
            block.name: int(count) for block, count in zip(problem.blocks, solution.share[:, n], strict=True) if count
        }
        for n, node in enumerate(problem.nodes)
    }
    runs = dispatch(shares, command, timeout_s=time_limit, logs=logs)
    slowest = max((run.seconds for run in runs), default=0.0)
    moved = counted(solution.moved_items, "item")
    note(f"{logs.name}, capacity by {options['capacity']}: {moved} moved, {slowest:.2f} s")
    for run in runs:
        line = f"  {run.node}: {counted(run.items, 'item')} in {run.seconds:.2f} s"
        (complain if run.problem else note)(f"{line}{': ' + run.problem if run.problem else ''}")
    return runs


def _keep(runs: list[Finished], number: int, path: Path) -> None:
    """Append the times to a file of JSON lines."""
    good = [run for run in runs if not run.problem]
    lines = [{"round": number, "node": run.node, "items": run.items, "seconds": run.seconds} for run in good]
    with path.open("a") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in lines))


def _report(runs: list[Finished], url: str) -> None:
    """Write the times to the service, one sample per node."""
    token = os.environ.get(WRITER_VARIABLE)
    if not token:
        note(f"the times are not written to the service: {WRITER_VARIABLE} holds no token")
        return
    from flowlex.systems.telemetry.command_line.telemetry_options import authority
    from flowlex.systems.telemetry.http_client import TelemetryClient
    from flowlex.systems.telemetry.request_documents import Sample

    with TelemetryClient(url, token, ca_file=authority()) as client:
        for run in (run for run in runs if not run.problem):
            value: JsonValue = {"items": run.items, "seconds": run.seconds}
            sample = Sample(name="run_history", time=time.time(), value=value, seq=1)
            client.write(run.node, [sample], f"run-partition-{uuid.uuid4().hex}")


def _learned(problem: LoadPartitionInstance, runs: list[Finished]) -> LoadPartitionInstance:
    """Return the instance with the new times added to the nodes' histories."""
    from flowlex.instances.load import RunRecord

    took = {run.node: RunRecord(items=run.items, seconds=run.seconds) for run in runs if not run.problem}
    nodes = [
        node.model_copy(update={"history": (*node.history, took[node.name])}) if node.name in took else node
        for node in problem.nodes
    ]
    return problem.model_validate({**problem.model_dump(), "nodes": [node.model_dump() for node in nodes]})
