"""Costs of reading data, in flat rows for each task: from other racks ("from afar"), by rack, and by machine.

Locality is aggregated. A task knows its ``most`` best machines that hold at least ``threshold`` of its data, the racks
that hold as much, the places that its preferences and requirements name, and the machine where it runs. On any other
machine it pays the cost of the rack if it knows the rack, else the cost from afar. With true distances, a task knows
every holder of its data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.validation.certificates.exact_numbers import times, wide

#: Largest size of a table of counts.
_COUNTS = 2**21


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of data as columns: (b,) task and MB of each block; (h,) block and machine of each replica.

    ``named_racks`` and ``named_machines`` are pairs (task, place) that are known even without data.
    """

    task: NDArray[np.int64]
    size: NDArray[np.int64]
    block: NDArray[np.int64]
    holder: NDArray[np.int64]
    named_racks: list[tuple[int, int]]
    named_machines: list[tuple[int, int]]


class Reach(NamedTuple):
    """When a place counts as known: least share of a task's data, and the most machines of a task."""

    threshold: Fraction
    most: int


@dataclass(frozen=True, eq=False)
class Rows:
    """Pairs of a task and a place (machine or rack), sorted: what reading costs there, and whether the task knows."""

    task: NDArray[np.int64]
    place: NDArray[np.int64]
    cost: NDArray[Any]
    known: NDArray[np.bool_]
    places: int

    def among(self, start: int, stop: int, *, true: bool) -> Rows:
        """The rows of a range of tasks; only known ones unless ``true``."""
        first, last = np.searchsorted(self.task, (start, stop)).tolist()
        at = np.arange(first, last)
        return self.where(at if true else at[self.known[first:last]])

    def where(self, at: NDArray[Any]) -> Rows:
        """Some of the rows, in their order."""
        return Rows(self.task[at], self.place[at], self.cost[at], self.known[at], self.places)

    def at(
        self, task: NDArray[np.int64], place: NDArray[np.int64], otherwise: NDArray[Any], *, true: bool
    ) -> NDArray[Any]:
        """(k,) costs of pairs; ``otherwise`` if there is no row, or (unless ``true``) none that is known."""
        if not len(self.task):
            return otherwise
        row = self.row(task, place)
        return np.where((row >= 0) & (self.known[row] | true), self.cost[row], otherwise)

    def row(self, task: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.int64]:
        """(k,) row of pairs, -1 where there is none."""
        if not len(self.task):
            return np.full(len(task), -1)
        key, wanted = self.task * self.places + self.place, task * self.places + place
        row = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        return np.where(key[row] == wanted, row, -1)


@dataclass(frozen=True, eq=False)
class Locality:
    """(T,) cost from afar, and the rows of racks and of machines."""

    far: NDArray[Any]
    racks: Rows
    machines: Rows
    rack: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        blocks: Blocks,
        rack: NDArray[np.int64],
        names: Sequence[str],
        tasks: int,
        per_mb: tuple[int, int],
        reach: Reach,
    ) -> Locality:
        """From blocks, (M,) rack and name of each machine, and the cost of a MB from another rack and from the own."""
        far, near = per_mb
        total = np.zeros(tasks, np.int64)
        np.add.at(total, blocks.task, blocks.size)
        task, place, size, named = _held(blocks, rack[blocks.holder], int(rack.max(initial=0)) + 1, blocks.named_racks)
        by_rack = times(total[task], far) - times(size, far - near)
        racks = Rows(task, place, by_rack, named | _enough(size, total[task], reach), int(rack.max(initial=0)) + 1)
        task, place, size, named = _held(blocks, blocks.holder, len(rack), blocks.named_machines)
        best = _enough(size, total[task], reach)
        order = np.argsort(np.argsort(np.array(names, dtype=object)))
        ranked = np.flatnonzero(best)
        ranked = ranked[np.lexsort((order[place[ranked]], -size[ranked], task[ranked]))]
        first = np.searchsorted(task[ranked], task[ranked])
        best[ranked[np.arange(len(ranked)) - first >= reach.most]] = False
        there = racks.at(task, rack[place], times(total[task], far), true=True)
        machines = Rows(task, place, wide(there) - times(size, near), named | best, len(rack))
        return cls(times(total, far), racks, machines, rack)

    def at(self, task: NDArray[np.int64], machine: NDArray[np.int64], *, true: bool) -> NDArray[Any]:
        """(k,) locality costs of tasks on machines: by true distances, or by the places that the tasks know."""
        known = self.racks.at(task, self.rack[machine], self.far[task], true=true)
        return self.machines.at(task, machine, known, true=true)

    def most_expensive(
        self, tasks: slice, fits: NDArray[np.bool_], price: NDArray[Any], stays: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]]:
        """Yield (tasks, prices, reading costs) that include the most expensive machine of each task of a range.

        Machines that fit are counted by rack and price, without those that the task knows: the others in its known
        racks are read at the rack's cost, all remaining ones at the cost from afar. ``price`` is by machine, ``stays``
        by task: the machine that is left out, or -1.
        """
        prices, level = np.unique(price[fits], return_inverse=True)
        levels = np.zeros(len(fits), np.int64)
        levels[fits] = level
        there = np.zeros((self.racks.places, len(prices)), np.int64)
        np.add.at(there, (self.rack[fits], level), 1)
        count = tasks.stop - tasks.start
        known = len(self.racks.among(tasks.start, tasks.stop, true=False).task)
        step = max(1, _COUNTS // (len(prices) * (1 + known // count)))
        for start in range(tasks.start, tasks.stop, step):
            stop = min(start + step, tasks.stop)
            racks, machines = (rows.among(start, stop, true=False) for rows in (self.racks, self.machines))
            machines = machines.where(fits[machines.place])
            within, beyond = there[racks.place], np.tile(there.sum(axis=0), (stop - start, 1))
            np.subtract.at(beyond, racks.task - start, within)
            row, at = racks.row(machines.task, self.rack[machines.place]), levels[machines.place]
            np.subtract.at(within, (row[row >= 0], at[row >= 0]), 1)
            np.subtract.at(beyond, (machines.task[row < 0] - start, at[row < 0]), 1)
            for task, left, cost in (
                (np.arange(start, stop), beyond, self.far[start:stop]),
                (racks.task, within, racks.cost),
            ):
                some = left.any(axis=1)
                yield task[some], prices[len(prices) - 1 - np.argmax(left[some, ::-1] > 0, axis=1)], cost[some]
            machines = machines.where(machines.place != stays[machines.task - tasks.start])
            yield machines.task, price[machines.place], machines.cost


def _held(
    blocks: Blocks, where: NDArray[np.int64], places: int, named: list[tuple[int, int]]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Task, place and MB of all pairs that have data or are named, sorted, and which are named."""
    once = np.unique(blocks.block * places + where)
    block, place = np.divmod(once, places)
    asked = np.array([task * places + place for task, place in named], dtype=np.int64)
    key, inverse = np.unique(np.concatenate((blocks.task[block] * places + place, asked)), return_inverse=True)
    size, known = np.zeros(len(key), np.int64), np.zeros(len(key), bool)
    np.add.at(size, inverse[: len(block)], blocks.size[block])
    known[inverse[len(block) :]] = True
    return key // places, key % places, size, known


def _enough(size: NDArray[np.int64], total: NDArray[np.int64], reach: Reach) -> NDArray[np.bool_]:
    """Whether pairs hold data, and a share large enough to be known."""
    share = reach.threshold
    enough = times(size, share.denominator) >= times(total, share.numerator)
    return np.asarray((size > 0) & enough, dtype=np.bool_)
