"""Exact transfer costs of GPU assignment, recomputed from shards and replicas in integer multiples of a unit.

Nodes that hold none of a task's data cost the same within a rack that holds some, and the same in all other racks. So
the cheapest way to run a task is a GPU of a node that holds its data, or the cheapest GPU of a rack or of the cluster.
This equals the minimum over all pairs of task and GPU (unless nearer costs more: then every pair is checked).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.instances.gpu import GpuInstance
from flowlex.validation.restated.gpu import (
    GpuColumns,
    common_unit,
    seconds_per_mb,
    stop_prices,
    waiting_price,
    whole_sizes,
)

Whole = NDArray[Any]
_WIDE = 2**60


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
    size: Whole
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
        rates = seconds_per_mb(instance, weights[0], weights[1])
        size, per_mb = whole_sizes(view.shard_size_mb)
        waiting, stops = waiting_price(view, size, per_mb, weights[2], rates[2]), stop_prices(view, stop_price)
        unit = common_unit([*(rate / per_mb for rate in rates), waiting, *stops])
        return cls(view, size, per_mb, rates, waiting, stops, unit)

    def levels(self, started: NDArray[np.bool_], node: Integers) -> Integers:
        """(S,) where each shard is read from: 0 node, 1 rack, 2 another rack; -1 when it is not read."""
        view = self.view
        at = node[view.shard_task][view.replica_shard]
        level = np.full(len(view.shard_task), 2)
        level[view.replica_shard[view.node_rack[view.replica_node] == view.node_rack[at]]] = 1
        level[view.replica_shard[view.replica_node == at]] = 0
        found: Integers = np.where(started[view.shard_task], level, -1)
        return found

    def read_mb(self, level: Integers) -> list[Fraction]:
        """MB read from each level."""
        return [Fraction(sum(self.size[level == k].tolist())) / self.per_mb for k in range(3)]

    def seconds(self, level: Integers) -> Fraction:
        """Total weighted seconds."""
        return sum((size * rate for size, rate in zip(self.read_mb(level), self.rates, strict=True)), Fraction(0))

    def by_task(self, level: Integers) -> Floats:
        """(T,) weighted seconds of each task, in floating point."""
        rate = np.array([float(rate) for rate in self.rates])
        each = np.where(level >= 0, self.view.shard_size_mb * rate[level], 0.0)
        tasks = len(self.view.task_job)
        found: Floats = np.bincount(self.view.shard_task, weights=each, minlength=tasks).astype(np.float64)
        return found

    def ways(self, unit: Fraction, factor: int) -> Ways:
        """Cost of each task in each kind of place, in integer multiples of ``unit``, times ``factor``."""
        view, tasks = self.view, len(self.view.task_job)
        weights = [int(rate / unit / self.per_mb) * factor for rate in self.rates] if len(self.size) else [0, 0, 0]
        wide = int(self.size.sum()) * max(weights) >= _WIDE
        here, near, far = ((self.size.astype(object) if wide else self.size) * weight for weight in weights)
        nodes, racks = len(view.node_rack), len(view.rack_names)
        beyond = np.zeros(tasks, dtype=far.dtype)
        np.add.at(beyond, view.shard_task, far)
        pairs = np.unique(view.replica_shard * racks + view.node_rack[view.replica_node])  # a shard once per rack
        shard, rack = pairs // racks, pairs % racks
        rack_key, in_rack = _sums(view.shard_task[shard] * racks + rack, (near - far)[shard])
        in_rack = in_rack + beyond[rack_key // racks]
        saved = (here - near)[view.replica_shard]
        node_key, on_node = _sums(view.shard_task[view.replica_shard] * nodes + view.replica_node, saved)
        task, node = node_key // nodes, node_key % nodes
        on_node = on_node + in_rack[np.searchsorted(rack_key, task * racks + view.node_rack[node])]
        nearer = self.rates[0] <= self.rates[1] <= self.rates[2]
        racked = rack_key // racks, rack_key % racks, in_rack
        return Ways(view.node_rack, beyond, racked, (task, node, on_node), nearer)


@dataclass(frozen=True, eq=False)
class Ways:
    """Costs of tasks: (task, node, cost) with their data; (task, rack, cost) near it; ``beyond`` anywhere else."""

    node_rack: Integers
    beyond: Whole
    in_rack: tuple[Integers, Integers, Whole]
    on_node: tuple[Integers, Integers, Whole]
    nearer_is_cheaper: bool

    def cheapest(self, chosen: Integers, need: Floats, gpus: tuple[Integers, Floats, Whole]) -> Whole:
        """(k,) least cost plus price of a GPU that fits, for tasks that fit one; ``need`` is memory by (T,) task.

        ``gpus`` are node, memory and price of each GPU.
        """
        node, memory, price = gpus
        largest_cost = max(int(cost.max(initial=0)) for cost in (self.beyond, self.in_rack[2], self.on_node[2]))
        large = largest_cost + int(price.max())
        wide = large >= _WIDE or price.dtype == object or self.beyond.dtype == object
        best = np.full(len(self.beyond), large, dtype=object if wide else np.int64)
        if not self.nearer_is_cheaper:
            total = self.table(chosen)[:, node].astype(best.dtype) + price
            least_of_all: Whole = np.where(need[chosen][:, None] <= memory, total, large).min(axis=1, initial=large)
            return least_of_all
        mine = np.zeros(len(self.beyond), bool)
        mine[chosen] = True
        everywhere = chosen, np.zeros_like(chosen), self.beyond[chosen]
        places = (np.zeros_like(node), everywhere), (self.node_rack[node], self.in_rack), (node, self.on_node)
        for place, (task, where, cost) in places:
            open_ = mine[task]
            fits, least = _least_price(place, memory, price, where[open_], need[task[open_]])
            np.minimum.at(best, task[open_][fits], cost[open_][fits] + least)
        return best[chosen]

    def table(self, chosen: Integers) -> Whole:
        """(k, N) cost of tasks on all nodes."""
        row = np.full(len(self.beyond), -1)
        row[chosen] = np.arange(len(chosen))
        by_rack = np.repeat(self.beyond[chosen][:, None], int(self.node_rack.max()) + 1, axis=1)
        task, rack, cost = self.in_rack
        mine = row[task] >= 0
        by_rack[row[task[mine]], rack[mine]] = cost[mine]
        found: Whole = by_rack[:, self.node_rack]
        task, node, cost = self.on_node
        mine = row[task] >= 0
        found[row[task[mine]], node[mine]] = cost[mine]
        return found


def _least_price(
    place: Integers, memory: Floats, price: Whole, where: Integers, need: Floats
) -> tuple[Integers, Whole]:
    """Indices of queries (place, memory) that some GPU there satisfies, and the least price of such a GPU."""
    classes = np.unique(memory)
    values, rank = np.unique(price, return_inverse=True)
    key = place * len(classes) + len(classes) - 1 - np.searchsorted(classes, memory)  # the largest of a place first
    order = np.argsort(key, kind="stable")
    key, shift = key[order], place[order] * len(values)
    best = np.minimum.accumulate(rank[order] - shift) + shift  # each place begins anew, below all before it
    wanted = np.searchsorted(classes, need)
    at = np.searchsorted(key, where * len(classes) + len(classes) - 1 - wanted, side="right") - 1
    there = (wanted < len(classes)) & (at >= 0)
    fits = np.flatnonzero(there)[place[order][at[there]] == where[there]]
    return fits, values[best[at[fits]]]


def _sums(key: Integers, amount: Whole) -> tuple[Integers, Whole]:
    """Distinct keys, and the sum of the amounts of each."""
    distinct, at = np.unique(key, return_inverse=True)
    total = np.zeros(len(distinct), dtype=amount.dtype)
    np.add.at(total, at, amount)
    return distinct, total
