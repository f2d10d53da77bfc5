"""GPU-assignment instances: the paper's figures, testbed and jobs J1-J37, clusters of any size, and random small ones.

Source: Tang, Zhu, Mao, Fu, Li, Journal of Software 33(12), 2022. Printed: copies of each
data *file* lie on random nodes, and a task reads a shard of it by offset. Reconstructed, because the paper does not
give it: disk throughput, number of copies, which tasks run already and for how long, the size of an image (that of
a common benchmark set), the GPU memory a task needs (every task fits every GPU of the testbed). Between racks a
transfer gets the slower of its node's link (1 Gbit/s) and a quarter of its rack's uplink (four nodes share
it): 31.25 MB/s with the "limited" aggregation of 1 Gbit/s, 125 MB/s with the "unlimited" one of 10 Gbit/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from flowlex.instances.generators.registry import Count, Share, Size, chosen, generator, require
from flowlex.instances.gpu import Gpu, GpuInstance, Job, Node, Running, Shard, Task

Aggregation = Literal["limited", "unlimited"]
#: What is copied as a whole: a file, of which every task of the job reads a shard, or each shard by itself.
Copies = Literal["file", "shard"]

_DISK_MB_PER_S = 200.0
_LINK_MB_PER_S = 125.0
_BETWEEN_RACKS_MB_PER_S: dict[Aggregation, float] = {"limited": 31.25, "unlimited": 125.0}
TESTBED_RACKS = (4, 4, 4, 3)
_GPU_GB = 10.0
#: Sizes that occur in the paper's table; memories of common GPUs and needs that fit some of them only.
_SIZES_MB = (60.0, 500.0, 1000.0, 2000.0, 3000.0)
_MIXED_GPU_GB = (8.0, 10.0, 16.0, 24.0)
_MIXED_NEED_GB = (4.0, 7.5, 9.0, 14.0, 20.0)


@generator("gpu-figure1")
def gpu_figure1(*, seed: int = 0) -> GpuInstance:
    """Two GPUs, two jobs, three tasks: the paper's figure 1, where fairness costs nothing (seed unused)."""

    def task(name: str, *holders: str) -> Task:
        return Task(name=name, memory_gb=8.0, shards=(Shard(size_mb=1000.0, replicas=holders),))

    return GpuInstance(
        name="gpu-figure1",
        comment="Figure 1: task11 on GPU1 and task21 on GPU2 is fair and moves nothing over the network.",
        **_bandwidths("limited"),
        nodes=tuple(
            Node(name=f"node{n}", rack="rack1", gpus=(Gpu(name=f"GPU{n}", memory_gb=_GPU_GB),)) for n in (1, 2)
        ),
        jobs=(
            Job(name="job1", tasks=(task("task11", "node1", "node2"), task("task12", "node2"))),
            Job(name="job2", tasks=(task("task21", "node2"),)),
        ),
    )


@generator("gpu-figure4")
def gpu_figure4(*, seed: int = 0, replicas: Annotated[int, Field(ge=1, le=4)] = 2) -> GpuInstance:
    """Six GPUs on four nodes, jobs of 4, 3 and 2 tasks: the paper's figure 4, with shards placed at random."""
    rng = np.random.default_rng(seed)
    nodes = tuple(
        _node(name, rack, [_GPU_GB] * gpus)
        for name, rack, gpus in (("m1", "rack1", 2), ("m2", "rack1", 1), ("m3", "rack2", 1), ("m4", "rack2", 2))
    )
    jobs = []
    for j, count in enumerate((4, 3, 2), 1):
        placed = [_shards(rng, nodes, [("", 1000.0)], replicas) for _ in range(count)]
        tasks = (Task(name=f"task{j}{t}", memory_gb=8.0, shards=shards) for t, shards in enumerate(placed, 1))
        jobs.append(Job(name=f"job{j}", tasks=tuple(tasks)))
    comment = f"Figure 4: six GPUs, nine tasks. Made with seed {seed}."
    return GpuInstance(name="gpu-figure4", comment=comment, **_bandwidths("limited"), nodes=nodes, jobs=tuple(jobs))


