"""All claims, in the order of the report."""

from __future__ import annotations

from flowlex.validation.claims import jit_forest, jit_lemma_3, jit_weights, network_matrices
from flowlex.validation.claims.base import Claim

__all__ = ["CLAIMS"]

#: Claims by name.
CLAIMS: dict[str, Claim] = {
    module.CLAIM.name: module.CLAIM for module in (network_matrices, jit_lemma_3, jit_weights, jit_forest)
}
