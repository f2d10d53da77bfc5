"""A claim of ours: JIT matrices with full windows are TU exactly for forests whose bundles end in leaves.

The proof is in `flowlex.validation.claims.full_windows`; here it is tested against the checker, which does
not know the rule.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from flowlex.validation.claims.claim_interface import Claim, Finding, Outcome
from flowlex.validation.claims.full_windows import JitRule, full_window_rule
from flowlex.validation.unimodularity.check import check
from flowlex.validation.unimodularity.determinant import determinant
from flowlex.validation.unimodularity.examples import jit_matrix, random_flows


def agreement(samples: int, *, seed: int = 0, most_transfers: int = 9, most_slots: int = 5) -> dict[str, int]:
    """Compare rule and checker on random sets of transfers; every proof and refutation is verified.

    Returns counts: ``tu``, ``not tu``, ``disagree``, ``unproven``.
    """
    generator = np.random.default_rng(seed)
    counts = {"tu": 0, "not tu": 0, "disagree": 0, "unproven": 0}
    for _ in range(samples):
        transfers = int(generator.integers(1, most_transfers + 1))
        machines = int(generator.integers(1, transfers + 2))
        slots = int(generator.integers(3, most_slots + 1))
        flows = random_flows(transfers, machines, seed=int(generator.integers(2**31)))
        matrix = jit_matrix(flows, slots)
        rule, verdict = full_window_rule(flows, slots), check(matrix)
        if not verdict.verify(matrix):
            counts["unproven"] += 1
        elif rule.tu != verdict.is_tu or not (rule.tu or _odd(matrix, rule)):
            counts["disagree"] += 1
        else:
            counts["tu" if rule.tu else "not tu"] += 1
    return counts


def _odd(matrix: sp.csc_array, rule: JitRule) -> bool:
    """Whether the rule's closed walk is the submatrix of determinant +-2 that it claims to be."""
    return abs(determinant(matrix.tocsr()[list(rule.rows)][:, list(rule.columns)])) == 2


def _check() -> Finding:
    counts = agreement(300)
    found = ", ".join(f"{name} {number}" for name, number in counts.items())
    if counts["disagree"]:
        return Finding(Outcome.FAILS, f"rule and checker disagree: {found}", counts)
    if counts["unproven"]:
        return Finding(Outcome.NOT_REPRODUCIBLE, f"some verdicts could not be verified: {found}", counts)
    return Finding(Outcome.HOLDS, f"proven; rule and checker agree on 300 random sets of transfers: {found}", counts)


CLAIM = Claim(
    "jit-forest",
    "With full windows and at least 3 slots, the JIT matrix is totally unimodular exactly when the "
    "sender-receiver graph is a forest and every bundle of parallel transfers has an end of degree 1.",
    "this project",
    _check,
)
