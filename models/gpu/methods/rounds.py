"""Solve scheduling rounds: shares, network, engine, and branch and bound over the running tasks that FSP may stop.

Measured (benchmark *gpu_assignment*): placements of 2000 GPUs, 100 jobs and 4000 tasks in 0.05 s, of the paper's
testbed in 0.003 s.

Transfer and waiting costs come first, then the fewest stops, then the most starts: `Ties` weighs them in one sum.

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
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.engines.beyond_64_bits import solve_wide
from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.instances.gpu import GpuArrays, GpuInstance
from flowlex.models.gpu.methods.assignment_network import AssignmentNetwork, build_paper
from flowlex.models.gpu.methods.compact_network import build_compact
from flowlex.models.gpu.round_eligibility import Policy, Round, plan_round
from flowlex.models.gpu.transfer_costs import Penalties, TransferCosts
from flowlex.models.incumbents import offer
from flowlex.models.model_base import ModelError, Run

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


@dataclass(frozen=True, eq=False)
class Ties:
    """Rewards for running tasks that are kept and waiting tasks that start; in total less than a unit of transfer."""

    factor: int  # multiplier of transfer costs; exceeds the sum of all rewards
    base: int  # reward for a started task if the number of starts is open; at least ``base * steps`` for a kept task
    # a kept task is weighted like this many starts: number of waiting tasks + 1; 1 if the number of starts is fixed
    steps: int
    # (T,) reward for each kept task: increases with its elapsed time, which saves branching on preemptions; the sum of
    # these increases is less than ``base``
    keep: NDArray[Any]
    start: int  # reward for each waiting task that starts

    @classmethod
    def of(cls, view: GpuArrays, *, preemptive: bool, priced: bool) -> Ties:
        """Compute the weights of an instance; the factor is 1 if transfer is the only objective."""
        running = np.flatnonzero(view.task_running_gpu >= 0) if preemptive else np.zeros(0, np.int64)
        waiting = int(np.count_nonzero(view.task_running_gpu < 0)) if priced else 0
        rank = _ranks(view, running)
        base = int(rank.sum()) + 1
        keep = np.zeros(len(view.task_job), dtype=object)
        keep[running] = rank.astype(object) + base * (waiting + 1)
        start = base if priced else 0
        factor = int(keep.sum()) + start * waiting + 1
        if factor < 2**62:
            keep = keep.astype(np.int64)
        return cls(factor, base, waiting + 1, keep, start)


def _ranks(view: GpuArrays, running: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rank the running tasks of each job by elapsed time: 0 for the shortest, equal times have equal ranks."""
    rank = np.zeros(len(running), np.int64)
    if len(running):
        order = np.lexsort((view.task_elapsed[running], view.task_job[running]))
        job, elapsed = view.task_job[running[order]], view.task_elapsed[running[order]]
        new = np.append(True, job[1:] != job[:-1])
        step = np.cumsum(np.append(True, new[1:] | (np.diff(elapsed) > 0)))
        rank[order] = step - np.maximum.accumulate(np.where(new, step, 0))
    return rank


