"""Priorities: which tasks run first if not all can run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import floor
from typing import Literal

from flowlex.instances.exact_rationals import rational
from flowlex.models.flow.goals.goal_interface import Goal, Scale, TaskView
from flowlex.models.model_base import ModelError

#: The largest priority number an instance can hold.
LOWEST = 1000


@dataclass(frozen=True)
class Priority(Goal):
    """Prefer tasks with smaller priority numbers.

    Parameters
    ----------
    weights
        Weights of the other dimensions of a task's cost (its ``demands``), each normalised to ``0 .. omega``;
        ``placement`` stands for the costs of the other goals, which the user must keep within omega.
    mode
        ``strict``: fewest waiting tasks in the most important class, then in the next, ..., then least cost.
        ``weighted``: the paper's single weight, ``gap = omega * sum(weights) + 1`` per step of priority. It
        orders two tasks on one arc correctly, but not all schedules (see the counter-example in the tests).
    omega
        Largest normalised value of a dimension.
    limits
        Largest demand by dimension, normalised to omega.
    lowest
        Largest priority number in use; by default the largest in the instance (``weighted`` only).
    """

    weights: Mapping[str, int] = field(default_factory=lambda: {"placement": 1})
    mode: Literal["strict", "weighted"] = "strict"
    omega: int = 10
    limits: Mapping[str, float] = field(default_factory=dict)
    lowest: int | None = None
    weight: int = 1

    def __post_init__(self) -> None:
        if self.mode not in ("strict", "weighted"):
            raise ModelError(f"Priority has no mode {self.mode!r}; one of: strict, weighted")
        for name, value in self.weights.items():
            if not isinstance(value, int) or value < 0:
                raise ModelError(f"Priority: the weight of {name!r} is {value!r}; weights are whole and at least 0")

    @property
    def gap(self) -> int:
        """Weight of one step of priority in the weighted mode."""
        return self.omega * sum(self.weights.values()) + 1

    def prepare(self, tasks: Iterable[TaskView]) -> Priority:
        """Find the largest priority number in use."""
        if self.lowest is not None or self.mode == "strict":
            return self
        return replace(self, lowest=max((task.priority for task in tasks), default=0))

    def level(self, priority: int) -> int:
        """Importance of a priority; 1 is the least important class."""
        lowest = LOWEST if self.mode == "strict" or self.lowest is None else self.lowest
        if priority > lowest:
            raise ModelError(f"priority {priority} exceeds the lowest, {lowest}; pass Priority(lowest={priority})")
        return lowest - priority + 1

    def waiting(self, task: TaskView, scale: Scale) -> int:
        """Cost of waiting in the weighted mode; at equal priority, tasks with smaller demands come first."""
        if self.mode == "strict":
            return 0
        total = self.gap * self.level(task.priority)
        for name, weight in self.weights.items():
            demand = task.task.demands.get(name, 0.0)
            if not demand:
                continue
            if name not in self.limits:
                raise ModelError(f"Priority: pass limits={{{name!r}: ...}}, the demand that stands for omega")
            if demand > self.limits[name]:
                raise ModelError(f"task {task.task.name!r} demands {demand:g} {name}, beyond {self.limits[name]:g}")
            total -= weight * floor(self.omega * rational(demand) / rational(self.limits[name]))
        return total * scale.factor * self.weight
