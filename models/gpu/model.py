r"""Which task runs on which GPU, so that jobs get fair shares and the least data crosses the network?

Jobs share a GPU cluster. A task needs one GPU with enough memory and reads its data shards from the nearest
replica. The problem is stated once, in `flowlex.models.gpu.statement`; ``model.problem`` shows it, for any options.

It is solved as a minimum-cost flow: a unit from job to task to GPU is a running task, a unit through the job's
*unscheduled* vertex u_j is a waiting task, and bounds on that vertex enforce the fair share.

FSP preempts only jobs above their share, shortest-running tasks first, never the longest. Such a job starts no task.

Source: Tang, Zhu, Mao, Fu, Li, Journal of Software 33(12), 2022 (flow network; fair share; policies). Ours: remainder
GPUs of fractional shares are assigned at least cost; the compact network; among ties, the fewest tasks stop. The
paper's own problem is ``network="published"``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.engines import solve
from flowlex.formulations.engines.beyond_64_bits import fits, solve_wide
from flowlex.formulations.engines.exact_integers import exact_potentials
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.lexicographic.lexicographic_network import optimal_face
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import EngineName, SolveOptions, Status
from flowlex.instances.exact_rationals import rational
from flowlex.instances.gpu import GpuInstance
from flowlex.models.gpu.methods.assignment_network import AssignmentNetwork
from flowlex.models.gpu.methods.round_proof import Prover
from flowlex.models.gpu.methods.rounds import GpuRun, Leaf, Rounds
from flowlex.models.gpu.methods.value_of_one_more_gpu import Value, value_of
from flowlex.models.gpu.placement_metrics import Placement
from flowlex.models.gpu.round_eligibility import Policy, Round, plan_published
from flowlex.models.gpu.solution import GpuSolution
from flowlex.models.gpu.statement import LARGEST, NEEDED, ROWS, SMALL, pair_count, state, state_published
from flowlex.models.gpu.transfer_costs import Penalties, TransferCosts
from flowlex.models.html_report import html_table
from flowlex.models.model_base import Dual, Model, ModelError, Solution
from flowlex.models.solution import Stated, plain

if TYPE_CHECKING:
    from flowlex.models.gpu.methods.large_round import LargeRound
    from flowlex.models.labelled_variables import LabelledVariables
    from flowlex.models.problem import Problem

__all__ = ["GpuAssignment", "Penalties", "Policy"]


METHOD = "classes of tasks and GPUs that no change tells apart"
#: Vertices of the networks, each with a flow conservation constraint.
_VERTICES = {"S", "job", "task", "gpu", "cluster", "rack", "node", "own_gpu", "unscheduled", "pool", "E"}


@dataclass(frozen=True, eq=False, repr=False)
class GpuAssignment(Model[GpuInstance, GpuSolution, GpuRun]):
    """One scheduling round of a GPU cluster (see the module).

    Parameters
    ----------
    instance
        Cluster and jobs.
    policy
        Fairness and preemption, see `flowlex.instances.gpu_policy`.
    network
        ``compact``, ``paper``: our problem, by a small network, or by one over the paper's vertices.
        ``published``: the paper's own problem, its network as printed (see
        `flowlex.models.gpu.statement.state_published`): no shares beyond A*, and a price alpha on both arcs of a
        waiting task, so that expensive tasks are delayed.
    penalties
        Weights a1, a2, a3 of the transfer cost.
    stop_price
        beta: cost of one second of lost work when a task is stopped (policy FSP), in seconds of transfer. With 0, the
        paper's rule, stops are free: fair shares determine how many tasks stop, transfer costs which jobs lose them.
    waiting
        ``least``: run as many tasks as possible. ``priced``: a task may also wait, at cost alpha, if that is cheaper
        than running it; a job then runs at most its fair share. (FSU supports ``least`` only.)
    stage
        The stage whose program `formulation`, `compile` and ``flowlex export`` return. They minimise in this order (see
        ``solution.stages``): ``transfer``, then the number of ``stops``, then (``priced``) the number of ``waiting``
        tasks. `solve` always runs every stage.
    """

    policy: Policy = Policy.FSP
    network: Literal["compact", "paper", "published"] = "compact"
    penalties: Penalties = field(default_factory=Penalties)
    stop_price: float = 0.0
    waiting: Literal["least", "priced"] = "least"
    stage: str = "transfer"

    name: ClassVar[str] = "gpu-assignment"
    title: ClassVar[str] = "GPU assignment"
    comparison: ClassVar[str] = "flowlex.models.gpu.baselines:compare"
    needed: ClassVar[Mapping[str, str]] = NEEDED
    examples: ClassVar[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (
        *((f"{policy}: {policy.says}", "gpu-random", {"policy": policy}) for policy in Policy),
        ("Waiting at a price", "gpu-random", {"waiting": "priced", "stop_price": 0.5}),
        ("The network as published", "gpu-figure4", {"network": "published"}),
    )
    main_stage: ClassVar[str] = "transfer"

    def _check(self) -> None:
        if not (math.isfinite(self.stop_price) and self.stop_price >= 0):
            raise ModelError(f"stop_price must be a finite number of at least 0, got {self.stop_price}")
        if self.stop_price and not self.policy.preemptive:
            able = Policy.names(lambda policy: policy.preemptive)
            raise ModelError(f"policy {self.policy} stops no task; stop_price goes with {able}")
        if self.waiting == "priced" and not self.policy.fair:
            able = Policy.names(lambda policy: policy.fair)
            raise ModelError(f"policy {self.policy} runs as many tasks as can; waiting='priced' goes with {able}")
        if self.network == "published" and (self.stop_price or self.waiting == "priced"):
            raise ModelError(
                "network='published' prices every waiting task and no stop; leave waiting and stop_price out"
            )
        if self.network == "published" and not self.policy.network:
            able = Policy.names(lambda policy: policy.network)
            raise ModelError(f"the published network does not know policy {self.policy}; it goes with {able}")
        if self.stage not in self.stages:
            names = ", ".join(self.stages)
            raise ModelError(f"there is no stage {self.stage!r}; the stages are: {names}")

    @property
    def _by_network(self) -> bool:
        """Whether networks and classes of equal pairs solve the round; others are solved as they are stated."""
        return self.network != "published" and self.policy.network

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the objectives in lexicographic order, after fair shares."""
        stops = self.policy.preemptive and bool((self.instance.arrays.task_running_gpu >= 0).any())
        if not self._by_network:
            return ("transfer",)
        return ("transfer", *(["stops"] if stops else []), *(["waiting"] if self.waiting == "priced" else []))

    @cached_property
    def rounds(self) -> Rounds:
        """Solver of scheduling rounds of this instance."""
        priced, form = self.waiting == "priced", "paper" if self.network == "paper" else "compact"
        return Rounds(self.instance, self.policy, form, self.penalties, priced, self.stop_price)  # type: ignore[arg-type]

    @property
    def costs(self) -> TransferCosts:
        """Transfer costs in exact integers."""
        return self.rounds.costs

    @cached_property
    def round(self) -> Round:
        """Tasks that keep running, tasks that may start, and fair shares."""
        if self.network == "published":
            return plan_published(self.instance.arrays, self.policy)
        return self.rounds.round

    @property
    def assignment(self) -> AssignmentNetwork:
        """The flow network of the round, and the conversion of its flow to placements."""
        return self.rounds.assignment

    def value_of(self, what: Literal["gpu", "share", "task"], name: str, *, memory_gb: float | None = None) -> Value:
        """Compute the exact value of a change by solving the changed round.

        Parameters
        ----------
        what, name
            ``gpu``: add a GPU to a node. ``share``: a job runs one task more and the others one fewer in total, each at
            least its fair share minus one (``waiting="priced"``: it may run one more). ``task``: remove a task.
        memory_gb
            Memory of the added GPU. Default: that of the largest GPU of the node, or of the cluster if it has none.

        Raises
        ------
        ModelError
            The node, job or task does not exist, or the changed round is infeasible.

        Examples
        --------
        >>> from flowlex import generate, GpuAssignment
        >>> model = GpuAssignment(generate("gpu-figure1"))
        >>> print(model.value_of("gpu", "node1"))
        objective -24 s, transfer +8 s, running +1
        """
        if not self._by_network:
            raise ModelError(f"{self._stated_only} has no values of changes; solve the changed instance")
        return value_of(self.rounds, what, name, memory_gb)

    @classmethod
    def declared(cls) -> frozenset[str]:
        """The names that rows of statements and networks may have."""
        return ROWS | _VERTICES

    def state(self, p: Problem) -> None:
        """State the round: our problem, or the published network.

        Parameters
        ----------
        p
            The problem to state.
        """
        self._state_over(p, None)

    def _state_over(self, p: Problem, pairs: tuple[Integers, Integers] | None) -> None:
        (state_published if self.network == "published" else state)(p, self.round, self.costs, pairs)

    @cached_property
    def _formulas(self) -> Problem:
        """The problem; of a large round over one GPU for each task, which has the same formulas."""
        if pair_count(self.round) <= SMALL:
            return self.problem
        from flowlex.models.problem import Problem

        view, p = self.instance.arrays, Problem(self.instance.name)
        tasks = np.flatnonzero(self.round.may_start | (view.task_running_gpu >= 0))
        own = view.task_running_gpu[tasks]
        self._state_over(p, (tasks, np.where(own >= 0, own, int(view.gpu_memory.argmax()))))
        return p

    def to_latex(self) -> str:
        """The model as LaTeX, derived from its statement."""
        return self._formulas.to_latex()

    def _repr_html_(self) -> str:
        sizes = html_table(f"{self.title}: {self.instance.name}", self.sizes())
        stated = self._formulas
        return sizes + (stated._repr_html_() if stated is self.problem else f"<div>$$ {stated.to_latex()} $$</div>")

    @property
    def as_stated(self) -> bool:
        """Whether the statement itself is solved: no network does, the model is changed, or a subclass restates it."""
        return not self._by_network or super().as_stated

    @property
    def _stated_only(self) -> str:
        """What no network solves."""
        return "the published network" if self.network == "published" else f"policy {self.policy}"

    @cached_property
    def classes(self) -> LargeRound:
        """The changed round over classes of tasks and GPUs; see `unrefined`."""
        from flowlex.models.gpu.methods.large_round import LargeRound

        return LargeRound(self.round, self.costs, self.all_changes)

    @property
    def unrefined(self) -> str:
        """Reason to solve the changed round by pairs of tasks and GPUs; empty if it is solved by classes."""
        if not self._by_network:
            return self._stated_only
        if pair_count(self.round) <= SMALL or self._restated:
            return f"{pair_count(self.round)} pairs of tasks and GPUs"
        if not self.round.may_start.any():
            return "no waiting task may start"
        if not self.costs.nearer_is_cheaper:
            return "data that are nearer cost more"
        from flowlex.models.gpu.methods.large_round import unsupported

        return unsupported(self.all_changes)

    @property
    def method(self) -> str:
        """The solution method and the reason for it."""
        if not self.as_stated or self._restated:
            return super().method
        if not self._by_network:
            return f"integer or linear program, stage by stage: {self._stated_only}"
        why = self.unrefined
        return f"{super().method}, {why}" if why else f"{METHOD}: {pair_count(self.round)} pairs of tasks and GPUs"

    @property
    def _large(self) -> str:
        """Why the pairs of tasks and GPUs are not stated one by one; empty if they are."""
        many = pair_count(self.round)
        if many <= LARGEST:
            return ""
        return f"the statement has {many} pairs of tasks and GPUs, more than {LARGEST}"

    @cached_property
    def unchanged_problem(self) -> Problem:
        """The round before any change, stated in the language."""
        if why := self._large:
            hint = "look at a smaller round" if self._by_network else f"{self._stated_only} takes smaller rounds only"
            raise ModelError(f"{why}, so that it is not stated one by one; {hint}")
        return self._unchanged()

    @property
    def variables(self) -> Mapping[str, LabelledVariables]:
        """The variables by name; ``model.variables["x"].sel(...)`` selects by label."""
        return self.classes.variables if self._large and self._by_network else super().variables

    def _inherit(self, before: Any, changes: Sequence[Any]) -> None:
        if not self._large or not self._by_network:
            super()._inherit(before, changes)
        elif why := self.unrefined:
            raise ModelError(f"{self._large}; {why}")
        else:
            _ = self.classes.checked

    def _run_statement(self, engine: EngineName, options: SolveOptions, start: Solution | None, certify: bool) -> Any:
        if self.unrefined:
            return super()._run_statement(engine, options, start, certify)
        from flowlex.models.gpu.methods.large_round import solve_large

        self._check_engine(engine, options)
        return solve_large(self.classes, options, restarted=start is not None)

    def _prepare_statement(self) -> None:
        if self.unrefined:
            super()._prepare_statement()

    def _read(self, found: Any) -> GpuSolution:
        from flowlex.models.gpu.methods.large_round import LargeRun

        if not isinstance(found, LargeRun):
            return super()._read(found)
        outcome = found.outcome
        facts = self._stated_facts(
            found.stages, found.bounds, status=outcome.status, message=outcome.message, reason=outcome.infeasibility
        )
        return replace(
            self._solution_of(None if found.gpu is None else {"gpu": found.gpu}, facts),
            changes=self.changes,
            stated=Stated(METHOD, found.placed, found.proof, found.slacks, found.placed or {}),
            stages={name: plain(value) for name, value in found.stages.items()},
            duals=found.duals,
        )

    def _solution_of(self, values: Mapping[str, Any] | None, facts: dict[str, Any]) -> GpuSolution:
        view = self.instance.arrays
        gpu = np.full(len(view.task_job), -1)
        if values is not None and "gpu" in values:  # over classes of tasks and GPUs
            gpu = values["gpu"]
        elif values is not None:
            codes, x = self.problem.blocks["x"].index.codes, values["x"]
            if np.abs(x - np.rint(x)).max(initial=0) > 1e-6:
                note = "Tasks are split among GPUs: the table shows those that run whole on one; see `stated.values`."
                facts = facts | {"message": f"{facts['message']} {note}".lstrip()}
            chosen = np.flatnonzero(x > 1 - 1e-6)
            gpu[codes["task"][chosen]] = codes["gpu"][chosen]
        return GpuSolution(**facts, placement=Placement(view, self.costs, gpu), round=self.round)

    @property
    def _is_network(self) -> bool:
        return self._by_network

    def _prepare(self) -> None:
        _ = self.assignment

    def sizes(self) -> dict[str, int | str]:
        """Size of the network, equal in all stages; of the statement if the model is changed."""
        if self.as_stated:
            return super().sizes() if self.unrefined else {"formulation": METHOD, "pairs": pair_count(self.round)}
        shape = self.assignment.shape
        return {"formulation": "flow network", "nodes": shape.node_count, "arcs": shape.arc_count}

    def _formulate(self) -> FlowNetwork | LinearProgram:
        """The program of the stage; if running tasks may stop, that of the best leaf of the search."""
        if not self._by_network:
            from flowlex.formulations.language.program_conversion import flat_program

            return flat_program(self.stage_problem(), 0)
        if self.stages == ("transfer",):
            return self.assignment.network
        leaf = self.rounds.best
        if self.stage == "transfer":
            return leaf.built.network
        built, plan = leaf.built, leaf.plan
        running = int(np.count_nonzero(plan.view.task_running_gpu[plan.idle] >= 0))
        saved = {"stops": (built.keep, len(plan.optional) + running)}
        saved["waiting"] = built.start, len(plan.startable) + len(plan.idle) - running
        network = optimal_face(built.shape, solve_wide(built.shape, built.cost, "network"))
        for stage in self.stages[1:]:
            arcs, constant = saved[stage]
            cost = np.zeros(network.arc_count, np.int64)
            cost[arcs] = -1
            network = replace(network, cost=cost, constant=Fraction(constant))
            if stage == self.stage:
                break
            network = optimal_face(network, solve(network, "network"))
        return network

    def _run(self, engine: EngineName, options: SolveOptions) -> GpuRun:
        """Solve the round; FSP branches on running tasks until the preemption order holds."""
        return self.rounds.search(self.round, engine, options)

    def _interpret(self, run: GpuRun) -> GpuSolution:
        leaf, view = run.leaf, self.instance.arrays
        if leaf is None:
            nothing = np.full(len(view.task_job), -1)
            place = Placement(view, self.costs, nothing)
            facts = {**self._facts(run), "objective": None, "bound": None, "gap": None}
            return GpuSolution(**facts, placement=place, round=self.round)
        placement = Placement(view, self.costs, leaf.gpu)
        waiting = 0 if leaf.plan.shares is None else int(np.count_nonzero(leaf.gpu < 0))
        objective = plain(placement.exact_transfer_s + waiting * self.costs.waiting_s + placement.lost_work_s)
        least = run.least_cost(self.rounds.ties)
        bound = objective if run.proven else None if least is None else plain(least * self.costs.unit_s)
        values = {"transfer": objective, "stops": len(placement.preempted), "waiting": len(placement.waiting)}
        stated = {
            "status": Status.OPTIMAL if run.proven else Status.FEASIBLE,
            "objective": objective,
            "bound": bound,
            "gap": None if bound is None else float((objective - bound) / max(1, abs(objective))),
            "stages": {name: values[name] for name in self.stages} if len(self.stages) > 1 else {},
        }
        return GpuSolution(
            **{**self._facts(run), **stated},
            duals=self._duals(leaf),
            placement=placement,
            round=self.round,
            prover=None if bound is None else Prover(run, self.costs, self.rounds.ties),
        )

    def _duals(self, leaf: Leaf) -> dict[str, Dual]:
        """Dual values in seconds for a fixed number of tasks, without tie-breaking; duals of GPUs are at least 0."""
        built, plan, second = leaf.built, leaf.plan, leaf.built.unit_s
        nodes = built.shape.split_nodes(_potentials(leaf, self.rounds.ties.factor))
        sink, blocks = nodes["E"][0], built.shape.arc_blocks
        price = nodes["gpu" if "gpu" in nodes else "node"] - sink
        if plan.shares is not None and plan.total == len(plan.free_gpu) and not plan.priced:
            price = price + max(0, -int(price.min(initial=0)))  # all GPUs are used: shift all duals up
        values = {"gpu_out": np.maximum(price, 0)}
        if "share" in blocks:  # potential difference: covers all arcs from a job to the sink
            values["share"] = nodes["job"] - sink - self.costs.waiting
        return {name: Dual.of_block(blocks[name], _seconds(v, second)) for name, v in values.items()}


