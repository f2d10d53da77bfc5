"""All claims, in the order of the report."""

from __future__ import annotations

from flowlex.validation.claims import (
    gpu_paper_claims,
    jit_forest,
    jit_latest_arrivals,
    jit_lemma_3,
    jit_lemmas,
    sirius_priority_weights,
)
from flowlex.validation.claims.claim_interface import Claim

#: Claims by name.
CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        gpu_paper_claims.GRAPH,
        gpu_paper_claims.INPUTS,
        gpu_paper_claims.FIGURE_1,
        gpu_paper_claims.GREEDY,
        sirius_priority_weights.STRICT_WEIGHT,
        jit_lemmas.LEMMA_2,
        jit_lemma_3.CLAIM,
        jit_latest_arrivals.NO_DELAY,
        jit_forest.CLAIM,
    )
}
