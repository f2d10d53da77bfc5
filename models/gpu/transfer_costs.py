"""Exact integer transfer costs of the GPU assignment problem.

A task reads each shard from the nearest replica: its own node (``size / disk``), its rack (``a1 * size / rack``) or
another rack (``a2 * size / between``). These costs, and the costs of waiting and of stops, are rational. In a common
unit each of them is an integer (a Python integer beyond 64 bits), so nothing is rounded.

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

#: Levels from which a shard is read, nearest first.
LEVELS = ("node", "rack", "between")

#: Sums of costs below this limit use 64-bit integers.
_WIDE = 2**62


@dataclass(frozen=True)
class Penalties:
    """Weights of the three kinds of cost; by default costs are seconds.

    Attributes
    ----------
    rack, between_racks
        a1 and a2: factors of the cost of traffic within a rack and between racks.
    waiting
        a3: cost of a waiting task, as a multiple of the most expensive transfer of any task
        (our choice: the paper only names the coefficient).
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
    """Costs in integer multiples of ``unit_s`` seconds."""

    @classmethod
    def of(cls, instance: GpuInstance, penalties: Penalties, stop_price: float = 0.0) -> TransferCosts:
        """Compute the costs of an instance with the weights of a model."""
        weights = (rational(penalties.rack), rational(penalties.between_racks), rational(penalties.waiting))
        return cls.read(instance, weights, rational(stop_price))

    @property
    def waiting(self) -> int:
        """Cost of a waiting task."""
        return int(self.waiting_s / self.unit_s)

    @cached_property
    def stop(self) -> NDArray[Any]:
        """(T,) cost of stopping each running task, 0 for the others."""
        stops = self.stop_s
        if not stops or (not stops[0] and stops.count(stops[0]) == len(stops)):
            return np.zeros(len(stops), np.int64)
        values = [int(seconds / self.unit_s) if seconds else 0 for seconds in stops]
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
        """Whether node <= rack <= between racks for every shard, so that nodes of a rack may be merged."""
        return self.rates[0] <= self.rates[1] <= self.rates[2]

    @cached_property
    def remote(self) -> NDArray[Any]:
        """(T,) cost of each task in a rack without its data."""
        return _summed(self.view, self.cost[2])

    @cached_property
    def in_rack(self) -> tuple[Integers, Integers, NDArray[Any]]:
        """Tasks, racks and costs: each task in each rack with a replica, on a node without one."""
        view = self.view
        racks = len(view.rack_names)
        shard, rack = np.divmod(np.unique(view.replica_shard * racks + view.node_rack[view.replica_node]), racks)
        return self._grouped(view.shard_task[shard], rack, racks, (self.cost[1] - self.cost[2])[shard], None)

    @cached_property
    def on_node(self) -> tuple[Integers, Integers, NDArray[Any]]:
        """Tasks, nodes and costs: each task on each node with a replica of one of its shards."""
        view = self.view
        nodes, racks = len(view.node_names), len(view.rack_names)
        saved = (self.cost[0] - self.cost[1])[view.replica_shard]
        task, node, saving = self._grouped(view.shard_task[view.replica_shard], view.replica_node, nodes, saved, 0)
        rack_task, rack, rack_cost = self.in_rack
        row = np.searchsorted(rack_task * racks + rack, task * racks + view.node_rack[node])
        return task, node, rack_cost[row] + saving

    def dense(self) -> NDArray[Any]:
        """Return the cost of every task on every node, (T, N)."""
        view = self.view
        task, rack, cost = self.in_rack
        by_rack = np.repeat(self.remote[:, None], len(view.rack_names), axis=1)
        by_rack[task, rack] = cost
        table = by_rack[:, view.node_rack]
        task, node, cost = self.on_node
        table[task, node] = cost
        return table

    def megabytes(self, node_of_task: Integers) -> NDArray[np.float64]:
        """Return the MB that each task reads from each level on its node, (T, 3); node -1: not placed."""
        level, view = self._levels(node_of_task), self.view
        placed = level >= 0
        where = view.shard_task[placed] * 3 + level[placed]
        table = np.bincount(where, weights=view.shard_size_mb[placed], minlength=3 * len(node_of_task))
        return table.reshape(-1, 3).astype(np.float64)

    def seconds(self, node_of_task: Integers) -> Fraction:
        """Return the exact weighted transfer seconds of all tasks on their nodes."""
        level = self._levels(node_of_task)
        read = (sum(self.size[level == k].tolist()) for k in range(3))
        return sum(
            (Fraction(size, self.per_mb) * rate for size, rate in zip(read, self.rates, strict=True)), Fraction()
        )

    def _levels(self, node_of_task: Integers) -> Integers:
        """(S,) the level from which each shard is read, -1 if it is not read."""
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
        """Sum amounts by (task, place) and add ``base`` or the remote cost of the task."""
        key, inverse = np.unique(task * places + place, return_inverse=True)
        total = np.zeros(len(key), dtype=amount.dtype)
        np.add.at(total, inverse, amount)
        tasks, where = np.divmod(key, places)
        return tasks, where, total + (self.remote[tasks] if base is None else base)


def _summed(view: GpuArrays, amount: NDArray[Any]) -> NDArray[Any]:
    """Sum amounts of shards by task, (T,)."""
    total = np.zeros(len(view.task_job), dtype=amount.dtype)
    np.add.at(total, view.shard_task, amount)
    return total
