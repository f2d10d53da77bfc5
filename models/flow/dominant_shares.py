"""Dominant resource fairness in whole tasks: progressive filling of a tree of queues.

The dominant share of a job or queue is the largest part that its running tasks take of any resource of the cluster:
slots, and whatever machines have capacities of. Tasks are let in one after the other. At every level of the tree the
next one is that of the node whose dominant share, divided by its weight, is then the least; nodes below their guarantee
come before all others, at the part of it that they then have; ties go to the earlier node. A job whose next task (in
the order listed) no longer fits into what is left of the cluster gets no more.

The cluster counts as one pool here: what cannot be placed for lack of room on single machines falls short of the share,
and is lent. With whole tasks this is fair step by step, and not always the lexicographically fairest vector: a large
task that is let in may keep out two small ones. With one resource and tasks of one size it is max-min fair.
Source: Ghodsi et al., "Dominant Resource Fairness", NSDI 2011 (algorithm 1, with the share after the task, in a tree).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.instances.exact import rational
from flowlex.instances.flow import FlowInstance

__all__ = ["dominant_bounds"]

Amount = tuple[Fraction, ...]
Key = tuple[int, Fraction, int]


@dataclass(eq=False)
class _Node:
    """A queue or a job: what it has, and what would come next; parts of the cluster by resource."""

    number: int
    above: _Node | None
    least: int
    most: int
    weight: int
    used: list[Fraction]
    waiting: list[Amount] = field(default_factory=list)  # of a job, the next one last
    inside: list[tuple[Key, _Node]] = field(default_factory=list)  # of a queue, a heap
    running: int = 0

    def next(self) -> Amount | None:
        """What the next task asks for; None when there is none."""
        if self.running >= self.most:
            return None
        if self.inside:
            return self.inside[0][1].next()
        return self.waiting[-1] if self.waiting else None

    def key(self, asked: Amount) -> Key:
        """When the next task comes."""
        after = self.running + 1
        if after <= self.least:
            return 0, Fraction(after, self.least), self.number
        return 1, max(a + b for a, b in zip(self.used, asked, strict=True)) / self.weight, self.number


def dominant_bounds(instance: FlowInstance) -> Integers:
    """(J, 2) tasks of each job that should run at least, by the module's shares, and may run at most.

    More than its share runs of a job only where the share of another falls short, or to use what is left; never of jobs
    in a queue that is limited.
    """
    root, jobs = _tree(instance)
    free = [Fraction(1)] * len(root.used)
    while root.inside:
        leaf = root
        while leaf.inside:
            leaf = leaf.inside[0][1]
        asked = leaf.waiting[-1]
        fits = all(much <= left for much, left in zip(asked, free, strict=True))
        if fits:
            leaf.waiting.pop()
            free = [left - much for much, left in zip(asked, free, strict=True)]
        else:
            leaf.waiting.clear()
        _settle(leaf, asked if fits else None)
    share = np.array([job.running for job in jobs], np.int64)
    limited = np.array([_is_limited(job) for job in jobs], np.bool_)
    most = [len(j.tasks) if j.max_tasks is None else min(j.max_tasks, len(j.tasks)) for j in instance.jobs]
    return np.stack([share, np.where(limited, share, np.array(most, np.int64))], axis=1).reshape(-1, 2)


def _settle(leaf: _Node, asked: Amount | None) -> None:
    """Count a task that was let in on the way up, and put every node of the way in its new place."""
    node: _Node | None = leaf
    while node is not None:
        if asked is not None:
            node.running += 1
            node.used = [a + b for a, b in zip(node.used, asked, strict=True)]
        if node.above is not None:  # the node is the first of those beside it
            heapq.heappop(node.above.inside)
            following = node.next()
            if following is not None:
                heapq.heappush(node.above.inside, (node.key(following), node))
        node = node.above


def _tree(instance: FlowInstance) -> tuple[_Node, list[_Node]]:
    """The root, and the jobs."""
    names = instance.resources
    there = [Fraction(sum(machine.slots for machine in instance.machines))]
    there += [sum((rational(m.capacity.get(n, 0)) for m in instance.machines), Fraction(0)) for n in names]
    none = [Fraction(0)] * len(there)
    root = _Node(-1, None, 0, 2**62, 1, none)
    queues = {queue.name: queue for queue in instance.queues}
    nodes: dict[str, _Node] = {}

    def queue(name: str | None) -> _Node:
        if name is None:
            return root
        if name not in nodes:
            q, number = queues[name], list(queues).index(name)
            most = 2**62 if q.max_tasks is None else q.max_tasks
            nodes[name] = _Node(number, queue(q.parent), q.min_tasks, most, q.weight, none)
        return nodes[name]

    jobs = []
    for j, job in enumerate(instance.jobs):
        asked = ([Fraction(1), *(rational(task.demands.get(n, 0)) for n in names)] for task in job.tasks)
        parts = [tuple(_part(a, b) for a, b in zip(each, there, strict=True)) for each in asked]
        most = len(job.tasks) if job.max_tasks is None else job.max_tasks
        jobs.append(
            _Node(len(queues) + j, queue(job.queue), job.min_tasks, most, job.weight, none, waiting=parts[::-1])
        )
    depth = {id(node): len(_way(node)) for node in (*nodes.values(), *jobs)}
    for node in sorted((*jobs, *nodes.values()), key=lambda n: -depth[id(n)]):  # inner nodes first
        asked_next = node.next()
        if asked_next is not None and node.above is not None:
            heapq.heappush(node.above.inside, (node.key(asked_next), node))
    return root, jobs


def _part(much: Fraction, there: Fraction) -> Fraction:
    """A part of the cluster; 2, which never fits, of what is not there."""
    return much / there if there else Fraction(2 if much else 0)


def _way(node: _Node) -> list[_Node]:
    way = [node]
    while way[-1].above is not None:
        way.append(way[-1].above)
    return way


def _is_limited(job: _Node) -> bool:
    return any(node.most < 2**62 for node in _way(job)[1:-1])
