"""Demands of tasks and capacities of machines as integers: every resource in a unit of its own."""

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

__all__ = ["Resources"]

#: Units of a resource beyond which an integer program in floating point would not tell "fits" from "just not".
_MOST = 2**31


@dataclass(frozen=True, eq=False)
class Resources:
    """Amounts in whole units; an instance without capacities has no resources."""

    # (R,) resources that machines have capacities of, and what a unit of each is
    names: tuple[str, ...]
    units: tuple[Fraction, ...]
    # (M, R) and (T, R) whole units, in the instance's order
    capacity: Integers
    demand: Integers

    @classmethod
    def of(cls, instance: FlowInstance) -> Resources:
        """Read an instance; decimals count as they are written.

        Raises `ModelError`: amounts of a resource have too many digits between them.
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
        """(k, 2) machine and resource where the tasks on ``machine`` (T,), -1 for none, ask for more than there is."""
        used = np.zeros_like(self.capacity)
        runs = machine >= 0
        np.add.at(used, machine[runs], self.demand[runs])
        return np.argwhere(used > self.capacity).astype(np.int64)