def _seconds(units: NDArray[Any], unit_s: Fraction) -> NDArray[Any]:
    """Convert to exact seconds: floats if all are exact, else fractions."""
    digits = next((k for k in range(16) if 10**k % unit_s.denominator == 0), 16)
    if units.dtype != object and int(np.abs(units).max(initial=0)) * unit_s.numerator < 10 ** (15 - digits):
        return units * unit_s.numerator / unit_s.denominator  # decimals of at most 15 digits, which floats hold
    exact = [unit * unit_s for unit in units.tolist()]
    floats = [float(value) for value in exact]
    if all(rational(value) == true for value, true in zip(floats, exact, strict=True)):
        return np.array(floats)
    return np.array(exact, dtype=object)


def _potentials(leaf: Leaf, factor: int) -> NDArray[Any]:
    """Return node potentials, (N,), that prove the flow optimal for costs without tie-breaking."""
    built, outcome = leaf.built, leaf.outcome
    assert outcome.values is not None and outcome.duals is not None
    if factor == 1:
        return outcome.duals
    if fits(built.shape, built.cost):
        return exact_potentials(built.network, outcome.values, (outcome.duals // factor).astype(np.int64))
    wide = solve_wide(built.shape, built.cost, "network").duals
    assert wide is not None
    return wide
