r"""Which pod runs on which node and card, which pods wait, and how even is the load?

Pods share GPU cards by memory. Phase 1 admits pods strictly by priority: as many as possible of the most important
class, then of the next. Phase 2 keeps these numbers and evens out the node loads, with a proven bound.

Sets: pods P (P_k of priority k), nodes N, cards C_i of node i. Parameters: a_pr what p needs of resource r, b_ir
what node i has, g_pi GB on each of m_p cards, w_ir weight of r on i (the node's share of the cluster's total,
normalised over the row), A_k admitted pods of class k. Variables: x_pi (p on i), y_pc (p uses card c). Equal pods
are one column that counts them.

with the load u_i = sum_r w_ir used_ir / b_ir. The paper's fitness is sigma = sqrt(sum_i (u_i - mean u)^2 / n); since
the mean minimises the sum of squares over c, minimising over c as well keeps the program convex, and outer tangents
make it linear; they are added where the last answer lay until bound and answer meet.

Source: Sun, Wang, Xian, Xiang; weights and load are reconstructed. Exact phases, cards and bounds are ours.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from flowlex.formulations.expression import Floats, Integers
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.instances.pods import PodInstance
from flowlex.models.base import Equation, Model, ModelError, Run, Symbol
from flowlex.models.pods.admission import LARGEST, admit
from flowlex.models.pods.balance import TANGENTS, balance_outcome
from flowlex.models.pods.moves import fewest_moves, move_cost_of
from flowlex.models.pods.problem.balance_program import Balance, balance_program
from flowlex.models.pods.problem.cluster import EPSILON, Cluster
from flowlex.models.pods.problem.program import Groups, PlacementProgram
from flowlex.models.pods.solution import PlacementSolution, pack_cards, placement_cluster, share_of
from flowlex.validation.certificates import Certificate, Check
from flowlex.validation.certificates.pods import check_placement

__all__ = ["PlacementSolution", "PodPlacement"]

Moves: TypeAlias = Literal["free", "least"]
Phase: TypeAlias = Literal["admission", "balance"]

#: Seconds after which a solve without a time limit stops and says so.
DEFAULT_LIMIT_S = 120.0
#: Weights of phase 1 as one program stay exact below this.
_EXACT = 2.0**40


@dataclass(frozen=True)
class PlacementRun(Run):
    """The outcome with the cluster it leaves and, by priority, the proven most pods."""

    cluster: Cluster | None = field(default=None, repr=False)
    most: dict[int, int] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()


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
        Running pods that may move do so up to this total cost.
    aggregate
        Count equal pods in one column, and price patterns once for all equal nodes (the same answers, less work).
    moves
        What becomes of the budget: ``free`` spends it as the balance likes; ``least`` then makes the cheapest moves
        that keep admission and balance (to within 1e-6). Either way moves that admit more pods come first.
    window, window_moves
        Place this many pods at a time, most important first, when more are to be placed than that (0: all at once); so
        many pods of earlier windows may move in each. A heuristic for what is larger than one program, see
        `flowlex.models.pods.rolling`: each window is proven, the whole is ``feasible`` with a bound.
    phase
        Which program `formulation`, `compile` and ``flowlex export`` give: ``admission`` (phase 1) or ``balance``
        (phase 2 in percent of load, after solving phase 1; a sum of squares for ``deviation``, seen by its first
        tangents). Solving does both phases whatever it says.

    Raises
    ------
    ModelError
        Running pods overfill their node or may not be there, or an option is wrong.
    """

    balance: Balance = "deviation"
    cards: bool = True
    move_budget: float = 0.0
    aggregate: bool = True
    moves: Moves = "free"
    phase: Phase = "admission"
    window: int = 0
    window_moves: float = 0.0

    name: ClassVar[str] = "pod-placement"
    title: ClassVar[str] = "Pod placement"
    comparison: ClassVar[str] = "flowlex.models.pods.baselines:compare"
    sets: ClassVar[tuple[Symbol, ...]] = (
        Symbol("P, P_k", "pods, those of priority k"),
        Symbol("N", "nodes"),
        Symbol("C_i", "cards of node i"),
    )
    parameters: ClassVar[tuple[Symbol, ...]] = (
        Symbol("a_{pr}, b_{ir}", "what pod p needs, what node i has of resource r"),
        Symbol("g_{pi}, m_p", "GB on each card, number of cards"),
        Symbol("w_{ir}", "weight of resource r on node i"),
        Symbol("A_k", "admitted pods of class k, from phase 1"),
    )
    unknowns: ClassVar[tuple[Symbol, ...]] = (
        Symbol("x_{pi}", "1 when pod p runs on node i"),
        Symbol("y_{pc}", "1 when pod p uses card c"),
        Symbol("u_i", "load of node i: weighted utilisation"),
    )
    objective_latex: ClassVar[str] = r"\Big(\tfrac{1}{|N|} \sum_{i \in N} (u_i - \bar u)^2\Big)^{1/2}"
    equations: ClassVar[tuple[Equation, ...]] = (
        Equation("pod", r"\sum_{i \in N} x_{pi} \le 1 \quad \forall p", "a pod runs at most once"),
        Equation("running", r"\sum_{i \in N} x_{pi} = 1 \quad \forall p \text{ running}", "what runs goes on"),
        Equation("cpu", r"\sum_p a_{p,\mathrm{cpu}} x_{pi} \le b_{i,\mathrm{cpu}} \quad \forall i", "cores of a node"),
        Equation(
            "memory", r"\sum_p a_{p,\mathrm{mem}} x_{pi} \le b_{i,\mathrm{mem}} \quad \forall i", "memory of a node"
        ),
        Equation("card", r"\sum_p g_{pi} y_{pc} \le s_c \quad \forall c \in C_i", "memory of a card"),
        Equation("card_link", r"\sum_{c \in C_i} y_{pc} = m_p x_{pi} \quad \forall p, i", "a GPU pod gets its cards"),
        Equation("card_distinct", r"y_{pc} \le x_{pi} \quad \forall p: m_p > 1, c \in C_i", "each of them once"),
        Equation("gpu", r"\sum_p g_{pi} m_p x_{pi} \le b_{i,\mathrm{gpu}}", "instead, with cards=False"),
        Equation("move_budget", r"\sum_{\text{moved}} \mathrm{cost}_p x_{pi} \le \mathrm{budget}", "moves are limited"),
        Equation("admitted", r"\sum_{p \in P_k} \sum_i x_{pi} = A_k \quad \forall k", "phase 1 is kept"),
        Equation("tangent", r"t_i \ge 2 a (u_i - c) - a^2", "outer tangents of the squared deviation"),
    )

    def _check(self) -> None:
        if self.window < 0 or not self.window_moves >= 0:
            raise ModelError(f"window and window_moves must be at least 0, got {self.window}, {self.window_moves}")
        if self.window and (self.move_budget or self.moves != "free" or not self.aggregate):
            raise ModelError("window goes without move_budget, moves and aggregate; give window_moves instead")
        if not self.move_budget >= 0:
            raise ModelError(f"move_budget must be at least 0, got {self.move_budget}")
        self._check_running()

    def _check_running(self) -> None:
        view, nodes = self.instance.arrays, self.instance.nodes
        fixed = np.flatnonzero((view.running >= 0) & (np.isinf(view.move_cost) | (self.move_budget == 0)))
        used = np.zeros_like(view.capacity)
        for p in fixed.tolist():
            n, pod = int(view.running[p]), self.instance.pods[p]
            if not view.allowed[p, n] or (pod.wants_gpu and not nodes[n].cards):
                raise ModelError(f"pod {pod.name!r} runs on {pod.node!r}, which its labels, taints or GPU exclude")
            used[n] += (view.gpu[p, n] * view.gpu_cards[p], view.cpu[p], view.memory[p])
        over = used > view.capacity + 1e-6
        if over.any():
            n, r = (int(i) for i in np.argwhere(over)[0])
            what = ("GB of GPU memory", "cores", "GB of memory")[r]
            raise ModelError(
                f"node {nodes[n].name!r}: running pods use {used[n, r]:g} {what}, it has {view.capacity[n, r]:g}"
            )

    @cached_property
    def groups(self) -> Groups:
        """Equal pods taken together."""
        return Groups.of_instance(self.instance, apart=not self.aggregate)

    @cached_property
    def builder(self) -> PlacementProgram:
        """Builds the programs of both phases."""
        return PlacementProgram(self.instance.arrays, self.groups, self.cards, self.move_budget)

    def _formulate(self) -> LinearProgram:
        """The program of the phase that `phase` names."""
        return self._balance_program() if self.phase == "balance" else self._admission_program()

    def _balance_program(self) -> LinearProgram:
        """Phase 2, with what phase 1 admits (solved for it); squares by their first tangents."""
        options = SolveOptions(time_limit_s=DEFAULT_LIMIT_S)
        first = admit(self, "highs", options, time.perf_counter() + DEFAULT_LIMIT_S)
        if first.cluster is None:
            raise ModelError("the running pods do not fit their nodes, so there is no program of phase 2")
        if any(first.most[k] > first.admitted[k] for k in first.most):
            raise ModelError(f"phase 1 is not proven within {DEFAULT_LIMIT_S:g} s, so phase 2 is not settled")
        size = len(self.instance.nodes)
        points = [np.full(size, sign * a) for a in TANGENTS for sign in (1, -1)[: 1 + (a > 0)]]
        return balance_program(self, self.balance, first.admitted, points)

    def _admission_program(self) -> LinearProgram:
        """Phase 1 as one program: a pod outweighs all of lower classes, as far as weights stay exact."""
        program, x = self.builder.program(self.instance.name)
        objective, weight = x.sum() * 0.0, 1.0
        view = self.instance.arrays
        for priority in reversed(self.builder.classes()):
            objective = objective + self.builder.admitted(x, priority) * weight
            weight *= 1 + int(((view.priority == priority) & (view.running < 0)).sum())
            if weight > _EXACT:
                break
        program.maximize(objective)
        return program

    # Solving

    def _prepare(self) -> None:
        """The programs are built as phases need them; one over all nodes may be too large to be of use."""
        _ = self.builder.pairs

    def sizes(self) -> dict[str, int | str]:
        """Sizes of the program over single nodes, which is not made for this where it is too large to be of use."""
        if self.phase == "admission" and self.builder.columns > LARGEST:
            return {"formulation": "integer program", "columns": self.builder.columns, "rows": "not built"}
        return super().sizes()

    def _run(self, engine: EngineName, options: SolveOptions) -> PlacementRun:
        limit = DEFAULT_LIMIT_S if options.time_limit_s is None else options.time_limit_s
        if 0 < self.window < int((self.instance.arrays.running < 0).sum()):
            return self._roll(engine, replace(options, time_limit_s=limit))
        until = time.perf_counter() + limit
        first = admit(self, engine, options, until)
        if first.failed is not None:
            return PlacementRun(first.failed)
        assert first.cluster is not None
        admitted, most = first.admitted, first.most
        found = balance_outcome(self, self.balance, first.cluster, admitted, engine, options, until)
        if self.moves == "least":
            found = fewest_moves(self, self.balance, admitted, found, engine, options, until)
        if any(most[k] > admitted[k] for k in most):
            message = "more pods may be placeable than phase 1 has proven; " + found.outcome.message
            found = replace(found, outcome=replace(found.outcome, status=Status.FEASIBLE, message=message))
        if options.time_limit_s is None and time.perf_counter() >= until - 0.1:
            message = f"stopped by the default limit of {DEFAULT_LIMIT_S:g} s (give a time limit to change it); "
            found = replace(found, outcome=replace(found.outcome, message=message + found.outcome.message))
        return PlacementRun(found.outcome, found.cluster, most, found.checks)

    def _roll(self, engine: EngineName, options: SolveOptions) -> PlacementRun:
        """Place window by window."""
        from flowlex.models.pods.rolling import place_rolling

        started = time.perf_counter()
        rolled = place_rolling(
            self.instance,
            window=self.window,
            balance=self.balance,
            cards=self.cards,
            movable=self.window_moves,
            engine=engine,
            options=options,
        )
        message = (
            f"rolling horizon, {len(rolled.windows)} windows: a heuristic; the bound is that of the relaxation, for "
            "placements that admit as many pods of each priority"
        )
        outcome = Outcome(
            Status.FEASIBLE,
            engine,
            objective=rolled.balance,
            bound=rolled.bound,
            values=rolled.node,
            seconds=time.perf_counter() - started,
            message=message,
        )
        most = {priority: most for priority, (_, _, most) in rolled.admitted.items()}
        return PlacementRun(outcome, rolled.cluster, most)

    def expand(self, values: Floats) -> Cluster:
        """Turn values of the program's columns (x, then y) into pods on nodes and cards."""
        builder, view = self.builder, self.instance.arrays
        counts = builder.counts(values)
        node = np.full(len(view.cpu), -1)
        for g in range(len(counts)):
            pods = np.flatnonzero(self.groups.of == g)
            places = np.repeat(np.arange(counts.shape[1]), counts[g])
            stay = int(view.running[pods[0]])
            places = places[np.argsort(places != stay, kind="stable")]
            node[pods[: len(places)]] = places
        if not self.cards:
            return placement_cluster(self.instance, node, cards=False)
        return pack_cards(self.instance, node, self._chosen_cards(values, node))

    def _chosen_cards(self, values: Floats, node: Integers) -> dict[int, Integers]:
        """Deal the cards of each group and node to its pods, always those that are left most often."""
        builder, view = self.builder, self.instance.arrays
        (group, of_pair), (pair, card) = builder.pairs, builder.card_slots
        amount = np.rint(values[len(group) : len(group) + len(pair)]).astype(np.int64)
        start = np.cumsum(view.cards) - view.cards
        left: dict[tuple[int, int], Integers] = {}
        for a, k, c in zip(amount, pair, card, strict=True):
            if a:
                n = int(of_pair[k])
                slots = left.setdefault((int(group[k]), n), np.zeros(int(view.cards[n]), np.int64))
                slots[c - start[n]] += a
        chosen = {}
        for pod in np.flatnonzero((node >= 0) & (view.gpu_cards > 0)).tolist():
            slots = left[int(self.groups.of[pod]), int(node[pod])]
            chosen[pod] = np.argsort(-slots, kind="stable")[: view.gpu_cards[pod]]
            slots[chosen[pod]] -= 1
        return chosen

    # Answering

    def _interpret(self, run: PlacementRun) -> PlacementSolution:
        view = self.instance.arrays
        cluster, outcome = run.cluster, run.outcome
        node = np.full(len(view.cpu), -1) if cluster is None else cluster.node
        admitted = {}
        for priority, most in run.most.items():
            of_class = (view.priority == priority) & (view.running < 0)
            admitted[priority] = (int((node[of_class] >= 0).sum()), int(of_class.sum()), most)
        facts = self._facts(run) | {"gap": share_of(outcome.objective, outcome.bound)}
        return PlacementSolution(
            **facts,
            node=node,
            cluster=cluster,
            admitted=admitted,
            balance=self.balance,
            moved_cost=move_cost_of(view, node),
        )

    def _certify(self, run: PlacementRun, solution: PlacementSolution) -> Certificate | None:
        outcome = run.outcome
        if not outcome.status.has_answer:
            return None
        assert outcome.objective is not None and outcome.bound is not None
        ahead = float(outcome.bound) - float(outcome.objective)
        check = Check("bound at most the balance", ahead <= EPSILON, max(0.0, ahead))
        checks = (check, *run.checks, *self._verify(solution))
        return Certificate("bounded", exact=False, checks=checks, tolerance=1e-6)

    def _verify(self, solution: PlacementSolution) -> tuple[Check, ...]:
        cluster = solution.cluster
        assert cluster is not None and solution.objective is not None
        cards = cluster.used_cards if self.cards else None
        checks = check_placement(
            self.instance, solution.node, cards, self.balance, float(solution.objective), self.move_budget
        )
        short = [k for k, (found, _, most) in solution.admitted.items() if found < most]
        proven = Check("admission by priority is proven most", not short or solution.status is Status.FEASIBLE)
        return (*checks, proven)
