"""Goals of other packages, asked again: cost of each task on each machine, of waiting, and of each slot."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Rational
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.flow import Constraint, FlowInstance, FlowTask
from flowlex.validation.proofs.exact_program import narrow


class OwnGoal(Protocol):
    """A goal that was passed to ``verify``, as `flowlex.models.flow.own_goals.ask` makes it."""

    name: str
    prices: bool
    real_costs: tuple[float, ...]

    def is_stated(self, described: object) -> bool:
        """Whether a solution file means this goal."""

    def price(self, task: str, machine: str, scale: int) -> Any:
        """Cost of a task on a machine."""

    def forbids(self, task: str, machine: str) -> bool:
        """Whether the task must not run there."""

    def named(self, task: str) -> tuple[str, ...]:
        """Tags of machines and racks that it names for a task."""

    def waiting(self, task: str, scale: int) -> Any:
        """Cost of waiting."""

    def slot_costs(self, machine: str, scale: int) -> Any:
        """Cost of each further slot; None for no opinion."""


@dataclass(frozen=True)
class Wishes:
    """What tasks of one class share: constraints, and the number of the own goals' answers (0 for none)."""

    constraints: tuple[Constraint, ...]
    own: int = 0

    def __bool__(self) -> bool:
        return bool(self.constraints) or self.own > 0


class Row(NamedTuple):
    """What the goals say of a class of tasks: (M,) prices by goal, (M,) forbidden machines, tags that they name."""

    prices: Mapping[str, NDArray[Any]]
    forbidden: NDArray[np.bool_]
    named: tuple[str, ...]


@dataclass(eq=False)
class OwnGoals:
    """Own goals of an instance at a scale. ``rows`` holds their answers, each different one once; the first is none."""

    goals: Sequence[OwnGoal]
    instance: FlowInstance
    scale: int

    def __post_init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.rows: list[Row] = [Row({}, np.zeros(len(self.instance.machines), bool), ())]

    def number(self, task: FlowTask) -> int:
        """Number of the goals' answers about a task on the machines; 0 without goals."""
        if not self.goals:
            return 0
        machines, prices = [m.name for m in self.instance.machines], list[tuple[int, ...]]()
        for goal in self.goals:
            said = [goal.price(task.name, m, self.scale) for m in machines]
            each = zip(said, machines, strict=True)
            prices.append(tuple(_whole(x, f"{goal.name}, {task.name} on {m}") for x, m in each))
        bad = tuple(any(goal.forbids(task.name, m) for goal in self.goals) for m in machines)
        named = tuple(sorted({tag for goal in self.goals for tag in goal.named(task.name)}))
        key = *prices, bad, named
        if key not in self._numbers:
            self._numbers[key] = len(self.rows)
            by_goal = {goal.name: narrow(row) for goal, row in zip(self.goals, prices, strict=True)}
            self.rows.append(Row(by_goal, np.array(bad, bool), named))
        return self._numbers[key]

    def waiting(self, tasks: Sequence[FlowTask]) -> dict[str, NDArray[Any]]:
        """By goal, (T,) cost of waiting."""
        return {
            goal.name: narrow(
                [_whole(goal.waiting(t.name, self.scale), f"{goal.name}, {t.name} waiting") for t in tasks]
            )
            for goal in self.goals
        }

    @cached_property
    def slots(self) -> dict[str, list[list[int] | None]]:
        """By goal that prices any slots, the costs of the slots of each machine."""
        found = {goal.name: [self._slots(goal, k) for k in range(len(self.instance.machines))] for goal in self.goals}
        return {name: rows for name, rows in found.items() if any(row is not None for row in rows)}

    def _slots(self, goal: OwnGoal, k: int) -> list[int] | None:
        machine = self.instance.machines[k]
        said = goal.slot_costs(machine.name, self.scale)
        if said is None:
            return None
        found = [_whole(cost, f"{goal.name}, slots of {machine.name}") for cost in said]
        if len(found) != machine.slots or any(b < a for a, b in itertools.pairwise(found)):
            raise ValueError(f"{goal.name}: {found} for the {machine.slots} slots of {machine.name}")
        return found


def _whole(value: Any, what: str) -> int:
    """The number that a goal returned, which must be an integer."""
    number = value.__index__() if hasattr(value, "__index__") else value
    exact = Fraction(number) if isinstance(number, (int, float, Rational)) else Fraction(1, 2)
    if exact.denominator != 1:
        raise ValueError(f"{what}: {value!r} is no whole number")
    return int(exact)
