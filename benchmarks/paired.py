"""Is today slower than another commit? The same problems in two trees, by turns, in processes of their own.

    git worktree add --detach /tmp/before 2ff3111
    python -m benchmarks.paired /tmp/before

Each case runs in both trees alternately (before, now, before, now, ...), so that a busy machine slows both alike. A
figure is the median of the processor seconds of a call, after one call that compiles and fills caches. Objectives must
be equal in both trees.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

__all__ = ["CASES", "main", "paired"]

_HERE = Path(__file__).resolve().parents[1]
#: Python that makes `call`, which returns the objective of one solve; it must run in both trees.
_SOLVE = """
from flowlex.instances.generators import generate
from flowlex.models.registry import model_for
first = generate({generator!r}, **{settings!r})
def call():
    # A copy without cached views: from the instance object to the certified answer.
    instance = first.model_copy()
    instance.__dict__.pop("arrays", None)
    return float(model_for(instance, **{options!r}).solve({engine!r}).objective)
"""
_LIVE = """
import numpy as np
from flowlex.instances.generators.flow import flow_scale, heavy_tailed_job
try:
    from flowlex.models.flow.live.scheduler import FlowScheduler
    from flowlex.models.flow.goals import Continuity, DataLocality, Placement
except ImportError:
    from flowlex.models.flow_scheduler import FlowScheduler
    from flowlex.models.goals import Continuity, DataLocality, Placement
instance = flow_scale(**{settings!r})
goals = (Placement(), DataLocality(), Continuity(base=10, rate=10))
scheduler = FlowScheduler(instance, goals, wait_cost=20_000, cost_limit=100_000, task_limit=500_000)
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
    return float(scheduler.step(scheduler.state.now_s + 1.0).running)
"""
_TIMED = """
import json, sys, time
seconds, answers = [], []
for k in range(int(sys.argv[1]) + 1):
    started = time.process_time()
    answers.append(call())
    seconds.append(time.process_time() - started)
print(json.dumps({"seconds": seconds[1:], "answers": answers}))
"""


def _solved(generator: str, engine: str, settings: dict[str, object], **options: object) -> str:
    return _SOLVE.format(generator=generator, engine=engine, settings=settings, options=options)


CASES: dict[str, str] = {
    "GPU, testbed, network": _solved("gpu-testbed", "network", {}),
    **{f"GPU, 2000 GPUs, {engine}": _solved("gpu-scale", engine, {}) for engine in ("network", "highs", "pulp")},
    "min-cost flow, 180 000 arcs, network": _solved(
        "network-random", "network", {"nodes": 20_000, "arcs": 180_000, "seed": 1}
    ),
    "flow scheduling, 1000 machines, network": _solved("flow-scale", "network", {"machines": 1000, "tasks": 2000}),
    "flow scheduling, quincy by phases": _solved(
        "flow-scale", "network", {"machines": 300, "tasks": 600}, preset="quincy", method="phases"
    ),
    "live, 10 events": _LIVE.format(settings={"machines": 2000, "tasks": 4000}, events=5),
    "live, 100 events": _LIVE.format(settings={"machines": 2000, "tasks": 4000}, events=50),
}


def _tree(folder: Path, made: Path) -> Path:
    """A folder from which Python imports the package of a tree, whether or not it has ``src``."""
    if (folder / "src").is_dir():
        return folder / "src"
    package = made / "flowlex"
    package.mkdir()
    (package / "__init__.py").touch()
    for room in ("instances", "formulations", "validation", "models", "cli", "telemetry"):
        (package / room).symlink_to(folder.resolve() / room)
    return made


def _run(code: str, path: Path, calls: int) -> tuple[list[float], list[float]]:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    command = [sys.executable, "-c", code + _TIMED, str(calls)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    return found["seconds"], found["answers"]


def paired(before: Path, *, rounds: int = 3, calls: int = 5, only: str = "") -> pd.DataFrame:
    """Median processor seconds per case in both trees, their ratio, and whether the answers are equal."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        trees = {"before": _tree(before, Path(folder)), "now": _HERE / "src"}
        for name, code in CASES.items():
            if only not in name:
                continue
            seconds: dict[str, list[float]] = {"before": [], "now": []}
            answers: dict[str, list[float]] = {}
            for _ in range(rounds):
                for which, path in trees.items():
                    timed, answers[which] = _run(code, path, calls)
                    seconds[which] += timed
            medians = {which: statistics.median(values) for which, values in seconds.items()}
            worst = {f"{which}, worst": max(values) for which, values in seconds.items()}
            same = answers["before"] == answers["now"]
            rows.append(
                {"case": name, **medians, "now / before": medians["now"] / medians["before"], **worst, "equal": same}
            )
    return pd.DataFrame(rows).set_index("case").round(4)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path, help="another checkout of this repository")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    given = parser.parse_args()
    print(paired(given.before, rounds=given.rounds, calls=given.calls, only=given.only).to_string())


if __name__ == "__main__":
    main()
