"""Bound the pods of a level (a priority, or value) that can be placed, by prices of node classes.

By weak duality, for any prices of cores, memory and card memory, no placement that keeps what the more important
levels have admits more than

    sum over pods of max(0, worth - least cost of its place) + what the resources of all nodes cost,

where quotas, and the total that a spread allows in all its domains, may be resources with a price, too.

Or each pod has its own price: it pays that, and a node earns at most the value of its best pattern at these prices,
which is found by a search (see `best_node_pattern`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from pydantic import Field

from flowlex.validation.certificates.pods.gang_bounds import GangBounds
from flowlex.validation.certificates.pods.group_rules import RuleBook
from flowlex.validation.certificates.pods.node_classes import node_classes
from flowlex.validation.certificates.pods.pod_sizes import TOLERANCE
from flowlex.validation.certificates.pods.price_bound import Population, Price, PriceBound, Priced
from flowlex.validation.certificates.verifier_interface import Strict

#: Steps of the search for the best pattern of one kind of nodes.
_STEPS = 4_000_000
#: Bound on the rounding error of a sum, relative to the sizes of its terms.
_ROUNDING = 1e-14


class AdmissionProof(Strict):
    """Proof that no more of a level can be placed."""

    classes: list[Priced]
    kept: dict[str, Price]
    """Price of a unit of each more important level."""
    move: Price
    """Price of a unit of the move budget."""
    rules: dict[str, Price] = Field(default={})
    """Price of all that a quota or a spread allows, by its name."""
    pods: dict[str, Price] | None = None
    """Price of each kind of pods, by the name of one of them, in place of ``classes``; 0 for those left out."""


def most_by_prices(people: Population, key: str, kept: Mapping[str, Fraction], proof: AdmissionProof) -> Fraction:
    """Upper bound on a level in placements with at least ``kept`` of the levels above, in whole units of its value."""
    least_of, rent, all_of_it = *_paid(people, proof), Fraction(0)
    paid = {name: max(0.0, price) for name, price in proof.rules.items()}
    bounds = GangBounds(people)
    shares = RuleBook(people.instance).shares(paid, bounds.of_spread)
    parts: list[float] = [*paid.values()]
    sizes = parts.copy()  # of all terms, each of which was rounded
    for k, level in enumerate(people.level):
        if people.pod[k].gang in bounds.nowhere:
            continue
        fees = [price * shares[name].get(people.pod[k].name, 0.0) for name, price in paid.items()]
        many, least = len(people.groups[k]), least_of[k] + math.fsum(fees)
        if level is None:
            parts.append(-many * least)
            sizes.append(many * abs(least))
            continue
        all_of_it += level.worth * many * (level.key == key)
        price = 1.0 if level.key == key else max(0.0, proof.kept.get(level.key, 0.0)) if level.key in kept else 0.0
        worth = price * float(level.worth / people.unit[level.key])
        parts.append(many * max(0.0, worth - least) if price else 0.0)
        sizes.append(many * (worth + (abs(least) if math.isfinite(least) else 0.0)))
    kept_too = [max(0.0, proof.kept.get(k, 0.0)) * float(number / people.unit[k]) for k, number in kept.items()]
    parts += [rent, *(-each for each in kept_too)]
    total = math.fsum(parts) + _ROUNDING * math.fsum([*sizes, rent, *kept_too])
    unit = people.unit[key]
    return math.floor(total * (1 + 1e-12) + TOLERANCE) * unit if math.isfinite(total) else all_of_it


def _paid(people: Population, proof: AdmissionProof) -> tuple[list[float], float]:
    """Least payment of a pod of each group (infinite if it fits nowhere), and most that all nodes earn."""
    if proof.pods is None:
        bound = PriceBound(people, proof.classes, proof.move)
        return [bound.least(k) for k in range(len(people.pod))], bound.rent()
    from flowlex.validation.certificates.pods.best_node_pattern import CAPPED

    price, move = people.by_group(proof.pods), max(0.0, proof.move)
    free = (0.0, math.inf, 0.0)  # any load costs nothing
    rent = [nodes.many * nodes.best(price, move, CAPPED, *free, 1e-6, _STEPS) for nodes in node_classes(people)]
    return [p if able else math.inf for p, able in zip(price, people.able, strict=True)], math.fsum(
        [*rent, move * people.budget]
    )
