"""GPU assignment over time: Tang et al., Journal of Software 33(12), 2022."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from flowlex.instances.generators import generate
from flowlex.instances.gpu_policy import GpuPolicy as Fairness
from flowlex.models.gpu.model import GpuAssignment
from flowlex.systems.simulation.cluster.run_metrics import figures
from flowlex.systems.simulation.experiments.cluster_runs import (
    alone_seconds,
    fairness_rates,
    made,
    run,
    simulated,
    workload,
)


def alone(
    seed: int, quick: bool, *, round_s: float = 2.0, aggregation: str = "limited", **open_: Any
) -> Mapping[str, float]:
    """Measure table 1: one job at a time, J1-J36 in random order; and FSP with J37 added."""
    common = {"seed": seed, "jobs_at_once": 1, "aggregation": aggregation, **open_}
    work = workload("cluster-testbed", count=3 if quick else 0, **common)
    numbers: dict[str, float] = {}
    for name in ("GS", "FS", "FSP"):
        figure = run(work, name, round_s=round_s)
        numbers[f"dt_{name}"] = figure["total_s"]
        numbers |= {f"{level}_{what}_{name}": figure[f"{level}_{what}"] for level in _FAR for what in ("gb", "share")}
    names = [job.name.partition(".")[0] for job in work.jobs]
    for what, jobs in (("without", names), ("J37", [*names, "J37"])):
        listed = workload("cluster-testbed", jobs=",".join(jobs), shuffled=False, **common)
        numbers[f"dt_FSP_{what}"] = run(listed, "FSP", round_s=round_s)["total_s"]
    return numbers


_SHARED = ("GS", "GSP", "GSD", "FS", "FSP", "FSU")
_FAR = ("rack", "between")
_LEVELS = ("node", *_FAR)


def shared(
    seed: int, quick: bool, *, round_s: float = 3.0, parts: int = 6, patience: float = 1.0, **open_: Any
) -> Mapping[str, float]:
    """Six jobs at a time, under both aggregations; GSD waits ``patience`` times 5 and 10 offers."""
    numbers: dict[str, float] = {}
    for aggregation in ("limited", "unlimited"):
        work = workload("cluster-testbed", seed=seed, aggregation=aggregation, count=3 if quick else 0, **open_)
        ideal_s = alone_seconds(work, parts, round_s=round_s)
        sizes = sorted(work.jobs, key=lambda job: len(job.tasks))
        small = {job.name for job in sizes[: len(sizes) // 2]}
        moved = dict.fromkeys(_LEVELS, 0.0)
        for name in _SHARED:
            patient = {"first": 5.0 * patience, "second": 10.0 * patience} if name == "GSD" else {}
            log = simulated(work, made(name, **patient), round_s=round_s)
            figure, rates = figures(log), fairness_rates(log, ideal_s)
            for key in ("total_s", "stops", *(f"{level}_gb" for level in _LEVELS)):
                numbers[f"{key}_{name}_{aggregation}"] = figure[key]
            numbers |= {f"S_{name}_{aggregation}": float(np.mean(list(rates.values())))}
            numbers |= {f"sigma_{name}_{aggregation}": float(np.std(list(rates.values())))}
            moved = {level: moved[level] + figure[f"{level}_gb"] for level in _LEVELS}
            if aggregation == "limited":
                numbers[f"S_{name}_small"] = float(np.mean([rate for job, rate in rates.items() if job in small]))
                numbers[f"S_{name}_large"] = float(np.mean([rate for job, rate in rates.items() if job not in small]))
                numbers |= {f"rate_{name}@{q}": float(np.quantile(list(rates.values()), q)) for q in _QUANTILES}
        numbers |= {f"{level}_gb_all_{aggregation}": gb for level, gb in moved.items()}
    return numbers


def published(
    seed: int, quick: bool, *, policy: str = "FSP", round_s: float = 3.0, **open_: Any
) -> Mapping[str, float]:
    """Compare the published network, by its price of waiting, with ours; six jobs at a time, limited aggregation."""
    work = workload("cluster-testbed", seed=seed, count=3 if quick else 0, **open_)
    ideal_s = alone_seconds(work, 6, round_s=round_s)
    policies = {"ours": made(policy), "GS": made("GS")}
    policies |= {f"{alpha:g}": made(policy, network="published", waiting=alpha) for alpha in (0.05, 0.2, 0.5, 1.0)}
    numbers: dict[str, float] = {}
    for name, each in policies.items():
        log = simulated(work, each, round_s=round_s)
        figure, rates = figures(log), list(fairness_rates(log, ideal_s).values())
        numbers |= {f"{key}_{name}": figure[key] for key in ("total_s", "stops", *(f"{level}_gb" for level in _LEVELS))}
        numbers |= {f"S_{name}": float(np.mean(rates)), f"sigma_{name}": float(np.std(rates))}
    return numbers


_QUANTILES = (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)


def users(seed: int, quick: bool, *, round_s: float = 4.0, inside: str = "fifo", **open_: Any) -> Mapping[str, float]:
    """Compare FSP with YARN-like queues for ten users with six random jobs each, all submitted at the start."""
    count, people = (4, 2) if quick else (60, 10)
    work = workload("cluster-testbed", seed=seed, count=count, users=people, jobs_at_once=count, **open_)
    total = {"FSP": run(work, "FSP", round_s=round_s)["total_s"]}
    for name in ("YARN-fair", "YARN-capacity"):
        total[name] = run(work, made(name, inside=inside), round_s=round_s)["total_s"]
    numbers = {f"dt_{name}": seconds for name, seconds in total.items()}
    for name in ("YARN-fair", "YARN-capacity"):
        numbers[f"less_than_{name}"] = 100 * (1 - total["FSP"] / total[name])
    return numbers


def rounds(seed: int, quick: bool) -> Mapping[str, float]:
    """Seconds of one round, from instance object to certified placements, on this machine."""
    numbers: dict[str, float] = {}
    sizes: dict[str, dict[str, int]] = {"gpu-testbed": {}, "gpu-scale": {"gpus": 200, "jobs": 10, "tasks": 400}}
    if not quick:
        sizes["gpu-scale"] = {}
    for name, parameters in sizes.items():
        times = []
        for repeat in range(3 if quick else 10):
            instance = generate(name, seed=100 * seed + repeat, **parameters)
            _ = instance.arrays  # type: ignore[attr-defined]  # the arrays exist when a round begins
            started = time.perf_counter()
            GpuAssignment(instance, policy=Fairness.FSP).solve("network")  # type: ignore[arg-type]
            times.append(time.perf_counter() - started)
        times = times[1:] if seed == 0 else times  # the first compiles and imports
        numbers |= {f"mean_s_{name}": sum(times) / len(times), f"worst_s_{name}": max(times)}
    return numbers
