"""Metrics of a run, computed from its log alone."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flowlex.systems.simulation.cluster.input_transfers import LEVELS
from flowlex.systems.simulation.event_log import RunLog


@dataclass(frozen=True)
class Stay:
    """A task on a place, from start to end or stop; ``computed_s`` is when its data were complete (None: never)."""

    task: str
    job: str
    place: str
    node: str
    start_s: float
    end_s: float
    ended: bool
    computed_s: float | None


def stays(log: RunLog) -> Iterator[Stay]:
    """Yield all stays in order of their ends; those cut by the horizon end with the log."""
    begun: dict[str, dict[str, Any]] = {}
    computed: dict[str, float] = {}
    for record in log.of("start", "compute", "end", "stop", "over"):
        event, at_s = record["event"], record["at_s"]
        if event == "start":
            begun[record["task"]] = record
        elif event == "compute":
            computed[record["task"]] = at_s
        else:
            for name in [record["task"]] if event != "over" else list(begun):
                start = begun.pop(name)
                where = (start["job"], start["place"], start["node"])
                yield Stay(name, *where, start["at_s"], at_s, event == "end", computed.pop(name, None))


def job_spans(log: RunLog) -> dict[str, tuple[float, float]]:
    """By job, the start of its first task and the end of its last; jobs that never ended are left out."""
    first: dict[str, float] = {}
    spans: dict[str, tuple[float, float]] = {}
    for record in log.of("start", "finish"):
        if record["event"] == "start":
            first.setdefault(record["job"], record["at_s"])
        else:
            spans[record["job"]] = (first[record["job"]], record["at_s"])
    return spans


def megabytes(log: RunLog) -> dict[str, float]:
    """MB read by level: the node itself, its rack, another rack."""
    total = dict.fromkeys(LEVELS, 0.0)
    for record in log.of("read"):
        total[record["level"]] += record["mb"]
    return total


def figures(log: RunLog) -> dict[str, float]:
    """Return the metrics of the tables.

    ``total_s`` is DT, from the first start to the last event; ``run_s`` the mean time of a task from ready to its end,
    waiting included; ``wait_s`` the part before its last start; ``snp`` the geometric mean over jobs of ideal over
    actual run time: the ideal of the longest task over the time from ready to the last end, for jobs whose tasks do not
    wait for each other; ``utilisation`` the mean fraction in use of the most used resource over DT;
    ``uncertified_rounds`` the number of rounds whose optimum was not certified.
    """
    counts = Counter(record["event"] for record in log.records)
    rounds = list(log.of("round"))
    return {
        **_of_tasks(log),
        "jobs": float(counts["finish"]),
        "given_up": float(counts["give-up"]),
        **_of_reads(log),
        "stops": float(counts["stop"]),
        "lost_s": sum((record["lost_s"] for record in log.of("stop")), 0.0),
        "rounds": float(counts["round"]),
        "uncertified_rounds": float(sum(not record.get("proven", True) for record in rounds)),
        "too_late": float(counts["too-late"]),
        "decision_s": sum((record["seconds"] for record in rounds), 0.0),
    }


def _of_tasks(log: RunLog) -> dict[str, float]:
    """Return metrics of task times and of utilisation."""
    ready: dict[str, float] = {}
    started: dict[str, tuple[float, dict[str, int]]] = {}
    held: defaultdict[str, float] = defaultdict(float)
    waits, runs = [], []
    spans: dict[str, tuple[float, float, float]] = {}  # by job: first ready, last end, longest ideal time of a task
    first = math.inf
    last = log.records[-1]["at_s"] if log.records else 0.0
    for record in log.of("ready", "start", "end", "stop"):
        event, at_s, task = record["event"], record["at_s"], record["task"]
        if event == "ready":
            ready.setdefault(task, at_s)
        elif event == "start":
            first = min(first, at_s)
            started[task] = at_s, record["units"]
        else:
            begun, units = started.pop(task)
            _hold(held, units, at_s - begun)
            if event == "end":
                arrived = ready.pop(task)
                waits.append(begun - arrived)
                runs.append(at_s - arrived)
                since, _, ideal_s = spans.get(record["job"], (arrived, 0.0, 1e-9))
                spans[record["job"]] = min(since, arrived), at_s, max(ideal_s, record["ideal_s"])
    for begun, units in started.values():
        _hold(held, units, last - begun)
    total_s = last - first if first < math.inf else 0.0
    logs = [math.log(ideal_s / max(end - since, 1e-9)) for since, end, ideal_s in spans.values()]
    return {
        "total_s": total_s,
        "tasks": float(len(runs)),
        "wait_s": _mean(waits),
        "run_s": _mean(runs),
        "snp": math.exp(_mean(logs)),
        "utilisation": max(held[name] / much for name, much in log.header["units"].items()) / (total_s or 1.0),
    }


def _of_reads(log: RunLog) -> dict[str, float]:
    """Return GB read by level, and their shares of the total."""
    moved = megabytes(log)
    all_mb = sum(moved.values())
    return {
        **{f"{level}_gb": mb / 1000.0 for level, mb in moved.items()},
        **{f"{level}_share": mb / all_mb if all_mb else 0.0 for level, mb in moved.items()},
    }


def _hold(held: defaultdict[str, float], demand: dict[str, int], seconds: float) -> None:
    for name, much in demand.items():
        held[name] += much * seconds


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
