"""Solution files: correct ones are proven, false ones are refused by the violated check."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jsonschema
import pytest

from flowlex.instances import generate
from flowlex.instances.exact_rationals import rational
from flowlex.instances.min_cost_flow import NetworkInstance
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


def network(**changes: Any) -> NetworkInstance:
    """Two units from 0 to 2: over 1 at cost 1 + 1 (capacity 1), or directly at cost 5, at least one of them."""
    data: dict[str, Any] = {
        "name": "hand",
        "supply": (2, 0, -2),
        "tail": (0, 1, 0),
        "head": (1, 2, 2),
        "lower": (0, 0, 1),
        "upper": (1, None, 4),
        "cost": (1, 1, 5),
    }
    return NetworkInstance(**data | changes)


INSTANCES = {
    "hand": network(),
    "short": network(supply=(6, 0, -6)),
    "endless": network(tail=(0, 1, 0), head=(1, 0, 2), upper=(None, None, 4), cost=(1, -2, 5)),
}
CLAIMS = {"hand": "optimal", "short": "infeasible", "endless": "unbounded"}
FILES = {name: json.loads(json.dumps(solve(instance, "network").to_dict())) for name, instance in INSTANCES.items()}


def stages(document: dict[str, Any], **leaf: Any) -> None:
    document["proof"]["stages"]["cost"][0].update(leaf)


#: What is changed in a file: the file, the change, and the check that must fail.
REFUSED: dict[str, tuple[str, Callable[[dict[str, Any]], Any], str]] = {
    "another fingerprint": ("hand", lambda d: d.update(fingerprint=f"sha256:{0:064}"), "instance fingerprint matches"),
    "claim not shown": ("hand", lambda d: d["certificate"].update(claim="infeasible"), "stated claim"),
    "duals beside the proof": ("hand", lambda d: d.update(duals={"node": {"0": 1}}), "duals are in the proof"),
    "feasible called infeasible": (
        "hand",
        lambda d: d.update(status="infeasible", answer={}, proof={"format": 3, "empty": [{"own": 0}]}),
        "no values satisfy all rows and bounds",
    ),
    "cut that is not overloaded": (
        "short",
        lambda d: d["proof"]["empty"][0].update(rows={"node": {"at": {"1": 1}}}),
        "no values satisfy all rows and bounds",
    ),
    "flow above capacity": (
        "hand",
        lambda d: d.update(answer={"flow": [2, 2, 0]}),
        "every variable is within its bounds",
    ),
    "flow not conserved": ("hand", lambda d: d.update(answer={"flow": [1, 0, 1]}), "every row holds"),
    "flow too short": ("hand", lambda d: d.update(answer={"flow": [1, 1]}), "one value for each variable"),
    "flow not cheapest": ("hand", lambda d: d.update(answer={"flow": [0, 0, 2]}, objective=10, bound=10), "status"),
    "gap not that of the bound": ("hand", lambda d: d.update(gap=0.5), "gap"),
    "objective of another flow": ("hand", lambda d: d.update(objective=6, bound=6), "objective"),
    "multiplier changed": ("hand", lambda d: stages(d, rows={"node": {"at": {"0": 99}}}), "status"),
    "rows without a name": ("hand", lambda d: stages(d, rows={"nodes": {"at": {}}}), "can be judged"),
    "part of a tree": (
        "hand",
        lambda d: stages(d, branches=[{"row": [["flow", "0", 1]], "relation": "<=", "side": 0}]),
        "status",
    ),
    "format of another version": ("hand", lambda d: d["proof"].update(format=2), "can be judged"),
    "ray from no flow": ("endless", lambda d: d["proof"].update(point=[]), "every row holds"),
    "ray not conserved": (
        "endless",
        lambda d: d["proof"].update(ray=[["flow", "0", 1]]),
        "the ray keeps every row and bound",
    ),
    "ray over a capacity": (
        "endless",
        lambda d: d["proof"].update(ray=[["flow", "2", 1]]),
        "the ray keeps every row and bound",
    ),
    "ray without a gain": (
        "endless",
        lambda d: d["proof"].update(ray=[]),
        "status",
    ),
    "stage unknown": ("hand", lambda d: d["stages"].update(first=1), "stage first"),
    "stopped with an answer": ("hand", lambda d: d.update(status="time_limit"), "status"),
}


@pytest.mark.parametrize("name", FILES)
def test_true_documents_are_proven(name: str) -> None:
    certificate = verify(FILES[name], INSTANCES[name])
    assert (certificate.ok, certificate.claim, certificate.exact) == (True, CLAIMS[name], True)


@pytest.mark.parametrize("name", REFUSED)
def test_untrue_documents_are_refused(name: str) -> None:
    file, change, check = REFUSED[name]
    document = copy.deepcopy(FILES[file])
    change(document)
    certificate = verify(document, INSTANCES[file])
    if name == "ray without a gain":  # without a proof the claim is the solver's
        assert certificate.verdict == "quoted"
        return
    assert check in [each.name for each in certificate.checks if not each.ok]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "version: 2 is not 3, which this flowlex reads; solve again"),
        ({"version": "3"}, "version: must be 3"),
        ({"kind": "tea-solution"}, "'tea-solution' has no verifier; those that have one: .*min-cost-flow-solution"),
        ({"kind": "min-cost-flow"}, "this is an instance of kind 'min-cost-flow', not a solution"),
        ({"status": "perfect"}, "status: must be 'optimal'"),
        ({"objective": float("nan")}, "objective: 'nan' is no number"),
        ({"answer": {}}, "answer.flow: field is missing"),
        ({"answer": {"flow": [1, 1, "1"]}}, r"answer.flow\[2\]: must be an integer"),
        ({"answer": {"flow": [1, 1, 1.0]}}, r"answer.flow\[2\]: must be an integer"),
        ({"surprise": 1}, "surprise: unknown field"),
        ({"fingerprint": "none"}, "fingerprint"),
    ],
)
def test_documents_that_cannot_be_judged_say_where(change: dict[str, Any], says: str) -> None:
    document = {**FILES["hand"], **change}
    with pytest.raises(SolutionError, match=says):
        verify(document, INSTANCES["hand"])
    with pytest.raises(SolutionError, match="not a solution file"):
        verify([document], INSTANCES["hand"])


def test_another_kind_of_instance_is_refused() -> None:
    certificate = verify(FILES["hand"], generate("inference-cluster"))
    assert [check.name for check in certificate.checks if not check.ok] == [
        "instance kind matches",
        "instance fingerprint matches",
    ]


SOLVED = generate("network-random", seed=3, nodes=8, arcs=24)
TRUE = solve(SOLVED, "network").to_dict()


def test_schema_describes_the_files() -> None:
    schema = solution_schema()
    jsonschema.validate(json.loads(json.dumps(TRUE)), schema)
    for change in ({"status": "perfect"}, {"answer": {"flow": "all"}}, {"proof": 1}):
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
        "no answer is better",
        "status",
        "bound",
    ]
    assert certificate.verdict == "quoted"


def test_a_verifier_of_another_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier_interface, "_foreign", lambda: {"my-problem": "flowlex:solve"})
    verifier_interface.verifier_for.cache_clear()
    assert "my-problem" in verifier_interface.verifier_kinds()
    with pytest.raises(TypeError, match="flowlex:solve is no Verifier of kind 'my-problem'"):
        verifier_interface.verifier_for("my-problem")
    verifier_interface.verifier_for.cache_clear()


def test_verifying_imports_no_model_and_no_solver() -> None:
    code = (
        "import json, sys; from flowlex.instances.files import instance_from_document\n"
        "from flowlex.validation.certificates import verify\n"
        f"instance = instance_from_document(json.loads({INSTANCES['hand'].model_dump_json()!r}))\n"
        f"assert verify(json.loads({json.dumps(FILES['hand'])!r}), instance).ok\n"
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
