"""An answer of a changed model is returned with the claim that its proof shows; fine and coarse units keep proofs."""

import json
from fractions import Fraction
from typing import Any

import pytest

from flowlex import generate, model_for
from flowlex.instances.flow import FlowInstance
from flowlex.models import stated_model
from flowlex.models.model_base import UNPROVEN
from flowlex.validation.certificates import CertificateError, SolutionError, verify

GENERATORS = ["flow-random", "gpu-random", "gavel-like", "network-random", "inference-cluster"]


def flow(costs: dict[str, float], slots: int = 1) -> FlowInstance:
    """One machine, one job, a task for each cost."""
    tasks = [{"name": name, "costs": {"m": cost}} for name, cost in costs.items()]
    return FlowInstance.model_validate(
        {"name": "hand", "machines": [{"name": "m", "slots": slots}], "jobs": [{"name": "j", "tasks": tasks}]}
    )


def proven(solution: Any) -> None:
    document = json.loads(json.dumps(solution.to_dict()))
    assert verify(document, solution.source).verdict == "proven", verify(document, solution.source)
    assert solution.status in ("optimal", "infeasible")


@pytest.mark.parametrize(
    ("generator", "sizes", "bound"),
    [
        ("flow-random", {}, 3),
        ("gpu-random", {"seed": 3}, 4),
        ("gavel-like", {"jobs": 5}, 2),
        ("pods-scale", {"nodes": 3, "pods": 6}, 4),
        ("network-random", {}, 790),
    ],
)
def test_a_binding_rule_is_proven_whatever_its_unit(generator: str, sizes: dict[str, Any], bound: int) -> None:
    """The rule says the same in bytes as in GB, so optimum and claim are the same."""
    model = model_for(generate(generator, **sizes))
    total = model.variables[next(iter(model.variables))].sum()
    plain = model.with_constraint("own", total <= bound).solve("highs")
    proven(plain)
    assert plain.status == "optimal"
    for coefficient in (10**8, 12_345_678_901, "0.00000001"):
        found = model.with_constraint("own", total * coefficient <= Fraction(str(coefficient)) * bound).solve("highs")
        proven(found)
        assert found.status == "optimal" and found.objective == pytest.approx(plain.objective, rel=1e-9), coefficient


@pytest.mark.parametrize("costs", [{"a": 1.0}, {"a": 7, "b": 2.5}, {"a": 0.1, "b": 3, "c": 7}])
def test_relaxed_flow_scheduling_states_what_its_values_give(costs: dict[str, float]) -> None:
    model = model_for(flow(costs))
    found = model.relaxed().solve("highs")
    proven(found)
    assert found.objective == pytest.approx(model.solve("network").objective, rel=1e-6)


def test_rounds_with_few_admissible_pairs_are_proven_after_a_change() -> None:
    """27 000 tasks times GPUs, fewer admissible pairs: the proof is by pairs, the certificate by classes."""
    instance = generate("gpu-scale", gpus=150, tasks=150, running=0.3, jobs=8, racks=4, seed=1)
    for policy in ("FSP", "FS"):
        model = model_for(instance, policy=policy)
        found = model.with_constraint("loose", model.variables["x"].sum() <= 1000).solve("highs")
        proven(found)
        assert found.objective == model.solve("network").objective


def test_rounds_whose_disks_are_slower_than_the_network_are_proven_after_a_change() -> None:
    instance = generate("gpu-scale", gpus=150, tasks=150, jobs=8, racks=4, seed=1)
    slow = type(instance).model_validate(instance.model_dump() | {"disk_mb_per_s": 10.0})
    model = model_for(slow)
    found = model.with_constraint("loose", model.variables["x"].sum() <= 1000).solve("highs")
    proven(found)
    assert found.objective == model.solve("network").objective


