"""Is today slower than before the package got its present shape? The same problems in both, by turns.

    python -m benchmarks paired
    python -m benchmarks.paired --before COMMIT_OR_FOLDER --only GPU --calls 9

The older package (by default of the commit before variants were removed) comes out of this repository's history.
Both are loaded once, in separate processes, and called alternately: before, now, before, now, ... A time is the median
of the processor seconds of a call on an instance without cached views, after one call that compiles and fills caches; a
ratio compares consecutive calls. The parts of a call are reported separately, because a certificate proves more now:
before, that the flow is optimal for the network of the model; now, that the answer is optimal for the instance. Reading
an answer prepares this: it states the prices, cuts and stages that the certificate uses.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import product
from pathlib import Path

from benchmarks import Tables

#: The last commit before variants were removed.
BEFORE = "e49d837"
_HERE = Path(__file__).resolve().parents[1]
_PARTS = ("build", "solve", "read", "certificate")

#: Python code that defines ``call`` in both trees: it solves once and returns the seconds of the parts, the objective
#: and the table of the answer.
_SOLVE = """
from flowlex.instances.generators import generate
from flowlex.models.registry import model_for
text = generate({generator!r}, **{settings!r}).model_dump_json()
kind = type(generate({generator!r}, **{settings!r}))
def call():
    instance, started = kind.model_validate_json(text), time.process_time()
    model = model_for(instance, **{options!r})
    made = time.process_time() - started
    reading, interpret = [0.0], type(model)._interpret
    def timed(self, run):
        started = time.process_time()
        try:
            return interpret(self, run)
        finally:
            reading[0] += time.process_time() - started
    type(model)._interpret = timed
    try:
        solution = model.solve({engine!r})
    finally:
        type(model)._interpret = interpret
    spent = solution.seconds
    answer = [float(solution.objective), solution.to_frame().to_csv(float_format="%.9g")]
    return [made + spent.compile, spent.solve, reading[0], spent.check - reading[0]], answer
"""
_LIVE = """
import numpy as np
from flowlex.instances.generators.flow import flow_scale, heavy_tailed_job
from flowlex.models.flow import goals
from flowlex.systems.scheduler.live.scheduler import FlowScheduler
instance = flow_scale(**{settings!r})
chosen = goals.preset({preset!r}) if isinstance({preset!r}, str) else tuple(getattr(goals, n)() for n in {preset!r})
scheduler = FlowScheduler(instance, chosen, cost_limit=100_000, task_limit=500_000, **{options!r})
scheduler.step(1.0)
rng, names, made = np.random.default_rng(1), [task.name for task in instance.tasks], 0
def call():
    global made
    for _ in range({events}):
        scheduler.cancel(task=names.pop(int(rng.integers(len(names)))))
        job = heavy_tailed_job(rng, f"new{{made}}", instance.machines, most=1)
        made += 1
        scheduler.submit(job)
        names.append(job.tasks[0].name)
    delta = scheduler.step(scheduler.state.now_s + 1.0)
    return [delta.seconds[part] for part in ("events", "solve", "read", "check")], [float(delta.running), ""]
"""
_START = """
import subprocess, resource
def call():
    started = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *{command!r}], check=True, capture_output=True)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = ended.ru_utime + ended.ru_stime - started.ru_utime - started.ru_stime
    return [0.0, spent, 0.0, 0.0], [0.0, ""]
"""
_ASKED = """
import gc, json, sys, time
time.perf_counter = time.process_time  # both packages look at this clock
{code}
for line in sys.stdin:
    gc.collect()
    print("paired", json.dumps(call()), flush=True)
