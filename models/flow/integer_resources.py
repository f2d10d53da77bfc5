"""Demands of tasks and capacities of machines as integers, with one unit per resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from flowlex.formulations.common_denominator import common_unit
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import FlowInstance
from flowlex.models.model_base import ModelError

#: Largest amount in units; beyond it, a solver's floating-point tolerance would hide small violations.
_MOST = 2**31


@dataclass(frozen=True, eq=False)
class Resources:
    """Amounts in whole units; an instance without capacities has no resources."""

    # (R,) resources for which machines have capacities, and the size of one unit of each
    names: tuple[str, ...]
    units: tuple[Fraction, ...]
    # (M, R) and (T, R) integer units, in the order of the instance
    capacity: Integers
    demand: Integers

    @classmethod
    def of(cls, instance: FlowInstance) -> Resources:
        """Read an instance; decimals are read as written.

        Raises `ModelError` if the amounts of a resource have no common unit that is large enough.
        """
        count, units, columns = len(instance.machines), [], []
        for name in instance.resources:
            said: list[Mapping[str, float]] = [m.capacity for m in instance.machines]
            said += [task.demands for task in instance.tasks]
            found = common_unit([rational(amounts.get(name, 0)) for amounts in said], limit=_MOST)
            if not found.exact:
                raise ModelError(
                    f"amounts of {name!r} differ in more digits than an integer program can tell apart (more than "
                    f"{_MOST} times a common unit); round them, demands up and capacities down"
                )
            units.append(found.unit)
            columns.append(found.whole)
        table = np.array(columns, np.int64).reshape(len(columns), count + sum(1 for _ in instance.tasks)).T
        return cls(instance.resources, tuple(units), table[:count], table[count:])

    def over(self, machine: Integers) -> Integers:
        """(k, 2) pairs (machine, resource) exceeded by an assignment ``machine`` (T,), -1 for none."""
        used = np.zeros_like(self.capacity)
        runs = machine >= 0
        np.add.at(used, machine[runs], self.demand[runs])
        return np.argwhere(used > self.capacity).astype(np.int64)
