"""Allocation by hand: levels, entities, deadlines, limits; engines agree; bad input is refused."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from flowlex import Allocation, solve
from flowlex.formulations import Status
from flowlex.instances import AllocationInstance, generate
from flowlex.models import ModelError, compare
from flowlex.models.allocation.baselines import baseline
from flowlex.validation.certificates import verify
from tests.models.allocation.cases import extreme_instance


def one_type(gpus: int, jobs: list[dict[str, Any]], speed: float = 1.0, **more: Any) -> AllocationInstance:
    """Jobs of one scale and one speed on one GPU type."""
    types = [{"name": "g", "count": gpus, "usd_per_hour": 2.0}]
    members = [{"job_type": "k", **job} for job in jobs]
    kinds = [{"name": "k", "steps_per_s": {"g": speed}}]
    return AllocationInstance.model_validate({"gpu_types": types, "job_types": kinds, "jobs": members, **more})


def levels(instance: AllocationInstance, **options: Any) -> dict[str, float]:
    solution = Allocation(instance, **options).solve("highs")
    return {job.name: round(float(t), 9) for job, t in zip(instance.jobs, solution.throughput, strict=True)}


def test_water_filling_goes_on_where_max_min_ends() -> None:
    instance = one_type(2, [{"name": n} for n in "abc"], limits=[{"job": "a", "most_gpus": 0.25}])
    assert Allocation(instance).solve().objective == pytest.approx(0.25)
    assert levels(instance, policy="water_filling") == {"a": 0.25, "b": 0.875, "c": 0.875}


def test_entities_share_by_weight_and_what_a_full_job_leaves_goes_to_its_own() -> None:
    jobs = [{"name": "a1", "entity": "A"}, {"name": "a2", "entity": "A"}, {"name": "b", "entity": "B"}]
    entities = [{"name": "A"}, {"name": "B"}]
    capped = one_type(2, jobs, entities=entities, limits=[{"job": "a1", "most_gpus": 0.25}])
    # a1 and a2 rise half as fast as b until a1 is full at 0.25; then a2 rises as fast as b.
    assert levels(capped, policy="hierarchical") == {"a1": 0.25, "a2": 0.75, "b": 1.0}
    heavy = one_type(2, jobs, entities=[{"name": "A"}, {"name": "B", "weight": 2.0}])
    assert levels(heavy, policy="hierarchical") == {"a1": 0.5, "a2": 0.5, "b": 1.0}


def test_inside_a_fifo_entity_the_first_job_comes_first() -> None:
    jobs = [{"name": "a", "entity": "A"}, {"name": "b1", "entity": "B"}, {"name": "b2", "entity": "B"}]
    entities = [{"name": "A"}, {"name": "B", "inside": "fifo"}]
    assert levels(one_type(1, jobs, entities=entities), policy="hierarchical") == {"a": 0.5, "b1": 0.5, "b2": 0.0}
    assert levels(one_type(3, jobs, entities=entities), policy="hierarchical") == {"a": 1.0, "b1": 1.0, "b2": 1.0}


def test_makespan_finish_time_and_cost_by_hand() -> None:
    jobs = [{"name": "a", "steps_left": 10.0}, {"name": "b", "steps_left": 5.0}]
    assert Allocation(one_type(1, jobs), policy="makespan").solve().objective == pytest.approx(15.0)
    # With half of the GPU each takes 20 s and 10 s.
    assert Allocation(one_type(1, jobs), policy="finish_time").solve().objective == pytest.approx(1.0)
    owed = one_type(1, [{"name": "a", "steps_left": 10.0, "deadline_s": 20.0}])
    assert Allocation(owed, policy="min_cost").solve().objective == pytest.approx(1.0)  # half a GPU at 2 USD/h
    assert Allocation(one_type(1, jobs), policy="max_throughput").solve().objective == pytest.approx(1.0)


def test_short_makespans_are_exact() -> None:
    instance = one_type(1, [{"name": "a", "steps_left": 3.5}])
    assert Allocation(instance, policy="makespan").solve().objective == pytest.approx(3.5, rel=1e-12)


def test_a_pair_shares_a_gpu() -> None:
    pair = {"job_types": ("k", "k"), "gpu_type": "g", "steps_per_s": (0.8, 0.8)}
    instance = one_type(1, [{"name": "a"}, {"name": "b"}], pairs=[pair])
    assert Allocation(instance).solve().objective == pytest.approx(0.8)
    assert Allocation(instance, sharing=False).solve().objective == pytest.approx(0.5)


def test_deadlines_that_cannot_be_kept_are_named_and_proven() -> None:
    jobs = [{"name": n, "steps_left": 10.0, "deadline_s": 15.0} for n in "ab"] + [{"name": "c"}]
    solution = Allocation(one_type(1, jobs), policy="max_throughput").solve()
    assert solution.status is Status.INFEASIBLE
    assert "the deadlines of these jobs cannot be kept together: a, b." in solution.message
    assert solution.certificate is not None and solution.certificate.claim == "infeasible"
    kept = Allocation(one_type(1, jobs), policy="max_throughput", deadlines=False).solve()
    assert kept.status is Status.OPTIMAL


def test_baselines_fit_and_are_never_fairer_than_max_min() -> None:
    instance = generate("gavel-like", jobs=20, seed=3, slack=50.0, entities=2)
    best = solve(instance, "highs").metrics()["least_normalised"]
    for name in ("fifo", "proportional", "isolated"):
        answer = baseline(instance, name)
        assert (answer.gpus_held <= instance.arrays.count + 1e-9).all() and (answer.time <= 1 + 1e-9).all()
        assert answer.metrics()["least_normalised"] <= best + 1e-9
    table = compare(instance)
    assert {"fifo", "max_min, time only", "hierarchical", "min_cost"} <= set(table.index)
    with pytest.raises(ModelError, match="no baseline is named 'lottery'"):
        baseline(instance, "lottery")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"job_types": [{"name": "k", "steps_per_s": {"g": 0.0}}]}, "job 'a' has throughput 0 on every GPU type"),
        ({"job_types": [{"name": "k", "gpus": 8, "steps_per_s": {"g": 1.0}}]}, "uses 8 GPUs at once.*at most 2"),
        ({"job_types": [{"name": "k", "steps_per_s": {"tpu": 1.0}}]}, "'tpu', which does not exist; the GPU types"),
        ({"gpu_types": [{"name": "g", "count": 2.5}]}, "valid integer"),
        ({"gpu_types": [{"name": "g", "count": 0}]}, "greater than or equal to 1"),
        ({"jobs": [{"name": "a", "job_type": "k", "weight": 0.0}]}, "greater than 0"),
        ({"jobs": [{"name": "a", "job_type": "k", "steps_left": 1.0, "deadline_s": -5.0}]}, "greater than 0"),
        ({"jobs": [{"name": "a", "job_type": "k", "deadline_s": 5.0}]}, "deadline but no steps_left"),
        ({"jobs": [{"name": "a", "job_type": "x"}]}, "names job type 'x', which does not exist"),
        ({"jobs": [{"name": "a", "job_type": "k", "entity": "u"}]}, "entity 'u', which does not exist.*none"),
        ({"limits": [{"job": "z"}]}, "a limit names job 'z'"),
        ({"limits": [{"job": "a", "least_gpus": 2.0, "most_gpus": 1.0}]}, "floor 2 is above its cap 1"),
        (
            {"pairs": [{"job_types": ("k", "k"), "gpu_type": "g", "steps_per_s": (1.0, 0.5)}]},
            "jobs of one type are identical",
        ),
    ],
)
def test_bad_instances_are_refused(change: dict[str, Any], says: str) -> None:
    good = one_type(2, [{"name": "a"}]).model_dump()
    with pytest.raises(ValueError, match=says):
        AllocationInstance.model_validate({**good, **change})


def test_a_pair_of_different_scales_is_refused() -> None:
    good = one_type(2, [{"name": "a"}]).model_dump()
    kinds = [*good["job_types"], {"name": "wide", "gpus": 2, "steps_per_s": {"g": 1.0}}]
    pair = {"job_types": ("k", "wide"), "gpu_type": "g", "steps_per_s": (1.0, 1.0)}
    with pytest.raises(ValueError, match="'k' and 'wide' use 1 and 2 GPUs; only jobs of one scale can share GPUs"):
        AllocationInstance.model_validate({**good, "job_types": kinds, "pairs": [pair]})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"policy": "makespan"}, "job 'a' has no steps_left; policy 'makespan' needs it"),
        ({"policy": "min_cost"}, "needs a deadline or a floor"),
        ({"policy": "hierarchical", "aware": False}, "aware=False is for max_min, water_filling"),
        ({"tolerance": 0.0}, "tolerance must be at least 1e-9"),
        ({"policy": "lottery"}, "policy='lottery'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        Allocation(one_type(2, [{"name": "a"}]), **options)


def test_generated_workloads_are_bit_stable_and_mixed() -> None:
    one, again = (generate("gavel-like", jobs=400, seed=5, sharing=True, arrivals="poisson") for _ in range(2))
    assert one.fingerprint == again.fingerprint != generate("gavel-like", jobs=400, seed=6).fingerprint
    assert isinstance(one, AllocationInstance)
    scales, parts = np.unique(one.arrays.scale, return_counts=True)
    assert scales.tolist() == [1, 2, 4, 8] and 0.6 < parts[0] / 400 < 0.8
    minutes = one.arrays.steps / one.arrays.speed.max(axis=1) / 60
    assert minutes.min() >= 10**1.5 and minutes.max() <= 10**4 + 1e-6
    assert one.arrays.running.max() > 3600


def test_the_picture_and_the_file() -> None:
    solution = solve(generate("gavel-like", jobs=5))
    assert len(solution.plot().patches) == 15
    assert math.isclose(sum(row["fraction"] for row in solution.to_dict()["answer"]["shares"]), solution.share.sum())
    assert dataclasses.replace(solution, status=Status.INFEASIBLE).to_dict()["answer"] == {}


@pytest.mark.parametrize(
    "policy", ["max_min", "water_filling", "hierarchical", "makespan", "finish_time", "max_throughput"]
)
def test_an_answer_is_there_before_the_first_program_is_solved(policy: str) -> None:
    """Equal shares, with a proven bound if the policy is one program or starts with one."""
    instance: Any = generate("gavel-like", seed=1, jobs=8)
    met: list[Any] = []
    best = Allocation(instance, policy=policy).solve("highs", report=met.append)
    first = met[0]
    assert (str(first.status), str(best.status)) == ("feasible", "optimal")
    assert verify(first.to_dict(), instance).claim == ("feasible" if first.bound is None else "bounded")
    assert (first.bound is None) == (policy in ("hierarchical", "finish_time"))
    if first.bound is not None:
        sign = -1 if policy == "makespan" else 1
        assert sign * first.objective <= sign * best.objective <= sign * first.bound
        document = first.to_dict()
        document["bound"] = (first.objective + first.bound) / 2
        assert not verify(document, instance).ok


ALL_POLICIES = ("max_min", "water_filling", "hierarchical", "makespan", "finish_time", "max_throughput", "min_cost")


@pytest.mark.parametrize("policy", ALL_POLICIES)
@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 1500), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_numbers_far_apart_are_solved_and_verify_from_their_file(policy: Any, seeds: range) -> None:
    claims: list[str] = []
    for seed in seeds:
        instance = extreme_instance(seed)
        if instance is None:
            continue
        try:
            solution = Allocation(instance, policy=policy, pricing=seed % 5 == 0).solve("pulp" if seed % 3 else "highs")
        except ModelError as error:
            assert "min_cost" in str(error) or "never ends" in str(error), seed
            continue
        if not solution.status.claims:
            claims.append("none")
            continue
        certificate = verify(json.loads(json.dumps(solution.to_dict(), allow_nan=False)), instance)
        assert certificate.ok, f"seed {seed}: {certificate}"
        claims.append(certificate.claim)
    assert sum(claim in ("optimal", "infeasible") for claim in claims) >= 0.8 * len(claims)
