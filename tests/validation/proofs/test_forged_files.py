"""Forged solution files of all families: none proves what is not true.

A worse answer is labelled optimal, its figures as they are, beside the true proof or its own. Then the file is forged
one to three times. What is accepted as proven must hold of the true optimum, which is known beforehand. The table in
``validation/README.md`` is printed by ``pytest -s -m rare tests/validation/proofs/test_forged_files.py``.
"""

import copy
import json
import random
from collections import Counter
from functools import cache
from typing import Any

import pytest

from flowlex.instances.exact_rationals import rational
from flowlex.validation.certificates import SolutionError, verify
from flowlex.validation.certificates.solution_document import read_as
from flowlex.validation.certificates.verifier_interface import Claimed, read_document, verifier_for
from flowlex.validation.restated import allocation, gpu_answer
from flowlex.validation.restated.flow import solution_verifier
from tests.validation.certificates.test_mutated_files import FILES, TRUE, with_few
from tests.validation.faults.restated import solved
from tests.validation.faults.test_restated import CASES, NETWORKED, figures, near
from tests.validation.proofs.forging import FORGERIES, Document, Names, forged, names_of
from tests.validation.proofs.test_forged_proofs import PROBLEMS, known, true, verdict_of

#: Cases of each family; of the last ones, no worse answers are at hand.
FAMILIES = (
    *("gpu", "load", "flow", "network", "jit", "pods, admission", "allocation, max_min"),
    *("flow, rules", "flow, capacities", "pods, running", "jit, ports", "jit, late", "allocation, hierarchical"),
)
Files = tuple[Any, Document, list[Document], Names]


@cache
def files(name: str) -> Files:
    """Instance, true file, worse ones labelled optimal, and names of a case."""
    if name in CASES:
        instance, options, answers = CASES[name]
        document = solved(instance, "network" if name in NETWORKED else "highs", **options)
        worse = [made for made in answers(instance, options) if not near(figures(made), figures(document))]
        assert worse
    else:
        instance, document, worse = FILES[name][0], TRUE[name], []
    verifier = verifier_for(instance.kind)
    assert verifier is not None and verifier.restated is not None
    plain = document["options"] if instance.kind != "allocation" else document["options"] | {"policy": "max_min"}
    program = verifier.restated(Claimed(read_document(document | {"options": plain}), None, None, instance))
    return instance, document, worse, names_of(program, ("card", "node"))


def outcome(name: str, document: Document) -> str:
    """``refused``, ``quoted``, or ``still true``; fails where a false claim is proven."""
    instance, right, worse, _ = files(name)
    try:
        found = verify(document, instance)
    except SolutionError:
        return "refused"
    if found.verdict != "proven":
        return found.verdict
    assert found.claim not in ("infeasible", "unbounded"), json.dumps(document)
    if found.claim == "optimal":
        assert near(figures(document), figures(right)), json.dumps(document)
    elif found.claim == "bounded" and document["bound"] is not None:
        truth, bound = rational(right["objective"]), rational(document["bound"])
        assert all(
            (bound - truth) * (rational(each["objective"]) - truth) <= abs(truth) / 10**5 + rational("1e-6")
            for each in worse
        ), json.dumps(document)
    return "still true"


def forge_files(name: str, count: int) -> Counter[tuple[str, str]]:
    """Outcomes of many forged files of a case, by the name of the first forgery."""
    _, right, worse, names = files(name)
    rng, found = random.Random(name), Counter[tuple[str, str]]()
    for k in range(count):
        document = copy.deepcopy(right if k % 4 == 3 or not worse else worse[k % len(worse)])
        document["proof"] = copy.deepcopy(rng.choice((right, right, document))["proof"])
        document["certificate"] = None
        kind = forged(document, rng, names)
        found[kind, outcome(name, document)] += 1
    return found


def forge_problems(count: int) -> Counter[tuple[str, str]]:
    """The same of problems of the language, whose optima are found by trying all values."""
    rng, found = random.Random("problems"), Counter[tuple[str, str]]()
    while found.total() < count:
        problem = known(rng.randrange(PROBLEMS))
        if problem is not None:
            stated, program, right, status, optima = problem
            document = copy.deepcopy(right)
            kind = forged(document, rng, names_of(program))
            verdict = verdict_of(document, program)
            if verdict is not None:
                true(stated, verdict, status, optima)
            accepted = verdict is not None and verdict.certificate.ok
            found[kind, "still true" if accepted else "refused"] += 1
    return found


LEFT_OUT = {"gpu": gpu_answer, "flow": solution_verifier, "allocation, water_filling": allocation}


@pytest.mark.rare
@pytest.mark.parametrize("name", LEFT_OUT)
def test_columns_that_are_left_out_raise_no_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, right, worse, names = files(name)
    verifier, rng, shown = verifier_for(instance.kind), random.Random(name), 0
    assert verifier is not None and verifier.restated is not None
    program = verifier.restated(Claimed(read_document(right), None, None, instance))

    def bounds(document: Document, written_out: int) -> Any:
        monkeypatch.setattr(LEFT_OUT[name], "_WRITTEN_OUT", written_out)
        read = read_document(document)
        answer = read_as(verifier.answer, read.answer, "answer")
        try:
            return verifier.judge(Claimed(read, answer, read.proof, instance)).bounds
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return {}

    for k in range(60):
        document = copy.deepcopy(worse[k % len(worse)])
        document["proof"] = copy.deepcopy(rng.choice((right, document))["proof"])
        for _ in range(rng.choice((1, 2))):
            rng.choice((FORGERIES["multipliers"], FORGERIES["earlier objectives"], FORGERIES["defaults"]))(
                document, rng, names
            )
        few, every = bounds(document, -1), bounds(document, 10**9)
        for objective in program.objectives:
            if (bound := few.get(objective.name)) is not None:
                limit, shown = every[objective.name], shown + 1
                assert objective.sign * (bound - limit) <= rational("1e-9") * (1 + abs(limit)), json.dumps(document)
    assert shown


@pytest.mark.parametrize(("name", "few"), [(n, few) for n in FAMILIES for few in (False, True) if few <= with_few(n)])
def test_no_forged_file_of_a_family_proves_anything_false(name: str, few: bool, request: Any) -> None:
    files(name)
    if few:
        request.getfixturevalue("few_columns")
    assert sum(n for (_, how), n in forge_files(name, 24).items() if how == "refused")


@pytest.mark.rare
def test_a_thousand_forged_files_prove_nothing_false() -> None:
    table = {name: forge_files(name, 50) for name in CASES} | {"problems of the language": forge_problems(150)}
    outcomes = ("refused", "quoted", "still true")
    print("\n| file of | forged | " + " | ".join(outcomes) + " |\n|" + " --- |" * 5)
    for name, found in table.items():
        counts = [sum(n for (_, how), n in found.items() if how == each) for each in outcomes]
        print(f"| {name} | {found.total()} | " + " | ".join(map(str, counts)) + " |")
    kinds = sum(table.values(), Counter())
    assert {kind for kind, _ in kinds} == FORGERIES.keys() and kinds.total() >= 1000
