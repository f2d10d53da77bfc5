"""What proves how many pods of a level (a priority, or worth) can be placed: prices of node classes.

By weak duality, whatever the prices of cores, memory and card memory, no placement that keeps what the levels above
have admits more than

    sum over pods of max(0, worth - least cost of its place) + what the resources of all nodes cost,

where quotas, and the room that a spread leaves in all its domains together, may be resources with a price, too.

Or each pod has a price of its own: it pays that, and a node earns at most what its best pattern is worth at these
prices, which is searched (see `best_node_pattern`).
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

__all__ = ["AdmissionProof", "most_by_prices"]

#: Steps of the search for the best pattern of one kind of nodes.
_STEPS = 4_000_000
#: What rounding may do to a sum, as a share of the sizes of its parts.
_ROUNDING = 1e-14


class AdmissionProof(Strict):
    """Why no more of a level can be placed."""

    classes: list[Priced]
    kept: dict[str, Price]
    """More important level to the price of a unit of it."""
    move: Price
    """Price of a unit of the move budget."""
    rules: dict[str, Price] = Field(default={})
    """Name of a quota or a spread to the price of all that it allows."""
    pods: dict[str, Price] | None = None
    """One pod of each kind to what such a pod pays, in place of ``classes``; 0 for those left out."""


def most_by_prices(people: Population, key: str, kept: Mapping[str, Fraction], proof: AdmissionProof) -> Fraction:
    """No placement with at least ``kept`` of the levels above has more of this one; in whole units of its worth."""
    least_of, rent, all_of_it = *_paid(people, proof), Fraction(0)
    paid = {name: max(0.0, price) for name, price in proof.rules.items()}
    bounds = GangBounds(people)
    shares = RuleBook(people.instance).shares(paid, bounds.of_spread)
    parts: list[float] = [*paid.values()]
    sizes = parts.copy()  # of what is added and taken off, each rounded
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
    """What a pod of each group pays at least, infinite where it fits nowhere, and at most what all nodes earn."""
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
