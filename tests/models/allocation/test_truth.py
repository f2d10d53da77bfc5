"""Every policy equals a formulation that shares no code with it, solved by another solver in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flowlex import Allocation
from flowlex.formulations import Status
from tests.models.allocation.cases import random_instance

POLICIES = ["max_min", "makespan", "finish_time", "max_throughput", "min_cost"]


def others(cases: list[dict[str, Any]]) -> list[Any]:
    if importlib.util.find_spec("cvxpy") is None:
        pytest.skip("cvxpy is not installed (extra bench): nothing to compare with")
    script = Path(__file__).with_name("oracle.py")
    ran = subprocess.run([sys.executable, script], input=json.dumps(cases), capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_equal_convex_programs_as_gavel_writes_them(policy: str) -> None:
    tight = {"max_throughput": 0.4, "min_cost": 0.5}.get(policy, 0.0)
    instances = [random_instance(seed, limits=seed % 2 == 0, tight=tight) for seed in range(10)]
    if policy == "min_cost":
        instances = [i for i in instances if any(job.deadline_s for job in i.jobs)]
    cases = [{"instance": i.model_dump(mode="json"), "policy": policy} for i in instances]
    answered = 0
    for instance, true in zip(instances, others(cases), strict=True):
        solution = Allocation(instance, policy=policy).solve("highs")
        if isinstance(true, str):
            assert solution.status is Status.INFEASIBLE, instance.name
            assert solution.certificate is not None and solution.certificate.claim == "infeasible"
            continue
        answered += 1
        assert solution.status is Status.OPTIMAL
        assert solution.objective == pytest.approx(true, rel=2e-5), instance.name
    assert answered >= 6


@pytest.mark.parametrize("aware", [True, False])
def test_water_filling_equals_bisection_job_by_job(aware: bool) -> None:
    instances = [random_instance(seed, jobs=5, limits=seed % 2 == 0) for seed in range(20, 23)]
    cases = [{"instance": i.model_dump(mode="json"), "policy": "water_filling", "aware": aware} for i in instances]
    for instance, true in zip(instances, others(cases), strict=True):
        solution = Allocation(instance, policy="water_filling", aware=aware).solve("highs")
        if true == "infeasible":
            assert solution.status is Status.INFEASIBLE
            continue
        view = instance.arrays
        assert solution.level is not None
        level = solution.level * view.scale / view.weight
        assert np.allclose(level, true, rtol=1e-4, atol=1e-5), (instance.name, level, true)
