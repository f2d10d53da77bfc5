"""Why no schedule is better: stages weighed into one sum, and prices of machines, jobs and rules that bound it.

Every stage (shortfall of shares, waiting tasks by class, costs by rank) gets a weight. A better schedule would differ
from ours along simple cycles, each of which passes a task at most once (two of its ways to run or wait) and the end of
all ways at most once. So where each weight exceeds what a cycle can change below it, the least weighted sum is the
lexicographic optimum: `strict`.

For any prices p of machines, q of jobs and s >= 0 of pairs of a rule of different machines and a machine, every
schedule has a weighted sum of at least ::

    sum_t min(min over machines m that fit t of (cost_tm + p_m + s_rm), wait_t + q_j)
      - sum_m max over n of (n p_m - cost of n slots)  -  sum_rm s_rm
      - sum_j max over w of (q_j w - cost of w waiting)

over all pairs of task and machine, whichever arcs a network had: `Survey`. The first minimum is taken over what a task
knows of the cluster (see `goals`), which comes to the same; over true distances it bounds the true cost too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.flow import Constraint
from flowlex.validation.certificates.flow.goals import Problem, Task
from flowlex.validation.certificates.numbers import whole

__all__ = ["Prices", "Survey", "bound", "strict"]

#: Costs and prices in one array stay below this in 64 bits; beyond, they are Python integers.
_SAFE = 2**60


@dataclass(frozen=True, eq=False)
class Prices:
    """Weights of the stages, and prices by position: of machines, of jobs, of (rule, machine)."""

    weights: Mapping[str, int]
    machine: list[int]
    job: list[int]
    apart: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass(eq=False)
class _Class:
    """Tasks with the same constraints: where they may run, and the machines' prices with their preferences."""

    problem: Problem
    fits: NDArray[np.bool_]
    price: NDArray[Any]

    @cached_property
    def lowest(self) -> int:
        return int(self.price[self.fits].min())

    @cached_property
    def highest(self) -> int:
        return int(self.price[self.fits].max())

    @cached_property
    def size(self) -> int:
        return int(np.abs(self.price).max(initial=0))

    @cached_property
    def by_rack(self) -> dict[int, int]:
        """Least price in each rack that has a machine that fits."""
        inside = np.flatnonzero(self.fits)
        order = inside[np.argsort(self.problem.rack[inside], kind="stable")]
        racks, first = np.unique(self.problem.rack[order], return_index=True)
        return dict(zip(racks.tolist(), np.minimum.reduceat(self.price[order], first).tolist(), strict=True))