"""


def cases(*, quick: bool = False) -> dict[str, str]:
    """Return the Python code that defines ``call``, by name of the case."""
    found = _gpu_cases(quick) | _flow_cases(quick) | _kind_cases(quick)
    return found if quick else found | _live_cases() | _start_cases()


def _solved(generator: str, engine: str, settings: dict[str, object], **options: object) -> str:
    return _SOLVE.format(generator=generator, engine=engine, settings=settings, options=options)


def _gpu_cases(quick: bool) -> dict[str, str]:
    clusters: dict[str, tuple[str, dict[str, object]]] = {"testbed": ("gpu-testbed", {})}
    if not quick:
        small = {"gpus": 200, "jobs": 20, "tasks": 400, "running": 0.2}
        clusters["200 GPUs"] = "gpu-scale", small
        clusters["200 GPUs, unequal memory"] = "gpu-scale", {**small, "mixed_memory": True}
        clusters["2000 GPUs"] = "gpu-scale", {}
        clusters["2000 GPUs, unequal memory"] = "gpu-scale", {"mixed_memory": True}
    return {
        f"GPU, {where}, {policy}, {engine}": _solved(generator, engine, settings, policy=policy)
        for (where, (generator, settings)), policy, engine in product(
            clusters.items(), ("FSP", "FS", "FSU"), ("network",) if quick else ("network", "highs", "pulp")
        )
    }


def _kind_cases(quick: bool) -> dict[str, str]:
    """Every other kind of instance, small and large."""
    chosen: list[tuple[str, str, dict[str, object]]] = [
        ("min-cost-flow", "network-random", {}),
        ("min-cost-flow", "network-random", {"nodes": 1000, "arcs": 10_000}),
        ("load-partition", "inference-cluster", {"workers": 4, "items": 40}),
        ("load-partition", "inference-cluster", {}),
        ("jit-bandwidth", "jit-random", {}),
        ("jit-bandwidth", "jit-cluster", {"jobs": 10}),
        ("pod-placement", "kubeflow-testbed", {"pods": 8}),
        ("pod-placement", "pods-scale", {"nodes": 50, "pods": 100}),
        ("allocation", "gavel-like", {"jobs": 6, "gpus": 12}),
        ("allocation", "gavel-like", {"jobs": 100, "gpus": 100}),
    ]
    return {
        f"{kind}, {generator} {' '.join(f'{k}={v}' for k, v in settings.items())}".strip(): _solved(
            generator, "highs", settings
        )
        for kind, generator, settings in chosen[: 2 if quick else None]
    }


def _flow_cases(quick: bool) -> dict[str, str]:
    def scale(machines: int) -> dict[str, object]:
        return {"machines": machines, "tasks": 2 * machines}

    presets = ("quincy", "borg", "alsched", "load_spread", "random", "none")
    chosen: list[tuple[int, str, str, dict[str, object]]] = [
        *((100, preset, engine, {}) for preset, engine in product(presets, ("network", "highs", "pulp"))),
        *((1000, preset, "network", {}) for preset in presets),
        *((1000, "quincy", engine, {}) for engine in ("highs", "pulp")),
        (10_000, "quincy", "network", {}),
        *((machines, preset, "network", {"order": "phases"}) for machines, preset in product((300, 1000), presets[:2])),
        (300, "borg", "network", {"lexicographic": True}),
    ]
    if quick:
        chosen = [(50, "quincy", "network", {}), (50, "quincy", "network", {"order": "phases"})]
    return {
        ", ".join([f"flow, {machines} machines, {preset}", *map(str, options.values()), engine]).replace(
            "True", "strict order"
        ): _solved("flow-scale", engine, scale(machines), preset=preset, **options)
        for machines, preset, engine, options in chosen
    }


def _live_cases() -> dict[str, str]:
    shapes: dict[str, tuple[object, dict[str, object]]] = {
        "quincy": ("quincy", {"wait_cost": 20_000}),
        "priorities, placement": (("Priority", "Placement"), {}),
        "shares": (("FairShares", "Placement"), {"wait_cost": 20_000}),
    }
    return {
        f"live, {machines} machines, {shape}, {events} events": _LIVE.format(
            settings={"machines": machines, "tasks": 2 * machines}, preset=goals, options=options, events=events // 2
        )
        for machines, (shape, (goals, options)), events in product((2000, 10_000), shapes.items(), (10, 100))
    }


def _start_cases() -> dict[str, str]:
    family = "from flowlex.models.registry import model_class; model_class({!r})"
    command = "import sys; sys.argv[1:] = [{!r}]; from flowlex.cli import main; main()"
    code = {f"import of {kind}": family.format(kind) for kind in ("gpu-assignment", "flow-scheduling")}
    code |= {f"flowlex {word}": command.format(word) for word in ("--help", "library")}
    return {f"start, {name}": _START.format(command=["-c", line]) for name, line in code.items()}


@contextmanager
def _tree(before: str) -> Iterator[Path]:
    """Provide a folder from which Python imports the package of a commit or of another checkout."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(before)
        if not tree.is_dir():
            tree = Path(folder)
            packed = subprocess.run(["git", "archive", before], cwd=_HERE, capture_output=True, check=False)
            if packed.returncode:
                reason = packed.stderr.decode(errors="replace").strip()
                raise RuntimeError(f"this needs commit {before} from the repository's history: {reason}")
            with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
                archive.extractall(tree, filter="data")
        yield tree / "src"


