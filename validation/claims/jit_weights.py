"""Claim: JIT's program P4, with weights |delta|^s, can be handed to an LP solver. At paper scale it cannot."""

from __future__ import annotations

import math

from flowlex.instances.generators.registry import generate
from flowlex.instances.jit import JitInstance
from flowlex.models.jit.latest_arrival import latest_arrival_times
from flowlex.validation.claims.base import Claim, Finding, Outcome

__all__ = ["CLAIM", "first_inexact_level", "first_overflow_level"]

#: Every integer up to here is a double; beyond, neighbours fall together.
EXACT = 2**53
#: Largest integer power that a double can hold at all, about 1.8e308.
LARGEST = int(1.7976931348623157e308)


def first_inexact_level(machines: int, slots: int) -> int:
    """Smallest s for which |delta|^s plus 1 is no longer told apart from |delta|^s in double precision.

    |delta| = slots * machines**2, the number of pair loads.
    """
    return _first_beyond(slots * machines**2, EXACT)


def first_overflow_level(machines: int, slots: int) -> int:
    """Smallest s for which |delta|^s exceeds the largest double."""
    return _first_beyond(slots * machines**2, LARGEST)


def _first_beyond(base: int, limit: int) -> int:
    if base < 2:
        raise ValueError("with fewer than two pair loads there is nothing to weigh")
    level, power = 1, base
    while power <= limit:
        level, power = level + 1, power * base
    return level


def _check() -> Finding:
    """Would the weights of generated clusters stay exact? Levels go up to the units that a port carries in a slot."""
    held: dict[str, list[int]] = {}
    broken: dict[str, list[int]] = {}
    for machines, jobs, slot_s in ((4, 1, 0.5), (20, 10, 0.2), (100, 10, 0.1), (100, 70, 0.1)):
        instance = generate("jit-cluster", machines=machines, jobs=jobs, slot_s=slot_s, copies=0, mix="VGG16")
        assert isinstance(instance, JitInstance)
        slots = math.ceil(float(latest_arrival_times(instance, rule="paper").latest_s.max()) / slot_s)
        levels = int(max(instance.arrays.out_units.max(), instance.arrays.in_units.max()))
        limit = first_inexact_level(machines, slots)
        where = held if levels < limit else broken
        where[f"{machines} machines, {slots} slots"] = [levels, limit]
    told = "; ".join(f"{size}: levels to {top}, inexact from {low}" for size, (top, low) in {**held, **broken}.items())
    if not broken:
        return Finding(Outcome.HOLDS, f"all weights are exact doubles. {told}", held)
    return Finding(Outcome.FAILS, f"|delta|^s in double precision: {told}", {"exact": held, "inexact": broken})


CLAIM = Claim(
    "jit-weights",
    "Minimising sum |delta|^(delta_u) as a linear program (P4) gives the lexicographic optimum.",
    "Shi et al. 2021 (JIT), P3 and P4",
    _check,
)