class Survey:
    """All pairs of task and machine, class by class of equal constraints."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.classes: dict[tuple[Constraint, ...], list[Task]] = defaultdict(list)
        for task in problem.tasks:
            self.classes[task.constraints].append(task)

    def least(self, prices: Prices, *, true: bool = False) -> int:
        """Sum over the tasks of their cheapest way to run or wait."""
        total, weights = 0, prices.weights
        machine = whole(prices.machine)
        for constraints, tasks in self.classes.items():
            part = self._class(constraints, machine, weights)
            for task in tasks:
                wait = prices.job[task.job] + _weighed(task.waiting, weights)
                way = self._cheapest(part, task, weights, prices.apart.get(task.apart, {}), true=true)
                total += wait if way is None else min(wait, way)
        return total

    def swing(self, rank: str) -> int:
        """Most that a rank's cost changes along a simple cycle: two ways of every task, two slots."""
        problem, weights = self.problem, {rank: 1}
        total, nothing = 0, whole([0] * len(problem.slots))
        for constraints, tasks in self.classes.items():
            part = self._class(constraints, nothing, weights)
            for task in tasks:
                wait = _weighed(task.waiting, weights)
                low, high = self._range(part, task, weights)
                total += max(0, wait, high) - min(0, wait, low)
        slots = (
            max(map(abs, costs), default=0)
            for m in range(len(problem.slots))
            for name, costs in problem.slot_costs(m)
            if name == rank
        )
        return total + 2 * max(slots, default=0)

    def _class(self, constraints: tuple[Constraint, ...], machine: NDArray[Any], weights: Mapping[str, int]) -> _Class:
        problem = self.problem
        fits = problem.slots > 0
        size, weight = 0, weights.get(problem.goals.rank("Placement"), 0) * problem.placing
        terms = []
        for c in constraints:
            having = problem.having(c.resources)
            if c.kind in ("required", "forbidden"):
                fits = fits & (having if c.kind == "required" else ~having)
            elif weight:
                terms.append((weight * problem.units(c.utility) * (-1 if c.kind == "preferred" else 1), having))
                size += abs(terms[-1][0])
        if terms and size + int(np.abs(machine).max(initial=0)) >= _SAFE:
            machine = machine.astype(object)
        for units, having in terms:
            machine = machine + np.where(having, units, 0)
        return _Class(problem, fits, machine)

    def _cheapest(
        self, part: _Class, task: Task, weights: Mapping[str, int], apart: Mapping[int, int], *, true: bool
    ) -> int | None:
        """Cheapest way to run a task; None when no machine fits it."""
        if not part.fits.any():
            return None
        problem, ranks = self.problem, self.problem.goals
        reading, stay = weights.get(ranks.rank("DataLocality"), 0), weights.get(ranks.rank("Continuity"), 0)
        far, racks, machines = problem.distances(task, true=true)
        if task.explicit or apart:
            return int(self._one_by_one(part, task, weights, apart, true=true).min())
        found = part.lowest + reading * far
        for rack, cost in racks.items():
            if rack in part.by_rack:
                found = min(found, part.by_rack[rack] + reading * cost)
        for m, cost in machines.items():
            if part.fits[m]:
                found = min(found, int(part.price[m]) + reading * cost)
        if task.own >= 0 and part.fits[task.own] and "Continuity" in ranks.by_kind:
            cost = problem.reading(task, task.own) if task.blocks else 0
            found = min(found, int(part.price[task.own]) + reading * cost - stay * problem.credit(task))
        return found

    def _range(self, part: _Class, task: Task, weights: Mapping[str, int]) -> tuple[int, int]:
        """Cheapest and dearest way to run a task; nothing where no machine fits it."""
        if not part.fits.any():
            return 0, 0
        if task.explicit or (task.blocks and task.constraints):
            each = self._one_by_one(part, task, weights, {}, true=False)
            return int(each.min()), int(each.max())
        far, _, _ = self.problem.distances(task, true=False)
        low = self._cheapest(part, task, weights, {}, true=False)
        assert low is not None
        return low, part.highest + weights.get(self.problem.goals.rank("DataLocality"), 0) * far

    def _one_by_one(
        self, part: _Class, task: Task, weights: Mapping[str, int], apart: Mapping[int, int], *, true: bool
    ) -> NDArray[Any]:
        """What a task costs on every machine that fits it."""
        problem, ranks = self.problem, self.problem.goals
        reading, stay = weights.get(ranks.rank("DataLocality"), 0), weights.get(ranks.rank("Continuity"), 0)
        far, racks, machines = problem.distances(task, true=true)
        first, place = (weights.get(rank, 0) for rank in (ranks.ranks[0], ranks.rank("Placement")))
        credit = stay * problem.credit(task)
        bare = {m: first * c - place * problem.utility(task.constraints, m) for m, c in task.explicit.items()}
        size = part.size + reading * far + credit + max(map(abs, [*bare.values(), *apart.values(), 0])) * 2
        price = part.price.astype(np.int64 if size < _SAFE else object) + reading * far
        for rack, cost in racks.items():
            price[problem.rack == rack] += reading * (cost - far)
        for m, cost in machines.items():
            price[m] += reading * (cost - min(far, racks.get(int(problem.rack[m]), far)))
        for m, cost in bare.items():
            price[m] = int(part.price[m]) + cost
        for m, more in apart.items():
            price[m] += more
        if task.own >= 0:
            price[task.own] -= credit
        found: NDArray[Any] = price[part.fits]
        return found


def _weighed(cost: Mapping[str, int], weights: Mapping[str, int]) -> int:
    return sum(weights.get(rank, 0) * units for rank, units in cost.items())


def bound(problem: Problem, survey: Survey, prices: Prices, shares: list[tuple[int, int]], *, true: bool) -> int:
    """No schedule has a smaller weighted sum (see the module); ``shares`` are least and most tasks by job."""
    total = survey.least(prices, true=true) - sum(sum(more.values()) for more in prices.apart.values())
    for m, price in enumerate(prices.machine):
        said = list(problem.slot_costs(m))
        if not said:
            total -= int(problem.slots[m]) * max(0, price)
            continue
        costs = [0] * int(problem.slots[m])
        for rank, each in said:
            costs = [a + prices.weights.get(rank, 0) * b for a, b in zip(costs, each, strict=True)]
        total -= sum(max(0, price - cost) for cost in costs)
    for j, ((least, most), price) in enumerate(zip(shares, prices.job, strict=True)):
        count, level = len(problem.instance.jobs[j].tasks), problem.level(j)
        short, above = prices.weights["shortfall"], prices.weights[f"waiting_{level}"] if level else 0
        corners = (count - most, count - least, count)
        total -= max((price - above) * w - short * max(0, w - count + least) for w in corners)
    return total


def strict(weights: Mapping[str, int], classes: list[str], ranks: tuple[str, ...], swing: Mapping[str, int]) -> str:
    """Why weights do not put the stages in strict order; empty when they do.

    A cycle changes the tasks that wait in one class by at most one, for at most one of another, and the shortfall by
    at most one; costs of a rank by at most its ``swing``.
    """
    below = 0
    for rank in reversed(ranks):
        if weights[rank] <= below:
            return f"weight {weights[rank]} of {rank}; a cycle may change {below} below it"
        below += weights[rank] * swing[rank]
    after = 0
    for name in [*reversed(classes), "shortfall"]:
        if weights[name] - after <= below:
            return f"weight {weights[name]} of {name}; {after} follows, and a cycle may change {below}"
        after = weights[name]
    return ""
