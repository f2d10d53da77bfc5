"""Run one method in a fresh interpreter: its answer, its seconds, its peak memory.

OR-Tools and highspy clash when one process loads both, and memory is only comparable from a fresh start.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Measurement", "measure"]

ROOT = Path(__file__).resolve().parents[1]
#: A quick method runs again, up to so often and so many processor seconds (a busy machine must not end it after the
#: first run, in which compiled loops are loaded); the best run counts.
_RUNS, _SECONDS = 7, 4.0


@dataclass(frozen=True)
class Measurement:
    """What a method answered and used.

    Attributes
    ----------
    result
        What the timed function returned (plain data).
    seconds, cpu_seconds
        Least wall and processor time of a run; preparation and imports are not in them.
    first_cpu_seconds
        Processor time of the first run, which loads what is loaded when it is first used.
    peak_mb
        Largest resident memory of the whole process, preparation included.
    error
        Why there is no answer; empty when there is one.
    """

    result: Any = None
    seconds: float = float("nan")
    cpu_seconds: float = float("nan")
    first_cpu_seconds: float = float("nan")
    peak_mb: float = float("nan")
    error: str = ""


def measure(job: str, *, patience_s: float = 300.0, **arguments: Any) -> Measurement:
    """Run ``module:function`` in a process of its own.

    The function prepares what is not to be timed and returns the function that is.

    Parameters
    ----------
    patience_s
        After so many seconds, preparation included, the process is stopped.
    arguments
        Plain data for the function.
    """
    command = [sys.executable, "-m", "benchmarks.peers", job, json.dumps(arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s, check=False, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return Measurement(error=f"stopped after {patience_s:g} s")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Measurement(error=lines[-1][:160])
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def _run(timed: Callable[[], Any]) -> Measurement:
    walls: list[float] = []
    processors: list[float] = []
    result = None
    while len(walls) < _RUNS and sum(processors) < _SECONDS:
        wall, processor = time.perf_counter(), time.process_time()
        result = timed()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return Measurement(result, min(walls), min(processors), processors[0], _peak_mb())


def _peak_mb() -> float:
    """Peak resident memory; ``getrusage`` would count the parent's before exec, so Linux's own record comes first."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    import resource

    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


if __name__ == "__main__":
    _module, _, _function = sys.argv[1].partition(":")
    _prepared = getattr(importlib.import_module(_module), _function)(**json.loads(sys.argv[2]))
    print(json.dumps(vars(_run(_prepared))))
