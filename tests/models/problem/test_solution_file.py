"""Solution files of problems: what is true is proven from the problem's file alone, what is forged is refused."""

import copy
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest

import flowlex as fx
from flowlex.testing import random_problem
from flowlex.validation.certificates import SolutionError, solution_schema
from flowlex.validation.proofs.proof import number, rational


def staged() -> fx.Problem:
    """Three things in two bins of 5: 4 + 3 do not fit; with the most value 7 in bin 1 alone; then the fewest things."""
    p = fx.Problem("bins")
    thing = pd.Index(["a", "b", "c"], name="thing")
    x = p.variables("x", thing=list(thing), bin=[1, 2], binary=True)
    p.constrain("once", x.sum(by="thing") <= 1)
    p.constrain("room", (x * pd.Series([4, 3, 2], thing)).sum(by="bin") <= 5)
    p.maximize("value", (x.sel(bin=1) * pd.Series([5, 4, 3], thing)).sum(), within=1)
    p.minimize("things", x.sum())
    return p


@pytest.fixture(scope="module")
def solved() -> tuple[fx.Problem, dict[str, Any]]:
    p = staged()
    s = p.solve()
    assert s.stages["value"].given_away <= 1
    return p, json.loads(json.dumps(s.to_dict()))


def test_a_file_is_proven_from_the_problem_file_alone(solved: Any, tmp_path: Path) -> None:
    p, document = solved
    path = tmp_path / "bins.problem.json"
    p.write(path)
    answer = p.solve().save(tmp_path / "bins.solution.json.gz", file=path.name)
    for source in (p, path, str(path), fx.read(path), fx.read_instance(path)):
        certificate = fx.verify(answer, source)
        assert (certificate.verdict, certificate.claim) == ("proven", "optimal")
        assert any(check.name.startswith("proven for the problem as stated in") for check in certificate.checks)
    assert fx.verify(document, p).verdict == "proven"
    assert document["version"] == 3 and document["kind"] == "problem-solution"


def test_the_schema_describes_proofs_of_all_kinds(solved: Any) -> None:
    schema = solution_schema()
    documents = [solved[1]]
    for seed in range(30):
        documents.append(json.loads(json.dumps(random_problem(np.random.default_rng(seed)).solve().to_dict())))
    checker = jsonschema.Draft202012Validator(schema)
    assert {document["status"] for document in documents} >= {"optimal", "infeasible", "unbounded"}
    for document in documents:
        checker.validate(document)
    for place, value in (("version", 1), ("answer", {"x": 3}), ("proof", {"stages": {"value": 1}})):
        assert not checker.is_valid({**solved[1], place: value})
    for wrong in ({"row": 1}, {"own": []}, {"branches": [{"row": [["x", "a"]], "relation": "<=", "side": 1}]}):
        assert not checker.is_valid({**solved[1], "proof": {"format": 3, "stages": {"value": [wrong]}}})


def forge(*place: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        at: Any = document
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = value

    return change


def drop(*place: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        at: Any = document
        for key in place[:-1]:
            at = at[key]
        del at[place[-1]]

    return change


FORGED = {
    "objective": forge("objective", value=8),
    "no objective": forge("objective", value=None),
    "bound too strong": forge("bound", value=5),
    "gap": forge("gap", value=0.5),
    "stage value": forge("stages", "things", "value", value=0),
    "stage bound": forge("stages", "things", "bound", value=100),
    "given away": forge("stages", "value", "given_away", value=-3),
    "a stage less": drop("stages", "things"),
    "a stage more": forge("stages", "more", value={"value": 0, "bound": None, "quoted": None, "given_away": 0}),
    "answer": forge("answer", "x", value={"a,1": 1, "b,1": 1, "c,1": 1}),
    "worse answer": forge("answer", value={}),
    "answer of a label that is not there": forge("answer", "x", value={"z,1": 1}),
    "answer of variables that are not there": forge("answer", "y", value={"a": 1}),
    "a fraction": forge("answer", "x", value={"a,1": "1/2"}),
    "no proof": forge("proof", value={}),
    "no proof of a stage": drop("proof", "stages", "things"),
    "fingerprint": forge("fingerprint", value="sha256:" + "0" * 64),
    "infeasible": forge("status", value="infeasible"),
    "unbounded": forge("status", value="unbounded"),
    "kind": forge("kind", value="bins-solution"),
    "error": forge("status", value="error"),
    "stated claim": forge("certificate", "exact", value=True),
}


@pytest.mark.parametrize("name", [name for name in FORGED if name != "stated claim"])
def test_what_is_forged_is_refused(name: str, solved: Any) -> None:
    p, document = solved
    forged = copy.deepcopy(document)
    FORGED[name](forged)
    assert forged != document
    try:
        assert fx.verify(forged, p).verdict == "refused"
    except SolutionError as error:
        assert len(str(error)) > 5


def test_a_weaker_claim_is_true(solved: Any) -> None:
    p, document = solved
    weaker = copy.deepcopy(document) | {"status": "feasible", "bound": None, "gap": None, "certificate": None}
    assert fx.verify(weaker, p).verdict == "proven"
    by_word = copy.deepcopy(document) | {"proof": {}, "bound": None, "gap": None, "certificate": None}
    for stage in by_word["stages"].values():
        stage |= {"bound": None, "quoted": stage["value"], "given_away": 0}
    certificate = fx.verify(by_word, p)
    assert (certificate.verdict, certificate.claim) == ("quoted", "feasible")


@pytest.mark.parametrize(
    "change",
    [
        forge("version", value=2),
        forge("version", value=1),
        forge("extra", value=1),
        forge("answer", value=[]),
        forge("answer", "x", value=3),
        forge("answer", "x", value={"a,1": "one"}),
        forge("objective", value="much"),
        forge("fingerprint", value=3),
        forge("proof", value=[]),
        forge("stages", value=[]),
        drop("status"),
    ],
)
def test_what_is_no_solution_file_is_an_error_or_refused(change: Any, solved: Any) -> None:
    p, document = solved
    odd = copy.deepcopy(document)
    change(odd)
    try:
        assert fx.verify(odd, p).verdict == "refused"
    except SolutionError as error:
        assert len(str(error)) > 5


def test_an_answer_of_another_problem_is_refused(solved: Any) -> None:
    p, document = solved
    assert fx.verify(document, p.with_constraint("more", p["x"].sum() <= 2)).verdict == "refused"
    assert fx.verify(document, p.relaxed()).verdict == "refused"
    with pytest.raises(SolutionError, match="gpu-assignment"):
        fx.verify(document, fx.generate("gpu-figure1"))


def test_a_problem_without_answer_is_proven_infeasible_or_unbounded(tmp_path: Path) -> None:
    p = staged()
    p.constrain("all", p["x"].sum() >= 4)
    s = p.solve()
    assert (s.status, fx.verify(s.save(tmp_path / "none.solution.json"), p).summary[:18]) == (
        "infeasible", "infeasible, proven",
    )  # fmt: skip
    q = fx.Problem("more and more")
    y = q.variables("y", day=[1, 2])
    q.maximize("amount", y.sum())
    t = q.solve()
    assert t.status == "unbounded"
    assert fx.verify(t.save(tmp_path / "much.solution.json"), q).claim == "unbounded"


@pytest.mark.parametrize("digits", [10, 1000, 4000, 6000])
def test_fractions_of_many_digits_are_written_and_read(digits: int) -> None:
    value = Fraction(10**digits + 1, 10**digits - 1) + 1
    back = rational(number(value))
    assert abs(back - value) <= Fraction(1, 10**12)
    assert (back == value) is (digits <= 4000)
