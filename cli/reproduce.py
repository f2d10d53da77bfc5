"""``flowlex reproduce``: every experiment with every seed, as a batch, to one report."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from flowlex.cli.batch import Batch, Work
from flowlex.cli.dask_batch import Cluster, entered
from flowlex.cli.experiment_needs import NEEDS
from flowlex.cli.journal import Fingerprint, Journal, JournalError
from flowlex.cli.options import SchedulerOption, check_scheduler
from flowlex.cli.output import complain, console, note, rows_table
from flowlex.cli.pool import Finished, PoolError
from flowlex.cli.solve import with_progress
from flowlex.instances.storage import write_atomically
from flowlex.simulation.experiments import experiments, papers
from flowlex.simulation.experiments.base import Experiment
from flowlex.simulation.report import Measured, rows_of, write_report

__all__ = ["reproduce"]


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
    try:
        with ExitStack() as stack:
            cluster = entered(stack, scheduler)
            for alone in (False, True):
                runs = _runs([each for each in found if each.alone is alone], quick, seeds, sweep)
                where = (1, None) if alone else (jobs, cluster)
                finished += _measure(_Measurements(runs, quick), output, where, resume=resume)
    except (JournalError, PoolError) as error:
        complain(str(error))
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        note("interrupted; go on with --resume")
        raise typer.Exit(130) from None
    good = sum(item.record["status"] == "measured" for item in finished)
    if good:
        if scheduler is None:
            _note_effort(output, [item for item in finished if item.task], jobs, began)
        _show(output, experiments(), _held(output, quick), quick=quick, rows=found)
    raise typer.Exit(0 if good == len(finished) else 1)


def _measure(
    work: _Measurements, folder: Path, where: tuple[int, Cluster | None], *, resume: bool
) -> Iterator[Finished]:
    """All measurements, by so many processes here or by a cluster; each is written down as it ends."""
    options = {"engine": "network", "time_limit_s": None, "quick": work.quick}
    with Journal(folder) as journal:
        keys, (jobs, cluster) = list(work.keys), where
        batch = Batch(keys, options, journal=journal, jobs=jobs, resume=resume, work=work, cluster=cluster)
        yield from with_progress(batch, "measuring")


def _note_effort(folder: Path, finished: Sequence[Finished], jobs: int, began: float) -> None:
    """Write down what this command took, unless all was there before."""
    if finished:
        effort = {"runs": len(finished), "wall_s": round(time.time() - began, 1), "processes": jobs}
        effort["cores"] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        write_atomically(folder / "effort.json", json.dumps(effort).encode() + b"\n")


def _held(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """What a folder holds, measured in whatever pieces and with whatever seeds; of the quick report or of the full."""
    try:
        lines = map(json.loads, (folder / "results.jsonl").read_text().splitlines())
        measured = (record for record in lines if record["status"] == "measured")
        return [record for record in measured if record["options"]["quick"] is quick]
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{folder} holds no measurements ({error})", param_hint="--output") from error


def _effort(folder: Path) -> dict[str, Any] | None:
    """What the last command that measured something took; None where nobody wrote it down."""
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
    """Without those that need what this machine does not have; says so."""
    without = {each: [NEEDS[need].missing() for need in each.needs] for each in chosen}
    for each, reasons in without.items():
        if any(reasons):
            note(f"{each.name} is left out; {'; '.join(filter(None, reasons))}")
    return [each for each, reasons in without.items() if not any(reasons)]


@dataclass(frozen=True)
class _One:
    """One measurement: an experiment, a seed, and the open parameters that differ from the default."""

    experiment: Experiment
    seed: int
    given: dict[str, Any]


def _runs(chosen: Sequence[Experiment], quick: bool, seeds: int | None, sweep: bool) -> Iterator[_One]:
    """What there is to measure; runs that take long begin first, so that several processes end together."""
    for each in sorted(chosen, key=lambda each: -each.takes_s):
        most = seeds if seeds is not None else each.quick_seeds if quick else each.seeds
        for given in each.variants()[: None if sweep or each.joint else 1]:
            for seed in range(min(most, each.sweep_seeds) if given else most):
                yield _One(each, each.first_seed + seed, given)


class _Measurements(Work):
    """All measurements, by names that no two share."""

    def __init__(self, runs: Iterator[_One], quick: bool) -> None:
        self.quick = quick
        self.keys: dict[Path, _One] = {Path(_key(run, quick)): run for run in runs}

    def mark(self, path: Path) -> Fingerprint:
        """A measurement holds as long as the experiment is the same."""
        each = self.keys[path].experiment
        told = repr((each.statements, each.open, each.measure.__module__)).encode()
        return Fingerprint(str(path), int(hashlib.sha256(told).hexdigest()[:12], 16), 0)

    def task(self, path: Path) -> dict[str, Any]:
        """What `flowlex.cli.simulation_tasks.measure_task` needs."""
        run = self.keys[path]
        about = {"experiment": run.experiment.name, "paper": run.experiment.paper, "seed": run.seed}
        given = json.dumps(run.given, sort_keys=True)
        return {"job": "measure", "simulator": "experiment", **about, "quick": self.quick, "given": given}

    def inputs(self, path: Path) -> Sequence[Path]:
        """A measurement reads no file."""
        return []

    def file(self, path: Path, taken: set[str]) -> str:
        """A measurement leaves no file of its own."""
        return ""


def _key(run: _One, quick: bool) -> str:
    given = json.dumps(run.given, sort_keys=True)
    return f"{run.experiment.name}#{given}#{run.seed}{'#quick' if quick else ''}"


def _measured(each: Experiment, records: Sequence[dict[str, Any]]) -> Iterator[Measured]:
    for record in records:
        if record["name"] == each.name:
            numbers = {name: value for name, value in record["metrics"].items() if value is not None}
            yield Measured(each.name, record["seed"], record["given"], numbers, record.get("processor_s"))
