"""What the statement of flow scheduling is over: tasks on machines, or classes of identical tasks on kinds of machines.

Tasks of one class have the same job, costs, demands and rules; machines of one kind have the same costs for every
class and the same slots, capacities and domains. With slots, domains and ``different_machines`` alone, counts can
always be assigned to tasks and machines; with capacities, counts are a relaxation (see
`flowlex.models.flow.methods.counted_program`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
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
from flowlex.models.flow.own_goals import is_foreign
from flowlex.models.flow.priced_instance import PricedInstance
from flowlex.models.flow.task_rules import TaskRules
from flowlex.models.model_base import ModelError

#: Largest number of pairs of a task (or class) and a machine in one statement.
_PAIRS = 2_000_000
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


@dataclass(frozen=True, eq=False)
class FlowData:
    """Tasks and machines, or their classes and kinds in the order of their first members, and which may run where."""

    instance: FlowInstance
    rules: Rules
    task_rules: TaskRules
    priced: PricedInstance
    counted: bool  # whether classes and kinds are counted; otherwise each task and machine is one of its own
    class_of: Integers  # (T,) class of each task
    kind_of: Integers  # (M,) kind of each machine
    # feasible pairs of a class and a kind, and their costs (weighted sum of all ranks)
    task: Integers
    machine: Integers
    costs: list[int]

    @classmethod
    def of(
        cls, priced: PricedInstance, *, counted: bool = False, machines_alone: bool = False, most: int | None = None
    ) -> Self:
        """Group identical tasks and machines if they are ``counted``; ``machines_alone``: tasks only.

        ``most``: find the pairs of so many classes only.
        """
        instance, rules, task_rules = priced.instance, priced.rules, priced.task_rules
        classes, kinds = np.arange(len(priced.views)), np.arange(len(instance.machines))
        if counted:
            foreign = any(is_foreign(goal) for goal in rules.goals)
            classes = _numbered(_key(view, rules, task_rules, foreign=foreign) for view in priced.views)
        firsts = _firsts(classes).tolist()[:most]
        prices = _prices(priced, firsts, instance.resources if counted else ())
        if counted and not machines_alone:
            has = Resources.of(instance).capacity.tolist()
            kinds = _numbered(
                (
                    tuple(price.get(machine.name) for price in prices),
                    tuple(amounts),
                    task_rules.tags & machine.tags,
                    tuple(slots),
                )
                for machine, amounts, slots in zip(instance.machines, has, priced.slot_costs, strict=True)
            )
        names = [instance.machines[m].name for m in _firsts(kinds).tolist()]
        pairs = [(k, p, price[name]) for k, price in enumerate(prices) for p, name in enumerate(names) if name in price]
        if most is not None:  # some combinations of tasks and machines, not all of some tasks
            del pairs[-1:]
        ends = np.array([(k, p) for k, p, _ in pairs], np.int64).reshape(-1, 2)
        costs = [cost for *_, cost in pairs]
        return cls(instance, rules, task_rules, priced, counted, classes, kinds, ends[:, 0], ends[:, 1], costs)

    @cached_property
    def resources(self) -> Resources:
        """Demands of tasks and capacities of machines."""
        return Resources.of(self.instance)

    @cached_property
    def first_task(self) -> Integers:
        """(K,) first task of each class."""
        return _firsts(self.class_of)

    @cached_property
    def first_machine(self) -> Integers:
        """(P,) first machine of each kind."""
        return _firsts(self.kind_of)

    @cached_property
    def task_count(self) -> Integers:
        """(K,) tasks of each class."""
        return np.bincount(self.class_of, minlength=len(self.first_task)).astype(np.int64)

    @cached_property
    def machine_count(self) -> Integers:
        """(P,) machines of each kind."""
        return np.bincount(self.kind_of, minlength=len(self.first_machine)).astype(np.int64)

    @cached_property
    def machines(self) -> list[Machine]:
        """Machines, or the first of each kind."""
        return [self.instance.machines[m] for m in self.first_machine.tolist()]

    @cached_property
    def machine_names(self) -> list[str]:
        """Their names."""
        return [machine.name for machine in self.machines]

    @cached_property
    def first_views(self) -> list[TaskView]:
        """Tasks, or the first of each class."""
        return [self.priced.views[t] for t in self.first_task.tolist()]

    @cached_property
    def task_names(self) -> list[str]:
        """Their names."""
        return [view.task.name for view in self.first_views]

    @cached_property
    def used(self) -> list[int]:
        """Machines on which some task may run."""
        found: list[int] = np.unique(self.machine).tolist()
        return found

    def members(self, tasks: Iterable[str]) -> list[str]:
        """Tasks, or the first of each of their classes: a rule is over all tasks of a class or none."""
        return list(dict.fromkeys(self._first_of[task] for task in tasks))

    @cached_property
    def _first_of(self) -> dict[str, str]:
        names = self.task_names
        return {v.task.name: names[k] for v, k in zip(self.priced.views, self.class_of.tolist(), strict=True)}


def _numbered(keys: Iterable[Hashable]) -> Integers:
    """Equal keys as equal numbers, in the order of their first members."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


def _firsts(of: Integers) -> Integers:
    found: Integers = np.unique(of, return_index=True)[1].astype(np.int64)
    return found


def _key(view: TaskView, rules: Rules, task_rules: TaskRules, *, foreign: bool) -> Hashable:
    """All attributes of a task on which its costs and rows depend; its name too with goals of other packages."""
    task = view.task
    placed = tuple(goal.constraints(view) for goal in rules.placing(view))
    costs, demands = (tuple(sorted(each.items())) for each in (view.costs, task.demands))
    own = (view.job, view.machine, view.elapsed_s, view.held, view.apart, foreign and task.name)
    tied = (task_rules.of_task.get(task.name), task_rules.inside.get(task.name))
    return (*own, placed, task.data, costs, demands, *tied)


def _prices(priced: PricedInstance, tasks: Sequence[int], resources: Sequence[str]) -> list[dict[str, int]]:
    """Cost by machine of some tasks, for the machines that may run them and have enough of these ``resources``."""
    found, count = [], 0
    for t in tasks:
        task, costs = priced.views[t].task, priced.costs(t)
        inside, mine = priced.task_rules.inside.get(task.name, costs), {}
        for machine in priced.instance.machines if costs else ():
            name, has = machine.name, machine.capacity
            may = machine.slots and name in costs and name in inside
            if may and (not resources or all(task.demands.get(r, 0) <= has.get(r, 0) for r in resources)):
                mine[name] = costs[name]
        found.append(mine)
        count += len(mine)
        if count > _PAIRS:
            raise ModelError(
                f"{priced.instance.name}: the integer program names every kind of task on every machine, here more "
                f"than {_PAIRS} pairs; use a smaller instance, or leave out the changes, rules or capacities"
            )
    return found
