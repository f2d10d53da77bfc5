"""Seeded faults in files of changed placements are refused."""

from __future__ import annotations

import copy
import json

import pytest

from flowlex.models.pods.model import PodPlacement
from flowlex.validation.certificates import verify
from tests.models.pods.test_changes import model_of, two_racks


def _understated(document):
    document["values"]["largest_load"][""] = 0.01
    document["objective"] = document["bound"] = document["stages"]["balance"] = 0.01


def _stage(document):
    return document["proof"]["stages"]["balance"]


FAULTS = {
    "rule dropped": lambda d: d["changes"]["changes"].pop(),
    "side off by one": lambda d: d["changes"]["changes"][0].update(rhs=0),
    "wrong label": lambda d: d["changes"]["changes"][0]["terms"][0].update(where={"rack": "r0"}),
    "a pod twice": lambda d: d["values"]["x"].update({"p0,n0": 1, "p0,n1": 1}),
    "a card twice": lambda d: d["values"]["y"].update(dict.fromkeys(d["values"]["y"], 2)),
    "no card": lambda d: d["values"]["y"].pop(next(iter(d["values"]["y"]))),
    "half a pod": lambda d: d["values"]["x"].update({"p0,n0": 0.5}),
    "load understated": _understated,
    "bound forged": lambda d: _stage(d)[0].update(rows={"largest": {"n0": 1}}),
    "stage lost": lambda d: d["stages"].pop("admission 1"),
    "leaves lost": lambda d: _stage(d).clear(),
    "wrong sign": lambda d: _stage(d)[0]["rows"].update(few={"": 3}),
    "another measure": lambda d: d["options"].update(balance="mean_absolute"),
}


@pytest.fixture(scope="module")
def true():
    """A changed placement that is proven, and its instance."""
    model = model_of()
    x = model.variables["x"]
    solution = (
        model.with_constraint("few", x.sel(rack="r1").sum() <= 1)
        .with_constraint("some", x.sel(rack="r0").sum() <= 2)
        .solve()
    )
    document = json.loads(json.dumps(solution.to_dict()))
    assert verify(document, model.instance).claim == "optimal"
    return document, model.instance


@pytest.mark.parametrize("what", FAULTS)
def test_seeded_faults(true, what):
    document, instance = copy.deepcopy(true[0]), true[1]
    FAULTS[what](document)
    certificate = verify(document, instance)
    assert not certificate.ok or certificate.claim != "optimal"


def test_squares_and_tangents_are_judged():
    model = PodPlacement(two_racks())
    document = json.loads(
        json.dumps(model.with_constraint("few", model.variables["x"].sel(rack="r1").sum() <= 1).solve().to_dict())
    )
    assert verify(document, model.instance).claim == "optimal"
    for spoil in ("square", "tangent"):
        changed = copy.deepcopy(document)
        if spoil == "square":
            changed["values"]["square"] = {node: 1.0 for node in changed["values"]["square"]}
            changed["objective"] = changed["bound"] = changed["stages"]["balance"] = 1.0
        else:
            rows = changed["proof"]["stages"]["balance"][0]["rows"]
            rows["tangent"] = {f"{label.split(',')[0]},90": y for label, y in rows["tangent"].items()}
        certificate = verify(changed, model.instance)
        assert not certificate.ok or certificate.claim != "optimal"
