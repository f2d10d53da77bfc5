"""``flowlex simulate``: scenario files, every policy with every seed, to logs, figures and pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from flowlex.cli.batch_report import print_json
from flowlex.cli.batch_results_log import Fingerprint
from flowlex.cli.batch_runner import Batch, Job, opened
from flowlex.cli.console_output import console, note, rows_table
from flowlex.cli.input_files import discover
from flowlex.cli.options import SchedulerOption, check_scheduler, parse_settings, place
from flowlex.cli.solve import with_progress
from flowlex.instances.file_storage import is_url, write_atomically
from flowlex.instances.files import read_instance
from flowlex.instances.instance_base import InstanceError
from flowlex.systems.simulation.scenario import Scenario

LOG_SUFFIX = ".run.jsonl.gz"


def simulate(
    paths: Annotated[
        list[Path], typer.Argument(metavar="SCENARIO...", help="Scenario files, or folders of them.", parser=place)
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Folder for logs, runs.csv, pictures.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, metavar="N", help="Seeds 0 to N-1, not the scenario's.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="A field of every scenario, such as parameters.round_s=2."),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="NAME", help="Run these policies instead: names, or FILE.py:CLASS."),
    ] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, metavar="N", help="Processes.")] = 1,
    scheduler: SchedulerOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Skip runs that DIR already holds.")] = False,
    plot: Annotated[bool, typer.Option("--pictures", help="Draw the first seed of every policy (SVG).")] = False,
    time_limit: Annotated[float | None, typer.Option(min=0.001, metavar="SECONDS", help="Of each run.")] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object per run on standard output.")] = False,
) -> None:
    """Run scenarios: each policy with each seed. A policy of your own is a class in a file: --policy my_policy.py:Mine.

    With -o, every run leaves its log (NAME-POLICY-SEED.run.jsonl.gz) and one line in results.jsonl; runs.csv and, where
    pyarrow is installed, runs.parquet hold the figures. Each run also leaves what `flowlex replay` feeds to a live
    scheduler (NAME-POLICY-SEED.events.jsonl.gz): tasks of a cluster, or jobs that come to a network.

    Exit code 0: every run came to its end; 1: some did not; 2: wrong usage.
    """
    if output is None and (resume or plot):
        raise typer.BadParameter("needs -o DIR", param_hint="--resume" if resume else "--pictures")
    check_scheduler(scheduler, jobs)
    instead: dict[str, Any] = {"policies": policies} if policies else {}
    runs = _runs(paths, seeds, {**parse_settings(settings), **instead}, shipped=scheduler is not None)
    with opened(output, scheduler) as (journal, cluster):
        options = {"engine": "network", "time_limit_s": time_limit}
        batch = Batch(runs, options, journal=journal, processes=jobs, resume=resume, cluster=cluster)
        finished = []
        for item in with_progress(batch, "simulating"):
            finished.append(item)
            if json_lines:
                print_json(item.record)
    done = [item.record for item in sorted(finished, key=batch.place) if item.record["status"] == "simulated"]
    if not json_lines and done:
        _print(done)
    if output is not None and done:
        write_tables(output, "runs", [_flat(record) for record in done])
        if plot:
            _draw(output, done)
    raise typer.Exit(batch.exit_code)


def _job(path: Path, scenario: Scenario, policy: str, seed: int, settings: dict[str, Any]) -> Job:
    """Return the job of one run; a result is valid while the files of scenario and workload are unchanged."""
    work = scenario.workload.file
    inputs = (path,) if work is None else (path, path.parent / work)
    marks = list(map(Fingerprint.of, inputs))
    text = json.dumps(settings, sort_keys=True) if settings else ""
    size, changed = sum(mark.size for mark in marks), max(mark.mtime_ns for mark in marks)
    mark = Fingerprint(f"{marks[0].path}#{policy}#{seed}{text}", size, changed)
    stem = re.sub(r"[^\w.-]+", "_", f"{path.name.partition('.json')[0]}-{policy}-{seed}")
    about = {"scenario": str(path), "policy": policy, "seed": seed, "settings": settings}
    task = {"job": "simulate", "simulator": scenario.simulator, **about}
    return Job(f"{path}#{policy}#{seed}", mark, inputs, stem, LOG_SUFFIX, task)


def _runs(paths: Sequence[Path], seeds: int | None, settings: dict[str, Any], *, shipped: bool) -> list[Job]:
    """Read all scenarios, and check their policies, parameters and workloads before any run."""
    from flowlex.systems.simulation.policy_registry import make_policy, simulator
    from flowlex.systems.simulation.scenario_runs import with_settings, workload_of

    try:
        files = discover(paths).files
    except FileNotFoundError as error:
        raise typer.BadParameter(str(error), param_hint="SCENARIO") from error
    runs = []
    for path in files:
        scenario = read_instance(path)
        if not isinstance(scenario, Scenario):
            raise InstanceError(f"this is {scenario.kind!r}, not a scenario; `flowlex solve` takes it", path=path)
        scenario = with_settings(scenario, settings)
        work = scenario.workload.file
        if shipped and work is not None and (is_url(work) or Path(work).is_absolute()):
            reason = "is not relative to the scenario's, so workers of --scheduler do not find it; make it relative"
            raise InstanceError(f"{work} {reason}", path=path, place="workload.file")
        chosen = range(seeds) if seeds is not None else scenario.seeds
        try:
            simulator(scenario.simulator).check(scenario.parameters)
            for choice in scenario.policies:
                make_policy(scenario.simulator, choice)
            workload_of(scenario, chosen[0], path.parent)
        except InstanceError as error:
            raise error if error.path else error.at(path) from error
        runs += [_job(path, scenario, each.title, seed, settings) for each in scenario.policies for seed in chosen]
    if not runs:
        raise typer.BadParameter(f"no scenario files in {', '.join(map(str, paths))}", param_hint="SCENARIO")
    return runs


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    return {"scenario": record["name"], "policy": record["model"], "seed": record["seed"], **record["metrics"]}


def _print(records: Sequence[dict[str, Any]]) -> None:
    """Print means over seeds with intervals: a row per metric that is not always 0, a column per policy."""
    groups: dict[tuple[str, str], list[dict[str, float]]] = {}
    for record in records:
        groups.setdefault((record["name"], record["model"]), []).append(record["metrics"])
    names = list(dict.fromkeys(name for metrics in groups.values() for name in metrics[0]))
    for scenario in dict.fromkeys(name for name, _ in groups):
        mine = {policy: found for (name, policy), found in groups.items() if name == scenario}
        rows = [
            [name, *(_estimate(found, name) for found in mine.values())]
            for name in names
            if any(one.get(name) for found in mine.values() for one in found)
        ]
        single = all(len(found) == 1 for found in mine.values())
        title = f"{scenario}: " + ("one seed" if single else "mean ± 95 % interval over seeds")
        console().print(rows_table(title, ("figure", *mine), rows))


def _estimate(found: list[dict[str, float]], name: str) -> str:
    from flowlex.systems.simulation.confidence_intervals import Estimate

    values = [one[name] for one in found if one.get(name) is not None]
    if len(values) == 1 == len(found):
        return f"{values[0]:.4g}"
    return str(Estimate.of(values)) if values else "-"


def write_tables(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as CSV, and as Parquet if pyarrow is installed."""
    import importlib.util
    import io

    import pandas as pd

    frame = pd.DataFrame(list(rows))
    write_atomically(folder / f"{name}.csv", frame.to_csv(index=False, lineterminator="\n").encode())
    if importlib.util.find_spec("pyarrow") is None:
        note(f"{name}.csv is written, no {name}.parquet: pyarrow is not installed (pip install 'flowlex[parquet]')")
        return
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    write_atomically(folder / f"{name}.parquet", buffer.getvalue())


def _draw(folder: Path, records: Sequence[dict[str, Any]]) -> None:
    """Draw all plots of the simulator for the first seed of every policy, from its log."""
    from flowlex.formulations.plot_style import axes_for, picture_bytes, quiet_backend
    from flowlex.systems.simulation.event_log import RunLog
    from flowlex.systems.simulation.policy_registry import simulator

    seen = set()
    for record in records:
        if (record["name"], record["model"]) in seen:
            continue
        seen.add((record["name"], record["model"]))
        log = RunLog.read(folder / record["solution"])
        for name, draw in simulator(record["engine"]).plots().items():
            with quiet_backend():
                picture = picture_bytes(draw(log, axes_for(None, 9, 4.5)), "svg")
            write_atomically(folder / f"{record['solution'].removesuffix(LOG_SUFFIX)}-{name}.svg", picture)
