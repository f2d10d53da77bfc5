"""Shares of jobs, verified and recomputed from the instance alone.

The running tasks of a queue's children (or of the top level) are ordered: the k-th task within a guarantee of g has the
key k / g and precedes all tasks beyond guarantees, which have the key k / weight; ties go to the earlier child. Shares
are verified in two steps. First, a maximum flow between jobs and machines shows that they can be placed together.
Second, no exchange improves them: through a chain of moved tasks, no job can run one more task in a free slot, or
displace a task that comes later at the node where their branches meet. At the top level this proves the shares fairest,
because placeable vectors form an M-convex set; below it, combinations of exchanges are not searched.

For a changed model, shares are filled in this order (`stated_shares`), except those of queues beside rules of
placement: these have no simple order, so the file states them, and they are verified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from flowlex.validation.restated.flow.dominant_resource_fairness import dominant_shares
from flowlex.validation.restated.flow.goal_costs import Problem
from flowlex.validation.restated.flow.own_goals import Wishes

Place = tuple[int, Fraction, int]


class _Queues:
    """The tree of queues, then jobs: limits, weight and number of tasks of each node."""

    def __init__(self, problem: Problem, share: list[int]) -> None:
        instance, claims = problem.instance, problem.claims
        assert claims is not None
        queues, weighted = instance.queues, problem.goals.by_kind["FairShares"]["kind"] == "weighted"
        number = {queue.name: k for k, queue in enumerate(queues)}
        self.first = len(queues)
        self.name = [f"queue {q.name!r}" for q in queues] + [f"job {j.name!r}" for j in instance.jobs]
        parents = [q.parent for q in queues] + [j.queue for j in instance.jobs]
        self.parent = [-1 if name is None else number[name] for name in parents]
        self.weight = [q.weight if weighted else 1 for q in queues] + claims[2]
        self.has, self.most = [0] * len(queues) + share, [0] * len(queues) + claims[1]
        ways, least = [self.way(k) for k in range(len(parents))], [q.min_tasks for q in queues] + claims[0]
        for q in sorted(range(len(queues)), key=lambda q: -len(ways[q])):  # inner queues first
            inside, limit = [k for k, above in enumerate(self.parent) if above == q], queues[q].max_tasks
            self.has[q], wanted = sum(self.has[k] for k in inside), sum(self.most[k] for k in inside)
            self.most[q] = wanted if limit is None else min(wanted, limit)
            least[q] = max(least[q], sum(min(least[k], self.most[k]) for k in inside if k < self.first))
        self.least = [min(a, b) for a, b in zip(least, self.most, strict=True)]

    def way(self, node: int) -> list[int]:
        """Nodes from the top down to a node."""
        found = [node]
        while self.parent[found[-1]] >= 0:
            found.append(self.parent[found[-1]])
        return found[::-1]

    def place(self, node: int, k: int) -> Place:
        """Sort key of the k-th running task of a node."""
        inside = k <= self.least[node]
        return int(not inside), Fraction(k, self.least[node] if inside else self.weight[node]), node

    def order(self, nodes: Iterable[int]) -> list[int]:
        """The nodes in the order in which their tasks are due, one entry per task."""
        return [node for *_, node in sorted(self.place(node, k + 1) for node in nodes for k in range(self.most[node]))]

    def filled(self, slots: int) -> list[int]:
        """Shares of the jobs by filling from the top, as if every task could run anywhere."""
        units = {-1: slots}
        for node in sorted(range(-1, self.first), key=lambda q: 0 if q < 0 else len(self.way(q))):
            below = [k for k, above in enumerate(self.parent) if above == node]
            given = Counter(self.order(below)[: units[node]])
            units |= {k: given[k] for k in below}
        return [units[k] for k in range(self.first, len(self.parent))]

    def latest(self, jobs: Iterable[int]) -> dict[int, list[int]]:
        """By parent, those two children with tasks of these jobs whose last task comes latest."""
        nodes = {node for job in jobs for node in self.way(self.first + job)}
        found: dict[int, list[int]] = {}
        for node in sorted(nodes, key=lambda k: self.place(k, self.has[k]), reverse=True):
            found.setdefault(self.parent[node], []).append(node)
        return {above: inside[:2] for above, inside in found.items()}

    def betters(self, job: int, latest: dict[int, list[int]], free: bool) -> str:
        """Why one more task of a job, in a free slot or in place of another job's, is fairer; empty when it is not."""
        for node in reversed(self.way(self.first + job)):
            if self.has[node] >= self.most[node]:
                return ""
            other = next((k for k in latest.get(self.parent[node], ()) if k != node), None)
            if other is not None and self.place(other, self.has[other]) > self.place(node, self.has[node] + 1):
                return f"a task of {self.name[other]} is due to {self.name[node]}"
        return f"{self.name[self.first + job]} could run one more in a free slot" if free else ""


