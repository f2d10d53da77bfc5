"""A day of a cluster under our scheduler and under common queue schedulers: delay, utilisation, preemptions, fairness.

Two days: one generated like the Google trace (`cluster-day`; fifty users, three classes), and the busiest day of the
public openb trace, with the number of GPUs chosen so that the mean demand is nine tenths. There a pod is a job with one
task per GPU, from its creation to its deletion; its quality of service is its class and, as the trace names no users,
also its user. Stopped tasks restart from the beginning.

Delay is the time from ready to end minus the task's computing time: waiting and repeated work. Unfairness is the
fraction of the cluster held by users beyond their max-min fair share while others are below theirs, on average over the
day. Decision times are processor milliseconds.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import Row, Tables
from benchmarks.openb import TRACE
from flowlex.instances.generators import generate
from flowlex.systems.simulation.cluster import SIMULATOR, Policy
from flowlex.systems.simulation.cluster.policies.queues import fair_shares
from flowlex.systems.simulation.cluster.policy_interface import Action, State
from flowlex.systems.simulation.cluster_workload import ClusterJob, ClusterNode, ClusterTask, ClusterWorkload, Place
from flowlex.systems.simulation.event_log import RunLog
from flowlex.systems.simulation.policy_registry import Run, make_policy
from flowlex.systems.simulation.scenario import PolicyChoice

DAY_S = 86_400.0
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "first come": ("FIFO", {}),
    "priority, preempting": ("priority", {"preempts": True}),
    "Volcano-like": ("Volcano", {}),
    "Kueue-like": ("Kueue", {}),
    "Quincy": ("Quincy", {"certify": 0}),
    "flowlex, priority": ("FlowScheduler", {"certify": 0}),
    "flowlex, fair shares": ("FlowScheduler", {"certify": 0, "fair": True}),
}


def tables(*, quick: bool = False) -> Tables:
    return [(title, [_row(name, work) for name in POLICIES]) for title, work in _days(quick=quick)]


def _days(*, quick: bool) -> Iterator[tuple[str, ClusterWorkload]]:
    machines = 10 if quick else 100
    sizes = {"machines": machines, "slots": 3, "tasks": 30 * machines, "load": 0.95}
    work: Any = generate("cluster-day", seed=0, begun=True, **sizes)
    yield f"Made-up day: {3 * machines} slots, {len(list(work.tasks))} tasks", work
    if TRACE.is_dir():
        day = openb_day(TRACE / "openb_pod_list_default.csv.gz")
        gpus = sum(place.capacity["gpu"] for place in day.places)
        yield f"openb, busiest day: {gpus} GPUs, {len(day.jobs)} pods, {len(list(day.tasks))} tasks", day


def openb_day(pods: Path, load: float = 0.9) -> ClusterWorkload:
    """Return the day on which most pods with GPUs are created, on two-GPU nodes with a mean demand of ``load``."""
    table = pd.read_csv(pods).query("num_gpu > 0 and deletion_time > creation_time")
    day = table["creation_time"] // DAY_S
    table = table[day == day.mode()[0]].sort_values(["creation_time", "name"], kind="stable")
    begin = table["creation_time"].min() // DAY_S * DAY_S
    level = table["qos"].map({"LS": 0, "Guaranteed": 0, "Burstable": 1, "BE": 2}).astype(int)
    jobs = [
        ClusterJob(
            name=pod.name,
            user=pod.qos,
            priority=priority,
            arrival_s=pod.creation_time - begin,
            tasks=tuple(
                ClusterTask(name=f"{pod.name}.{k}", demand={"gpu": 1}, compute_s=pod.deletion_time - pod.creation_time)
                for k in range(pod.num_gpu)
            ),
        )
        for pod, priority in zip(table.itertuples(), level.tolist(), strict=True)
    ]
    asked = sum(task.compute_s for job in jobs for task in job.tasks) / (load * DAY_S)
    most = max(len(job.tasks) for job in jobs)
    nodes = max(round(asked / 2), -(-most // 2))
    return ClusterWorkload(
        name="openb-day",
        nodes=tuple(
            ClusterNode(name=f"n{k}", places=(Place(name=f"n{k}.gpus", capacity={"gpu": 2}),)) for k in range(nodes)
        ),
        jobs=tuple(jobs),
    )


class _Timed(Policy):
    """A policy that records the processor seconds of its decisions."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.again_s, self.rotates = policy, policy.again_s, policy.rotates
        self.seconds: list[float] = []

    def decide(self, state: State) -> Iterable[Action]:
        started = time.process_time()
        found = list(self.policy.decide(state))
        self.seconds.append(time.process_time() - started)
        return found


