"""Costs of reading data, in flat rows for each task: from other racks ("from afar"), by rack, and by machine.

Locality is aggregated. A task knows its ``most`` best machines that hold at least ``threshold`` of its data, the racks
that hold as much, the places that its preferences and requirements name, and the machine where it runs. On any other
machine it pays the cost of the rack if it knows the rack, else the cost from afar.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.validation.certificates.exact_numbers import wide
from flowlex.validation.proofs.exact_program import scaled


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

    def among(self, start: int, stop: int) -> Rows:
        """The known rows of a range of tasks."""
        first, last = np.searchsorted(self.task, (start, stop)).tolist()
        return self.where(first + np.flatnonzero(self.known[first:last]))

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
        by_rack = scaled(total[task], far) - scaled(size, far - near)
        racks = Rows(task, place, by_rack, named | _enough(size, total[task], reach), int(rack.max(initial=0)) + 1)
        task, place, size, named = _held(blocks, blocks.holder, len(rack), blocks.named_machines)
        best = _enough(size, total[task], reach)
        order = np.argsort(np.argsort(np.array(names, dtype=object)))
        ranked = np.flatnonzero(best)
        ranked = ranked[np.lexsort((order[place[ranked]], -size[ranked], task[ranked]))]
        first = np.searchsorted(task[ranked], task[ranked])
        best[ranked[np.arange(len(ranked)) - first >= reach.most]] = False
        there = racks.at(task, rack[place], scaled(total[task], far), true=True)
        machines = Rows(task, place, wide(there) - scaled(size, near), named | best, len(rack))
        return cls(scaled(total, far), racks, machines, rack)

    def at(self, task: NDArray[np.int64], machine: NDArray[np.int64]) -> NDArray[Any]:
        """(k,) locality costs of tasks on machines, by the places that the tasks know."""
        known = self.racks.at(task, self.rack[machine], self.far[task], true=False)
        return self.machines.at(task, machine, known, true=False)


def _held(
    blocks: Blocks, where: NDArray[np.int64], places: int, named: list[tuple[int, int]]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Task, place and MB of all pairs that have data or are named, sorted, and which are named."""
    once = distinct(blocks.block * places + where)
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
    enough = scaled(size, share.denominator) >= scaled(total, share.numerator)
    return np.asarray((size > 0) & enough, dtype=np.bool_)


def distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values, sorted, each once; faster than NumPy's table of hashes."""
    found = np.sort(values)
    return found[np.append(True, found[1:] != found[:-1])] if len(found) else found
