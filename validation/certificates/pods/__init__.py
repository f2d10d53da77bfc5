"""Verify a pod placement from its instance: see `solution_verifier`."""

from flowlex.validation.certificates.pods.pod_sizes import balance_of
from flowlex.validation.certificates.pods.solution_verifier import VERIFIER, check_placement

__all__ = ["VERIFIER", "balance_of", "check_placement"]
