"""Flow scheduling: every schedule is proven from its instance, and false documents are refused by a check."""

import copy
import json
from typing import Any

import jsonschema
import pytest

from flowlex import generate, model_for
from flowlex.instances.flow import FlowInstance
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


def test_weights_are_those_that_order_the_stages() -> None:
    instance = random_cluster(3)
    true = document_of(instance, preset="borg")
    names = list(true["answer"]["weights"])
    total = sum(true["stages"].get(name, 0) for name in names)
    for weights, more in (({names[0]: 5}, {}), (dict.fromkeys(names, 1), {"objective": total, "bound": total})):
        document = copy.deepcopy(true) | more
        document["answer"]["weights"] |= weights
        assert "can be judged" in [each.name for each in verify(document, instance).checks if not each.ok]


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
