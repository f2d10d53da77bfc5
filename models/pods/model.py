r"""Assign pods to nodes and cards, or let them wait, and balance the loads of the nodes.

Pods share GPU cards by memory. Phase 1 admits pods strictly by priority: as many as possible of the most important
class, then of the next. Phase 2 keeps these numbers and balances the node loads, with a proven bound.

The load of a node is u_i = sum_r w_ir used_ir / b_ir. The paper's fitness is sigma = sqrt(sum_i (u_i - mean u)^2 / n);
the mean minimises the sum of squares over c, so the program stays convex if c is a variable. Tangents approximate the
squares from below; they are added at the last solution until bound and value are equal. Equal pods share one integer
column.

Source: Sun, Wang, Xian, Xiang; weights and load are reconstructed. Exact phases, cards and bounds are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from flowlex.formulations.deferred_compilation import small_work
from flowlex.formulations.engines import solve_options
from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import EngineError, EngineName, SolveOptions, Status
from flowlex.instances.model_changes import Constraint
from flowlex.instances.pods import PodInstance
from flowlex.models.incumbents import offer
from flowlex.models.model_base import UNPROVEN, Model, ModelError
from flowlex.models.pods.methods.admission import NODES, Admission, Admitting, SearchLimits
from flowlex.models.pods.methods.balance import BalanceProof, Balancing, move_cost_of
from flowlex.models.pods.methods.fair_admission import FairAdmitting
from flowlex.models.pods.methods.node_class_relaxation import ClassRelaxation
from flowlex.models.pods.methods.placement_policies import with_waiting
from flowlex.models.pods.methods.proof import PlacementRun, proof_document, so_far
from flowlex.models.pods.problem.admission_levels import Key, Levels, Ranking, ValueMeasure
from flowlex.models.pods.problem.balance_measures import MEASURES, SCALE, Balance
from flowlex.models.pods.problem.cluster import Cluster, check_running
from flowlex.models.pods.problem.placement_columns import PlacementColumns, PodGroups, pods_of_values
from flowlex.models.pods.problem.stage_programs import StagePrograms, touching
from flowlex.models.pods.solution import PlacementSolution, share_of
from flowlex.models.pods.statement import LARGEST_STATEMENT, NEEDED, ROWS, state
from flowlex.models.solution import Solution
from flowlex.validation.certificates import verify

if TYPE_CHECKING:
    from flowlex.models.problem import Problem
    from flowlex.models.problem_solution import ProblemSolution

Moves: TypeAlias = Literal["free", "least"]
Stage: TypeAlias = Literal["admission", "balance"]

#: Largest product of weights for which phase 1 as one program is exact.
_EXACT = 2.0**40


@dataclass(frozen=True, eq=False, repr=False)
class PodPlacement(Model[PodInstance, PlacementSolution, PlacementRun]):
    """Admission by strict priority, then balance (see the module).

    Parameters
    ----------
    instance
        Nodes and pods.
    balance
        ``deviation`` (the paper's sigma), ``max_load`` or ``mean_absolute``.
    cards
        True: a pod's GPU memory must fit its cards. False: it is counted per node, as in the paper.
    move_budget
        Largest total cost of moves of running pods.
    moves
        How to use the move budget: ``free``: moves have no cost in the objective; ``least``: among placements with
        this admission and balance (to within 1e-6), make the cheapest moves. Moves that admit more pods come first.
    admission
        ``lexicographic``: the most pods of each priority in turn; running pods with a preempt_cost are stopped only for
        more important ones, the cheapest first. ``weighted``: the largest total value, then the most pods without
        value. ``fair``: maximise the least share of a queue, then the next least, and so on, then the number of pods
        without a queue; a share is the value of the queue's running pods divided by its weight.
    worth
        Value of a pod in weighted or fair admission: ``value`` (its own), ``gpu`` (its requested GPUs) or
        ``fragmentation`` (these minus the fragmentation it causes; see `flowlex.models.pods.problem.admission_levels`).
    absolute_gap
        Stop if value and bound of the balance differ by at most this fraction of a node's capacity, in addition to the
        relative ``gap`` of solving (a balance near 0 has no meaningful relative gap).
    stage
        The program that `formulation`, `compile` and ``flowlex export`` return: ``admission`` (phase 1: a pod weighs
        more than all less important ones) or ``balance`` (phase 2, after solving phase 1). ``solution.stages`` contains
        both optima; in a changed model under ``deviation``, the balance is the variance in squared percent.
        `solve` always runs both phases.

    Raises
    ------
    ModelError
        Running pods overfill their node or are not allowed there, or an option is invalid.
    """

    balance: Balance = "deviation"
    cards: bool = True
    move_budget: float = 0.0
    moves: Moves = "free"
    admission: Ranking = "lexicographic"
    worth: ValueMeasure = "value"
    absolute_gap: float = 0.0
    stage: Stage = "admission"

    #: Limits of search and bounding; a subclass may override them.
    limits: ClassVar[SearchLimits] = SearchLimits()

    main_stage: ClassVar[str] = "balance"
    name: ClassVar[str] = "pod-placement"
    title: ClassVar[str] = "Pod placement"
    comparison: ClassVar[str] = "flowlex.models.pods.baselines:compare"
    needed: ClassVar[Mapping[str, str]] = NEEDED
    examples: ClassVar[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (
        ("Admission by priority, then the variance of the loads", "kubeflow-testbed", {}),
        ("Largest load, GPU memory counted per node", "kubeflow-testbed", {"balance": "max_load", "cards": False}),
        ("Mean distance from the mean load", "kubeflow-testbed", {"balance": "mean_absolute"}),
    )

    def _check(self) -> None:
        for name in ("move_budget", "absolute_gap"):
            if not getattr(self, name) >= 0:
                raise ModelError(f"{name} must be at least 0, got {getattr(self, name)}")
        check_running(self.instance, self.move_budget)

    @cached_property
    def levels(self) -> Levels:
        """The levels of phase 1."""
        return Levels.of_instance(self.instance, self.admission, self.worth)

    @cached_property
    def groups(self) -> PodGroups:
        """Groups of equal pods."""
        return PodGroups.of_instance(self.instance, self.levels)

    @cached_property
    def placeable(self) -> PlacementColumns:
        """Where groups of equal pods may run."""
        return PlacementColumns(self.instance.arrays, self.groups, self.levels, self.cards, self.move_budget)

    @cached_property
    def programs(self) -> StagePrograms:
        """The integer programs of the unchanged statement."""
        return StagePrograms(self.instance, self._by_pod, self._stated)

    @cached_property
    def bounds(self) -> ClassRelaxation:
        """Bounds on admission and balance."""
        return ClassRelaxation(self.instance, self.placeable)

    def _formulate(self) -> LinearProgram:
        """Return the program of the option ``stage``."""
        return self._balance_program() if self.stage == "balance" else self._admission_program()

    def _admit(self, engine: EngineName, options: SolveOptions) -> Admission:
        def better(first: Callable[[], Admission], *, often: bool = False) -> None:
            offer(options, lambda: so_far(engine, MEASURES[self.balance], first()), often=often)

        kind = FairAdmitting if self.admission == "fair" else Admitting
        return kind(self, engine, options, better).run()

    def _balance_program(self) -> LinearProgram:
        """Return the program of phase 2 after solving phase 1; tangents of squares make its optimum exact."""
        first = self._admit("highs", SolveOptions())
        if first.cluster is None:
            raise ModelError("the running pods do not fit their nodes, so there is no program of phase 2")
        if not first.proven:
            raise ModelError("phase 1 is not proven, so phase 2 is not settled; export stage=admission")
        measure, size = MEASURES[self.balance], len(self.instance.nodes)
        phase = Balancing(self, first.cluster, first.admitted)
        settled = phase.settled()
        program = self.programs.balance(measure, phase.kept, phase.points)
        program.name = f"{self.instance.name}: balance" + ("" if settled else ", a bound on it")
        # Scale the sum in percent to the measure itself, and a sum of squares to the variance.
        program.minimize(program.objective * (1.0 / (size if measure.curved else measure.total(SCALE, size))))
        return program

    def _weights(self) -> list[float]:
        """Weights by level: a unit outweighs all later levels; 0 for the last levels if weights are not exact."""
        steps = [1.0 + total for total in self.levels.total(self.levels.of >= 0)]
        size = len(steps)
        kept = next((k for k in range(size, 0, -1) if math.prod(steps[:k]) <= _EXACT), min(1, size))
        return [math.prod(steps[k + 1 : kept]) if k < kept else 0.0 for k in range(size)]

    def _admission_program(self) -> LinearProgram:
        """Return phase 1 as one program; for fair admission, the program of the least share."""
        fair, levels = self.admission == "fair" and bool(self.levels.weight), self.levels
        program = self.programs.program("admission fair 1" if fair else None, {})
        program.name = f"{self.instance.name}: admission"
        if not fair:
            each = zip(self._weights(), levels.unit, self.unchanged_problem.objectives, strict=False)
            value = np.zeros(program.column_count)
            value = sum((o.cost(len(value)) * (w / float(unit)) for w, unit, o in each), value)
            column = np.flatnonzero(value)
            program.maximize(Expression(0 * column, column, value[column], np.zeros(1)))
        return program

    def _prepare(self) -> None:
        """Compute the pairs only; the phases build their programs on demand, which may be too large otherwise."""
        _ = self.placeable.pairs

    def sizes(self) -> dict[str, int | str]:
        """Sizes of the program over single pods and nodes, which is not built if it is too large."""
        columns = self._by_pod.columns
        if not self.as_stated and self.stage == "admission" and columns > LARGEST_STATEMENT:
            return {"formulation": "integer program", "columns": columns, "rows": "not built"}
        return super().sizes()

    def _run(self, engine: EngineName, options: SolveOptions) -> PlacementRun:
        if options.solver is not None:
            raise EngineError("pods are placed by searches and bounds on HiGHS; drop solver=, or export the program")
        until = None if options.time_limit_s is None else processor_seconds() + options.time_limit_s
        first = self._admit(engine, options)
        if first.cluster is None:
            assert first.failed is not None
            return PlacementRun(first.failed)
        limits = self.limits
        small = self.programs.columns.columns <= limits.proven
        if small:
            limits = replace(limits, intervals=min(limits.intervals, limits.tries))
        if small and not first.proven and self.programs.fits(limits.proven):
            # The statement is solved as a whole: some placement is enough.
            limits = replace(limits, kinds=-1, direct=-1, per_pod=limits.per_pod // 10, least=limits.least // 10)
        while True:
            phase = self._balancing(first, engine, options, until, limits)
            found = phase.run()
            more = self._with_waiting(first, found.cluster)
            if more is None:
                break
            first = more
            if not found.proof.patterns:  # patterns proved no bound, and the balance hardly changes
                limits = replace(limits, kinds=0, most=self.limits.most // 4)
        settled = first.proven and found.outcome.status is Status.OPTIMAL
        if self.moves == "least" and (settled or not small):
            found = phase.fewest_moves(found)
        if not first.proven:
            message = "more pods may be placeable than phase 1 has proven; " + found.outcome.message
            found = replace(found, outcome=replace(found.outcome, status=Status.FEASIBLE, message=message))
        return PlacementRun(found.outcome, first, found.proof, found.cluster)

    def _with_waiting(self, first: Admission, even: Cluster) -> Admission | None:
        """Add waiting pods that fit into a better balanced cluster; None if no more are admitted."""
        cluster = with_waiting(even, self.levels.of)
        admitted = self.levels.total(cluster.node >= 0)
        return replace(first, cluster=cluster, admitted=admitted) if admitted > first.admitted else None

    def _balancing(
        self, first: Admission, engine: EngineName, options: SolveOptions, until: float | None, limits: SearchLimits
    ) -> Balancing:
        """Phase 2 from the result of phase 1."""
        assert first.cluster is not None

        def better(cluster: Cluster, bound: float, proof: BalanceProof, *, often: bool = False) -> None:
            found = replace(first, cluster=cluster)
            offer(options, lambda: so_far(engine, MEASURES[self.balance], found, bound, proof), often=often)

        better(first.cluster, 0.0, BalanceProof())
        return Balancing(self, first.cluster, first.admitted, engine, options, limits, until, better)

    def solve(
        self,
        engine: EngineName = "auto",
        *,
        certify: bool = True,
        report: Callable[[PlacementSolution], None] | None = None,
        **options: Any,
    ) -> PlacementSolution:
        """Solve like `Model.solve`; an optimum that the certificate cannot prove becomes ``feasible``.

        What searches and bounds leave open of a small instance is solved as it is stated, with a proof of every
        objective.

        Parameters
        ----------
        engine, certify, report, options
            As for `Model.solve`; the unchanged model raises `EngineError` for the option ``solver``.
        """
        found = super().solve(engine, certify=certify, report=report, **options)
        certificate, limit = found.certificate, options.get("time_limit_s")
        left = math.inf if limit is None else float(limit) - found.seconds.total
        if left > 0 and self._left_open(found, options.get("gap", 0.0)) and self.programs.fits(self.limits.proven):
            answer = self._proven_as_stated(found, engine, certify, report, options | {"time_limit_s": limit and left})
            if self._no_worse(answer, found):
                return answer
        if found.status is not Status.OPTIMAL or certificate is None or certificate.claim != "feasible":
            return found
        note = "the integer program finds this optimal, the certificate cannot prove it"
        message = "; ".join(part for part in (found.message, note) if part)
        found = replace(found, status=Status.FEASIBLE, message=message)
        return replace(found, certificate=verify(found.to_dict(), self.instance))

    def _proven_as_stated(
        self,
        found: PlacementSolution,
        engine: EngineName,
        certify: bool,
        report: Callable[[PlacementSolution], None] | None,
        options: dict[str, Any],
    ) -> PlacementSolution:
        """Solve the statement to prove what the search found, with exact multipliers where the verifier needs them.

        Exact multipliers from the start take 1.6 times as long (eight testbeds, mean distance).
        """
        chosen, start = solve_options({"max_steps": NODES} | options), found
        with small_work(self.instance.cells):
            for twice in (False, True):
                start = self._solve(engine, chosen, certify, report, start, stated=True, twice=twice)
                if UNPROVEN not in start.message:
                    break
        return start

    def _left_open(self, found: PlacementSolution, gap: float) -> bool:
        """Whether a search ended without proving what was asked for."""
        if self.as_stated or found.status is Status.INFEASIBLE:
            return False
        if not found.status.has_answer or (found.certificate is not None and found.certificate.claim == "feasible"):
            return True
        if found.status is Status.OPTIMAL or found.gap is None or found.absolute_gap is None:
            return found.status is not Status.OPTIMAL
        met = found.gap <= gap or found.absolute_gap <= self.absolute_gap
        return not met or any(placed != most for placed, _, most in found.admitted.values())

    def _no_worse(self, answer: PlacementSolution, found: PlacementSolution) -> bool:
        """Whether an answer is optimal, or at least as good as the one of the search."""
        if answer.status is Status.OPTIMAL or not found.status.has_answer:
            return True
        if not answer.status.has_answer:
            return False
        one, other = (self.levels.rank(self.levels.total(each.node >= 0)) for each in (answer, found))
        return one > other or (one == other and float(answer.objective or 0.0) <= float(found.objective or 0.0))

    @classmethod
    def declared(cls) -> frozenset[str]:
        """The names that rows of statements and programs may have."""
        return ROWS

    @cached_property
    def _by_pod(self) -> PlacementColumns:
        """The pairs of single pods and nodes."""
        return replace(self.placeable, groups=PodGroups.of_instance(self.instance, self.levels, apart=True))

    def state(self, p: Problem) -> None:
        """State the placement by pod, node and card.

        Parameters
        ----------
        p
            The problem to state.
        """
        self._state_with(p, ())

    def _stated(self, points: Collection[tuple[int, Fraction]]) -> Problem:
        """The unchanged problem, with further tangents: node, and distance from the mean in percent."""
        from flowlex.models.problem import Problem

        if not points:
            return self.unchanged_problem
        p = Problem(self.instance.name)
        self._state_with(p, points)
        return p

    def _state_with(self, p: Problem, points: Collection[tuple[int, Fraction]]) -> None:
        least = self.moves == "least"
        state(p, self.instance, self._by_pod, self.balance, fewest_moves=least, points=points)

    def _run_statement(
        self, engine: EngineName, options: SolveOptions, start: Solution | None, certify: bool
    ) -> ProblemSolution:
        if self.balance != "deviation":
            return super()._run_statement(engine, options, start, certify)
        from flowlex.models.pods.methods.variance_tangents import with_tangents

        self._check_engine(engine, options)

        def stated(points: Collection[tuple[int, Fraction]]) -> Problem:
            return self._applied(self._stated(points), self.all_changes) if points else self.problem

        first: Collection[tuple[int, Fraction]] = ()
        if isinstance(start, PlacementSolution) and start.status.has_answer:
            first = touching((start.loads - start.loads.mean()) * SCALE)
        return with_tangents(stated, self._own_rows, options, self._start_values(start), certify, first)

    @property
    def _own_rows(self) -> list[str]:
        return [each.name for each in self.all_changes if isinstance(each, Constraint)]

    def _read(self, found: ProblemSolution) -> PlacementSolution:
        from flowlex.models.pods.methods.variance_tangents import with_squares

        squared = self.balance == "deviation" and found.numbers is not None
        solution = super()._read(with_squares(found, self._own_rows) if squared else found)
        if self.as_stated or solution.cluster is None:
            return solution
        assert solution.stated is not None
        method = "integer program, stage by stage: it proves what a search has found"
        stages = self._stages(solution.cluster, solution.objective)
        return replace(solution, stages=stages, stated=replace(solution.stated, method=method))

    def _objective_of(self, stages: Mapping[str, Fraction]) -> Fraction:
        """Under ``deviation`` the stage is the variance in squared percent, and the objective its root."""
        value = super()._objective_of(stages)
        if self.balance != "deviation" or self._main_cost_changed:
            return value
        return Fraction(math.sqrt(max(value, Fraction(0))) / 100)

    def _solution_of(self, values: Mapping[str, Floats] | None, facts: dict[str, Any]) -> PlacementSolution:
        cluster, parts = (None, []) if values is None else pods_of_values(self.instance, self._by_pod, values)
        if parts:
            note = f"{len(parts)} pods run in parts, such as {parts[0]}; the table lists them as waiting"
            facts["message"] = "; ".join(text for text in (facts["message"], note) if text)
        return self._solution(cluster, facts, most=None)

    def _interpret(self, run: PlacementRun) -> PlacementSolution:
        cluster, outcome = run.cluster, run.outcome
        levels, first = self.levels, run.admission
        facts = self._facts(run) | {"gap": share_of(outcome.objective, outcome.bound)}
        if outcome.status.has_answer:
            assert cluster is not None
            facts["stages"] = self._stages(cluster, outcome.objective)
        proof = proof_document(self.instance, self.bounds, levels, first.prices, run.proof, MEASURES[self.balance])
        return self._solution(cluster, facts, first.most, proof)

    def _stages(self, cluster: Cluster, objective: float | int | None) -> dict[str, Any]:
        """Admission as one number: weighted, or the least share; and the balance."""
        levels, there = self.levels, self.levels.total(cluster.node >= 0)
        weighted = sum(weight * units for weight, units in zip(self._weights(), there, strict=True))
        if self.admission == "fair" and levels.weight:
            weighted = float(min(levels.shares(there)))
        return {"admission": weighted, "balance": objective}

    def _solution(
        self,
        cluster: Cluster | None,
        facts: dict[str, Any],
        most: Sequence[int] | None,
        proof: dict[str, Any] | None = None,
    ) -> PlacementSolution:
        """Make the solution of a cluster; ``most``: proven bound of each level (None: the placed value)."""
        node = np.full(len(self.instance.pods), -1) if cluster is None else cluster.node
        levels = self.levels
        there, wanted = levels.total(node >= 0), levels.total(levels.of >= 0)
        admitted: dict[Key, tuple[float, float, float]] = {}
        for k, proven in enumerate(there if most is None else most):
            placed, asked, top = (levels.stated(k, units) for units in (there[k], wanted[k], proven))
            admitted[levels.keys[k]] = (placed, asked, top)
        if self.cards and (many := len(self.instance.repacked)):
            note = f"the cards of {many} running pods are not known; this answer assumes that they may be repacked"
            facts["message"] = "; ".join(part for part in (facts["message"], note) if part)
        return PlacementSolution(
            **facts,
            node=node,
            cluster=cluster,
            admitted=admitted,
            balance=self.balance,
            moved_cost=move_cost_of(self.instance.arrays, node),
            proof=proof or {},
        )
