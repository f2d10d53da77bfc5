"""Flow scheduling over time: Chen et al. (Sirius), Journal of Software 28(3), 2017."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from flowlex.instances.events import Step
from flowlex.instances.flow import FlowInstance
from flowlex.instances.generators import generate
from flowlex.instances.generators.flow import event_stream
from flowlex.models.flow.goals import Continuity, DataLocality, FairShares, Placement, preset
from flowlex.models.flow.live.scheduler import FlowScheduler
from flowlex.models.flow.model import FlowScheduling
from flowlex.simulation.cluster.figures import figures
from flowlex.simulation.cluster.policies.live import Flow
from flowlex.simulation.experiments._dispatch import Dispatcher, cost_of, feed
from flowlex.simulation.experiments._runs import made, run, simulated, workload
from flowlex.simulation.experiments.base import PROVEN, Experiment, Rule, Statement, Table
from flowlex.simulation.log import RunLog

__all__ = ["EXPERIMENTS"]


_OTHERS = ("Quincy", "random", "spread")


def fair(seed: int, quick: bool, *, round_s: float = 1.0, **open_: Any) -> Mapping[str, float]:
    """SNP of fair flow scheduling, of Quincy's cost model and of random dispatch: three batches that read blocks."""
    work = workload("cluster-servers", seed=seed, batch_tasks=60 if quick else 480, **open_)
    goals = (FairShares(), DataLocality(), Continuity(base=10, rate=10))
    policies = {"Sirius": Flow(goals, certify=PROVEN), **{name: made(name) for name in _OTHERS}}
    found = {name: run(work, policy, round_s=round_s) for name, policy in policies.items()}
    numbers = {f"{key}_{name}": one[key] for name, one in found.items() for key in ("snp", "run_s", "wait_s")}
    return numbers | {
        "snp_Sirius/Quincy": numbers["snp_Sirius"] / numbers["snp_Quincy"],
        "snp_Sirius/random": numbers["snp_Sirius"] / numbers["snp_random"],
        "run_Sirius/Swarm": numbers["run_s_Sirius"] / numbers["run_s_spread"],
    }


def images(seed: int, quick: bool, *, slow: float = 4.0) -> Mapping[str, float]:
    """Image tasks that are quicker on GPU servers: T = 10 and T = 20 on ten servers of each kind."""
    numbers: dict[str, float] = {}
    for tasks in (10, 20):
        work = workload("cluster-images", seed=seed, tasks=tasks, slow=slow)
        sirius = run(work, Flow((Placement(),), certify=PROVEN))
        numbers[f"moves_Sirius_T{tasks}"] = sirius["stops"]
        mean_s = {
            "Sirius": sirius["run_s"],
            "Alsched": run(work, "Alsched")["run_s"],
            "random": run(work, "random")["run_s"],
        }
        numbers |= {f"run_s_{name}_T{tasks}": value for name, value in mean_s.items()}
        numbers[f"Sirius/random_T{tasks}"] = mean_s["Sirius"] / mean_s["random"]
        numbers[f"Sirius/Alsched_T{tasks}"] = mean_s["Sirius"] / mean_s["Alsched"]
    return numbers


def priority(seed: int, quick: bool, *, round_s: float = 0.5, **open_: Any) -> Mapping[str, float]:
    """Delay of short queries while three batches of 480 tasks fill the cluster, by their priorities."""
    numbers = {}
    for name, classes in (("equal", "0,0,0"), ("first", "1,2,5")):
        sizes = {"batch_tasks": 40, "queries": 3, "servers": 3} if quick else {"batch_tasks": 480, "queries": 20}
        work = workload("cluster-servers", seed=seed, batch_priorities=classes, **{**sizes, **open_})
        horizon_s = work.jobs[-1].arrival_s + (60.0 if quick else 300.0)
        stops = made("priority", preempts=True)
        for who, policy in (("Sirius", Flow(preset("borg"), certify=PROVEN)), ("queue", "priority"), ("stops", stops)):
            log = simulated(work, cast(Any, policy), round_s=round_s, horizon_s=horizon_s)
            numbers[f"delay_s_{who}_{name}"] = _query_delay(log)
            numbers[f"stops_{who}_{name}"] = figures(log)["stops"]
    numbers["first/equal"] = numbers["delay_s_Sirius_first"] / max(numbers["delay_s_Sirius_equal"], 1e-9)
    for who in ("queue", "stops"):
        numbers[f"Sirius-{who}"] = numbers["delay_s_Sirius_first"] - numbers[f"delay_s_{who}_first"]
    return numbers


def _query_delay(log: RunLog) -> float:
    """Mean seconds from ready to first start of the queries' tasks; those that never start wait until the end."""
    ready: dict[str, float] = {}
    waits: dict[str, float] = {}
    for record in log.of("ready", "start"):
        if record["job"].startswith("query"):
            if record["event"] == "ready":
                ready.setdefault(record["task"], record["at_s"])
            else:
                waits.setdefault(record["task"], record["at_s"] - ready[record["task"]])
    last = log.records[-1]["at_s"]
    return float(np.mean([waits.get(name, last - at_s) for name, at_s in ready.items()]))


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
    return numbers | grown(numbers)


