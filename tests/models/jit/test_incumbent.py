"""Incumbent schedules: complete, certified, never better than the optimum, with valid levels or bounds."""

from collections.abc import Mapping
from typing import Any

import pytest

from flowlex.formulations.solver_outcome import Status
from flowlex.instances import generate
from flowlex.models import incumbents
from flowlex.models.jit.methods import plan_search
from flowlex.models.jit.model import JitBandwidth
from flowlex.validation.certificates import verify


def _order(stages: Mapping[str, Any]) -> list[Any]:
    return [stages.get("lateness", 0), *(stages.get(f"level_{k}", 0) for k in range(40, 0, -1))]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report every incumbent, without a minimal time between two."""
    monkeypatch.setattr(incumbents, "_PAUSE_S", 0.0)
    monkeypatch.setattr(incumbents, "_SHARE", 1e9)


@pytest.mark.parametrize("load", ["pair", "port", "receiver"])
@pytest.mark.parametrize("windows", ["strict", "elastic"])
def test_what_is_met_on_the_way_is_true(load: str, windows: str, at_once: None) -> None:
    met: list[Any] = []
    for seed in range(4):
        instance = generate("jit-random", seed=seed, jobs=5, slots=6, machines=4)
        model = JitBandwidth(instance, windows=windows, load=load, share=1.0, presolve=seed % 2 == 0)
        here: list[Any] = []
        best = model.solve("highs", report=here.append)
        for each in here if best.status is Status.OPTIMAL else ():
            assert verify(each.to_dict(), instance).ok
            assert _order(each.stages) >= _order(best.stages)
            if each.stages["lateness"] == best.stages["lateness"]:  # the bound is among schedules that are no later
                assert 1 <= each.bound <= best.objective
                met.append(each)
    assert windows == "strict" or any(each.bound > 1 or each.lowest > 1 for each in met)


def test_a_limit_leaves_the_levels_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = generate("jit-random", seed=3, jobs=5, slots=6, machines=4)
    model = JitBandwidth(instance, windows="elastic", load="port", share=1.0)
    best, calls = model.solve("highs"), [0]
    assert len(best.levels) > 2

    def left(state: plan_search.SearchState, *, is_mip: bool = False) -> float | None:
        calls[0] -= 1
        return None if calls[0] >= 0 else 0.0

    monkeypatch.setattr(plan_search.SearchState, "_left", left)
    shown = []
    for most in range(best.lp_solves + best.mip_solves):
        calls[0] = most
        stopped = model.solve("highs")
        assert stopped.status is Status.FEASIBLE and stopped.certificate is not None and stopped.certificate.ok
        assert verify(stopped.to_dict(), instance).ok
        assert _order(stopped.stages) >= _order(best.stages)
        shown.append((stopped.stages["lateness"], stopped.lowest > 1))
    assert shown[0][0] >= shown[-1][0] == best.stages["lateness"] and shown[-1][1]
