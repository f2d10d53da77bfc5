"""The options of a GPU round as a solution file states them, read once for all its judges."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from flowlex.instances.exact_rationals import rational
from flowlex.validation.restated.gpu import PolicyRules


class RoundOptions(NamedTuple):
    """Policy, weights of rack, distance and waiting, whether tasks wait at a price, price of a second of lost work."""

    policy: PolicyRules
    weights: tuple[Fraction, Fraction, Fraction]
    priced: bool
    stop_price: Fraction

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> RoundOptions:
        """Read the options; `ValueError` names what is wrong."""
        policy, waiting = PolicyRules.of(options.get("policy", "FSP")), options.get("waiting", "least")
        if waiting not in ("least", "priced") or (waiting == "priced" and not policy.fair):
            raise ValueError(f"waiting must be 'least', or with fair shares 'priced', got {waiting!r}")
        penalties = options.get("penalties", {})
        a1, a2, a3 = (rational(penalties.get(name, 1)) for name in ("rack", "between_racks", "waiting"))
        if min(a1, a2, a3) < 0:
            raise ValueError("penalties must not be negative")
        stop_price = rational(options.get("stop_price", 0))
        if stop_price < 0 or (stop_price and not policy.preemptive):
            raise ValueError(f"stop_price must be at least 0, and 0 where no task may stop, got {stop_price}")
        return cls(policy, (a1, a2, a3), waiting == "priced", stop_price)
