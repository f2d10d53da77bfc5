"""Large changed rounds: the network of refined classes equals the plain program, its certificate refuses faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import flowlex.models.gpu.model
import flowlex.validation.restated.gpu_answer
from flowlex import generate
from flowlex.instances.gpu import GpuInstance
from flowlex.models.gpu.methods.large_round import LARGEST
from flowlex.models.gpu.model import GpuAssignment
from flowlex.models.model_base import ModelError
from flowlex.testing.staged_optimum import optimise
from flowlex.validation.certificates import verify
from tests.models.gpu.cases import random_round
from tests.models.gpu.test_changes import figures, hand
from tests.models.gpu.test_changes_faults import FAULTS as SMALL_FAULTS
from tests.models.gpu.test_changes_faults import leaves, rule
from tests.models.random_changes import Changed
from tests.seeds import seeds
from tests.touched import assert_not_optimal


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve and verify small rounds by classes too."""
    monkeypatch.setattr(flowlex.models.gpu.model, "SMALL", -1)
    monkeypatch.setattr(flowlex.validation.restated.gpu_answer, "_WRITTEN_OUT", -1)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("seed", seeds(15, 80))
def test_small_rounds_equal_the_changed_arrays(seed: int) -> None:
    policy = ("FSP", "FS", "FSU")[seed % 3]
    changed = Changed(GpuAssignment(random_round(seed), policy=policy), seed).draw()
    model = changed.model
    if not model.changes or model.unrefined:
        return
    assert model.method.startswith("classes of tasks")
    wanted, solution = optimise(changed.program), model.solve("highs")
    certificate = verify(json.loads(json.dumps(solution.to_dict())), model.instance)
    assert certificate.ok
    if not wanted.values:
        assert str(solution.status) == "infeasible"
        return
    assert list(figures(solution).values()) == pytest.approx(wanted.values, rel=1e-6, abs=1e-4)
    shown = "optimal" if str(solution.status) == "optimal" else "bounded"
    assert certificate.claim in (shown, "feasible")


def ruled() -> GpuAssignment:
    """Each change alters the answer: a on g1, b on g2, b2 on g3."""
    model = GpuAssignment(hand(3, 3))
    x = model.variables["x"]
    model = model.with_constraint("spread", x.sum(by=["job", "rack"]) <= 1).with_fixed(x.sel(task="b2", gpu="g3"), 1)
    model = model.with_bounds(x.sel(job="b", gpu="g1"), upper=0)
    return model.with_cost(5 * x.sel(job="b", node="n1").sum() + 3 * x.sel(task="b2").sum())


#: Faults of small changed rounds that are faults here too.
SHARED = (
    "rule lost",
    "fixed choice lost",
    "cost lost",
    "side of a rule",
    "rows by another level",
    "bound of another job",
    "half a task",
    "task lost",
    "fair shares",
    "objective",
    "proof of a stage lost",
    "multipliers lost",
    "multiplier of a later stage",
    "leaves said to be empty",
)
FAULTS: dict[str, Callable[[dict[str, Any]], Any]] = {name: SMALL_FAULTS[name] for name in SHARED} | {
    "fixed to another GPU": lambda d: rule(d, "fix")["variables"]["where"].update(gpu="g2"),
    "price": lambda d: rule(d, "cost")["terms"][0].update(coefficient=3),
    "forbidden GPU": lambda d: d["values"].update(x={"b1,g1": 1, "a1,g2": 1, "b2,g3": 1}),
    "two tasks on a GPU": lambda d: d["values"]["x"].update({"b3,g3": 1}),
    "unknown pair": lambda d: d["values"]["x"].update({"b3,g9": 1}),
    "task twice": lambda d: d["values"].update(x={"a1,g1": 1, "a1,g2": 1, "b2,g3": 1}),
    "other values": lambda d: d["values"].update({"open": {"a": 1}}),
    "stage": lambda d: d["stages"].update(running=2),
    "sign": lambda d: leaves(d)[0]["rows"].setdefault("gpu_out", {}).update(g1=99),
    "sign of a rule": lambda d: leaves(d)[0]["rows"].setdefault("spread", {}).update({"a,r1": 9}),
    "row that does not exist": lambda d: d["proof"]["stages"]["running"][0]["rows"].update(spare={"": 1}),
    "no answer": lambda d: d.update(
        status="infeasible", objective=None, bound=None, gap=None, stages={}, values=None, proof={"empty": [{"own": 0}]}
    ),
}


@cache
def answered() -> tuple[dict[str, Any], GpuInstance]:
    """The answer of the ruled round; first called where `always` holds."""
    model = ruled()
    document = json.loads(json.dumps(model.solve().to_dict()))
    assert verify(document, model.instance).claim == "optimal"
    return document, model.instance


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", FAULTS)
def test_seeded_faults_are_refused(name: str) -> None:
    assert_not_optimal(FAULTS[name], *answered())


@pytest.mark.slow
def test_a_large_round_with_rules_is_proven() -> None:
    model = GpuAssignment(generate("gpu-scale", gpus=1200, tasks=2400, jobs=20))
    x = model.variables["x"]
    assert len(x) > LARGEST and "classes of tasks" not in model.method
    jobs, racks = x.labels.levels["job"], x.labels.levels["rack"]
    for job, rack in zip(jobs[:5], racks[:5], strict=True):
        model = model.with_constraint(f"{job} in {rack}", x.sel(job=job, rack=rack).sum() <= 1)
    solution = model.solve()
    assert solution.certificate is not None and solution.certificate.claim == "optimal"
    frame = solution.to_frame()
    for job, rack in zip(jobs[:5], racks[:5], strict=True):
        assert ((frame["job"] == job) & (frame["rack"] == rack)).sum() <= 1
    with pytest.raises(ModelError, match=r"pairs of tasks and GPUs, more than.*drops integrality"):
        model.relaxed()
    with pytest.raises(ModelError, match="its rows are not made one by one"):
        model.compile()
    with pytest.raises(ModelError, match="no rack"):
        x.sel(rack="none")
    busy = model.with_constraint("busy", x.sel(rack=racks[0]).sum() >= 2000).solve()
    assert str(busy.status) == "infeasible" and "busy" in busy.infeasibility.constraints
    assert busy.certificate is not None and busy.certificate.claim == "infeasible"
