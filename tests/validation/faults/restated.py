"""Suboptimal answers labelled optimal with consistent figures.

The figures are those that the verifier recomputes from the answer. The file is consistent, and only its proof can show
that the answer is not optimal.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import pytest

from flowlex.formulations.solver_outcome import EngineName
from flowlex.instances.instance_base import Instance
from flowlex.models.registry import model_for
from flowlex.validation.certificates.exact_numbers import written
from flowlex.validation.certificates.solution_document import read_as
from flowlex.validation.certificates.verifier_interface import Claimed, Verifier, read_document, verifier_for
from tests.validation.faults.seeding import Change, seed

__all__ = ["Document", "by_fault", "by_options", "restated", "solved"]

Document = dict[str, Any]


def solved(instance: Instance, engine: EngineName = "highs", *, certify: bool = True, **options: Any) -> Document:
    """Solve the instance and return the solution file as it is read back."""
    solution = model_for(instance, **options).solve(engine, certify=certify)
    document: Document = json.loads(json.dumps(solution.to_dict()))
    return document


def restated(document: Document, instance: Instance) -> Document:
    """Return the file labelled optimal, with objective, bound, gap, stages and metrics recomputed from its answer."""
    made = copy.deepcopy(document) | {"status": "optimal", "certificate": None, "gap": 0.0}
    verifier = verifier_for(instance.kind)
    assert verifier is not None
    for _ in range(2):  # the second time with the objective of the first
        read = read_document(made)
        answer = read_as(verifier.answer, read.answer, "answer")
        finding = verifier.judge(
            Claimed(read.model_copy(update={"proof": {}}), answer, verifier.proof() if verifier.proof else {}, instance)
        )
        objective = finding.objective
        if instance.kind == "pod-placement":
            objective = Fraction(_balance(made, answer, instance, verifier))
        value = None if objective is None else written(objective)
        value = float(Fraction(value)) if isinstance(value, str) and finding.tolerance else value
        made |= {"objective": value, "bound": value}
        made["stages"] = {name: written(each) for name, each in finding.stages.items()}
        known = {name: each for name, each in finding.metrics.items() if name in made["metrics"]}
        made["metrics"] |= {name: _plain(each) for name, each in known.items()}
    return made


def _balance(document: Document, answer: Any, instance: Instance, verifier: Verifier) -> Any:
    """Return the balance of a placement, recomputed as another measure's metric, as `judge` copies the stated one."""
    measure = document["options"].get("balance", "deviation")
    other = "max_load" if measure != "max_load" else "deviation"
    read = read_document(document | {"options": document["options"] | {"balance": other}})
    return verifier.judge(
        Claimed(read.model_copy(update={"proof": {}}), answer, verifier.proof() if verifier.proof else {}, instance)
    ).metrics[measure]


def _plain(value: object) -> object:
    if not isinstance(value, Fraction):
        return value
    return int(value) if value.denominator == 1 else float(value)


def by_options(instance: Instance, options: Mapping[str, Any], *others: Mapping[str, Any]) -> Iterator[Document]:
    """Yield answers to other options, labelled as answers to ``options``."""
    true = solved(instance, **options)
    for other in others:
        made = solved(instance, **other)
        yield restated(made | {"options": true["options"], "model": true["model"], "stages": true["stages"]}, instance)


def by_fault(
    instance: Instance, options: Mapping[str, Any], faults: list[tuple[str, str, Change]]
) -> Iterator[Document]:
    """Yield answers of broken model code without certification."""
    for _, target, change in faults:
        with pytest.MonkeyPatch.context() as patch:
            seed(patch, target, change)
            made = solved(instance, "network", certify=False, **options)
        yield restated(made, instance)
