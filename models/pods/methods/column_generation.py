r"""Bounds and placements of phase 2 by column generation over node patterns (Dantzig-Wolfe decomposition).

`benchmarks/openb.py`, admission with 45 s: 3290 of at most 3290 pods with patterns, 3250 of 3290 without; 100 nodes
at 130 % load: 99 of 99, without 98 of 115.
The gap of the deviation of 100 nodes at 130 % load is 2.2 %, without patterns 100 %; of the mean distance of 100 nodes
and 500 pods that all fit 3.4 %, without 5.3 %.

The master program chooses one pattern per node such that every pod is placed; the pricing problem is solved by
`flowlex.models.pods.methods.node_patterns`. Any multipliers y give the proven bound

    L(y) = sum_r y_r side_r + sum_k n_k (least priced cost of a pattern of class k),

which is as strong as the relaxation with the convex hull of the patterns of each node. The integer program over the
known patterns gives placements.

The mean of the loads is not known in advance. On an interval a <= mean <= b

    sum_i (u_i - mean)**2  >=  sum_i (u_i - a)(u_i - b),
    sum_i |u_i - mean|     >=  sum_i max(0, u_i - b, a - u_i),

both with equality if a = b, so intervals are split until the bound suffices (branch and bound on the mean). For the
largest load, a target is refuted if the patterns below it cannot place all pods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.sessions.growing_program import INFINITY, GrowingProgram
from flowlex.instances.pods import PodArrays, PodInstance
from flowlex.models.pods.methods.node_class_relaxation import ResourcePrices
from flowlex.models.pods.methods.node_patterns import Pattern, Pricing
from flowlex.models.pods.problem.balance_measures import MEASURES, Measure
from flowlex.models.pods.problem.cluster import Cluster, stays
from flowlex.models.pods.problem.group_rules import broken_rules
from flowlex.models.pods.problem.node_and_pod_classes import Demand
from flowlex.models.pods.problem.placement_columns import PlacementColumns

#: Penalty for violating rows other than those of groups, in units of the scaled objective per node.
_PENALTY = 1e3
_ROUNDS = 80
#: Steps charged for one master program, and nodes of the search tree of one integer master program.
_MASTER, _NODES = 20_000, 500
#: Reduced costs above minus this count as zero.
_NONE = 1e-7
_Patterns = dict[tuple[int, bytes], Pattern]  # by key


@dataclass(frozen=True, eq=False)
class IntervalBound:
    """The bound proven by one master program over an interval."""

    bound: float  # proven lower bound in scaled units; minus infinity if nothing was proven in time
    relaxed: float  # optimum over the known patterns
    mean: float  # mean load of that optimum
    prices: Floats = field(repr=False)  # (rows,) the multipliers that prove the bound
    settled: bool  # whether pricing found no improving pattern


@dataclass(frozen=True, eq=False)
class PodPrices:
    """Multipliers that bound the balance's sum for mean loads in [``low``, ``high``] (largest load: up to ``high``)."""

    low: float
    high: float
    pod: Floats = field(repr=False)  # (G,) multiplier of a pod of each group
    # mean, move: multipliers of the sum of all loads, and of the move budget
    mean: float
    move: float
    # A pod of each level of which some pods wait, and the multiplier of a unit of the level
    quota: tuple[tuple[int, float], ...] = ()