def unfair(problem: Problem, share: list[int]) -> str:
    """Why integer shares are not max-min fair at every level; empty when they are."""
    tree = _Queues(problem, share)
    if beyond := next((name for name, n, most in zip(tree.name, tree.has, tree.most, strict=True) if n > most), ""):
        return f"{beyond} has more than it may have"
    known: dict[frozenset[int], dict[int, list[int]]] = {}
    for gains, losers, free in _Placing(problem).exchanges(share):
        if gains < 0:
            return "shares that cannot be placed together"
        if losers not in known:
            known[losers] = tree.latest(losers)
        if why := tree.betters(gains, known[losers], free):
            return why
    return ""


def stated_shares(problem: Problem, said: Mapping[str, Sequence[int]] | None = None) -> list[tuple[int, int]]:
    """Least and most running tasks of each job.

    ``said``: by job, those that a file states. Raises `ValueError`: shares of queues beside rules of placement that it
    does not state or that are unfair, or queues beside caps.
    """
    asked, instance = problem.claims, problem.instance
    if asked is None:
        return [(0, len(job.tasks)) for job in instance.jobs]
    kind, slots = problem.goals.by_kind["FairShares"]["kind"], int(problem.slots.sum())
    if kind == "dominant":
        return list(zip(*dominant_shares(instance, problem.resources), strict=True))
    if kind == "caps":
        least, most, _ = asked
        if instance.queues:
            raise ValueError("caps beside queues")
        due = sorted((Fraction(k, n), j) for j, n in enumerate(least) for k in range(1, n + 1))
        scaled = Counter(j for _, j in due[:slots])  # all of them unless guarantees exceed the slots
        return [(scaled[j], n) for j, n in enumerate(most)]
    tree = _Queues(problem, [0] * len(instance.jobs))
    share = tree.filled(slots)
    if unfair(problem, share):
        if instance.queues:
            named = said or {}
            share = [least for job in instance.jobs for least, most in [named.get(job.name, (-1, 0))] if least == most]
            why = unfair(problem, share) if len(share) == len(instance.jobs) else "the file states none"
            if why:
                raise ValueError(f"shares of queues beside rules of placement: {why}")
        else:
            share = _Placing(problem).filled(tree.order(range(len(instance.jobs))))
    return [(n, n) for n in share]