@generator("gpu-testbed")
def gpu_testbed(
    *,
    seed: int = 0,
    active: int = 6,
    jobs: str = "",
    replicas: Size = 3,
    copies: Copies = "file",
    running: Share = 0.3,
    aggregation: Aggregation = "limited",
) -> GpuInstance:
    """The paper's testbed, 15 nodes with two 10 GB GPUs in 4 racks, while some of J1-J37 share it.

    - ``seed``: chooses jobs, replicas and running tasks.
    - ``active``: number of active jobs, drawn from J1-J37; not used if ``jobs`` names them.
    - ``jobs``: the active jobs by name, such as ``"J1,J9"``.
    - ``replicas``: nodes that hold a copy.
    - ``copies``: ``"file"``, as printed: all tasks of a job that read one file share its nodes; ``"shard"``: every
      shard lies on nodes of its own.
    - ``running``: share of the GPUs (0 to 1) that already run a task.
    - ``aggregation``: ``"limited"`` (1 Gbit/s) or ``"unlimited"`` (10 Gbit/s) switch between the racks.
    """
    count = sum(TESTBED_RACKS)
    require(replicas <= count, f"replicas={replicas}: the testbed holds 1 to {count} replicas of a shard")
    rng = np.random.default_rng(seed)
    drawn = _chosen_jobs(rng, active, jobs)
    racks = [f"rack{rack}" for rack, size in enumerate(TESTBED_RACKS, 1) for _ in range(size)]
    nodes = tuple(_node(f"node{n:02}", rack, [_GPU_GB] * 2) for n, rack in enumerate(racks, 1))
    names = [node.name for node in nodes]
    made = []
    for job in drawn:
        holders = [copy_holders(rng, names, replicas, copies, job.tasks) for _ in job.shards]
        tasks = (
            Task(
                name=f"{job.name}.t{t}",
                memory_gb=job.memory_gb,
                shards=tuple(
                    Shard(name=file, size_mb=size, replicas=of[t - 1])
                    for (file, size), of in zip(job.shards, holders, strict=True)
                ),
            )
            for t in range(1, job.tasks + 1)
        )
        made.append(Job(name=job.name, tasks=tuple(tasks)))
    named = f"jobs {','.join(job.name for job in drawn)}"
    return GpuInstance(
        name="gpu-testbed",
        comment=f"The testbed of the GPU-assignment paper; {named}, {aggregation} aggregation, seed {seed}.",
        **_bandwidths(aggregation),
        nodes=nodes,
        jobs=_start_some(rng, nodes, made, running),
    )


