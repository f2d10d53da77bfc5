"""Flow scheduling over time: Chen et al. (Sirius), Journal of Software 28(3), 2017."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from flowlex.instances.event_log import Step
from flowlex.instances.flow import FlowInstance
from flowlex.instances.generators import generate
from flowlex.instances.generators.flow import event_stream
from flowlex.models.flow.goals import Continuity, DataLocality, FairShares, Placement, preset
from flowlex.models.flow.live.scheduler import FlowScheduler
from flowlex.models.flow.model import FlowScheduling
from flowlex.simulation.cluster.policies.live import Flow
from flowlex.simulation.cluster.run_metrics import figures
from flowlex.simulation.experiments.cluster_runs import first_waits, made, run, simulated, workload
from flowlex.simulation.experiments.dispatch_schedulers import Dispatcher, cost_of, feed
from flowlex.simulation.experiments.statements_and_verdicts import PROVEN

_OTHERS = ("Quincy", "random", "spread")


def fair(
    seed: int, quick: bool, *, round_s: float = 1.0, block_mb: float = 1024.0, **open_: Any
) -> Mapping[str, float]:
    """SNP of fair flow scheduling, of Quincy's cost model and of random dispatch: three batches that read blocks.

    Waits are also measured with blocks of a quarter and four times the size.
    """
    tasks, numbers = 60 if quick else 480, dict[str, float]()
    goals = (FairShares(), DataLocality(), Continuity(base=10, rate=10))
    for size, times in (("", 1.0), ("_small", 0.25), ("_large", 4.0)):
        work = workload("cluster-servers", seed=seed, batch_tasks=tasks, block_mb=block_mb * times, **open_)
        policies = {"Sirius": Flow(goals, certify=PROVEN), **{name: made(name) for name in _OTHERS}}
        for name in policies if not size else ("Sirius", "spread"):
            one = run(work, policies[name], round_s=round_s)
            numbers |= {f"{key}_{name}{size}": one[key] for key in ("snp", "run_s", "wait_s")}
    return numbers


def images(seed: int, quick: bool, *, slow: float = 4.0) -> Mapping[str, float]:
    """Measure image tasks that are faster on GPU servers: T = 10 and T = 20 on ten servers of each kind."""
    numbers: dict[str, float] = {}
    for tasks in (10, 20):
        work = workload("cluster-images", seed=seed, tasks=tasks, slow=slow)
        policies = {"Sirius": Flow((Placement(),), certify=PROVEN), "Alsched": "Alsched", "random": "random"}
        for name, policy in policies.items():
            found = run(work, cast(Any, policy))
            numbers |= {f"run_s_{name}_T{tasks}": found["run_s"], f"moves_{name}_T{tasks}": found["stops"]}
    return numbers


def priority(seed: int, quick: bool, *, round_s: float = 0.5, **open_: Any) -> Mapping[str, float]:
    """Measure the delay of short queries while three batches of 480 tasks fill the cluster, by batch priorities."""
    numbers = {}
    for name, classes in (("equal", "0,0,0"), ("first", "1,2,5")):
        sizes = {"batch_tasks": 40, "queries": 3, "servers": 3} if quick else {"batch_tasks": 480, "queries": 20}
        work = workload("cluster-servers", seed=seed, batch_priorities=classes, **{**sizes, **open_})
        horizon_s = work.jobs[-1].arrival_s + (60.0 if quick else 300.0)
        stops = made("priority", preempts=True)
        for who, policy in (("Sirius", Flow(preset("borg"), certify=PROVEN)), ("queue", "priority"), ("stops", stops)):
            log = simulated(work, cast(Any, policy), round_s=round_s, horizon_s=horizon_s)
            queries = [seconds for job, seconds in first_waits(log) if job.startswith("query")]
            numbers[f"delay_s_{who}_{name}"] = float(np.mean(queries))
            numbers[f"stops_{who}_{name}"] = figures(log)["stops"]
    return numbers


def latency(seed: int, quick: bool, *, events: int = 100) -> Mapping[str, float]:
    """Seconds of a decision after 100 events: warm, from scratch, and by a queue that scores every machine."""
    numbers: dict[str, float] = {}
    for machines in (100, 200) if quick else (5_000, 10_000):
        instance = cast(FlowInstance, generate("flow-scale", seed=seed, machines=machines, tasks=2 * machines))
        scheduler = FlowScheduler(instance, preset("quincy"), certify=False)
        scheduler.step(0.0)
        queue = Dispatcher(instance, "queue")
        queue.step()
        warm, queued, since = [], [], 0.0
        stream = event_stream(instance, seed=seed, steps=5, events=events)
        for event in itertools.islice(stream, 2, None):  # after the cluster and the first step
            started = time.perf_counter()
            feed(queue, event)
            since += time.perf_counter() - started
            if not isinstance(event, Step):
                scheduler.handle(event)
                continue
            warm.append(scheduler.step().seconds["total"])
            queued.append(since)
            since = 0.0
        snapshot = scheduler.instance()
        started = time.perf_counter()
        FlowScheduling(snapshot, preset("quincy")).solve("network")
        scratch = time.perf_counter() - started
        size = "small" if machines in (100, 5_000) else "large"
        numbers |= {f"warm_s_{size}": float(np.median(warm)), f"scratch_s_{size}": scratch}
        numbers |= {f"queue_s_{size}": float(np.median(queued))}
        numbers[f"saved_{size}"] = 100 * (1 - numbers[f"warm_s_{size}"] / scratch)
    growth = {f"growth_{who}": numbers[f"{who}_s_large"] / numbers[f"{who}_s_small"] for who in _DECIDERS}
    return numbers | growth


_DECIDERS = ("warm", "queue", "scratch")


def cost(seed: int, quick: bool, *, events: int = 100) -> Mapping[str, float]:
    """Measure processor time and memory of live scheduler, queue and random dispatch, each in its own process."""
    machines = 200 if quick else 10_000
    found = {who: cost_of(who, machines, events, seed) for who in ("live", "queue", "random", "nobody")}
    numbers = {f"{figure}_{who}": value for who, each in found.items() for figure, value in each.items()}
    return numbers | {"peak_mb_live_half": cost_of("live", machines // 2, events, seed)["peak_mb"]}
