"""What the statement of flow scheduling is over: tasks, machines, resources, and which task may run where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np

from flowlex.formulations.common_denominator import largest_common_unit
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.exact_rationals import rationals
from flowlex.instances.flow import FlowInstance, Machine
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.goal_interface import TaskView
from flowlex.models.flow.priced_instance import PricedInstance
from flowlex.models.flow.task_rules import TaskRules
from flowlex.models.model_base import ModelError

#: Largest number of pairs of a task and a machine in one statement.
_PAIRS = 2_000_000


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

    def over(self, machine: Integers) -> Integers:
        """(k, 2) pairs (machine, resource) exceeded by an assignment ``machine`` (T,), -1 for none."""
        used = np.zeros_like(self.capacity)
        runs = machine >= 0
        np.add.at(used, machine[runs], self.demand[runs])
        return np.argwhere(used > self.capacity).astype(np.int64)


def _amounts(name: str, *said: list[Mapping[str, float]]) -> list[list[Fraction]]:
    return [rationals(amounts.get(name, 0) for amounts in each) for each in said]


@dataclass(frozen=True, eq=False)
class FlowData:
    """Tasks and machines, which may run where, and the costs of these pairs (weighted sum of all ranks)."""

    priced: PricedInstance
    task: Integers
    machine: Integers
    costs: list[int]

    @classmethod
    def of(cls, priced: PricedInstance, *, most: int | None = None) -> Self:
        """Find all pairs; ``most``: those of so many tasks only."""
        prices = _prices(priced, range(len(priced.views))[:most])
        names = [machine.name for machine in priced.instance.machines]
        pairs = [(k, p, price[name]) for k, price in enumerate(prices) for p, name in enumerate(names) if name in price]
        if most is not None:  # some combinations of tasks and machines, not all of some tasks
            del pairs[-1:]
        ends = np.array([(k, p) for k, p, _ in pairs], np.int64).reshape(-1, 2)
        return cls(priced, ends[:, 0], ends[:, 1], [cost for *_, cost in pairs])

    @property
    def instance(self) -> FlowInstance:
        """The instance."""
        return self.priced.instance

    @property
    def rules(self) -> Rules:
        """Its goals."""
        return self.priced.rules

    @property
    def task_rules(self) -> TaskRules:
        """Its rules across tasks."""
        return self.priced.task_rules

    @cached_property
    def resources(self) -> Resources:
        """Demands of tasks and capacities of machines."""
        return Resources.of(self.instance)

    @property
    def machines(self) -> Sequence[Machine]:
        """The machines."""
        return self.instance.machines

    @cached_property
    def machine_names(self) -> list[str]:
        """Their names."""
        return [machine.name for machine in self.machines]

    @property
    def views(self) -> list[TaskView]:
        """The tasks as goals see them."""
        return self.priced.views

    @cached_property
    def task_names(self) -> list[str]:
        """Their names."""
        return [view.task.name for view in self.views]

    @cached_property
    def used(self) -> list[int]:
        """Machines on which some task may run."""
        found: list[int] = np.unique(self.machine).tolist()
        return found


def _prices(priced: PricedInstance, tasks: Iterable[int]) -> list[dict[str, int]]:
    """Cost by machine of some tasks, for the machines that may run them."""
    found, count = [], 0
    for t in tasks:
        task, costs = priced.views[t].task, priced.costs(t)
        inside, mine = priced.task_rules.inside.get(task.name, costs), {}
        for machine in priced.instance.machines if costs else ():
            if machine.slots and machine.name in costs and machine.name in inside:
                mine[machine.name] = costs[machine.name]
        found.append(mine)
        count += len(mine)
        if count > _PAIRS:
            raise ModelError(
                f"{priced.instance.name}: the integer program names every task on every machine, here more "
                f"than {_PAIRS} pairs; use a smaller instance, or leave out the changes, rules or capacities"
            )
    return found
