"""Identical jobs as one class: the optimum of the program with a column per job, with equal shares for all members."""

from __future__ import annotations

import numpy as np
import pytest

from flowlex.formulations.engines import solve
from flowlex.instances import AllocationInstance
from flowlex.models.allocation import policy_linear_programs
from flowlex.models.allocation.allocation_linear_program import Columns
from flowlex.models.allocation.methods.job_aggregation import JobClasses, job_classes
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


def test_which_jobs_are_identical() -> None:
    instance = doubled(1)
    base = job_classes(instance, "max_min", None, deadlines=False)
    names = [job.name for job in instance.jobs]
    classes = {frozenset(np.array(names)[base.of == c].tolist()) for c in range(len(base.first))}
    assert frozenset({"j0"}) in classes  # a limit names it
    assert all(base.many == np.bincount(base.of)) and (base.of[base.first] == np.arange(len(base.first))).all()
    fifo = instance.model_copy(update={"entities": tuple(random_instance(1).entities)})
    assert len(job_classes(fifo, "hierarchical", None, deadlines=False).first) == len(names)  # the order decides


@pytest.mark.parametrize("many", [(2, 3), (3, 3), (4, 1)])
def test_pairs_are_spread_evenly(many: tuple[int, int]) -> None:
    """Classes with a and b members: pairs between them for 0.6 in total, pairs within the first for 0.5."""
    size = np.array(many)
    classes = JobClasses(np.repeat([0, 1], size), np.cumsum([0, many[0]]), size)
    columns = Columns(np.array([0, 0, 0]), np.array([-1, 1, 0]), np.zeros(3, int), np.ones((3, 2)))
    spread, share = classes.spread(columns, np.array([0.2, 0.6, 0.5]))
    time = spread.per_job(share, size.sum(), speed=False)
    assert np.allclose(time[: many[0]], (0.2 + 0.6 + 2 * 0.5) / many[0])
    assert np.allclose(time[many[0] :], 0.6 / many[1])
    assert (spread.first != spread.second).all() and (share > 0).all()
    keys = {(*sorted(pair), 0) for pair in zip(spread.first.tolist(), spread.second.tolist(), strict=True)}
    assert len(keys) == spread.count  # no pair twice
