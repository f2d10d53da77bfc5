"""Transfer costs of the GPU-assignment problem, exact in integers.

A task reads each shard from the nearest replica: its own node (``size / disk``), its rack (``a1 * size / rack``) or
another rack (``a2 * size / between``). All of these are rational numbers, and so are the prices of waiting and of
stops; a common unit makes each of them an integer (a Python integer beyond 64 bits). Nothing is rounded.

Source: Tang et al. 2022, transfer cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.exact_rationals import rational
from flowlex.instances.gpu import GpuArrays, GpuInstance
from flowlex.instances.gpu_units import ExactCosts
from flowlex.models.model_base import ModelError

__all__ = ["LEVELS", "Penalties", "TransferCosts"]

#: Where a shard is read from, nearest first.
LEVELS = ("node", "rack", "between")

#: Sums of costs below this are made in 64 bits.
_WIDE = 2**62


@dataclass(frozen=True)
class Penalties:
    """Weights of the three kinds of cost; with the defaults a cost is plain seconds.

    Attributes
    ----------
    rack, between_racks
        a1 and a2: traffic within a rack and between racks counts this many times.
    waiting
        a3: leaving a task waiting costs this many times the most expensive transfer of any task
        (reconstructed: the paper names the coefficient only).
    """

    rack: float = 1.0
    between_racks: float = 1.0
    waiting: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rack", "between_racks", "waiting"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ModelError(f"penalty {name} must be a finite number of at least 0, got {value}")


class TransferCosts(ExactCosts):
    """Costs in whole multiples of ``unit_s`` seconds."""

    @classmethod
    def of(cls, instance: GpuInstance, penalties: Penalties, stop_price: float = 0.0) -> TransferCosts:
        """Costs of an instance under the weights of a model."""
        weights = (rational(penalties.rack), rational(penalties.between_racks), rational(penalties.waiting))
        return cls.read(instance, weights, rational(stop_price))

    @property
    def waiting(self) -> int:
        """Cost of a waiting task."""
        return int(self.waiting_s / self.unit_s)

    @cached_property
    def stop(self) -> NDArray[Any]:
        """(T,) cost of stopping each running task, 0 for the others."""
        values = [int(seconds / self.unit_s) if seconds else 0 for seconds in self.stop_s]
        return np.array(values, dtype=np.int64 if sum(values) < _WIDE else object)

    @cached_property
    def cost(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Three (S,) arrays: cost of each shard from each level of ``LEVELS``."""
        weights = [int(rate / (self.per_mb * self.unit_s)) if len(self.size) else 0 for rate in self.rates]
        wide = int(self.size.sum()) * max(weights) >= _WIDE
        size = self.size.astype(object) if wide else self.size
        node, rack, between = (size * weight for weight in weights)
        return node, rack, between

    @property
    def nearer_is_cheaper(self) -> bool:
        """Whether node <= rack <= between racks for every shard, so that racks may be merged."""
        return self.rates[0] <= self.rates[1] <= self.rates[2]

    @cached_property
    def remote(self) -> NDArray[Any]:
        """(T,) cost of each task in a rack that holds none of its data."""
        return _summed(self.view, self.cost[2])

    @cached_property
    def in_rack(self) -> tuple[Integers, Integers, NDArray[Any]]:
        """Tasks, racks and costs: each task in each rack that holds a replica, on a node that holds none."""
        view = self.view
        racks = len(view.rack_names)
        shard, rack = np.divmod(np.unique(view.replica_shard * racks + view.node_rack[view.replica_node]), racks)
        return self._grouped(view.shard_task[shard], rack, racks, (self.cost[1] - self.cost[2])[shard], None)

    @cached_property
    def on_node(self) -> tuple[Integers, Integers, NDArray[Any]]:
        """Tasks, nodes and costs: each task on each node that holds a replica of one of its shards."""
        view = self.view
        nodes, racks = len(view.node_names), len(view.rack_names)
        saved = (self.cost[0] - self.cost[1])[view.replica_shard]
        task, node, saving = self._grouped(view.shard_task[view.replica_shard], view.replica_node, nodes, saved, 0)
        rack_task, rack, rack_cost = self.in_rack
        row = np.searchsorted(rack_task * racks + rack, task * racks + view.node_rack[node])
        return task, node, rack_cost[row] + saving

    def dense(self) -> NDArray[Any]:
        """(T, N) cost of every task on every node."""
        view = self.view
        task, rack, cost = self.in_rack
        by_rack = np.repeat(self.remote[:, None], len(view.rack_names), axis=1)
        by_rack[task, rack] = cost
        table = by_rack[:, view.node_rack]
        task, node, cost = self.on_node
        table[task, node] = cost
        return table

    def megabytes(self, node_of_task: Integers) -> NDArray[np.float64]:
        """(T, 3) MB that each task reads from each level when it runs on a node (-1: reads nothing)."""
        level, view = self._levels(node_of_task), self.view
        placed = level >= 0
        where = view.shard_task[placed] * 3 + level[placed]
        table = np.bincount(where, weights=view.shard_size_mb[placed], minlength=3 * len(node_of_task))
        return table.reshape(-1, 3).astype(np.float64)

    def seconds(self, node_of_task: Integers) -> Fraction:
        """Weighted seconds that tasks take on their nodes, exact."""
        level = self._levels(node_of_task)
        read = (sum(self.size[level == k].tolist()) for k in range(3))
        return sum(
            (Fraction(size, self.per_mb) * rate for size, rate in zip(read, self.rates, strict=True)), Fraction()
        )

    def _levels(self, node_of_task: Integers) -> Integers:
        """(S,) the level from which each shard is read, -1 when it is not."""
        view = self.view
        host = node_of_task[view.shard_task]
        at = host[view.replica_shard]
        local, near = np.zeros(len(host), bool), np.zeros(len(host), bool)
        local[view.replica_shard[view.replica_node == at]] = True
        near[view.replica_shard[view.node_rack[view.replica_node] == view.node_rack[at]]] = True
        return np.where(host < 0, -1, np.where(local, 0, np.where(near, 1, 2)))

    def _grouped(
        self, task: Integers, place: Integers, places: int, amount: NDArray[Any], base: int | None
    ) -> tuple[Integers, Integers, NDArray[Any]]:
        """Sum amounts by (task, place), on top of ``base`` or of the task's remote cost."""
        key, inverse = np.unique(task * places + place, return_inverse=True)
        total = np.zeros(len(key), dtype=amount.dtype)
        np.add.at(total, inverse, amount)
        tasks, where = np.divmod(key, places)
        return tasks, where, total + (self.remote[tasks] if base is None else base)


def _summed(view: GpuArrays, amount: NDArray[Any]) -> NDArray[Any]:
    """(T,) amounts of the shards of each task."""
    total = np.zeros(len(view.task_job), dtype=amount.dtype)
    np.add.at(total, view.shard_task, amount)
    return total
