"""A pod placement, judged from its instance: see `document`."""

from flowlex.validation.certificates.pods.document import (
    VERIFIER,
    PlacementAnswer,
    PlacementProof,
    check_placement,
    judge_placement,
)
from flowlex.validation.certificates.pods.sizes import balance_of

__all__ = ["VERIFIER", "PlacementAnswer", "PlacementProof", "balance_of", "check_placement", "judge_placement"]
