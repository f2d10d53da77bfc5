"""Shares of jobs computed again from the instance, where no file states them: the next task that is due, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from flowlex.validation.certificates.flow.dominant import dominant_shares
from flowlex.validation.certificates.flow.goals import Problem
from flowlex.validation.certificates.flow.shares import placeable, unfair

__all__ = ["stated_shares"]


def stated_shares(problem: Problem) -> list[tuple[int, int]]:
    """Least and most running tasks of each job.

    Raises
    ------
    ValueError
        Shares of queues beside rules of placement, which have no simple order.
    """
    asked, instance = problem.shares(), problem.instance
    if asked is None:
        return [(0, len(job.tasks)) for job in instance.jobs]
    kind, slots = problem.goals.by_kind["FairShares"]["kind"], int(problem.slots.sum())
    if kind == "dominant":
        return list(zip(*dominant_shares(instance), strict=True))
    least, most, weight = asked
    if kind == "caps":
        scaled = _filled(least, [max(1, n) for n in least], [0] * len(least), slots) if sum(least) > slots else least
        return list(zip(scaled, most, strict=True))
    share = _down_the_tree(problem, slots)
    if unfair(problem, share):
        if instance.queues:
            raise ValueError("shares of queues beside rules of placement")
        share = _placed(problem, _steps(least, most, weight))
    return [(n, n) for n in share]


def _steps(least: Sequence[int], most: Sequence[int], weight: Sequence[int]) -> list[int]:
    """Who is due next, task by task: those within guarantees first, then by weight; ties go to the earlier."""
    order = [
        (k > a, Fraction(k, a if k <= a else w), j)
        for j, (a, b, w) in enumerate(zip(least, most, weight, strict=True))
        for k in range(1, b + 1)
    ]
    return [j for *_, j in sorted(order)]


def _filled(most: Sequence[int], weight: Sequence[int], least: Sequence[int], units: int) -> list[int]:
    share = [0] * len(most)
    for j in _steps(least, most, weight)[:units]:
        share[j] += 1
    return share


def _down_the_tree(problem: Problem, slots: int) -> list[int]:
    """Shares by filling from the top, as if every task could run anywhere."""
    instance, asked = problem.instance, problem.shares()
    assert asked is not None
    weighted = problem.goals.by_kind["FairShares"]["kind"] == "weighted"
    queues = {queue.name: queue for queue in instance.queues}

    def wanted(name: str) -> int:
        inside = sum(wanted(q.name) for q in instance.queues if q.parent == name)
        inside += sum(n for job, n in zip(instance.jobs, asked[1], strict=True) if job.queue == name)
        limit = queues[name].max_tasks
        return inside if limit is None else min(inside, limit)

    share = [0] * len(instance.jobs)

    def fill(parent: str | None, units: int) -> None:
        below = [q for q in instance.queues if q.parent == parent]
        jobs = [j for j, job in enumerate(instance.jobs) if job.queue == parent]
        most = [*(wanted(q.name) for q in below), *(asked[1][j] for j in jobs)]
        least = [*(min(q.min_tasks, n) for q, n in zip(below, most, strict=False)), *(asked[0][j] for j in jobs)]
        weight = [*(q.weight if weighted else 1 for q in below), *(asked[2][j] for j in jobs)]
        found = _filled(most, weight, least, units)
        for queue, n in zip(below, found, strict=False):
            fill(queue.name, n)
        for j, n in zip(jobs, found[len(below) :], strict=True):
            share[j] = n

    fill(None, slots)
    return share


def _placed(problem: Problem, steps: Sequence[int]) -> list[int]:
    """Shares as far as placement allows: a job whose next task finds no place has what it can have."""
    share, stuck = [0] * len(problem.instance.jobs), set[int]()
    fits = placeable(problem)
    for j in steps:
        if j in stuck:
            continue
        share[j] += 1
        if not fits(share):
            share[j] -= 1
            stuck.add(j)
    return share
