r"""The most of a level that nodes can hold as a whole: column generation over node patterns (Dantzig-Wolfe).

Prices of resources let pods lie on nodes in parts; prices e_g of pods do not. Whatever they are, with p a price of the
worth kept of each more important level, no placement that keeps what these have admits more of a level than

    sum_g n_g max(0, w_g - e_g) - sum p kept + sum over nodes (most that the pods of one pattern are worth at e),

where w_g is the worth of a pod of the level itself, and p times its worth for those above. The certificate searches
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

__all__ = ["most_by_patterns"]

#: Steps of all enumerations for one level, and of one of them: little first, which mostly gives the patterns of an
#: optimum, then more, for the bound; and where a bound is not to be hoped for, but patterns are.
_STEPS = (20_000_000, 1_000_000), (150_000_000, 20_000_000)
_LARGE = ((20_000_000, 100_000),)


@dataclass(eq=False)
class _Worths(Columns):
    """The program whose patterns are worth what they hold of one level; loads cost nothing."""

    worth: Floats = field(init=False)

    def _sides(self, low: float, high: float) -> tuple[Floats, Floats]:
        """Of more important levels at least what is kept, so that its price has a sign."""
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
    """The bound of a level given ``kept`` of those above, with its proof, and a placement made of the patterns.

    The placement is sought where the bound is above ``enough``; either is None where there is none.

    - ``node``: a placement, whose patterns are a start.
    - ``enough``: units of the level below which no bound is sought.
    - ``large``: whether a placement is sought alone, as patterns are too many for a bound.
    - ``until``: when processor time is over.
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
    for k in set(range(level)) - set(price):  # all of it is placed: a unit costs what the most expensive pod pays
        pods = np.flatnonzero((levels.of == k) & (demand.of >= 0))
        price[k] = float((pod_price[demand.of[pods]] / levels.worth[pods]).max(initial=0.0))
    paid = tuple(float(price[k]) for k in range(level))
    none = np.zeros(0)
    prices = Prices(-proof.bound, none, none, (), paid, stated.move, pods=(pod_price, demand.of))
    return prices, found
