"""Transfer costs of the GPU-assignment problem, exact in integers.

A task reads each shard from the nearest replica: its own node (``size / disk``), its rack
(``a1 * size / rack``) or another rack (``a2 * size / between``). All of these are rational numbers; a common
unit makes every cost an integer. Only when that unit is so small that 64-bit sums could overflow are costs
rounded to a decimal unit, and the error this can cause is stated.

Source: Tang et al. 2022, transfer cost.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.expression import Integers
from flowlex.instances.gpu import GpuArrays, GpuInstance
from flowlex.models.base import ModelError

__all__ = ["LEVELS", "Penalties", "TransferCosts", "exact"]

#: Where a shard is read from, nearest first.
LEVELS = ("node", "rack", "between")

#: Sums of exact costs stay below this, so that they are exact in floating-point engines too.
_EXACT_TOTAL = 2**52
_COARSEST = Fraction(1, 1000)


@dataclass(frozen=True)
class Penalties:
    """Weights of the three kinds of cost; with the defaults a cost is plain seconds.

    Attributes
    ----------
    rack, between_racks
        a1 and a2: traffic within a rack and between racks counts this many times.
    waiting
        a3: leaving a task waiting costs this many times the dearest transfer of any task
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


@dataclass(frozen=True, eq=False)
class TransferCosts:
    """Costs in whole multiples of ``unit_s`` seconds.

    Attributes
    ----------
    cost
        Three (S,) int64 arrays: cost of each shard from each level of ``LEVELS``.
    rates
        Weighted seconds per MB from each level of ``LEVELS``, exact.
    unit_s
        What a cost of 1 stands for, in (weighted) seconds; exact.
    rounded_s
        Largest error that rounding can cause in any assignment's total, in seconds; 0 when exact.
    """

    view: GpuArrays
    cost: tuple[Integers, Integers, Integers]
    rates: tuple[Fraction, Fraction, Fraction]
    unit_s: Fraction
    rounded_s: float

    @classmethod
    def of(cls, instance: GpuInstance, penalties: Penalties) -> TransferCosts:
        """Find the unit and the integer cost of each shard at each level.

        Raises
        ------
        ModelError
            Even milliseconds overflow; the largest shard is named.
        """
        view = instance.arrays
        rates = _rates(instance, penalties)
        size, per_mb = _whole_sizes(view.shard_size_mb)
        if size is not None:
            common = math.lcm(*(rate.denominator for rate in rates))
            whole = [int(rate * common) for rate in rates]
            shared = math.gcd(*whole) or 1
            factor = int(np.gcd.reduce(size)) if len(size) else 1
            size = size // factor
            whole = [w // shared for w in whole]
            unit = Fraction(shared * factor, common * per_mb)
            if int(sum(size.tolist())) * max(*whole, 1) < _EXACT_TOTAL:
                costs = (size * whole[0], size * whole[1], size * whole[2])
                return cls(view, costs, rates, unit, 0.0)
        return cls._rounded(view, rates)

    @classmethod
    def _rounded(cls, view: GpuArrays, rates: tuple[Fraction, Fraction, Fraction]) -> TransferCosts:
        sizes = view.shard_size_mb
        total = float(sizes.sum()) * float(max(rates))
        digits = math.floor(math.log10(_EXACT_TOTAL / max(total, 1e-300))) if math.isfinite(total) else -400
        unit = Fraction(10) ** -min(digits, 12)
        if unit > _COARSEST:
            shard = int(np.argmax(sizes))
            task = view.task_names[view.shard_task[shard]]
            raise ModelError(
                f"integer overflow in costs: transfers sum to {total:.3g} s; the largest shard has "
                f"{sizes[shard]:g} MB (task {task!r}). Check its size and the bandwidths"
            )
        node, rack, between = (np.rint(sizes * float(rate / unit)).astype(np.int64) for rate in rates)
        error = float(unit) * len(sizes) / 2
        return cls(view, (node, rack, between), rates, unit, error)

    @property
    def nearer_is_cheaper(self) -> bool:
        """Whether node <= rack <= between racks for every shard, so that racks may be merged."""
        node, rack, between = self.cost
        return bool((node <= rack).all() and (rack <= between).all())

    @cached_property
    def remote(self) -> Integers:
        """(T,) cost of each task in a rack that holds none of its data."""
        return self._sum(self.view.shard_task, self.cost[2])

    @cached_property
    def in_rack(self) -> tuple[Integers, Integers, Integers]:
        """Tasks, racks and costs: each task in each rack that holds a replica, on a node that holds none."""
        view = self.view
        racks = len(view.rack_names)
        shard, rack = np.divmod(np.unique(view.replica_shard * racks + view.node_rack[view.replica_node]), racks)
        return self._grouped(view.shard_task[shard], rack, racks, (self.cost[1] - self.cost[2])[shard], None)

    @cached_property
    def on_node(self) -> tuple[Integers, Integers, Integers]:
        """Tasks, nodes and costs: each task on each node that holds a replica of one of its shards."""
        view = self.view
        nodes, racks = len(view.node_names), len(view.rack_names)
        saved = (self.cost[0] - self.cost[1])[view.replica_shard]
        task, node, saving = self._grouped(view.shard_task[view.replica_shard], view.replica_node, nodes, saved, 0)
        rack_task, rack, rack_cost = self.in_rack
        row = np.searchsorted(rack_task * racks + rack, task * racks + view.node_rack[node])
        return task, node, rack_cost[row] + saving

    def dense(self) -> Integers:
        """(T, N) cost of every task on every node."""
        view = self.view
        table = np.repeat(self.remote[:, None], len(view.node_names), axis=1)
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
        table = np.zeros((len(node_of_task), 3))
        np.add.at(table, (view.shard_task[placed], level[placed]), view.shard_size_mb[placed])
        return table

    def seconds(self, node_of_task: Integers) -> Fraction:
        """Weighted seconds that tasks take on their nodes, exact even where costs were rounded."""
        parts = Counter(zip(self.view.shard_size_mb.tolist(), self._levels(node_of_task).tolist(), strict=True))
        return sum((exact(mb) * self.rates[k] * n for (mb, k), n in parts.items() if k >= 0), Fraction(0))

    @cached_property
    def dearest(self) -> Fraction:
        """Seconds of the dearest transfer of any task: all its shards from another rack."""
        if not self.rounded_s:
            return int(self.remote.max(initial=0)) * self.unit_s
        size = [Fraction(0)] * len(self.view.task_job)
        for task, mb in zip(self.view.shard_task.tolist(), self.view.shard_size_mb.tolist(), strict=True):
            size[task] += exact(mb)
        return max(size) * self.rates[2]

    def _levels(self, node_of_task: Integers) -> Integers:
        """(S,) the level from which each shard is read, -1 when it is not."""
        view = self.view
        host = node_of_task[view.shard_task]
        at = host[view.replica_shard]
        local, near = np.zeros(len(host), bool), np.zeros(len(host), bool)
        local[view.replica_shard[view.replica_node == at]] = True
        near[view.replica_shard[view.node_rack[view.replica_node] == view.node_rack[at]]] = True
        return np.where(host < 0, -1, np.where(local, 0, np.where(near, 1, 2)))

    def _sum(self, task: Integers, amount: Integers) -> Integers:
        total = np.zeros(len(self.view.task_job), np.int64)
        np.add.at(total, task, amount)
        return total

    def _grouped(
        self, task: Integers, place: Integers, places: int, amount: Integers, base: int | None
    ) -> tuple[Integers, Integers, Integers]:
        """Sum amounts by (task, place), on top of ``base`` or of the task's remote cost."""
        key, inverse = np.unique(task * places + place, return_inverse=True)
        total = np.zeros(len(key), np.int64)
        np.add.at(total, inverse, amount)
        tasks, where = np.divmod(key, places)
        return tasks, where, total + (self.remote[tasks] if base is None else base)


def exact(number: float) -> Fraction:
    """The rational number that a float's decimal text writes."""
    return Fraction(Decimal(repr(number)))


def _rates(instance: GpuInstance, penalties: Penalties) -> tuple[Fraction, Fraction, Fraction]:
    disk, rack, between = (
        exact(speed) for speed in (instance.disk_mb_per_s, instance.rack_mb_per_s, instance.between_racks_mb_per_s)
    )
    within, across = exact(penalties.rack), exact(penalties.between_racks)
    return 1 / disk, within / rack, across / between


def _whole_sizes(size_mb: NDArray[np.float64]) -> tuple[Integers | None, int]:
    """Sizes as integers of a power of ten of a MB, or None when no power up to 10**6 is exact."""
    for per_mb in (1, 10, 100, 1000, 10**4, 10**5, 10**6):
        scaled = np.rint(size_mb * per_mb)
        if not (scaled < 2.0**53).all():
            return None, 1
        if (scaled / per_mb == size_mb).all():
            return scaled.astype(np.int64), per_mb
    return None, 1
