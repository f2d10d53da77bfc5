"""Branch and bound over the running tasks that FSP may stop.

Under FSP a job above its share stops its shortest-running tasks first. Without this order a round is a single flow
problem, whose optimum is a lower bound; if all GPUs have the same memory, it satisfies the order. Otherwise it may stop
a task while the job keeps a shorter-running one, or stop too many tasks. Then the search branches: keep that task and
all longer-running ones of its job, or stop that task and all shorter-running ones. Both children are rounds with fewer
open tasks. The search is best first. It ends when the best leaf satisfies the order, or when a solution that keeps the
longest-running tasks, as many per job, is as good. Tasks of equal elapsed time may stop in any order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import Outcome
from flowlex.models.gpu.assignment_network import AssignmentNetwork
from flowlex.models.gpu.round_eligibility import Round
from flowlex.models.gpu.tie_break_weights import Ties
from flowlex.models.model_base import Run

#: Solve a round with some tasks kept and some stopped; None if it is infeasible.
SolveRound: TypeAlias = Callable[[NDArray[np.bool_], NDArray[np.bool_]], "Leaf | Outcome | None"]
#: Effort limit of the search: total number of arcs of all networks solved.
MOST_ARCS = 4_000_000


@dataclass(frozen=True, eq=False)
class Leaf:
    """A solved round: ``gpu``, (T,), is the GPU of each task; ``stopped``, (T,), marks tasks stopped by branching.

    ``value`` is the objective: fairness (negated, sorted numbers of running tasks by job; empty if shares are given),
    then transfer, waiting and tie-breaking without elapsed times.
    """

    plan: Round
    built: AssignmentNetwork
    outcome: Outcome
    gpu: Integers
    stopped: NDArray[np.bool_]
    value: tuple[tuple[int, ...], int]

    def unruly(self) -> int | None:
        """Return a stopped task that violates the preemption rule of its job; None if all jobs satisfy it."""
        view = self.plan.view
        running = view.task_running_gpu >= 0
        on, off = running & (self.gpu >= 0), running & (self.gpu < 0)
        shortest = np.full(len(view.job_names), np.inf)
        np.minimum.at(shortest, view.task_job[on], view.task_elapsed[on])
        many = np.bincount(view.task_job[off], minlength=len(shortest)) > self.plan.stoppable
        wrong = np.flatnonzero(
            off & ((view.task_elapsed > shortest[view.task_job]) | (many[view.task_job] & ~self.stopped))
        )
        return int(wrong[np.argmin(view.task_elapsed[wrong])]) if len(wrong) else None


@dataclass(eq=False)
class Node:
    """A node of the search tree: a leaf (None if infeasible), or the branching task and two children."""

    leaf: Leaf | None
    task: int | None = None
    parts: tuple[Node, ...] = field(default=())

    def leaves(self) -> Iterator[Leaf]:
        """The leaves below."""
        if self.task is None:
            yield from () if self.leaf is None else (self.leaf,)
        for part in self.parts:
            yield from part.leaves()


@dataclass(frozen=True)
class GpuRun(Run):
    """The best leaf and the search tree; ``proven`` if the leaf is optimal."""

    leaf: Leaf | None = None
    root: Node | None = None
    proven: bool = False

    def least_cost(self, ties: Ties) -> int | None:
        """Lower bound on the cost among solutions as fair as the best leaf; None if fairer ones may exist."""
        if self.leaf is None or self.root is None:
            return None
        values = [leaf.value for leaf in self.root.leaves()]
        fairness = self.leaf.value[0]
        if min(values)[0] < fairness:
            return None
        least = min(cost for fair, cost in [*values, self.leaf.value] if fair == fairness)
        return -(-least // (ties.factor // ties.base))


def search(
    solve_round: SolveRound, tasks: int, seen: Callable[[Leaf, Node], None]
) -> tuple[Leaf | Outcome, Node | None, bool]:
    """Return the best leaf, the search tree and whether the leaf is optimal; an outcome if the root has no solution.

    ``seen`` is called with each new incumbent and the search tree so far.
    """
    nobody = np.zeros(tasks, bool)
    first = solve_round(nobody, nobody)
    assert first is not None, "the first round keeps and stops nobody by force"
    if isinstance(first, Outcome):
        return first, None, False
    root, work = Node(first), first.built.shape.arc_count
    queue: list[tuple[Any, int, Node, Leaf]] = [(first.value, 0, root, first)]  # ties: latest first
    number, best = 0, None
    while True:
        _, _, node, leaf = heapq.heappop(queue)
        wrong = leaf.unruly()
        if wrong is None:
            return leaf, root, True
        near = _dive(solve_round, leaf)
        if isinstance(near, Leaf) and near.value <= leaf.value:
            return near, root, True
        if isinstance(near, Leaf) and (best is None or near.value < best.value):
            best = near
            seen(best, root)
        if work > MOST_ARCS or isinstance(near, Outcome):
            return best or near or leaf.outcome, root, False
        work += leaf.built.shape.arc_count
        parts = [solve_round(kept, stopped) for kept, stopped in _split(leaf, wrong)]
        if any(isinstance(part, Outcome) for part in parts):
            return best or near or leaf.outcome, root, False
        node.task, node.parts = wrong, tuple(Node(part) for part in parts if not isinstance(part, Outcome))
        for part_node in node.parts:
            if part_node.leaf is not None:
                work, number = work + part_node.leaf.built.shape.arc_count, number - 1
                heapq.heappush(queue, (part_node.leaf.value, number, part_node, part_node.leaf))


def _split(leaf: Leaf, task: int) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    view = leaf.plan.view
    same = (view.task_running_gpu >= 0) & (view.task_job == view.task_job[task])
    longer, shorter = (
        same & (view.task_elapsed > view.task_elapsed[task]),
        same & (view.task_elapsed < view.task_elapsed[task]),
    )
    longer[task] = shorter[task] = True
    return [(leaf.plan.kept | longer, leaf.stopped), (leaf.plan.kept, leaf.stopped | shorter)]


def _dive(solve_round: SolveRound, leaf: Leaf) -> Leaf | Outcome | None:
    """Heuristic: keep as many tasks per job as the leaf does (or as required), the longest-running ones."""
    view = leaf.plan.view
    running = np.flatnonzero(view.task_running_gpu >= 0)
    order = running[np.lexsort((leaf.gpu[running] < 0, -view.task_elapsed[running], view.task_job[running]))]
    job = view.task_job[order]
    count = np.bincount(job[leaf.gpu[order] >= 0], minlength=len(view.job_names))
    count = np.maximum(count, np.bincount(job, minlength=len(count)) - leaf.plan.stoppable)
    rank = np.arange(len(order)) - np.searchsorted(job, job)
    kept = np.zeros(len(view.task_job), bool)
    kept[order[rank < count[job]]] = True
    stopped = (view.task_running_gpu >= 0) & ~kept
    return solve_round(kept, stopped)
