"""Proof of optimality: one weighted sum of all stages, and prices of machines, jobs and rules that bound it from below.

Every stage (shortfall of shares, waiting tasks by class, costs by rank) gets a weight. A better schedule differs from
the given one along simple cycles, each of which changes a task at most once and passes the sink at most once. So if
each weight exceeds the largest change of a cycle in all later stages, the least weighted sum is the lexicographic
optimum (`strict`).

For any prices p of machines, q of jobs, s >= 0 of pairs of a rule of different machines and a machine, and v >= 0 of
preemptions, every schedule has a weighted sum of at least ::

    sum_t min(min over machines m that fit t of (cost_tm + p_m + s_rm), wait_t + q_j + v_j if t is held)
      - sum_m max over n of (n p_m - cost of n slots)  -  sum_rm s_rm  -  sum_j v_j (tasks of j that may stop)
      - sum_j max over w of (q_j w - cost of w waiting)

A held task (its job limits preemptions) fits only the machine where it runs. The sums run over all pairs of task and
machine, not over the arcs of a network (`Survey`). The first minimum is taken over the places that a task knows
(see `data_locality_costs`), which gives the same value; with true distances it bounds the true cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.validation.certificates.exact_numbers import dot, times, total, whole, wide
from flowlex.validation.certificates.flow.goal_costs import Problem

#: Costs and prices in one array stay below this in 64 bits; beyond, they are Python integers.
_SAFE = 2**60
#: Exceeds every cost in arrays of Python integers.
_NEVER = 2**256
#: Most pairs of task and machine in one array.
_PAIRS = 2**21


@dataclass(frozen=True, eq=False)
class Prices:
    """Weights of the stages, and prices by position: of machines, of jobs, of (rule, machine), of preemptions."""

    weights: Mapping[str, int]
    machine: list[int]
    job: list[int]
    apart: dict[str, dict[int, int]] = field(default_factory=dict)
    preempt: dict[int, int] = field(default_factory=dict)


class _Class(NamedTuple):
    """Tasks with the same constraints: where they may run, and the machines' prices without and with preferences."""

    tasks: slice
    fits: NDArray[np.bool_]
    bare: NDArray[Any]
    price: NDArray[Any]

    def by_rack(self, rack: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """By rack: whether any machine fits, and the least price of those."""
        inside = np.flatnonzero(self.fits)
        order = inside[np.argsort(rack[inside], kind="stable")]
        racks, first = np.unique(rack[order], return_index=True)
        there, least = np.zeros(int(rack.max(initial=0)) + 1, bool), np.zeros(int(rack.max(initial=0)) + 1, object)
        there[racks], least[racks] = True, np.minimum.reduceat(self.price[order], first)
        return there, least.astype(self.price.dtype)


class Survey:
    """All pairs of task and machine, class by class of equal constraints."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        ranks, self._largest = problem.goals, Counter[str]()
        for rank, waiting in problem.waiting.items():
            self._largest[rank] += int(np.abs(waiting).max(initial=0))
        own = [problem.tasks[t].explicit.values() for t in np.flatnonzero(problem.explicit).tolist()]
        costs = [abs(cost) for each in own for cost in each]
        self._largest[ranks.ranks[0]] += max(costs, default=0)
        liked = (
            sum(abs(problem.units(c.utility)) for c in wishes.constraints if c.kind in ("preferred", "avoided"))
            for wishes, _ in problem.classes
        )
        self._largest[ranks.rank("Placement")] += problem.placing * max(liked, default=0)
        for prices, _, _ in problem.own_goals.rows:
            for kind, price in prices.items():
                self._largest[ranks.rank(kind)] += int(np.abs(price).max(initial=0))
        self._largest[ranks.ranks[0]] += int(np.abs(problem.keep).max(initial=0))
        self._largest[ranks.rank("Continuity")] += int(np.abs(problem.credit).max(initial=0))
        if problem.locality is not None:
            self._largest[ranks.rank("DataLocality")] += int(problem.locality.far.max(initial=0))

    def least(self, prices: Prices, *, true: bool = False) -> int:
        """Sum over the tasks of their cheapest way to run or wait."""
        problem = self.problem
        wait = wide(whole(prices.job)[problem.job]) + wide(weighed(problem.waiting, prices.weights, len(problem.tasks)))
        slow = problem.explicit
        if prices.preempt:
            gate = whole(prices.preempt.get(j, 0) for j in range(len(problem.instance.jobs)))
            wait = wide(wait) + np.where(problem.held, wide(gate)[problem.job], 0)
        if prices.apart:
            slow = slow | np.array([bool(prices.apart.get(task.apart)) for task in problem.tasks], dtype=bool)
        found = total(wait)
        for tasks, low, _ in self._ways(prices, slow, true=true):
            found -= total(np.maximum(wide(wait[tasks]) - wide(low), 0))
        return found

    def costs(self, tasks: NDArray[np.int64], prices: Prices) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """(k, M) cost of each given task on every machine, and (k, M) whether it may run there."""
        problem, count = self.problem, len(self.problem.slots)
        cost, fitting = np.zeros((len(tasks), count), object), np.zeros((len(tasks), count), bool)
        for wishes, inside in problem.classes:
            rows = np.flatnonzero((tasks >= inside.start) & (tasks < inside.stop))
            if not len(rows):
                continue
            fits, bare = problem.fits(wishes), whole(prices.machine).astype(object)
            price = bare + weighed(problem.preference(wishes), prices.weights, count).astype(object)
            fitting[rows] = fits
            cost[rows] = self._each(_Class(inside, fits, bare, price), tasks[rows], prices, true=False)
        return cost, fitting

    def swing(self, rank: str) -> int:
        """Bound on the change of a rank's cost along a simple cycle: all tasks change, and two slots."""
        problem, weights = self.problem, {rank: 1}
        wait = weighed(problem.waiting, weights, len(problem.tasks))
        most, least = np.maximum(wait, 0), np.minimum(wait, 0)
        kind = object if most.dtype == object or self._size(weights) >= _SAFE else np.int64
        most, least = most.astype(kind), least.astype(kind)
        free = Prices(weights, [0] * len(problem.slots), [])
        for tasks, low, high in self._ways(free, problem.explicit, true=False, highest=True):
            most[tasks], least[tasks] = np.maximum(most[tasks], high), np.minimum(least[tasks], low)
        slots = problem.slot_costs[2].get(rank)
        return total(most) - total(least) + 2 * (0 if slots is None else int(np.abs(slots).max(initial=0)))

    def _size(self, weights: Mapping[str, int]) -> int:
        return sum(abs(weights.get(rank, 0)) * size for rank, size in self._largest.items())

    def _ways(
        self, prices: Prices, slow: NDArray[np.bool_], *, true: bool, highest: bool = False
    ) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any]]]:
        """Yield the least and largest cost of running each task, class by class, if any machine fits.

        The least cost is exact. The largest is exact where ``slow``, and with ``highest`` for tasks with constraints;
        otherwise it is an upper bound.
        """
        problem, weights = self.problem, prices.weights
        apart = (p for more in prices.apart.values() for p in more.values())
        size = self._size(weights) + max(map(abs, prices.machine), default=0) + max(apart, default=0)
        kind = np.int64 if size < _SAFE else object
        bare = whole(prices.machine).astype(kind)
        for wishes, tasks in problem.classes:
            fits = problem.fits(wishes)
            if not fits.any():
                continue
            price = bare + weighed(problem.preference(wishes), weights, len(bare)).astype(kind)
            part = _Class(tasks, fits, bare, price)
            low, high = self._known(part, weights, true=true, highest=highest and bool(wishes))
            at = np.flatnonzero(slow[tasks])
            step = max(1, _PAIRS // len(bare))
            for some in (at[k : k + step] for k in range(0, len(at), step)):
                each = self._each(part, some + tasks.start, prices, true=true)[:, fits]
                low[some], high[some] = each.min(axis=1), each.max(axis=1)
            for t in np.flatnonzero(problem.held[tasks]).tolist():
                each = self._each(part, np.array([t + tasks.start]), prices, true=true)
                low[t] = high[t] = each[0, problem.own[t + tasks.start]]
            yield tasks, low, high

    def _known(
        self, part: _Class, weights: Mapping[str, int], *, true: bool, highest: bool
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Least cost of each task over what it knows of the cluster, and an upper bound of its largest cost."""
        problem, tasks, ranks = self.problem, part.tasks, self.problem.goals
        count, kind, locality = tasks.stop - tasks.start, part.price.dtype, problem.locality
        far = np.zeros(count, kind)
        if locality is not None:
            reading = weights.get(ranks.rank("DataLocality"), 0)
            far = times(locality.far[tasks], reading).astype(kind)
        low, high = far + part.price[part.fits].min(), far + part.price[part.fits].max()
        if locality is not None and reading:
            places = ((locality.racks, *part.by_rack(problem.rack)), (locality.machines, part.fits, part.price))
            for every, there, price in places:
                rows = every.among(tasks.start, tasks.stop, true=true)
                fit = there[rows.place]
                cost = price[rows.place[fit]] + times(rows.cost[fit], reading).astype(kind)
                np.minimum.at(low, rows.task[fit] - tasks.start, cost)
            if highest:
                high = np.full(count, -_SAFE if kind == np.int64 else -_NEVER, kind)
                stays = np.where(problem.staying[tasks], problem.own[tasks], -1)
                for task, price, read in locality.most_expensive(tasks, part.fits, part.price, stays):
                    np.maximum.at(high, task - tasks.start, price + times(read, reading).astype(kind))
        own = problem.own[tasks]
        at = np.flatnonzero(problem.staying[tasks] & part.fits[own])
        if len(at):
            cost = times(
                problem.reading(at + tasks.start, own[at], true=true), weights.get(ranks.rank("DataLocality"), 0)
            )
            stay = times(problem.credit[tasks][at], weights.get(ranks.rank("Continuity"), 0))
            keep = times(problem.keep[tasks][at], weights.get(ranks.ranks[0], 0))
            here = part.price[own[at]] + cost.astype(kind) - stay.astype(kind) - keep.astype(kind)
            low[at], high[at] = np.minimum(low[at], here), np.maximum(high[at], here)
        return low, high

    def _each(self, part: _Class, tasks: NDArray[np.int64], prices: Prices, *, true: bool) -> NDArray[Any]:
        """(k, M) cost of each given task of a class on every machine."""
        problem, weights, ranks = self.problem, prices.weights, self.problem.goals
        kind = part.price.dtype
        cost = np.broadcast_to(part.price, (len(tasks), len(part.price))).copy()
        reading = weights.get(ranks.rank("DataLocality"), 0)
        if problem.locality is not None and reading:
            task, machine = np.repeat(tasks, len(part.price)), np.tile(np.arange(len(part.price)), len(tasks))
            read = problem.reading(task, machine, true=true)
            cost += times(read, reading).astype(kind).reshape(cost.shape)
        first = weights.get(ranks.ranks[0], 0)
        for k, task in enumerate(problem.tasks[t] for t in tasks.tolist()):
            if task.explicit:
                said = list(task.explicit)
                cost[k, said] = part.bare[said] + times(whole(task.explicit.values()), first).astype(kind)
            if more := prices.apart.get(task.apart):
                cost[k, list(more)] += whole(more.values()).astype(kind)
        at = np.flatnonzero(problem.own[tasks] >= 0)
        stay = times(problem.credit[tasks[at]], weights.get(ranks.rank("Continuity"), 0))
        keep = times(problem.keep[tasks[at]], first)
        cost[at, problem.own[tasks[at]]] -= stay.astype(kind) + keep.astype(kind)
        return cost


def weighed(cost: Mapping[str, NDArray[Any]], weights: Mapping[str, int], count: int) -> NDArray[Any]:
    """(count,) weighted sum of costs by rank; a rank without a weight counts 0."""
    found: NDArray[Any] = np.zeros(count, np.int64)
    for rank, each in cost.items():
        found = wide(found) + wide(times(each, weights.get(rank, 0)))
    return found


def bound(problem: Problem, survey: Survey, prices: Prices, shares: list[tuple[int, int]], *, true: bool) -> int:
    """Lower bound on the weighted sum of every schedule (see the module).

    ``shares`` are least and most tasks by job.
    """
    found = survey.least(prices, true=true) - sum(sum(more.values()) for more in prices.apart.values())
    found -= sum(price * problem.gates[j][1] for j, price in prices.preempt.items())
    machine, _, slots = problem.slot_costs
    price = wide(whole(prices.machine))
    if slots:
        cost = wide(weighed(slots, prices.weights, len(machine)))
        found -= total(np.maximum(price[machine] - cost, 0))
    else:
        found -= dot(problem.slots, np.maximum(price, 0))
    return found - _waiting(problem, prices, shares)


def _waiting(problem: Problem, prices: Prices, shares: list[tuple[int, int]]) -> int:
    """Largest value of the jobs' waiting tasks minus their costs in the stages, attained at a corner of each share."""
    weights, short = prices.weights, prices.weights["shortfall"]
    above = {level: weights[f"waiting_{level}"] if level else 0 for level in set(problem.levels)}
    each = wide(whole(prices.job)) - wide(whole(above[level] for level in problem.levels))
    count = np.array([len(job.tasks) for job in problem.instance.jobs], dtype=np.int64)
    least, most = (wide(whole(share[k] for share in shares)) for k in (0, 1))
    size = (_largest(each) + abs(short)) * (_largest(count) + _largest(least) + _largest(most))
    kind = np.int64 if size < _SAFE else object
    each, count, least, most = (values.astype(kind) for values in (each, count, least, most))
    corners = (count - most, count - least, count)
    worth = [each * w - short * np.maximum(w - count + least, 0) for w in corners]
    return total(np.maximum(np.maximum(worth[0], worth[1]), worth[2]))


def _largest(values: NDArray[Any]) -> int:
    return int(np.abs(values).max(initial=0))


def strict(weights: Mapping[str, int], classes: list[str], ranks: tuple[str, ...], swing: Mapping[str, int]) -> str:
    """Why weights do not put the stages in strict order; empty when they do.

    A cycle changes the number of waiting tasks of one class by at most one, in exchange for at most one of another,
    the shortfall by at most one, and the costs of a rank by at most its ``swing``.
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
