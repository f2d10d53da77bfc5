r"""Closing what a proof by prices leaves open, on few nodes: all patterns that a better answer could use, and all ways
to choose one for every node.

Whatever the prices, an answer with the patterns P_i costs at least L + sum_i e_i, where L is the proven bound and e_i
>= 0 the reduced cost of P_i above the least of its class. An answer better than a known one therefore has only patterns
with e_i up to the gap, and their sum stays within it. On few nodes that leaves few enough to try them all (Baldacci,
Christofides, Mingozzi, 2008, do so for routes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowlex.formulations.arrays import Floats, Integers
from flowlex.models.pods.bounds.columns import Columns, Proof
from flowlex.models.pods.bounds.patterns import Pricing

__all__ = ["Cover", "best_cover"]

#: Nodes up to which it is tried; patterns of one class; steps of each enumeration, and of choosing.
_NODES, _PATTERNS, _STEPS, _CHOICES = 12, 20_000, 2_000_000, 5_000_000


@dataclass(frozen=True, eq=False)
class Cover:
    """That all was tried, and class to the patterns of its nodes where something better was found."""

    chosen: dict[int, list[Integers]] | None


def best_cover(columns: Columns, proof: Proof, total: float) -> Cover | None:
    """The best answer of the interval last priced with a total below ``total``; None when not all was tried.

    Parameters
    ----------
    proof
        Prices of this interval.
    total
        In scaled units, of a known answer.
    """
    from flowlex.models.pods.bounds.cover_kernels import cover

    demand = columns.demand
    if not columns.measure.centred or columns.size > _NODES or not np.isfinite(proof.bound):
        return None
    slack = total - proof.bound
    tables: list[tuple[Integers, Floats, Floats]] = []
    for kind, pricing in enumerate(columns.pricing):
        prices, load = columns.priced(proof.prices, kind)
        found = _near(pricing, prices, -load, slack)
        if found is None:
            return None
        tables.append(found)
    order = sorted(range(len(tables)), key=lambda k: len(tables[k][1]))  # the fewest first
    start = np.concatenate([[0], np.cumsum([len(tables[k][1]) for k in order])])
    worth, quota = np.zeros((len(demand.quota), len(demand.pod))), np.array([float(n) for _, _, n in demand.quota])
    for q, (members, each, _) in enumerate(demand.quota):
        worth[q, members] = each
    _, at, whole = cover(
        columns.measure.mode,
        *(np.concatenate([tables[k][part] for k in order]) for part in range(3)),
        np.concatenate([tables[k][0] @ demand.move_cost[:, k] for k in order]),
        start,
        np.repeat(np.arange(len(order)), demand.classes.count[order]),
        demand.least,
        demand.most,
        worth,
        quota,
        columns.move_budget,
        slack,
        total,
        _CHOICES,
    )
    if not whole:
        return None
    if at[0] < 0:
        return Cover(None)
    chosen: dict[int, list[Integers]] = {k: [] for k in order}
    for m in at.tolist():
        place = int(np.searchsorted(start, m, "right")) - 1
        chosen[order[place]].append(tables[order[place]][0][m - start[place]])
    return Cover(chosen)


def _near(pricing: Pricing, prices: Floats, slope: float, slack: float) -> tuple[Integers, Floats, Floats] | None:
    """Counts by group, scaled load and excess of all patterns within ``slack`` of the best, by rising excess."""
    from flowlex.models.pods.bounds.cover_kernels import patterns_within

    least, _ = pricing.best(prices, slope, tolerance=1e-9, limit=_STEPS)
    groups, shape = pricing.by_group()
    price = prices[groups]
    rank = np.argsort(-price / np.maximum(shape[:, 4], 1e-12), kind="stable")
    groups, shape, price = groups[rank], shape[rank], price[rank]
    table, met = np.zeros((_PATTERNS, len(groups)), np.int64), np.zeros((_PATTERNS, 2))
    order = np.argsort(-np.concatenate([shape[:, 2], pricing.held]), kind="stable")
    room = (pricing.room, pricing.held, pricing.held_many, order, pricing.node_cards, pricing.size)
    floor = -least - slack - 1e-9
    many = patterns_within(shape, price, *room, np.array(pricing.law(slope)), floor, _STEPS, table, met)
    if many < 0:
        return None
    counts = np.zeros((many, len(prices)), np.int64)
    counts[:, groups] = table[:many]
    load, excess = met[:many, 0], np.maximum(-met[:many, 1] - least, 0.0)
    rise = np.argsort(excess, kind="stable")
    return counts[rise], load[rise], excess[rise]