@dataclass(eq=False)
class PatternMaster:
    """Patterns of one balance problem and the programs over them."""

    view: PodArrays
    demand: Demand
    cards: bool
    measure: Measure
    move_budget: float
    # centre, scale: loads are scaled as (u - centre) / scale
    centre: float = 0.0
    scale: float = 1.0
    tolerance: float = 1e-4  # tolerance of the proven cost of a best pattern
    # steps, pricing_steps: limits of the steps of the enumeration of patterns: in total (a master program counts
    # `_MASTER`), and for one class at one set of multipliers
    steps: int = 0
    until: float | None = None
    seed: int = 0
    pricing_steps: int = 1_000_000

    def __post_init__(self) -> None:
        demand, shared = self.demand, (self.cards, self.measure, self.centre, self.scale)
        self.pricing = [Pricing(self.view, demand, k, *shared) for k in range(len(demand.classes.count))]
        self.pool: _Patterns = {}
        self._packs: dict[tuple[int, bytes], bool] = {}
        self.size = int(demand.classes.count.sum())
        self.rounds = 0
        groups = len(demand.pod)
        quota = np.zeros((len(demand.quota), groups))
        for row, (members, worth, _) in zip(quota, demand.quota, strict=True):
            row[members] = worth
        self.placing: Floats = np.concatenate([np.eye(groups), quota])  # coefficients of group and quota rows

    @property
    def late(self) -> bool:
        """Whether the limit of steps or of time is reached."""
        return self.steps <= 0 or (self.until is not None and processor_seconds() >= self.until)

    @property
    def left(self) -> float | None:
        """Seconds left, at least a little; None without a limit."""
        return None if self.until is None else max(0.02, self.until - processor_seconds())

    def learn(self, node: Integers) -> None:
        """Add the patterns of a placement."""
        for kind, counts in self.demand.patterns(node):
            pattern = self.pricing[kind].pattern(counts)
            self.pool.setdefault(pattern.key, pattern)

    # Rows: groups, quotas, budget, mean, classes.

    def _sides(self, low: float, high: float) -> tuple[Floats, Floats]:
        demand = self.demand
        quota = [float(count) for _, _, count in demand.quota]
        budget = [self.move_budget] if demand.move_cost.any() else []
        mean = [(low, high)] if self.measure.centred else []
        lower = [*demand.least, *quota, *[-INFINITY] * len(budget), *(a * self.size for a, _ in mean)]
        upper = [*demand.most, *quota, *budget, *(b * self.size for _, b in mean)]
        classes = demand.classes.count.astype(np.float64)
        return np.append(lower, classes), np.append(upper, classes)

    def _coupling(self, kind: int) -> Floats:
        """Return the coefficients of a pod of each group on a class, (rows, G), in group, quota and budget rows."""
        cost = self.demand.move_cost
        return np.concatenate([self.placing, cost[:, kind][None]]) if cost.any() else self.placing

    def _column(self, pattern: Pattern) -> tuple[list[int], list[float]]:
        load = [(pattern.load - self.centre) / self.scale] if self.measure.centred else []
        values = np.append(self._coupling(pattern.kind) @ pattern.counts, load)
        rows = np.flatnonzero(values)
        return [*rows.tolist(), len(values) + pattern.kind], [*values[rows].tolist(), 1.0]

    def _cost(self, pattern: Pattern, low: float, high: float) -> float:
        return self.measure.cost((pattern.load - self.centre) / self.scale, low, high)

    def _usable(self, pattern: Pattern, high: float) -> bool:
        return self.measure.centred or (pattern.load - self.centre) / self.scale <= high + 1e-9

    def priced(self, duals: Floats, kind: int) -> tuple[Floats, float]:
        """Return the multipliers of each group on a class, and of the scaled load."""
        coupling = self._coupling(kind)
        return duals[: len(coupling)] @ coupling, float(duals[len(coupling)]) if self.measure.centred else 0.0

    def stated(self, proof: IntervalBound, low: float, high: float) -> PodPrices:
        """Return the multipliers of a proof in units of loads."""
        unit, paid = self.measure.total(self.scale, 1), len(self.placing)
        pod, rest = proof.prices[:paid] @ self.placing, proof.prices[paid:]
        budget = bool(self.demand.move_cost.any())
        move = max(0.0, -float(rest[0])) if budget else 0.0
        mean = -float(rest[int(budget)]) if self.measure.centred else 0.0
        ends = (self.centre + self.scale * low if self.measure.centred else 0.0, self.centre + self.scale * high)
        of_quota = proof.prices[len(self.demand.pod) : paid] * unit
        members = [int(self.demand.pod[groups[0]]) for groups, _, _ in self.demand.quota]
        quota = tuple(zip(members, of_quota.tolist(), strict=True))
        return PodPrices(*ends, pod * unit, mean * unit / self.scale, move * unit, quota)

    def prove(self, low: float, high: float, target: float) -> IntervalBound:
        """Bound the balance over an interval of the mean, in scaled units (largest load: with the cap ``high``).

        It ends if the bound reaches ``target``, if no pattern improves it, or at a limit.
        """
        lower, upper = self._sides(low, high)
        master = GrowingProgram(seed=self.seed)
        for a, b in zip(lower.tolist(), upper.tolist(), strict=True):
            master.add_row(a, b)
        for row, penalty in enumerate(self._penalties(len(lower)).tolist()):
            master.add_column(penalty, rows=[row], values=[1.0])
            master.add_column(penalty, rows=[row], values=[-1.0])
        inside: _Patterns = {}
        for pricing in self.pricing:
            pricing.low, pricing.high = low, high
        for pattern in self.pool.values():
            self._enter(master, inside, pattern, low, high)
        best, centre = -math.inf, np.zeros(len(lower))
        relaxed, mean, settled = math.inf, 0.0, False
        for turn in range(_ROUNDS):
            outcome = master.solve(time_limit_s=self.left)
            if outcome.duals is None or outcome.values is None:
                break
            self.rounds, self.steps = self.rounds + 1, self.steps - _MASTER
            relaxed = outcome.objective
            mean = self._mean(outcome.values, inside)
            if self._hopeless(relaxed, target, low, high) and turn:
                break
            for weight, coarse in ((0.5, 8), (0.0, 8), (0.0, 1)) if turn else ((0.0, 8),):
                duals = weight * centre + (1 - weight) * outcome.duals
                bound, found = self._lagrangian(duals, lower, upper, self.tolerance * coarse)
                if bound > best:
                    best, centre = bound, duals
                new = 0
                for pattern in found:
                    if pattern.key not in inside and self._reduced(pattern, outcome.duals, low, high) < -_NONE:
                        self.pool.setdefault(pattern.key, pattern)
                        self._enter(master, inside, pattern, low, high)
                        new += 1
                if new or best >= target or self.late:
                    break
            settled = new == 0 and turn > 0
            if best >= target or settled or self.late:
                break
        return IntervalBound(best, relaxed, mean, centre, settled)

    def _penalties(self, rows: int) -> Floats:
        """Penalty for violating each row; for groups of the order of a pod's cost, which stabilizes the duals."""
        if not self.measure.centred:
            return np.ones(rows)
        penalties = np.full(rows, _PENALTY)
        size = np.where(self.demand.may, self.demand.load, 0.0).max(axis=1, initial=0.0) / self.scale
        groups = slice(0, len(self.demand.pod))
        penalties[groups] = self.measure.penalty(size)
        return penalties

    def _hopeless(self, relaxed: float, target: float, low: float, high: float) -> bool:
        """Return whether the interval must be split anyway, so that its bound need not be improved."""
        return self.measure.centred and relaxed < target and high - low > 0.02

    def _enter(self, master: GrowingProgram, inside: _Patterns, pattern: Pattern, low: float, high: float) -> None:
        if self._usable(pattern, high):
            rows, values = self._column(pattern)
            master.add_column(self._cost(pattern, low, high), rows=rows, values=values)
            inside[pattern.key] = pattern

    def _mean(self, values: Floats, inside: _Patterns) -> float:
        taken = values[len(values) - len(inside) :]
        loads = np.array([pattern.load for pattern in inside.values()])
        return float((taken @ loads / self.size - self.centre) / self.scale) if len(inside) else 0.0

    def _reduced(self, pattern: Pattern, duals: Floats, low: float, high: float) -> float:
        rows, values = self._column(pattern)
        return self._cost(pattern, low, high) - float(duals[rows] @ np.array(values))

    def _lagrangian(self, duals: Floats, lower: Floats, upper: Floats, tolerance: float) -> tuple[float, list[Pattern]]:
        """Return the Lagrangian bound of the duals, and the best patterns of the pricing problems.

        The last rows, one for each class, become the pricing problems, so their duals are not used.
        """
        counts = self.demand.classes.count
        y = duals[: len(lower) - len(counts)]
        sides = np.where(y > 0, lower[: len(y)], upper[: len(y)])
        missing = np.isinf(sides)  # there is no bound with a multiplier of such a side
        y = np.where(missing, 0.0, y)
        bound = float((y * np.where(missing, 0.0, sides)).sum())
        found = []
        for kind, pricing in enumerate(self.pricing):
            prices, load = self.priced(np.append(y, np.zeros(len(counts))), kind)
            limit = max(1_000, min(self.steps, self.pricing_steps))
            least, pattern = pricing.best(prices, -load, tolerance=tolerance, limit=limit)
            self.steps -= pricing.steps
            bound += float(counts[kind]) * least
            if pattern is not None:
                found += [pattern, *pricing.others]
        return bound, found

    # Placements

    def packs(self, pattern: Pattern) -> bool:
        """Return whether best-fit decreasing packs the pattern's pods on the cards of a node."""
        known = self._packs.get(pattern.key)
        if known is None:
            node = int(self.demand.classes.first[pattern.kind])
            pods = [*self.demand.base[pattern.kind].tolist()]
            for g in np.flatnonzero(pattern.counts).tolist():
                pods += np.flatnonzero(self.demand.of == g)[: pattern.counts[g]].tolist()
            known = Cluster(self.view, cards=self.cards).pack(np.array(pods, np.int64), np.full(len(pods), node))
            self._packs[pattern.key] = known
        return known

    def whole(self, mean: float, high: float, gap: float) -> dict[int, list[Integers]] | None:
        """Solve the integer master program; return the counts of each node by class, or None if none was found."""
        patterns = [p for p in self.pool.values() if self._usable(p, high) and self.packs(p)]
        lower, upper = self._sides(-INFINITY, INFINITY)
        program = GrowingProgram(seed=self.seed)
        for a, b in zip(lower.tolist(), upper.tolist(), strict=True):
            program.add_row(a, b)
        counts = self.demand.classes.count
        for pattern in patterns:
            rows, values = self._column(pattern)
            program.add_column(
                self._taken(pattern, mean), float(counts[pattern.kind]), rows=rows, values=values, integer=True
            )
        outcome = program.solve(time_limit_s=self.left, gap=gap, max_nodes=_NODES)
        if outcome.values is None:
            return None
        chosen: dict[int, list[Integers]] = {k: [] for k in range(len(counts))}
        for pattern, times in zip(patterns, np.rint(outcome.values).astype(np.int64).tolist(), strict=True):
            chosen[pattern.kind] += [pattern.counts] * times
        return chosen

    def _taken(self, pattern: Pattern, mean: float) -> float:
        """Cost of a pattern in the integer master program."""
        load = (pattern.load - self.centre) / self.scale - mean
        return self.measure.cost(load, 0.0, 0.0) if self.measure.centred else load * load


