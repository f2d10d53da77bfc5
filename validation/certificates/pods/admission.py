"""What proves how many pods of a level (a priority, or worth) can be placed: prices of node classes.

By weak duality, whatever the prices of cores, memory and card memory, no placement that keeps what the levels above
have admits more than

    sum over pods of max(0, worth - least cost of its place) + what the resources of all nodes cost,

where quotas, and the room that a spread leaves in all its domains together, may be resources with a price, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from pydantic import Field

from flowlex.validation.certificates.contract import Strict
from flowlex.validation.certificates.pods.market import Market, Population, Price, Priced
from flowlex.validation.certificates.pods.rules import RuleBook
from flowlex.validation.certificates.pods.sizes import TOLERANCE

__all__ = ["AdmissionProof", "most_by_prices"]


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


def most_by_prices(people: Population, key: str, kept: Mapping[str, Fraction], proof: AdmissionProof) -> Fraction:
    """No placement with at least ``kept`` of the levels above has more of this one; in whole units of its worth."""
    market, all_of_it = Market(people, proof.classes, proof.move), Fraction(0)
    paid = {name: max(0.0, price) for name, price in proof.rules.items()}
    shares = RuleBook(people.instance).shares(paid)
    parts: list[float] = [*paid.values()]
    sizes = parts.copy()  # of what is added and taken off, each rounded
    for k, level in enumerate(people.level):
        fees = [price * shares[name].get(people.pod[k].name, 0.0) for name, price in paid.items()]
        many, least = len(people.groups[k]), market.least(k) + math.fsum(fees)
        if level is None:
            parts.append(-many * least)
            sizes.append(many * least)
            continue
        all_of_it += level.worth * many * (level.key == key)
        price = 1.0 if level.key == key else max(0.0, proof.kept.get(level.key, 0.0)) if level.key in kept else 0.0
        worth = price * float(level.worth / people.unit[level.key])
        parts.append(many * max(0.0, worth - least) if price else 0.0)
        sizes.append(many * worth)
    rent = market.rent()
    parts.append(rent)
    parts += [-max(0.0, proof.kept.get(k, 0.0)) * float(number / people.unit[k]) for k, number in kept.items()]
    kept_too = (max(0.0, proof.kept.get(k, 0.0)) * float(number / people.unit[k]) for k, number in kept.items())
    total = math.fsum(parts) + _ROUNDING * math.fsum([*sizes, rent, *kept_too])
    unit = people.unit[key]
    return math.floor(total * (1 + 1e-12) + TOLERANCE) * unit if math.isfinite(total) else all_of_it
