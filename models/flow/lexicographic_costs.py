"""Goals in strict order as one exact integer cost, split into stages if it exceeds 64 bits.

Rank 0 is the most important goal. The cost is the sum over the ranks of (cost of the rank) x (its weight); the weight
of a rank exceeds the total change of all lower ranks along a simple cycle of the residual network. Hence the minimum
of the sum is the lexicographic optimum (see `StageWeights`), and the costs of the ranks can be read from the sum like
digits. Waiting tasks by class come before all ranks, and the shortfall of shares comes before these.

If one sum would overflow exact 64-bit arithmetic, the ranks are split into as few stages as possible, minimised one
after the other. A rank is never split: because of carries between digits, a stage with half a rank would have another
optimum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.models.flow.goal_interface import Goal
from flowlex.models.flow.goals import LOWEST, Continuity, Priority
from flowlex.models.model_base import ModelError

#: Importance of the most important class of a strict `Priority`.
TOP_CLASS = LOWEST + 1


@dataclass(frozen=True)
class StrictOrder:
    """Ranks of the goals, and a bound on the change of each rank's cost."""

    goals: tuple[int, ...]  # index of each rank's goal; explicit costs of tasks and ``wait_cost`` belong to rank 0
    names: tuple[str, ...]  # name of each rank
    bounds: tuple[int, ...]  # upper bound on the change of the rank's cost along a simple residual cycle
    limit: int  # largest cost of one arc in one rank

    @classmethod
    def live(cls, goals: Sequence[Goal], limit: int, task_limit: int, *, lexicographic: bool) -> StrictOrder:
        """Order for a cluster with at most ``task_limit`` tasks; all goals share one rank unless ``lexicographic``.

        A simple cycle visits each task at most once, with two of its arcs, and the sink once, with two slots.
        """
        everything = 2 * limit * (task_limit + 1)
        ranked = _ranked(goals) if lexicographic else []
        if len(ranked) < 2:
            return cls((), ("cost",), (everything,), limit)
        bounds = [everything if rank == 0 or _prices(goals[i]) else 2 * limit for rank, i in enumerate(ranked)]
        return cls(tuple(ranked), _names(goals, ranked), tuple(bounds), limit)

    @classmethod
    def phases(cls, goals: Sequence[Goal]) -> StrictOrder | None:
        """Order with one stage per rank; None for fewer than two ranks."""
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
        """Largest change of the weighted sum along a simple cycle."""
        return sum(weight * bound for weight, bound in zip(self.weights, self.bounds, strict=True))

    def weight_of(self, goal: int) -> int:
        """Weight of a goal by its index; 1 if it has no rank."""
        return self.weights[self.goals.index(goal)] if goal in self.goals else 1

    def within(self, cost: int, what: str) -> int:
        """Return ``cost``; raise `ModelError` beyond the limit, where the digits of ranks would overlap."""
        if abs(cost) > self.limit:
            raise ModelError(
                f"{what}: a cost of {cost} exceeds the limit of {self.limit}; raise cost_limit, or use smaller costs"
            )
        return cost

    def split(self, cost: int) -> tuple[int, ...]:
        """Split a sum into the costs of its ranks, without the costs of waiting classes and shortfall."""
        above = self.cycle + 1
        cost -= (cost + above // 2) // above * above
        found = []
        for weight in self.weights:
            part = (cost + weight // 2) // weight
            cost -= part * weight
            found.append(part)
        return tuple(found)

    def columns(self, costs: Iterable[int]) -> Integers:
        """(ranks, n) costs by rank of n sums."""
        if len(self.bounds) == 1:
            return np.array([list(costs)], np.int64)
        return np.array([self.split(cost) for cost in costs], np.int64).reshape(-1, len(self.bounds)).T


def _prices(goal: Goal) -> bool:
    kind = type(goal)
    said = (kind.price, kind.prices, kind.waiting)
    return said != (Goal.price, Goal.prices, Goal.waiting) or isinstance(goal, Continuity)


def _ranked(goals: Sequence[Goal]) -> list[int]:
    """Indices of the goals that set prices; the others bound or order whole jobs."""
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
