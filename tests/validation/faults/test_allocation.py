"""False answers and forged proofs of allocations are refused under every policy, with and without all pairs listed."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest

from flowlex import Allocation
from flowlex.instances import generate
from flowlex.validation.certificates import SolutionError, verify
from flowlex.validation.restated import allocation as restated_allocation
from tests.models.allocation.cases import random_instance
from tests.validation.faults.restated import Document, solved

POLICIES = ["max_min", "water_filling", "hierarchical", "makespan", "finish_time", "max_throughput", "min_cost"]
INSTANCE = random_instance(2, tight=0.5)


@pytest.fixture(scope="module")
def documents() -> dict[str, Document]:
    return {policy: solved(INSTANCE, policy=policy) for policy in POLICIES}


@pytest.fixture(params=["all pairs", "pairs that matter"])
def listing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pairs that matter":
        monkeypatch.setattr(restated_allocation, "_WRITTEN_OUT", 0)


def _shares(document: Document) -> list[Document]:
    shares: list[Document] = document["answer"]["shares"]
    return sorted(shares, key=lambda share: -share["fraction"])


def _more(document: Document) -> None:
    for share in document["answer"]["shares"]:
        share["fraction"] *= 3
    for name in document["answer"]["steps_per_s"]:
        document["answer"]["steps_per_s"][name] *= 3


#: False statements by name: changes of a correct document.
FAULTS: dict[str, Callable[[Document], Any]] = {
    "more time than there is": _more,
    "a share taken away": lambda d: d["answer"]["shares"].remove(_shares(d)[0]),
    "a share made negative": lambda d: _shares(d)[0].update(fraction=-0.5),
    "a share told twice": lambda d: d["answer"]["shares"].append(dict(_shares(d)[0])),
    "a share of an unknown job": lambda d: _shares(d)[0].update(jobs=["nobody"]),
    "a share of nobody": lambda d: _shares(d)[0].update(jobs=[]),
    "a job paired with itself": lambda d: _shares(d)[0].update(jobs=["j0", "j0"]),
    "three jobs at once": lambda d: _shares(d)[0].update(jobs=["j0", "j1", "j2"]),
    "a share on an unknown type": lambda d: _shares(d)[0].update(gpu_type="tpu"),
    "nobody is full": lambda d: d["answer"].update(full=[[]]) if d["answer"].get("full") else d.update(version=1),
    "no multipliers": lambda d: d["proof"].update(stages={"objective": [{}]}),
    "called infeasible": lambda d: d.update(status="infeasible"),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.usefixtures("listing")
def test_a_false_statement_is_refused(policy: str, documents: dict[str, Document]) -> None:
    assert verify(documents[policy], INSTANCE).claim == "optimal"
    for name, change in FAULTS.items():
        document = copy.deepcopy(documents[policy]) | {"certificate": None}
        change(document)
        document["gap"] = abs(document["objective"] - document["bound"]) / max(1.0, abs(document["objective"]))
        with contextlib.suppress(SolutionError):  # a document that cannot be read is refused as well
            assert not verify(document, INSTANCE).ok, name


@pytest.mark.usefixtures("listing")
def test_a_full_job_that_can_rise_and_a_lost_step_are_refused() -> None:
    instance = generate("gavel-like", seed=3, jobs=8, gpus=8, models=4, entities=3)
    for policy in ("water_filling", "hierarchical"):
        document = solved(instance, policy=policy)
        full = document["answer"]["full"]
        assert verify(document, instance).claim == "optimal" and len(full) > 1
        joined = [[name for part in full for name in part]]
        moved = [[*full[0], full[1][0]], full[1][1:], *full[2:]]
        for order in (joined, full[1:], full[::-1], [part for part in moved if part]):
            made = copy.deepcopy(document) | {"certificate": None}
            made["answer"]["full"] = order
            assert not verify(made, instance).ok


def test_with_many_pairs_multipliers_are_of_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier objectives have coefficients in pairs that are left out, and their multipliers would not count there."""
    instance = generate("gavel-like", seed=3, jobs=8, gpus=8, models=4, entities=3, sharing=True)
    document = solved(instance, policy="water_filling")
    monkeypatch.setattr(restated_allocation, "_WRITTEN_OUT", 0)
    assert verify(document, instance).claim == "optimal"
    for more in ({"earlier": {"full_1": -1}}, {"earlier": -1}):
        made = copy.deepcopy(document) | {"certificate": None}
        made["proof"]["stages"]["rise_2"][0] |= more
        assert not verify(made, instance).ok


def test_deadlines_that_could_be_kept_are_not_proven_impossible() -> None:
    hard = random_instance(2, tight=3.0)
    document = Allocation(hard, policy="max_throughput").solve("highs").to_dict()
    assert (document["status"], verify(document, hard).ok) == ("infeasible", True)
    easy = random_instance(2, tight=0.1)
    assert not verify(document | {"fingerprint": easy.fingerprint, "certificate": None}, easy).ok
