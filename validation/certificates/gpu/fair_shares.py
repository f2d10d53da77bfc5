"""Check fair shares of jobs in GPUs of several memory sizes: no share can grow without taking from a smaller one.

A share is a level: how many GPUs a job would use if GPUs could be split, its least demanding tasks first. A task can
use any GPU of enough memory; a running task that may stop asks for one like its own. Levels are fair if every job has
all it asks for, or is *stopped*: its next task needs at least some memory such that all GPUs from there up are used, by
jobs whose level is no higher. Exactly one vector of levels is fair.

Jobs whose fractional levels have the same ceiling form a group. A fair answer runs the level of each job, rounded
down, and one more task for as many jobs of each group as its fractions sum to. So the levels determine the sorted
counts (decomposition: Fujishige 1980). With waiting at a price, this is the most that jobs may run.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.validation.certificates.gpu.cluster_columns import Cluster

Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Limits:
    """The integer allocations of levels: tasks and group (-1: none) of each job; jobs of a group that run one more."""

    whole: list[int]
    group: list[int]
    odd: list[int]

    def sorted_counts(self) -> list[int]:
        """The numbers of tasks that jobs run in a fair answer."""
        count, left = self.whole.copy(), self.odd.copy()
        for j, g in enumerate(self.group):
            if g >= 0 and left[g]:
                count[j], left[g] = count[j] + 1, left[g] - 1
        return sorted(count)

    def exceeded(self, count: list[int]) -> list[str]:
        """The shares that the given numbers of running tasks exceed."""
        left, wrong = self.odd.copy(), []
        for j, (n, whole, g) in enumerate(zip(count, self.whole, self.group, strict=True)):
            if n > whole + (g >= 0):
                wrong.append(f"job {j} runs {n}, its share is {whole}")
            if g >= 0:
                left[g] -= n > whole
        return wrong + [f"{-n} odd GPUs too many" for n in left if n < 0]

    def least_fair(self, price: list[int]) -> int:
        """Minimum of ``sum price n`` over the numbers n of fair answers."""
        total = sum(p * n for p, n in zip(price, self.whole, strict=True))
        for g, odd in enumerate(self.odd):
            total += sum(sorted(p for p, of in zip(price, self.group, strict=True) if of == g)[:odd])
        return total

    def least(self, price: list[int], low: list[int], high: list[int]) -> int | None:
        """Minimum of ``sum price n`` for low <= n <= high within the limits; None if there is no such n."""
        if self.exceeded(low):
            return None
        count, left = [], self.odd.copy()
        for p, least, most, whole, g in zip(price, low, high, self.whole, self.group, strict=True):
            count.append(max(least, min(most, whole)) if p < 0 else least)
            if g >= 0:
                left[g] -= count[-1] > whole
        total = sum(p * n for p, n in zip(price, count, strict=True))
        for j in sorted(range(len(price)), key=lambda j: price[j]):
            g = self.group[j]
            if g >= 0 and price[j] < 0 and count[j] == self.whole[j] < high[j] and left[g] > 0:
                left[g] -= 1
                total += price[j]
        return total


def fair_limits(
    cluster: Cluster, kept: Mask, candidate: Mask, level: list[Fraction]
) -> tuple[list[str], Limits | None]:
    """Return what is wrong (jobs with unfair levels, overused memories), or the limits that the levels set.

    ``kept`` tasks hold their GPUs and count; ``candidate`` tasks may run on the others.
    """
    memory, supply, wanted = _claims(cluster, kept)
    asks = np.flatnonzero(candidate & (wanted < len(memory)))
    asks = asks[np.lexsort((wanted[asks], cluster.job_of[asks]))]
    edges = np.searchsorted(cluster.job_of[asks], np.arange(len(level) + 1)).tolist()
    classes, held = wanted[asks].tolist(), cluster.counts(kept).tolist()
    used, odd = [0] * len(memory), [Fraction(0)] * len(memory)
    highest = [Fraction(0)] * len(memory)  # highest level of jobs whose largest memory this is
    waiting: list[tuple[int, int]] = []  # jobs, and the memory that their next task needs
    for j, x in enumerate(level):
        mine, full = classes[edges[j] : edges[j + 1]], floor(x) - held[j]
        if not 0 <= x - held[j] <= len(mine):
            return [f"level {x} of {cluster.names_of_jobs[j]}"], None
        for c in mine[:full]:
            used[c] += 1
        if x > floor(x):
            odd[mine[full]] += x - floor(x)
        last = ceil(x) - held[j]
        if last:
            highest[mine[last - 1]] = max(highest[mine[last - 1]], x)
        if full < len(mine):
            waiting.append((j, mine[full]))
    total, top, spare, wrong = Fraction(0), Fraction(0), 0, list[str]()
    tight: list[tuple[int, Fraction]] = []
    for c in range(len(memory) - 1, -1, -1):
        total, spare, top = total + used[c] + odd[c], spare + int(supply[c]), max(top, highest[c])
        if total > spare:
            wrong.append(f"more than {spare} GPUs of {memory[c]:g} GB and above")
        if total == spare:
            tight.append((c, top))
    at, tops = [c for c, _ in reversed(tight)], [top for _, top in reversed(tight)]
    stops = np.searchsorted(at, [c for _, c in waiting], side="right").tolist()
    wrong += [
        f"{cluster.names_of_jobs[j]} could have more than {level[j]}"
        for (j, _), k in zip(waiting, stops, strict=True)
        if not k or tops[k - 1] > level[j]
    ]
    return wrong, None if wrong else _grouped(level, [(j, k) for (j, _), k in zip(waiting, stops, strict=True)])


def _grouped(level: list[Fraction], stops: list[tuple[int, int]]) -> Limits:
    """The limits, with jobs grouped by the ceiling of their level."""
    odd: dict[int, Fraction] = {}
    where = {j: ceil(level[j]) for j, _ in stops if level[j].denominator > 1}
    for j, k in where.items():
        odd[k] = odd.get(k, Fraction(0)) + level[j] - floor(level[j])
    number = {k: g for g, k in enumerate(odd)}
    group = [number[where[j]] if j in where else -1 for j in range(len(level))]
    return Limits([floor(x) for x in level], group, [floor(x) for x in odd.values()])


def most_tasks(cluster: Cluster, kept: Mask, candidate: Mask) -> int:
    """How many tasks can run."""
    memory, supply, wanted = _claims(cluster, kept)
    asks = np.bincount(wanted[candidate], minlength=len(memory) + 1)
    total, spare = int(np.count_nonzero(kept)), 0
    for c in range(len(memory) - 1, -1, -1):
        spare += int(supply[c])
        served = min(spare, int(asks[c]))
        total, spare = total + served, spare - served
    return total


def _claims(cluster: Cluster, kept: Mask) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[Any]]:
    """Memory sizes of the free GPUs, their numbers, and (T,) the index of the smallest size that fits each task."""
    free = np.ones(len(cluster.gpu), bool)
    free[cluster.own[kept]] = False
    memory, supply = np.unique(cluster.gpu_memory[free], return_counts=True)
    need = np.where(cluster.own >= 0, cluster.gpu_memory[cluster.own], cluster.need)
    return memory, supply, np.searchsorted(memory, need)
