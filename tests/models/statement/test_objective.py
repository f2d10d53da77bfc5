"""A changed objective is refused, and own costs count in the unit of their stage."""

import json

from flowlex import generate, model_for
from flowlex.validation.certificates import verify


def test_weights_of_stages_are_judged():
    model = model_for(generate("flow-random", seed=1))
    ruled = model.with_constraint("idle", next(iter(model.variables.values())).sum() <= 10**7)
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