def _simulated(name: str, work: ClusterWorkload) -> tuple[RunLog, list[float]]:
    kind, parameters = POLICIES[name]
    policy = _Timed(make_policy("cluster", PolicyChoice(name=kind, parameters=parameters)))
    return SIMULATOR.simulate(work, policy, Run(seed=0)), policy.seconds


def _row(name: str, work: ClusterWorkload) -> Row:
    log, seconds = _simulated(name, work)
    level = {job.name: job.priority for job in work.jobs}
    ready, job_of, delays = dict[str, float](), dict[str, str](), defaultdict[int, list[float]](list)
    for record in log.of("ready", "end"):
        task = record["task"]
        if record["event"] == "ready":
            ready.setdefault(task, record["at_s"])
            job_of[task] = record["job"]
        else:
            delays[level[job_of[task]]].append(record["at_s"] - ready[task] - record["ideal_s"])
    row: Row = {"scheduler": name}
    for each in sorted(delays):
        row[f"delay s, class {each}"] = round(float(np.mean(delays[each])))
        row[f"its p95 {each}"] = round(float(np.quantile(delays[each], 0.95)))
    figures, used = SIMULATOR.figures(log), _held(log, work)
    capacity = sum(log.header["units"].values())
    row["utilisation of the day %"] = round(100 * float(used.sum(axis=1).mean()) / capacity, 1)
    row["stops"] = int(figures["stops"])
    row["work lost h"] = round(figures["lost_s"] / 3600, 1)
    row["unfairness %"] = round(100 * _unfairness(log, work), 1)
    row["decision ms"] = round(1e3 * float(np.median(seconds)), 2)
    row["p99 ms"] = round(1e3 * float(np.quantile(seconds, 0.99)), 2)
    return row


def _samples(log: RunLog, work: ClusterWorkload) -> Iterator[tuple[Counter[str], Counter[str]]]:
    """Yield the held and the waiting units by user, every five minutes of the day."""
    user = {job.name: job.user for job in work.jobs}
    held, waits, owner = Counter[str](), Counter[str](), dict[str, str]()
    records = log.of("ready", "start", "end", "stop")
    record = next(records, None)
    for moment in np.arange(300.0, DAY_S + 1.0, 300.0).tolist():
        while record is not None and record["at_s"] <= moment:
            task, event = record["task"], record["event"]
            owner.setdefault(task, user.get(record.get("job", ""), ""))
            waits[owner[task]] += {"ready": 1, "start": -1, "stop": 0}.get(event, 0)
            held[owner[task]] += {"start": 1, "end": -1, "stop": -1}.get(event, 0)
            record = next(records, None)
        yield held.copy(), waits.copy()


def _held(log: RunLog, work: ClusterWorkload) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(samples, users) units held."""
    users = sorted({job.user for job in work.jobs})
    return np.array([[held[user] for user in users] for held, _ in _samples(log, work)], np.int64)


def _unfairness(log: RunLog, work: ClusterWorkload) -> float:
    """Mean fraction of the cluster held beyond fair shares while others are below theirs."""
    users, capacity = sorted({job.user for job in work.jobs}), sum(log.header["units"].values())
    found = []
    for held, waits in _samples(log, work):
        has = np.array([held[user] for user in users], np.int64)
        share = fair_shares(has + np.array([waits[user] for user in users], np.int64), capacity)
        found.append(min(np.maximum(has - share, 0).sum(), np.maximum(share - has, 0).sum()) / capacity)
    return float(np.mean(found))


def draw(path: str | Path, *, quick: bool = False) -> None:
    """Plot the number of waiting tasks over each day, by scheduler."""
    import matplotlib.pyplot as plt

    days = list(_days(quick=quick))
    figure, axes = plt.subplots(1, len(days), figsize=(6.5 * len(days), 4.2), squeeze=False)
    for ax, (title, work) in zip(axes[0], days, strict=True):
        for name in POLICIES:
            log, _ = _simulated(name, work)
            waiting = [waits.total() for _, waits in _samples(log, work)]
            ax.plot(np.arange(1, len(waiting) + 1) / 12, waiting, label=name, lw=2 if "flowlex" in name else 1)
        ax.set(title=title, xlabel="hour", ylabel="tasks that wait")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
