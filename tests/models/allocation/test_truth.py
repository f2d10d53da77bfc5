"""Every policy equals an independent formulation, solved by another solver in a separate process."""

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
from flowlex.instances import AllocationInstance
from tests.models.allocation.cases import random_instance

POLICIES = ["max_min", "makespan", "finish_time", "max_throughput", "min_cost"]


Case = tuple[str, bool]
POLICY_CASES: list[Case] = [(policy, True) for policy in POLICIES]
FILLING: list[Case] = [("water_filling", True), ("water_filling", False)]


def instances_of(case: Case) -> list[AllocationInstance]:
    policy, _ = case
    if policy == "water_filling":
        return [random_instance(seed, jobs=5, limits=seed % 2 == 0) for seed in range(20, 23)]
    tight = {"max_throughput": 0.4, "min_cost": 0.5}.get(policy, 0.0)
    made = [random_instance(seed, limits=seed % 2 == 0, tight=tight) for seed in range(10)]
    return [i for i in made if policy != "min_cost" or any(job.deadline_s for job in i.jobs)]


@pytest.fixture(scope="module")
def truth() -> dict[Case, list[tuple[AllocationInstance, Any]]]:
    """All optima by the independent method, from one process (importing cvxpy takes longer than solving)."""
    if importlib.util.find_spec("cvxpy") is None:
        pytest.skip("cvxpy is not installed (extra bench): nothing to compare with")
    made = {case: instances_of(case) for case in (*POLICY_CASES, *FILLING)}
    asked = [
        {"instance": i.model_dump(mode="json"), "policy": policy, "aware": aware}
        for (policy, aware), instances in made.items()
        for i in instances
    ]
    script = Path(__file__).with_name("oracle.py")
    ran = subprocess.run([sys.executable, script], input=json.dumps(asked), capture_output=True, text=True, check=True)
    found = iter(json.loads(ran.stdout))
    return {case: [(i, next(found)) for i in instances] for case, instances in made.items()}


@pytest.mark.parametrize("case", POLICY_CASES, ids=str)
def test_policies_equal_convex_programs_as_gavel_writes_them(case: Case, truth: Any) -> None:
    answered = 0
    for instance, true in truth[case]:
        solution = Allocation(instance, policy=case[0]).solve("highs")  # type: ignore[arg-type]
        if isinstance(true, str):
            assert solution.status is Status.INFEASIBLE, instance.name
            assert solution.certificate is not None and solution.certificate.claim == "infeasible"
            continue
        answered += 1
        assert solution.status is Status.OPTIMAL
        assert solution.objective == pytest.approx(true, rel=2e-5), instance.name
    assert answered >= 6


@pytest.mark.parametrize("case", FILLING, ids=str)
def test_water_filling_equals_bisection_job_by_job(case: Case, truth: Any) -> None:
    for instance, true in truth[case]:
        solution = Allocation(instance, policy="water_filling", aware=case[1]).solve("highs")
        if true == "infeasible":
            assert solution.status is Status.INFEASIBLE
            continue
        view = instance.arrays
        assert solution.level is not None
        level = solution.level * view.scale / view.weight
        assert np.allclose(level, true, rtol=1e-4, atol=1e-5), (instance.name, level, true)
