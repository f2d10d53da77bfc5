"""Run one method in a fresh interpreter and measure its answer, seconds and peak memory.

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
#: A fast method is repeated up to this number of runs and of processor seconds (not wall seconds: on a busy machine it
#: would end after the first run, which loads compiled loops); the best run counts.
_RUNS, _SECONDS = 7, 4.0


@dataclass(frozen=True)
class Measurement:
    """Answer, time and memory of a method."""

    result: Any = None  # what the timed function returned (plain data)
    #: Least wall and processor time of a run, without preparation and imports.
    seconds: float = float("nan")
    cpu_seconds: float = float("nan")
    #: Processor time of the first run, which includes lazy loading.
    first_cpu_seconds: float = float("nan")
    peak_mb: float = float("nan")  # peak resident memory of the process, including preparation
    error: str = ""  # reason why there is no answer; empty if there is one


def measure(job: str, *, patience_s: float = 300.0, most: int = _RUNS, **arguments: Any) -> Measurement:
    """Run ``module:function`` in a separate process.

    The function does the preparation, which is not timed, and returns the function to be timed.

    ``patience_s``: time limit of the process in seconds, including preparation.
    ``most``: largest number of runs.
    ``arguments``: arguments of the function, as JSON data.
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
    """Peak (or with VmRSS, resident) memory in MB from Linux; ``getrusage`` would include the parent's before exec."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(rf"{field}:\s+(\d+)", status)[0]) / 1024


def processor_s(process: int) -> float:
    """Processor seconds of a process so far."""
    import psutil

    return float(sum(psutil.Process(process).cpu_times()[:2]))


def median_seconds(function: Callable[[], Any], times: int) -> tuple[float, Any]:
    """Return the median of processor seconds in this process, and the last answer."""
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
