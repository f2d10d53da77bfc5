"""Allocations by parts: feasible and bounded for the complete instance, refused if not separable, faults found."""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex import Allocation, solve
from flowlex.formulations import Status
from flowlex.formulations.solver_outcome import EngineError
from flowlex.instances import AllocationInstance, generate
from flowlex.instances.instance_base import Instance
from flowlex.models import ModelError
from flowlex.validation.certificates import verify
from tests.models.allocation.cases import random_instance

POLICIES = ["max_min", "water_filling", "makespan", "max_throughput", "min_cost"]


def test_equal_parts_by_hand() -> None:
    kinds = [{"name": "k", "steps_per_s": {"g": 1.0}}]
    jobs = [{"name": n, "job_type": "k"} for n in "abcdef"]
    instance = AllocationInstance.model_validate(
        {"gpu_types": [{"name": "g", "count": 3}], "job_types": kinds, "jobs": jobs}
    )
    parted = Allocation(instance, parts=3).solve("highs")
    assert parted.status is Status.FEASIBLE and np.allclose(parted.time, 0.5)
    assert parted.objective == pytest.approx(0.5) and parted.bound == pytest.approx(0.5)  # as good as without parts
    uneven = Allocation(instance, parts=2).solve("highs")  # 2 GPUs for three jobs, 1 for the others
    assert uneven.objective == pytest.approx(1 / 3) and sorted(uneven.time.round(6)) == [0.333333] * 3 + [0.666667] * 3
    assert uneven.bound == pytest.approx(0.5)


def test_a_large_job_is_split_by_hand() -> None:
    """Two jobs of 4 GPUs and four of 1 on 6: by halves each part has 3, so each large job is two pieces of 2."""
    kinds = [{"name": f"k{n}", "gpus": n, "steps_per_s": {"g": float(n)}} for n in (4, 1)]
    jobs = [{"name": f"large{k}", "job_type": "k4"} for k in range(2)]
    jobs += [{"name": f"small{k}", "job_type": "k1"} for k in range(4)]
    document = {"gpu_types": [{"name": "g", "count": 6}], "job_types": kinds, "jobs": jobs}
    instance = AllocationInstance.model_validate(document)
    parted = Allocation(instance, parts=2).solve("highs")
    # Equal weights give equal GPUs, 1 each: a quarter of the time for the large jobs.
    assert np.allclose(parted.time, [0.25, 0.25, 1, 1, 1, 1])
    assert parted.objective == pytest.approx(parted.bound) and parted.certificate.ok  # type: ignore[union-attr]
    assert len(parted.share) == 6  # no job twice on one GPU type
    for policy in ("water_filling", "makespan", "max_throughput"):
        jobs = [{**job, "steps_left": 100.0, "deadline_s": 4000.0} for job in jobs]
        limits = [{"job": "large0", "most_gpus": 2.0, "least_gpus": 0.5}]
        timed = AllocationInstance.model_validate({**document, "jobs": jobs, "limits": limits})
        some = Allocation(timed, policy=policy, parts=2).solve("highs")
        assert some.certificate is not None and some.certificate.ok
        assert some.gap is not None and some.gap <= 0.2


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(POLICIES), st.booleans())
def test_parts_are_feasible_and_the_optimum_of_the_whole_is_within_the_bound(
    seed: int, policy: str, aware: bool
) -> None:
    instance = random_instance(seed, limits=False, tight=0.2)
    floor = [{"job": "j0", "most_gpus": 0.9}, {"job": "j1", "least_gpus": 0.01}]
    instance = AllocationInstance.model_validate({**instance.model_dump(), "limits": floor})
    options: dict[str, Any] = {"policy": policy}
    if policy in ("max_min", "water_filling"):
        options["aware"] = aware
    whole = Allocation(instance, **options).solve("highs")
    try:
        parted = Allocation(instance, **options, parts=2, seed=seed).solve("highs")
    except EngineError as error:
        assert "has no answer (infeasible); the whole may have one" in str(error)
        return
    assert parted.certificate is not None and parted.certificate.ok and parted.certificate.claim == "bounded"
    assert whole.objective is not None and parted.bound is not None and parted.objective is not None
    sign = 1 if policy in ("makespan", "min_cost") else -1
    slack = 1e-6 * (1 + abs(whole.objective))
    assert sign * parted.bound <= sign * whole.objective + slack
    assert sign * whole.objective <= sign * parted.objective + slack


def test_the_same_seed_is_the_same_division() -> None:
    instance = generate("gavel-like", jobs=24, gpus=32, seed=1)
    one, same, other = (solve(instance, "highs", parts=2, seed=s).share for s in (5, 5, 6))
    assert one.tobytes() == same.tobytes() != other.tobytes()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"parts": 0}, "parts must be at least 1"),
        ({"parts": 2, "seed": -1}, "seed at least 0"),
        ({"parts": 9}, "without GPUs of type 'k80', which has 8; ask for at most 8 parts"),
        ({"parts": 2, "policy": "hierarchical"}, "policy 'hierarchical' compares all jobs"),
        ({"parts": 2, "policy": "finish_time"}, "policy 'finish_time' compares all jobs"),
    ],
)
def test_what_cannot_be_divided_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        Allocation(generate("gavel-like", jobs=24, seed=1), **options)


def test_limits_of_many_jobs_and_few_jobs_are_refused() -> None:
    instance = random_instance(1)
    with pytest.raises(ModelError, match="limit 1 is not of one job"):
        Allocation(instance, parts=2)
    few = generate("gavel-like", jobs=2, gpus=64)
    with pytest.raises(ModelError, match="parts=3 for 2 jobs"):
        Allocation(few, parts=3)


def _tighter(document: dict[str, Any]) -> None:
    """Return a consistent file with a bound that its dual values do not prove."""
    objective = document["objective"]
    document["bound"] = objective + 0.5 * (document["bound"] - objective)
    document["gap"] = abs(objective - document["bound"]) / max(1.0, abs(objective))


FAULTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "called optimal": lambda d: d.update(status="optimal"),
    "a tighter bound": _tighter,
    "another objective": lambda d: d.update(objective=d["objective"] * 1.01),
    "dearer GPUs": lambda d: d["proof"]["stages"]["objective"][0]["rows"].update(gpus={"default": -1.0}),
    "no multipliers": lambda d: d["proof"]["stages"]["objective"][0].update(rows={}),
    "a share larger": lambda d: d["answer"]["shares"][0].update(fraction=2.0),
    "a policy that has no parts": lambda d: d["options"].update(policy="finish_time"),
}


@cache
def by_parts(policy: str) -> tuple[dict[str, Any], Instance]:
    instance = generate("gavel-like", jobs=100, gpus=32, seed=3)
    document = solve(instance, "highs", parts=2, policy=policy).to_dict()
    assert verify(document, instance).ok
    assert abs(document["bound"] - document["objective"]) > 1e-4  # so that there is a bound to tighten
    return document | {"certificate": None}, instance


@pytest.mark.parametrize("policy", ["max_min", "max_throughput"])
@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_answers_by_parts_are_refused(fault: str, policy: str) -> None:
    document, instance = by_parts(policy)
    wrong = copy.deepcopy(document)
    FAULTS[fault](wrong)
    assert not verify(wrong, instance).ok
