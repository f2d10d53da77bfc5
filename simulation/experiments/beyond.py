"""Not only the papers: a day in the manner of the Google trace under the live scheduler and two queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from flowlex.instances.scenario import Decision
from flowlex.models.flow.goals import preset
from flowlex.simulation.cluster.figures import figures
from flowlex.simulation.cluster.policies.live import Flow
from flowlex.simulation.experiments._runs import made, simulated, workload
from flowlex.simulation.experiments.base import Experiment, Statement
from flowlex.simulation.log import RunLog

__all__ = ["EXPERIMENTS"]

_WHO = ("live", "priority", "FIFO")
_WHY = "a made-up trace (generator cluster-day) that starts with an empty cluster"
_FIGURES = (
    ("wait_s", "_0", "mean wait of the most important tasks", "s"),
    ("utilisation", "", "slots held over slots", ""),
    ("decision_ms", "", "time of one decision", "ms"),
)


def day(seed: int, quick: bool, *, load: float = 0.9, round_s: float = 60.0) -> Mapping[str, float]:
    """Waits by priority and utilisation; the time that a policy thinks is measured and delays its starts."""
    sizes = {"machines": 100, "tasks": 500, "day_s": 7200.0} if quick else {"machines": 10_000, "tasks": 60_000}
    work = workload("cluster-day", seed=seed, load=load, **sizes)
    horizon_s = float(cast(Any, sizes.get("day_s", 86_400.0)))
    level = {job.name: job.priority for job in work.jobs}
    numbers: dict[str, float] = {}
    for who in _WHO:
        policy = Flow(preset("borg"), certify=0) if who == "live" else made(who, where="first")
        log = simulated(
            work, policy, round_s=round_s, horizon_s=horizon_s, decision=Decision(mode="measured"), certify=0
        )
        found = figures(log)
        waits = _waits(log, level)
        numbers |= {f"wait_s_{who}_{p}": float(np.mean(mine)) for p, mine in sorted(waits.items())}
        numbers[f"utilisation_{who}"] = found["utilisation"]
        numbers[f"stops_{who}"] = found["stops"]
        numbers[f"decision_ms_{who}"] = 1e3 * found["decision_s"] / found["rounds"]
    return numbers


def _waits(log: RunLog, level: Mapping[str, int]) -> dict[int, list[float]]:
    """By priority, seconds from ready to first start; who never starts waits until the end."""
    ready: dict[str, tuple[float, int]] = {}
    waits: dict[int, list[float]] = {}
    started: set[str] = set()
    for record in log.of("ready", "start"):
        name = record["task"]
        if record["event"] == "ready":
            ready.setdefault(name, (record["at_s"], level[record["job"]]))
        elif name not in started:
            started.add(name)
            at_s, p = ready[name]
            waits.setdefault(p, []).append(record["at_s"] - at_s)
    for name, (at_s, p) in ready.items():
        if name not in started:
            waits.setdefault(p, []).append(log.records[-1]["at_s"] - at_s)
    return waits


EXPERIMENTS = (
    Experiment(
        "google-day",
        "beyond",
        "A Google-like day at 10 000 machines of 3 slots (quick: two hours at 100); rounds once a minute",
        tuple(
            Statement(f"{figure}_{who}{end}", f"{says}, {title}", "nothing printed", unit, None, _WHY)
            for figure, end, says, unit in _FIGURES
            for who, title in zip(_WHO, ("live flow scheduler", "queue by priority", "queue by arrival"), strict=True)
        ),
        day,
        {"load": (0.9, 1.2)},
        seeds=2,
        quick_seeds=1,
        sweep_seeds=1,
        alone=True,
    ),
)
