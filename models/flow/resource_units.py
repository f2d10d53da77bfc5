"""What tasks ask for and machines have of each resource, in whole units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from flowlex.formulations.common_denominator import largest_common_unit
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.exact_rationals import rationals
from flowlex.instances.flow import FlowInstance

#: Units of a capacity where amounts are rounded: one unit is more than the tolerance of a solver.
_UNITS = 2**16
#: A solver reads amounts of a resource if the largest is at most so many times the smallest.
_RATIO = 2**40


@dataclass(frozen=True, eq=False)
class Resources:
    """Amounts in whole units; an instance without capacities has no resources.

    The unit of a resource is the largest of which all demands are multiples, so a machine holds a multiple of it too.
    Nothing is rounded: where sums of amounts leave 64 bits, the arrays hold Python integers.
    """

    # (R,) resources for which machines have capacities, and the size of one unit of each
    names: tuple[str, ...]
    units: tuple[Fraction, ...]
    # (M, R) and (T, R) integer units, in the order of the instance; a demand beyond all machines counts one unit more
    # than the largest capacity, and a capacity beyond all demands one more than their sum
    capacity: Integers
    demand: Integers

    @classmethod
    def of(cls, instance: FlowInstance) -> Resources:
        """Read an instance; decimals are read as written."""
        tasks = list(instance.tasks)
        units, has, asks, total = [], [], [], 0
        for name in instance.resources:
            there, asked = _amounts(name, [m.capacity for m in instance.machines], [task.demands for task in tasks])
            unit = largest_common_unit(asked)
            demand = [int(x / unit) for x in asked]
            capacity = [min(int(x // unit), sum(demand) + 1) for x in there]
            largest = max(capacity)
            units.append(unit)
            has.append(capacity)
            asks.append([min(x, largest + 1) for x in demand])
            total = max(total, (largest + 1) * (len(capacity) + len(demand)))
        kind = np.int64 if total < 2**62 else object
        shapes = ((has, len(instance.machines)), (asks, len(tasks)))
        tables = [np.array(rows, kind).reshape(len(units), count).T for rows, count in shapes]
        return cls(instance.resources, tuple(units), tables[0], tables[1])

    @property
    def readable(self) -> bool:
        """Whether a solver reads the amounts that tasks ask for, of each resource."""
        used = [column[column > 0] for column in self.demand.T]
        return all(int(each.max()) <= _RATIO * int(each.min()) for each in used if len(each))

    def rounded(self, task: Integers, machine: Integers, held: Integers) -> tuple[Integers, Integers]:
        """(k, R) demands of pairs, rounded up, and (M, R) capacities, rounded down, in few units of each machine.

        What keeps these keeps the amounts too. ``held``: (T,) machine on which a task stays, or -1; what such tasks
        take is taken off the capacity exactly.
        """
        free, demand = self.capacity.astype(object), self.demand.astype(object)
        stays = np.flatnonzero(held >= 0)
        np.subtract.at(free, held[stays], demand[stays])
        free = np.maximum(free, 0)
        step = np.maximum(-(-free // _UNITS), 1)
        asks = np.where((held[task] == machine)[:, None], 0, -(-demand[task] // step[machine]))
        return np.minimum(asks, 2 * _UNITS).astype(np.int64), (free // step).astype(np.int64)

    def over(self, machine: Integers) -> Integers:
        """(k, 2) pairs (machine, resource) exceeded by an assignment ``machine`` (T,), -1 for none."""
        used = np.zeros_like(self.capacity)
        runs = machine >= 0
        np.add.at(used, machine[runs], self.demand[runs])
        return np.argwhere(used > self.capacity).astype(np.int64)


def _amounts(name: str, *said: list[Mapping[str, float]]) -> list[list[Fraction]]:
    return [rationals(amounts.get(name, 0) for amounts in each) for each in said]
