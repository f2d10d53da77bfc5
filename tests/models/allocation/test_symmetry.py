"""Identical jobs as one class: the optimum of the program with a column per job, with equal shares for all members."""

import numpy as np
import pytest

from flowlex.formulations.engines import solve
from flowlex.instances import AllocationInstance
from flowlex.models.allocation import policy_linear_programs
from flowlex.models.allocation.methods.job_aggregation import JobClasses
from flowlex.models.allocation.model import Allocation
from tests.models.allocation.cases import random_instance

POLICIES = ("max_min", "water_filling", "makespan", "finish_time", "max_throughput", "hierarchical")


def doubled(seed: int) -> AllocationInstance:
    """A random instance with two or three copies of every job, and limits of users, of one job and of all jobs."""
    made = random_instance(seed, jobs=4, tight=0.3)
    jobs = [
        job.model_copy(update={"name": f"{job.name}{k}"})
        for m, job in enumerate(made.jobs)
        for k in ("", "b", "c")[: 2 + m % 2]
    ]
    entities = tuple(entity.model_copy(update={"inside": "fair"}) for entity in made.entities)
    return AllocationInstance.model_validate({**made.model_dump(), "jobs": jobs, "entities": entities})


@pytest.mark.parametrize("policy", POLICIES)
def test_classes_give_the_optimum_of_jobs(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [doubled(seed) for seed in range(5)]
    merged = [Allocation(case, policy=policy).solve("highs") for case in cases]  # type: ignore[arg-type]
    assert any(len(one.share) > 0 for one in merged)
    for case, one in zip(cases, merged, strict=True):
        if policy in ("max_min", "makespan", "max_throughput") and one.objective is not None:
            first = solve(Allocation(case, policy=policy).formulation, "highs").objective  # type: ignore[arg-type]
            assert first == pytest.approx(one.steps[0].value, rel=1e-7)
    monkeypatch.setattr(
        policy_linear_programs,
        "job_classes",
        lambda instance, *_, **__: JobClasses(*[np.arange(len(instance.jobs))] * 3),
    )
    for case, one in zip(cases, merged, strict=True):
        single = Allocation(case, policy=policy).solve("highs")  # type: ignore[arg-type]
        # Proving many equal jobs by themselves may fail within the tolerance of values; the answer is the same.
        assert single.status == one.status or (single.status.value, one.status.value) == ("feasible", "optimal")
        if single.objective is not None:
            assert one.objective == pytest.approx(single.objective, rel=1e-5)
            assert one.certificate is not None and one.certificate.claim == "optimal"
        if single.level is not None and policy in ("water_filling", "hierarchical"):
            assert one.level == pytest.approx(single.level, rel=1e-5, abs=1e-9)
