"""A rule that never binds changes no objective, and a changed objective is refused."""

from __future__ import annotations

import json

import pytest

from flowlex import generate, model_for
from flowlex.validation.certificates import verify

CASES = [
    ("gpu-random", {}, {"policy": "FSP"}),
    ("flow-random", {}, {"preset": "borg"}),
    ("flow-random", {}, {"preset": "quincy"}),
    ("flow-random", {}, {"order": "phases"}),
    ("flow-random", {}, {"lexicographic": True}),
    ("jit-random", {}, {}),
    ("inference-cluster", {}, {"objective": "makespan"}),
    ("inference-cluster", {}, {"level": "item"}),
    ("gavel-like", {"jobs": 5}, {"policy": "max_min"}),
    ("gavel-like", {"jobs": 5}, {"policy": "makespan"}),
    ("pods-scale", {"nodes": 3, "pods": 8}, {"balance": "deviation"}),
    ("pods-scale", {"nodes": 3, "pods": 8}, {"balance": "max_load"}),
    ("network-random", {}, {}),
]


def with_idle_rule(generator, sizes, options, seed):
    model = model_for(generate(generator, seed=seed, **sizes), **options)
    first = next(iter(model.variables.values()))
    return model, model.with_constraint("idle", first.sum() <= 10**7)


@pytest.mark.parametrize(("generator", "sizes", "options"), CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_an_idle_rule_changes_no_objective(generator, sizes, options, seed):
    model, ruled = with_idle_rule(generator, sizes, options, seed)
    before, after = model.solve(), ruled.solve()
    assert after.objective == pytest.approx(before.objective, rel=1e-6)
    assert after.bound == pytest.approx(before.bound, rel=1e-4)
    assert after.certificate.claim == "optimal"


def test_weights_of_stages_are_judged():
    _, ruled = with_idle_rule("flow-random", {}, {}, 1)
    document = json.loads(json.dumps(ruled.solve().to_dict()))
    weights, stages = document["answer"]["weights"], document["stages"]
    for wrong in ({name: 1 for name in weights}, {"cost": 1}, {**weights, "shortfall": -1}):
        total = sum(wrong.get(name, 0) * value for name, value in stages.items())
        forged = document | {"answer": {"weights": wrong}, "objective": total, "bound": total}
        assert not verify(forged, ruled.instance).ok


def test_own_costs_in_the_last_stage_count_in_its_unit(tmp_path):
    model = model_for(generate("pods-scale", seed=1, nodes=3, pods=8))
    placed = model.variables["x"]
    costly = model.with_cost(2.0 * placed.sum(), stage="balance").solve()
    assert costly.objective == costly.stages["balance"] and costly.certificate.claim == "optimal"
    costly.save(tmp_path / "costly.solution.json")
    saved = json.loads((tmp_path / "costly.solution.json").read_text())
    assert verify(saved, model.instance).ok
