"""A cluster over time: nodes with places for tasks, disks and links; jobs that arrive, each a graph of tasks.

Sources: Tang et al. 2022 (jobs as graphs, shards with replicas, racks with uplinks); Chen et al. 2017 (slots, labels,
priorities). A *place* runs tasks: a GPU, the cores of a node, or a machine with a number of slots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, StrictBool, model_validator

from flowlex.instances.instance_base import Instance, Name, NonNegative, Part, Positive, require_known, require_unique

Amount = Annotated[int, Field(ge=0, le=10**9, strict=True)]


class Place(Part):
    """Something that tasks run on, with integer amounts of its resources."""

    name: Name
    """Unique in the cluster."""
    capacity: Mapping[Name, Annotated[int, Field(ge=1, le=10**9, strict=True)]]
    """Amount by resource: ``{"gpu": 1}``, ``{"slot": 24}``, ``{"gpu_gb": 16, "core": 8, "gb": 32}``."""


class Outage(Part):
    """A period in which a node is down: its tasks stop, and the task outputs on it are lost."""

    from_s: NonNegative
    """Time of the failure."""
    until_s: Positive | None = None
    """Time of the return; null: never."""


class ClusterNode(Part):
    """A machine; a machine without places may still hold data."""

    name: Name
    """Unique among the nodes."""
    rack: Name = "rack1"
    """Nodes of a rack share its uplink."""
    places: tuple[Place, ...] = ()
    """Places that run tasks."""
    labels: tuple[Name, ...] = ()
    """Properties that tasks may prefer or require, such as ``gpu``."""
    outages: tuple[Outage, ...] = ()
    """Its periods of downtime, in order of time."""


class Read(Part):
    """Data that a task reads before it computes: a shard with replicas, or the output of another task."""

    size_mb: Positive
    """In MB."""
    replicas: tuple[Name, ...] = ()
    """Nodes that hold it; the task reads from the nearest one that is up."""
    task: Name | None = None
    """The task of the same job that produced it; read from the node where that task ran."""

    @model_validator(mode="after")
    def _one(self) -> Read:
        if bool(self.replicas) == (self.task is not None):
            raise ValueError("a read names the nodes that hold the data, or the task that made them, one of the two")
        return self


class ClusterTask(Part):
    """A unit of work: it occupies its demand of one place, reads, computes, and releases the demand."""

    name: Name
    """Unique among all tasks."""
    demand: Mapping[Name, Annotated[int, Field(ge=1, le=10**9, strict=True)]]
    """Amount by resource, all from one place."""
    compute_s: NonNegative
    """Seconds of computing once the data are there."""
    reads: tuple[Read, ...] = ()
    """Inputs, read in parallel."""
    after: tuple[Name, ...] = ()
    """Other tasks of the job that must end first; it does not read from them."""
    slow: Mapping[Name, Positive] = Field(default_factory=dict)
    """By label: factor by which computing takes longer on a node *without* the label."""
    fast: Mapping[Name, Positive] = Field(default_factory=dict)
    """By label: factor by which computing is faster on a node *with* the label."""
    keeps: StrictBool = False
    """Whether it keeps its progress when it is stopped (a checkpoint); otherwise it starts anew."""


class ClusterJob(Part):
    """Tasks of one user; their reads and ``after`` form a directed acyclic graph."""

    name: Name
    """Unique among the jobs."""
    tasks: tuple[ClusterTask, ...] = Field(min_length=1)
    """At least one, in topological order."""
    arrival_s: NonNegative = 0.0
    """Time of submission."""
    user: Name = "user"
    """The user whose queue it joins."""
    priority: Annotated[int, Field(strict=True, ge=0, le=1000)] = 0
    """Smaller is more important."""


class ClusterWorkload(Instance):
    """Jobs over time on a cluster; bandwidths in MB/s (1 Gbit/s = 125 MB/s), sizes in MB (1 GB = 1000 MB).

    Attributes
    ----------
    disk_mb_per_s, link_mb_per_s
        Bandwidth of each node's disk, shared by all that read it, and of its port in each direction, in MB/s.
    uplink_mb_per_s, aggregation_mb_per_s
        Bandwidth of each rack in each direction, and of the switch between the racks, in MB/s; null for no limit.
    nodes
        Names of nodes and places are unique; the outages of a node are disjoint and in order of time.
    jobs
        At least one; times in seconds. Each task fits some place and depends on earlier tasks only.
    jobs_at_once
        Number of jobs that run at a time; null for no limit.
    """

    kind: Literal["cluster-workload"] = "cluster-workload"
    disk_mb_per_s: Positive = 200.0
    link_mb_per_s: Positive = 125.0
    uplink_mb_per_s: Positive = 125.0
    aggregation_mb_per_s: Positive | None = None
    nodes: tuple[ClusterNode, ...]
    jobs: tuple[ClusterJob, ...] = Field(min_length=1)
    jobs_at_once: Annotated[int, Field(strict=True, ge=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> ClusterWorkload:
        for kind in ("nodes", "places", "jobs", "tasks"):
            require_unique((each.name for each in getattr(self, kind)), kind)
        for node in self.nodes:
            _check_outages(node)
        known = dict.fromkeys(node.name for node in self.nodes)
        fits: set[tuple[tuple[str, int], ...]] = set()
        for job in self.jobs:
            _check_job(job, known)
            for task in job.tasks:
                self._check_demand(task, fits)
        return self

    def _check_demand(self, task: ClusterTask, fits: set[tuple[tuple[str, int], ...]]) -> None:
        key = tuple(sorted(task.demand.items()))
        if key not in fits:
            if not any(all(place.capacity.get(name, 0) >= much for name, much in key) for place in self.places):
                needs = ", ".join(f"{much} {name}" for name, much in key)
                raise ValueError(f"task {task.name!r} needs {needs}; no place has as much")
            fits.add(key)

    @property
    def places(self) -> Iterator[Place]:
        """All places, node by node."""
        return (place for node in self.nodes for place in node.places)

    @property
    def tasks(self) -> Iterator[ClusterTask]:
        """All tasks, job by job."""
        return (task for job in self.jobs for task in job.tasks)

    @property
    def cells(self) -> int:
        """Nodes times tasks."""
        return len(self.nodes) * sum(len(job.tasks) for job in self.jobs)

    def summary(self) -> dict[str, str | int | float]:
        """Sizes and totals, in the order they should be printed."""
        tasks = list(self.tasks)
        totals: dict[str, int] = {}
        for place in self.places:
            for name, much in place.capacity.items():
                totals[name] = totals.get(name, 0) + much
        shards = sum(read.size_mb for task in tasks for read in task.reads if read.task is None)
        return {
            "racks": len({node.rack for node in self.nodes}),
            "nodes": len(self.nodes),
            "resources": ", ".join(f"{much} {name}" for name, much in totals.items()),
            "jobs": len(self.jobs),
            "users": len({job.user for job in self.jobs}),
            "tasks": len(tasks),
            "input (GB)": round(shards / 1000.0, 6),
            "computing (hours)": round(sum(task.compute_s for task in tasks) / 3600.0, 6),
            "last arrival (s)": max(job.arrival_s for job in self.jobs),
        }


def _check_outages(node: ClusterNode) -> None:
    free = -1.0
    for outage in node.outages:
        if outage.from_s <= free or (outage.until_s is not None and outage.until_s <= outage.from_s):
            raise ValueError(f"node {node.name!r}: outages must follow each other, each ending after it begins")
        free = float("inf") if outage.until_s is None else outage.until_s


def _check_job(job: ClusterJob, nodes: Collection[str]) -> None:
    earlier: set[str] = set()
    for task in job.tasks:
        needed = {*task.after, *(read.task for read in task.reads if read.task is not None)}
        for name in sorted(needed - earlier):
            raise ValueError(f"job {job.name!r}: task {task.name!r} needs {name!r}, no earlier task of the job")
        for read in task.reads:
            for name in read.replicas:
                require_known(name, nodes, f"task {task.name!r} reads from node", "nodes")
        earlier.add(task.name)
