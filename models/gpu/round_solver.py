"""Solve scheduling rounds of an instance: shares, network, engine, and branch and bound over preemptions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.engines.beyond_64_bits import solve_wide
from flowlex.formulations.solver_outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.instances.gpu import GpuInstance
from flowlex.models.gpu.assignment_network import AssignmentNetwork, build_paper
from flowlex.models.gpu.compact_network import build_compact
from flowlex.models.gpu.preemption_search import GpuRun, Leaf, Node, search
from flowlex.models.gpu.round_eligibility import Policy, Round, plan_round
from flowlex.models.gpu.tie_break_weights import Ties
from flowlex.models.gpu.transfer_costs import Penalties, TransferCosts
from flowlex.models.incumbents import offer
from flowlex.models.model_base import ModelError


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
