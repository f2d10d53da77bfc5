"""Every kind of instance has a model that shows itself briefly and states its mathematics."""

from __future__ import annotations

import pytest

from flowlex.instances import generate
from flowlex.instances.base import Instance
from flowlex.models import model_for

TINY = {
    "flow-scheduling": "flow-testbed",
    "gpu-assignment": "gpu-figure1",
    "jit-bandwidth": "jit-figure4",
    "load-partition": "inference-cluster",
    "min-cost-flow": "network-random",
    "pod-placement": "kubeflow-testbed",
}


def test_every_kind_is_tried() -> None:
    assert set(TINY) == set(Instance.registry)


@pytest.mark.parametrize("kind", TINY)
def test_a_model_shows_itself(kind: str) -> None:
    model = model_for(generate(TINY[kind]))
    assert repr(model) == f"<{type(model).__name__} of {kind} {model.instance.name!r}>"
    html = model._repr_html_()
    assert model.equations
    for equation in model.equations:
        assert f"<code>{equation.name}</code>" in html
        assert equation.latex in model.to_latex()
    assert model.sizes()["formulation"] in ("flow network", "linear program", "integer program")