def filled(view: PodArrays, node: Integers, *, cards: bool) -> Cluster | None:
    """Return the placement of pods on nodes ((P,), -1: waits); None if cards do not fit or a rule is broken."""
    cluster, placed = Cluster(view, cards=cards), np.flatnonzero(node >= 0)
    return cluster if cluster.pack(placed, node[placed]) and not broken_rules(view, cluster.node) else None


#: Steps of all enumerations for one level, and of one of them: first few, which usually suffices for the patterns of an
#: optimum, then more for the bound; and for large programs, which give patterns but no useful bound.
_STEPS = (20_000_000, 1_000_000), (150_000_000, 20_000_000)
_LARGE = ((20_000_000, 100_000),)


@dataclass(eq=False)
class _AdmissionMaster(PatternMaster):
    """The master program in which a pattern's profit is the value of its pods of one level; loads have no cost.

    Multipliers of resources let pods be split over nodes; multipliers e_g of pods use integer patterns. For any e and
    multipliers p of the value kept at each more important level, a placement that keeps these values admits at most

        sum_g n_g max(0, w_g - e_g) - sum p kept + sum over nodes (largest sum of e over the pods of one pattern),

    where w_g is the value of a pod of the level itself, and p times its value for levels above.
    """

    worth: Floats = field(init=False)

    def _sides(self, low: float, high: float) -> tuple[Floats, Floats]:
        """Keep at least the value of more important levels (not exactly), so that its multiplier has a known sign."""
        lower, upper = super()._sides(low, high)
        groups = len(self.demand.pod)
        upper[groups : groups + len(self.demand.quota)] = INFINITY
        return lower, upper

    def _cost(self, pattern: Pattern, low: float, high: float) -> float:
        return -float(self.worth @ pattern.counts)

    def _taken(self, pattern: Pattern, mean: float) -> float:
        return -float(self.worth @ pattern.counts)

    def _penalties(self, rows: int) -> Floats:
        return np.full(rows, 100.0 * (1.0 + self.worth.max(initial=0.0)))

    def priced(self, duals: Floats, kind: int) -> tuple[Floats, float]:
        prices, load = super().priced(duals, kind)
        return prices + self.worth, load


