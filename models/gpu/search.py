"""Which running tasks go on? A search over the order in which tasks of a job may stop.

Under FSP a job stops its shortest-running tasks first. Without that rule a round is one network, whose fair shares and
least transfer are known; so every answer to it is a bound. Where an answer stops a task though its job keeps one that
runs shorter, there are two ways: that task goes on, and with it all that run longer; or it stops, and with it all that
run shorter. Both are rounds of the same kind with fewer open tasks. The best bound is followed first, until its answer
keeps the rule. Ties in elapsed time are free.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.expression import Integers
from flowlex.formulations.outcome import Outcome, Status
from flowlex.models.base import Run
from flowlex.models.gpu.network import AssignmentNetwork
from flowlex.models.gpu.round import Round

__all__ = ["GpuRun", "Leaf", "Node", "search"]

#: Arcs that may be solved in all: rounds are solved until their networks together have so many.
MOST_ARCS = 4_000_000


@dataclass(frozen=True, eq=False)
class Leaf:
    """One solved round: plan, network, (T,) the GPU of each task, and those it was told to stop.

    ``constant`` is what its objective holds beside transfer and stops: waiting tasks, and what kept tasks do not earn.
    """

    plan: Round
    built: AssignmentNetwork
    outcome: Outcome
    gpu: Integers
    stopped: NDArray[np.bool_]
    constant: int

    @property
    def value(self) -> tuple[tuple[int, ...], int]:
        """What is minimised: fairness (negated, sorted counts of running tasks), then transfer and stops."""
        counts = np.bincount(self.plan.view.task_job[self.gpu >= 0], minlength=len(self.plan.view.job_names))
        assert self.outcome.objective is not None
        return tuple(-n for n in np.sort(counts).tolist()), int(self.outcome.objective) - self.constant

    def unruly(self) -> int | None:
        """A stopped task whose job keeps one that runs shorter; the shortest-running such; None when the rule holds."""
        view = self.plan.view
        running = view.task_running_gpu >= 0
        on, off = running & (self.gpu >= 0), running & (self.gpu < 0)
        shortest = np.full(len(view.job_names), np.inf)
        np.minimum.at(shortest, view.task_job[on], view.task_elapsed[on])
        wrong = np.flatnonzero(off & (view.task_elapsed > shortest[view.task_job]))
        return int(wrong[np.argmin(view.task_elapsed[wrong])]) if len(wrong) else None


@dataclass(eq=False)
class Node:
    """A node of the search: a leaf, or the task on which it was split in two."""

    leaf: Leaf
    task: int | None = None
    parts: tuple[Node, ...] = field(default=())


@dataclass(frozen=True)
class GpuRun(Run):
    """The best leaf and the search; ``proven`` when no open part can be better."""

    leaf: Leaf | None = None
    root: Node | None = None
    proven: bool = False


def search(
    solve_round: Callable[[NDArray[np.bool_], NDArray[np.bool_]], Leaf | Outcome], tasks: int
) -> tuple[Leaf | Outcome, Node | None, bool]:
    """Best leaf, search tree, and whether it is proven best; an outcome when the first round has no answer."""
    nobody = np.zeros(tasks, bool)
    first = solve_round(nobody, nobody)
    if isinstance(first, Outcome):
        return first, None, False
    root, best, work = Node(first), None, first.built.network.arc_count
    queue: list[tuple[Any, int, Node]] = [(first.value, 0, root)]
    number = 0
    while queue:
        value, _, node = heapq.heappop(queue)
        if best is not None and best.value <= value:
            return best, root, True
        wrong = node.leaf.unruly()
        if wrong is None:
            best = node.leaf
            continue
        if work > MOST_ARCS:
            return best or _dive(solve_round, node.leaf), root, False
        parts = []
        for kept, stopped in _split(node.leaf, wrong):
            part = solve_round(kept, stopped)
            if isinstance(part, Outcome):
                return best or _dive(solve_round, first), root, False
            work += part.built.network.arc_count
            parts.append(Node(part))
        node.task, node.parts = wrong, tuple(parts)
        for part_node in parts:
            number += 1
            heapq.heappush(queue, (part_node.leaf.value, number, part_node))
    assert best is not None, "the last split leaves no task open"
    return best, root, True


def _split(leaf: Leaf, task: int) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    view = leaf.plan.view
    same = (view.task_running_gpu >= 0) & (view.task_job == view.task_job[task])
    longer, shorter = (
        same & (view.task_elapsed > view.task_elapsed[task]),
        same & (view.task_elapsed < view.task_elapsed[task]),
    )
    longer[task] = shorter[task] = True
    return [(leaf.plan.kept | longer, leaf.stopped), (leaf.plan.kept, leaf.stopped | shorter)]


def _dive(solve_round: Callable[[NDArray[np.bool_], NDArray[np.bool_]], Leaf | Outcome], leaf: Leaf) -> Leaf | Outcome:
    """An answer that keeps the rule: every job keeps as many as in this leaf, its longest-running ones."""
    view = leaf.plan.view
    running = np.flatnonzero(view.task_running_gpu >= 0)
    order = running[np.lexsort((leaf.gpu[running] < 0, -view.task_elapsed[running], view.task_job[running]))]
    job = view.task_job[order]
    count = np.bincount(job[leaf.gpu[order] >= 0], minlength=len(view.job_names))
    rank = np.arange(len(order)) - np.searchsorted(job, job)
    kept = np.zeros(len(view.task_job), bool)
    kept[order[rank < count[job]]] = True
    stopped = (view.task_running_gpu >= 0) & ~kept
    found = solve_round(kept, stopped)
    if isinstance(found, Outcome):
        return found
    return replace(found, outcome=replace(found.outcome, status=Status.FEASIBLE))