def grown(n: Mapping[str, float]) -> dict[str, float]:
    """Latencies against the queue's, and how each grows when machines and tasks double."""
    growth = {who: n[f"{who}_s_large"] / n[f"{who}_s_small"] for who in ("warm", "queue", "scratch")}
    return {
        **{f"queue/warm_{size}": n[f"queue_s_{size}"] / n[f"warm_s_{size}"] for size in ("small", "large")},
        "growth": growth["warm"],
        "growth_queue/warm": growth["queue"] / growth["warm"],
        "growth_scratch/queue": growth["scratch"] / growth["queue"],
    }


def cost(seed: int, quick: bool, *, events: int = 100) -> Mapping[str, float]:
    """Processor seconds and memory of the live scheduler, a queue and random dispatch, each in a process of its own."""
    machines = 200 if quick else 10_000
    found = {who: cost_of(who, machines, events, seed) for who in ("live", "queue", "random", "nobody")}
    numbers = {f"{figure}_{who}": value for who, each in found.items() for figure, value in each.items()}
    alone = found["nobody"]["peak_mb"]
    for other in ("queue", "random"):
        numbers[f"cpu/{other}"] = numbers["steps_s_live"] / max(numbers[f"steps_s_{other}"], 1e-9)
        numbers[f"memory/{other}"] = numbers["peak_mb_live"] / numbers[f"peak_mb_{other}"]
    return numbers | {f"own_mb_{who}": found[who]["peak_mb"] - alone for who in ("live", "queue", "random")}


_POSITIVE = (0.0, math.inf)
_GROWTH = "from 5 000 to 10 000 machines with twice as many tasks; seconds of one machine"
_SCORES = "our queue scores all machines per task with NumPy"
_COST = "the paper's is of a whole system that also sends and receives; ours is deciding alone"
_WHOLE = "peak of a process that holds the interpreter, the cluster's description and one scheduler"

