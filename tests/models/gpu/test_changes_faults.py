"""Seeded faults in files of changed rounds are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from flowlex.instances.gpu import GpuInstance
from flowlex.models.gpu.model import GpuAssignment
from flowlex.validation.certificates import verify
from tests.models.gpu.test_changes import hand
from tests.touched import assert_not_optimal


def changed_round() -> GpuAssignment:
    """A round with every kind of change, each of which alters the answer; the transfer stage needs a tree."""
    model = GpuAssignment(hand(3, 3, running=True))
    x = model.variables["x"]
    model = (
        model.with_constraint("spread", x.sum(by=["job", "rack"]) <= 1)
        .with_constraint("pair", 2 * x.sel(job="b", node="n1").sum() + 2 * x.sel(task="a1").sum() >= 1)
        .without("order")
        .with_fixed(x.sel(task="b2", gpu="g3"), 1)
        .with_bounds(x.sel(job="b", gpu="g1"), upper=0)
        .with_variable("open", upper=1, integer=True, job=["a", "b"])
    )
    y, x = model.variables["open"], model.variables["x"]
    model = model.with_constraint("opened", x.sel(node="n1").sum(by="job") - 2 * y.sum(by="job") <= 0)
    return model.with_cost(x.sel(task="a1").sum() + 3 * y.sum())


def rule(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in document["changes"]["changes"] if name in (each.get("name"), each["change"]))


def drop_change(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda d: d["changes"]["changes"].remove(rule(d, name))


def leaves(document: dict[str, Any]) -> list[dict[str, Any]]:
    return document["proof"]["stages"]["transfer"]


def move(document: dict[str, Any], task: str, gpu: str | None) -> None:
    x = document["values"]["x"]
    for pair in [each for each in x if each.startswith(f"{task},")]:
        del x[pair]
    if gpu is not None:
        x[f"{task},{gpu}"] = 1


FAULTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "all changes lost": lambda d: d.pop("changes"),
    "rule lost": drop_change("spread"),
    "drop lost": drop_change("order"),
    "fixed choice lost": drop_change("fix"),
    "bound lost": drop_change("bounds"),
    "cost lost": drop_change("cost"),
    "variable lost": drop_change("variable"),
    "side of a rule": lambda d: rule(d, "spread").update(rhs=2),
    "relation": lambda d: rule(d, "spread").update(relation=">="),
    "rows by another level": lambda d: rule(d, "spread")["terms"][0].update(by=["job"]),
    "label": lambda d: rule(d, "opened")["terms"][0]["where"].update(node="n2"),
    "coefficient": lambda d: rule(d, "opened")["terms"][1].update(coefficient="-1/2"),
    "another row dropped": lambda d: rule(d, "order").update(name="keep"),
    "needed row dropped": lambda d: rule(d, "order").update(name="task"),
    "fixed to another GPU": lambda d: rule(d, "fix")["variables"]["where"].update(gpu="g1"),
    "fixed to 0": lambda d: rule(d, "fix").update(value=0),
    "bound of another job": lambda d: rule(d, "bounds")["variables"]["where"].update(job="a"),
    "price of a cost": lambda d: rule(d, "cost")["terms"][0].update(coefficient=2),
    "cost of another stage": lambda d: rule(d, "cost").update(stage="stops"),
    "upper bound of a variable": lambda d: rule(d, "variable").update(upper="1/2", integer=False),
    "relaxed": lambda d: d["changes"]["changes"].append({"change": "relaxed"}),
    "one more rule": lambda d: d["changes"]["changes"].append(
        {"change": "constraint", "name": "n", "terms": [{"variable": "x"}], "relation": "<=", "rhs": 1}
    ),
    "policy": lambda d: d["options"].update(policy="FSU"),
    "price of a stop": lambda d: d["options"].update(stop_price=5.0),
    "task on another GPU": lambda d: move(d, "b2", "g1"),
    "task twice": lambda d: d["values"]["x"].update({"b1,g3": 1}),
    "task lost": lambda d: move(d, "b2", None),
    "half a task": lambda d: d["values"]["x"].update({"b2,g3": "1/2"}),
    "own variable": lambda d: d["values"].pop("open"),
    "fair shares": lambda d: d["values"]["share_step"].update({"a,2": 1}),
    "objective": lambda d: d.update(objective=d["objective"] - 1, bound=d["bound"] - 1),
    "bound": lambda d: d.update(bound=d["bound"] + 1),
    "stage": lambda d: d["stages"].update(running=d["stages"]["running"] + 1),
    "stage lost": lambda d: d["stages"].pop("share_1"),
    "proof of a stage lost": lambda d: d["proof"]["stages"].pop("share_1"),
    "no leaves": lambda d: d["proof"]["stages"].update(transfer=[]),
    "half a tree": lambda d: leaves(d)[0].update(
        branches=[{"variable": "x", "label": "b1,g1", "relation": "<=", "side": 0}]
    ),
    "branch on nothing": lambda d: leaves(d)[0].update(
        branches=[{"variable": "x", "label": "a1,g3", "relation": "<=", "side": 0}]
    ),
    "multipliers lost": lambda d: [leaf.update(rows={}, earlier={}) for leaf in leaves(d)],
    "sign of a multiplier": lambda d: leaves(d)[0]["rows"].setdefault("gpu_out", {}).update(g1=9),
    "multiplier of an earlier stage": lambda d: leaves(d)[0].update(earlier={"running": 9}),
    "multiplier of a later stage": lambda d: d["proof"]["stages"]["share_1"][0].update(earlier={"transfer": -1}),
    "leaves said to be empty": lambda d: [leaf.update(own=0) for leaf in leaves(d)],
    "no answer": lambda d: d.update(status="infeasible", objective=None, bound=None, gap=None, stages={}, values=None),
}


@cache
def answered() -> tuple[dict[str, Any], GpuInstance]:
    model = changed_round()
    document = json.loads(json.dumps(model.solve().to_dict()))
    assert verify(document, model.instance).claim == "optimal"
    return document, model.instance


@pytest.mark.parametrize("name", FAULTS)
def test_seeded_faults_are_refused(name: str) -> None:
    assert_not_optimal(FAULTS[name], *answered())
