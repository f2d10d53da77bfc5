"""Forged proofs: multipliers of rows that must not be assumed, or numbers that overflow."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flowlex.formulations.solver_outcome import Outcome, Status
from flowlex.instances import generate
from flowlex.models.jit.baselines import fill
from flowlex.models.jit.interval_schedules import Blocks, load_counts
from flowlex.models.jit.model import JitBandwidth, JitRun
from flowlex.models.jit.plan_search import Plan
from flowlex.models.model_options import option_types
from flowlex.models.registry import model_class, model_for
from flowlex.validation.certificates import verifier_for, verify
from flowlex.validation.certificates.jit import LATENESS, LevelProof, Prices, SchedulePart
from flowlex.validation.certificates.verifier_interface import verifier_kinds

SEEDS = range(12)


def _made_up(model: JitBandwidth, blocks: Blocks, how: str) -> SchedulePart:
    """Return forged proofs for a schedule that may be suboptimal."""
    grid = model.grid
    value, width = load_counts(grid, blocks, "pair")
    counts = {s: int(width[value >= s].sum()) for s in range(1, int(value.max()) + 1)}
    rows, first = np.unique(grid.sender * len(grid.out_units) + grid.receiver, return_index=True)
    ones, until = np.ones(grid.count, np.int64), np.full(len(rows), int(max(grid.stop.max(), blocks.end.max())))
    price = Prices(rows, 0 * first, until, np.ones(len(rows), np.int64))
    huge = Prices(rows, 0 * first, until, price.price * 2**62)
    late = int(blocks.lateness(grid.due)) > 0
    proofs = []
    for k in sorted(set(counts) - {1}, reverse=True):
        if how == "levels below":  # the sum of all loads is fixed, so the other levels would determine this one
            proofs.append(LevelProof(k, ones, price, mu={s: 1 for s in counts if s != k}))
        else:
            proofs.append(LevelProof(k, ones * 2**62, huge))
    if late:
        scale = 10**6 if how == "levels below" else 2**62
        proofs.append(LevelProof(LATENESS, ones * scale, Prices(), nu=10**6))
    return SchedulePart(grid.transfer, tuple(proofs))


@pytest.mark.parametrize("how", ["levels below", "more than 64 bits"])
@pytest.mark.parametrize("windows", ["strict", "elastic"])
def test_no_made_up_prices_prove_a_worse_schedule(how: str, windows: str) -> None:
    tried = 0
    for seed in SEEDS:
        model = JitBandwidth(generate("jit-random", seed=seed, jobs=3, slots=6), windows=windows, share=1.0)
        grid = model.grid
        end, blocks = fill(grid.out_units, grid.in_units, grid.sender, grid.receiver, grid.units, grid.start)
        if windows == "strict" and (end > grid.stop).any():
            continue
        best = model.solve("highs")
        plan = Plan(Status.OPTIMAL, blocks, (_made_up(model, blocks, how),), ("structure",))
        worse = replace(model._interpret(JitRun(Outcome(Status.OPTIMAL, "highs"), plan)), duals={})
        if worse.stages != best.stages:
            tried += 1
            assert not verify(worse.to_dict(), model.instance).ok, f"seed {seed}: {worse.stages}, not {best.stages}"
    assert tried >= 3


@pytest.mark.parametrize("level", ["lowest above all loads", "a load that none must reach"])
def test_an_answer_on_the_way_claims_no_more_than_it_shows(level: str) -> None:
    model = JitBandwidth(generate("jit-random", seed=0, jobs=3, slots=6), share=1.0)
    grid = model.grid
    _, blocks = fill(grid.out_units, grid.in_units, grid.sender, grid.receiver, grid.units, grid.start)
    if level == "lowest above all loads":
        document = model._interpret(JitRun(Outcome(Status.FEASIBLE, "highs"), Plan(Status.FEASIBLE, blocks))).to_dict()
        assert verify(document, model.instance).ok and document["bound"] == 1
        top = int(document["objective"])
        part = {"transfers": list(model.instance.transfer_names), "levels": []}
        document["proof"] |= {"lowest": top + 1, "parts": [part]}
        document |= {"bound": top, "gap": 0.0}
    else:
        nothing = LevelProof(4, np.ones(grid.count, np.int64), Prices(), nu=0)
        plan = Plan(Status.FEASIBLE, blocks, largest_bound=4, least=SchedulePart(grid.transfer, (nothing,)))
        document = model._interpret(JitRun(Outcome(Status.FEASIBLE, "highs"), plan)).to_dict()
    assert not verify(document, model.instance).ok


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
