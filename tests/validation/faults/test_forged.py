"""Forged proofs: multipliers of rows that must not be assumed, or numbers that overflow."""

import copy
from typing import Any

import pytest

from flowlex.formulations.solver_outcome import Outcome, Status
from flowlex.instances import generate
from flowlex.models.jit.baselines import fill
from flowlex.models.jit.methods.plan_search import Plan
from flowlex.models.jit.model import JitBandwidth, JitRun
from flowlex.models.model_options import option_types
from flowlex.models.registry import model_class, model_for
from flowlex.validation.certificates import verifier_for, verify
from flowlex.validation.certificates.verifier_interface import verifier_kinds


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