EXPERIMENTS = (
    Experiment(
        "flow-fairness",
        "flow_scheduling",
        "SNP (geometric mean of ideal over actual run time, waiting included) of three batches on 20 servers",
        (
            Statement(
                "snp_Sirius/Quincy",
                "SNP close to that of Firmament's Quincy",
                "close to",
                "",
                Rule((0.5, 2.0), (0.9, 1.1)),
                "close read as within 10 %",
            ),
            Statement(
                "snp_Sirius/random",
                "SNP about twice that of random placement",
                "about 2",
                "",
                Rule.near(2.0, 1.0),
                "block size, computing time and replicas are not printed (swept)",
            ),
            Statement(
                "run_Sirius/Swarm",
                "tasks wait and run shorter than under Swarm",
                "shorter",
                "",
                Rule((-math.inf, 1.0)),
                "mean time from ready to end, as the paper's includes waiting; Swarm: the node that runs least",
            ),
        ),
        fair,
        {"block_mb": (1024.0, 256.0, 4096.0), "batch_s": (60.0, 10.0, 300.0), "replicas": (3, 1)},
        takes_s=4,
        quick_seeds=2,
        sweep_seeds=3,
        tables=(
            Table(
                "All policies",
                {"Sirius": "fair flow scheduling", "Quincy": "Quincy", "spread": "Swarm", "random": "random"},
                {"snp_{}": "SNP", "run_s_{}": "ready to end (s)", "wait_s_{}": "ready to start (s)"},
            ),
        ),
    ),
    Experiment(
        "flow-images",
        "flow_scheduling",
        "Image tasks, one per server, T = 10 and T = 20",
        (
            Statement(
                "Sirius/random_T10",
                "mean run time at T = 10 about half of random",
                "about 0.5",
                "",
                Rule.near(0.5, 1.0),
                "how much slower a task is without a GPU is not printed (swept)",
            ),
            Statement(
                "Sirius/random_T20",
                "mean run time at T = 20 about half of random",
                "about 0.5",
                "",
                Rule.near(0.5, 1.0),
                "at T = 20 all servers run one task each whatever the policy; 'tasks share "
                "50 % GPU' is unclear and not modelled",
            ),
            Statement(
                "Sirius/Alsched_T20",
                "mean run time at T = 20 below Alsched's",
                "below 1",
                "",
                Rule((-math.inf, 1.0 - 1e-9)),
                "ours moves tasks to GPU servers that become free, where they start again",
            ),
        ),
        images,
        {"slow": (4.0, 2.0, 8.0)},
        takes_s=0.9,
        quick_seeds=3,
        sweep_seeds=3,
    ),
    Experiment(
        "flow-priority",
        "flow_scheduling",
        "Delay of short queries beside three batches of 480 tasks on 480 slots",
        (
            Statement(
                "delay_s_Sirius_equal",
                "delay at equal priority",
                "over 5 s",
                "s",
                Rule((5.0, math.inf)),
                "TPC-H tasks read as 20 tasks of 1 s",
            ),
            Statement(
                "delay_s_Sirius_first",
                "delay when the queries go first",
                "under 1 s",
                "s",
                Rule((-math.inf, 1.0)),
                "rounds every 0.5 s; ours may stop batch tasks for queries",
            ),
            Statement(
                "first/equal",
                "priority cuts the delay",
                "to less than 1/5",
                "",
                Rule((-math.inf, 1.0), (-math.inf, 0.2)),
                "from the two above",
            ),
            *(
                Statement(
                    f"Sirius-{who}",
                    f"with priority close to a queue as Kubernetes has it{how}",
                    "close",
                    "s",
                    Rule((-math.inf, math.inf), (-1.0, 1.0)),
                    f"close read as within 1 s; {why}",
                )
                for who, how, why in (
                    ("stops", "", "the queue stops the least important task where an important one fits nowhere"),
                    ("queue", " that stops no task", "it lets queries wait for ends of batch tasks"),
                )
            ),
        ),
        priority,
        {"round_s": (0.5, 2.0), "query_s": (1.0, 5.0), "batch_s": (60.0, 20.0, 180.0)},
        takes_s=9,
        quick_seeds=2,
        sweep_seeds=3,
        tables=(
            Table(
                "Delay of queries",
                {"Sirius": "flow scheduling", "stops": "queue that stops tasks", "queue": "queue that stops none"},
                {"delay_s_{}_equal": "equal priority (s)", "delay_s_{}_first": "queries first (s)"},
            ),
        ),
    ),
    Experiment(
        "flow-latency",
        "flow_scheduling",
        "Seconds of a decision after 100 events, at 5 000 and 10 000 machines (quick: 100 and 200)",
        (
            Statement(
                "saved_small",
                "latency saved against from scratch, 5 000 machines",
                "up to 90 %",
                "%",
                Rule(_POSITIVE, (80.0, 100.0)),
                "another algorithm (warm shortest paths) than the paper's",
            ),
            Statement(
                "saved_large",
                "latency saved against from scratch, 10 000 machines",
                "up to 90 %",
                "%",
                Rule(_POSITIVE, (80.0, 100.0)),
                "from scratch includes building and certifying",
            ),
            Statement(
                "queue/warm_large",
                "at 10 000 machines faster than a queue",
                "faster",
                "",
                Rule((1.0, math.inf)),
                f"{_SCORES}, takes the same events",
            ),
            Statement(
                "queue/warm_small",
                "at 5 000 machines over a queue's latency",
                "none stated",
                "",
                None,
                f"{_SCORES}, takes the same events",
            ),
            Statement(
                "growth",
                "near-linear growth from 10 000 to 20 000 tasks",
                "about 2 times",
                "",
                Rule((0.0, 4.0), (0.0, 2.5)),
                "machines double with the tasks; 2.5 times at most read as near-linear",
            ),
            *(
                Statement(f"growth_{pair}", f"latency of {says}", "grows more", "", Rule((1.0, math.inf)), _GROWTH)
                for pair, says in (
                    ("queue/warm", "a queue grows more than that of incremental solving"),
                    ("scratch/queue", "solving from scratch grows more than that of a queue"),
                )
            ),
        ),
        latency,
        {"events": (100, 10)},
        seeds=10,
        takes_s=18,
        quick_seeds=1,
        sweep_seeds=1,
        alone=True,
        tables=(
            Table(
                "Seconds of a decision",
                {"warm": "incremental", "scratch": "from scratch", "queue": "queue"},
                {"{}_s_small": "5 000 machines (quick: 100)", "{}_s_large": "10 000 machines (quick: 200)"},
            ),
        ),
    ),
    Experiment(
        "flow-cost",
        "flow_scheduling",
        "Processor and memory of five steps after 100 events each, at 10 000 machines (quick: 200)",
        (
            *(
                Statement(f"cpu/{other}", f"processor time over that of {title}", theirs, "", Rule(*rule), reason)
                for other, title, theirs, rule, reason in (
                    ("random", "random dispatch", "about 1.5", ((1.0, math.inf), (1.0, 2.25)), _COST),
                    ("queue", "a queue", "about 1.5", ((1.0, math.inf), (1.0, 2.25)), f"{_SCORES}; {_COST}"),
                )
            ),
            *(
                Statement(f"memory/{other}", f"memory over that of {title}", "about 2", "", Rule(*rule), _WHOLE)
                for other, title, rule in (
                    ("random", "random dispatch", ((1.0, math.inf), (1.5, 3.0))),
                    ("queue", "a queue", ((1.0, math.inf), (1.5, 3.0))),
                )
            ),
            *(
                Statement(f"own_mb_{who}", f"memory beside the cluster's description, {title}", "-", "MB", None, "")
                for who, title in (("live", "live scheduler"), ("queue", "queue"), ("random", "random dispatch"))
            ),
        ),
        cost,
        {"events": (100, 10)},
        takes_s=13,
        quick_seeds=1,
        sweep_seeds=1,
    ),
)
