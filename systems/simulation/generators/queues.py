"""Cluster workloads that each show one thing: queueing theory, pods, training, a day of many machines."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flowlex.instances.generators.registry import Rate, Share, Size, generator
from flowlex.systems.simulation.cluster_workload import (
    ClusterJob,
    ClusterNode,
    ClusterTask,
    ClusterWorkload,
    Outage,
    Place,
    Read,
)
from flowlex.systems.simulation.generators.testbeds import one_place


@generator("cluster-queue")
def cluster_queue(
    *,
    seed: int = 0,
    servers: Size = 1,
    load: Annotated[float, Field(gt=0, lt=1)] = 0.7,
    tasks: Size = 10_000,
    service: Literal["exponential", "constant", "uniform"] = "exponential",
) -> ClusterWorkload:
    """A queue with Poisson arrivals, c servers and mean service time 1 s: M/M/c, M/D/c or M/G/c.

    - ``seed``: arrivals and services.
    - ``servers``, ``load``: Number of servers c, and arrivals per second divided by c.
    - ``tasks``: number of arrivals, each a job of one task.
    - ``service``: distribution of the service time, with mean 1 s; ``uniform`` on (0, 2).
    """
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1.0 / (load * servers), tasks))
    spread = {"constant": (1.0, 1.0), "uniform": (0.0, 2.0)}
    times = rng.exponential(1.0, tasks) if service == "exponential" else rng.uniform(*spread[service], tasks)
    jobs = tuple(
        ClusterJob(
            name=f"j{k}", arrival_s=at_s, tasks=(ClusterTask(name=f"t{k}", demand={"slot": 1}, compute_s=seconds),)
        )
        for k, (at_s, seconds) in enumerate(zip(arrivals.tolist(), times.tolist(), strict=True))
    )
    node = ClusterNode(name="queue", places=(Place(name="servers", capacity={"slot": servers}),))
    return ClusterWorkload(name="cluster-queue", nodes=(node,), jobs=jobs)


@generator("cluster-random")
def cluster_random(
    *,
    seed: int = 0,
    nodes: Size = 5,
    jobs: Size = 4,
    most_tasks: Size = 6,
    outages: Share = 0.0,
    resource: Literal["gpu", "slot"] = "gpu",
) -> ClusterWorkload:
    """A small cluster with random graphs of tasks, arrivals and, with ``outages``, nodes that fail and return.

    - ``nodes``, ``jobs``, ``most_tasks``: sizes; a node has one or two places.
    - ``outages``: probability that a node fails once, for under 20 s.
    - ``resource``: the resource of which each task takes one unit.
    """
    rng = np.random.default_rng(seed)
    cluster = []
    for n in range(nodes):
        down = float(rng.integers(1, 40))
        outage = (Outage(from_s=down, until_s=down + float(rng.integers(1, 20))),) if rng.random() < outages else ()
        places = tuple(Place(name=f"n{n}.p{k}", capacity={resource: 1}) for k in range(int(rng.integers(1, 3))))
        cluster.append(ClusterNode(name=f"n{n}", rack=f"r{n % 2}", places=places, outages=outage))
    made = []
    for j in range(jobs):
        tasks: list[ClusterTask] = []
        for t in range(int(rng.integers(1, most_tasks + 1))):
            earlier = [task.name for task in tasks if rng.random() < 0.3]
            reads = [Read(size_mb=float(rng.integers(1, 200)), task=name) for name in earlier[:2]]
            for _ in range(int(rng.integers(0, 3))):
                held = rng.choice(nodes, int(rng.integers(1, nodes + 1)), replace=False).tolist()
                reads.append(Read(size_mb=float(rng.integers(1, 1000)), replicas=tuple(f"n{h}" for h in held)))
            tasks.append(
                ClusterTask(
                    name=f"j{j}.t{t}",
                    demand={resource: 1},
                    compute_s=float(rng.integers(0, 10)),
                    reads=tuple(reads),
                    after=tuple(earlier[2:]),
                )
            )
        arrival_s = float(rng.integers(0, 20))
        made.append(ClusterJob(name=f"j{j}", tasks=tuple(tasks), arrival_s=arrival_s, user=f"u{j % 2}"))
    return ClusterWorkload(name="cluster-random", nodes=tuple(cluster), jobs=tuple(made), jobs_at_once=3)


@generator("cluster-pods")
def cluster_pods(
    *, seed: int = 0, pods: Size = 100, load: Rate = 1.3, mean_s: Rate = 100.0, priorities: Size = 3
) -> ClusterWorkload:
    """Three nodes whose GPU memory is shared in GB; pods that ask for less than 10 of each resource come and go.

    - ``seed``: sizes, priorities, arrivals (Poisson), durations (exponential).
    - ``pods``, ``load``: number of pods, and offered load of GPU memory relative to that of the nodes; above 1 the
      queue grows.
    - ``mean_s``: mean duration.
    - ``priorities``: classes, 0 the most important.
    """
    rng = np.random.default_rng(seed)
    sizes = ((24, 16, 64), (16, 12, 32), (16, 12, 32))
    nodes = tuple(
        one_place(f"node{k}", "all", {"gpu_gb": g, "core": c, "gb": m}) for k, (g, c, m) in enumerate(sizes, 1)
    )
    total_gb, mean_gb = sum(g for g, _, _ in sizes), 5.0
    arrivals = np.cumsum(rng.exponential(mean_gb * mean_s / (load * total_gb), pods)).tolist()
    jobs = []
    for k, arrival_s in enumerate(arrivals):
        gpu_gb, core, gb = rng.integers(1, 10, 3).tolist()
        demand = {"gpu_gb": gpu_gb, "core": -(-core // 2), "gb": gb}
        task = ClusterTask(name=f"pod{k}", demand=demand, compute_s=float(rng.exponential(mean_s)))
        jobs.append(
            ClusterJob(name=f"pod{k}", tasks=(task,), arrival_s=arrival_s, priority=int(rng.integers(priorities)))
        )
    return ClusterWorkload(name="cluster-pods", nodes=nodes, jobs=tuple(jobs))


@generator("cluster-day")
def cluster_day(
    *,
    seed: int = 0,
    machines: Size = 10_000,
    slots: Size = 3,
    tasks: Size = 100_000,
    load: Annotated[float, Field(gt=0, lt=2)] = 0.8,
    day_s: Rate = 86_400.0,
    priorities: Size = 3,
    begun: bool = False,
) -> ClusterWorkload:
    """A day like that of the Google trace: heavy-tailed job sizes and durations, an arrival rate with a daily cycle.

    - ``seed``: of everything. Job sizes are Pareto with exponent 1.2, cut at a fiftieth of all tasks; durations are
      log-normal with spread 1.5; arrivals are Poisson with a rate that swings by 40 % over the day.
    - ``machines``, ``slots``: the cluster; 40 machines to a rack.
    - ``tasks``, ``load``: number of tasks, and the mean fraction of the slots that they hold.
    - ``day_s``: when arrivals end.
    - ``priorities``: classes, 0 the most important.
    - ``begun``: start in steady state: at time 0 jobs are running, with as many tasks as hold slots on average. Their
      durations are length-biased (probability proportional to length), and a uniform fraction of each is left.
    """
    rng = np.random.default_rng(seed)
    nodes = tuple(one_place(f"m{k}", "s", {"slot": slots}, rack=f"r{k // 40}") for k in range(machines))
    sizes = _job_sizes(rng, tasks, tasks)
    mean_s = load * machines * slots * day_s / sum(sizes)
    moments = rng.random(4 * len(sizes)) * day_s
    kept = moments[rng.random(len(moments)) < (1 + 0.4 * np.sin(2 * np.pi * moments / day_s)) / 1.4]
    jobs = []
    for j, (size, arrival_s) in enumerate(zip(sizes, np.sort(kept[: len(sizes)]).tolist(), strict=True)):
        seconds = mean_s * np.exp(rng.normal(-1.125, 1.5, size))
        jobs.append(_day_job(f"j{j}", seconds, arrival_s, int(rng.integers(priorities))))
    running = round(load * machines * slots) if begun else 0
    for j, size in enumerate(_job_sizes(rng, running, tasks) if running else []):
        left = mean_s * np.exp(rng.normal(1.125, 1.5, size)) * rng.random(size)
        jobs.append(_day_job(f"b{j}", left, 0.0, int(rng.integers(priorities))))
    return ClusterWorkload(name="cluster-day", nodes=nodes, jobs=tuple(jobs))


def _job_sizes(rng: np.random.Generator, enough: int, most: int) -> list[int]:
    """Draw job sizes until they sum to ``enough``: Pareto with exponent 1.2, cut at a fiftieth of ``most``."""
    sizes: list[int] = []
    while sum(sizes) < enough:
        drawn = np.minimum(np.ceil((1.0 - rng.random(1000)) ** (-1 / 1.2)), max(most // 50, 1)).astype(np.int64)
        sizes += drawn.tolist()
    return sizes[: int(np.searchsorted(np.cumsum(sizes), enough)) + 1]


def _day_job(name: str, seconds: NDArray[np.float64], arrival_s: float, priority: int) -> ClusterJob:
    demand = {"slot": 1}
    tasks = (ClusterTask(name=f"{name}.{k}", demand=demand, compute_s=s) for k, s in enumerate(seconds.tolist()))
    user = f"u{int(name[1:]) % 50}"
    return ClusterJob(name=name, tasks=tuple(tasks), arrival_s=arrival_s, priority=priority, user=user)


#: Range of the speed-up over a k80 (drawn log-uniformly), as in public measurements.
_FASTER = {"v100": (2.0, 10.0), "p100": (1.2, 4.0), "k80": (1.0, 1.0)}
#: GPUs of a job, and their probability.
_SCALES = ((1, 0.7), (2, 0.15), (4, 0.15))


@generator("cluster-training")
def cluster_training(
    *,
    seed: int = 0,
    jobs: Size = 30,
    nodes_per_type: Size = 2,
    gpus: Annotated[int, Field(ge=4, le=64)] = 4,
    load: Rate = 0.8,
    mean_s: Rate = 3600.0,
    checkpoint_mb: Rate = 500.0,
    users: Size = 3,
) -> ClusterWorkload:
    """Training jobs that keep checkpoints, on nodes of v100, p100 and k80.

    - ``seed``: speeds, scales, lengths (exponential), arrivals (Poisson).
    - ``jobs``, ``users``: number of jobs, and of users who own them in turn.
    - ``nodes_per_type``, ``gpus``: nodes of each type, and GPUs of a node.
    - ``load``: GPU seconds requested per second, at each job's mean speed over the types, per GPU.
    - ``mean_s``: mean seconds of a job on k80.
    - ``checkpoint_mb``: read at every start, from two nodes that hold it.
    """
    rng = np.random.default_rng(seed)
    nodes = tuple(
        one_place(f"{kind}-{k}", "gpus", {"gpu": gpus}, rack=f"rack-{kind}", labels=(kind,))
        for kind in _FASTER
        for k in range(nodes_per_type)
    )
    scales = rng.choice([s for s, _ in _SCALES], jobs, p=[p for _, p in _SCALES]).tolist()
    seconds = rng.exponential(mean_s, jobs).tolist()
    speeds = [{kind: float(np.exp(rng.uniform(*np.log(ends)))) for kind, ends in _FASTER.items()} for _ in range(jobs)]
    asked = [s * t / np.mean(list(fast.values())) for s, t, fast in zip(scales, seconds, speeds, strict=True)]
    gap_s = float(np.mean(asked)) / (load * gpus * len(nodes))
    arrivals = np.cumsum(rng.exponential(gap_s, jobs)).tolist()
    made = []
    for k, (scale, time_s, fast, at_s) in enumerate(zip(scales, seconds, speeds, arrivals, strict=True)):
        held = tuple(nodes[n].name for n in rng.choice(len(nodes), 2, replace=False).tolist())
        task = ClusterTask(
            name=f"train{k}",
            demand={"gpu": scale},
            compute_s=time_s,
            reads=(Read(size_mb=checkpoint_mb, replicas=held),),
            fast={kind: speed for kind, speed in fast.items() if speed != 1.0},
            keeps=True,
        )
        made.append(ClusterJob(name=f"train{k}", tasks=(task,), arrival_s=at_s, user=f"user{k % users + 1}"))
    return ClusterWorkload(name="cluster-training", nodes=nodes, jobs=tuple(made))
