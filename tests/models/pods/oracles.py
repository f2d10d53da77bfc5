"""What tests of pod placement share: a model without integer programs, and a solution compared with all placements."""

from __future__ import annotations

from typing import Any

import pytest

from flowlex.instances.pods import PodInstance
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.search_limits import SearchLimits
from flowlex.validation.certificates.pods.exhaustive_enumeration import all_ways


class BySearch(PodPlacement):
    """No integer program over pods and nodes."""

    limits = SearchLimits(admission=-1, direct=-1)


def solved(instance: PodInstance, **options: Any) -> Any:
    """The certified solution, equal to trying all placements by code that shares nothing with the model."""
    solution = PodPlacement(instance, **options).solve("highs")
    fair = options.get("admission") == "fair"
    tried = all_ways(instance, options, solution.node.tolist() if fair else ())
    assert tried is not None and solution.certificate is not None and solution.certificate.ok
    assert [float(n) for n, _, _ in solution.admitted.values()] == pytest.approx([float(n) for n in tried[0]])
    assert solution.objective == pytest.approx(tried[1], abs=2e-6)
    return solution
