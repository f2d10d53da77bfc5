"""Seeded faults in allocations: the certificate must refuse each of them under every policy."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from flowlex import Allocation
from flowlex.validation.certificates import SolutionError, verify
from tests.models.allocation.cases import random_instance

Document = dict[str, Any]
POLICIES = ["max_min", "water_filling", "hierarchical", "makespan", "finish_time", "max_throughput", "min_cost"]
INSTANCE = random_instance(2, tight=0.5)


def proven(policy: str) -> Document:
    solution = Allocation(INSTANCE, policy=policy).solve("highs")
    assert solution.certificate is not None and solution.certificate.claim == "optimal"
    return solution.to_dict()


def _shares(document: Document) -> list[Document]:
    shares: list[Document] = document["answer"]["shares"]
    return sorted(shares, key=lambda share: -share["fraction"])


def _scaled(document: Document, factor: float) -> None:
    """Scale all shares and throughputs: consistent, but infeasible or suboptimal."""
    for share in document["answer"]["shares"]:
        share["fraction"] *= factor
    for name in document["answer"]["steps_per_s"]:
        document["answer"]["steps_per_s"][name] *= factor


def _dearest(document: Document) -> tuple[Document, str]:
    """Return the row and label of the largest dual value of the first step."""
    prices = document["proof"]["steps"][0]["prices"]
    return max(((row, label) for row in prices.values() for label in row), key=lambda at: at[0][at[1]])


def _price(document: Document, change: Callable[[float], float]) -> None:
    row, label = _dearest(document)
    row[label] = change(row[label])


def _set(*path: Any, to: Callable[[Any], Any]) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        part: Any = document
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = to(part[path[-1]])

    return change


#: Faults by name: changes of a correct document.
FAULTS: dict[str, Callable[[Document], Any]] = {
    "more time than there is": lambda d: _scaled(d, 3.0),
    "less than the best": lambda d: _scaled(d, 0.9),
    "a share taken away": lambda d: d["answer"]["shares"].remove(_shares(d)[0]),
    "a share made larger": lambda d: _shares(d)[0].update(fraction=1.5),
    "a share made negative": lambda d: _shares(d)[0].update(fraction=-0.5),
    "a share told twice": lambda d: d["answer"]["shares"].append(dict(_shares(d)[0])),
    "a share of an unknown job": lambda d: _shares(d)[0].update(jobs=["nobody"]),
    "a share of nobody": lambda d: _shares(d)[0].update(jobs=[]),
    "a job paired with itself": lambda d: _shares(d)[0].update(jobs=["j0", "j0"]),
    "three jobs at once": lambda d: _shares(d)[0].update(jobs=["j0", "j1", "j2"]),
    "a share on an unknown type": lambda d: _shares(d)[0].update(gpu_type="tpu"),
    "a throughput changed": _set("answer", "steps_per_s", "j2", to=lambda v: v + 1.0),
    "a throughput left out": lambda d: d["answer"]["steps_per_s"].pop("j2"),
    "a throughput of an unknown job": lambda d: d["answer"]["steps_per_s"].update(nobody=1.0),
    "objective higher": _set("objective", to=lambda v: v * 1.01),
    "objective lower": _set("objective", to=lambda v: v * 0.99),
    "bound higher": _set("bound", to=lambda v: v * 1.01),
    "bound lower": _set("bound", to=lambda v: v * 0.99),
    "a metric changed": _set("metrics", "gpus_held", to=lambda v: v + 0.01),
    "cost changed": _set("metrics", "cost_usd_per_hour", to=lambda v: v + 0.01),
    "no proof": _set("proof", "steps", to=lambda v: []),
    "the dearest price doubled": lambda d: _price(d, lambda v: 2 * v),
    "the dearest price halved": lambda d: _price(d, lambda v: v / 2),
    "a price made negative": lambda d: _price(d, lambda v: -v),
    "prices of nothing": _set("proof", "steps", 0, "prices", to=lambda v: {}),
    "a price of an unknown job": lambda d: d["proof"]["steps"][0]["prices"].setdefault("time", {}).update(nobody=1.0),
    "a price of an unknown row": lambda d: d["proof"]["steps"][0]["prices"].update(hope={"j0": 1.0}),
    "a dual changed": lambda d: d["duals"]["gpus"].update(gpu0=d["duals"]["gpus"]["gpu0"] + 1.0),
    "an unknown policy": _set("options", "policy", to=lambda v: "lottery"),
    "called infeasible": _set("status", to=lambda v: "infeasible"),
    "another instance": _set("fingerprint", to=lambda v: "sha256:" + "0" * 64),
}
#: Faults for policies that raise levels step by step.
STEPS: dict[str, Callable[[Document], Any]] = {
    "a step that ends lower": _set("proof", "steps", 0, "value", to=lambda v: v * 0.9),
    "a step that ends higher": _set("proof", "steps", 0, "value", to=lambda v: v * 1.1),
    "a step that finds nobody full": _set("proof", "steps", 0, "full", to=lambda v: []),
    "an unknown job called full": _set("proof", "steps", 0, "full", to=lambda v: ["nobody"]),
    "the last step told twice": _set("proof", "steps", to=lambda v: [*v, v[-1]]),
}
#: Faults for policies that continue until all jobs are full.
FILLING: dict[str, Callable[[Document], Any]] = {
    "all called full at once": _set("proof", "steps", 0, "full", to=lambda v: [f"j{m}" for m in range(6)]),
    "the last step left out": _set("proof", "steps", to=lambda v: v[:-1]),
    "the first step left out": _set("proof", "steps", to=lambda v: v[1:]),
    "without throughput": _set("options", "aware", to=lambda v: False),
}
CASES = [
    *((policy, name, change) for policy in POLICIES for name, change in FAULTS.items()),
    *((policy, name, change) for policy in ("max_min", "water_filling", "makespan") for name, change in STEPS.items()),
    *((policy, name, change) for policy in ("water_filling", "hierarchical") for name, change in FILLING.items()),
]


@pytest.fixture(scope="module")
def documents() -> dict[str, Document]:
    return {policy: proven(policy) for policy in POLICIES}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_true_document_is_proven(policy: str, documents: dict[str, Document]) -> None:
    assert verify(documents[policy], INSTANCE).ok


@pytest.mark.parametrize(("policy", "name", "change"), CASES, ids=[f"{p}: {n}" for p, n, _ in CASES])
def test_a_fault_is_refused(
    policy: str, name: str, change: Callable[[Document], Any], documents: dict[str, Document]
) -> None:
    document = copy.deepcopy(documents[policy])
    change(document)
    document["certificate"] = None  # the stored certificate must not decide
    document["gap"] = abs(document["objective"] - document["bound"]) / max(1.0, abs(document["objective"]))
    with contextlib.suppress(SolutionError):  # a document that cannot be read is refused as well
        assert not verify(document, INSTANCE).ok


def test_deadlines_that_could_be_kept_are_not_proven_impossible() -> None:
    hard = random_instance(2, tight=3.0)
    solution = Allocation(hard, policy="max_throughput").solve("highs")
    document = solution.to_dict()
    assert (document["status"], verify(document, hard).ok) == ("infeasible", True)
    for factor in (0.0, -1.0):
        weak = copy.deepcopy(document)
        for row in weak["proof"]["steps"][0]["prices"].values():
            for label in row:
                row[label] *= factor
        weak["certificate"] = None
        assert not verify(weak, hard).ok


@pytest.mark.parametrize("policy", ["max_min", "water_filling", "hierarchical", "makespan", "max_throughput"])
@pytest.mark.parametrize("priced", ["prices kept", "prices restated", "bound kept"])
def test_a_worse_answer_with_everything_restated_is_refused(policy: Any, priced: str) -> None:
    """Scale every share by 0.9, with consistent throughputs, metrics, objective, steps and duals."""
    best = Allocation(INSTANCE, policy=policy).solve("highs")
    assert best.objective is not None
    part = 0.9
    less = part if priced == "prices restated" else 1.0
    steps = tuple(
        dataclasses.replace(
            step, value=part * step.value, prices={name: less * values for name, values in step.prices.items()}
        )
        for step in best.steps
    )
    objective = best.objective / part if policy == "makespan" else best.objective * part
    stated: dict[str, Any] = {"objective": objective, "bound": best.bound if priced == "bound kept" else objective}
    stated["gap"] = abs(objective - stated["bound"]) / max(1.0, abs(objective))
    duals = {name: dataclasses.replace(dual, values=steps[0].prices[name]) for name, dual in best.duals.items()}
    worse = dataclasses.replace(best, share=part * best.share, steps=steps, duals=duals, certificate=None, **stated)
    assert not verify(worse.to_dict(), INSTANCE).ok
