"""Claims: JIT's Lemmas 1 and 2, that g(delta) = sum |delta|^(delta_u) is convex and orders as the sorted vectors do.

Both are checked in exact integers: Lemma 1 by second differences, Lemma 2 on all pairs of small vectors.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

from flowlex.validation.claims.base import Claim, Finding, Outcome

__all__ = ["LEMMA_1", "LEMMA_2", "bend", "disorder"]


def bend(base: int, level: int) -> int:
    """The second difference of base^level."""
    second: int = base ** (level + 1) - 2 * base**level + base ** (level - 1)
    return second


def _convex() -> Finding:
    bases, levels = range(1, 60), range(1, 40)
    for base in bases:
        for level in levels:
            if bend(base, level) < 0:
                text = f"|delta| = {base}, level {level}: second difference {bend(base, level)}"
                return Finding(Outcome.FAILS, text)
    text = (
        "the second difference B^(s+1) - 2 B^s + B^(s-1) = B^(s-1) (B - 1)^2 is never negative, and a sum of convex "
        f"functions of one variable each is convex (checked in integers up to |delta| = {bases[-1]}, s = {levels[-1]})"
    )
    return Finding(Outcome.HOLDS, text)


def disorder(entries: int, largest: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Two vectors of so many entries in 0..largest that g orders otherwise than lexicographic order does, or None."""
    vectors = [tuple(sorted(v, reverse=True)) for v in combinations_with_replacement(range(largest + 1), entries)]
    for p in vectors:
        for q in vectors:
            g_p, g_q = (sum(entries**level for level in vector) for vector in (p, q))
            if (p <= q) != (g_p <= g_q):
                return p, q
    return None


def _order() -> Finding:
    lone = disorder(1, 3)
    for entries in range(2, 6):
        found = disorder(entries, 4)
        if found is not None:
            return Finding(
                Outcome.FAILS, f"|delta| = {entries}: {found[0]} and {found[1]}", {"pair": [*map(list, found)]}
            )
    text = "all pairs of vectors of 2 to 5 entries with values 0 to 4 are ordered alike"
    if lone is not None:
        text += f" (with one entry the base is 1 and {lone[0]}, {lone[1]} are not told apart; no program has one pair)"
    return Finding(Outcome.HOLDS, text)


SOURCE = "Shi et al. 2021 (JIT)"
LEMMA_1 = Claim("jit-lemma-1", "g(delta) = sum |delta|^(delta_u) is convex.", f"{SOURCE}, Lemma 1", _convex)
LEMMA_2 = Claim(
    "jit-lemma-2",
    "p comes before q lexicographically (sorted, largest first) exactly when g(p) <= g(q).",
    f"{SOURCE}, Lemma 2",
    _order,
)