def most_by_patterns(
    instance: PodInstance,
    placeable: PlacementColumns,
    level: int,
    kept: Sequence[int],
    node: Integers,
    enough: int,
    *,
    large: bool = False,
    until: float | None = None,
) -> tuple[ResourcePrices | None, Cluster | None]:
    """Bound a level given the values ``kept`` of the levels above, with proof, and build a placement from patterns.

    A placement is searched only if the bound exceeds ``enough``; bound and placement are None if not found.

    - ``node``: (P,) node of each pod in a placement whose patterns are the first columns.
    - ``enough``: value of the level that is already reached.
    - ``large``: whether to search only a placement, because there are too many patterns for a bound.
    - ``until``: processor time at which to stop.
    """
    levels = placeable.levels
    only = [*kept, *[0] * (len(levels.keys) - level)]
    demand = Demand.of_program(instance, placeable, only)
    if not len(demand.pod):
        return None, None
    loose, of = demand.least < demand.most, levels.of[demand.pod]
    quota = tuple(each for each in demand.quota if of[each[0][0]] < level)
    most = np.where(loose & (of > level), 0, demand.most)
    demand = replace(demand, most=most, quota=quota)
    measure = MEASURES["max_load"]
    columns = _AdmissionMaster(instance.arrays, demand, placeable.cards, measure, placeable.move_budget, until=until)
    columns.worth = np.where(loose & (of == level), levels.worth[demand.pod], 0).astype(np.float64)
    columns.learn(np.where(levels.of > level, -1, node))
    chosen, value = None, float(enough)
    for columns.steps, columns.pricing_steps in _LARGE if large else _STEPS:
        proof = columns.prove(-np.inf, np.inf, -value - 0.99)
        better = columns.whole(0.0, np.inf, 0.0) if -proof.bound >= value + 1 else None
        found_value = 0.0 if better is None else float(sum(columns.worth @ sum(each) for each in better.values()))
        if found_value > value:
            chosen, value = better, found_value
        if -proof.bound < value + 1:
            break
    fixed = stays(instance.arrays, placeable.move_budget)
    found = None if chosen is None else filled(instance.arrays, demand.assign(chosen, fixed), cards=placeable.cards)
    if not np.isfinite(proof.bound):
        return None, found
    stated = columns.stated(proof, -np.inf, np.inf)
    price = dict(zip([int(of[members[0]]) for members, _, _ in quota], proof.prices[len(demand.pod) :], strict=False))
    pod_price = stated.pod + columns.worth
    for k in set(range(level)) - set(price):  # all pods of the level are placed: use its largest multiplier
        pods = np.flatnonzero((levels.of == k) & (demand.of >= 0))
        price[k] = float((pod_price[demand.of[pods]] / levels.worth[pods]).max(initial=0.0))
    paid = tuple(float(price[k]) for k in range(level))
    none = np.zeros(0)
    prices = ResourcePrices(-proof.bound, none, none, (), paid, stated.move, pods=(pod_price, demand.of))
    return prices, found