class _Placing:
    """The network from jobs through their cells (tasks with the same rules) to kinds of machines; see the module."""

    def __init__(self, problem: Problem) -> None:
        self.jobs = len(problem.instance.jobs)
        self.cells: Counter[tuple[int, Wishes]] = Counter()
        for wishes, tasks in problem.classes:
            rule = Wishes(tuple(c for c in wishes.constraints if c.kind in ("required", "forbidden")), wishes.own)
            for j, n in Counter(problem.job[tasks].tolist()).items():
                self.cells[j, rule] += n
        rules = list(dict.fromkeys(rule for _, rule in self.cells))
        fits = np.array([problem.fits(rule, drained=True) for rule in rules]).reshape(len(rules), len(problem.slots))
        kinds, inverse = np.unique(fits, axis=1, return_inverse=True)
        slots = np.bincount(inverse.ravel(), weights=problem.slots, minlength=kinds.shape[1]).astype(np.int64)
        inside = {rule: np.flatnonzero(row).tolist() for rule, row in zip(rules, kinds, strict=True)}
        self.may = [inside[rule] for _, rule in self.cells]
        self.cell = 1 + self.jobs
        self.kind = self.cell + len(self.cells)
        self.sink = self.kind + len(slots)
        inner = []
        for c, ((j, _), count) in enumerate(self.cells.items(), self.cell):
            inner += [(1 + j, c, count), *((c, self.kind + k, count) for k in self.may[c - self.cell])]
        self._inner = inner + [(self.kind + k, self.sink, n) for k, n in enumerate(slots.tolist())]

    def flow(self, share: Sequence[int]) -> tuple[Any, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """A maximum flow, and tails, heads and capacities of the arcs; those from the source 0 have the shares."""
        arcs = [*((0, 1 + j, n) for j, n in enumerate(share)), *self._inner]
        tail, head, room = np.array(arcs, np.int64).reshape(-1, 3).T
        shape = (self.sink + 1, self.sink + 1)
        graph = scipy.sparse.coo_array((room.astype(np.int32), (tail, head)), shape=shape).tocsr()
        return scipy.sparse.csgraph.maximum_flow(graph, 0, self.sink), tail, head, room

    def filled(self, order: Iterable[int]) -> list[int]:
        """Fill shares in this order; a job whose next task cannot be placed gets no more."""
        share, stuck = [0] * self.jobs, set[int]()
        for j in order:
            if j not in stuck:
                share[j] += 1
                if self.flow(share)[0].flow_value < sum(share):
                    share[j] -= 1
                    stuck.add(j)
        return share

    def exchanges(self, share: Sequence[int]) -> Iterator[tuple[int, frozenset[int], bool]]:
        """Yield a job that may gain, jobs that may lose for it, whether a slot is free; job -1: shares do not fit."""
        if not share:
            return
        found, tail, head, room = self.flow(share)
        if found.flow_value != sum(share):
            yield -1, frozenset(), False
            return
        flow = np.asarray(found.flow[tail, head]).ravel()
        inner = tail > 0
        open_ = np.concatenate((inner & (flow < room), inner & (flow > 0) & (head < self.sink)))
        both = np.concatenate((tail, head))[open_], np.concatenate((head, tail))[open_]
        ones, shape = np.ones(int(open_.sum()), np.int8), (self.sink + 1, self.sink + 1)
        residual = scipy.sparse.coo_array((ones, both), shape=shape).tocsr()
        tasks = Counter[int]()
        for (j, _), n in self.cells.items():
            tasks[j] += n
        known: dict[int, tuple[frozenset[int], bool]] = {}
        ways: dict[tuple[int, ...], tuple[frozenset[int], bool]] = {}
        for j, n in enumerate(share):
            if n == tasks[j]:
                continue
            starts = residual.indices[residual.indptr[1 + j] : residual.indptr[2 + j]].tolist()
            into = tuple(sorted({k for c in starts for k in self.may[c - self.cell]}))
            for k in into if into not in ways else ():
                if k not in known:
                    reached = scipy.sparse.csgraph.breadth_first_order(
                        residual, self.kind + k, return_predecessors=False
                    )
                    losers = frozenset(int(v) - 1 for v in reached if 1 <= v < self.cell)
                    known[k] = losers, bool((reached == self.sink).any())
            if into not in ways:
                ways[into] = frozenset().union(*(known[k][0] for k in into)), any(known[k][1] for k in into)
            yield (j, *ways[into])