@dataclass(frozen=True, eq=False)
class Rounds:
    """An instance with the options of `GpuAssignment`; solves its rounds."""

    instance: GpuInstance
    policy: Policy
    form: Literal["compact", "paper"]
    penalties: Penalties
    priced: bool
    stop_price: float

    @cached_property
    def costs(self) -> TransferCosts:
        """Transfer costs in exact integers."""
        return TransferCosts.of(self.instance, self.penalties, self.stop_price)

    @cached_property
    def round(self) -> Round:
        """The round of the unchanged instance."""
        return plan_round(self.instance.arrays, self.policy, priced=self.priced)

    @cached_property
    def ties(self) -> Ties:
        """Tie-breaking weights of transfer, stops, starts and elapsed time."""
        return Ties.of(self.instance.arrays, preemptive=self.policy.preemptive, priced=self.priced)

    @cached_property
    def assignment(self) -> AssignmentNetwork:
        """The network of the round."""
        return self.network_of(self.round)

    def network_of(self, plan: Round) -> AssignmentNetwork:
        """Build the network of a round over the same tasks."""
        return (build_compact if self.form == "compact" else build_paper)(plan, self.costs)

    @cached_property
    def best(self) -> Leaf:
        """The optimum of the round, by the engine ``network``."""
        leaf = self.best_of(self.round)
        assert leaf is not None, "some round is always possible"
        return leaf

    def best_of(self, plan: Round) -> Leaf | None:
        """Return the optimum of another round over the same tasks; None if it is infeasible."""
        run = self.search(plan, "network", SolveOptions())
        if run.leaf is not None and not run.proven:
            raise ModelError("the search over preemptions ended without proof, so the value of a change is unknown")
        return run.leaf

    def search(self, root: Round, engine: EngineName, options: SolveOptions) -> GpuRun:
        """Return the best solution of a round and the search tree that proves it."""

        def solve_round(kept: Any, stopped: Any) -> Leaf | Outcome | None:
            if (kept & stopped).any():
                return None
            first, plan = not kept.any() and not stopped.any(), root
            if not first:
                plan = plan_round(root.view, self.policy, kept, stopped, priced=root.priced)
                if root.given and root.shares is not None:
                    total = root.shares.total - int(np.count_nonzero(plan.kept))
                    plan = replace(plan, shares=root.shares, given=True, total=total)
            if not plan.is_possible:
                return None if not first else Outcome(Status.INFEASIBLE, engine)
            built = self.assignment if plan is self.round else self.network_of(plan)
            outcome = solve_wide(built.shape, self.weighted(built, plan), engine, options)
            if not first and root.given and outcome.status is Status.INFEASIBLE:
                return None
            if outcome.values is None or outcome.status is not Status.OPTIMAL:
                return outcome
            return self.leaf_of(plan, built, outcome, stopped)

        def seen(leaf: Leaf, tree: Node) -> None:
            offer(options, lambda: GpuRun(leaf.outcome, leaf, tree))

        best, node, proven = search(solve_round, len(root.view.task_job), seen)
        if isinstance(best, Outcome):
            return GpuRun(best)
        return GpuRun(best.outcome, best, node, proven)

    def leaf_of(self, plan: Round, built: AssignmentNetwork, outcome: Outcome, stopped: NDArray[np.bool_]) -> Leaf:
        """Convert a flow to placements with their objective value in the search."""
        view, ties = plan.view, self.ties
        assert outcome.values is not None and outcome.objective is not None
        gpu = np.full(len(view.task_job), -1)
        gpu[plan.kept] = view.task_running_gpu[plan.kept]
        gpu[plan.candidates] = built.gpus_of_flow(outcome.values)
        cost = int(outcome.objective) + ties.factor * built.constant - int(ties.keep[plan.kept].sum())
        counts = np.bincount(view.task_job[gpu >= 0], minlength=len(view.job_names))
        fairness = () if plan.given else tuple(-n for n in np.sort(counts).tolist())
        # The factor is a multiple of the base, so rounding up removes exactly the rewards for elapsed times.
        return Leaf(plan, built, outcome, gpu, stopped, (fairness, -(-cost // ties.base)))

    def weighted(self, built: AssignmentNetwork, plan: Round) -> NDArray[Any]:
        """Return the arc costs, (A,), minus the rewards of kept and started tasks (see `Ties`)."""
        ties, cost = self.ties, built.cost
        if ties.factor == 1:
            return cost
        wide = (int(np.abs(cost).max()) + 1) * ties.factor >= 2**62
        cost = cost.astype(object) * ties.factor if wide else cost * ties.factor
        cost[built.keep] -= ties.keep[plan.optional]
        cost[built.start] -= ties.start
        return cost
