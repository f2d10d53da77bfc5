"""Flow scheduling: every schedule is proven from its instance, and false documents are refused by a check."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from flowlex import generate, model_for
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models import solve
from flowlex.models.flow.goals import Goal
from flowlex.validation.certificates import solution_schema, verify
from flowlex.validation.restated.flow import solution_verifier
from tests.validation.certificates.clusters import GOALS, random_cluster


def document_of(instance: FlowInstance, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(solve(instance, "network", **options).to_dict()))
    return found


@pytest.mark.parametrize("name", GOALS)
@pytest.mark.parametrize("seed", range(2))
def test_every_goal_is_proven_from_the_file(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over those columns only that the prices of machines need."""
    instance = random_cluster(seed)
    document = document_of(instance, **GOALS[name])
    for written_out in (0, 20_000):
        monkeypatch.setattr(solution_verifier, "_WRITTEN_OUT", written_out)
        certificate = verify(document, instance)
        assert (certificate.ok, certificate.claim, certificate.exact) == (True, "optimal", True)
    jsonschema.validate(document, solution_schema())


@pytest.mark.parametrize("name", GOALS)
@pytest.mark.parametrize("empty", [("machines",), ("jobs",), ("machines", "jobs")], ids=" and ".join)
def test_a_cluster_without_machines_or_jobs_is_proven(name: str, empty: tuple[str, ...]) -> None:
    """Without machines all tasks wait, as when the last machine fails; without jobs nothing is placed."""
    for full in (random_cluster(seed) for seed in range(2)):
        gone = {"running": None, "costs": {}, "data": ()}
        jobs = [j.model_copy(update={"tasks": tuple(t.model_copy(update=gone) for t in j.tasks)}) for j in full.jobs]
        whole = {"name": full.name, "machines": full.machines, "jobs": tuple(jobs)}
        instance = FlowInstance(**{**whole, **dict.fromkeys(empty, ())})
        certificate = solve(instance, "network", **GOALS[name]).certificate
        assert certificate is not None and (certificate.ok, certificate.claim) == (True, "optimal")


HAND = FlowInstance(
    name="hand",
    machines=(
        Machine(name="m0", slots=1, rack="r0", labels=("gpu",)),
        Machine(name="m1", slots=1, rack="r0"),
        Machine(name="m2", slots=1, rack="r1"),
    ),
    jobs=tuple(
        FlowJob(
            name=name,
            priority=k,
            different_machines=rule,
            tasks=tuple(
                FlowTask(name=f"{name}{t}", costs={"m0": 3 + t, "m1": 5, "m2": 9} if name == "a" else {})
                for t in range(2)
            ),
        )
        for k, (name, rule) in enumerate([("a", "red"), ("b", None)])
    ),
)


@pytest.fixture(scope="module")
def true() -> dict[str, Any]:
    """Three tasks run, one of b waits."""
    document = document_of(HAND, preset="borg")
    assert verify(document, HAND).claim == "optimal" and document["version"] == 3
    return document


def _move(document: dict[str, Any], task: str, machine: str | None) -> None:
    placed, waiting = document["answer"]["placements"], document["answer"]["waiting"]
    placed.pop(task, None)
    waiting.pop(task, None)
    if machine is None:
        waiting[task] = "stopped by hand"
    else:
        placed[task] = machine


def _leaf(document: dict[str, Any], stage: str = "cost") -> dict[str, Any]:
    found: dict[str, Any] = document["proof"]["stages"][stage][0]
    return found


def _weigh(document: dict[str, Any], gap: int) -> None:
    """Weigh the stages with another gap, and state the sum that belongs to it: one task of class 1000 waits."""
    weights = {"shortfall": 1002 * gap, "waiting_1001": 1001 * gap, "waiting_1000": 1000 * gap, "cost": 1}
    assert document["answer"]["weights"].keys() == weights.keys()
    total = weights["waiting_1000"] + document["metrics"]["cost"]
    document["answer"]["weights"] = weights
    document.update(objective=total, bound=total)


_JUDGED = "can be judged"
#: Change of a document: the check that must fail.
REFUSED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a task nobody knows": (lambda d: _move(d, "z", "m0"), "tasks and machines of this instance"),
    "a machine nobody knows": (lambda d: _move(d, "a0", "m9"), "tasks and machines of this instance"),
    "more than the slots": (lambda d: _move(d, "a0", d["answer"]["placements"]["a1"]), "every row holds"),
    "neither runs nor waits": (lambda d: d["answer"]["waiting"].clear(), "names of waiting tasks"),
    "runs and waits": (lambda d: d["answer"]["waiting"].update(a0="idle"), "names of waiting tasks"),
    "an important task waits": (lambda d: _move(d, "a0", None), "objective"),
    "a share of nobody": (lambda d: d["answer"].update(shares={"a": [0, 2]}), "shares without a goal of shares: none"),
    "another weight": (lambda d: d["answer"]["weights"].update(waiting_1000=5), _JUDGED),
    "weights that do not order the stages": (lambda d: _weigh(d, 1), _JUDGED),
    "no proof of a stage": (lambda d: d["proof"]["stages"].pop("waiting_1000"), "status"),
    "a price too high": (lambda d: _leaf(d)["rows"].update(machine={"default": -(10**9)}), "status"),
    "a price of the wrong sign": (lambda d: _leaf(d)["rows"].update(share={"at": {"a": 1}}), _JUDGED),
    "a machine of nobody": (lambda d: _leaf(d)["rows"].update(machine={"at": {"m9": -1}}), _JUDGED),
    "an earlier stage pays": (lambda d: _leaf(d).update(earlier={"waiting_1001": 1}), "status"),
    "a later stage pays": (lambda d: _leaf(d, "waiting_1001").update(earlier={"cost": -1}), _JUDGED),
    "called infeasible": (
        lambda d: d.update(status="infeasible", answer={}, objective=None, bound=None, gap=None, metrics={}, stages={}),
        "there is no answer",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("written_out", [0, 20_000])
def test_untrue_documents_are_refused(
    name: str, written_out: int, true: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solution_verifier, "_WRITTEN_OUT", written_out)
    change, check = REFUSED[name]
    document = copy.deepcopy(true)
    change(document)
    certificate = verify(document, HAND)
    assert check in [each.name for each in certificate.checks if not each.ok]


def test_a_cluster_of_many_pairs_is_proven_without_them() -> None:
    instance = generate("flow-scale", machines=200, tasks=800, seed=1)
    solution = model_for(instance, preset="quincy").solve("network")
    assert solution.certificate is not None and solution.certificate.claim == "optimal"


def test_a_goal_that_no_file_holds_is_quoted() -> None:
    class Mine(Goal):
        pass

    instance = random_cluster(1)
    solution = solve(instance, "network", goals=(Mine(),))
    assert solution.certificate is not None and solution.certificate.claim == "optimal"
    alone = verify(solution.to_dict(), instance)
    assert alone.ok and alone.claim == "feasible"
    assert "costs of the goals" in [c.name for c in alone.checks if c.verdict == "quoted"]
