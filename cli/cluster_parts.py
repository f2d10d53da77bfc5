"""``flowlex cut`` and ``flowlex join``: a cluster of flow scheduling in parts, and what the cut costs at most."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowlex.cli.console_output import complain, console, note, refuse_existing, rows_table, write_output
from flowlex.cli.input_files import SOLUTION_SUFFIX, discover, solution_stem
from flowlex.cli.options import ForceOption, InstanceFile, SchedulerOption, check_scheduler

if TYPE_CHECKING:
    from flowlex.instances.flow import FlowInstance


def cut(
    file: InstanceFile,
    parts: Annotated[int, typer.Option("--parts", metavar="K", min=1, help="Number of parts, at most that of racks.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the files of the parts.")],
    force: ForceOption = False,
) -> None:
    """Cut the cluster of a flow-scheduling instance by racks into parts, a file each.

    Solve them with `flowlex solve DIR -o OUT` (--jobs, --scheduler), then join: `flowlex join OUT DIR`.
    """
    from flowlex.instances.files import instance_bytes
    from flowlex.instances.flow_partition import cut as cut_cluster

    made = cut_cluster(_cluster(file), parts)
    width = len(str(parts))
    paths = [str(output / f"{solution_stem(file)}-{k:0{width}}.json.gz") for k in range(1, parts + 1)]
    refuse_existing(force, *paths)
    output.mkdir(parents=True, exist_ok=True)
    for path, part in zip(paths, made, strict=True):
        write_output(path, instance_bytes(part, path))
    facts = [part.summary() for part in made]
    slots, tasks = ([int(each[what]) for each in facts] for what in ("slots", "tasks"))
    note(f"{output}: {parts} parts of {min(slots)} to {max(slots)} slots and {min(tasks)} to {max(tasks)} tasks")


def join(
    solutions: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the parts' solution files.")],
    instances: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the parts' instance files.")],
    cluster: Annotated[
        Path | None, typer.Option("--cluster", metavar="FILE", help="The instance that was cut, to write its solution.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Solution file of the cluster, with its proof.")
    ] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, metavar="N", help="Processes.")] = 1,
    scheduler: SchedulerOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    force: ForceOption = False,
) -> None:
    """Join the solutions of the parts of a cluster, and prove what the cut costs at most.

    Each solution is verified. Prices of the machines in all parts together bound the whole cluster, exactly. With
    --cluster and -o, the joined solution is written as a file that `flowlex verify` judges. On a cluster of workers
    (--scheduler), the two folders must be there under the same names. Exit code 0; 2: files are missing or are not the
    parts of one cluster.
    """
    from flowlex.cli.subtasks import distributed_subtasks
    from flowlex.models.process_pool import side_by_side
    from flowlex.validation.restated.flow.joined_parts import join as join_parts

    if (cluster is None) != (output is None):
        raise typer.BadParameter("--cluster FILE and -o FILE go together", param_hint="-o")
    refuse_existing(force, output)
    check_scheduler(scheduler, jobs)
    pairs = _pairs(solutions, instances) if scheduler is None else _pairs(solutions.resolve(), instances.resolve())
    whole = None if cluster is None else _cluster(cluster)
    task: dict[str, Any] = {"instance": "join", "processes": jobs, "scheduler": scheduler}
    with distributed_subtasks(task):
        joined = join_parts(pairs, whole, lambda function, items: side_by_side(function, items))
    if output is not None and cluster is not None:
        write_output(output, json.dumps({**(joined.document or {}), "file": cluster.name}).encode())
    if as_json:
        stages = {stage.name: {"value": stage.value, "at_least": stage.bound} for stage in joined.stages}
        facts = {name: getattr(joined, name) for name in ("parts", "machines", "tasks", "gap")}
        typer.echo(json.dumps(facts | {"stages": stages}))
        return
    title = f"{joined.parts} parts, {joined.machines} machines, {joined.tasks} tasks"
    rows = [(s.name, s.value, s.bound, None if s.bound is None else s.value - s.bound) for s in joined.stages]
    console().print(rows_table(title, ("stage", "value", "proven: at least", "cost of the cut, at most"), rows))


def _cluster(file: Path) -> FlowInstance:
    from flowlex.instances.files import read_instance
    from flowlex.instances.flow import FlowInstance

    found = read_instance(file)
    if not isinstance(found, FlowInstance):
        complain(f"{file}: expected an instance of kind 'flow-scheduling', got {found.kind!r}")
        raise typer.Exit(2)
    return found


def _pairs(solutions: Path, instances: Path) -> list[tuple[str, str]]:
    """The instance file of each part with its solution file, found by name as `flowlex solve` writes it."""
    files = [file for file in discover([instances]).files if file.is_file()]
    found, missing = list[tuple[str, str]](), list[str]()
    for file in files:
        named = [solutions / f"{solution_stem(file)}{SOLUTION_SUFFIX}{gz}" for gz in ("", ".gz")]
        at = next((path for path in named if path.is_file()), None)
        if at is None:
            missing.append(file.name)
        else:
            found.append((str(file), str(at)))
    twice = [name for name, times in Counter(solution for _, solution in found).items() if times > 1]
    if missing or twice or not files:
        several = f"{len(missing)} of {len(files)} parts have no solution in {solutions}: {', '.join(missing[:5])}"
        remedy = "`flowlex solve ... --resume` solves what is left"
        doubled = f"several parts have the solution {twice[0]}" if twice else f"{instances}: no instance files"
        complain(f"{several}; {remedy}" if missing else doubled)
        raise typer.Exit(2)
    return found
