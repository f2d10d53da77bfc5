"""GPU assignment read again from the data fields of an instance: what belongs where, and what bringing data costs.

Nothing here comes from `flowlex.instances.gpu_units`, from the arrays of the instance or from the policies that models
use. A wrong price, unit or index there is refused by the certificates, which read theirs here.

The problem (Tang et al. 2022): a shard of size ``s`` MB costs ``s / disk`` seconds from the task's own node,
``a1 s / rack`` from its rack, ``a2 s / between_racks`` from another rack. A waiting task costs ``a3`` times the seconds
of the largest task from another rack, a stopped task ``stop_price`` times its elapsed seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.gc_pause import collector_paused
from flowlex.instances.exact_rationals import rational
from flowlex.instances.gpu import GpuInstance
from flowlex.validation.proofs.exact_program import common_unit


@dataclass(frozen=True, eq=False)
class GpuColumns:
    """The instance as columns, in the order of the document; indices count nodes, GPUs, jobs, tasks and shards."""

    rack_names: tuple[str, ...]
    node_names: tuple[str, ...]
    gpu_names: tuple[str, ...]
    job_names: tuple[str, ...]
    task_names: tuple[str, ...]
    node_rack: NDArray[np.int64]
    gpu_node: NDArray[np.int64]
    gpu_memory: NDArray[np.float64]
    task_job: NDArray[np.int64]
    task_memory: NDArray[np.float64]
    task_running_gpu: NDArray[np.int64]  # -1 for a waiting task
    task_elapsed: NDArray[np.float64]  # 0 for a waiting task
    shard_task: NDArray[np.int64]
    shard_size_mb: NDArray[np.float64]
    replica_shard: NDArray[np.int64]
    replica_node: NDArray[np.int64]

    @classmethod
    def of(cls, instance: GpuInstance) -> GpuColumns:
        """Read the fields of an instance."""
        with collector_paused():
            return cls._read(instance)

    @classmethod
    def _read(cls, instance: GpuInstance) -> GpuColumns:
        racks: dict[str, int] = {}
        for node in instance.nodes:
            racks.setdefault(node.rack, len(racks))
        gpus = [gpu for node in instance.nodes for gpu in node.gpus]
        tasks = [task for job in instance.jobs for task in job.tasks]
        shards = [shard for task in tasks for shard in task.shards]
        node_of = {node.name: n for n, node in enumerate(instance.nodes)}
        gpu_of = {gpu.name: g for g, gpu in enumerate(gpus)}
        held = [(t, task.running) for t, task in enumerate(tasks) if task.running is not None]
        at, since = np.full(len(tasks), -1), np.zeros(len(tasks))
        at[[t for t, _ in held]] = [gpu_of[running.gpu] for _, running in held]
        since[[t for t, _ in held]] = [running.elapsed_s for _, running in held]
        return cls(
            tuple(racks),
            tuple(node_of),
            tuple(gpu_of),
            tuple(job.name for job in instance.jobs),
            tuple([task.name for task in tasks]),
            np.array([racks[node.rack] for node in instance.nodes], np.int64),
            _parents([len(node.gpus) for node in instance.nodes]),
            np.array([gpu.memory_gb for gpu in gpus], np.float64),
            _parents([len(job.tasks) for job in instance.jobs]),
            np.array([task.memory_gb for task in tasks], np.float64),
            at,
            since,
            _parents([len(task.shards) for task in tasks]),
            np.array([shard.size_mb for shard in shards], np.float64),
            _parents([len(shard.replicas) for shard in shards]),
            np.array([node_of[name] for shard in shards for name in shard.replicas], np.int64),
        )


def _parents(counts: Sequence[int]) -> NDArray[np.int64]:
    """Whose each part is, where the k-th whole has ``counts[k]`` parts."""
    return np.repeat(np.arange(len(counts)), np.array(counts, np.int64))


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs of transfers, computed from the shards of the instance and the places of their replicas.

    Attributes
    ----------
    size, per_mb
        (S,) integer sizes of the shards in their largest common unit, and the number of units per MB.
    rates
        Weighted seconds per MB from the task's own node, from its rack, from another rack.
    waiting_s, stop_s
        Seconds that a waiting task costs; (T,) seconds that stopping each task costs.
    unit_s
        All costs are whole multiples of it.
    """

    view: GpuColumns
    size: NDArray[Any]
    per_mb: Fraction
    rates: tuple[Fraction, Fraction, Fraction]
    waiting_s: Fraction
    stop_s: tuple[Fraction, ...]
    unit_s: Fraction

    @classmethod
    def read(
        cls, instance: GpuInstance, view: GpuColumns, weights: tuple[Fraction, Fraction, Fraction], stop_price: Fraction
    ) -> Costs:
        """Read the costs of an instance; ``weights`` are a1, a2 and a3."""
        rates = (
            1 / rational(instance.disk_mb_per_s),
            weights[0] / rational(instance.rack_mb_per_s),
            weights[1] / rational(instance.between_racks_mb_per_s),
        )
        size, per_mb = whole_sizes(view.shard_size_mb)
        largest = max(_sums(view.shard_task, size)[1].tolist(), default=0)
        waiting = weights[2] * largest / per_mb * rates[2]
        stops = (Fraction(0),) * len(view.task_names)
        if stop_price:
            stops = tuple(stop_price * rational(s) for s in view.task_elapsed.tolist())
        return cls(
            view,
            size,
            per_mb,
            rates,
            waiting,
            stops,
            common_unit([*(r / per_mb for r in rates), waiting, *(stops if stop_price else ())]),
        )

    def levels(self, started: NDArray[np.bool_], node: NDArray[np.int64]) -> NDArray[np.int64]:
        """(S,) where each shard is read from: 0 node, 1 rack, 2 another rack; -1 when it is not read."""
        view = self.view
        at = node[view.shard_task][view.replica_shard]
        level = np.full(len(view.shard_task), 2)
        level[view.replica_shard[view.node_rack[view.replica_node] == view.node_rack[at]]] = 1
        level[view.replica_shard[view.replica_node == at]] = 0
        found: NDArray[np.int64] = np.where(started[view.shard_task], level, -1)
        return found

    def read_mb(self, level: NDArray[np.int64]) -> list[Fraction]:
        """MB read from each level."""
        return [Fraction(sum(self.size[level == k].tolist())) / self.per_mb for k in range(3)]

    def seconds(self, level: NDArray[np.int64]) -> Fraction:
        """Total weighted seconds."""
        return sum((size * rate for size, rate in zip(self.read_mb(level), self.rates, strict=True)), Fraction(0))

    def by_task(self, level: NDArray[np.int64]) -> NDArray[np.float64]:
        """(T,) weighted seconds of each task, in floating point."""
        rate = np.array([float(rate) for rate in self.rates])
        each = np.where(level >= 0, self.view.shard_size_mb * rate[level], 0.0)
        tasks = len(self.view.task_job)
        return np.bincount(self.view.shard_task, weights=each, minlength=tasks).astype(np.float64)

    @property
    def nearer_is_cheaper(self) -> bool:
        """Whether no shard costs less from farther away."""
        return self.rates[0] <= self.rates[1] <= self.rates[2]

    @cached_property
    def tiers(self) -> tuple[NDArray[Any], tuple[NDArray[Any], NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]:
        """Costs in ``unit_s``: (T,) far from all data; in a rack with data; on a node with data.

        Those of racks and nodes are keys ``task * racks + rack`` and ``task * nodes + node``, sorted, and costs.
        """
        view = self.view
        nodes, racks = len(view.node_rack), len(view.rack_names)
        weights = [int(rate / self.unit_s / self.per_mb) if len(self.size) else 0 for rate in self.rates]
        wide = int(self.size.sum()) * max(weights) >= 2**60
        here, near, far = ((self.size.astype(object) if wide else self.size) * weight for weight in weights)
        beyond = np.zeros(len(view.task_job), far.dtype)
        np.add.at(beyond, view.shard_task, far)
        shard, rack = np.divmod(np.unique(view.replica_shard * racks + view.node_rack[view.replica_node]), racks)
        rack_key, in_rack = _sums(view.shard_task[shard] * racks + rack, (near - far)[shard])
        in_rack = in_rack + beyond[rack_key // racks]
        saved = (here - near)[view.replica_shard]
        node_key, on_node = _sums(view.shard_task[view.replica_shard] * nodes + view.replica_node, saved)
        task, node = node_key // nodes, node_key % nodes
        on_node = on_node + in_rack[np.searchsorted(rack_key, task * racks + view.node_rack[node])]
        return beyond, (rack_key, in_rack), (node_key, on_node)

    def of_pairs(self, task: NDArray[np.int64], node: NDArray[np.int64]) -> NDArray[Any]:
        """Costs of tasks on nodes in ``unit_s``; the two are aligned, or broadcast."""
        view = self.view
        beyond, racked, noded = self.tiers
        task, node = np.broadcast_arrays(task, node)
        found = beyond[task]
        for (key, cost), place, count in ((racked, view.node_rack[node], len(view.rack_names)),
                                          (noded, node, len(view.node_rack))):  # fmt: skip
            if len(key):
                wanted = task * count + place
                at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
                found = np.where(key[at] == wanted, cost[at], found)
        return found


def _sums(key: NDArray[np.int64], amount: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Distinct keys, and the sum of the amounts of each."""
    distinct, at = np.unique(key, return_inverse=True)
    total = np.zeros(len(distinct), dtype=amount.dtype)
    np.add.at(total, at, amount)
    return distinct, total


def whole_sizes(size_mb: NDArray[np.float64]) -> tuple[NDArray[Any], Fraction]:
    """Sizes as integers in the largest unit of which all are multiples, and the number of units per MB."""
    distinct, code = np.unique(size_mb, return_inverse=True)
    exact = [rational(size) for size in distinct.tolist()]
    unit = common_unit(exact)
    whole = [int(size / unit) for size in exact]
    fits = sum(int(n) * size for n, size in zip(np.bincount(code, minlength=len(whole)).tolist(), whole, strict=True))
    return np.array(whole, dtype=np.int64 if fits < 2**62 else object)[code], 1 / unit
