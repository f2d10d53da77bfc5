"""Run one method in a fresh interpreter: its answer, its seconds, its peak memory.

OR-Tools and highspy clash when one process loads both, and memory is only comparable from a fresh start.
"""

from __future__ import annotations

import importlib
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: A quick method runs again, up to so often and so many processor seconds (a busy machine must not end it after the
#: first run, in which compiled loops are loaded); the best run counts.
_RUNS, _SECONDS = 7, 4.0


@dataclass(frozen=True)
class Measurement:
    """What a method answered and used."""

    result: Any = None  # what the timed function returned (plain data)
    #: Least wall and processor time of a run; preparation and imports are not in them.
    seconds: float = float("nan")
    cpu_seconds: float = float("nan")
    #: Processor time of the first run, which loads what is loaded when it is first used.
    first_cpu_seconds: float = float("nan")
    peak_mb: float = float("nan")  # largest resident memory of the whole process, preparation included
    error: str = ""  # why there is no answer; empty when there is one


def measure(job: str, *, patience_s: float = 300.0, most: int = _RUNS, **arguments: Any) -> Measurement:
    """Run ``module:function`` in a process of its own.

    The function prepares what is not to be timed and returns the function that is.

    ``patience_s``: after so many seconds, preparation included, the process is stopped.
    ``most``: so many runs at most.
    ``arguments``: plain data for the function.
    """
    command = [sys.executable, "-m", "benchmarks.peers", job, json.dumps(arguments), str(most)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s, check=False, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return Measurement(error=f"stopped after {patience_s:g} s")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Measurement(error=lines[-1][:160])
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def _run(timed: Callable[[], Any], most: int) -> Measurement:
    walls: list[float] = []
    processors: list[float] = []
    result = None
    while len(walls) < most and sum(processors) < _SECONDS:
        wall, processor = time.perf_counter(), time.process_time()
        result = timed()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return Measurement(result, min(walls), min(processors), processors[0], memory_mb())


def memory_mb(field: str = "VmHWM", process: int | str = "self") -> float:
    """Peak memory (or resident, VmRSS) as Linux records it; ``getrusage`` would count the parent's before exec."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(rf"{field}:\s+(\d+)", status)[0]) / 1024


def median_seconds(function: Callable[[], Any], times: int) -> tuple[float, Any]:
    """Median of processor seconds in this process, and the last answer."""
    taken, answer = [], None
    for _ in range(times):
        began = time.process_time()
        answer = function()
        taken.append(time.process_time() - began)
    return statistics.median(taken), answer


if __name__ == "__main__":
    _module, _, _function = sys.argv[1].partition(":")
    _prepared = getattr(importlib.import_module(_module), _function)(**json.loads(sys.argv[2]))
    print(json.dumps(vars(_run(_prepared, int(sys.argv[3])))))
