"""Transfer costs of GPU assignment recomputed from shards and replicas, in exact rationals of the decimal text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.gpu import GpuInstance
from flowlex.validation.certificates.numbers import exact, whole

__all__ = ["Costs"]


@dataclass(frozen=True, eq=False)
class Costs:
    """Shards (S of them) of an instance.

    Attributes
    ----------
    size
        MB of each shard.
    task
        (S,) whose it is.
    rate
        Weighted seconds per MB from the task's node, its rack, another rack.
    holds, near
        (S, nodes) bool: the node, or its rack, has a replica.
    """

    size: list[Fraction]
    task: NDArray[np.int64]
    rate: tuple[Fraction, Fraction, Fraction]
    holds: NDArray[np.bool_]
    near: NDArray[np.bool_]
    tasks: int

    @classmethod
    def of(cls, instance: GpuInstance, weights: tuple[Fraction, Fraction, Fraction]) -> Costs:
        """Read the instance; ``weights`` are a1, a2 (and a3)."""
        tasks = [task for job in instance.jobs for task in job.tasks]
        shards = [(t, shard) for t, task in enumerate(tasks) for shard in task.shards]
        node = {n.name: i for i, n in enumerate(instance.nodes)}
        racks = sorted({n.rack for n in instance.nodes})
        rack = np.array([racks.index(n.rack) for n in instance.nodes])
        holds = np.zeros((len(shards), len(node)), bool)
        for s, (_, shard) in enumerate(shards):
            holds[s, [node[name] for name in shard.replicas]] = True
        in_rack = np.stack([holds[:, rack == r].any(axis=1) for r in range(len(racks))], axis=1)
        disk, within, between = (
            exact(x) for x in (instance.disk_mb_per_s, instance.rack_mb_per_s, instance.between_racks_mb_per_s)
        )
        return cls(
            [exact(shard.size_mb) for _, shard in shards],
            np.array([t for t, _ in shards], dtype=np.int64),
            (1 / disk, weights[0] / within, weights[1] / between),
            holds,
            in_rack[:, rack],
            len(tasks),
        )

    @property
    def dearest(self) -> Fraction:
        """The dearest transfer of any task: all its shards from another rack."""
        parts, sizes = self._whole_sizes
        total: dict[int, int] = {}
        for t, size in zip(self.task.tolist(), sizes, strict=True):
            total[t] = total.get(t, 0) + size
        return Fraction(max(total.values(), default=0), parts) * self.rate[2]

    @cached_property
    def _whole_sizes(self) -> tuple[int, list[int]]:
        """Parts of a MB, and every size in such parts."""
        parts = math.lcm(*{size.denominator for size in self.size})
        return parts, [size.numerator * (parts // size.denominator) for size in self.size]

    def levels(self, started: NDArray[np.bool_], node: NDArray[np.int64]) -> NDArray[np.int64]:
        """(S,) where each shard is read from: 0 node, 1 rack, 2 another rack; -1 when it is not read."""
        host = node[self.task]
        row = np.arange(len(host))
        level = np.where(self.holds[row, host], 0, np.where(self.near[row, host], 1, 2))
        found: NDArray[np.int64] = np.where(started[self.task], level, -1)
        return found

    def seconds(self, level: NDArray[np.int64]) -> Fraction:
        """Weighted seconds in all."""
        parts, sizes = self._whole_sizes
        read = [0, 0, 0]
        for size, k in zip(sizes, level.tolist(), strict=True):
            if k >= 0:
                read[k] += size
        return sum((Fraction(size, parts) * rate for size, rate in zip(read, self.rate, strict=True)), Fraction(0))

    def by_task(self, level: NDArray[np.int64]) -> NDArray[np.float64]:
        """(T,) weighted seconds of each task, in floating point."""
        rate = np.array([float(rate) for rate in self.rate])
        each = np.where(level >= 0, np.array([float(size) for size in self.size]) * rate[level], 0.0)
        found: NDArray[np.float64] = np.bincount(self.task, weights=each, minlength=self.tasks).astype(np.float64)
        return found

    def common(self, unit: Fraction) -> Fraction:
        """A unit of which every cost and ``unit`` itself are whole multiples."""
        sizes = {(size.numerator, size.denominator) for size in self.size}
        below = {unit.denominator}
        for rate in self.rate:
            for top, bottom in sizes:
                cost, parts = top * rate.numerator, bottom * rate.denominator
                below.add(parts // math.gcd(cost, parts))
        return Fraction(1, math.lcm(*below))

    def dense(self, unit: Fraction) -> NDArray[Any]:
        """(T, nodes) cost of every task on every node in whole units."""
        per_mb = [rate / unit for rate in self.rate]
        each = [
            whole(size.numerator * rate.numerator // (size.denominator * rate.denominator) for size in self.size)
            for rate in per_mb
        ]
        if sum(int(column.max(initial=0)) for column in each) * max(1, len(self.size)) >= 2**60:
            each = [column.astype(object) for column in each]
        here, near, far = (column[:, None] for column in each)
        cost = np.where(self.holds, here, np.where(self.near, near, far))
        table = np.zeros((self.tasks, self.holds.shape[1]), dtype=cost.dtype)
        first = np.searchsorted(self.task, self.task)  # the shards of a task stand together
        nth = np.arange(len(self.task)) - first
        for k in range(int(nth.max(initial=-1)) + 1):
            rows = np.flatnonzero(nth == k)
            table[self.task[rows]] += cost[rows]
        return table
