"""Experiments beyond the papers: a day like the Google trace, the openb protocol, shares of GPU time over time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from flowlex.instances.generators import generate
from flowlex.instances.pods import PodInstance
from flowlex.models.flow.goals import preset
from flowlex.models.pods.online_arrivals import submit_all
from flowlex.systems.simulation.cluster.policies.live import Flow
from flowlex.systems.simulation.cluster.run_metrics import figures
from flowlex.systems.simulation.experiments.cluster_runs import first_waits, made, simulated, workload
from flowlex.systems.simulation.scenario import Decision

_WHO = ("live", "priority", "FIFO")


def day(seed: int, quick: bool, *, load: float = 0.9, round_s: float = 60.0) -> Mapping[str, float]:
    """Measure waits by priority and utilisation; a policy's decision time is measured and delays its starts."""
    sizes = {"machines": 100, "tasks": 500, "day_s": 7200.0} if quick else {"machines": 10_000, "tasks": 60_000}
    work = workload("cluster-day", seed=seed, load=load, begun=True, **sizes)
    horizon_s = float(cast(Any, sizes.get("day_s", 86_400.0)))
    level = {job.name: job.priority for job in work.jobs}
    numbers: dict[str, float] = {}
    for who in _WHO:
        policy = Flow(preset("borg"), certify=0) if who == "live" else made(who, where="first")
        log = simulated(
            work, policy, round_s=round_s, horizon_s=horizon_s, decision=Decision(mode="measured"), certify=0
        )
        found = figures(log)
        waits: dict[int, list[float]] = {}
        for job, seconds in first_waits(log):
            waits.setdefault(level[job], []).append(seconds)
        numbers |= {f"wait_s_{who}_{p}": float(np.mean(mine)) for p, mine in sorted(waits.items())}
        numbers[f"utilisation_{who}"] = found["utilisation"]
        numbers[f"stops_{who}"] = found["stops"]
        numbers[f"decision_ms_{who}"] = 1e3 * found["decision_s"] / found["rounds"]
    return numbers


_PACKERS = ("random", "dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd")
_LOADS = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3)


def openb_protocol(seed: int, quick: bool, *, openb: Path) -> Mapping[str, float]:
    """Percentage of GPUs allocated, by policy and submitted load; seeds start at 42, as published."""
    files = {"nodes": openb / "openb_node_list_gpu_node.csv.gz", "pods": openb / "openb_pod_list_default.csv.gz"}
    instance = cast(PodInstance, generate("openb-arrivals", seed=42 + seed, **files))
    curves = {name: submit_all(instance, name, seed=42 + seed) for name in _PACKERS}
    curves["ours"] = submit_all(instance, "fgd", moves=1, seed=42 + seed)
    numbers = {f"{name}@{load}": 100 * curve.at(load) for name, curve in curves.items() for load in _LOADS}
    return numbers | {f"{name}_full": 100 * curve.at(1.0) for name, curve in curves.items()}


_SHARES = ("max_min", "finish_time", "makespan")


def training(seed: int, quick: bool, *, load: float = 0.8, round_s: float = 360.0) -> Mapping[str, float]:
    """Compare, for training jobs on different GPUs, first come first served with shares of GPU time in rounds."""
    work = workload("cluster-training", seed=seed, jobs=12 if quick else 60, load=load)
    who = {"FIFO": made("FIFO")} | {name: made("allocation", shares=name, seconds=round_s) for name in _SHARES}
    found = {name: figures(simulated(work, policy)) for name, policy in who.items()}
    return {f"{key}_{name}": one[key] for name, one in found.items() for key in ("run_s", "total_s", "stops")}
