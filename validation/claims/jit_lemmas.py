"""Claim: JIT's Lemma 2, that g(delta) = sum |delta|^(delta_u) orders as the sorted vectors do.

It is checked in exact integers on all pairs of small vectors. Lemma 1 (g is convex) follows by arithmetic, so it is not
checked here.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

from flowlex.validation.claims.claim_interface import Claim, Finding, Outcome


def disorder(entries: int, largest: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Two vectors of ``entries`` entries in 0..largest whose order by g is not the lexicographic one, or None."""
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
    text = "all pairs of vectors of 2 to 5 entries with values 0 to 4 are ordered equally"
    if lone is not None:
        text += (
            f" (with one entry the base is 1 and {lone[0]}, {lone[1]} are not distinguished; no program has one pair)"
        )
    return Finding(Outcome.HOLDS, text)


LEMMA_2 = Claim(
    "jit-lemma-2",
    "p comes before q lexicographically (sorted, largest first) exactly when g(p) <= g(q).",
    "Shi et al. 2021 (JIT), Lemma 2",
    _order,
)
