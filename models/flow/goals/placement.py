"""Placement constraints of tasks: required, forbidden, preferred and avoided resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flowlex.instances.flow import Constraint
from flowlex.models.flow.goals.goal_interface import ClusterView, Goal, Scale, Spot, TaskView


@dataclass(frozen=True)
class Placement(Goal):
    """Apply the placement constraints of tasks, and further ``rules`` by name of task or job.

    An arc costs minus the utility of the preferences that all its machines satisfy, plus the utility of avoided
    resources that some of them may have; required and forbidden resources remove arcs. Utilities are added up.
    Source: Sirius, section on placement (utility as negative cost).
    """

    rules: Mapping[str, tuple[Constraint, ...]] = field(default_factory=dict)
    weight: int = 1

    def constraints(self, task: TaskView) -> tuple[Constraint, ...]:
        """All constraints that apply to a task."""
        if not self.rules:
            return task.task.constraints
        return (*task.task.constraints, *self.rules.get(task.task.name, ()), *self.rules.get(task.job, ()))

    def choices(self, task: TaskView) -> Iterable[Spot]:
        """Each preferred resource, and the absence of each avoided one."""
        for constraint in self.constraints(task):
            if constraint.kind == "preferred":
                yield from (Spot.of(tag) for tag in constraint.resources)
            elif constraint.kind == "avoided":
                yield Spot.without(*constraint.resources)

    def required(self, task: TaskView) -> Iterable[tuple[Spot, ...]]:
        """Spots to choose from, by requirement: one of the required resources, without all forbidden ones."""
        for constraint in self.constraints(task):
            if constraint.kind == "required":
                yield tuple(Spot.of(tag) for tag in constraint.resources)
            elif constraint.kind == "forbidden":
                yield (Spot.without(*constraint.resources),)

    def prices(
        self, task: TaskView, places: Sequence[tuple[Spot, str | None]], cluster: ClusterView, scale: Scale
    ) -> Sequence[int] | None:
        """`price` of every place; None for tasks without constraints."""
        return super().prices(task, places, cluster, scale) if self.constraints(task) else None

    def price(self, task: TaskView, spot: Spot, machine: str | None, cluster: ClusterView, scale: Scale) -> int:
        """Minus the utilities gained, plus those lost."""
        constraints = self.constraints(task)
        if not constraints:
            return 0
        total = 0
        for constraint in constraints:
            if constraint.kind == "preferred":
                if not spot.has.isdisjoint(constraint.resources):
                    total -= scale.units(constraint.utility, f"utility of task {task.task.name!r}")
            elif constraint.kind == "avoided":
                safe = (
                    spot.has.isdisjoint(constraint.resources)
                    if machine is not None
                    else all(spot.lacks_for_sure(tag) for tag in constraint.resources)
                )
                if not safe:
                    total += scale.units(constraint.utility, f"utility of task {task.task.name!r}")
        return total * self.weight