def spoil(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Change every leaf that a solve writes."""
    true = stated_model.to_document

    def spoilt(*args: Any) -> dict[str, Any]:
        document = true(*args)
        if "empty" in document:
            document["empty"] = [change(leaf) for leaf in document["empty"]]
        stages = document.get("stages", {})
        return document | {"stages": {stage: [change(leaf) for leaf in leaves] for stage, leaves in stages.items()}}

    monkeypatch.setattr(stated_model, "to_document", spoilt)


def unknown_row(leaf: dict[str, Any]) -> dict[str, Any]:
    return leaf | {"rows": leaf.get("rows", {}) | {"unknown": {"at": {"a": -1}}}}


def no_rows(leaf: dict[str, Any]) -> dict[str, Any]:
    return leaf | {"rows": {}}


@pytest.mark.parametrize("change", [unknown_row, no_rows])
@pytest.mark.parametrize(
    "generator", ["flow-random", "gpu-random", "gavel-like", "network-random", "inference-cluster"]
)
def test_an_answer_whose_proof_fails_is_feasible(generator: str, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_for(generate(generator, seed=3))
    total = model.variables[next(iter(model.variables))].sum()
    changed = model.with_constraint("own", total >= 1)
    true = changed.solve("highs")
    spoil(monkeypatch, change)
    found = changed.solve("highs")
    assert found.objective == true.objective and found.certificate is not None and found.certificate.ok
    assert found.status == "feasible" and UNPROVEN in found.message and not found.duals
    assert verify(json.loads(json.dumps(found.to_dict())), found.source).verdict == "proven"


def test_a_weaker_bound_is_stated_if_the_proof_shows_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: without multipliers every arc has its cheapest flow."""
    instance = generate("network-random")
    model, arcs = model_for(instance), zip(instance.cost, instance.lower, instance.upper, strict=True)
    changed = model.with_constraint("own", model.variables["flow"].sum() >= 1)
    true = changed.solve("highs")
    spoil(monkeypatch, no_rows)
    found = changed.solve("highs")
    least = sum(cost * (upper if cost < 0 else lower) for cost, lower, upper in arcs)
    assert found.bound == least <= true.objective == found.objective
    assert found.certificate is not None and found.certificate.claim == "bounded"


def test_values_that_break_a_row_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_for(flow({"a": 1, "b": 2}))
    changed = model.with_constraint("own", model.variables["x"].sum() <= 1)
    monkeypatch.setattr(stated_model, "number", lambda value: 5)
    with pytest.raises(CertificateError, match="within its bounds"):
        changed.solve("highs")


def test_an_infeasible_rule_whose_proof_fails_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_for(generate("network-random"))
    changed = model.with_constraint("own", model.variables["flow"].sum() <= -1)
    assert str(changed.solve("highs").certificate).startswith("infeasible, proven")
    spoil(monkeypatch, unknown_row)
    found = changed.solve("highs")
    assert found.status == "infeasible" and found.certificate.verdict == "quoted"


def touched(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return json.loads(json.dumps(document | changes))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "generator", ["gpu-random", "gavel-like", "network-random", "inference-cluster", "flow-random"]
)
def test_duals_and_options_of_a_changed_answer_are_judged(generator: str) -> None:
    """A file may state the multipliers that its proof shows as duals, and nothing else."""
    model = model_for(generate(generator, seed=3))
    variables = model.variables[next(iter(model.variables))]
    changed = model.with_constraint("own", variables.sum() <= 10**6)
    if generator == "gavel-like":
        changed = model.with_constraint("own", variables.sum() <= 1)
    document = touched(changed.solve("highs").to_dict())
    true = verify(document, model.instance)
    assert true.verdict == "proven"
    name = next(iter(document["duals"]), "own")
    rows = document["duals"].get(name, {})
    for wrong in (-123456, 1e308, "1/3"):
        for label in [*[*rows][:2], "nobody"]:
            duals = document["duals"] | {name: rows | {label: wrong}}
            assert verify(touched(document, duals=duals), model.instance).verdict == "refused"
    assert verify(touched(document, duals={"unknown": {"a": 1}}), model.instance).verdict == "refused"
    if rows:
        fewer = {name: {k: v for k, v in rows.items() if k != next(iter(rows))}}
        assert verify(touched(document, duals=fewer), model.instance).verdict == "refused"
        without = touched(document, proof={}, certificate=None)
        assert verify(without, model.instance).verdict == "quoted"
    with pytest.raises(SolutionError, match=r"options\.hunch"):
        verify(touched(document, options=document["options"] | {"hunch": 1}), model.instance)


def test_own_rules_are_named_first_where_nothing_satisfies_all() -> None:
    """At most 5 of the testbed's 9 running tasks: the rule conflicts with those that keep them."""
    model = model_for(generate("gpu-testbed"))
    found = model.with_constraint("bytes", model.variables["x"].sum() <= 5).solve("highs")
    assert found.status == "infeasible" and found.infeasibility is not None
    assert found.infeasibility.constraints[0] == "bytes" and "together: bytes" in found.message


@pytest.mark.parametrize("generator", [*GENERATORS, "pods-scale"])
def test_a_changed_answer_that_was_not_certified_is_proven_from_its_file(generator: str) -> None:
    sizes = {"nodes": 3, "pods": 6} if generator == "pods-scale" else {"jobs": 5} if generator == "gavel-like" else {}
    model = model_for(generate(generator, seed=3, **sizes))
    changed = model.with_constraint("own", model.variables[next(iter(model.variables))].sum() <= 10**6)
    found = changed.solve("highs", certify=False)
    assert found.certificate is None and found.message.count("not certified") == 1
    assert verify(json.loads(json.dumps(found.to_dict())), found.source).verdict == "proven"
