"""Cluster workloads over time: the testbeds of two papers, with jobs as graphs of tasks.

Sources: Tang et al., Journal of Software 33(12), 2022; Chen et al., Journal of Software 28(3), 2017. The papers do not
give computing times, disk rate, replicas, output sizes and order of jobs, so these are parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from flowlex.instances.generators.gpu import TESTBED_RACKS, Copies, PaperJob, copy_holders, paper_jobs
from flowlex.instances.generators.registry import Count, Rate, Size, chosen, generator, require
from flowlex.systems.simulation.cluster_workload import (
    ClusterJob,
    ClusterNode,
    ClusterTask,
    ClusterWorkload,
    Place,
    Read,
)

_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
#: How much longer a kind of job computes per GB than a matrix product (the paper: prime tests use the GPU most).
_INTENSITY = {"prime test": 4.0}
_KEY_RANGES = 8
_ITERATIONS = 10
#: 64 clusters of 2500 dimensions in double precision.
_CENTRES_MB = 64 * 2500 * 8 / 1e6


@generator("cluster-testbed")
def cluster_testbed(
    *,
    seed: int = 0,
    jobs: str = "",
    count: Count = 0,
    users: Size = 1,
    jobs_at_once: Size = 6,
    replicas: Size = 3,
    copies: Copies = "file",
    aggregation: Literal["limited", "unlimited"] = "limited",
    disk_mb_per_s: Rate = 200.0,
    compute_s_per_gb: _Seconds = 4.0,
    output_share: Annotated[float, Field(gt=0, le=1)] = 0.1,
    shuffled: bool = True,
    card_gb: str = "",
    task_gb: str = "",
) -> ClusterWorkload:
    """The GPU-assignment paper's testbed over time: 15 nodes of two GPUs in 4 racks, J1-J36 as graphs of tasks.

    - ``seed``: order of jobs, replicas.
    - ``jobs``, ``count``: names such as ``"J1,J9"``, or else the number of jobs drawn from J1-J36 with replacement;
      without both, all of J1-J36 once.
    - ``users``: number of users, whose queues the jobs join in turn.
    - ``jobs_at_once``: jobs that run at a time.
    - ``replicas``: nodes that hold a copy.
    - ``copies``: ``"file"``, as printed: all tasks of a job that read one file share its nodes; ``"shard"``: every
      shard lies on nodes of its own.
    - ``aggregation``: uplink of each rack: 1 Gbit/s (``limited``) or 10 Gbit/s.
    - ``disk_mb_per_s``, ``compute_s_per_gb``: disk of a node, seconds of computing per GB read (four times that for
      prime tests).
    - ``output_share``: output of a task as a fraction of its input.
    - ``shuffled``: jobs in random order, else as listed.
    - ``card_gb``, ``task_gb``: GB of the two GPUs of a node, and GB that the GPU tasks of each job in turn need:
      ``"10,24"``, ``"8,20,4"``. Give both or neither (the paper's tasks all fit its GPUs).
    """
    require(bool(card_gb) == bool(task_gb), "give card_gb and task_gb both or neither: one is compared with the other")
    cards, needs = _amounts("card_gb", card_gb), _amounts("task_gb", task_gb)
    nodes = sum(TESTBED_RACKS)
    require(replicas <= nodes, f"replicas={replicas}: the testbed has {nodes} nodes")
    rng = np.random.default_rng(seed)
    racks = [f"rack{rack}" for rack, size in enumerate(TESTBED_RACKS, 1) for _ in range(size)]
    cluster = tuple(_gpu_node(f"node{n:02}", rack, cards) for n, rack in enumerate(racks, 1))
    maker = _JobMaker(rng, [node.name for node in cluster], replicas, copies, compute_s_per_gb, output_share)
    drawn = _drawn(rng, jobs, count)
    order = rng.permutation(len(drawn)) if shuffled else np.arange(len(drawn))
    made = [maker.job(drawn[k], number, f"user{number % users + 1}") for number, k in enumerate(order.tolist())]
    if needs:
        made = [_with_memory(job, needs[number % len(needs)]) for number, job in enumerate(made)]
    return ClusterWorkload(
        name="cluster-testbed",
        disk_mb_per_s=disk_mb_per_s,
        uplink_mb_per_s=125.0 if aggregation == "limited" else 1250.0,
        nodes=cluster,
        jobs=tuple(made),
        jobs_at_once=jobs_at_once,
    )


def _amounts(name: str, text: str) -> list[int]:
    """Whole numbers between commas."""
    try:
        found = [int(part) for part in text.split(",")] if text else []
    except ValueError:
        found = [0]
    require(min(found, default=1) >= 1, f"{name}={text!r}: give integers of GB between commas, such as '10,24'")
    return found


def _gpu_node(name: str, rack: str, cards: Sequence[int] = ()) -> ClusterNode:
    memory = [{"gpu_gb": cards[k % len(cards)]} if cards else {} for k in range(2)]
    gpus = tuple(Place(name=f"{name}.gpu{k}", capacity={"gpu": 1, **more}) for k, more in enumerate(memory, 1))
    return ClusterNode(name=name, rack=rack, places=(*gpus, Place(name=f"{name}.cores", capacity={"core": 16})))


def one_place(name: str, place: str, capacity: dict[str, int], **more: Any) -> ClusterNode:
    """A node all of whose resources are one place."""
    return ClusterNode(name=name, places=(Place(name=f"{name}.{place}", capacity=capacity),), **more)


def _with_memory(job: ClusterJob, gb: int) -> ClusterJob:
    """Return the job with a memory demand added to its GPU tasks."""
    tasks = [
        task.model_copy(update={"demand": {**task.demand, "gpu_gb": gb}}) if "gpu" in task.demand else task
        for task in job.tasks
    ]
    return job.model_copy(update={"tasks": tuple(tasks)})


def _drawn(rng: np.random.Generator, names: str, count: int) -> list[PaperJob]:
    table = {job.name: job for job in paper_jobs()}
    if names:
        return chosen("jobs", names, table, "job")
    standard = list(table.values())[:36]
    return [standard[k] for k in rng.integers(len(standard), size=count).tolist()] if count else standard


class _JobMaker:
    """Makes the graph of each kind of job."""

    def __init__(
        self,
        rng: np.random.Generator,
        nodes: Sequence[str],
        replicas: int,
        copies: Copies,
        compute_s_per_gb: float,
        share: float,
    ) -> None:
        self.rng, self.nodes, self.replicas, self.copies = rng, nodes, replicas, copies
        self.per_mb, self.share = compute_s_per_gb / 1000.0, share

    def job(self, job: PaperJob, number: int, user: str) -> ClusterJob:
        name = f"{job.name}.{number}"
        per_mb = self.per_mb * _INTENSITY.get(job.kind, 1.0)
        holders = [copy_holders(self.rng, self.nodes, self.replicas, self.copies, job.tasks) for _ in job.shards]
        reads = [
            [Read(size_mb=size, replicas=of[k]) for (_, size), of in zip(job.shards, holders, strict=True)]
            for k in range(job.tasks)
        ]
        tasks = [self._task(f"{name}.t{k}", own, per_mb) for k, own in enumerate(reads)]
        if job.kind == "k-means":
            tasks = self._iterations(name, tasks)
        elif job.kind.startswith("matrix"):
            tasks += self._adds(name, tasks)
        elif job.kind == "string sort":
            tasks += self._ranges(name, tasks)
        last = [task for task in tasks if not any(task.name in _needs(other) for other in tasks)]
        merge = self._task(f"{name}.merge", [Read(size_mb=1.0, task=task.name) for task in last], self.per_mb, "core")
        return ClusterJob(name=name, tasks=(*tasks, merge), user=user)

    def _task(self, name: str, reads: Sequence[Read], per_mb: float, kind: str = "gpu") -> ClusterTask:
        compute_s = per_mb * sum(read.size_mb for read in reads)
        return ClusterTask(name=name, demand={kind: 1}, compute_s=compute_s, reads=tuple(reads))

    def _made(self, task: ClusterTask, parts: int = 1) -> Read:
        size = sum(read.size_mb for read in task.reads) * self.share / parts
        return Read(size_mb=size, task=task.name)

    def _adds(self, name: str, products: list[ClusterTask]) -> list[ClusterTask]:
        """Return one addition per product, of the product and the next one (reconstructed)."""
        count = len(products)
        pairs = [dict.fromkeys((k, (k + 1) % count)) for k in range(count)]
        return [
            self._task(f"{name}.add{k}", [self._made(products[p]) for p in pair], self.per_mb)
            for k, pair in enumerate(pairs)
        ]

    def _ranges(self, name: str, sorts: list[ClusterTask]) -> list[ClusterTask]:
        """Return one CPU task per range of keys, which reads its part of every sorted piece."""
        return [
            self._task(f"{name}.range{r}", [self._made(task, _KEY_RANGES) for task in sorts], self.per_mb, "core")
            for r in range(_KEY_RANGES)
        ]

    def _iterations(self, name: str, points: list[ClusterTask]) -> list[ClusterTask]:
        """Ten rounds through a parameter server: every task reads its points and the centres; the server collects."""
        tasks: list[ClusterTask] = []
        for turn in range(_ITERATIONS):
            centres = [Read(size_mb=_CENTRES_MB, task=tasks[-1].name)] if tasks else []
            mine = [
                self._task(f"{name}.i{turn}.t{k}", [*task.reads, *centres], self.per_mb)
                for k, task in enumerate(points)
            ]
            sent = [Read(size_mb=_CENTRES_MB, task=task.name) for task in mine]
            tasks += [*mine, self._task(f"{name}.i{turn}.server", sent, self.per_mb, "core")]
        return tasks


def _needs(task: ClusterTask) -> set[str | None]:
    return {*task.after, *(read.task for read in task.reads)}


@generator("cluster-servers")
def cluster_servers(
    *,
    seed: int = 0,
    servers: Size = 20,
    slots: Size = 24,
    batches: Count = 3,
    batch_tasks: Size = 480,
    batch_s: Rate = 60.0,
    block_mb: Rate = 1024.0,
    replicas: Size = 3,
    queries: Count = 0,
    query_tasks: Size = 20,
    query_s: Rate = 1.0,
    query_every_s: Rate = 10.0,
    batch_priorities: str = "",
) -> ClusterWorkload:
    """Sirius' testbed over time: 20 servers of 24 slots in 2 racks, batches that read blocks, and queries.

    - ``seed``: blocks, computing times (log-normal around their mean, spread 0.5), arrivals of queries (Poisson).
    - ``servers``, ``slots``: the cluster; the first half is rack 1. Ports and uplinks of racks carry 1 Gbit/s.
    - ``batches``, ``batch_tasks``, ``batch_s``, ``block_mb``, ``replicas``: batches at time 0; each task reads one
      block.
    - ``queries``, ``query_tasks``, ``query_s``, ``query_every_s``: jobs of priority 0 with short tasks without data,
      like TPC-H queries.
    - ``batch_priorities``: priorities of the batches, such as ``"1,2,5"``; all 0 (as for the queries) if not given.
    """
    rng = np.random.default_rng(seed)
    half = -(-servers // 2)
    nodes = tuple(
        one_place(f"s{k:03}", "slots", {"slot": slots}, rack=f"rack{1 + (k >= half)}") for k in range(servers)
    )
    names = [node.name for node in nodes]
    given = [int(part) for part in batch_priorities.split(",")] if batch_priorities else [0] * batches
    require(len(given) == batches, f"batch_priorities={batch_priorities!r}: there are {batches} batches")
    jobs = []
    for b, priority in enumerate(given):
        tasks = []
        for k, seconds in enumerate(_times(rng, batch_s, batch_tasks)):
            holders = tuple(names[h] for h in rng.choice(servers, min(replicas, servers), replace=False).tolist())
            reads = (Read(size_mb=block_mb, replicas=holders),)
            tasks.append(ClusterTask(name=f"b{b}.t{k}", demand={"slot": 1}, compute_s=seconds, reads=reads))
        jobs.append(ClusterJob(name=f"batch{b}", tasks=tuple(tasks), priority=priority, user=f"batch{b}"))
    arrivals = np.cumsum(rng.exponential(query_every_s, queries)).tolist()
    for q, arrival_s in enumerate(arrivals):
        short = tuple(
            ClusterTask(name=f"q{q}.t{k}", demand={"slot": 1}, compute_s=seconds)
            for k, seconds in enumerate(_times(rng, query_s, query_tasks))
        )
        jobs.append(ClusterJob(name=f"query{q}", tasks=short, arrival_s=arrival_s, user="queries"))
    return ClusterWorkload(name="cluster-servers", uplink_mb_per_s=125.0, nodes=nodes, jobs=tuple(jobs))


def _times(rng: np.random.Generator, mean_s: float, count: int) -> list[float]:
    """Draw log-normal times with this mean and spread 0.5."""
    times: list[float] = (mean_s * np.exp(rng.normal(-0.125, 0.5, count))).tolist()
    return times


@generator("cluster-images")
def cluster_images(
    *,
    seed: int = 0,
    tasks: Size = 10,
    servers: Size = 20,
    compute_s: Rate = 60.0,
    slow: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 4.0,
) -> ClusterWorkload:
    """Image tasks on Sirius' testbed with one slot per server; the first half of the servers has GPUs.

    - ``seed``: computing times.
    - ``tasks``: Number of tasks; half of the servers have a GPU, so 10 of the default 20.
    - ``compute_s``, ``slow``: mean seconds on a GPU server, and the factor by which other servers are slower (not given
      in the paper).
    """
    rng = np.random.default_rng(seed)
    half = -(-servers // 2)
    nodes = tuple(
        one_place(f"s{k:02}", "slot", {"slot": 1}, rack=f"rack{1 + (k >= half)}", labels=("gpu",) if k < half else ())
        for k in rng.permutation(servers).tolist()  # a policy that takes the first place must not always get a GPU
    )
    made = tuple(
        ClusterTask(name=f"image{k}", demand={"slot": 1}, compute_s=seconds, slow={"gpu": slow})
        for k, seconds in enumerate(_times(rng, compute_s, tasks))
    )
    return ClusterWorkload(name="cluster-images", nodes=nodes, jobs=(ClusterJob(name="images", tasks=made),))
