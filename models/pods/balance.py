"""Phase 2 of pod placement: even loads with a proven bound, by search from above and programs from below."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.expression import Floats
from flowlex.formulations.outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.models.pods.bounds.branching import PROVEN, GapSearch
from flowlex.models.pods.problem.balance_program import Balance, balance_program, to_measure, to_objective
from flowlex.models.pods.problem.class_program import class_program, mean_program
from flowlex.models.pods.problem.classes import Demand
from flowlex.models.pods.problem.cluster import Cluster, improve, place_in_order
from flowlex.models.pods.problem.program import SCALE
from flowlex.models.pods.search.annealing import anneal_cluster, even_clusters
from flowlex.validation.certificates import Check, certify_program
from flowlex.validation.certificates.pods import balance_of

if TYPE_CHECKING:
    from flowlex.models.pods.model import PodPlacement

__all__ = ["TANGENTS", "BalanceOutcome", "balance_outcome", "relaxed_bound"]

#: First tangent points, in percent of a node's capacity.
TANGENTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
MAX_ROUNDS = 40
#: Up to so many columns x, the integer program comes first; above, patterns of nodes (and up to `BRANCHED` both).
DIRECT, BRANCHED = 150, 1_500
#: Trials of the search per pod.
SEARCH = 6
#: The sum of loads to this power is nearly the power of the largest.
LARGEST = 32
#: Steps of annealing after patterns were put together.
POLISH = 200_000


@dataclass(frozen=True)
class BalanceOutcome:
    """An outcome, the cluster it leaves, and the checks of the linear programs behind its bound."""

    outcome: Outcome
    cluster: Cluster
    checks: tuple[Check, ...] = ()


def balance_outcome(
    model: PodPlacement,
    measure: Balance,
    cluster: Cluster,
    admitted: dict[int, int],
    engine: EngineName,
    options: SolveOptions,
    until: float,
) -> BalanceOutcome:
    """Even the loads out: search for an answer, bound it by relaxations, close the gap by integer programs.

    Status is ``optimal`` when bound and answer meet, ``feasible`` when a gap that was asked for or the time limit
    ended the work before.
    """
    return _Phase2(model, measure, cluster, admitted, engine, options, until).run()


def relaxed_bound(
    model: PodPlacement,
    measure: Balance,
    cluster: Cluster,
    admitted: dict[int, int],
    engine: EngineName,
    options: SolveOptions,
) -> float:
    """No placement with these admitted numbers is more even: the linear relaxation over node classes."""
    until = time.perf_counter() + (options.time_limit_s or 60.0)
    phase = _Phase2(model, measure, cluster, admitted, engine, options, until)
    demand = Demand.of_program(model.instance, model.builder, admitted)
    if len(demand.pod):
        phase._relax_classes(demand)
        return phase.bound
    return phase.value


class _Phase2:
    """One run of phase 2; ``best`` is the best cluster so far, ``bound`` the best proven bound."""

    def __init__(
        self,
        model: PodPlacement,
        measure: Balance,
        cluster: Cluster,
        admitted: dict[int, int],
        engine: EngineName,
        options: SolveOptions,
        until: float,
    ) -> None:
        self.model, self.measure, self.admitted = model, measure, admitted
        self.engine, self.options, self.until = engine, options, until
        self.size = len(model.instance.nodes)
        self.best, self.bound = cluster, 0.0
        self.points: list[Floats] = [np.full(self.size, sign * a) for a in TANGENTS for sign in (1, -1)[: 1 + (a > 0)]]
        self.iterations, self.started, self.late = 0, time.perf_counter(), False
        self.checks: tuple[Check, ...] = ()

    @property
    def value(self) -> float:
        """The balance of the best answer."""
        return balance_of(self.best.loads, self.measure)

    @property
    def closed(self) -> bool:
        """Whether bound and answer are as close as was asked for."""
        return self.value - self.bound <= max(PROVEN, self.options.gap * self.value) + 1e-11

    def run(self) -> BalanceOutcome:
        """Search, relax, and branch over node patterns or over pods."""
        direct = len(self.model.builder.pairs[0]) <= DIRECT
        if direct:
            self._offer(self.best)
            self._rounds(integer=False)
            if not self.closed and self.measure != "deviation":
                self._from_deviation()
            self._search()
        else:
            self._decompose()
        if not self.closed and not self.late and len(self.model.builder.pairs[0]) <= BRANCHED:
            self._rounds(integer=True)
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
        return BalanceOutcome(outcome, self.best, self.checks)

    def _decompose(self) -> None:
        """Anneal, bound by the relaxation over node classes, and close the gap by node patterns."""
        model = self.model
        demand = Demand.of_program(model.instance, model.builder, self.admitted, apart=not model.aggregate)
        if not len(demand.pod):
            return
        points = self._relax_classes(demand)
        seed = self.options.seed
        found = even_clusters(model.instance, self.best, self.measure, least=self.bound, seed=seed, until=self.until)
        self.best = found[0]
        self.late = time.perf_counter() >= self.until - 0.05
        if self.closed or self.late:
            return
        means = (0.0, 1.0) if self.measure == "max_load" else self._means(demand, points)

        def polish(cluster: Cluster, k: int) -> Cluster:
            usual = min(POLISH, 500 * len(model.instance.pods))
            warm, steps = (3e-4, 5 * usual) if k else (1e-4, usual)
            mild = anneal_cluster(
                model.instance, cluster, self.measure, seed=seed + k, steps=steps, until=self.until, heat=warm
            )
            return mild if k else min(cluster, mild, key=lambda each: balance_of(each.loads, self.measure))

        closed = GapSearch(
            model.instance,
            demand,
            found,
            self.measure,
            move_budget=model.move_budget,
            bound=self.bound,
            means=means,
            gap=self.options.gap,
            until=self.until,
            seed=seed,
            polish=polish,
        ).run()
        self.bound, self.best = max(self.bound, closed.bound), closed.cluster
        self.iterations += closed.rounds
        self.late = time.perf_counter() >= self.until - 0.05

    def _relax_classes(self, demand: Demand) -> list[Floats]:
        """Bound by the linear program over node classes, and keep the checks of its duals; return the tangents."""
        size = len(demand.classes.count)
        points = [np.full(size, sign * a) for a in TANGENTS for sign in (1, -1)[: 1 + (a > 0)]]
        for _ in range(MAX_ROUNDS):
            program, loads = class_program(
                self.model.instance.arrays,
                demand,
                self.measure,
                points,
                cards=self.model.cards,
                move_budget=self.model.move_budget,
            )
            outcome = solve(program, self.engine, self._options(False))
            if outcome.values is None or outcome.status is not Status.OPTIMAL:
                break
            before = self.bound
            self.bound = max(self.bound, to_measure(float(outcome.objective or 0), self.measure, self.size))
            self.checks = tuple(
                replace(check, name=f"relaxation over node classes: {check.name}")
                for check in certify_program(program, outcome).checks
            )
            if self.measure != "deviation" or self.bound - before <= 1e-4 * self.bound:
                break
            at = loads.evaluate(outcome.values)
            points.append(at - float(at @ demand.classes.count) / self.size)
        return points

    def _means(self, demand: Demand, points: list[Floats]) -> tuple[float, float]:
        """Between what the mean load lies in every placement that is at least as even as the best; 0 and 1 at worst."""
        limit, ends = to_objective(self.value + PROVEN, self.measure, self.size), [0.0, 1.0]
        for k, sign in enumerate((-1, 1)):
            program = mean_program(
                self.model.instance.arrays,
                demand,
                self.measure,
                points,
                limit,
                cards=self.model.cards,
                move_budget=self.model.move_budget,
                largest=bool(k),
            )
            outcome = solve(program, self.engine, self._options(False))
            if outcome.status is Status.OPTIMAL and outcome.objective is not None:
                ends[k] = float(outcome.objective) / SCALE + sign * 1e-6  # the solver's tolerance
        return ends[0], ends[1]

    def _rounds(self, *, integer: bool) -> None:
        """Solve, add tangents where the answer lies, and solve again, until nothing moves or all is proven."""
        relaxed: Floats | None = None
        for _ in range(MAX_ROUNDS):
            limit = None if integer is False else to_objective(self.value + PROVEN, self.measure, self.size)
            program = balance_program(
                self.model, self.measure, self.admitted, self.points, integer=integer, at_most=limit
            )
            outcome = solve(program, self.engine, self._options(integer))
            self.iterations += outcome.iterations
            before = self.bound
            if outcome.bound is not None and math.isfinite(outcome.bound):
                self.bound = max(self.bound, to_measure(float(outcome.bound), self.measure, self.size))
            elif outcome.status is Status.INFEASIBLE and integer:
                self.bound = self.value  # nothing better than the answer at hand exists
            if outcome.values is not None and integer:
                self._offer(self.model.expand(outcome.values))
            elif outcome.values is not None:
                self._touch_loads(self._loads(outcome.values))
                relaxed = outcome.values
            self.late = time.perf_counter() >= self.until - 0.05
            settled = self.measure != "deviation" or (
                not integer and self.bound - before <= 1e-3 * max(self.bound, 1e-4)
            )
            if self.closed or self.late or outcome.values is None or settled:
                break
        if relaxed is not None and not self.closed:
            self._round_down(relaxed)

    def _search(self) -> None:
        """Empty a few nodes and fill them anew, as often as it takes or `SEARCH` times the number of pods.

        One of the nodes is where the load is furthest from even, the others are drawn.
        """
        view, rng = self.model.instance.arrays, np.random.default_rng(self.options.seed)
        size, power = view.load.max(axis=1, initial=0), LARGEST if self.measure == "max_load" else 0
        value = self.value
        for _ in range(SEARCH * len(view.cpu) if self.size > 1 else 0):
            self.late = time.perf_counter() >= self.until - 0.05
            if self.closed or self.late:
                return
            trial = self.best.copy()
            uneven = trial.loads - (0.0 if power else trial.loads.mean())
            order = np.argsort(-np.abs(uneven))
            worst = order[min(int(rng.exponential(2.0)), self.size - 1)]
            nodes = np.append(rng.choice(self.size, min(self.size, int(rng.integers(1, 4))), replace=False), worst)
            pods = np.flatnonzero(np.isin(trial.node, nodes) & (view.running < 0))
            pods = pods[rng.random(len(pods)) < 0.7]
            for pod in pods.tolist():
                trial.remove(pod)
            noise = size[pods] * rng.uniform(0.7, 1.3, len(pods))
            if place_in_order(trial, pods[np.argsort(-noise)].tolist(), power=power):
                continue
            improve(trial, pods.tolist(), power=power, passes=2)
            found = balance_of(trial.loads, self.measure)
            if found <= value:
                self.best, value = trial, found

    def _from_deviation(self) -> None:
        """Start from the most even fractional loads: they lead to good answers by every measure."""
        program = balance_program(self.model, "deviation", self.admitted, self.points, integer=False)
        outcome = solve(program, self.engine, self._options(False))
        if outcome.values is not None:
            self._round_down(outcome.values)

    def _options(self, integer: bool) -> SolveOptions:
        options = self.options
        options = replace(options, time_limit_s=max(0.1, self.until - time.perf_counter()))
        if not integer:
            return replace(options, gap=0.0)
        if not options.gap:
            return options
        # The bound that suffices, as a relative gap of the program's own objective.
        enough = max(0.0, self.value * (1 - options.gap))
        whole = to_objective(self.value, self.measure, self.size)
        return replace(options, gap=min(0.99, 1 - to_objective(enough, self.measure, self.size) / whole))

    def _round_down(self, values: Floats) -> None:
        """Place whole parts of a relaxation's answer, then the other pods that the best answer has."""
        view, builder = self.model.instance.arrays, self.model.builder
        cluster = Cluster(view, cards=self.model.cards)
        waits = {g: [] for g in range(len(builder.groups.count))}  # type: dict[int, list[int]]
        for pod in np.flatnonzero(self.best.node >= 0)[::-1].tolist():
            if view.running[pod] >= 0:
                cluster.add(pod, int(self.best.node[pod]))
            else:
                waits[int(builder.groups.of[pod])].append(pod)
        group, node = builder.pairs
        whole = np.floor(values[: len(group)] + 1e-6).astype(np.int64)
        gpu = view.gpu[builder.groups.first[group], node] * view.gpu_cards[builder.groups.first[group]]
        for k in np.argsort(-gpu, kind="stable").tolist():
            pods = waits[int(group[k])]
            for _ in range(min(int(whole[k]), len(pods))):
                if cluster.fits(pods[-1])[node[k]]:
                    cluster.add(pods.pop(), int(node[k]))
        left = [pod for pods in waits.values() for pod in pods]
        size = view.load.max(axis=1, initial=0)
        if not place_in_order(cluster, sorted(left, key=lambda pod: (-size[pod], pod))):
            self._offer(cluster)

    def _offer(self, cluster: Cluster) -> None:
        view = self.model.instance.arrays
        improved = cluster.copy()
        self._touch(cluster)
        if balance_of(cluster.loads, self.measure) < self.value:
            self.best = cluster
        movable = np.flatnonzero((improved.node >= 0) & (view.running < 0)).tolist()
        improve(improved, movable)
        if self.measure == "max_load":
            improve(improved, movable, power=LARGEST)
        if balance_of(improved.loads, self.measure) < self.value - 1e-12:
            self.best = improved
            self._touch(improved)

    def _touch(self, cluster: Cluster) -> None:
        self._touch_loads(cluster.loads * SCALE)

    def _touch_loads(self, loads: Floats) -> None:
        if self.measure == "deviation":
            self.points.append(loads - loads.mean())

    def _loads(self, values: Floats) -> Floats:
        builder = self.model.builder
        group, node = builder.pairs
        pod = builder.groups.first[group]
        loads = np.zeros(self.size)
        np.add.at(loads, node, values[: len(group)] * builder.view.load[pod, node] * SCALE)
        return loads
