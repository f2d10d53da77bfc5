"""Close the gap of phase 2 with node patterns, by branch and bound on the mean load or on the largest load.

See `flowlex.models.pods.bounds.column_generation` for the bounds. The bound is proven even if the search stops early.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.bounds.column_generation import Columns, PodPrices, filled
from flowlex.models.pods.problem.balance_measures import Measure
from flowlex.models.pods.problem.integer_program import stays
from flowlex.models.pods.problem.node_and_pod_classes import Demand
from flowlex.models.pods.problem.node_fill_state import Cluster

#: Largest difference of value and bound, as a fraction of a node's capacity, that counts as zero.
PROVEN = 1e-6
#: Half-width of the first interval of the mean, in units of the balance.
_FIRST = 0.15
#: Steps of the search for the largest provable target.
_BISECTIONS = 8
#: Most initial patterns from known placements, and most patterns for which the integer master program is solved.
_KNOWN, _WHOLE = 1_000, 3_000
#: A smaller infeasibility may be due to rounding.
_REFUTED = 1e-4
#: Number of consecutive integer master programs without a better placement after which no more are tried.
_FRUITLESS = 2


@dataclass(frozen=True)
class _Leaf:
    """An interval of the mean, in scaled units, and the multipliers that bound the balance there."""

    low: float
    high: float
    proof: PodPrices | None


@dataclass(eq=False)
class GapSearch:
    """Improves lower bound and placement until their relative gap is at most ``gap``.

    - ``clusters``: known placements, the best first; a source of patterns.
    - ``bound``: the best proven lower bound, initially a known one.
    - ``means``: interval of the mean load of all placements at least as balanced as the best.
    - ``steps``: limit of the steps of bounding.
    - ``polish``: improves a placement by annealing.
    - ``best``, ``proof``: the best placement; the proof of the bound, empty if the bound was known before.
    """

    instance: PodInstance
    demand: Demand
    clusters: list[Cluster]
    measure: Measure
    move_budget: float
    bound: float
    means: tuple[float, float]
    gap: float
    steps: int
    until: float | None
    seed: int
    polish: Callable[[Cluster], Cluster]
    intervals: int
    proof: tuple[PodPrices, ...] = ()

    def __post_init__(self) -> None:
        instance, measure = self.instance, self.measure
        self.best = self.clusters[0]
        self.fixed: Integers = stays(instance.arrays, self.move_budget)
        self.size: int = len(instance.nodes)
        self.mean: float = float(self.best.loads.mean())
        self.scale: float = max(self.value if measure.centred else 0.1 * self.value, PROVEN)
        self.columns: Columns = Columns(
            instance.arrays,
            self.demand,
            cards=self.best.cards,
            measure=measure,
            move_budget=self.move_budget,
            centre=self.mean,
            scale=self.scale,
            tolerance=max(1e-6, min(1e-3, self.gap / 80)),
            steps=self.steps,
            until=self.until,
            seed=self.seed,
        )
        for cluster in self.clusters:
            if len(self.columns.pool) < _KNOWN:
                self.columns.learn(cluster.node)
        self.tried: int = 0
        self.fruitless: int = 0

    @property
    def value(self) -> float:
        """The balance of the best placement."""
        return self.measure.value(self.best.loads)

    @property
    def enough(self) -> float:
        """The smallest bound that closes the gap."""
        return max(0.0, min(self.value * (1 - self.gap) + 1e-12, self.value - PROVEN))

    def run(self) -> None:
        """Search until the gap is closed, a limit is reached, or no further progress is possible."""
        if self.measure.centred:
            self._by_mean()
        else:
            self._largest()
        self.bound = min(self.bound, self.value)

    # Deviation and mean absolute deviation: intervals of the mean.

    def _scaled(self, value: float) -> float:
        """Convert a balance to the scaled sum that the programs bound."""
        return self.measure.total(value / self.scale, self.size)

    def _unscaled(self, total: float) -> float:
        return self.scale * self.measure.of_total(max(0.0, total), self.size)

    def _by_mean(self) -> None:
        """Improve the bound of the interval with the least bound, or split it, until the gap is closed."""
        low, high = ((mean - self.mean) / self.scale for mean in self.means)
        cuts = [low, *(c for c in (-_FIRST, _FIRST) if low < c < high), high]
        leaves = [_Leaf(a, b, None) for a, b in pairwise(cuts)]
        queue = [(-math.inf, abs(leaf.low + leaf.high), k) for k, leaf in enumerate(leaves)]
        heapq.heapify(queue)
        final: list[tuple[float, int]] = []  # intervals whose bound cannot be improved
        narrow = self.measure.narrow(self.gap)
        for _ in range(self.intervals):
            target = self._scaled(self.enough)
            if self.columns.late or not queue or queue[0][0] >= min([target, *(bound for bound, _ in final)]):
                break
            known, _, k = heapq.heappop(queue)
            low, high = leaves[k].low, leaves[k].high
            proof = self.columns.prove(low, high, target)
            if proof.bound > known:
                leaves[k] = _Leaf(low, high, self.columns.stated(proof, low, high))
            found = max(known, proof.bound)
            if found < target:
                self._answer(proof.mean, math.inf)
            if found >= self._scaled(self.enough) or self.columns.late:
                heapq.heappush(queue, (found, 0.0, k))
            elif high - low <= narrow and proof.settled:
                final.append((found, k))
            else:
                cut = proof.mean if low + 0.1 * (high - low) < proof.mean < high - 0.1 * (high - low) else 0.0
                cut = cut or 0.5 * (low + high)
                for a, b in ((low, cut), (cut, high)):
                    heapq.heappush(queue, (found, abs(a + b), len(leaves)))
                    leaves.append(_Leaf(a, b, leaves[k].proof))
        ends = [*final, *((bound, k) for bound, _, k in queue)]
        least = min(self._scaled(self.value), min((bound for bound, _ in ends), default=-math.inf))
        proofs = {id(leaves[k].proof): leaves[k].proof for _, k in ends}
        bound = self._unscaled(least) if math.isfinite(least) else 0.0
        if bound > self.bound:
            self.bound, self.proof = bound, tuple(each for each in proofs.values() if each is not None)

    # Largest load: targets.

    def _largest(self) -> None:
        """Refute targets below the best placement by bisection."""
        low, high = self.bound, self.value
        target = self.enough
        for _ in range(_BISECTIONS * 4):
            if self.columns.late or self.bound >= self.enough or high - low <= 1e-3 * self.gap * high + PROVEN:
                break
            cap = (target - self.mean) / self.scale
            proof = self.columns.prove(-math.inf, cap, math.inf)
            if proof.bound > _REFUTED:
                low = self.bound = max(self.bound, target)
                self.proof = (self.columns.stated(proof, -math.inf, cap),)
            elif self.columns.late:
                break
            elif self._answer(0.0, cap):
                high = min(high, self.value)
            else:
                high = min(high, target)  # a fractional solution exists, but no integer one was found
            target = self.enough if low < self.enough < high else 0.5 * (low + high)

    # Answers

    def _answer(self, mean: float, cap: float) -> bool:
        """Search a better placement among the known patterns, if there are new ones; return whether one was found."""
        known = len(self.columns.pool)
        if (known == self.tried and self.measure.centred) or known > _WHOLE or self.fruitless == _FRUITLESS:
            return False
        self.tried, self.fruitless = known, self.fruitless + 1
        chosen = self.columns.whole(mean, cap, 1e-4)
        if chosen is None:
            return False
        cluster = filled(self.instance.arrays, self.demand.assign(chosen, self.fixed), cards=self.best.cards)
        if cluster is None:
            return False
        cluster = self.polish(cluster)
        self.columns.learn(cluster.node)
        if self.measure.value(cluster.loads) >= self.value - 1e-12:
            return False
        self.best, self.fruitless = cluster, 0
        return True
