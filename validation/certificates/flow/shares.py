"""Why stated shares are not max-min fair at every level of the queues, judged from the instance alone.

The children of a queue (or of the top) have their running tasks in an order: the k-th within a guarantee of g comes at
k / g, before all others, which come at k / weight; ties go to the earlier. The shares must be placeable together, which
a maximum flow between jobs and machines shows, and no exchange may better them: a job that could run one more task,
through any chain of tasks that change places, would take a free slot, or the place of a task that comes later than its
own where their ways up the tree meet. At the top level no exchange that betters means that no shares are fairer (what
can be placed is an M-convex set); below it, several exchanges at once are not looked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

import numpy as np
import scipy

from flowlex.validation.certificates.flow.goals import Problem
from flowlex.validation.certificates.flow.own_goals import Wishes

__all__ = ["fairest", "placeable", "unfair"]

Place = tuple[int, Fraction, int]


class _Queues:
    """The tree: queues, then jobs, each with what it claims and what it has."""

    def __init__(self, problem: Problem, share: list[int]) -> None:
        instance, claims = problem.instance, problem.shares()
        assert claims is not None
        queues, weighted = instance.queues, problem.goals.by_kind["FairShares"]["kind"] == "weighted"
        number = {queue.name: k for k, queue in enumerate(queues)}
        self.first = len(queues)
        self.name = [f"queue {q.name!r}" for q in queues] + [f"job {j.name!r}" for j in instance.jobs]
        parents = [q.parent for q in queues] + [j.queue for j in instance.jobs]
        self.parent = [-1 if name is None else number[name] for name in parents]
        self.weight = [q.weight if weighted else 1 for q in queues] + claims[2]
        self.has, wanted = [0] * len(queues) + share, [0] * len(queues) + claims[1]
        done: set[int] = set()
        while len(done) < len(queues):  # those first whose own queues are done
            for q in range(len(queues)):
                inside = [k for k, above in enumerate(self.parent) if above == q]
                if q not in done and all(k >= len(queues) or k in done for k in inside):
                    limit = queues[q].max_tasks
                    self.has[q], sum_of = sum(self.has[k] for k in inside), sum(wanted[k] for k in inside)
                    wanted[q] = sum_of if limit is None else min(sum_of, limit)
                    done.add(q)
        self.most = wanted
        least = [q.min_tasks for q in queues] + claims[0]
        self.least = [min(a, b) for a, b in zip(least, self.most, strict=True)]

    def way(self, job: int) -> list[int]:
        """Nodes from the top down to a job."""
        found = [self.first + job]
        while self.parent[found[-1]] >= 0:
            found.append(self.parent[found[-1]])
        return found[::-1]

    def place(self, node: int, k: int) -> Place:
        """Where the k-th running task of a node comes."""
        inside = k <= self.least[node]
        return int(not inside), Fraction(k, self.least[node] if inside else self.weight[node]), node

    def beyond(self) -> str:
        """A node with more than it may have."""
        return next((self.name[k] for k, n in enumerate(self.has) if n > self.most[k]), "")

    def latest(self, jobs: Iterable[int]) -> dict[int, list[int]]:
        """By parent, the two children with a task of these jobs to lose whose last task comes latest."""
        nodes = {node for job in jobs for node in self.way(job)}
        found: dict[int, list[int]] = {}
        for node in sorted(nodes, key=lambda k: self.place(k, self.has[k]), reverse=True):
            found.setdefault(self.parent[node], []).append(node)
        return {above: inside[:2] for above, inside in found.items()}

    def betters(self, job: int, latest: dict[int, list[int]], free: bool) -> str:
        """Why one more task of a job, in a free slot or for one of another job, is fairer; empty when it is not."""
        for node in reversed(self.way(job)):
            if self.has[node] >= self.most[node]:
                return ""
            other = next((k for k in latest.get(self.parent[node], ()) if k != node), None)
            if other is not None and self.place(other, self.has[other]) > self.place(node, self.has[node] + 1):
                return f"a task of {self.name[other]} is due to {self.name[node]}"
        return f"{self.name[self.first + job]} could run one more in a free slot" if free else ""


def unfair(problem: Problem, share: list[int]) -> str:
    """Why whole shares are not max-min fair at every level; empty when they are."""
    tree = _Queues(problem, share)
    if beyond := tree.beyond():
        return f"{beyond} has more than it may have"
    cells = _cells(problem)
    known: dict[frozenset[int], dict[int, list[int]]] = {}
    for gains, losers, free in _exchanges(problem, share, cells):
        if gains < 0:
            return "shares that cannot be placed together"
        if losers not in known:
            known[losers] = tree.latest(losers)
        if why := tree.betters(gains, known[losers], free):
            return why
    return ""


def placeable(problem: Problem) -> Callable[[list[int]], bool]:
    """Whether shares can be placed together, to be asked often."""
    cells = _cells(problem)
    slots, may = _kinds(problem, cells)

    def fits(share: list[int]) -> bool:
        job, cell = 1, 1 + len(share)
        kind = cell + len(cells)
        arcs = [(0, job + j, n) for j, n in enumerate(share)]
        for c, ((j, _), count) in enumerate(cells.items()):
            arcs += [(job + j, cell + c, count), *((cell + c, kind + k, count) for k in may[c])]
        arcs += [(kind + k, kind + len(slots), n) for k, n in enumerate(slots)]
        tail, head, room = np.array(arcs, np.int64).reshape(-1, 3).T
        size = (kind + len(slots) + 1,) * 2
        graph = scipy.sparse.coo_array((room.astype(np.int32), (tail, head)), shape=size).tocsr()
        return int(scipy.sparse.csgraph.maximum_flow(graph, 0, kind + len(slots)).flow_value) == sum(share)

    return fits


def _cells(problem: Problem) -> Counter[tuple[int, Wishes]]:
    """Tasks by job and by what binds where they may run."""
    cells: Counter[tuple[int, Wishes]] = Counter()
    for task in problem.tasks:
        binding = tuple(c for c in task.wishes.constraints if c.kind in ("required", "forbidden"))
        cells[task.job, Wishes(binding, task.wishes.own)] += 1
    return cells


def _kinds(problem: Problem, cells: Counter[tuple[int, Wishes]]) -> tuple[list[int], list[list[int]]]:
    """Slots of machines that no rule tells apart, and for each cell the kinds it may take."""
    rules = list(dict.fromkeys(rule for _, rule in cells))
    fits = np.array([problem.fits(rule, drained=True) for rule in rules]).reshape(len(rules), len(problem.slots))
    kinds, inverse = np.unique(fits, axis=1, return_inverse=True)
    slots = np.bincount(inverse.ravel(), weights=problem.slots, minlength=kinds.shape[1]).astype(np.int64)
    may = {rule: np.flatnonzero(row).tolist() for rule, row in zip(rules, kinds, strict=True)}
    return slots.tolist(), [may[rule] for _, rule in cells]


def _exchanges(
    problem: Problem, share: list[int], cells: Counter[tuple[int, Wishes]]
) -> Iterator[tuple[int, frozenset[int], bool]]:
    """A job that may gain, jobs that may lose for it, and whether a slot is free for it; -1 where shares do not fit."""
    if not share:
        return
    slots, may = _kinds(problem, cells)
    job, cell = 1, 1 + len(share)
    kind = cell + len(cells)
    sink = kind + len(slots)
    arcs = [(0, job + j, n) for j, n in enumerate(share)]
    for c, ((j, _), count) in enumerate(cells.items()):
        arcs += [(job + j, cell + c, count), *((cell + c, kind + k, count) for k in may[c])]
    arcs += [(kind + k, sink, n) for k, n in enumerate(slots)]
    tail, head, room = np.array(arcs, np.int64).reshape(-1, 3).T
    shape = (sink + 1, sink + 1)
    found = scipy.sparse.csgraph.maximum_flow(
        scipy.sparse.coo_array((room.astype(np.int32), (tail, head)), shape=shape).tocsr(), 0, sink
    )
    if found.flow_value != sum(share):
        yield -1, frozenset(), False
        return
    flow = np.asarray(found.flow[tail, head]).ravel()
    inner = tail > 0
    open_ = np.concatenate((inner & (flow < room), inner & (flow > 0) & (head < sink)))
    both = np.concatenate((tail, head))[open_], np.concatenate((head, tail))[open_]
    residual = scipy.sparse.coo_array((np.ones(int(open_.sum()), np.int8), both), shape=shape).tocsr()
    tasks = Counter[int]()
    for (j, _), n in cells.items():
        tasks[j] += n
    known: dict[int, tuple[frozenset[int], bool]] = {}
    ways: dict[tuple[int, ...], tuple[frozenset[int], bool]] = {}
    for j, n in enumerate(share):
        if n == tasks[j]:
            continue
        starts = residual.indices[residual.indptr[job + j] : residual.indptr[job + j + 1]].tolist()
        into = tuple(sorted({k for c in starts for k in may[c - cell]}))
        for k in into if into not in ways else ():
            if k not in known:
                reached = scipy.sparse.csgraph.breadth_first_order(residual, kind + k, return_predecessors=False)
                losers = frozenset(int(v) - job for v in reached if job <= v < cell)
                known[k] = losers, bool((reached == sink).any())
        if into not in ways:
            ways[into] = frozenset().union(*(known[k][0] for k in into)), any(known[k][1] for k in into)
        yield (j, *ways[into])


def fairest(least: list[int], most: list[int], weight: list[int], units: int, share: list[int]) -> str:
    """Why whole shares are not weighted max-min fair; empty when they are.

    The next unit goes where (share + 1) / weight is least, ties to the earlier job: so the last unit of every job above
    its least comes before the next of every job below its most. That determines the shares.
    """
    if any(not a <= x <= b for a, x, b in zip(least, share, most, strict=True)):
        return "a share below the job's least or above its most"
    wanted = max(sum(least), min(units, sum(most)))
    if sum(share) != wanted:
        return f"shares of {sum(share)} in all, {wanted} can be given"
    rows = list(zip(least, share, most, weight, range(len(share)), strict=True))
    last = max(((Fraction(x, w), j) for a, x, _, w, j in rows if x > a), default=None)
    following = min(((Fraction(x + 1, w), j) for _, x, b, w, j in rows if x < b), default=None)
    if last is not None and following is not None and following < last:
        return f"a unit of job number {last[1] + 1} is due to job number {following[1] + 1}"
    return ""
