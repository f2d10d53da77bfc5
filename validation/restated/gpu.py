"""GPU assignment read again from the data fields of an instance: what belongs where, and what bringing data costs.

Nothing here comes from `flowlex.instances.gpu_units`, from the arrays of the instance or from the policies that models
use. A wrong price, unit or index there is refused by the certificates, which read theirs here.

The problem (Tang et al. 2022): a shard of size ``s`` MB costs ``s / disk`` seconds from the task's own node,
``a1 s / rack`` from its rack, ``a2 s / between_racks`` from another rack. A waiting task costs ``a3`` times the seconds
of the largest task from another rack, a stopped task ``stop_price`` times its elapsed seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.exact_rationals import rational
from flowlex.instances.gpu import GpuInstance

#: Name of each policy; whether jobs get fair shares, and whether jobs above theirs may lose tasks.
_POLICIES = {"FSP": (True, True), "FS": (True, False), "FSU": (False, False)}


class PolicyRules(NamedTuple):
    """What a policy demands."""

    fair: bool
    preemptive: bool

    @classmethod
    def of(cls, name: str) -> PolicyRules:
        """The rules of a policy by name; `ValueError` for an unknown one."""
        if name not in _POLICIES:
            raise ValueError(f"policy must be one of {', '.join(_POLICIES)}, got {name!r}")
        return cls(*_POLICIES[name])


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
        racks: dict[str, int] = {}
        for node in instance.nodes:
            racks.setdefault(node.rack, len(racks))
        gpus = [(gpu, n) for n, node in enumerate(instance.nodes) for gpu in node.gpus]
        tasks = [(task, j) for j, job in enumerate(instance.jobs) for task in job.tasks]
        shards = [(shard, t) for t, (task, _) in enumerate(tasks) for shard in task.shards]
        replicas = [(k, name) for k, (shard, _) in enumerate(shards) for name in shard.replicas]
        node_of = {node.name: n for n, node in enumerate(instance.nodes)}
        gpu_of = {gpu.name: g for g, (gpu, _) in enumerate(gpus)}
        return cls(
            tuple(racks),
            tuple(node_of),
            tuple(gpu_of),
            tuple(job.name for job in instance.jobs),
            tuple(task.name for task, _ in tasks),
            _integers([racks[node.rack] for node in instance.nodes]),
            _integers([n for _, n in gpus]),
            np.array([gpu.memory_gb for gpu, _ in gpus], np.float64),
            _integers([j for _, j in tasks]),
            np.array([task.memory_gb for task, _ in tasks], np.float64),
            _integers([-1 if task.running is None else gpu_of[task.running.gpu] for task, _ in tasks]),
            np.array([0.0 if task.running is None else task.running.elapsed_s for task, _ in tasks], np.float64),
            _integers([t for _, t in shards]),
            np.array([shard.size_mb for shard, _ in shards], np.float64),
            _integers([k for k, _ in replicas]),
            _integers([node_of[name] for _, name in replicas]),
        )


def _integers(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def seconds_per_mb(instance: GpuInstance, rack: Fraction, between: Fraction) -> tuple[Fraction, Fraction, Fraction]:
    """Weighted seconds per MB from the task's own node, from its rack, from another rack; the weights are a1 and a2."""
    return (
        1 / rational(instance.disk_mb_per_s),
        rack / rational(instance.rack_mb_per_s),
        between / rational(instance.between_racks_mb_per_s),
    )


def whole_sizes(size_mb: NDArray[np.float64]) -> tuple[NDArray[Any], Fraction]:
    """Sizes as integers in the largest unit of which all are multiples, and the number of units per MB."""
    distinct, code = np.unique(size_mb, return_inverse=True)
    exact = [rational(size) for size in distinct.tolist()]
    unit = common_unit(exact)
    whole = [int(size / unit) for size in exact]
    fits = sum(int(n) * size for n, size in zip(np.bincount(code, minlength=len(whole)).tolist(), whole, strict=True))
    return np.array(whole, dtype=np.int64 if fits < 2**62 else object)[code], 1 / unit


def waiting_price(
    view: GpuColumns, size: NDArray[Any], per_mb: Fraction, weight: Fraction, between: Fraction
) -> Fraction:
    """Seconds that a waiting task costs: ``weight`` (a3) times the largest task's seconds from another rack."""
    total = [0] * len(view.task_names)
    for task, units in zip(view.shard_task.tolist(), size.tolist(), strict=True):
        total[task] += units
    return weight * max(total, default=0) / per_mb * between


def stop_prices(view: GpuColumns, price: Fraction) -> tuple[Fraction, ...]:
    """Seconds that stopping each task costs; 0 for a waiting task."""
    return tuple(price * rational(elapsed) if price else Fraction(0) for elapsed in view.task_elapsed.tolist())


def common_unit(numbers: Iterable[Fraction]) -> Fraction:
    """The largest number of which all numbers are whole multiples; 1 if all are 0.

    Examples
    --------
    >>> common_unit([Fraction(1, 2), Fraction(0), Fraction(5, 3)])
    Fraction(1, 6)
    """
    unit = Fraction(0)
    for number in {*numbers}:
        if number:
            below = unit.denominator * number.denominator
            unit = Fraction(math.gcd(unit.numerator * number.denominator, number.numerator * unit.denominator), below)
    return unit or Fraction(1)
