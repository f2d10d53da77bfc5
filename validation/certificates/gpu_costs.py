"""Transfer costs of GPU assignment recomputed from shards and replicas, in whole multiples of a unit; nothing rounded.

Nodes that hold none of a task's data cost the same within a rack that holds some, and the same in all other racks. So
the cheapest way to run a task is found among the nodes that hold its data, and the cheapest GPUs of racks and cluster,
which is as good as a look at every pair of task and GPU (unless nearer is dearer: then every pair is looked at).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Floats, Integers
from flowlex.instances.exact import rational
from flowlex.instances.gpu import GpuInstance

__all__ = ["Costs", "largest_unit"]

Whole = NDArray[Any]
_WIDE = 2**60


@dataclass(frozen=True, eq=False)
class Costs:
    """Shards (S of them) of an instance.

    Attributes
    ----------
    size, parts
        (S,) whole sizes, the largest part that they share being their unit, and how many such parts are a MB.
    task
        (S,) whose each shard is.
    held_shard, held_node
        (R,) which shard lies on which node.
    node_rack
        (N,) rack of each node.
    rate
        Weighted seconds per MB from the task's node, its rack, another rack.
    waiting_s
        What a waiting task costs: a3 times the dearest transfer of any task, all its shards from another rack.
    stop_s
        (T,) what it costs to stop each running task: the price of a second of lost work times its elapsed seconds.
    """

    size: Whole
    parts: Fraction
    task: Integers
    held_shard: Integers
    held_node: Integers
    node_rack: Integers
    rate: tuple[Fraction, Fraction, Fraction]
    waiting_s: Fraction
    stop_s: list[Fraction]
    tasks: int

    @classmethod
    def of(cls, instance: GpuInstance, weights: tuple[Fraction, Fraction, Fraction], stop_price: Fraction) -> Costs:
        """Read the instance; ``weights`` are a1, a2, a3."""
        tasks = [task for job in instance.jobs for task in job.tasks]
        shards = [shard for task in tasks for shard in task.shards]
        owner = np.repeat(np.arange(len(tasks)), np.array([len(task.shards) for task in tasks], dtype=np.int64))
        copies = np.array([len(shard.replicas) for shard in shards], dtype=np.int64)
        size, parts = _whole_sizes(np.array([shard.size_mb for shard in shards], dtype=np.float64))
        number = {node.name: i for i, node in enumerate(instance.nodes)}
        racks = {node.rack: 0 for node in instance.nodes}
        racks = {rack: i for i, rack in enumerate(racks)}
        disk, within, between = map(
            rational, (instance.disk_mb_per_s, instance.rack_mb_per_s, instance.between_racks_mb_per_s)
        )
        rate = 1 / disk, weights[0] / within, weights[1] / between
        by_task = np.zeros(len(tasks), dtype=size.dtype)
        np.add.at(by_task, owner, size)
        return cls(
            size,
            parts,
            owner,
            np.repeat(np.arange(len(shards)), copies),
            np.array([number[name] for shard in shards for name in shard.replicas], dtype=np.int64),
            np.array([racks[node.rack] for node in instance.nodes]),
            rate,
            weights[2] * rate[2] * int(by_task.max(initial=0)) / parts,
            [stop_price * rational(t.running.elapsed_s) if t.running and stop_price else Fraction(0) for t in tasks],
            len(tasks),
        )

    @cached_property
    def unit(self) -> Fraction:
        """A unit of which every cost is a whole multiple."""
        return largest_unit([largest_unit(self.rate) / self.parts, self.waiting_s, *set(filter(None, self.stop_s))])

    def levels(self, started: NDArray[np.bool_], node: Integers) -> Integers:
        """(S,) where each shard is read from: 0 node, 1 rack, 2 another rack; -1 when it is not read."""
        at = node[self.task][self.held_shard]
        level = np.full(len(self.task), 2)
        level[self.held_shard[self.node_rack[self.held_node] == self.node_rack[at]]] = 1
        level[self.held_shard[self.held_node == at]] = 0
        found: Integers = np.where(started[self.task], level, -1)
        return found

    def read(self, level: Integers) -> list[Fraction]:
        """MB read from each level."""
        return [Fraction(sum(self.size[level == k].tolist()), self.parts) for k in range(3)]

    def seconds(self, level: Integers) -> Fraction:
        """Weighted seconds in all."""
        return sum((size * rate for size, rate in zip(self.read(level), self.rate, strict=True)), Fraction(0))

    def by_task(self, level: Integers) -> Floats:
        """(T,) weighted seconds of each task, in floating point."""
        rate = np.array([float(rate) for rate in self.rate])
        size = self.size.astype(np.float64) / float(self.parts) if self.size.dtype != object else self.size / self.parts
        each = np.where(level >= 0, size.astype(np.float64) * rate[level], 0.0)
        found: Floats = np.bincount(self.task, weights=each, minlength=self.tasks).astype(np.float64)
        return found

    def ways(self, unit: Fraction, factor: int) -> Ways:
        """Cost of each task in each kind of place, in whole multiples of ``unit``, ``factor`` times."""
        weights = [int(rate / unit / self.parts) * factor for rate in self.rate] if len(self.size) else [0, 0, 0]
        wide = int(self.size.sum()) * max(weights) >= _WIDE
        here, near, far = ((self.size.astype(object) if wide else self.size) * weight for weight in weights)
        nodes, racks = len(self.node_rack), int(self.node_rack.max()) + 1
        beyond = np.zeros(self.tasks, dtype=far.dtype)
        np.add.at(beyond, self.task, far)
        pairs = np.unique(self.held_shard * racks + self.node_rack[self.held_node])  # a shard is near once in a rack
        shard, rack = pairs // racks, pairs % racks
        rack_key, in_rack = _sums(self.task[shard] * racks + rack, (near - far)[shard])
        in_rack = in_rack + beyond[rack_key // racks]
        saved = (here - near)[self.held_shard]
        node_key, on_node = _sums(self.task[self.held_shard] * nodes + self.held_node, saved)
        task, node = node_key // nodes, node_key % nodes
        on_node = on_node + in_rack[np.searchsorted(rack_key, task * racks + self.node_rack[node])]
        nearer = self.rate[0] <= self.rate[1] <= self.rate[2]
        racked = rack_key // racks, rack_key % racks, in_rack
        return Ways(self.node_rack, beyond, racked, (task, node, on_node), nearer)


@dataclass(frozen=True, eq=False)
class Ways:
    """What tasks cost: anywhere else; (task, rack, cost) near their data; (task, node, cost) with their data."""

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
        dearest = max(int(cost.max(initial=0)) for cost in (self.beyond, self.in_rack[2], self.on_node[2]))
        large = dearest + int(price.max())
        wide = large >= _WIDE or price.dtype == object or self.beyond.dtype == object
        best = np.full(len(self.beyond), large, dtype=object if wide else np.int64)
        if not self.nearer_is_cheaper:
            self._every_pair(best, chosen, need, gpus)
            return best[chosen]
        mine = np.zeros(len(self.beyond), bool)
        mine[chosen] = True
        everywhere = chosen, np.zeros_like(chosen), self.beyond[chosen]
        places = (np.zeros_like(node), everywhere), (self.node_rack[node], self.in_rack), (node, self.on_node)
        for place, (task, where, cost) in places:
            open_ = mine[task]
            fits, least = _least_price(place, memory, price, where[open_], need[task[open_]])
            np.minimum.at(best, task[open_][fits], cost[open_][fits] + least)
        return best[chosen]

    def _every_pair(self, best: Whole, chosen: Integers, need: Floats, gpus: tuple[Integers, Floats, Whole]) -> None:
        node, memory, price = gpus
        for t in chosen.tolist():
            cost = np.full(len(self.node_rack), self.beyond[t], dtype=self.beyond.dtype)
            low, high = np.searchsorted(self.in_rack[0], [t, t + 1])
            for rack, value in zip(self.in_rack[1][low:high].tolist(), self.in_rack[2][low:high].tolist(), strict=True):
                cost[self.node_rack == rack] = value
            low, high = np.searchsorted(self.on_node[0], [t, t + 1])
            cost[self.on_node[1][low:high]] = self.on_node[2][low:high]
            fits = memory >= need[t]
            if fits.any():
                best[t] = min(best[t], int((cost[node] + price)[fits].min()))


def _least_price(
    place: Integers, memory: Floats, price: Whole, where: Integers, need: Floats
) -> tuple[Integers, Whole]:
    """Queries (a place and a need of memory) that some GPU there satisfies, and its least price."""
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
    """Distinct keys, and the sum of what each has."""
    distinct, at = np.unique(key, return_inverse=True)
    total = np.zeros(len(distinct), dtype=amount.dtype)
    np.add.at(total, at, amount)
    return distinct, total


def _whole_sizes(sizes: Floats) -> tuple[Whole, Fraction]:
    """Sizes in parts of a MB, and how many are one."""
    size, parts = _decimal_sizes(sizes)
    shared = int(np.gcd.reduce(size)) if len(size) else 1
    return size // shared, Fraction(parts, shared)


def _decimal_sizes(sizes: Floats) -> tuple[Whole, int]:
    """Sizes in a power of ten of a MB where that is exact: a decimal with few digits is the float nearest to it."""
    for digits in range(10):
        whole = np.rint(sizes * 10.0**digits)
        if float(whole.sum()) >= 2.0**50:
            break
        if np.array_equal(whole / 10.0**digits, sizes):
            return whole.astype(np.int64), 10**digits
    numbers = [rational(size) for size in sizes.tolist()]
    parts = math.lcm(*(number.denominator for number in numbers))
    return np.array([number.numerator * (parts // number.denominator) for number in numbers], dtype=object), parts


def largest_unit(numbers: Iterable[Fraction]) -> Fraction:
    """The largest number of which all are whole multiples; 1 when there are none but 0."""
    found = Fraction(0)
    for number in numbers:
        below = found.denominator * number.denominator
        found = Fraction(math.gcd(found.numerator * number.denominator, number.numerator * found.denominator), below)
    return found or Fraction(1)
