"""Solution files: correct ones are proven, false ones are refused by the violated check."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowlex.instances import generate
from flowlex.instances.exact_rationals import rational
from flowlex.instances.files import read_instance, read_json
from flowlex.models import solve
from flowlex.validation.certificates import (
    Certificate,
    Check,
    SolutionError,
    solution_schema,
    verifier_interface,
    verify,
)
from flowlex.validation.certificates.exact_numbers import agrees

DOCUMENTS = Path(__file__).parent / "documents" / "min-cost-flow"
#: File in ``refused``: the check that must fail.
REFUSED = {
    "another-fingerprint": "instance fingerprint matches",
    "another-name": "instance fingerprint matches",
    "bound-above-the-optimum": "bound",
    "claim-not-shown": "stated claim",
    "cut-missing": "a cut of the instance's nodes",
    "cut-not-overloaded": "a cut is overloaded",
    "cut-of-no-nodes": "a cut of the instance's nodes",
    "dual-of-a-node-changed": "duals of node",
    "dual-of-an-arc-changed": "duals of flow",
    "dual-of-no-equation": "duals of nodes and flows",
    "feasible-called-infeasible": "a cut of the instance's nodes",
    "feasible-called-unbounded": "a flow and a ray, one number per arc",
    "flow-above-capacity": "flow at most the capacity",
    "flow-below-bound": "flow at least the lower bound",
    "flow-not-cheapest": "no arc with room has a negative reduced cost",
    "flow-not-conserved": "flow conservation at every node",
    "flow-too-short": "one flow per arc",
    "gap-not-that-of-the-bound": "gap",
    "metric-changed": "metrics",
    "objective-of-another-flow": "objective",
    "potential-moved": "no arc with room has a negative reduced cost",
    "potentials-too-short": "one potential per node",
    "ray-from-no-flow": "flow conservation at every node",
    "ray-not-conserved": "the ray conserves flow at every node",
    "ray-over-a-capacity": "the ray uses arcs without upper bound",
    "ray-with-a-gain-of-nothing": "the ray costs less than nothing",
    "stage-unknown": "stage first",
    "stopped-with-an-answer": "status",
}


def instance_of(document: dict[str, Any]) -> Any:
    if document["status"] in ("infeasible", "unbounded") and not document["answer"]:
        return read_instance(DOCUMENTS / {"infeasible": "short.json", "unbounded": "endless.json"}[document["status"]])
    return read_instance(DOCUMENTS / "hand.json")


@pytest.mark.parametrize(("name", "claim"), [("hand", "optimal"), ("short", "infeasible"), ("endless", "unbounded")])
def test_true_documents_are_proven(name: str, claim: str) -> None:
    certificate = verify(read_json(DOCUMENTS / f"{name}.solution.json"), read_instance(DOCUMENTS / f"{name}.json"))
    assert (certificate.ok, certificate.claim, certificate.exact) == (True, claim, True)


def test_every_document_of_the_folder_has_its_rule() -> None:
    assert {path.name.removesuffix(".solution.json") for path in (DOCUMENTS / "refused").iterdir()} == set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_untrue_documents_are_refused(name: str) -> None:
    document = read_json(DOCUMENTS / "refused" / f"{name}.solution.json")
    certificate = verify(document, instance_of(document))
    assert not certificate.ok
    assert REFUSED[name] in [check.name for check in certificate.checks if not check.ok]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "version: 2 is unknown"),
        ({"version": "1"}, "version: Input should be 1"),
        ({"kind": "tea-solution"}, "'tea-solution' has no verifier; those that have one: .*min-cost-flow-solution"),
        ({"kind": "min-cost-flow"}, "this is an instance of kind 'min-cost-flow', not a solution"),
        ({"status": "perfect"}, "status: Input should be 'optimal'"),
        ({"objective": float("nan")}, "objective: Value error, 'nan' is no number"),
        ({"answer": {}}, "answer.flow: Field required"),
        ({"answer": {"flow": [1, 1, "1"]}}, r"answer.flow.2: Input should be a valid integer"),
        ({"answer": {"flow": [1, 1, 1.0]}}, r"answer.flow.2: Input should be a valid integer"),
        ({"proof": {"potential": [0, float("nan"), 0]}}, "proof.potential.1"),
        ({"proof": {"hunch": 1}}, "proof.hunch: Extra inputs"),
        ({"surprise": 1}, "surprise: Extra inputs"),
        ({"fingerprint": "none"}, "fingerprint"),
    ],
)
def test_documents_that_cannot_be_judged_say_where(change: dict[str, Any], says: str) -> None:
    document = {**read_json(DOCUMENTS / "hand.solution.json"), **change}
    with pytest.raises(SolutionError, match=says):
        verify(document, read_instance(DOCUMENTS / "hand.json"))
    with pytest.raises(SolutionError, match="not a solution file"):
        verify([document], read_instance(DOCUMENTS / "hand.json"))


def test_another_kind_of_instance_is_refused() -> None:
    certificate = verify(read_json(DOCUMENTS / "hand.solution.json"), generate("inference-cluster"))
    assert [check.name for check in certificate.checks if not check.ok] == [
        "instance kind matches",
        "instance fingerprint matches",
    ]


def leaves(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(part, (dict, list)):
        items = part.items() if isinstance(part, dict) else enumerate(part)
        return [leaf for key, value in items for leaf in leaves(value, (*path, key))]
    return [path]


SOLVED = generate("network-random", seed=3, nodes=8, arcs=24)
TRUE = solve(SOLVED, "network").to_dict()
JUDGED = ("status", "objective", "bound", "gap", "metrics", "answer", "proof", "duals", "fingerprint", "instance")
LEAVES = [leaf for leaf in leaves(TRUE) if leaf[0] in JUDGED]


@given(st.sampled_from(LEAVES), st.sampled_from([-3, -1, 1, 2, 10**19]))
def test_any_changed_figure_of_a_file_is_refused(leaf: tuple[Any, ...], by: int) -> None:
    document = copy.deepcopy(TRUE)
    at = document
    for key in leaf[:-1]:
        at = at[key]
    at[leaf[-1]] = at[leaf[-1]] + by if not isinstance(at[leaf[-1]], str) else "infeasible"
    try:
        assert not verify(document, SOLVED).ok
    except SolutionError:
        assert isinstance(at[leaf[-1]], str)


def test_schema_describes_the_files() -> None:
    schema = solution_schema()
    jsonschema.validate(json.loads(json.dumps(TRUE)), schema)
    for change in ({"status": "perfect"}, {"answer": {"flow": "all"}}, {"proof": {"hunch": 1}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**TRUE, **change}, schema)


def test_a_quoted_check_supports_no_optimum() -> None:
    quoted = Check("bound", True, how="quoted")
    with pytest.raises(ValueError, match="'bound' is quoted from the solver"):
        Certificate("optimal", False, (quoted,))
    assert Certificate("bounded", False, (quoted,)).to_dict()["checks"][0]["how"] == "quoted"
    document = {**TRUE, "proof": {}, "duals": {}, "certificate": None}
    certificate = verify(document, SOLVED)
    assert (certificate.ok, certificate.claim) == (True, "feasible")
    assert [check.name for check in certificate.checks if check.how == "quoted"] == [
        "no flow costs less",
        "status",
        "bound",
    ]
    assert certificate.verdict == "quoted"


def test_a_verifier_of_another_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        value = "my_package:NONSENSE"

        def load(self) -> object:
            return object()

    monkeypatch.setattr(verifier_interface, "_foreign", lambda: {"my-problem": Point()})
    verifier_interface.verifier_for.cache_clear()
    assert "my-problem" in verifier_interface.verifier_kinds()
    with pytest.raises(TypeError, match="my_package:NONSENSE is no Verifier of kind 'my-problem'"):
        verifier_interface.verifier_for("my-problem")
    verifier_interface.verifier_for.cache_clear()


def test_verifying_imports_no_model_and_no_solver() -> None:
    code = (
        "import sys; from pathlib import Path; from flowlex.instances.files import read_instance, read_json\n"
        "from flowlex.validation.certificates import verify\n"
        f"folder = Path({str(DOCUMENTS)!r})\n"
        "assert verify(read_json(folder / 'hand.solution.json'), read_instance(folder / 'hand.json')).ok\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('highspy', 'pulp', 'pylmcf', 'ortools')"
        " or m.startswith('flowlex.models')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_numbers_are_those_that_are_written() -> None:
    assert rational(0.1) == rational("0.1") == rational("1/10") == Fraction(1, 10)
    assert rational("1e-3") == Fraction(1, 1000)
    assert agrees(0.1, Fraction(1, 10)) and agrees(1 / 3, Fraction(1, 3)) and not agrees("0.333", Fraction(1, 3))
    assert not agrees(2**53, 2**53 + 1) and agrees(2.0**53, 2**53 + 1)  # the file has the nearest float
    for nonsense in ("nan", "1/0", "", "0x1", "1_0", "9" * 5000, float("inf")):
        with pytest.raises(ValueError, match="is no number"):
            rational(nonsense)


@pytest.mark.parametrize("status", ["error", "time_limit"])
@pytest.mark.parametrize("name", ["gavel-like", "gpu-testbed", "network-random", "inference-cluster"])
def test_a_file_that_claims_nothing_says_so(name: str, status: str) -> None:
    instance = generate(name)
    empty: dict[str, Any] = dict.fromkeys(("objective", "bound", "gap", "certificate"))
    empty |= {part: {} for part in ("answer", "metrics", "proof", "duals", "stages")}
    document = solve(instance).to_dict() | empty | {"status": status, "message": "out of memory"}
    certificate = verify(json.loads(json.dumps(document)), instance)
    assert not certificate.ok
    assert certificate.checks[-1].detail == f"status '{status}' claims nothing: out of memory; solve again"
