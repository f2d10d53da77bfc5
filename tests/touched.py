"""Modified solution files and the verdicts that they must get."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from flowlex.instances.instance_base import Instance
from flowlex.validation.certificates.verifier_interface import SolutionError, verify


def assert_not_optimal(touch: Callable[[dict[str, Any]], object], document: dict[str, Any], instance: Instance) -> None:
    """Check that a copy of the file changed by ``touch`` is not proven optimal, as the file itself is."""
    touched = copy.deepcopy(document)
    touch(touched)
    certificate = verify(touched, instance)
    assert not (certificate.ok and certificate.claim in ("optimal", "infeasible")), str(certificate)


def assert_refused(touch: Callable[[dict[str, Any]], object], document: dict[str, Any], instance: Instance) -> None:
    """Check that a copy of the file changed by ``touch`` is invalid or refused."""
    broken = copy.deepcopy(document)
    touch(broken)
    try:
        certificate = verify(broken, instance)
    except SolutionError:
        return
    assert not certificate.ok, str(certificate)
