"""Solution files of just-in-time schedules: correct ones hold without solver or model, changed ones are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from flowlex.instances import generate
from flowlex.instances.instance_base import Instance
from flowlex.models.jit.model import JitBandwidth
from flowlex.validation.certificates.verifier_interface import verify
from tests.touched import assert_refused

Document = dict[str, Any]
CASES: dict[str, dict[str, Any]] = {
    "structure": {"windows": "strict"},
    "staged": {"windows": "strict", "presolve": False},
    "ports": {"windows": "strict", "load": "port"},
    "late": {"lat": "critical"},
    "largest": {"program": "P1", "presolve": False},
    "fractional": {"windows": "strict", "integrality": "lp"},
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Instance, Document]:
    options = {"share": 1.0, **CASES[request.param]}
    late = request.param == "late"
    made = generate(
        "jit-random", seed=22, machines=3, jobs=3, transfers=3, slots=5, capacity=1 if late else 3, deadlines=not late
    )
    document = JitBandwidth(made, **options).solve().to_dict()  # type: ignore[arg-type]
    return made, json.loads(json.dumps(document))


def test_the_file_itself_holds(case: tuple[Instance, Document]) -> None:
    instance, document = case
    certificate = verify(document, instance)
    assert certificate.ok, str(certificate)
    assert certificate.claim == document["certificate"]["claim"]


def first_run(d: Document) -> list[Any]:
    return next(runs for runs in d["answer"]["schedule"].values() if runs)[0]  # type: ignore[no-any-return]


def each_leaf(d: Document, change: Callable[[Any], Any]) -> None:
    for part in d["proof"]["parts"]:
        for leaves in part["stages"].values():
            for leaf in leaves:
                change(leaf)


def shift(d: Document, by: int) -> None:
    run = first_run(d)
    run[0] += by
    run[1] += by


FAULTS: dict[str, Callable[[Document], Any]] = {
    "a stage left out": lambda d: d["stages"].pop("level_1"),
    "origin": lambda d: d["answer"].update(origin_slot=5),
    "a unit more": lambda d: first_run(d).__setitem__(2, first_run(d)[2] + 1),
    "a run later": lambda d: shift(d, 50),
    "a run earlier": lambda d: shift(d, -50),
    "a run longer": lambda d: first_run(d).__setitem__(1, first_run(d)[1] + 1),
    "a negative rate": lambda d: first_run(d).__setitem__(2, -1),
    "a transfer left out": lambda d: d["answer"]["schedule"].pop(next(iter(d["answer"]["schedule"]))),
    "a transfer of nobody": lambda d: d["answer"]["schedule"].update(nobody=[[0, 1, 1]]),
    "no runs": lambda d: d["answer"].update(schedule={k: [] for k in d["answer"]["schedule"]}),
    "another share": lambda d: d["options"].update(share=0.3),
    "another rule": lambda d: d["options"].update(lat="none"),
    "printed weights": lambda d: d["options"].update(program="P3"),
    "another kind of load": lambda d: d["options"].update(load="pair" if d["options"]["load"] == "port" else "port"),
    "a part twice": lambda d: d["proof"]["parts"].append(d["proof"]["parts"][0]),
    "a part missing": lambda d: d["proof"]["parts"].pop(),
    "a part without transfers": lambda d: d["proof"]["parts"][0].update(transfers=[]),
    "no multipliers": lambda d: [p.update(stages={}) for p in d["proof"]["parts"]],
    "multipliers of the wrong sign": lambda d: each_leaf(
        d, lambda x: x["rows"].update(egress={"at": {"m0,0..2": 1}}) or x.update(with_earlier=False)
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_touched_file_is_refused(case: tuple[Instance, Document], fault: str) -> None:
    instance, document = case
    assert_refused(FAULTS[fault], document, instance)


@pytest.mark.parametrize("program", ["P3", "P4"])
def test_files_of_weights_are_verified(program: str) -> None:
    made = generate("jit-random", seed=22, machines=3, jobs=2, transfers=2, slots=3, capacity=2)
    document = JitBandwidth(made, share=1.0, program=program).solve().to_dict()  # type: ignore[arg-type]
    document = json.loads(json.dumps(document))
    certificate = verify(document, made)
    assert certificate.verdict == "proven" and certificate.claim == document["certificate"]["claim"] == "optimal"
    for field, value in (("objective", document["objective"] + 1), ("bound", document["bound"] - 1)):
        assert not verify(document | {field: value}, made).ok
    assert verify(document | {"proof": {}}, made).verdict == "quoted"


@pytest.mark.parametrize("integrality", ["lp", "mip"])
def test_an_optimum_by_one_kind_of_program_is_proven_and_quoted_without_its_proof(integrality: Any) -> None:
    made = generate("jit-random", seed=22, machines=3, jobs=2, transfers=2, slots=3, capacity=2)
    model = JitBandwidth(made, share=1.0, program="P1", presolve=False, integrality=integrality)  # type: ignore[arg-type]
    solution = model.solve("highs")
    assert solution.status == "optimal"
    for document in (solution.to_dict(), solution.to_dict() | {"proof": {}}):
        verdict = verify(json.loads(json.dumps(document)), made).verdict
        assert verdict == ("proven" if document["proof"] else "quoted")
