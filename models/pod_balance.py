"""Phase 2 of pod placement: even loads with a proven bound, by search from above and programs from below."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.expression import Expression, Floats, Variables
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.models.pod_program import SCALE
from flowlex.models.pod_state import Cluster, improve, place_in_order
from flowlex.validation.certificates.pods import balance_of

if TYPE_CHECKING:
    from flowlex.models.pod_placement import PodPlacement

__all__ = ["Balance", "BalanceOutcome", "balance_outcome", "balance_program"]

Balance: TypeAlias = Literal["deviation", "max_load", "mean_absolute"]

#: Answer and bound this close, as fractions of a node's capacity, count as met.
PROVEN = 1e-6
#: First tangent points, in percent of a node's capacity.
TANGENTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
MAX_ROUNDS = 40
#: Trials of the search per pod.
SEARCH = 6
#: The sum of loads to this power is nearly the power of the largest.
LARGEST = 32


@dataclass(frozen=True)
class BalanceOutcome:
    """An outcome and the cluster it leaves."""

    outcome: Outcome
    cluster: Cluster


def balance_program(
    model: PodPlacement,
    measure: Balance,
    admitted: dict[int, int],
    points: list[Floats],
    *,
    integer: bool = True,
    at_most: float | None = None,
) -> LinearProgram:
    """The program of phase 2, in percent; for ``deviation`` its objective is the sum of squares seen by tangents.

    Parameters
    ----------
    admitted
        Pods of each class that have to be placed.
    points
        Tangent points: (N,) each.
    at_most
        The objective of a known answer, to cut off what is worse.
    """
    builder = model.builder
    program, x = builder.program(model.instance.name, integer=integer)
    if admitted:
        builder.keep(program, x, admitted)
    loads, size = builder.loads(x), len(model.instance.nodes)
    if measure == "max_load":
        largest = program.variables("largest_load", 1)
        program.constrain("largest", loads - _copies(largest, size), "<=", 0.0)
        objective = largest.sum()
    elif measure == "mean_absolute":
        apart = program.variables("apart", size)
        mean = program.variables("mean", 1)
        program.constrain("mean_load", loads.sum() - mean * float(size), "==", 0.0)
        centred = loads - _copies(mean, size)
        program.constrain("above", centred - apart, "<=", 0.0)
        program.constrain("below", centred + apart, ">=", 0.0)
        objective = apart.sum()
    else:
        squares = program.variables("square", size)
        distance = loads - _copies(program.variables("centre", 1), size)
        for k, point in enumerate(points):
            program.constrain(f"tangent_{k}", squares - distance * (2.0 * point), ">=", -(point**2))
        objective = squares.sum()
    if at_most is not None:
        program.constrain("at_most", objective, "<=", at_most)
    program.minimize(objective)
    return program


def _copies(variable: Variables, count: int) -> Expression:
    return Expression(np.arange(count), np.repeat(variable.column, count), np.ones(count), np.zeros(count))


def _to_measure(value: float, measure: Balance, size: int) -> float:
    """Turn a program's objective (percent) into the balance measure (a fraction)."""
    value = max(0.0, value)
    if measure == "max_load":
        return value / SCALE
    return value / SCALE / size if measure == "mean_absolute" else math.sqrt(value / size) / SCALE


def _to_objective(value: float, measure: Balance, size: int) -> float:
    """The other way round."""
    if measure == "max_load":
        return value * SCALE
    return value * SCALE * size if measure == "mean_absolute" else (value * SCALE) ** 2 * size


def balance_outcome(
    model: PodPlacement,
    measure: Balance,
    cluster: Cluster,
    admitted: dict[int, int],
    engine: EngineName,
    options: SolveOptions,
    until: float | None,
) -> BalanceOutcome:
    """Even the loads out: search for an answer, bound it by relaxations, close the gap by integer programs.

    Status is ``optimal`` when bound and answer meet, ``feasible`` when a gap that was asked for or the time limit
    ended the work before.
    """
    return _Phase2(model, measure, cluster, admitted, engine, options, until).run()


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
        until: float | None,
    ) -> None:
        self.model, self.measure, self.admitted = model, measure, admitted
        self.engine, self.options, self.until = engine, options, until
        self.size = len(model.instance.nodes)
        self.best, self.bound = cluster, 0.0
        self.points: list[Floats] = [np.full(self.size, sign * a) for a in TANGENTS for sign in (1, -1)[: 1 + (a > 0)]]
        self.iterations, self.started, self.late = 0, time.perf_counter(), False

    @property
    def value(self) -> float:
        """The balance of the best answer."""
        return balance_of(self.best.loads, self.measure)

    @property
    def closed(self) -> bool:
        """Whether bound and answer are as close as was asked for."""
        return self.value - self.bound <= max(PROVEN, self.options.gap * max(1.0, self.value))

    def run(self) -> BalanceOutcome:
        """Search, relax, branch."""
        self._offer(self.best)
        self._rounds(integer=False)
        if not self.closed and self.measure != "deviation":
            self._from_deviation()
        self._search()
        if not self.closed and not self.late:
            self._rounds(integer=True)
        value = self.value
        bound = min(self.bound, value)
        proven = value - bound <= PROVEN
        message = "" if proven else f"the balance is proven to within {value - bound:.6g}"
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
        return BalanceOutcome(outcome, self.best)

    def _rounds(self, *, integer: bool) -> None:
        """Solve, add tangents where the answer lies, and solve again, until nothing moves or all is proven."""
        relaxed: Floats | None = None
        for _ in range(MAX_ROUNDS):
            limit = None if integer is False else _to_objective(self.value + PROVEN, self.measure, self.size)
            program = balance_program(
                self.model, self.measure, self.admitted, self.points, integer=integer, at_most=limit
            )
            outcome = solve(program, self.engine, self._options(integer))
            self.iterations += outcome.iterations
            before = self.bound
            if outcome.bound is not None and math.isfinite(outcome.bound):
                self.bound = max(self.bound, _to_measure(float(outcome.bound), self.measure, self.size))
            elif outcome.status is Status.INFEASIBLE and integer:
                self.bound = self.value  # nothing better than the answer at hand exists
            if outcome.values is not None and integer:
                self._offer(self.model.expand(outcome.values))
            elif outcome.values is not None:
                self._touch_loads(self._loads(outcome.values))
                relaxed = outcome.values
            self.late = self.until is not None and time.perf_counter() >= self.until - 0.05
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
            self.late = self.until is not None and time.perf_counter() >= self.until - 0.05
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
        if self.until is not None:
            options = replace(options, time_limit_s=max(0.1, self.until - time.perf_counter()))
        if not integer:
            return replace(options, gap=0.0)
        if not options.gap:
            return options
        # The bound that suffices, as a relative gap of the program's own objective.
        enough = max(0.0, self.value - options.gap * max(1.0, self.value))
        whole = _to_objective(self.value, self.measure, self.size)
        return replace(options, gap=min(0.99, 1 - _to_objective(enough, self.measure, self.size) / whole))

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
