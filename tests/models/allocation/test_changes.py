"""Changes of an allocation: equal to an independent program, proven; invalid ones are refused by name."""

import json

import numpy as np
import pytest

from flowlex import Allocation
from flowlex.instances import AllocationInstance, generate
from flowlex.models.solution import ModelError
from flowlex.validation.certificates import verify
from tests.models.allocation.cases import random_instance
from tests.seeds import seeds

RAISING = ("water_filling", "hierarchical", "finish_time")


def tiny(**more):
    """Two jobs, one GPU of each of two types; a runs at 2 and 1 steps/s, b at 1 and 1; they may share the second."""
    kinds = [
        {"name": "A", "steps_per_s": {"fast": 2.0, "slow": 1.0}},
        {"name": "B", "steps_per_s": {"fast": 1.0, "slow": 1.0}},
    ]
    return AllocationInstance.model_validate(
        {
            "gpu_types": [{"name": "fast", "count": 1, "usd_per_hour": 4.0}, {"name": "slow", "count": 1}],
            "job_types": kinds,
            "jobs": [{"name": "a", "job_type": "A", "entity": "u"}, {"name": "b", "job_type": "B"}],
            "pairs": [{"job_types": ("B", "A"), "gpu_type": "slow", "steps_per_s": (0.5, 0.25)}],
            "entities": [{"name": "u"}],
            **more,
        }
    )


def test_rules_by_hand():
    model = Allocation(tiny(), policy="max_throughput")
    runs = model.variables["runs"]
    assert model.solve().objective == pytest.approx(3)  # a on fast, b on slow
    assert model.with_constraint("half", runs.sel(job="a", gpu_type="fast").sum() <= 0.5).solve().objective == (
        pytest.approx(1.0 + 0.5 + 1.0)
    )
    solution = model.with_constraint("off", runs.sel(gpu_type="fast").sum() == 0).solve()
    assert solution.objective == pytest.approx(1) and solution.throughput.sum() == pytest.approx(1)
    together = model.with_fixed(model.variables["share"].sel(job="a", partner="b", gpu_type="slow"), 1).solve()
    assert together.throughput.tolist() == pytest.approx([0.25, 0.5])  # a is the second of the pair in the file
    assert together.to_frame().loc["a", "slow"] == pytest.approx(1)
    alone = Allocation(tiny()).without("level", "b").solve()
    assert alone.objective == pytest.approx(2 / 1.5) and alone.duals["level"].values.tolist() == pytest.approx([-1])


def test_labels_by_name():
    model = Allocation(tiny())
    assert sorted(model.variables["share"].index) == [
        ("a", "", "fast", "u"),
        ("a", "", "slow", "u"),
        ("a", "b", "slow", "u"),
        ("b", "", "fast", ""),
        ("b", "", "slow", ""),
    ]
    assert sorted(model.variables["runs"].index) == [
        ("a", "fast", "u"), ("a", "slow", "u"), ("b", "fast", ""), ("b", "slow", "")
    ]  # fmt: skip
    assert model.constraints["level"].to_frame().index.tolist() == [("a",), ("b",)]


@pytest.mark.parametrize("policy", RAISING)
@pytest.mark.parametrize("seed", seeds(2, 12))
def test_policies_of_several_programs_keep_a_rule_as_they_keep_a_limit(seed, policy):
    rng, instance = np.random.default_rng(seed), random_instance(seed, limits=False)
    jobs = [job.name for job in instance.jobs]
    rules = [{"job": jobs[0], "most_gpus": float(rng.integers(4, 30)) / 32}]
    rules.append({"job": jobs[1], "least_gpus": float(rng.integers(0, 10)) / 32})
    limited = Allocation(AllocationInstance.model_validate(instance.model_dump() | {"limits": rules}), policy=policy)
    model, gpus = Allocation(instance, policy=policy), {kind.name: kind.gpus for kind in instance.job_types}
    held = [gpus[job.job_type] * model.variables["runs"].sel(job=job.name).sum() for job in instance.jobs[:2]]
    ruled = model.with_constraint("cap", held[0] <= rules[0]["most_gpus"])
    ruled = ruled.with_constraint("floor", held[1] >= rules[1]["least_gpus"])
    wanted, solution = limited.solve(), ruled.solve()
    assert solution.objective == pytest.approx(wanted.objective, rel=1e-6)
    if policy != "finish_time":
        assert solution.level.tolist() == pytest.approx(wanted.level.tolist(), rel=2e-6, abs=1e-7)
    document = json.loads(json.dumps(solution.to_dict()))
    assert verify(document, instance).claim == "optimal"
    if policy != "finish_time":
        document["answer"]["full"] = document["answer"]["full"][::-1]
        assert len(solution.steps) == 1 or verify(document, instance).claim != "optimal"
    else:
        document.update(bound=document["bound"] * 1.01, objective=document["objective"] * 1.01)
        assert not verify(document, instance).ok


def test_filling_goes_on_where_a_rule_stops_a_job():
    jobs = [{"name": name, "job_type": "k", "entity": name[0]} for name in ("a1", "a2", "b")]
    instance = AllocationInstance.model_validate(
        {
            "gpu_types": [{"name": "g", "count": 2}],
            "job_types": [{"name": "k", "steps_per_s": {"g": 1.0}}],
            "jobs": jobs,
            "entities": [{"name": "a"}, {"name": "b"}],
        }
    )
    for policy, reached in (("water_filling", [0.25, 0.875, 0.875]), ("hierarchical", [0.25, 0.75, 1.0])):
        model = Allocation(instance, policy=policy)
        solution = model.with_constraint("few", model.variables["runs"].sel(job="a1").sum() <= 0.25).solve()
        assert solution.throughput.tolist() == pytest.approx(reached)
        none = model.with_constraint("no", model.variables["runs"].sel(job="b").sum() >= 1.5).solve()
        assert str(none.status) == "infeasible" and none.certificate.claim == "infeasible"


def test_changes_that_make_no_sense_are_refused():
    for policy in RAISING:
        jobs = [{**job.model_dump(), "steps_left": 5.0} for job in tiny().jobs]
        model = Allocation(tiny(jobs=jobs), policy=policy)
        for change in (
            lambda m: m.with_cost(m.variables["runs"].sum()),
            lambda m: m.with_variable("v", upper=1, integer=True),
            lambda m: m.without("level"),
            lambda m: m.with_bounds(m.variables["rise"], upper=0.5),
            lambda m: m.with_constraint("r", m.variables["rise"].sum() <= 0.5),
        ):
            with pytest.raises(ModelError, match=f"policy '{policy}' raises jobs program by program"):
                change(model)
    with pytest.raises(ModelError, match="takes no changes: a rule may join jobs"):
        Allocation(generate("gavel-like", jobs=24, gpus=32, seed=1), parts=2).relaxed()
    model = Allocation(tiny())
    for rows in ("time", "gpus", "runs"):
        with pytest.raises(ModelError, match=f"rows '{rows}' cannot be dropped"):
            model.without(rows)
    with pytest.raises(ModelError, match="no gpu_type 'fats'; did you mean 'fast'"):
        model.variables["runs"].sel(gpu_type="fats")


def test_rules_that_contradict_limits_are_named_and_proven():
    model = Allocation(tiny(limits=[{"job": "b", "least_gpus": 0.75}]))
    solution = model.with_constraint("few", model.variables["runs"].sel(job="b").sum() <= 0.5).solve()
    assert str(solution.status) == "infeasible" and solution.certificate.claim == "infeasible"
    assert "few" in solution.message
