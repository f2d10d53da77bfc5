r"""Upper bound on the admission of a level by column generation over node patterns (Dantzig-Wolfe).

With multipliers of resources, pods may be split over nodes; multipliers e_g of pods use integer patterns. For any e
and multipliers p of the value kept at each more important level, a placement that keeps these values admits at most

    sum_g n_g max(0, w_g - e_g) - sum p kept + sum over nodes (largest sum of e over the pods of one pattern),

where w_g is the value of a pod of the level itself, and p times its value for levels above. The certificate computes
the best pattern of every node itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.sessions.growing_program import INFINITY
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.bounds.column_generation import Columns, filled
from flowlex.models.pods.bounds.node_patterns import Pattern
from flowlex.models.pods.bounds.price_relaxation import Prices
from flowlex.models.pods.problem.balance_measures import MEASURES
from flowlex.models.pods.problem.integer_program import PlacementProgram, stays
from flowlex.models.pods.problem.node_and_pod_classes import Demand
from flowlex.models.pods.problem.node_fill_state import Cluster

#: Steps of all enumerations for one level, and of one of them: first few, which usually suffices for the patterns of an
#: optimum, then more for the bound; and for large programs, which give patterns but no useful bound.
_STEPS = (20_000_000, 1_000_000), (150_000_000, 20_000_000)
_LARGE = ((20_000_000, 100_000),)


@dataclass(eq=False)
class _Worths(Columns):
    """The master program in which a pattern's profit is the value of its pods of one level; loads have no cost."""

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
    builder: PlacementProgram,
    level: int,
    kept: Sequence[int],
    node: Integers,
    enough: int,
    *,
    large: bool = False,
    until: float | None = None,
) -> tuple[Prices | None, Cluster | None]:
    """Bound a level given the values ``kept`` of the levels above, with proof, and build a placement from patterns.

    A placement is searched only if the bound exceeds ``enough``; bound and placement are None if not found.

    - ``node``: (P,) node of each pod in a placement whose patterns are the first columns.
    - ``enough``: value of the level that is already reached.
    - ``large``: whether to search only a placement, because there are too many patterns for a bound.
    - ``until``: processor time at which to stop.
    """
    levels = builder.levels
    only = [*kept, *[0] * (len(levels.keys) - level)]
    demand = Demand.of_program(instance, builder, only)
    if not len(demand.pod):
        return None, None
    loose, of = demand.least < demand.most, levels.of[demand.pod]
    quota = tuple(each for each in demand.quota if of[each[0][0]] < level)
    most = np.where(loose & (of > level), 0, demand.most)
    demand = replace(demand, most=most, quota=quota)
    measure = MEASURES["max_load"]
    columns = _Worths(instance.arrays, demand, builder.cards, measure, builder.move_budget, until=until)
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
    fixed = stays(instance.arrays, builder.move_budget)
    found = None if chosen is None else filled(instance.arrays, demand.assign(chosen, fixed), cards=builder.cards)
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
    prices = Prices(-proof.bound, none, none, (), paid, stated.move, pods=(pod_price, demand.of))
    return prices, found
