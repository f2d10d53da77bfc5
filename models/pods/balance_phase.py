"""Phase 2 of pod placement: balance the loads by annealing (upper bound) and mathematical programs (lower bound)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.admission_phase import NODES, remaining
from flowlex.models.pods.bounds.branch_and_price import PROVEN, GapSearch
from flowlex.models.pods.bounds.column_generation import PodPrices
from flowlex.models.pods.bounds.price_relaxation import Prices, Relaxation
from flowlex.models.pods.problem.balance_measures import SCALE, Measure, to_measure, to_objective
from flowlex.models.pods.problem.integer_program import PlacementProgram
from flowlex.models.pods.problem.node_and_pod_classes import Demand
from flowlex.models.pods.problem.node_fill_state import Cluster
from flowlex.models.pods.search.annealing import Annealing
from flowlex.models.pods.search_limits import SearchLimits
from flowlex.validation.restated.pods.enumeration import enumerable

#: First tangent points, in percent of a node's capacity.
_TANGENTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
MAX_ROUNDS = 40
#: Largest number of columns for which an exported program of phase 2 gets exact tangents.
_EXPORTED = 1_500


@dataclass(frozen=True, eq=False)
class BalanceProof:
    """The proof of a lower bound of the balance."""

    straight: tuple[tuple[float, float, Prices], ...] = ()  # (low, high, multipliers): intervals of the mean load
    # patterns, of: multipliers of groups of pods, and the (P,) group of each pod
    patterns: tuple[PodPrices, ...] = ()
    of: Integers = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)


@dataclass(frozen=True)
class BalanceOutcome:
    """An outcome, its cluster, and the proof of its bound."""

    outcome: Outcome
    cluster: Cluster
    proof: BalanceProof = field(default_factory=BalanceProof)


def tangents(size: int) -> list[Floats]:
    """Return the initial tangent points for ``size`` loads."""
    return [np.full(size, sign * a) for a in _TANGENTS for sign in (1, -1)[: 1 + (a > 0)]]


def settled_tangents(
    instance: PodInstance, builder: PlacementProgram, measure: Measure, cluster: Cluster, admitted: Sequence[int]
) -> tuple[list[Floats], bool]:
    """Tangent points for the program of phase 2, and whether they make its optimum equal to the optimal balance.

    Points are added by repeated solves. Beyond `_EXPORTED` columns, there are only the points of one placement, and
    the optimum of the program is a lower bound.
    """
    phase = Balancing(instance, builder, measure, cluster, admitted)
    if not measure.curved:
        return phase.points, True
    phase._offer(phase._even()[0])
    if len(builder.pairs[0]) <= _EXPORTED:
        phase._rounds()
    return phase.points, phase.closed


@dataclass(eq=False)
class Balancing:
    """One run of phase 2: search for a placement, bound it by relaxations, close the gap by integer programs.

    ``best``, ``bound``: the best cluster so far (first the result of phase 1), and the best proven lower bound.
    ``better``: callback for intermediate clusters and bounds, called with ``often`` in loops.
    """

    instance: PodInstance
    builder: PlacementProgram
    measure: Measure
    best: Cluster
    admitted: Sequence[int]
    engine: EngineName = "highs"
    options: SolveOptions = field(default_factory=SolveOptions)
    relaxation: Relaxation | None = None
    absolute_gap: float = 0.0
    limits: SearchLimits = field(default_factory=SearchLimits)
    until: float | None = None
    better: Callable[..., None] = lambda cluster, bound, proof, *, often=False: None

    def __post_init__(self) -> None:
        self.size = len(self.instance.nodes)
        self.bound, self.points = 0.0, tangents(self.size)
        self.iterations, self.started = 0, time.perf_counter()
        self.proof = BalanceProof()

    @property
    def late(self) -> bool:
        """Whether the time limit is reached."""
        return self.until is not None and processor_seconds() >= self.until - 0.05

    @property
    def steps(self) -> int:
        """Steps of one run of a search."""
        return self.limits.steps(len(self.best.node), self.options.max_steps)

    @property
    def value(self) -> float:
        """The balance of the best placement."""
        return self.measure.value(self.best.loads)

    @property
    def closed(self) -> bool:
        """Whether the gap between value and bound is at most the requested one."""
        enough = max(PROVEN, self.absolute_gap, self.options.gap * self.value)
        return self.value - self.bound <= enough + 1e-11

    def run(self) -> BalanceOutcome:
        """Search, relax, and branch over node patterns or over pods.

        The status is ``optimal`` if value and bound are equal, ``feasible`` if the run stopped before, at the requested
        gap or at a limit.
        """
        points = self._relax()
        self._decompose(points)
        view = self.builder.view  # patterns ignore rules and the cards of running pods
        ruled = len(view.rules.what) > 0 or (self.builder.cards and view.home_cards.any())
        small = len(self.builder.pairs[0]) <= self.limits.direct and (ruled or enumerable(self.instance))
        if small and not self.closed and not self.late:
            self._offer(self.best)
            self._rounds()
        value = self.value
        bound = min(self.bound, value)
        proven = value - bound <= PROVEN + 1e-11
        share = f"{(value - bound) / value:.3%} of it" if value else "nothing"
        message = "" if proven else f"the balance is proven to within {value - bound:.6g}, {share}"
        outcome = Outcome(
            Status.OPTIMAL if proven else Status.FEASIBLE,
            self.engine,
            objective=value,
            bound=bound,
            values=self.best.node,
            iterations=self.iterations,
            seconds=time.perf_counter() - self.started,
            message=message,
        )
        return BalanceOutcome(outcome, self.best, self.proof)

    @property
    def annealing(self) -> Annealing:
        """The search."""
        return Annealing(self.options.seed, self.steps, self.builder.move_budget, self.until)

    def _even(self, *, longer: bool = True) -> list[Cluster]:
        enough = max(self.bound + max(PROVEN, self.absolute_gap), self.bound / max(1e-9, 1 - self.options.gap))
        return self.annealing.several(self.best, self.measure, least=self.bound, enough=enough, longer=longer)

    def _offer(self, cluster: Cluster) -> None:
        """Add the tangents of a placement, and keep it if it is better."""
        if self.measure.curved:
            self.points.append((cluster.loads - cluster.loads.mean()) * SCALE)
        if self.measure.value(cluster.loads) < self.value:
            self.best = cluster
            self.better(self.best, self.bound, self.proof, often=True)

    def _decompose(self, points: list[Floats]) -> None:
        """Anneal, and close the gap to the relaxation by node patterns."""
        demand = Demand.of_program(self.instance, self.builder, self.admitted)
        if not len(demand.pod):
            return
        unpriced = len(demand.pod) > self.limits.kinds  # otherwise patterns find more than a long annealing run
        evened_exactly = len(self.builder.pairs[0]) <= self.limits.direct  # by the integer program that follows
        found = self._even(longer=unpriced or (not evened_exactly and self.steps < self.limits.most))
        self.best = found[0]
        self.better(self.best, self.bound, self.proof)
        if self.closed or self.late or unpriced:
            return
        means, outside = self._means(points)

        def polish(cluster: Cluster) -> Cluster:
            mild = self.annealing.once(cluster, self.measure, times=0.25, heat=1e-4)
            return min(cluster, mild, key=lambda each: self.measure.value(each.loads))

        search = GapSearch(
            self.instance,
            demand,
            found,
            self.measure,
            self.builder.move_budget,
            self.bound,
            means,
            max(self.options.gap, self.absolute_gap / max(self.value, PROVEN)),
            min(self.limits.bounding * self.steps, self.limits.longest),
            self.until,
            self.options.seed,
            polish,
            self.limits.intervals,
        )
        search.run()
        if search.proof and search.bound > self.bound:
            self.bound, self.proof = search.bound, BalanceProof(outside, search.proof, demand.of)
        self.best = search.best
        self.iterations += search.columns.rounds

    def _relax(self) -> list[Floats]:
        """Bound by the linear program over node classes; return the tangents."""
        assert self.relaxation is not None
        count = self.relaxation.classes.count
        points = tangents(len(count))
        for _ in range(MAX_ROUNDS):
            found = self.relaxation.even(self.measure, self.admitted, points, self._options(integer=False))
            if found is None:
                break
            prices, at = found
            before, bound = self.bound, to_measure(prices.bound, self.measure, self.size)
            if bound > before:
                self.bound, self.proof = bound, BalanceProof(((0.0, 1.0, prices),))
            little = max(1e-4 * bound, 0.1 * self.options.gap * bound, 0.1 * self.absolute_gap)
            if not self.measure.curved or bound - before <= little:
                break
            points.append(at - float(at @ count) / self.size)
        return points

    def _means(self, points: list[Floats]) -> tuple[tuple[float, float], tuple[tuple[float, float, Prices], ...]]:
        """Interval of the mean load of all placements at least as balanced as the best, with the proof of its ends."""
        limit, means, outside = to_objective(self.value + PROVEN, self.measure, self.size), [0.0, 1.0], []
        for largest in (False, True) if self.relaxation is not None and self.measure.centred else ():
            assert self.relaxation is not None
            found = self.relaxation.end_of_means(
                self.measure, self.admitted, points, limit, self._options(integer=False), largest=largest
            )
            end = -1.0 if found is None else found[0] / SCALE + (1e-6 if largest else -1e-6)  # solver's tolerance
            if found is not None and 0 < end < 1:
                means[largest] = end
                outside.append((end, 1.0, found[1]) if largest else (0.0, end, found[1]))
        return (means[0], means[1]), tuple(outside)

    def _rounds(self) -> None:
        """Solve the program and add tangents at its solution, until there is no progress or the gap is closed."""
        for _ in range(MAX_ROUNDS):
            limit = to_objective(self.value + PROVEN, self.measure, self.size)
            program = self.builder.balance(self.instance.name, self.measure, self.admitted, self.points, at_most=limit)
            outcome = solve(program, self.engine, self._options(integer=True))
            self.iterations, before = self.iterations + outcome.iterations, self.bound
            if outcome.bound is not None and math.isfinite(outcome.bound):
                self.bound = max(self.bound, to_measure(float(outcome.bound), self.measure, self.size))
            elif outcome.status is Status.INFEASIBLE:
                self.bound = self.value  # no placement is better than the best one
            cluster = None if outcome.values is None else self.builder.expand(outcome.values)
            if cluster is not None:
                self._offer(cluster)
            still = outcome.status is not Status.OPTIMAL and self.bound - before <= 1e-3 * self.bound
            if self.closed or self.late or cluster is None or still or not self.measure.curved:
                break

    def _options(self, *, integer: bool) -> SolveOptions:
        options = remaining(self.options, self.until, NODES if integer else 10**7)
        if not integer or not self.options.gap:
            return options
        # The sufficient bound, as a relative gap of the program's objective.
        enough = max(0.0, self.value * (1 - self.options.gap))
        whole = to_objective(self.value, self.measure, self.size)
        return replace(options, gap=min(0.99, 1 - to_objective(enough, self.measure, self.size) / whole))
