"""What is too large for one program over all nodes still gets an answer and a bound."""

from __future__ import annotations

from time import perf_counter

import pytest

from flowlex.formulations.outcome import SolveOptions
from flowlex.instances.generators import generate
from flowlex.models.pods import admission as pod_admission
from flowlex.models.pods import model as pod_placement
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.problem.program import PlacementProgram


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setattr(pod_admission, "LARGEST", 100)
    monkeypatch.setattr(pod_placement, "LARGEST", 100)


def test_columns_are_counted_without_making_them():
    for seed in range(3):
        builder = PodPlacement(generate("pods-scale", nodes=8, pods=30, seed=seed)).builder
        assert builder.columns == len(builder.pairs[0]) + len(builder.card_slots[0])
        bare = PodPlacement(generate("pods-scale", nodes=8, pods=30, seed=seed), cards=False).builder
        assert bare.columns == len(bare.pairs[0])


def test_a_program_that_is_too_large_is_not_made(small_limit, monkeypatch):
    instance = generate("pods-scale", nodes=6, pods=200, seed=1)  # more than fits
    whole = PodPlacement(instance).solve("highs", time_limit_s=20, gap=0.05)
    monkeypatch.setattr(PlacementProgram, "program", lambda *_, **__: pytest.fail("the whole program was made"))
    model = PodPlacement(instance)
    assert model.sizes() == {"formulation": "integer program", "columns": model.builder.columns, "rows": "not built"}
    first = pod_admission.admit(model, "highs", SolveOptions(), perf_counter() + 20)
    assert first.cluster is not None
    top = max(first.admitted)
    assert 0 < first.admitted[top] <= whole.admitted[top][0] <= first.most[top]