class _Side:
    """The process of one tree; it executes one call at a time."""

    def __init__(self, code: str, path: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(path), "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, "-c", _ASKED.format(code=code)]
        pipe = subprocess.PIPE
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, stderr=self.errors, text=True, bufsize=1
        )

    def call(self) -> tuple[list[float], tuple[float, str]]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("paired "):
                seconds, answer = json.loads(line.removeprefix("paired "))
                return seconds, answer
        self.errors.seek(0)
        raise RuntimeError(self.errors.read()[-2000:])

    def close(self) -> None:
        self.process.communicate()
        self.errors.close()


def paired(name: str, code: str, trees: tuple[Path, Path], *, calls: int) -> dict[str, object]:
    """Measure one case in both trees: seconds without and with the certificate, their ratios, seconds of the parts."""
    sides = [_Side(code, tree) for tree in trees]
    try:
        found = [[side.call() for side in sides] for _ in range(calls + 1)][1:]
    finally:
        for side in sides:
            side.close()
    before, now = ([call[k][0] for call in found] for k in range(2))
    plain = [[sum(parts[:3]) for parts in side] for side in (before, now)]
    whole = [[sum(parts) for parts in side] for side in (before, now)]
    row: dict[str, object] = {"case": name}
    for what, (first, second) in {"": plain, "certified ": whole}.items():
        row[f"{what}before ms"] = round(1e3 * statistics.median(first), 2)
        row[f"{what}now ms"] = round(1e3 * statistics.median(second), 2)
        row[f"{what}ratio"] = _ratio(first, second)
    quarters = statistics.quantiles([b / max(a, 1e-9) for a, b in zip(*plain, strict=True)], n=4)
    row["quarter to three"] = f"{quarters[0]:.2f} - {quarters[2]:.2f}"
    for k, part in enumerate(_PARTS):
        spent = [statistics.median(parts[k] for parts in side) for side in (before, now)]
        row[part] = f"{1e3 * spent[0]:.3g} - {1e3 * spent[1]:.3g}"
    answers = [(a[1], b[1]) for a, b in found]
    row["equal"] = all(abs(a[0] - b[0]) <= 1e-9 * max(1, abs(a[0])) for a, b in answers)
    row["same table"] = all(a[1] == b[1] for a, b in answers)
    return row


def _ratio(before: list[float], now: list[float]) -> float:
    return round(statistics.median(b / max(a, 1e-9) for a, b in zip(before, now, strict=True)), 3)


def tables(*, quick: bool = False) -> Tables:
    """The table, against `BEFORE`."""
    return [("Now against before, processor milliseconds by turns", rows(BEFORE, quick=quick, calls=2 if quick else 9))]


def rows(before: str, *, quick: bool = False, calls: int = 9, only: str = "") -> list[dict[str, object]]:
    """Measure all cases whose name contains ``only``, against a commit or the folder of a checkout."""
    with _tree(before) as path:
        trees = path, _HERE / "src"
        return [paired(name, code, trees, calls=calls) for name, code in cases(quick=quick).items() if only in name]


def main() -> None:
    """Print rows as they come."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", default=BEFORE, help="a commit of this repository, or the folder of a checkout")
    parser.add_argument("--calls", type=int, default=9)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    given = parser.parse_args()
    with _tree(given.before) as path:
        for name, code in cases().items():
            if given.only in name:
                print(json.dumps(paired(name, code, (path, _HERE / "src"), calls=given.calls)), flush=True)


if __name__ == "__main__":
    main()
