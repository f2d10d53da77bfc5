"""Certificates: an answer recomputed from its data. Imports only instances and formulations, so models may use it."""

from flowlex.validation.certificates.certificate import Certificate, CertificateError, Check
from flowlex.validation.certificates.network import certify_network, certify_network_infeasible
from flowlex.validation.certificates.program import certify_program

__all__ = [
    "Certificate",
    "CertificateError",
    "Check",
    "certify_network",
    "certify_network_infeasible",
    "certify_program",
]
