"""Dominant resource fairness, recomputed from the instance alone: progressive filling, task by task.

The next task is found by comparing, from the top of the tree of queues, the nodes that could have another task: the
node with the least dominant share after its next task goes first. `flowlex.models.flow.dominant_shares` keeps heaps for
this; here every comparison is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import FlowInstance, FlowJob, Queue


def dominant_shares(instance: FlowInstance, resources: Sequence[str]) -> tuple[list[int], list[int]]:
    """Tasks of each job within its share, and the most that may run."""
    filling = _Filling(instance, resources)
    while candidates := filling.candidates():
        filling.serve(filling.first(candidates, 0))
    most = [len(job.tasks) if job.max_tasks is None else min(job.max_tasks, len(job.tasks)) for job in instance.jobs]
    limited = [any(queue.max_tasks is not None for queue in way[:-1]) for way in filling.ways]
    return filling.share, [n if within else m for n, m, within in zip(filling.share, most, limited, strict=True)]


class _Filling:
    """State of progressive filling: the tasks admitted so far."""

    def __init__(self, instance: FlowInstance, names: Sequence[str]) -> None:
        queues = {queue.name: queue for queue in instance.queues}
        self.position = {name: k for k, name in enumerate(queues)}
        self.ways: list[list[Queue | FlowJob]] = []
        for job in instance.jobs:
            way: list[Queue | FlowJob] = [job]
            above = job.queue
            while above is not None:
                way.insert(0, queues[above])
                above = queues[above].parent
            self.ways.append(way)
        self.asks = [
            [[Fraction(1), *(rational(task.demands.get(name, 0)) for name in names)] for task in job.tasks]
            for job in instance.jobs
        ]
        machines = instance.machines
        slots = Fraction(sum(machine.slots for machine in machines))
        self.total = [slots, *(sum((rational(m.capacity.get(n, 0)) for m in machines), Fraction(0)) for n in names)]
        self.left = list(self.total)
        self.share, self.closed = [0] * len(self.ways), [False] * len(self.ways)
        self.uses: dict[int, tuple[int, list[Fraction]]] = {}  # by node, its tasks and their total demands

    def _used(self, node: Queue | FlowJob) -> tuple[int, list[Fraction]]:
        return self.uses.get(id(node), (0, [Fraction(0)] * len(self.total)))

    def candidates(self) -> list[int]:
        """Jobs that may have another task."""
        return [
            j
            for j, way in enumerate(self.ways)
            if not self.closed[j]
            and self.share[j] < len(self.asks[j])
            and all(node.max_tasks is None or self._used(node)[0] < node.max_tasks for node in way)
        ]

    def first(self, jobs: list[int], depth: int) -> int:
        """The job whose task is next, among jobs that share their first ``depth`` nodes."""
        groups: dict[tuple[int, int], list[int]] = {}
        for j in jobs:
            node = self.ways[j][depth]
            number = (1, j) if isinstance(node, FlowJob) else (0, self.position[node.name])
            groups.setdefault(number, []).append(j)
        found = [
            (*self._place(depth, job), number, job)
            for number, inside in groups.items()
            for job in (inside[0] if number[0] else self.first(inside, depth + 1),)
        ]
        return min(found)[-1]

    def _place(self, depth: int, job: int) -> tuple[int, Fraction]:
        """Sort key of a job's next task among the siblings of its node at ``depth``."""
        node, asked = self.ways[job][depth], self.asks[job][self.share[job]]
        count, used = self._used(node)
        if count < node.min_tasks:
            return 0, Fraction(count + 1, node.min_tasks)
        parts = ((much + more) / there for much, more, there in zip(used, asked, self.total, strict=True) if there)
        return 1, max(parts, default=Fraction(0)) / node.weight

    def serve(self, job: int) -> None:
        """Admit the next task of a job; if it does not fit, the job gets no more."""
        asked = self.asks[job][self.share[job]]
        if any(much > left for much, left in zip(asked, self.left, strict=True)):
            self.closed[job] = True
            return
        self.share[job] += 1
        self.left = [left - much for much, left in zip(asked, self.left, strict=True)]
        for node in self.ways[job]:
            count, used = self._used(node)
            self.uses[id(node)] = count + 1, [much + more for much, more in zip(used, asked, strict=True)]
