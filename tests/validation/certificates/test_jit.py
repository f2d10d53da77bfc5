"""The certificate of a just-in-time schedule fails when the schedule, its windows or its proofs are touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flowlex.formulations.outcome import SolveOptions
from flowlex.instances.generators import generate
from flowlex.instances.jit import JitInstance
from flowlex.models.jit.levels import Plan, Search, find_plan
from flowlex.models.jit.model import JitBandwidth
from flowlex.validation.certificates.jit import JitSchedule, LevelProof, SchedulePart, certify_schedule


@pytest.fixture(scope="module")
def instance() -> JitInstance:
    made = generate("jit-random", seed=22, machines=3, jobs=3, transfers=3, slots=5, capacity=3)
    assert isinstance(made, JitInstance)
    return made


@pytest.fixture(scope="module")
def schedule(instance: JitInstance) -> JitSchedule:
    model = JitBandwidth(instance, share=1.0)
    plan: Plan = find_plan(model.grid, Search("pair", "slots", "strict", "auto", True, "highs", SolveOptions()))
    assert plan.status.has_answer
    return model._schedule(plan)


def failed(instance: JitInstance, schedule: JitSchedule) -> list[str]:
    return [check.name for check in certify_schedule(instance, schedule).checks if not check.ok]


def test_the_schedule_itself_holds(instance: JitInstance, schedule: JitSchedule) -> None:
    certificate = certify_schedule(instance, schedule)
    assert certificate.ok and certificate.claim == "optimal" and certificate.exact
    assert schedule.parts[0].proofs[0].level >= 2  # otherwise the tests below would prove nothing


def changed(array: Any, at: int, by: float) -> Any:
    copy = array.copy()
    copy[at] += by
    return copy


@pytest.mark.parametrize(
    ("field", "by", "name"),
    [
        ("latest_s", 1.0, "latest arrival times satisfy their equations"),
        ("waits_s", 1.0, "latest arrival times satisfy their equations"),
        ("start", 1, "windows are start and latest arrival on the grid"),
        ("stop", 1, "windows are start and latest arrival on the grid"),
        ("rate", 1, "every transfer is sent whole"),
        ("rate", -9, "no rate is negative"),
    ],
)
def test_a_touched_array_is_found(instance: JitInstance, schedule: JitSchedule, field: str, by: int, name: str) -> None:
    values = getattr(schedule, field)
    at = int(np.flatnonzero(np.isfinite(values))[0])
    broken = replace(schedule, **{field: changed(values, at, by)})
    assert any(check.startswith(name) for check in failed(instance, broken))


def test_moving_a_unit_out_of_a_least_schedule_is_found(instance: JitInstance, schedule: JitSchedule) -> None:
    """Concentrating a transfer raises a level; the old proof no longer bounds it."""
    from flowlex.validation.certificates.jit import _View

    length = schedule.last - schedule.first
    units = instance.arrays.size_units[schedule.transfer]
    everything = np.ones(int(length.sum()), np.bool_)
    before = sorted(_View(instance, schedule).loads(everything).tolist(), reverse=True)
    tried = 0
    for k in range(len(length)):
        rate = schedule.rate.copy()
        offset = int(length[:k].sum())
        rate[offset : offset + length[k]] = 0
        rate[offset] = units[k]
        broken = replace(schedule, rate=rate)
        if sorted(_View(instance, broken).loads(everything).tolist(), reverse=True) > before:
            tried += 1
            assert any("level" in name or "gress" in name for name in failed(instance, broken))
    assert tried


def test_a_missing_or_weak_proof_is_found(instance: JitInstance, schedule: JitSchedule) -> None:
    part = schedule.parts[0]
    none = replace(schedule, parts=(SchedulePart(part.transfers, ()),))
    assert any("no proof given" in name for name in failed(instance, none))
    proof = part.proofs[0]
    weak = replace(proof, rho=np.zeros_like(proof.rho))
    assert any("dual bound" in n for n in failed(instance, replace(schedule, parts=(replace(part, proofs=(weak,)),))))
    negative = replace(proof, rho=-proof.rho)
    assert any(
        "dual bound" in n for n in failed(instance, replace(schedule, parts=(replace(part, proofs=(negative,)),)))
    )


def test_no_prices_can_prove_too_much(instance: JitInstance, schedule: JitSchedule) -> None:
    """Whatever the prices, the bound stays below what a real schedule has: weak duality, by random trial."""
    from flowlex.validation.certificates.jit import _View, level_bound

    view = _View(instance, schedule)
    part = SchedulePart(np.arange(len(schedule.transfer)), ())
    columns = np.ones(len(view.row), np.bool_)
    loads = view.loads(columns)
    counts = {s: float((loads >= s).sum()) for s in range(1, int(loads.max()) + 1)}
    rng = np.random.default_rng(0)
    best = -np.inf
    for _ in range(300):
        level = int(rng.integers(1, max(counts) + 1))
        loaded = np.unique(view.groups[0][view.row] * view.horizon + view.slot)
        proof = LevelProof(
            level=level,
            load=loaded // view.horizon,
            load_slot=loaded % view.horizon,
            rho=rng.integers(0, 3, len(loaded)) * rng.random(),
            port=np.array([0, 1]),
            port_slot=np.array([0, 1]),
            pi=rng.random(2) * rng.integers(0, 2),
            mu={s: float(rng.integers(0, 3)) for s in range(level + 1, max(counts) + 1)},
        )
        bound = level_bound(view, part, columns, proof, counts)
        assert bound <= counts[level] + 1e-9
        best = max(best, bound)
    assert best > 0


def test_parts_that_share_a_pair_are_refused(instance: JitInstance, schedule: JitSchedule) -> None:
    whole = schedule.parts[0]
    pair = JitBandwidth(instance, share=1.0).grid.pair
    twice = int(np.flatnonzero(np.bincount(pair) > 1)[0])
    k = int(np.flatnonzero(pair == twice)[0])
    parts = (
        SchedulePart(np.array([k]), whole.proofs),
        SchedulePart(np.setdiff1d(whole.transfers, [k]), whole.proofs),
    )
    assert "the parts hold every transfer once and share no load" in failed(instance, replace(schedule, parts=parts))
