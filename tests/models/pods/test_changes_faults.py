"""Seeded faults in files of changed placements are refused."""

from __future__ import annotations

import copy
import json

import pytest

from flowlex.models.pods.model import PodPlacement
from flowlex.validation.certificates import verify
from tests.models.pods.test_changes import model_of, two_racks


def _fault(document, what):
    changes, values, proof = document["changes"]["changes"], document["values"], document["proof"]["stages"]
    if what == "rule dropped":
        changes.pop()
    elif what == "side off by one":
        changes[0]["rhs"] = 0
    elif what == "wrong label":
        changes[0]["terms"][0]["where"] = {"rack": "r0"}
    elif what == "a pod twice":
        values["x"] |= {"p0,n0": 1, "p0,n1": 1}
    elif what == "a card twice":
        values["y"] |= dict.fromkeys(list(values["y"]), 2)
    elif what == "no card":
        values["y"].pop(next(iter(values["y"])))
    elif what == "half a pod":
        values["x"]["p0,n0"] = 0.5
    elif what == "load understated":
        values["largest_load"][""] = 0.01
        document["objective"] = document["bound"] = document["stages"]["balance"] = 0.01
    elif what == "bound forged":
        proof["balance"][0]["rows"] = {"largest": {"n0": 1}}
    elif what == "stage lost":
        del document["stages"]["admission 1"]
    elif what == "leaves lost":
        proof["balance"] = proof["balance"][:0]
    elif what == "wrong sign":
        proof["balance"][0]["rows"]["few"] = {"": 3}
    elif what == "another measure":
        document["options"]["balance"] = "mean_absolute"


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


@pytest.mark.parametrize(
    "what",
    [
        "rule dropped", "side off by one", "wrong label", "a pod twice", "a card twice", "no card", "half a pod",
        "load understated", "bound forged", "stage lost", "leaves lost", "wrong sign", "another measure",
    ],
)  # fmt: skip
def test_seeded_faults(what):
    model = model_of()
    x = model.variables["x"]
    solution = (
        model.with_constraint("few", x.sel(rack="r1").sum() <= 1)
        .with_constraint("some", x.sel(rack="r0").sum() <= 2)
        .solve()
    )
    document = json.loads(json.dumps(solution.to_dict()))
    assert verify(document, model.instance).claim == "optimal"
    changed = copy.deepcopy(document)
    _fault(changed, what)
    certificate = verify(changed, model.instance)
    assert not certificate.ok or certificate.claim != "optimal"
