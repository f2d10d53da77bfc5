"""Claim: JIT's program P4, with weights |delta|^s, can be handed to an LP solver. At paper scale it cannot."""

from __future__ import annotations

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
    sizes = [(2, 3), (5, 10), (20, 20), (100, 20), (100, 100)]
    table = {f"{m} machines, {t} slots": (first_inexact_level(m, t), first_overflow_level(m, t)) for m, t in sizes}
    told = "; ".join(f"{size}: inexact from s = {low}, overflow from s = {high}" for size, (low, high) in table.items())
    paper = table["100 machines, 100 slots"]
    base = float(100 * 100**2)
    if base ** paper[0] + 1 != base ** paper[0]:
        return Finding(Outcome.HOLDS, "the weights stay exact at paper scale")
    return Finding(Outcome.FAILS, f"|delta|^s in double precision: {told}.", table)


CLAIM = Claim(
    "jit-weights",
    "Minimising sum |delta|^(delta_u) as a linear program (P4) gives the lexicographic optimum.",
    "Shi et al. 2021 (JIT), P3 and P4",
    _check,
)
