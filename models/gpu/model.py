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
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.outcome import Outcome
from flowlex.instances.gpu import GpuInstance
from flowlex.models.base import Dual, Equation, Model, Run, Symbol
from flowlex.models.gpu.costs import Penalties, TransferCosts
from flowlex.models.gpu.network import AssignmentNetwork, build_compact, build_paper
from flowlex.models.gpu.placement import Placement
from flowlex.models.gpu.round import Policy, Round, plan_round
from flowlex.models.gpu.solution import GpuSolution
from flowlex.validation.certificates import Check
from flowlex.validation.certificates.gpu import check_placements

__all__ = ["GpuAssignment", "Penalties", "Policy"]


@dataclass(frozen=True, eq=False, repr=False)
class GpuAssignment(Model[GpuInstance, GpuSolution]):
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
            "price of a GPU while the number of running tasks stays as it is",
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
    def assignment(self) -> AssignmentNetwork:
        """The flow network and the way back from its flow."""
        build = build_compact if self.network == "compact" else build_paper
        return build(self.round, self.costs, self.penalties.waiting)

    def _formulate(self) -> FlowNetwork:
        return self.assignment.network

    def _interpret(self, run: Run) -> GpuSolution:
        plan, built, outcome = self.round, self.assignment, run.outcome
        tasks = len(plan.view.task_job)
        gpu = np.full(tasks, -1)
        objective = bound = None
        transfer = 0
        duals: dict[str, Dual] = {}
        if outcome.values is not None and outcome.objective is not None:
            gpu[plan.kept] = plan.view.task_running_gpu[plan.kept]
            gpu[plan.candidates] = built.gpus_of_flow(outcome.values)
            going_on = int(np.count_nonzero(gpu[plan.optional] >= 0))
            units = (int(outcome.objective) + going_on) // built.factor
            waiting = 0 if plan.shares is None else len(plan.candidates) - plan.total
            transfer = units - waiting * built.waiting_cost
            objective = float(units * self.costs.unit_s)
            bound = objective if outcome.bound is not None else None
            duals = self._duals(outcome)
        return GpuSolution(
            **{**self._facts(run), "objective": objective, "bound": bound},
            duals=duals,
            placement=Placement(plan.view, self.costs, gpu),
            round=plan,
            transfer_units=transfer,
        )

    def _duals(self, outcome: Outcome) -> dict[str, Dual]:
        """Duals in seconds, by the names of the equation table; prices of capacities are not negative."""
        if outcome.duals is None or outcome.reduced_costs is None:
            return {}
        network, second = self.assignment.network, float(self.costs.unit_s) / self.assignment.factor
        nodes, arcs = network.split_nodes(outcome.duals), network.split_arcs(outcome.reduced_costs)
        blocks = {**network.arc_blocks, **network.node_blocks}
        duals = {"job": nodes["job"] * second, "task": nodes["task"] * second}
        duals["gpu_out"] = np.maximum(-arcs["gpu_out"], 0) * second
        if "share" in arcs:
            duals["share"] = -arcs["share"] * second
        return {name: Dual.of_block(blocks[name], values) for name, values in duals.items()}

    def _verify(self, solution: GpuSolution) -> tuple[Check, ...]:
        return check_placements(
            self.instance,
            solution.gpu.tolist(),
            policy=str(self.policy),
            weights=(self.penalties.rack, self.penalties.between_racks),
            transfer_s=float(solution.transfer_units * self.costs.unit_s),
            rounded_s=self.costs.rounded_s,
        )
