"""Goals in strict order as one exact integer, and its cut into stages that fit machine words.

Rank 0 is the most important goal. A cost is the sum over the ranks of (cost of the rank) x (its weight), and the
weight of a rank is one more than all that the ranks below can change along a simple cycle of the residual network.
So the least sum is the lexicographic optimum (see `StageWeights`), and the costs of the ranks can be read back from
the sum like digits. Above the ranks come waiting tasks by class, and above those the shortfall of shares.

Where one sum would leave exact 64-bit arithmetic, the ranks are cut into stages, as few as fit, to be minimised one
after the other. A rank is never cut in two: the digits of a sum are not the sum of the digits, so a stage made of
half a rank would have another optimum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.models.flow.goals.costs import Continuity
from flowlex.models.flow.goals.goal_interface import Goal
from flowlex.models.flow.goals.priority import LOWEST, Priority
from flowlex.models.model_base import ModelError

__all__ = ["TOP_CLASS", "StrictOrder"]

#: Importance of the most important class of a strict `Priority`.
TOP_CLASS = LOWEST + 1
#: Bound on the change of (importance of waiting classes + shortfall) along a simple cycle.
_TOP_BOUND = 4 * (TOP_CLASS + 1)


@dataclass(frozen=True)
class StrictOrder:
    """Which goals have a rank of their own, and how far each rank's cost can swing."""

    goals: tuple[int, ...]  # index of each rank's goal. Explicit costs of tasks and ``wait_cost`` count with rank 0
    names: tuple[str, ...]  # name of each rank
    bounds: tuple[int, ...]  # most that the rank's cost changes along a simple cycle of the residual network
    limit: int  # largest cost of one arc in one rank

    @classmethod
    def live(cls, goals: Sequence[Goal], limit: int, task_limit: int, *, lexicographic: bool) -> StrictOrder:
        """Order of a cluster of at most ``task_limit`` tasks; all goals share one rank unless ``lexicographic``.

        A simple cycle passes each task at most once, by two of its arcs, and the sink once, by two slots.
        """
        everything = 2 * limit * (task_limit + 1)
        ranked = _ranked(goals) if lexicographic else []
        if len(ranked) < 2:
            return cls((), ("cost",), (everything,), limit)
        bounds = [everything if rank == 0 or _prices(goals[i]) else 2 * limit for rank, i in enumerate(ranked)]
        return cls(tuple(ranked), _names(goals, ranked), tuple(bounds), limit)

    @classmethod
    def phases(cls, goals: Sequence[Goal]) -> StrictOrder | None:
        """Order in which each rank is a stage of its own; None for fewer than two ranks."""
        ranked = _ranked(goals)
        if len(ranked) < 2:
            return None
        return cls(tuple(ranked), _names(goals, ranked), (2**63,) * len(ranked), 2**52)

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Weight of each rank."""
        return tuple(prod(bound + 1 for bound in self.bounds[rank + 1 :]) for rank in range(len(self.bounds)))

    @cached_property
    def cycle(self) -> int:
        """Most that the weighted sum changes along a simple cycle."""
        return sum(weight * bound for weight, bound in zip(self.weights, self.bounds, strict=True))

    @property
    def largest(self) -> int:
        """Weight that one sum over all ranks and classes would need."""
        return (self.cycle + 1) * _TOP_BOUND

    def weight_of(self, goal: int) -> int:
        """Weight of a goal by its index; 1 when the goals share one rank."""
        return self.weights[self.goals.index(goal)] if goal in self.goals else 1

    def within(self, cost: int, what: str) -> int:
        """``cost``, which must not exceed the limit, or the ranks would run into each other."""
        if abs(cost) > self.limit:
            raise ModelError(
                f"{what}: a cost of {cost} exceeds the limit of {self.limit}; raise cost_limit, or use smaller costs"
            )
        return cost

    def divisors(self, limit: int, *, one_each: bool = False) -> tuple[int, ...]:
        """Weights at which the sum is cut into stages, each below ``limit`` along any path; the last is 1.

        Raises `ModelError`: a rank does not even fit alone.
        """
        bounds, weights = (_TOP_BOUND, *self.bounds), (self.cycle + 1, *self.weights)
        cuts: list[int] = []
        size = 1
        for rank, bound in enumerate(bounds):
            if bound >= limit:
                raise ModelError(
                    f"costs of up to {self.limit} would overflow exact integers even one goal at a time; lower "
                    "cost_limit, task_limit or scale"
                )
            if rank and (one_each or size * (bound + 1) > limit):
                cuts.append(weights[rank - 1])
                size = 1
            size *= bound + 1
        return (*cuts, 1)

    def split(self, cost: int) -> tuple[int, ...]:
        """Costs of the ranks that a sum is made of; what waiting costs by class and share is left out."""
        above = self.cycle + 1
        cost -= (cost + above // 2) // above * above
        found = []
        for weight in self.weights:
            part = (cost + weight // 2) // weight
            cost -= part * weight
            found.append(part)
        return tuple(found)

    def columns(self, costs: Iterable[int]) -> Integers:
        """(ranks, n) costs of the ranks of n sums."""
        if len(self.bounds) == 1:
            return np.array([list(costs)], np.int64)
        return np.array([self.split(cost) for cost in costs], np.int64).reshape(-1, len(self.bounds)).T


def _prices(goal: Goal) -> bool:
    kind = type(goal)
    said = (kind.price, kind.prices, kind.waiting)
    return said != (Goal.price, Goal.prices, Goal.waiting) or isinstance(goal, Continuity)


def _ranked(goals: Sequence[Goal]) -> list[int]:
    """Goals that put a price on anything; the others bound or order whole jobs."""
    return [
        index
        for index, goal in enumerate(goals)
        if (_prices(goal) or type(goal).slot_costs is not Goal.slot_costs)
        and not (isinstance(goal, Priority) and goal.mode == "strict")
    ]


def _names(goals: Sequence[Goal], ranked: Iterable[int]) -> tuple[str, ...]:
    seen: Counter[str] = Counter()
    names = []
    for index in ranked:
        name = type(goals[index]).__name__
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return tuple(names)
