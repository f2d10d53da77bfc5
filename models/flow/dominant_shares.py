"""Dominant resource fairness in whole tasks: progressive filling of a tree of queues.

The dominant share of a job or queue is its largest share of any resource of the cluster: slots, and all resources for
which machines have capacities. Tasks are admitted one at a time. At every level of the tree, the node with the least
(dominant share after its next task) / weight comes first; nodes below their guarantee precede all others, in order of
the fraction of the guarantee reached after the task; ties go to the earlier node. When the next task of a job (in the
order listed) does not fit into the remaining resources of the cluster, the job gets no more tasks.

The cluster is one pool here. A job whose tasks do not fit on single machines falls short of its share, and others may
use the remainder. With whole tasks this procedure is fair at each step, but its result is not always lexicographically
optimal: a large admitted task may exclude two small ones. With one resource and equal tasks it is max-min fair.
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

Amount = tuple[Fraction, ...]
Key = tuple[int, Fraction, int]


@dataclass(eq=False)
class _Node:
    """A queue or a job with its used resources and its next task; amounts are fractions of the cluster by resource."""

    number: int
    of: Queue | FlowJob | None
    above: _Node | None
    used: Amount
    waiting: list[Amount] = field(default_factory=list)  # of a job: demands of its tasks, the next task last
    inside: list[tuple[Key, _Node]] = field(default_factory=list)  # of a queue: heap of its children
    running: int = 0

    @property
    def way(self) -> list[_Node]:
        """The node and its ancestors up to the root."""
        return [self] if self.above is None else [self, *self.above.way]

    def next(self) -> Amount | None:
        """Return the demand of the next task; None if there is none."""
        if self.of is not None and self.of.max_tasks is not None and self.running >= self.of.max_tasks:
            return None
        if self.inside:
            return self.inside[0][1].next()
        return self.waiting[-1] if self.waiting else None

    def enter(self) -> None:
        """Insert this node into the heap of its parent, by the rank of its next task."""
        asked = self.next()
        if asked is None or self.of is None or self.above is None:
            return
        after, least = self.running + 1, self.of.min_tasks
        place = Fraction(after, least) if after <= least else max(map(add, self.used, asked)) / self.of.weight
        heapq.heappush(self.above.inside, ((int(after > least), place, self.number), self))


def dominant_bounds(instance: FlowInstance) -> Integers:
    """(J, 2) least number of tasks of each job that should run (its share), and most that may run.

    A job exceeds its share only if another job falls short of its own, or to use the remainder; jobs in a queue with a
    limit never exceed it.
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
            if node.above is not None:  # it is the first of its siblings
                heapq.heappop(node.above.inside)
                node.enter()
    bounds = []
    for node, job in zip(jobs, instance.jobs, strict=True):
        limited = any(queue.of is not None and queue.of.max_tasks is not None for queue in node.way[1:])
        most = len(job.tasks) if job.max_tasks is None else min(job.max_tasks, len(job.tasks))
        bounds.append((node.running, node.running if limited else most))
    return np.array(bounds, np.int64).reshape(-1, 2)


def _tree(instance: FlowInstance) -> tuple[_Node, list[_Node]]:
    """Build the tree; return its root and the nodes of the jobs."""
    names, machines = instance.resources, instance.machines
    there = [Fraction(sum(machine.slots for machine in machines))]
    there += [sum((rational(m.capacity.get(n, 0)) for m in machines), Fraction(0)) for n in names]

    def part(much: Fraction, total: Fraction) -> Fraction:
        return much / total if total else Fraction(2 if much else 0)  # a demand for a missing resource never fits

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
