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
from operator import add, le, sub

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import FlowInstance, FlowJob, Queue

__all__ = ["dominant_bounds"]

Amount = tuple[Fraction, ...]
Key = tuple[int, Fraction, int]


@dataclass(eq=False)
class _Node:
    """A queue or a job: what it has, and what would come next; parts of the cluster by resource."""

    number: int
    of: Queue | FlowJob | None
    above: _Node | None
    used: Amount
    waiting: list[Amount] = field(default_factory=list)  # of a job, the next one last
    inside: list[tuple[Key, _Node]] = field(default_factory=list)  # of a queue, a heap
    running: int = 0

    @property
    def way(self) -> list[_Node]:
        """The node, and those above it up to the root."""
        return [self] if self.above is None else [self, *self.above.way]

    def next(self) -> Amount | None:
        """What the next task asks for; None when there is none."""
        if self.of is not None and self.of.max_tasks is not None and self.running >= self.of.max_tasks:
            return None
        if self.inside:
            return self.inside[0][1].next()
        return self.waiting[-1] if self.waiting else None

    def enter(self) -> None:
        """Take a place among the nodes beside it, by when the next task comes."""
        asked = self.next()
        if asked is None or self.of is None or self.above is None:
            return
        after, least = self.running + 1, self.of.min_tasks
        place = Fraction(after, least) if after <= least else max(map(add, self.used, asked)) / self.of.weight
        heapq.heappush(self.above.inside, ((int(after > least), place, self.number), self))


def dominant_bounds(instance: FlowInstance) -> Integers:
    """(J, 2) tasks of each job that should run at least, by the module's shares, and may run at most.

    More than its share runs of a job only where the share of another falls short, or to use what is left; never of jobs
    in a queue that is limited.
    """
    root, jobs = _tree(instance)
    free: Amount = (Fraction(1),) * len(root.used)
    while root.inside:
        leaf = root
        while leaf.inside:
            leaf = leaf.inside[0][1]
        asked = leaf.waiting[-1]
        if fits := all(map(le, asked, free)):
            leaf.waiting.pop()
            free = tuple(map(sub, free, asked))
        else:
            leaf.waiting.clear()
        for node in leaf.way:
            if fits:
                node.running += 1
                node.used = tuple(map(add, node.used, asked))
            if node.above is not None:  # it is the first of those beside it
                heapq.heappop(node.above.inside)
                node.enter()
    bounds = []
    for node, job in zip(jobs, instance.jobs, strict=True):
        limited = any(queue.of is not None and queue.of.max_tasks is not None for queue in node.way[1:])
        most = len(job.tasks) if job.max_tasks is None else min(job.max_tasks, len(job.tasks))
        bounds.append((node.running, node.running if limited else most))
    return np.array(bounds, np.int64).reshape(-1, 2)


def _tree(instance: FlowInstance) -> tuple[_Node, list[_Node]]:
    """The root, and the jobs."""
    names, machines = instance.resources, instance.machines
    there = [Fraction(sum(machine.slots for machine in machines))]
    there += [sum((rational(m.capacity.get(n, 0)) for m in machines), Fraction(0)) for n in names]

    def part(much: Fraction, total: Fraction) -> Fraction:
        return much / total if total else Fraction(2 if much else 0)  # 2, which never fits, of what is not there

    nothing = (Fraction(0),) * len(there)
    root = _Node(-1, None, None, nothing)
    nodes = {queue.name: _Node(k, queue, root, nothing) for k, queue in enumerate(instance.queues)}
    for queue in instance.queues:
        nodes[queue.name].above = root if queue.parent is None else nodes[queue.parent]
    jobs = []
    for j, job in enumerate(instance.jobs, len(nodes)):
        asked = ([Fraction(1), *(rational(task.demands.get(n, 0)) for n in names)] for task in job.tasks)
        parts = [tuple(map(part, each, there)) for each in asked]
        jobs.append(_Node(j, job, root if job.queue is None else nodes[job.queue], nothing, parts[::-1]))
    for node in sorted((*jobs, *nodes.values()), key=lambda n: -len(n.way)):  # inner nodes first
        node.enter()
    return root, jobs
