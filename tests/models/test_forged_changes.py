"""Files of changed models are forged in every part; what is still proven holds for the model that the file states."""

import contextlib
import copy
import json
import random
from typing import Any

import pytest

import flowlex.models.gpu.model
import flowlex.validation.restated.gpu_answer
from flowlex import Allocation, model_for
from flowlex.instances.exact_rationals import rational
from flowlex.models.gpu.model import GpuAssignment
from flowlex.models.load.model import LoadPartition
from flowlex.testing.program_adapters import program_of
from flowlex.testing.staged_optimum import optimise
from flowlex.validation.certificates import SolutionError, verify
from flowlex.validation.proofs.own_statement import exact_program
from tests.models.allocation.test_changes import tiny as shares
from tests.models.flow.test_changes import model as flow_model
from tests.models.gpu.test_changes import hand
from tests.models.load.test_model import cluster
from tests.models.pods.test_changes import model_of
from tests.models.statement.test_changes import tiny
from tests.validation.certificates.test_mutated_files import at, changed, leaves
from tests.validation.proofs.forging import forged, names_of


def gpu(*jobs, running=True):
    """Every kind of change, each of which alters the answer; with tasks that run, the transfer stage needs a tree."""
    model = GpuAssignment(hand(*jobs, running=running))
    x = model.variables["x"]
    model = model.with_constraint("spread", x.sum(by=["job", "rack"]) <= 1).with_fixed(x.sel(task="b2", gpu="g3"), 1)
    model = model.with_bounds(x.sel(job="b", gpu="g1"), upper=0)
    if not running:
        return model.with_cost(5 * x.sel(job="b", node="n1").sum() + 3 * x.sel(task="b2").sum())
    pair = 2 * x.sel(job="b", node="n1").sum() + 2 * x.sel(task="a1").sum() >= 1
    model = model.with_constraint("pair", pair).without("order")
    model = model.with_variable("open", upper=1, integer=True, job=["a", "b"])
    y, x = model.variables["open"], model.variables["x"]
    model = model.with_constraint("opened", x.sel(node="n1").sum(by="job") - 2 * y.sum(by="job") <= 0)
    return model.with_cost(x.sel(task="a1").sum() + 3 * y.sum())


def pods():
    model = model_of()
    x = model.variables["x"]
    few = model.with_constraint("few", x.sel(rack="r1").sum() <= 1)
    return few.with_constraint("some", x.sel(rack="r0").sum() <= 2)


def allocation():
    model = Allocation(shares())
    runs = model.variables["runs"]
    model = model.with_constraint("half", runs.sel(job="a", gpu_type="fast").sum() <= 0.5)
    return model.with_cost(-0.1 * runs.sel(job="b").sum())


def load():
    model = LoadPartition(cluster([1, 1, 1], [(9, [0])]), objective="makespan")
    x = model.variables["x"]
    return model.with_constraint("few", x.sel(node="n2").sum() <= 1).with_cost(0.5 * x.sel(node="n1").sum())


def flow():
    model = flow_model()
    x = model.variables["x"]
    return model.with_constraint("quiet", x.sel(rack="r1").sum() <= 2).with_cost(3 * x.sel(machine="c").sum())


def network():
    x = tiny().variables["flow"]
    return tiny().with_constraint("over_b", x.sel(head="b").sum() <= 1).with_cost(x.sel(tail="c").sum())


#: A changed model, and options under which its answer is another's.
CASES = {
    "gpu": (lambda: gpu(3, 3), [{"policy": "FSU"}, {"stop_price": 5.0}]),
    "gpu by classes": (lambda: gpu(3, 3, running=False), [{"policy": "FSU"}]),
    "pods": (pods, [{"balance": "mean_absolute"}]),
    "allocation": (allocation, [{"policy": name} for name in ("makespan", "max_throughput", "finish_time")]),
    "load": (load, [{"objective": "targets"}, {"level": "item", "capacity": "history"}]),
    "flow": (flow, [{"preset": "load_spread"}, {"wait_cost": 1}]),
    "network": (network, []),
}
PARTS = ("changes", "values", "stages", "objective", "bound", "answer", "metrics")


def spoil(document: dict[str, Any], others: list[dict[str, Any]], rng: random.Random, names: Any) -> None:
    """State other options, forge the proof, or change or remove a part; the objective is its bound again or not."""
    how = rng.random()
    if how < 0.05 and others:
        document["options"] |= rng.choice(others)
    elif how < 0.4:
        forged(document, rng, names)
    else:
        part = rng.choice(PARTS)
        place = rng.choice([leaf for leaf in leaves(document[part], (part,)) if leaf])
        place = place[: max(rng.randint(1, len(place)), min(2, len(place)))]
        where = at(document, place[:-1])
        if len(place) > 1 and rng.random() < 0.4:
            del where[place[-1]]
        elif isinstance(where[place[-1]], (str, int, float)):
            where[place[-1]] = changed(where[place[-1]], rng) if rng.random() < 0.7 else rng.choice([0, 1, "1/2"])
        if part == "objective":
            document["bound"] = document["objective"]


def holds(document: dict[str, Any], instance: Any) -> None:
    """Compare a proven file with the optimum of the stated arrays, by HiGHS; its values satisfy them."""
    options = {name: value for name, value in document["options"].items() if not isinstance(value, dict)}
    model = model_for(instance, **options).with_changes(document["changes"])
    program = program_of(model.problem)
    truth = optimise(program)
    assert document["status"] == truth.status.value
    if truth.values:
        values = {name: {k: float(rational(v)) for k, v in each.items()} for name, each in document["values"].items()}
        point = model.problem.read_values(values)
        assert not program.violations(point)
        reached = [float(stage.cost @ point) + stage.offset for stage in program.stages]
        assert reached == pytest.approx(truth.values, abs=1e-5)
        stated = {name: float(rational(value)) for name, value in document["stages"].items()}
        wanted = {stage.name: value for stage, value in zip(program.stages, truth.values, strict=True)}
        assert stated == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_what_is_proven_after_forging_is_true(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, others = CASES[name]
    with monkeypatch.context() as patch:
        if name == "gpu by classes":
            patch.setattr(flowlex.models.gpu.model, "SMALL", -1)
            patch.setattr(flowlex.validation.restated.gpu_answer, "_WRITTEN_OUT", -1)
        model = make()
        true = json.loads(json.dumps(model.solve().to_dict()))
        assert verify(true, model.instance).claim == "optimal"
        files, rng = [true], random.Random(name)
        names = names_of(exact_program(make().problem if name != "gpu by classes" else gpu(3, 3).problem))
        for _ in range(150):
            document = copy.deepcopy(true)
            spoil(document, others, rng, names)
            with contextlib.suppress(SolutionError):
                found = verify(document, model.instance)
                if found.ok and found.claim in ("optimal", "infeasible"):
                    files.append(document)
    assert len(files) < 100
    for document in files:
        holds(document, model.instance)
