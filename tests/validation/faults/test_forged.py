"""Forged proofs: multipliers of rows that must not be assumed, or numbers that overflow."""

import copy
import json
from typing import Any

import pytest

from flowlex.formulations.solver_outcome import Outcome, Status
from flowlex.instances import generate
from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask, Machine
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.models.flow.goals import LoadSpread, Placement
from flowlex.models.jit.baselines import fill
from flowlex.models.jit.methods.plan_search import Plan
from flowlex.models.jit.model import JitBandwidth, JitRun
from flowlex.models.model_options import option_types
from flowlex.models.pods.model import PodPlacement
from flowlex.models.registry import model_class, model_for
from flowlex.validation.certificates import verifier_for, verify
from flowlex.validation.certificates.verifier_interface import verifier_kinds
from flowlex.validation.restated.flow import solution_verifier


def _early(model: JitBandwidth, status: Status = Status.OPTIMAL) -> dict[str, Any]:
    """The file of the schedule that sends everything as early as possible, without a proof."""
    grid = model.grid
    _, blocks = fill(grid.out_units, grid.in_units, grid.sender, grid.receiver, grid.units, grid.start)
    found: dict[str, Any] = model._interpret(JitRun(Outcome(status, "highs"), Plan(status, blocks))).to_dict()
    return found


def test_a_bound_that_nothing_shows_is_refused() -> None:
    model = JitBandwidth(generate("jit-random", seed=0, jobs=3, slots=6), share=1.0)
    document = _early(model, Status.FEASIBLE)
    assert verify(document, model.instance).ok and document["bound"] == 1
    largest = {"rows": {"size": {"at": dict.fromkeys(model.instance.transfer_names, 1)}}}
    for stages in ({}, {"largest": [largest]}):
        part = {"transfers": list(model.instance.transfer_names), "stages": stages}
        changed = document | {"bound": document["objective"], "gap": 0.0, "proof": {"parts": [part]}}
        assert not verify(changed, model.instance).ok


@pytest.mark.parametrize("above", [0.0, 1e-9, 5e-7])
def test_what_is_only_max_min_fair_is_no_water_filling(above: float) -> None:
    instance = generate("gavel-like", seed=1, jobs=6, gpus=8)
    fair = model_for(instance, policy="max_min").solve("highs").to_dict()
    filled = model_for(instance, policy="water_filling").solve("highs").to_dict()
    assert len(filled["answer"]["full"]) > 1 and verify(filled, instance).claim == "optimal"
    leaf: dict[str, Any] = copy.deepcopy(fair["proof"]["stages"]["objective"][0])
    leaf["own"] *= 1 - above
    least = min(leaf["rows"]["level"]["at"].values())
    fair["proof"]["stages"] = {"rise_1": [leaf], "full_1": [leaf | {"own": least}]}
    fair["answer"]["full"] = [[job.name for job in instance.jobs]]
    fair |= {"model": filled["model"], "options": filled["options"], "certificate": None}
    assert not verify(fair, instance).ok


def test_prices_of_pods_are_of_a_size_that_sums_bear() -> None:
    instance = generate("pods-scale", seed=0, nodes=3, pods=4)
    document = model_for(instance).solve("highs").to_dict()
    piece = {"low": 0.0, "high": 1.0, "leaf": {"rows": {"pod": {"at": {instance.pods[0].name: -1e300}}}}}
    document["proof"]["balance"] = [piece | {"low": -1e300}]
    found = verify(document, instance)
    assert not found.ok and "proof.balance[0].low" in str(found.checks[-1].detail)


def test_certificates_know_every_option_of_every_model() -> None:
    for kind in sorted({*verifier_kinds()} - {"min-cost-flow"}):
        verifier = verifier_for(kind)
        assert verifier is not None and verifier.options is not None
        asked, known = option_types(model_class(kind)), verifier.options.model_fields
        assert asked.keys() == known.keys(), kind
        for name, kind_of in asked.items():
            if "Literal" in str(kind_of) and "Callable" not in str(kind_of):
                assert str(kind_of) == str(known[name].annotation), f"{kind}: {name}"


def test_prices_of_nothing_prove_nothing() -> None:
    """An upper bound without a valid proof is quoted, also with zero duals."""
    nodes = tuple(PodNode(name=f"n{k}", cpu_cores=4, memory_gb=8) for k in range(6))
    pods = tuple(Pod(name=f"p{k}", cpu_cores=3, memory_gb=1) for k in range(14))
    instance = PodInstance(name="prices", nodes=nodes, pods=pods)
    document = json.loads(json.dumps(PodPlacement(instance).solve("highs").to_dict()))
    assert verify(document, instance).ok
    for leaf in document["proof"].get("admission", {}).values():
        assert leaf["blocks"] == ["node"]  # node patterns prove it
        leaf |= {"rows": {}, "blocks": []}
    document["certificate"] = None
    certificate = verify(document, instance)
    assert certificate.claim == "feasible" and any(check.how == "quoted" for check in certificate.checks)