@generator("gpu-scale")
def gpu_scale(
    *,
    seed: int = 0,
    gpus: Size = 2000,
    gpus_per_node: Size = 4,
    racks: Size = 20,
    jobs: Size = 100,
    tasks: Size = 4000,
    replicas: Size = 3,
    shards: Count = 1,
    running: Share = 0.0,
    mixed_memory: bool = False,
    aggregation: Aggregation = "limited",
) -> GpuInstance:
    """A cluster of any size; the defaults are the paper's largest case (2000 GPUs, 100 jobs).

    - ``seed``: chooses job sizes, shard sizes, replicas, memories and running tasks.
    - ``gpus``, ``gpus_per_node``: total number of GPUs, and GPUs per node (the last node may have fewer).
    - ``racks``: number of racks, which get equal shares of the nodes.
    - ``jobs``, ``tasks``: jobs, and tasks of all jobs together; each job has at least one.
    - ``replicas``, ``shards``: nodes that hold each shard; shards that each task reads (0 is allowed).
    - ``running``: share of the GPUs (0 to 1) that already run a task.
    - ``mixed_memory``: GPUs of 8 to 24 GB, equal on each node, and tasks of 4 to 20 GB; else 10 GB and 8 GB.
    - ``aggregation``: as in the testbed.
    """
    count = -(-gpus // gpus_per_node)
    require(racks <= count, f"racks={racks}: {count} nodes fill 1 to {count} racks")
    require(jobs <= tasks, f"jobs={jobs}, tasks={tasks}: each job needs a task")
    require(replicas <= count, f"replicas={replicas}: {count} nodes hold 1 to {count} replicas of a shard")
    rng = np.random.default_rng(seed)
    memory = rng.choice(_MIXED_GPU_GB, count) if mixed_memory else np.full(count, _GPU_GB)
    nodes = tuple(
        _node(f"n{n}", f"r{n * racks // count}", [gb] * min(gpus_per_node, gpus - n * gpus_per_node))
        for n, gb in enumerate(memory.tolist())
    )
    fitting = [need for need in _MIXED_NEED_GB if need <= memory.max()]
    needs = rng.choice(fitting, tasks).tolist() if mixed_memory else [8.0] * tasks
    sizes = rng.choice(_SIZES_MB, (tasks, shards)).tolist()
    weights = rng.choice([job.tasks for job in paper_jobs()], jobs).astype(float)
    job_tasks = 1 + rng.multinomial(tasks - jobs, weights / weights.sum())
    made, first = [], 0
    for j, size in enumerate(job_tasks.tolist()):
        members = tuple(
            Task(
                name=f"j{j}.t{t - first}", memory_gb=needs[t], shards=_shards(rng, nodes, _unnamed(sizes[t]), replicas)
            )
            for t in range(first, first + size)
        )
        made.append(Job(name=f"j{j}", tasks=members))
        first += size
    return GpuInstance(
        name="gpu-scale",
        comment=f"{gpus} GPUs, {jobs} jobs, {tasks} tasks. Made with seed {seed}.",
        **_bandwidths(aggregation),
        nodes=nodes,
        jobs=_start_some(rng, nodes, made, running),
    )


@generator("gpu-random")
def gpu_random(
    *,
    seed: int = 0,
    nodes: Size = 5,
    racks: Size = 2,
    gpus_per_node: Size = 3,
    jobs: Size = 3,
    tasks: Size = 10,
    shards: Count = 3,
    replicas: Size = 3,
    running: Share = 0.4,
) -> GpuInstance:
    """A small irregular cluster for tests: mixed memory on a node, nodes without GPUs, tasks without shards.

    - ``seed``: chooses everything that the other parameters bound.
    - ``nodes``, ``racks``: number of nodes, and largest number of racks.
    - ``gpus_per_node``: most GPUs of a node.
    - ``jobs``, ``tasks``: jobs, and tasks of all jobs together.
    - ``shards``, ``replicas``: most shards of a task, most replicas of a shard.
    - ``running``: share of the GPUs (0 to 1) that already run a task, as far as tasks fit them.
    """
    require(jobs <= tasks, f"jobs={jobs}, tasks={tasks}: each job needs a task")
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, gpus_per_node + 1, nodes)
    counts[rng.integers(nodes)] = max(1, counts.max())  # at least one GPU
    made_nodes = tuple(
        _node(f"n{n}", f"r{rng.integers(racks)}", rng.choice(_MIXED_GPU_GB, count).tolist())
        for n, count in enumerate(counts.tolist())
    )
    largest = max(gpu.memory_gb for node in made_nodes for gpu in node.gpus)
    fitting = [need for need in _MIXED_NEED_GB if need <= largest]
    owners = np.sort(np.concatenate([np.arange(jobs), rng.integers(0, jobs, tasks - jobs)]))
    members: list[list[Task]] = [[] for _ in range(jobs)]
    for t, owner in enumerate(owners.tolist()):
        sizes = rng.integers(1, 5000, rng.integers(0, shards + 1)).astype(float).tolist()
        copies = int(rng.integers(1, min(replicas, nodes) + 1))
        reads = _shards(rng, made_nodes, _unnamed(sizes), copies)
        members[owner].append(Task(name=f"t{t}", memory_gb=float(rng.choice(fitting)), shards=reads))
    made_jobs = [Job(name=f"j{j}", tasks=tuple(own)) for j, own in enumerate(members)]
    return GpuInstance(
        name="gpu-random",
        comment=f"Made with seed {seed}.",
        disk_mb_per_s=float(rng.integers(100, 500)),
        rack_mb_per_s=float(rng.integers(50, 150)),
        between_racks_mb_per_s=float(rng.integers(10, 100)),
        nodes=made_nodes,
        jobs=_start_some(rng, made_nodes, made_jobs, running),
    )


def _bandwidths(aggregation: Aggregation) -> dict[str, float]:
    return {
        "disk_mb_per_s": _DISK_MB_PER_S,
        "rack_mb_per_s": _LINK_MB_PER_S,
        "between_racks_mb_per_s": _BETWEEN_RACKS_MB_PER_S[aggregation],
    }


def _node(name: str, rack: str, memories_gb: Sequence[float]) -> Node:
    gpus = tuple(Gpu(name=f"{name}.gpu{g}", memory_gb=gb) for g, gb in enumerate(memories_gb))
    return Node(name=name, rack=rack, gpus=gpus)


def _unnamed(sizes_mb: Sequence[float]) -> list[tuple[str, float]]:
    return [("", size) for size in sizes_mb]


def _shards(
    rng: np.random.Generator, nodes: Sequence[Node], shards: Sequence[tuple[str, float]], replicas: int
) -> tuple[Shard, ...]:
    """Shards (name, MB) whose replicas lie on different nodes drawn at random."""
    made = []
    for name, size in shards:
        holders = rng.choice(len(nodes), replicas, replace=False)
        made.append(Shard(name=name or None, size_mb=size, replicas=tuple(nodes[n].name for n in np.sort(holders))))
    return tuple(made)


