"""Goals of other packages: their return values are checked, and a certificate can call them without the network.

Errors name the goal, the task or machine, and the invalid value.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Rational
from typing import Any

from flowlex.instances.flow import FlowInstance, Machine
from flowlex.models.flow.goal_interface import LARGEST_COST, ClusterView, Goal, Scale, Spot, TaskView, task_views
from flowlex.models.flow.goals import Continuity, FairShares, Placement, Priority
from flowlex.models.model_base import ModelError

#: Goals that a model handles specially, beyond calling their methods.
_SPECIAL = (Continuity, FairShares, Placement, Priority)


def is_foreign(goal: Goal) -> bool:
    """Return whether a goal is from another package, so that its return values must be checked."""
    return not type(goal).__module__.startswith("flowlex.")


class CheckedGoal:
    """A goal of another package whose return values are checked."""

    def __init__(self, goal: Goal) -> None:
        self.goal, self.who = goal, f"goal {type(goal).__name__}"

    def prices(
        self, task: TaskView, places: Sequence[tuple[Spot, str | None]], cluster: ClusterView, scale: Scale
    ) -> list[int] | None:
        """Return the integer prices of a task, one per place; see `_check_groups`."""
        said = self.goal.prices(task, places, cluster, scale)
        if said is None:
            return None
        if len(said) != len(places):
            raise ModelError(f"{self.who}: expected {len(places)} prices for task {task.task.name!r}, got {len(said)}")
        found = [
            _whole(price, f"{self.who}: the price of task {task.task.name!r} on {machine or spot}", scale)
            for price, (spot, machine) in zip(said, places, strict=True)
        ]
        self._check_groups(task, places, found, cluster, scale)
        return found

    def _check_groups(
        self,
        task: TaskView,
        places: Sequence[tuple[Spot, str | None]],
        found: Sequence[int],
        cluster: ClusterView,
        scale: Scale,
    ) -> None:
        """Raise `ModelError` unless every machine costs what the cheapest arc to it costs.

        A group may cost more than one of its machines only if the machine, or a cheaper group with it, is named too.
        """
        named = {machine for _, machine in places if machine is not None}
        least: dict[str, tuple[int, Spot]] = {}
        for price, (spot, machine) in zip(found, places, strict=True):
            for name in cluster.members(spot) if machine is None else ():
                if name not in least or price < least[name][0]:
                    least[name] = price, spot
        said = self.goal.prices(task, [(cluster.spots[name], name) for name in least], cluster, scale) if least else ()
        who = f"{self.who}: task {task.task.name!r} costs"
        for part, (name, (price, spot)) in zip(said or [0] * len(least), least.items(), strict=True):
            units = _whole(part, f"{self.who}: the price of task {task.task.name!r} on {name}", scale)
            if units > price:
                raise ModelError(
                    f"{who} {units} on machine {name!r}, but {price} anywhere in '{spot}'; return for a group the "
                    "largest price of its machines, and name cheaper ones in spots()"
                )
            if units < price and name not in named:
                raise ModelError(
                    f"{who} {units} on machine {name!r}, less than the {price} anywhere in '{spot}', and spots() does "
                    "not name the machine; name it there"
                )

    def waiting(self, task: TaskView, scale: Scale) -> int:
        """Return the integer cost of waiting."""
        return _whole(self.goal.waiting(task, scale), f"{self.who}: waiting of task {task.task.name!r}", scale)

    def slot_costs(self, machine: Machine, scale: Scale) -> list[int] | None:
        """Return the costs of a machine's slots: integers, one per slot, nondecreasing."""
        who = f"{self.who}: slot costs of machine {machine.name!r}"
        said = self.goal.slot_costs(machine, scale)
        if said is None:
            return None
        if len(said) != machine.slots:
            raise ModelError(f"{who}: expected {machine.slots}, one for each slot, got {len(said)}")
        found = [_whole(cost, f"{who}, slot {k}", scale) for k, cost in enumerate(said, 1)]
        for k, (cost, after) in enumerate(itertools.pairwise(found), 2):
            if after < cost:
                raise ModelError(f"{who}: slot {k} costs {after}, less than the {cost} before it; costs must not fall")
        return found


