"""Demands of tasks and capacities of machines as integers, with one unit per resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from flowlex.formulations.common_denominator import largest_common_unit
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.exact_rationals import rationals
from flowlex.instances.flow import FlowInstance

#: Largest coefficient of a row; beyond it, a solver's floating-point tolerance would hide small violations.
_COEFFICIENT = 2**31


@dataclass(frozen=True, eq=False)
class Resources:
    """Amounts in whole units; an instance without capacities has no resources.

    Nothing is rounded: where sums of amounts leave 64 bits, the arrays hold Python integers.
    """

    # (R,) resources for which machines have capacities, and the size of one unit of each
    names: tuple[str, ...]
    units: tuple[Fraction, ...]
    # (R,) units from which on a multiple is a row of an integer program with coefficients up to 2^31: 1, or more for
    # amounts with many digits. In multiples of it, demands and capacities are rounded down, which only relaxes the row
    smallest_size: tuple[int, ...]
    # (M, R) and (T, R) integer units, in the order of the instance; a demand beyond all machines counts one unit more
    # than the largest capacity
    capacity: Integers
    demand: Integers

    @classmethod
    def of(cls, instance: FlowInstance) -> Resources:
        """Read an instance; decimals are read as written."""
        tasks = list(instance.tasks)
        units, smallest, has, asks, total = [], [], [], [], 0
        for name in instance.resources:
            there, asked = _amounts(name, [m.capacity for m in instance.machines], [task.demands for task in tasks])
            unit = largest_common_unit((*there, *asked))
            capacity, demand = ([int(x / unit) for x in each] for each in (there, asked))
            largest = max(capacity)
            units.append(unit)
            smallest.append(max(1, -(-largest // _COEFFICIENT)))
            has.append(capacity)
            asks.append([min(x, largest + 1) for x in demand])
            total = max(total, (largest + 1) * (len(capacity) + len(demand)))
        kind = np.int64 if total < 2**62 else object
        shapes = ((has, len(instance.machines)), (asks, len(tasks)))
        tables = [np.array(rows, kind).reshape(len(units), count).T for rows, count in shapes]
        return cls(instance.resources, tuple(units), tuple(smallest), tables[0], tables[1])

    def over(self, machine: Integers) -> Integers:
        """(k, 2) pairs (machine, resource) exceeded by an assignment ``machine`` (T,), -1 for none."""
        used = np.zeros_like(self.capacity)
        runs = machine >= 0
        np.add.at(used, machine[runs], self.demand[runs])
        return np.argwhere(used > self.capacity).astype(np.int64)


def _amounts(name: str, *said: list[Mapping[str, float]]) -> list[list[Fraction]]:
    return [rationals(amounts.get(name, 0) for amounts in each) for each in said]
