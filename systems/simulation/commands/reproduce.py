"""``flowlex reproduce``: every experiment with every seed, as a batch, to one report."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from flowlex.cli.batch_results_log import Fingerprint
from flowlex.cli.batch_runner import Batch, Job, opened
from flowlex.cli.console_output import console, note, rows_table
from flowlex.cli.options import SchedulerOption, check_scheduler
from flowlex.cli.solve import with_progress
from flowlex.cli.worker_pool import Finished
from flowlex.instances.file_storage import write_atomically
from flowlex.systems.simulation.commands.experiment_needs import NEEDS
from flowlex.systems.simulation.experiments import experiments, papers
from flowlex.systems.simulation.experiments.statements_and_verdicts import Experiment
from flowlex.systems.simulation.reproduction_report import Measured, rows_of, write_report


def reproduce(
    chosen: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Papers or experiments; all if none.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few seeds, small sizes, no sweeps.")] = False,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder of the report.")] = Path(
        "reproduction"
    ),
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, metavar="N", help="Processes.")] = 1,
    seeds: Annotated[int | None, typer.Option(min=1, metavar="N", help="Seeds of each experiment.")] = None,
    sweep: Annotated[bool, typer.Option(help="Sweep over what the papers leave open (not with --quick).")] = True,
    scheduler: SchedulerOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what DIR already holds.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Only write the report of what DIR holds.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List papers and experiments.")] = False,
) -> None:
    """Measure again what the papers state, and put it beside theirs.

    DIR gets report.html (self-contained), report.md, report.csv (a row per statement), measured.csv (all numbers) and a
    SVG per picture. Each statement has a verdict by the rule of its experiment: reproduced, direction only, not
    reproduced. Without --quick, what a paper leaves open is swept. With --scheduler, measurements of time stay here,
    one after the other: those of other machines would not compare.

    An interrupted run goes on with --resume; --write makes the report of what there is by then. The report may be
    measured in pieces (``flowlex reproduce gpu-users -o DIR``): what DIR holds of other experiments stays and is in it.
    The report says what measuring took: seconds of processor by experiment, and wall time, processes and cores of the
    last command (effort.json).

    Exit code 0: everything was measured; 1: some experiments failed; 2: wrong usage.
    """
    named = experiments(*(chosen or ()))
    if write:
        _show(output, named, _held(output, quick), quick=quick)
        return
    found = _possible(named)
    if list_:
        rows = [(each.paper, each.name, each.title, len(each.statements)) for each in found]
        console().print(rows_table(f"Papers: {', '.join(papers())}", ("paper", "experiment", "measures", "#"), rows))
        return
    check_scheduler(scheduler, jobs)
    sweep = sweep and not quick
    finished: list[Finished] = []
    began = time.time()
    options = {"engine": "network", "time_limit_s": None, "quick": quick}
    for alone in (False, True):
        runs = list(_runs([each for each in found if each.alone is alone], quick, seeds, sweep))
        with opened(output, None if alone else scheduler) as (journal, cluster):
            processes = 1 if alone else jobs
            batch = Batch(runs, options, journal=journal, processes=processes, resume=resume, cluster=cluster)
            finished += with_progress(batch, "measuring")
    good = sum(item.record["status"] == "measured" for item in finished)
    if good:
        if scheduler is None:
            _note_effort(output, [item for item in finished if item.task], jobs, began)
        _show(output, experiments(), _held(output, quick), quick=quick, rows=found)
    raise typer.Exit(0 if good == len(finished) else 1)


def _note_effort(folder: Path, finished: Sequence[Finished], jobs: int, began: float) -> None:
    """Record the effort of this command, unless everything was measured before."""
    if finished:
        effort = {"runs": len(finished), "wall_s": round(time.time() - began, 1), "processes": jobs}
        effort["cores"] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        write_atomically(folder / "effort.json", json.dumps(effort).encode() + b"\n")


def _held(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Return the measurements of a folder from all runs and seeds, of the quick or of the full report."""
    try:
        lines = map(json.loads, (folder / "results.jsonl").read_text().splitlines())
        measured = (record for record in lines if record["status"] == "measured")
        return [record for record in measured if record["options"]["quick"] is quick]
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{folder} holds no measurements ({error})", param_hint="--output") from error


def _effort(folder: Path) -> dict[str, Any] | None:
    """Return the effort of the last measuring command; None if not recorded."""
    try:
        return dict(json.loads((folder / "effort.json").read_text()))
    except (OSError, ValueError):
        return None


def _show(
    folder: Path,
    found: Sequence[Experiment],
    good: Sequence[dict[str, Any]],
    *,
    quick: bool,
    rows: Sequence[Experiment] | None = None,
) -> None:
    """Write the report, and print its rows (or those of some of its experiments)."""
    results = {each: sorted(_measured(each, good), key=lambda one: (str(one.given), one.seed)) for each in found}
    results = {each: mine for each, mine in results.items() if mine}
    counts = write_report(folder, results, quick=quick, effort=_effort(folder))
    lines = [
        (row.experiment.name, row.statement.says, row.statement.theirs, row.ours, row.verdict)
        for each, mine in results.items()
        if rows is None or each in rows
        for row in rows_of(each, mine)
    ]
    console().print(rows_table(f"{folder / 'report.html'}", ("experiment", "states", "theirs", "ours", ""), lines))
    note(", ".join(f"{many} {verdict}" for verdict, many in counts.items()))


def _possible(chosen: Sequence[Experiment]) -> list[Experiment]:
    """Drop experiments whose needs this machine does not meet, with a message."""
    without = {each: [NEEDS[need].missing() for need in each.needs] for each in chosen}
    for each, reasons in without.items():
        if any(reasons):
            note(f"{each.name} is left out; {'; '.join(filter(None, reasons))}")
    return [each for each, reasons in without.items() if not any(reasons)]


def _runs(chosen: Sequence[Experiment], quick: bool, seeds: int | None, sweep: bool) -> Iterator[Job]:
    """Yield the jobs to measure; long runs start first, so that several processes end together."""
    for each in sorted(chosen, key=lambda each: -each.takes_s):
        most = seeds if seeds is not None else each.quick_seeds if quick else each.seeds
        for given in each.variants()[: None if sweep or each.joint else 1]:
            for seed in range(min(most, each.sweep_seeds) if given else most):
                yield _job(each, each.first_seed + seed, json.dumps(given, sort_keys=True), quick)


def _job(each: Experiment, seed: int, given: str, quick: bool) -> Job:
    """Return the job of a measurement, keyed by the experiment's definition; ``given``: changed open parameters."""
    name = f"{each.name}#{given}#{seed}{'#quick' if quick else ''}"
    definition = repr((each.statements, each.open, each.measure.__module__)).encode()
    mark = Fingerprint(name, int(hashlib.sha256(definition).hexdigest()[:12], 16), 0)
    about = {"experiment": each.name, "paper": each.paper, "seed": seed, "quick": quick, "given": given}
    return Job(name, mark, task={"job": "measure", "simulator": "experiment", **about})


def _measured(each: Experiment, records: Sequence[dict[str, Any]]) -> Iterator[Measured]:
    for record in records:
        if record["name"] == each.name:
            numbers = {name: value for name, value in record["metrics"].items() if value is not None}
            took, day = record.get("processor_s"), record.get("measured_on", "")
            yield Measured(each.name, record["seed"], record["given"], numbers, took, day)
