"""Flow scheduling over time: Chen et al. (Sirius), Journal of Software 28(3), 2017."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from flowlex.instances.flow import FlowInstance
from flowlex.instances.generators import generate
from flowlex.models.flow.goals import Continuity, DataLocality, FairShares, Placement, preset
from flowlex.models.flow.model import FlowScheduling
from flowlex.systems.scheduler.event_log import Step
from flowlex.systems.scheduler.live.scheduler import FlowScheduler
from flowlex.systems.scheduler.random_events import event_stream
from flowlex.systems.simulation.cluster.policies.live import Flow
from flowlex.systems.simulation.cluster.run_metrics import figures
from flowlex.systems.simulation.experiments.cluster_runs import first_waits, made, run, simulated, workload
from flowlex.systems.simulation.experiments.dispatch_schedulers import Dispatcher, cost_of, feed
from flowlex.systems.simulation.experiments.statements_and_verdicts import PROVEN

_OTHERS = ("Quincy", "random", "spread")
#: Slots of a machine of the scale experiments, as printed.
_SLOTS = 24


def fair(seed: int, quick: bool, *, round_s: float = 1.0, **open_: Any) -> Mapping[str, float]:
    """SNP of fair flow scheduling, of Quincy's cost model and of random dispatch: three batches that read blocks."""
    work = workload("cluster-servers", seed=seed, batch_tasks=60 if quick else 480, **open_)
    goals = (FairShares(), DataLocality(), Continuity(base=10, rate=10))
    policies = {"Sirius": Flow(goals, certify=PROVEN), **{name: made(name) for name in _OTHERS}}
    numbers: dict[str, float] = {}
    for name, policy in policies.items():
        one = run(work, policy, round_s=round_s)
        numbers |= {f"{key}_{name}": one[key] for key in ("snp", "run_s", "wait_s")}
    return numbers


def images(seed: int, quick: bool, *, slow: float = 4.0) -> Mapping[str, float]:
    """Measure a growing number of image tasks that are faster on GPU servers, on ten servers of each kind."""
    numbers: dict[str, float] = {}
    for tasks in (10, 20, 40):
        work = workload("cluster-images", seed=seed, tasks=tasks, slow=slow)
        policies = {"Sirius": Flow((Placement(),), certify=PROVEN), "Alsched": "Alsched", "random": "random"}
        for name, policy in policies.items():
            found = run(work, cast(Any, policy))
            numbers |= {f"{key}_{name}_T{tasks}": found[key] for key in ("run_s", "wait_s")}
            numbers |= {f"wait_s_{name}@{tasks}": found["wait_s"], f"moves_{name}_T{tasks}": found["stops"]}
    return numbers


def priority(
    seed: int, quick: bool, *, round_s: float = 0.5, query_s: float = 1.0, batch_s: float = 60.0
) -> Mapping[str, float]:
    """Measure the delay of TPC-H, one of three batches of 480 tasks submitted together, by priorities."""
    tasks, numbers = 40 if quick else 480, dict[str, float]()
    sizes = {"batches": 2, "batch_tasks": tasks, "queries": 1, "query_tasks": tasks, "query_every_s": 1e-6}
    for name, classes in (("equal", "0,0"), ("first", "1,2")):
        lengths = {"query_s": query_s, "batch_s": batch_s, "servers": 2 if quick else 20}
        work = workload("cluster-servers", seed=seed, batch_priorities=classes, **sizes, **lengths)
        stops = made("priority", preempts=True)
        for who, policy in (("Sirius", Flow(preset("borg"), certify=PROVEN)), ("queue", "priority"), ("stops", stops)):
            log = simulated(work, cast(Any, policy), round_s=round_s)
            waits = [seconds for job, seconds in first_waits(log) if job.startswith("query")]
            numbers[f"delay_s_{who}_{name}"] = float(np.mean(waits))
            numbers[f"stops_{who}_{name}"] = figures(log)["stops"]
    return numbers


def latency(seed: int, quick: bool, *, events: int = 100) -> Mapping[str, float]:
    """Seconds of a decision after 100 events: warm, from scratch, and by a queue that scores every machine.

    The number of machines is fixed and that of tasks grows from 10 000 to 20 000, as in figures 12 and 13.
    """
    numbers: dict[str, float] = {}
    for size, machines in {"small": 100, "large": 200}.items() if quick else {"small": 5_000, "large": 10_000}.items():
        for load, tasks in {"few": 200, "many": 400}.items() if quick else {"few": 10_000, "many": 20_000}.items():
            found = _decisions(seed, machines, tasks, events)
            numbers |= {f"{who}_s_{size}_{load}": seconds for who, seconds in found.items()}
        numbers[f"saved_{size}"] = 100 * (1 - numbers[f"warm_s_{size}_many"] / numbers[f"scratch_s_{size}_many"])
    growth = {f"growth_{who}": numbers[f"{who}_s_large_many"] / numbers[f"{who}_s_large_few"] for who in _DECIDERS}
    return numbers | growth


def _decisions(seed: int, machines: int, tasks: int, events: int) -> dict[str, float]:
    """Seconds of a decision by each scheduler."""
    instance = cast(FlowInstance, generate("flow-scale", seed=seed, machines=machines, tasks=tasks, slots=_SLOTS))
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
    return {"warm": float(np.median(warm)), "queue": float(np.median(queued)), "scratch": scratch}


_DECIDERS = ("warm", "queue", "scratch")


def cost(seed: int, quick: bool, *, events: int = 100) -> Mapping[str, float]:
    """Measure processor time and memory of live scheduler, queue and random dispatch, each in its own process."""
    machines = 200 if quick else 10_000
    found = {who: cost_of(who, machines, events, seed) for who in ("live", "queue", "random", "nobody")}
    numbers = {f"{figure}_{who}": value for who, each in found.items() for figure, value in each.items()}
    return numbers | {"peak_mb_live_half": cost_of("live", machines // 2, events, seed)["peak_mb"]}
