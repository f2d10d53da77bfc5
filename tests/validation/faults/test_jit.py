"""Solution files of just-in-time schedules: correct ones hold without solver or model, changed ones are refused."""

import json
from typing import Any

import pytest

from flowlex.instances import generate
from flowlex.models.jit.model import JitBandwidth
from flowlex.validation.certificates.verifier_interface import verify


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
