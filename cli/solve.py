"""``flowlex solve``: one instance file or thousands, each to a certified answer or a reason why not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowlex.cli.console_output import Progress, complain, note
from flowlex.cli.options import (
    EngineOption,
    GapOption,
    LogOption,
    MemoryLimitOption,
    SchedulerOption,
    SeedOption,
    SolverOption,
    ThreadsOption,
    TimeLimitOption,
    check_scheduler,
    place,
    settings_of,
    with_options,
)
from flowlex.instances.input_errors import counted

if TYPE_CHECKING:
    from flowlex.cli.batch_runner import Batch
    from flowlex.cli.worker_pool import Finished


_PATHS = (
    "Instance and model files, '-' for standard input, or folders: then every such file directly in them (*.json, "
    "*.mps, *.lp, *.min, *.dimacs, *.net, .gz). Also URLs: s3://, gs://, https:// or another that fsspec knows."
)


@with_options(values=settings_of)
def solve(
    context: typer.Context,
    paths: Annotated[list[Path] | None, typer.Argument(metavar="PATH...", help=_PATHS, parser=place)] = None,
    engine: EngineOption = "auto",
    time_limit: TimeLimitOption = None,
    gap: GapOption = 0.0,
    memory_limit: MemoryLimitOption = None,
    solver: SolverOption = None,
    threads: ThreadsOption = None,
    seed: SeedOption = None,
    log: LogOption = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Folder for solution files and results.jsonl."),
    ] = None,
    json_lines: Annotated[
        bool, typer.Option("--json", help="One JSON object per instance on standard output.")
    ] = False,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, metavar="N", help="Processes.")] = 1,
    scheduler: SchedulerOption = None,
    wait_workers: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="Seconds to wait for workers of --scheduler; if not given, 60 for the first, 600 later.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Skip what results.jsonl in DIR already holds.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print every check of the certificate.")] = False,
    compare: Annotated[bool, typer.Option("--compare", help="Also tabulate the policies and baselines.")] = False,
    from_telemetry: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Solve what a node information service holds now (load partition)."),
    ] = None,
    max_age: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="Nodes with older live values are left out; 60 if not given."),
    ] = None,
    *,
    values: dict[str, Any],
) -> None:
    """Solve instance files to certified answers.

    Exit code 0: every instance has an answer (optimal or feasible). 1: some have none (infeasible, unbounded, time
    limit, error). 2: wrong usage, such as a path that does not exist, or options that no instance understands.

    The time limit covers reading, building and solving one instance; a process that does not stop by itself is
    killed a little later (2 s and a tenth of the limit). The memory limit covers what an instance takes beyond what
    its process held before.

    With --resume, instances are skipped whose file (path, size, time of change) and options are those of a line in
    results.jsonl; errors are tried again. Without it, everything is solved anew and the old lines of these instances
    move to results.previous.jsonl.

    With --scheduler, the files are read here and sent to the workers of a Dask cluster, which need no shared disk; each
    runs an instance in a process of its own under the same limits. If a worker dies, its instances are tried again
    elsewhere, at most twice. Workers must have the same versions.
    """
    from flowlex.cli.batch_runner import Batch, Job, opened

    check_scheduler(scheduler, jobs, log=log)
    if wait_workers is not None and scheduler is None:
        raise typer.BadParameter("is for --scheduler only", param_hint="--wait-workers")
    if resume and output is None:
        raise typer.BadParameter("needs -o DIR, where the results of the run to resume are", param_hint="--resume")
    files = find_files(context, list(paths or ()), output, from_telemetry, max_age)
    options: dict[str, Any] = {
        "engine": engine,
        "settings": values,
        "time_limit_s": time_limit,
        "gap": gap,
        "compare": compare,
    }
    extra = {"memory_limit_mb": memory_limit, "solver": solver, "threads": threads, "seed": seed}
    options |= {name: value for name, value in extra.items() if value is not None}
    with opened(output, scheduler, wait_workers) as (journal, cluster):
        todo = list(map(Job.solving, files))
        more: dict[str, Any] = {"processes": jobs, "resume": resume, "log": log, "cluster": cluster}
        code = run_batch(Batch(todo, options, journal=journal, **more), json_lines=json_lines, verbose=verbose)
    raise typer.Exit(code)


def find_files(
    context: typer.Context, paths: list[Path], output: Path | None, from_telemetry: str | None, max_age: float | None
) -> tuple[Path, ...]:
    """Return the instance files; standard input and values of the node information service are saved as files."""
    from flowlex.cli.input_files import discover, is_standard_input, save_standard_input

    if from_telemetry is not None:
        from flowlex.instances.registered_systems import load, registered

        sources = registered("INSTANCE_SOURCES")
        if "telemetry" not in sources:
            raise typer.BadParameter("the node information service is not installed", param_hint="--from-telemetry")
        snapshot = load(sources["telemetry"])
        paths.append(snapshot(context, from_telemetry, output, max_age_s=60.0 if max_age is None else max_age))
    elif max_age is not None:
        raise typer.BadParameter("is for --from-telemetry only", param_hint="--max-age")
    elif not paths:
        raise typer.BadParameter("name an instance file or folder, or give --from-telemetry URL", param_hint="PATH")
    if any(map(is_standard_input, paths)):
        saved = save_standard_input(context, output)
        paths = [saved if is_standard_input(path) else path for path in paths]
    try:
        inputs = discover(paths)
    except FileNotFoundError as error:
        raise typer.BadParameter(str(error), param_hint="PATH") from error
    if inputs.left_out:
        few = [f"{path.name}{'' if path.is_file() else ' (no regular file)'}" for path in inputs.left_out[:5]]
        names = ", ".join(few + ["..."] * (len(inputs.left_out) > 5))
        many = counted(len(inputs.left_out), "file that is no instance file", "files that are no instance files")
        note(f"left out {many} by name or beginning: {names}")
    if not inputs.files:
        raise typer.BadParameter(f"no instance files in {', '.join(map(str, paths))}", param_hint="PATH")
    return inputs.files


def run_batch(batch: Batch, *, json_lines: bool, verbose: bool = False) -> int:
    """Solve and report; a long run keeps only the summary line of each instance."""
    from flowlex.cli.batch_report import LISTED, Line, print_json, print_report, print_summary, write_page

    shown: list[Finished] = []
    lines: list[Line] = []
    for item in with_progress(batch):
        if json_lines:
            print_json(item.record)
        elif batch.total <= LISTED or item.record.get("comparison"):
            shown.append(replace(item, files={}))
        if batch.total > LISTED:
            lines.append(Line.of(item.record))
    if lines:
        if not json_lines:
            print_summary(lines)
        if batch.journal is not None:
            page = batch.journal.folder / "summary.html"
            write_page(page, lines)
            note(f"the summary is in {page}")
    if shown:
        print_report(sorted(shown, key=batch.place), verbose=verbose, listed=not lines)
    return batch.exit_code


def with_progress(batch: Batch, verb: str = "solving") -> Iterator[Finished]:
    """Yield finished items; problems are printed on standard error at once.

    On a terminal, several instances have a bar; one instance has, after two seconds, a line with its stage, incumbent
    and bound. Elsewhere a line is written when something finishes, at most one in
    `flowlex.cli.console_output.EVERY_S` seconds.
    """
    finished = batch.run()
    if batch.skipped:
        note(f"{batch.skipped} of {batch.total} were done before")
    if not sys.stderr.isatty():
        lines = Progress(verb, batch.total)
        for item in finished:
            _complain(item)
            lines.update(batch.finished, batch.unsolved)
            yield item
        return
    from flowlex.cli.progress import progress_bar, so_far

    with progress_bar(verb, single=batch.total == 1) as bar:
        task = bar.add_task(verb, total=batch.total, completed=batch.skipped, bad="", said="")
        if batch.total == 1:
            batch.listener = lambda _, event: bar.update(task, said=so_far(event))
        for item in finished:
            _complain(item)
            bar.update(task, completed=batch.finished, bad=f"{batch.unsolved} without answer" if batch.unsolved else "")
            yield item


def _complain(item: Finished) -> None:
    from flowlex.cli.batch_report import trouble

    problem = trouble(item.record)
    if problem:
        complain(problem)