def copy_holders(
    rng: np.random.Generator, nodes: Sequence[str], replicas: int, copies: Copies, shards: int
) -> list[tuple[str, ...]]:
    """Draw the nodes that hold each shard of a file: the same for all if whole files are copied."""
    draws = 1 if copies == "file" else shards
    held = [np.sort(rng.choice(len(nodes), replicas, replace=False)).tolist() for _ in range(draws)]
    return [tuple(nodes[n] for n in held[k % draws]) for k in range(shards)]


def _chosen_jobs(rng: np.random.Generator, active: int, names: str) -> list[PaperJob]:
    table = {job.name: job for job in paper_jobs()}
    if names.strip():
        found = chosen("jobs", names, table, "job")
        require(len(set(found)) == len(found), f"jobs={names!r}: name each job once")
        return found
    require(1 <= active <= len(table), f"active={active}: 1 to {len(table)} jobs can be active")
    drawn = np.sort(rng.choice(len(table), active, replace=False))
    return [list(table.values())[index] for index in drawn]


def _start_some(rng: np.random.Generator, nodes: Sequence[Node], jobs: list[Job], share: float) -> tuple[Job, ...]:
    """Start random tasks on this share of the GPUs, where they fit; each has run for up to a minute."""
    gpus = [gpu for node in nodes for gpu in node.gpus]
    waiting = [task for job in jobs for task in job.tasks]
    order = rng.permutation(len(waiting)).tolist()
    started: dict[str, Task] = {}
    for g in rng.permutation(len(gpus))[: round(share * len(gpus))].tolist():
        place = next((i for i, t in enumerate(order) if waiting[t].memory_gb <= gpus[g].memory_gb), None)
        elapsed = round(float(rng.uniform(1.0, 60.0)), 1)
        if place is not None:
            task = waiting[order.pop(place)]
            held = Running(gpu=gpus[g].name, elapsed_s=elapsed)
            started[task.name] = Task(name=task.name, memory_gb=task.memory_gb, shards=task.shards, running=held)
    return tuple(Job(name=job.name, tasks=tuple(started.get(task.name, task) for task in job.tasks)) for job in jobs)


#: Reconstructed: GPU memory of every task; the paper's GPUs have 10 GB.
_MEMORY_GB = 8.0
#: Reconstructed: a photograph of the COCO set has about 0.16 MB.
_IMAGE_MB = 0.16
_IMAGES = 10_000

#: Kind of job, the shards (name, MB) that each task reads, and the tasks of each job of that kind.
_TABLE: tuple[tuple[str, tuple[tuple[str, float], ...], tuple[int, ...]], ...] = (
    ("matrix multiply", (("A", 1000.0), ("B", 1000.0)), (6, 10, 15, 20)),
    ("matrix multiply, thin B", (("A", 1000.0), ("B", 60.0)), (8, 10, 20, 30)),
    ("sparse integer occurrence", (("part", 3000.0),), (5, 6, 8, 10, 15, 20, 30, 60)),
    ("prime test", (("part", 2000.0),), (4, 8, 10, 15, 20, 30, 40, 60)),
    ("string sort", (("part", 2000.0),), (5, 6, 8, 10, 30, 60)),
    ("k-means", (("points", 500.0),), (5, 8, 10)),
    ("Yolo v3", (), (5, 10, 20)),
    ("sparse matrix", (("part", 28.0),), (3,)),
)


@dataclass(frozen=True)
class PaperJob:
    """One job of the paper's table."""

    # name, kind: ``J1`` to ``J37``, and what it computes
    name: str
    kind: str
    # tasks that read input and can start at once. (The add tasks that follow the multiply tasks of J1-J4, and the CPU
    # reduce of J9-J16, read no input of their own and are not counted.)
    tasks: int
    shards: tuple[tuple[str, float], ...]  # (name, size in MB) of what each task reads
    memory_gb: float  # GPU memory of each task (reconstructed)

    @property
    def input_mb(self) -> float:
        """Input of all tasks, in MB."""
        return self.tasks * sum(size for _, size in self.shards)


def paper_jobs() -> tuple[PaperJob, ...]:
    """Return J1 to J37 in order; the inputs of J1-J36 sum to the paper's 1.3 TB within 5 %."""
    jobs: list[PaperJob] = []
    for kind, shards, counts in _TABLE:
        for tasks in counts:
            reads = shards or (("images", _IMAGE_MB * _IMAGES / tasks),)
            jobs.append(PaperJob(f"J{len(jobs) + 1}", kind, tasks, reads, _MEMORY_GB))
    return tuple(jobs)
