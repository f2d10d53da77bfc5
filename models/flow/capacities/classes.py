"""Tasks that nothing tells apart, what they cost on each machine, and machines that nothing tells apart."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Booleans, Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.base import ModelError
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.capacities.amounts import Amounts
from flowlex.models.flow.goals.base import ClusterView, TaskView, task_views

__all__ = ["Classes", "Places", "Slots", "places_of"]

#: Sums of costs beyond this are not exact in an integer program's floating point.
_EXACT = 2**52


@dataclass(frozen=True, eq=False)
class Classes:
    """Tasks of one job with the same demands, costs and rules.

    Attributes
    ----------
    of
        (T,) class of each task.
    count, job, level
        (K,) tasks, job, and class of waiting in the strict order (0 where waiting has a price).
    demand
        (K, R) whole units.
    apart
        K names of rules of different machines, empty for none.
    wait
        (ranks, K) cost of waiting.
    may, cost
        (K, M) where a task may run at all, all its demands included; (ranks, K, M) what it costs there.
    """

    of: Integers
    count: Integers
    job: Integers
    level: Integers
    demand: Integers
    apart: tuple[str, ...]
    wait: Integers
    may: Booleans
    cost: Integers

    @classmethod
    def of_instance(cls, instance: FlowInstance, rules: Rules, amounts: Amounts) -> Classes:
        """Group the tasks of an instance and price them.

        Raises
        ------
        ModelError
            Costs so large that an integer program could not hold their sum.
        """
        cluster = ClusterView()
        for machine in instance.machines:
            cluster.add(machine)
        at = {machine.name: m for m, machine in enumerate(instance.machines)}
        job_at = {job.name: j for j, job in enumerate(instance.jobs)}
        views, known, firsts = task_views(instance), dict[Hashable, int](), list[int]()
        of = np.zeros(len(views), np.int64)
        for t, view in enumerate(views):
            key = (_key(view, rules), tuple(amounts.demand[t].tolist()))
            if key not in known:
                known[key] = len(firsts)
                firsts.append(t)
            of[t] = known[key]
        kept = [views[t] for t in firsts]
        may = np.zeros((len(kept), len(at)), np.bool_)
        price: NDArray[Any] = np.zeros(may.shape, object)
        for k, view in enumerate(kept):
            for name, cost in rules.everywhere(view, cluster).items():
                may[k, at[name]], price[k, at[name]] = True, cost
        demand = amounts.demand[firsts]
        may &= np.array([machine.slots > 0 for machine in instance.machines], np.bool_)
        for r in range(len(amounts.names)):
            may &= demand[:, r, None] <= amounts.capacity[None, :, r]
        wait, priced = (_ranked(rules, each) for each in ([rules.waiting(view) for view in kept], price[may].tolist()))
        full = np.zeros((len(priced), *may.shape), np.int64)
        full[:, may] = priced
        count = np.bincount(of, minlength=len(kept)).astype(np.int64)
        sizes = np.maximum(np.abs(full).max(axis=2, initial=0), np.abs(wait)).astype(np.float64) @ count
        if sizes.max(initial=0) > _EXACT:
            raise ModelError(
                f"costs add up to {sizes.max():.3g}, more than an integer program holds exactly ({_EXACT:.3g}); use a "
                "larger unit of cost"
            )
        job = np.array([job_at[view.job] for view in kept], np.int64)
        level = np.array([rules.level(view.priority) for view in kept], np.int64)
        return cls(of, count, job, level, demand, tuple(view.apart for view in kept), wait, may, full)


def _key(view: TaskView, rules: Rules) -> Hashable:
    """All of a task that its costs depend on; where a goal of another package has a say, its name too."""
    task = view.task
    foreign = any(not type(goal).__module__.startswith("flowlex.") for goal in rules.goals)
    placed = tuple(goal.constraints(view) for goal in rules.placing(view))
    costs, demands = (tuple(sorted(each.items())) for each in (view.costs, task.demands))
    own = (view.job, view.machine, view.elapsed_s, view.apart, foreign and task.name)
    return (*own, placed, task.data, costs, demands)


def _ranked(rules: Rules, costs: list[int]) -> Integers:
    return np.array([costs], np.int64) if rules.order is None else rules.order.columns(costs)


@dataclass(frozen=True, eq=False)
class Slots:
    """Slots of places: (S,) place and how many; (ranks, S) cost of each."""

    place: Integers
    count: Integers
    cost: Integers


@dataclass(frozen=True, eq=False)
class Places:
    """Machines, or kinds of machines that nothing tells apart.

    Attributes
    ----------
    kind
        (M,) place of each machine.
    count
        (P,) machines of each place.
    capacity
        (P, R) of one machine.
    may, cost
        As those of `Classes`, by place.
    """

    kind: Integers
    count: Integers
    capacity: Integers
    slots: Slots
    may: Booleans
    cost: Integers

    @property
    def size(self) -> int:
        """How many places."""
        return len(self.count)


def places_of(instance: FlowInstance, rules: Rules, amounts: Amounts, classes: Classes, *, alike: bool) -> Places:
    """Every machine as a place of its own, or (``alike``) those that have the same of everything as one."""
    said = [rules.slot_costs(machine) for machine in instance.machines]
    count = len(said)
    kind, first = np.arange(count, dtype=np.int64), np.arange(count)
    if alike and count:
        table = np.concatenate([amounts.capacity, classes.may.T, *classes.cost.transpose(0, 2, 1)], axis=1)
        slots: dict[Hashable, int] = {}
        number = [[slots.setdefault(tuple(each), len(slots))] for each in said]
        _, first, inverse = np.unique(
            np.concatenate([table, np.array(number, np.int64)], axis=1), axis=0, return_index=True, return_inverse=True
        )
        kind = inverse.reshape(-1).astype(np.int64)
    times = np.bincount(kind, minlength=len(first)).astype(np.int64)
    rows = [(p, n * int(times[p]), cost) for p, m in enumerate(first) for n, cost in said[m]]
    place, many = (np.array([row[k] for row in rows], np.int64) for k in (0, 1))
    every = Slots(place, many, _ranked(rules, [row[2] for row in rows]))
    return Places(kind, times, amounts.capacity[first], every, classes.may[:, first], classes.cost[:, :, first])
