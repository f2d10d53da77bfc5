"""Rounds of many pairs: only columns that can be the cheapest are made, and no proof gains by what is left out."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import flowlex.validation.restated.gpu_answer as certificates
from flowlex.instances.gpu import GpuInstance
from flowlex.models.gpu.model import GpuAssignment
from flowlex.validation.certificates import verify
from tests.models.gpu.cases import cluster, job, random_round, task

OPTIONS: tuple[dict[str, Any], ...] = (
    {"policy": "FS"},
    {"policy": "FSU"},
    {"policy": "FSP", "stop_price": 0.5},
    {"policy": "FSP", "waiting": "priced"},
)


def document_of(instance: GpuInstance, **options: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(GpuAssignment(instance, **options).solve("network").to_dict()))
    return document


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_verdict_is_that_over_all_columns(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        instance = random_round(seed)
        document = document_of(instance, **options)
        whole = verify(document, instance)
        with monkeypatch.context() as patch:
            patch.setattr(certificates, "_WRITTEN_OUT", -1)
            assert str(verify(document, instance)) == str(whole) and whole.claim == "optimal"


FORGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "prices of GPUs that the checker completes": lambda proof: proof["stages"]["transfer"][0].update(
        complete=["gpu_out"]
    ),
    "a branch on a waiting task": lambda proof: proof["stages"]["transfer"][0].update(
        branches=[{"row": [["x", "t,n.0", 1]], "relation": ">=", "side": 1}]
    ),
    "a derived row of a waiting task": lambda proof: proof.update(
        derived=[{"row": [["x", "t,n.0", 1]], "cases": [{}]}]
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_no_proof_tells_columns_apart_of_which_some_are_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task has a cheap GPU of its own; another node is far from its data."""
    nodes = [("n", "r", [16.0, 16.0]), ("far", "s", [16.0])]
    instance = cluster([job("j", task("t", (1000.0, "n")))], nodes)
    document = document_of(instance)
    monkeypatch.setattr(certificates, "_WRITTEN_OUT", -1)
    assert verify(document, instance).claim == "optimal"
    FORGED[name](document["proof"])
    certificate = verify(document, instance)
    assert not certificate.ok
    assert any("round of many pairs" in check.detail for check in certificate.checks if not check.ok)
