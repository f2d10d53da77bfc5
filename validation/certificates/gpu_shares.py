"""Fair shares of jobs in GPUs of several memories, checked: nobody's share can grow without taking from a poorer one.

A share is a level: how many GPUs a job would use if GPUs could be split, its least demanding tasks first. A task can
use any GPU of enough memory; a running task that may stop asks for one like its own. Levels are fair when every job
has all it asks for, or is *stopped*: the task it would start next needs a memory from which up all GPUs are used, by
jobs whose level is no higher. There is one such vector of levels.

Where tasks wait at a price, a job runs at most its level, rounded up for so many jobs of equal level as their sum
allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np

from flowlex.instances.exact import rational
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.gpu_cluster import Cluster, none

__all__ = ["Limits", "fair_limits", "unfair"]


@dataclass(frozen=True)
class Limits:
    """What levels allow: whole tasks of each job, and of jobs with equal level (group) so many one more."""

    whole: list[int]
    most: list[int]
    group: list[int]
    odd: list[int]

    def exceeded(self, count: list[int]) -> Iterator[str]:
        """What running so many tasks of each job exceeds."""
        left = self.odd.copy()
        for j, n in enumerate(count):
            if n > self.most[j]:
                yield f"job {j} runs {n}, its share is {self.most[j]}"
            left[self.group[j]] -= n > self.whole[j]
        yield from (f"{-n} odd GPUs too many" for n in left if n < 0)

    def least(self, price: list[int], low: list[int], high: list[int]) -> int | None:
        """Least of ``sum price n`` for low <= n <= high within the limits; None when there is no n."""
        if list(self.exceeded(low)):
            return None
        count, left = [], self.odd.copy()
        for j, (p, least, most) in enumerate(zip(price, low, high, strict=True)):
            count.append(max(least, min(most, self.whole[j])) if p < 0 else least)
            left[self.group[j]] -= count[j] > self.whole[j]
        total = sum(p * n for p, n in zip(price, count, strict=True))
        for j in sorted(range(len(price)), key=lambda j: price[j]):
            more = price[j] < 0 and count[j] < min(high[j], self.most[j])
            if more and left[self.group[j]] > 0:
                left[self.group[j]] -= 1
                total += price[j]
        return total


def fair_limits(cluster: Cluster, policy: str, stated: dict[str, str]) -> tuple[list[Check], Limits | None]:
    """Checks of stated levels, and the limits that they mean when they hold."""
    wrong = sorted(stated.keys() ^ cluster.job.keys())
    checks = [none("a fair share for every job", wrong)]
    if wrong:
        return checks, None
    level = [rational(stated[name]) for name in cluster.job]
    offenders = list(unfair(cluster, policy, level))
    checks.append(none("shares are fair", offenders))
    if offenders:
        return checks, None
    parts = sorted({x for x in level if x.denominator > 1})
    group = [parts.index(x) if x.denominator > 1 else len(parts) for x in level]
    odd = [Fraction(0)] * (len(parts) + 1)
    for x, g in zip(level, group, strict=True):
        odd[g] += x - floor(x)
    checks.append(none("odd GPUs are whole", [str(x) for x in odd if x != int(x)]))
    limits = Limits([floor(x) for x in level], [ceil(x) for x in level], group, [int(x) for x in odd])
    running = cluster.counts(cluster.at >= 0).tolist()
    checks.append(none("no job runs more than its fair share", list(limits.exceeded(running))))
    return checks, limits


def unfair(cluster: Cluster, policy: str, level: list[Fraction]) -> Iterator[str]:
    """Jobs whose level is not fair, or memories of which more is used than there is."""
    own = cluster.own >= 0
    free = np.ones(len(cluster.gpu), bool)
    if policy != "FSP":
        free[cluster.own[own]] = False
    memory = np.unique(cluster.gpu_memory[free])
    supply = np.bincount(np.searchsorted(memory, cluster.gpu_memory[free]), minlength=len(memory))
    held = (cluster.counts(own) if policy != "FSP" else np.zeros(len(level), np.int64)).tolist()
    need = np.where(own, cluster.gpu_memory[cluster.own], cluster.need)
    wanted = np.searchsorted(memory, need)
    asks = np.flatnonzero((wanted < len(memory)) & ~(own & (policy != "FSP")))
    asks = asks[np.lexsort((wanted[asks], cluster.job_of[asks]))]
    edges = np.searchsorted(cluster.job_of[asks], np.arange(len(level) + 1)).tolist()
    classes = wanted[asks].tolist()
    used, odd = [0] * len(memory), [Fraction(0)] * len(memory)
    highest = [Fraction(0)] * len(memory)  # level of those that use this memory as their largest
    waiting: list[tuple[int, int]] = []  # jobs, and the memory that their next task needs
    for j, x in enumerate(level):
        mine, full = classes[edges[j] : edges[j + 1]], floor(x) - held[j]
        if not 0 <= x - held[j] <= len(mine):
            yield f"level {x} of {cluster.names_of_jobs[j]}"
            return
        for c in mine[:full]:
            used[c] += 1
        if x > floor(x):
            odd[mine[full]] += x - floor(x)
        last = ceil(x) - held[j]
        if last:
            highest[mine[last - 1]] = max(highest[mine[last - 1]], x)
        if full < len(mine):
            waiting.append((j, mine[full]))
    total, top, tight = Fraction(0), Fraction(0), list[tuple[int, Fraction]]()
    spare = 0
    for c in range(len(memory) - 1, -1, -1):
        total, spare, top = total + used[c] + odd[c], spare + int(supply[c]), max(top, highest[c])
        if total > spare:
            yield f"more than {spare} GPUs of {memory[c]:g} GB and above"
        if total == spare:
            tight.append((c, top))
    at = [c for c, _ in reversed(tight)]
    tops = [top for _, top in reversed(tight)]
    for (j, _), k in zip(waiting, np.searchsorted(at, [c for _, c in waiting], side="right").tolist(), strict=True):
        if not k or tops[k - 1] > level[j]:
            yield f"{cluster.names_of_jobs[j]} could have more than {level[j]}"
