"""Classes of identical tasks and kinds of identical machines, which the columns of the integer program count.

Tasks of one class have the same job, costs, demands and rules; machines of one kind have the same costs for every
class and the same slots, capacities and domains. With slots, domains and ``different_machines`` alone, counts can
always be assigned to tasks and machines; with capacities, counts are a relaxation (see
`flowlex.models.flow.counted_program`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.goal_interface import ClusterView, TaskView
from flowlex.models.flow.integer_resources import Resources
from flowlex.models.flow.own_goals import is_foreign
from flowlex.models.flow.task_rules import TaskRules
from flowlex.models.model_base import ModelError

#: Largest number of pairs of a task (or class) and a machine in one statement.
_PAIRS = 2_000_000


@dataclass(frozen=True, eq=False)
class Pairs:
    """Class, kind and cost (weighted sum of all ranks) of every feasible pair."""

    task: Integers
    machine: Integers
    cost: list[int]


@dataclass(frozen=True, eq=False)
class Classes:
    """Classes of tasks and kinds of machines, numbered in order of their first members."""

    # (T,) class of each task; (M,) kind of each machine
    task: Integers
    machine: Integers
    pairs: Pairs  # feasible pairs of a class and a kind

    @cached_property
    def first_task(self) -> Integers:
        """(K,) first task of each class."""
        return _firsts(self.task)

    @cached_property
    def first_machine(self) -> Integers:
        """(P,) first machine of each kind."""
        return _firsts(self.machine)

    @cached_property
    def tasks(self) -> Integers:
        """(K,) tasks of each class."""
        return np.bincount(self.task, minlength=len(self.first_task)).astype(np.int64)

    @cached_property
    def machines(self) -> Integers:
        """(P,) machines of each kind."""
        return np.bincount(self.machine, minlength=len(self.first_machine)).astype(np.int64)

    @classmethod
    def of(
        cls,
        instance: FlowInstance,
        rules: Rules,
        task_rules: TaskRules,
        views: Sequence[TaskView],
        resources: Resources | None,
        *,
        machines_alone: bool = False,
        most: int | None = None,
    ) -> Classes:
        """Group identical tasks and machines; without ``resources``, each is its own group.

        ``most``: find the pairs of so many classes only.
        """
        number: dict[Hashable, int] = {}
        firsts: list[TaskView] = []
        of = np.zeros(len(views), np.int64)
        foreign = any(is_foreign(goal) for goal in rules.goals)
        for t, view in enumerate(views):
            key = t if resources is None else _key(view, rules, task_rules, foreign=foreign)
            if key not in number:
                number[key] = len(firsts)
                firsts.append(view)
            of[t] = number[key]
        prices = _prices(instance, rules, task_rules, firsts[:most], () if resources is None else instance.resources)
        known: dict[Hashable, int] = {}
        kinds = np.arange(len(instance.machines), dtype=np.int64)
        for m, machine in enumerate(() if machines_alone or resources is None else instance.machines):
            has = () if resources is None else tuple(resources.capacity[m].tolist())
            costs = tuple(price.get(machine.name) for price in prices)
            same = (costs, has, task_rules.tags & machine.tags, tuple(rules.slot_costs(machine)))
            kinds[m] = known.setdefault(same, len(known))
        return cls(of, kinds, _pairs(instance, prices, kinds))


def _firsts(of: Integers) -> Integers:
    found: Integers = np.unique(of, return_index=True)[1].astype(np.int64)
    return found


def _key(view: TaskView, rules: Rules, task_rules: TaskRules, *, foreign: bool) -> Hashable:
    """All attributes of a task on which its costs and rows depend; its name too with goals of other packages."""
    task = view.task
    placed = tuple(goal.constraints(view) for goal in rules.placing(view))
    costs, demands = (tuple(sorted(each.items())) for each in (view.costs, task.demands))
    own = (view.job, view.machine, view.elapsed_s, view.held, view.apart, foreign and task.name)
    return (
        *own,
        placed,
        task.data,
        costs,
        demands,
        task_rules.of_task.get(task.name),
        task_rules.inside.get(task.name),
    )


def _prices(
    instance: FlowInstance, rules: Rules, task_rules: TaskRules, views: Sequence[TaskView], resources: Sequence[str]
) -> list[dict[str, int]]:
    """Cost by machine of each task, for the machines that may run it and have enough of these ``resources``."""
    cluster = ClusterView.of(instance)
    found, count = [], 0
    for view in views:
        inside, asked = task_rules.inside.get(view.task.name), view.task.demands
        costs = rules.everywhere(view, cluster)
        mine = {}
        for machine in instance.machines:
            fits = machine.slots and machine.name in costs and (inside is None or machine.name in inside)
            if fits and all(asked.get(r, 0) <= machine.capacity.get(r, 0) for r in resources):
                mine[machine.name] = costs[machine.name]
        found.append(mine)
        count += len(mine)
        if count > _PAIRS:
            raise ModelError(
                f"{instance.name}: the integer program names every kind of task on every machine, here more than "
                f"{_PAIRS} pairs; use a smaller instance, or leave out the changes, rules or capacities"
            )
    return found


def _pairs(instance: FlowInstance, prices: Sequence[dict[str, int]], kinds: Integers) -> Pairs:
    firsts = [instance.machines[m].name for m in _firsts(kinds).tolist()]
    rows = [(k, p, price[name]) for k, price in enumerate(prices) for p, name in enumerate(firsts) if name in price]
    columns = np.array([(k, p) for k, p, _ in rows], np.int64).reshape(-1, 2)
    return Pairs(columns[:, 0], columns[:, 1], [cost for *_, cost in rows])
