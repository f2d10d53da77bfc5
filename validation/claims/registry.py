"""All claims, in the order of the report."""

from __future__ import annotations

from flowlex.validation.claims import (
    gpu_paper,
    jit_forest,
    jit_latest,
    jit_lemma_3,
    jit_lemmas,
    sirius,
)
from flowlex.validation.claims.claim_interface import Claim

__all__ = ["CLAIMS"]

#: Claims by name.
CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        gpu_paper.GRAPH,
        gpu_paper.INPUTS,
        gpu_paper.FIGURE_1,
        gpu_paper.GREEDY,
        sirius.STRICT_WEIGHT,
        jit_lemmas.LEMMA_2,
        jit_lemma_3.CLAIM,
        jit_latest.FEASIBLE,
        jit_latest.NO_DELAY,
        jit_forest.CLAIM,
    )
}
