r"""Which task runs on which GPU, so that jobs get fair shares and the least data crosses the network?

Jobs share a GPU cluster. A task needs one GPU with enough memory and reads its data shards from the nearest
replica. The answer is a minimum-cost flow: a unit from job to task to GPU is a task that runs, a unit through the
job's *unscheduled* vertex u_j is a task that waits, and bounds on that vertex are the fair share.

Sets: jobs J, tasks T (T_j of job j), free GPUs G. Parameters: N_j candidates of job j, c_tg transfer seconds of
task t on g's node, A^min_j and A^max_j floor and ceiling of the max-min fair share less what j keeps running,
alpha the price of waiting. Variables: x_tg (t runs on g), w_j (tasks of j that wait).

Source: Tang, Zhu, Mao, Fu, Li, Journal of Software 33(12), 2022 (flow network; fair share; policies). Ours: the
odd GPUs of a fractional share go where they cost least; the compact network; ties stop the fewest tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.instances.gpu import GpuInstance
from flowlex.models.base import Dual, Equation, Model, Symbol
from flowlex.models.gpu.costs import Penalties, TransferCosts, exact
from flowlex.models.gpu.network import AssignmentNetwork, Earnings, build_compact, build_paper
from flowlex.models.gpu.placement import Placement
from flowlex.models.gpu.proof import proof_of
from flowlex.models.gpu.round import Policy, Round, plan_round
from flowlex.models.gpu.search import GpuRun, Leaf, search
from flowlex.models.gpu.solution import GpuSolution

__all__ = ["GpuAssignment", "Penalties", "Policy"]


#: Vertices of the networks beside jobs and tasks; flow is conserved at each.
_VERTICES = {
    "S": "all running tasks come from the source",
    "gpu": "a GPU of the paper's network",
    "cluster": "free GPUs of one memory class and above",
    "rack": "the same within a rack",
    "node": "the same within a node",
    "own_gpu": "a GPU that a running task may keep",
    "unscheduled": "waiting tasks of a job",
    "pool": "jobs stopped together share the odd GPUs",
    "E": "every task ends at the sink",
}


def _vertex(name: str, says: str) -> Equation:
    def exists(model: GpuAssignment) -> bool:
        return name in model.assignment.network.node_blocks

    flow = r"\sum_{a \in \delta^+(v)} f_a - \sum_{a \in \delta^-(v)} f_a = b_v"
    return Equation(name, flow, says, when="where the network has this vertex", exists=exists)


@dataclass(frozen=True, eq=False, repr=False)
class GpuAssignment(Model[GpuInstance, GpuSolution, GpuRun]):
    """One scheduling round of a GPU cluster (see the module).

    Parameters
    ----------
    instance
        Cluster and jobs.
    policy
        Fairness and preemption.
    network
        ``compact`` or ``paper``: the same optimum, a fraction of the arcs or the published graph.
    penalties
        Weights a1, a2, a3 of the transfer cost.
    """

    policy: Policy = Policy.FSP
    network: Literal["compact", "paper"] = "compact"
    penalties: Penalties = field(default_factory=Penalties)

    name: ClassVar[str] = "gpu-assignment"
    title: ClassVar[str] = "GPU assignment"
    comparison: ClassVar[str] = "flowlex.models.gpu.baselines:compare"
    sets: ClassVar[tuple[Symbol, ...]] = (
        Symbol("J", "jobs"),
        Symbol("T, T_j", "tasks that may run, tasks of job j"),
        Symbol("G", "free GPUs"),
    )
    parameters: ClassVar[tuple[Symbol, ...]] = (
        Symbol("c_{tg}", "seconds to bring t's data to g's node, each shard from its nearest replica"),
        Symbol("N_j", "tasks of job j that may run"),
        Symbol(r"A^{\min}_j, A^{\max}_j", "floor and ceiling of the fair share, less what keeps running"),
        Symbol(r"\alpha", "price of a waiting task"),
    )
    unknowns: ClassVar[tuple[Symbol, ...]] = (
        Symbol("x_{tg}", "1 when task t runs on GPU g; exists only when t fits g"),
        Symbol("w_j", "tasks of job j that wait"),
    )
    objective_latex: ClassVar[str] = r"\sum_{t \in T} \sum_{g \in G} c_{tg}\, x_{tg} + \alpha \sum_{j \in J} w_j"
    equations: ClassVar[tuple[Equation, ...]] = (
        Equation(
            "task",
            r"\sum_{g \in G} x_{tg} \le 1 \quad \forall t \in T",
            "a task runs at most once",
            "value of the task's claim",
            "s",
        ),
        Equation(
            "gpu_out",
            r"\sum_{t \in T} x_{tg} \le 1 \quad \forall g \in G",
            "a GPU runs at most one task",
            "price of a GPU at a fixed total: what the GPUs there cost others while as many tasks run; not what one "
            "more GPU saves, which `value_of` says",
            "s",
        ),
        Equation(
            "job",
            r"\sum_{t \in T_j} \sum_{g \in G} x_{tg} + w_j = N_j \quad \forall j \in J",
            "a task runs or waits",
            "what one more task of the job costs",
            "s per task",
        ),
        Equation(
            "share",
            r"N_j - A^{\max}_j \le w_j \le N_j - A^{\min}_j \quad \forall j \in J",
            "a job runs its fair share",
            "price of the share: what one GPU more for this job costs (negative: saves)",
            "s per GPU",
        ),
        *(_vertex(name, says) for name, says in _VERTICES.items()),
    )

    @cached_property
    def costs(self) -> TransferCosts:
        """Transfer costs in exact integers."""
        return TransferCosts.of(self.instance, self.penalties)

    @cached_property
    def round(self) -> Round:
        """Who keeps running, who may start, and the shares."""
        return plan_round(self.instance.arrays, self.policy)

    @cached_property
    def earnings(self) -> Earnings:
        """Weights of transfer, stops and elapsed time."""
        return Earnings.of(self.instance.arrays, preemptive=self.policy is Policy.FSP)

    @cached_property
    def assignment(self) -> AssignmentNetwork:
        """The flow network and the way back from its flow."""
        return self._build(self.round)

    def _build(self, plan: Round) -> AssignmentNetwork:
        build = build_compact if self.network == "compact" else build_paper
        return build(plan, self.costs, exact(self.penalties.waiting), self.earnings)

    def _formulate(self) -> FlowNetwork:
        return self.assignment.network

    def _run(self, engine: EngineName, options: SolveOptions) -> GpuRun:
        """Solve the round; under FSP search over who may stop, as long as a job stops the wrong ones."""
        view = self.instance.arrays

        def solve_round(kept: Any, stopped: Any) -> Leaf | Outcome:
            first = not kept.any() and not stopped.any()
            plan = self.round if first else plan_round(view, self.policy, kept, stopped)
            built = self.assignment if first else self._build(plan)
            outcome = solve(built.network, engine, options)
            if outcome.values is None or outcome.status is not Status.OPTIMAL:
                return outcome
            gpu = np.full(len(view.task_job), -1)
            gpu[plan.kept] = view.task_running_gpu[plan.kept]
            gpu[plan.candidates] = built.gpus_of_flow(outcome.values)
            waiting = 0 if plan.shares is None else len(plan.candidates) - plan.total
            constant = waiting * built.waiting_cost * self.earnings.factor + int(self.earnings.keep[plan.kept].sum())
            return Leaf(plan, built, outcome, gpu, stopped, constant)

        best, root, proven = search(solve_round, len(view.task_job))
        if isinstance(best, Outcome):
            return GpuRun(best)
        return GpuRun(best.outcome, best, root, proven)

    def _interpret(self, run: GpuRun) -> GpuSolution:
        leaf, view = run.leaf, self.instance.arrays
        if leaf is None:
            nothing = np.full(len(view.task_job), -1)
            place = Placement(view, self.costs, nothing)
            facts = {**self._facts(run), "objective": None, "bound": None, "gap": None}
            return GpuSolution(**facts, placement=place, round=self.round)
        placement = Placement(view, self.costs, leaf.gpu)
        waiting = 0 if leaf.plan.shares is None else int(np.count_nonzero(leaf.gpu < 0))
        objective = placement.exact_transfer_s + waiting * exact(self.penalties.waiting) * self.costs.dearest
        proven = run.proven and not self.costs.rounded_s
        stated = {
            "status": Status.OPTIMAL if proven else Status.FEASIBLE,
            "objective": plain(objective),
            "bound": plain(objective) if proven else None,
            "gap": 0.0 if proven else None,
        }
        return GpuSolution(
            **{**self._facts(run), **stated},
            duals=self._duals(leaf),
            placement=placement,
            round=leaf.plan,
            proof=proof_of(run, self.costs, self.earnings) if proven else {},
        )

    def _duals(self, leaf: Leaf) -> dict[str, Dual]:
        """Duals in seconds, by the names of the equation table; prices of capacities are not negative."""
        outcome, network = leaf.outcome, leaf.built.network
        if outcome.duals is None or outcome.reduced_costs is None:
            return {}
        second = float(self.costs.unit_s) / self.earnings.factor
        nodes, arcs = network.split_nodes(outcome.duals), network.split_arcs(outcome.reduced_costs)
        blocks = {**network.arc_blocks, **network.node_blocks}
        duals = {"job": nodes["job"] * second, "task": nodes["task"] * second}
        duals["gpu_out"] = np.maximum(-arcs["gpu_out"], 0) * second
        if "share" in arcs:
            duals["share"] = -arcs["share"] * second
        return {name: Dual.of_block(blocks[name], values) for name, values in duals.items()}


def plain(value: Fraction) -> float | int:
    """A whole number as it is, another as the nearest float."""
    return int(value) if value.denominator == 1 else float(value)