def _whole(value: Any, what: str, scale: Scale) -> int:
    if isinstance(value, bool) or (not isinstance(value, int | float | Rational) and not hasattr(value, "__index__")):
        raise ModelError(f"{what}: expected a whole number of 1/{scale.factor}, got {value!r}")
    if not isinstance(value, int):
        try:
            exact = Fraction(value)
        except (ValueError, OverflowError, TypeError):
            exact = Fraction(1, 2)
        if exact.denominator != 1:
            raise ModelError(
                f"{what}: expected a whole number of 1/{scale.factor}, got {value!r}; name the cost in real_costs() "
                "and return scale.units(cost, ...)"
            )
        value = exact.numerator
    if abs(value) > LARGEST_COST:
        raise ModelError(f"{what} is {value}, more than {LARGEST_COST}; use a larger unit of cost")
    return int(value)


def ask(instance: FlowInstance, goals: Iterable[Goal]) -> tuple[AskedGoal, ...]:
    """The goals of other packages, for ``verify(document, instance, goals=ask(instance, goals))``."""
    return tuple(AskedGoal(g, instance) for g in goals if is_foreign(g) and not isinstance(g, _SPECIAL))


class AskedGoal:
    """One goal applied to an instance, with tasks and machines given by name.

    ``name``: class name of the goal, as in solution files. ``prices``: whether it sets any price. ``real_costs``: what
    the unit of costs must divide.
    """

    def __init__(self, goal: Goal, instance: FlowInstance) -> None:
        self._instance, self.name = instance, type(goal).__name__
        self._goal = goal.prepare(list(self._views.values()))
        self.real_costs: tuple[float, ...] = tuple(cost for cost, _ in self._goal.real_costs())
        kind = type(goal)
        methods = ("price", "prices", "waiting", "slot_costs")
        self.prices: bool = any(getattr(kind, each) is not getattr(Goal, each) for each in methods)

    def is_stated(self, described: object) -> bool:
        """Return whether a description in a solution file has the class and fields of this goal."""
        goal = self._goal
        if not isinstance(described, dict):
            return self.name in str(described)
        stated = {key: value for key, value in described.items() if key != "type"}
        mine: dict[str, Any] = (
            {f.name: getattr(goal, f.name) for f in fields(goal) if f.init} if is_dataclass(goal) else {}
        )
        simple = {name for name, value in mine.items() if value is None or isinstance(value, bool | int | float | str)}
        same = all(stated.get(name) == mine[name] for name in simple)
        return described.get("type") == self.name and stated.keys() == mine.keys() and same

    @cached_property
    def _views(self) -> dict[str, TaskView]:
        return {view.task.name: view for view in task_views(self._instance)}

    @cached_property
    def _cluster(self) -> ClusterView:
        return ClusterView.of(self._instance)

    def price(self, task: str, machine: str, scale: int) -> Any:
        """Return the cost of the task on the machine."""
        place = ((self._cluster.spots[machine], machine),)
        said = self._goal.prices(self._views[task], place, self._cluster, Scale(scale))
        return 0 if said is None else said[0]

    def forbids(self, task: str, machine: str) -> bool:
        """Whether the task must not run on the machine."""
        return bool(self._goal.forbids(self._views[task], self._cluster.machines[machine]))

    def named(self, task: str) -> tuple[str, ...]:
        """Tags (``machine:m``, ``rack:r``) of the spots that it names for the task."""
        found: list[str] = []
        for spot in self._goal.spots(self._views[task], self._cluster):
            found += [f"machine:{spot}"] if isinstance(spot, str) else sorted(spot.has)
        return tuple(found)

    def waiting(self, task: str, scale: int) -> Any:
        """Return the cost of waiting of the task."""
        return self._goal.waiting(self._views[task], Scale(scale))

    def slot_costs(self, machine: str, scale: int) -> Any:
        """Return the cost of each slot of the machine; None if the goal sets no price."""
        return self._goal.slot_costs(self._cluster.machines[machine], Scale(scale))
