"""The GPU-assignment instance: racks, nodes and GPUs; jobs, their tasks, and where each task's data lie.

Source: Tang, Zhu, Mao, Fu, Li, "Algorithm of Scheduling for Data-intensive Computing Operations onto GPU
Cluster", Journal of Software 33(12), 2022, section on the problem and its data.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal

import numpy as np
from pydantic import model_validator

from flowlex.instances.array_types import Floats, Integers, floats, integers
from flowlex.instances.instance_base import (
    Instance,
    Name,
    NonNegative,
    Part,
    Positive,
    read_only,
    require_known,
    require_unique,
)


class Gpu(Part):
    """A GPU; its name is unique in the whole cluster."""

    name: Name
    """Unique among all GPUs of the cluster."""
    memory_gb: Positive
    """Memory that tasks may use, in GB; a running task gives it back when it stops."""


class Node(Part):
    """A machine in a rack. A node without GPUs may still hold replicas."""

    name: Name
    """Unique among the nodes."""
    rack: Name
    """Its rack; nodes with the same rack name share a rack switch."""
    gpus: tuple[Gpu, ...]
    """The GPUs of this node."""


class Shard(Part):
    """A piece of input data; every replica holds all of it."""

    name: Name | None = None
    """Optional; unique within its task."""
    size_mb: Positive
    """Size in MB."""
    replicas: tuple[Name, ...]
    """The nodes that hold it: at least one, none twice."""


class Running(Part):
    """The placement of a started task."""

    gpu: Name
    """Name of the GPU it holds."""
    elapsed_s: NonNegative = 0.0
    """How long it has run, in seconds."""


class Task(Part):
    """A unit of work for one GPU; without ``running`` it waits, without shards it reads nothing."""

    name: Name
    """Unique among the tasks of all jobs."""
    memory_gb: Positive
    """GPU memory it needs, in GB."""
    shards: tuple[Shard, ...] = ()
    """The data it reads, each shard from its cheapest replica."""
    running: Running | None = None
    """Set when the task has started; null when it waits."""


class Job(Part):
    """A set of independent tasks with a common share of the cluster."""

    name: Name
    """Unique among the jobs."""
    tasks: tuple[Task, ...]
    """At least one."""


# Compared by identity: equal instances must stay equal whether or not this view was built.
@dataclass(frozen=True, slots=True, eq=False)
class GpuArrays:
    """The instance as read-only arrays. Sizes: N nodes, G GPUs, T tasks, S shards, R replicas.

    Everything is in the order of the document: GPUs node by node, tasks job by job, shards task by task,
    replicas shard by shard; racks in the order in which nodes first name them.
    """

    node_rack: Integers  # (N,) rack of each node
    # gpu_node, gpu_memory: (G,) node of each GPU; its memory in GB
    gpu_node: Integers
    gpu_memory: Floats
    # task_job, task_memory: (T,) job of each task; memory it needs in GB
    task_job: Integers
    task_memory: Floats
    # task_running_gpu, task_elapsed: (T,) GPU that the task holds, -1 when it waits; seconds it has run, 0 when it
    # waits
    task_running_gpu: Integers
    task_elapsed: Floats
    # shard_task, shard_size_mb: (S,) task that reads the shard; its size in MB
    shard_task: Integers
    shard_size_mb: Floats
    # replica_shard, replica_node: (R,) the shard, and the node that holds this replica of it
    replica_shard: Integers
    replica_node: Integers
    # rack_names, node_names, gpu_names, job_names, task_names: names by index
    rack_names: tuple[str, ...]
    node_names: tuple[str, ...]
    gpu_names: tuple[str, ...]
    job_names: tuple[str, ...]
    task_names: tuple[str, ...]


class GpuInstance(Instance):
    """Jobs that share a GPU cluster: which task shall run on which GPU?

    Bandwidths are in MB/s (1 Gbit/s = 125 MB/s), sizes in MB (1 GB = 1000 MB), GPU memory in GB.

    Attributes
    ----------
    disk_mb_per_s
        Throughput of a node's own disk, in MB/s.
    rack_mb_per_s, between_racks_mb_per_s
        Bandwidth between two nodes of one rack, and of different racks, in MB/s.
    nodes
        Machines with at least one GPU in all, memory in GB; names of nodes and of GPUs are unique.
    jobs
        At least one, each with at least one task; sizes in MB, times in seconds. A task fits on the largest GPU.
    """

    kind: Literal["gpu-assignment"] = "gpu-assignment"
    disk_mb_per_s: Positive
    rack_mb_per_s: Positive
    between_racks_mb_per_s: Positive
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]

    @model_validator(mode="after")
    def _check(self) -> GpuInstance:
        _check_names(self)
        _check_memory(self)
        _check_replicas(self)
        _check_running(self)
        return self

    @property
    def gpus(self) -> Iterator[Gpu]:
        """All GPUs, node by node."""
        return (gpu for node in self.nodes for gpu in node.gpus)

    @property
    def tasks(self) -> Iterator[Task]:
        """All tasks, job by job."""
        return (task for job in self.jobs for task in job.tasks)

    @cached_property
    def arrays(self) -> GpuArrays:
        """The same data as arrays, made once."""
        nodes, jobs = self.nodes, self.jobs
        gpus = list(self.gpus)
        tasks = list(self.tasks)
        shards = [shard for task in tasks for shard in task.shards]
        node_index = {node.name: index for index, node in enumerate(nodes)}
        gpu_index = {gpu.name: index for index, gpu in enumerate(gpus)}
        rack_index = {rack: index for index, rack in enumerate(dict.fromkeys(node.rack for node in nodes))}
        holders = chain.from_iterable(shard.replicas for shard in shards)
        running = [task.running for task in tasks]
        view = GpuArrays(
            node_rack=integers(rack_index[node.rack] for node in nodes),
            gpu_node=_owners(len(node.gpus) for node in nodes),
            gpu_memory=floats(gpu.memory_gb for gpu in gpus),
            task_job=_owners(len(job.tasks) for job in jobs),
            task_memory=floats(task.memory_gb for task in tasks),
            task_running_gpu=integers(-1 if held is None else gpu_index[held.gpu] for held in running),
            task_elapsed=floats(0.0 if held is None else held.elapsed_s for held in running),
            shard_task=_owners(len(task.shards) for task in tasks),
            shard_size_mb=floats(shard.size_mb for shard in shards),
            replica_shard=_owners(len(shard.replicas) for shard in shards),
            replica_node=integers(map(node_index.__getitem__, holders)),
            rack_names=tuple(rack_index),
            node_names=tuple(node_index),
            gpu_names=tuple(gpu_index),
            job_names=tuple(job.name for job in jobs),
            task_names=tuple(task.name for task in tasks),
        )
        return read_only(view)

    def summary(self) -> dict[str, str | int | float]:
        """Sizes and totals, in the order they should be printed."""
        view = self.arrays
        running = int(np.count_nonzero(view.task_running_gpu >= 0))
        return {
            "racks": len(view.rack_names),
            "nodes": len(self.nodes),
            "GPUs": view.gpu_node.size,
            "GPU memory, least (GB)": float(view.gpu_memory.min()),
            "GPU memory, most (GB)": float(view.gpu_memory.max()),
            "jobs": len(self.jobs),
            "tasks": view.task_job.size,
            "running tasks": running,
            "waiting tasks": view.task_job.size - running,
            "shards": view.shard_task.size,
            "replicas": view.replica_shard.size,
            "input (GB)": round(float(view.shard_size_mb.sum()) / 1000.0, 6),
            "disk (MB/s)": self.disk_mb_per_s,
            "within a rack (MB/s)": self.rack_mb_per_s,
            "between racks (MB/s)": self.between_racks_mb_per_s,
        }


def _check_names(instance: GpuInstance) -> None:
    for what, parts in (("nodes", instance.nodes), ("GPUs", instance.gpus), ("jobs", instance.jobs)):
        require_unique((part.name for part in parts), what)
    if not any(node.gpus for node in instance.nodes):
        raise ValueError("the cluster has no GPU; give at least one node a GPU")
    if not instance.jobs:
        raise ValueError("there are no jobs; give at least one")
    for job in instance.jobs:
        if not job.tasks:
            raise ValueError(f"job {job.name!r} has no tasks; give it one or remove the job")
    require_unique((task.name for task in instance.tasks), "tasks")


def _check_memory(instance: GpuInstance) -> None:
    largest = max(gpu.memory_gb for gpu in instance.gpus)
    for task in instance.tasks:
        if task.memory_gb > largest:
            raise ValueError(f"task {task.name!r} needs {task.memory_gb:g} GB; the largest GPU has {largest:g} GB")


def _check_replicas(instance: GpuInstance) -> None:
    known = dict.fromkeys(node.name for node in instance.nodes)
    total = 0.0
    for task in instance.tasks:
        for shard in task.shards:
            total += shard.size_mb
            holders = set(shard.replicas)
            if not holders or len(holders) < len(shard.replicas) or not holders <= known.keys():
                _refuse(task, shard, known)
        if len(task.shards) > 1:
            require_unique((shard.name for shard in task.shards if shard.name), f"shards of task {task.name!r}")
    if not math.isfinite(total):
        raise ValueError("the shard sizes sum to more than a number can hold; check size_mb")


def _refuse(task: Task, shard: Shard, known: Collection[str]) -> None:
    of = f"shard {shard.name!r}" if shard.name is not None else f"shard {task.shards.index(shard)}"
    for node in shard.replicas:
        require_known(node, known, f"task {task.name!r}, {of}: replica on node", "nodes")
        if shard.replicas.count(node) > 1:
            raise ValueError(f"task {task.name!r}, {of}: two replicas on node {node!r}; list each node once")
    raise ValueError(f"task {task.name!r}, {of}: no node holds it; list at least one in replicas")


def _check_running(instance: GpuInstance) -> None:
    gpus = {gpu.name: gpu for gpu in instance.gpus}
    holder: dict[str, str] = {}
    for task in instance.tasks:
        if task.running is None:
            continue
        require_known(task.running.gpu, gpus, f"task {task.name!r} runs on GPU", "GPUs")
        gpu = gpus[task.running.gpu]
        if gpu.name in holder:
            raise ValueError(f"GPU {gpu.name!r} runs two tasks, {holder[gpu.name]!r} and {task.name!r}")
        if task.memory_gb > gpu.memory_gb:
            raise ValueError(
                f"task {task.name!r} needs {task.memory_gb:g} GB but runs on GPU {gpu.name!r}, "
                f"which has {gpu.memory_gb:g} GB"
            )
        holder[gpu.name] = task.name


def _owners(counts: Iterable[int]) -> Integers:
    """(sum of counts,) index of the owner of each item, when owner i has ``counts[i]`` items in a row."""
    lengths = integers(counts)
    return np.repeat(np.arange(lengths.size), lengths)
