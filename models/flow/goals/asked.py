"""Own goals asked again by a certificate, task by task and machine by machine, without the network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.goals.base import ClusterView, Goal, Scale, TaskView, task_views
from flowlex.models.flow.goals.checked import is_foreign
from flowlex.models.flow.goals.costs import Continuity
from flowlex.models.flow.goals.fair_shares import FairShares
from flowlex.models.flow.goals.placement import Placement
from flowlex.models.flow.goals.priority import Priority

__all__ = ["AskedGoal", "ask"]

#: Goals that a model treats by more than what their methods return.
_SPECIAL = (Continuity, FairShares, Placement, Priority)


def ask(instance: FlowInstance, goals: Iterable[Goal]) -> tuple[AskedGoal, ...]:
    """The goals of other packages, for ``verify(document, instance, goals=ask(instance, goals))``."""
    return tuple(AskedGoal(g, instance) for g in goals if is_foreign(g) and not isinstance(g, _SPECIAL))


class AskedGoal:
    """What one goal says of an instance; tasks and machines are named.

    Attributes
    ----------
    name
        Class of the goal, as in solution files.
    prices
        Whether it puts a price on anything.
    """

    def __init__(self, goal: Goal, instance: FlowInstance) -> None:
        self._instance, self.name = instance, type(goal).__name__
        self._goal = goal.prepare(list(self._views.values()))
        kind = type(goal)
        methods = ("price", "prices", "waiting", "slot_costs")
        self.prices: bool = any(getattr(kind, each) is not getattr(Goal, each) for each in methods)

    def is_stated(self, described: object) -> bool:
        """Whether a solution file means this goal: the same class and fields."""
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
        cluster = ClusterView()
        for machine in self._instance.machines:
            cluster.add(machine)
        return cluster

    def price(self, task: str, machine: str, scale: int) -> Any:
        """What the task costs on the machine."""
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
        """What it costs to let the task wait."""
        return self._goal.waiting(self._views[task], Scale(scale))

    def slot_costs(self, machine: str, scale: int) -> Any:
        """Cost of each further slot of the machine; None for no opinion."""
        return self._goal.slot_costs(self._cluster.machines[machine], Scale(scale))
