"""Shared by tests of pod placement: a model without integer programs, and common assertions."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from flowlex.instances.pods import PodInstance
from flowlex.models.pods.methods.admission import SearchLimits
from flowlex.models.pods.model import PodPlacement
from flowlex.validation.certificates import verify
from tests.models.pods.enumeration import all_ways


class BySearch(PodPlacement):
    """Pod placement without the integer program over pods and nodes."""

    limits = SearchLimits(admission=-1, direct=-1, proven=-1)


def solved(instance: PodInstance, **options: Any) -> Any:
    """Return the certified solution after comparing it with an independent enumeration of all placements."""
    solution = PodPlacement(instance, **options).solve("highs")
    fair = options.get("admission") == "fair"
    tried = all_ways(instance, options, solution.node.tolist() if fair else ())
    assert tried is not None and solution.certificate is not None and solution.certificate.ok
    assert [float(n) for n, _, _ in solution.admitted.values()] == pytest.approx([float(n) for n in tried[0]])
    assert solution.objective == pytest.approx(tried[1], abs=2e-6)
    return solution


def failing(instance: PodInstance, change: Callable[[dict[str, Any]], object]) -> str:
    """What is wrong where the answer of a true file is changed."""
    document = json.loads(json.dumps(PodPlacement(instance).solve("highs").to_dict()))
    assert verify(document, instance).ok
    change(document["answer"])
    return "; ".join(f"{check.name}: {check.detail}" for check in verify(document, instance).checks if not check.ok)
