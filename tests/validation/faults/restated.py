"""Suboptimal answers labelled optimal with consistent figures, and mutants of proofs.

The figures are those that the verifier recomputes from the answer. The file is consistent, and only its proof can show
that the answer is not optimal.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping
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

__all__ = ["Document", "by_fault", "by_options", "mutant", "restated", "solved"]

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


def mutant(proof: Any, rng: random.Random) -> Any:
    """Return a proof with one to three changes: of a number, of all numbers with a name, or of container entries."""
    made = copy.deepcopy(proof)
    for _ in range(rng.randint(1, 3)):
        leaves, nodes = list(_leaves(made, "")), [node for node in _nodes(made) if node]
        if leaves and rng.random() < 0.75:
            change = rng.choice(_CHANGES)
            holder, key, name = rng.choice(leaves)
            alike = [leaf for leaf in leaves if leaf[2] == name] if rng.random() < 0.5 else [(holder, key, name)]
            for where, at, _ in alike:
                where[at] = type(where[at])(change(where[at]))
        elif nodes:
            _reshape(rng.choice(nodes), rng)
    return made


#: Functions that change a number.
_CHANGES: tuple[Callable[[Any], Any], ...] = (
    *(lambda x, by=by: x * by for by in (-1, 0, 0.5, 0.9, 0.99, 1.001, 1.1, 2, 10, 10**6)),
    *(lambda x, by=by: x + by for by in (-1, -0.01, 0.01, 1, 10)),
)


def _reshape(node: Any, rng: random.Random) -> None:
    """Drop, repeat, or exchange entries of a list or mapping."""
    keys = list(range(len(node))) if isinstance(node, list) else list(node)
    one, other = rng.choice(keys), rng.choice(keys)
    how = rng.choice(("drop", "repeat", "exchange"))
    if how == "drop":
        del node[one]
    elif how == "repeat" and isinstance(node, list):
        node.append(copy.deepcopy(node[one]))
    else:
        node[one], node[other] = node[other], node[one]


def _nodes(part: Any) -> Iterator[Any]:
    if isinstance(part, (dict, list)):
        yield part
        for value in part.values() if isinstance(part, dict) else part:
            yield from _nodes(value)


def _leaves(part: Any, name: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield container, key and name of every number; the name is that of the nearest enclosing field."""
    for node in _nodes(part):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                yield node, key, str(key) if isinstance(node, dict) else name