# ---- numbers that sums would wrap around


def _read_back(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(document)) | {"certificate": None}
    return found


def test_rates_that_are_a_schedule_only_modulo_64_bits_are_refused() -> None:
    instance = generate("jit-random", seed=1)
    document = _read_back(model_for(instance).solve("highs").to_dict())
    assert verify(document, instance).claim == "optimal"
    runs = next(runs for runs in document["answer"]["schedule"].values() if runs)
    begin, end, rate = runs.pop(0)
    runs[:0] = [[begin, end, 2**63 - 1], [begin, end, 2**63 - 1], [begin, end, rate + 2]]
    assert not verify(document, instance).ok


def test_more_parts_than_transfers_are_refused_at_once() -> None:
    instance = generate("jit-random", seed=1)
    document = _read_back(model_for(instance).solve("highs").to_dict())
    document["proof"]["parts"] += [{"transfers": []}] * len(instance.transfer_names)
    assert any("parts of" in check.detail for check in verify(document, instance).checks if not check.ok)


def test_shares_that_are_a_partition_only_modulo_64_bits_are_refused() -> None:
    instance = generate("inference-cluster", seed=2, workers=4, items=20)
    document = _read_back(model_for(instance).solve("network").to_dict())
    assert verify(document, instance).claim == "optimal"
    holder = instance.blocks[0].holders[0]
    for name in [block.name for block in instance.blocks if block.holders[0] == holder][:4]:
        split = document["answer"]["blocks"][name]
        split |= {node: split.get(node, 0) + 2**62 for node in document["answer"]["items"]}
    assert not verify(document, instance).ok


def _dodging(name: str, tag: str) -> FlowTask:
    avoided = Constraint(kind="avoided", resources=(tag,), utility=5)
    return FlowTask(name=name, constraints=(avoided,))


def test_prices_of_rules_do_not_wrap_around_where_columns_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks on different machines, each on the one that it avoids; the best answer costs 0."""
    machines = tuple(Machine(name=f"m{k}", rack="r", slots=1, labels=("xy"[k],)) for k in range(2))
    job = FlowJob(name="j", tasks=(_dodging("a", "x"), _dodging("b", "y")), different_machines="red")
    instance = FlowInstance(name="apart", machines=machines, jobs=(job,))
    document = _read_back(model_for(instance, preset="alsched").solve("highs").to_dict())
    document["answer"]["placements"] = {"a": "m0", "b": "m1"}
    document |= {"objective": 10, "bound": 5, "gap": 0.5, "status": "feasible"}
    document["metrics"] |= {"cost": 10, "cost_at_least": 5}
    much = 2**63 - 3
    rows = {"machine": {"at": {"m1": -6}}, "apart": {"default": -much, "at": {"red,m1": 6 - much}}}
    document["proof"]["stages"]["cost"] = [{"complete": ["task"], "rows": rows, "earlier": {"waiting_1": -(2**64)}}]
    monkeypatch.setattr(solution_verifier, "_WRITTEN_OUT", -1)
    assert not verify(document, instance).ok


def test_one_multiplier_of_all_earlier_goals_counts_where_columns_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both tasks on m0, though one could have gone to m2, which the last goal alone does not tell from m1."""
    tasks = (_dodging("a", "bad"), _dodging("b", "bad"))
    machines = (
        Machine(name="m1", rack="r", slots=1, labels=("bad",)),
        Machine(name="m0", rack="r", slots=2),
        Machine(name="m2", rack="r", slots=1),
    )
    instance = FlowInstance(name="before", machines=machines, jobs=(FlowJob(name="j", tasks=tasks),))
    goals = (Placement(), LoadSpread())
    document = _read_back(model_for(instance, goals=goals, lexicographic=True).solve("highs").to_dict())
    document["answer"]["placements"] = {"a": "m0", "b": "m0"}
    document |= {"objective": 1, "bound": 1}
    document["metrics"] |= {"cost": 1, "cost_of_LoadSpread": 1, "LoadSpread_at_least": 1}
    document["stages"]["LoadSpread"] = 1
    leaf = {"complete": ["task"], "rows": {"machine": {"at": {"m0": -1}}}, "earlier": -10}
    document["proof"]["stages"]["LoadSpread"] = [leaf]
    monkeypatch.setattr(solution_verifier, "_WRITTEN_OUT", -1)
    assert not verify(document, instance).ok
