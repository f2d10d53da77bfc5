"""Certificates: an answer recomputed from its data. Imports only instances and formulations, so models may use it."""

from flowlex.validation.certificates.certificate import Certificate, CertificateError, Check
from flowlex.validation.certificates.contract import (
    Finding,
    SolutionError,
    Verifier,
    verifier_for,
    verify,
)
from flowlex.validation.certificates.network import certify_network, certify_network_infeasible
from flowlex.validation.certificates.program import certify_program
from flowlex.validation.certificates.schema import solution_schema

__all__ = [
    "Certificate",
    "CertificateError",
    "Check",
    "Finding",
    "SolutionError",
    "Verifier",
    "certify_network",
    "certify_network_infeasible",
    "certify_program",
    "solution_schema",
    "verifier_for",
    "verify",
]
