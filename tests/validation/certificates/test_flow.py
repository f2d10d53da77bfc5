"""Flow scheduling: every schedule is proven from its instance, and false documents are refused by a check."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from flowlex.instances.files import read_instance, read_json
from flowlex.instances.flow import FlowInstance, FlowJob
from flowlex.models import solve
from flowlex.models.flow.goals import DataLocality, Goal
from flowlex.validation.certificates import SolutionError, solution_schema, verify
from flowlex.validation.certificates.flow.goal_costs import Problem
from flowlex.validation.certificates.flow.price_optimality import Prices, Survey
from tests.validation.certificates.clusters import GOALS, random_cluster

DOCUMENTS = Path(__file__).parent / "documents" / "flow-scheduling"
INSTANCE = read_instance(DOCUMENTS / "hand.json")
TRUE = read_json(DOCUMENTS / "hand.solution.json")
#: File in ``refused``: the check that must fail.
REFUSED = {
    "a-task-nobody-knows": "tasks and machines of this instance",
    "a-machine-nobody-knows": "tasks and machines of this instance",
    "a-banned-machine": "required and forbidden resources",
    "two-on-one-machine": "rules of different machines",
    "more-than-the-slots": "slots of machines",
    "neither-runs-nor-waits": "names of waiting tasks",
    "runs-and-waits": "names of waiting tasks",
    "above-its-share": "upper bounds of shares",
    "an-unfair-share": "shares are max-min fair",
    "a-share-of-nobody": "names of jobs with shares",
    "a-dearer-schedule": "optimality",
    "a-price-too-high": "optimality",
    "a-price-of-nobody": "names of prices and weights",
    "a-weight-too-small": "weights put the stages in strict order",
    "objective-of-another": "objective",
    "bound-above-the-optimum": "bound",
    "metric-changed": "metrics",
    "dual-changed": "duals are the prices",
    "another-unit": "objective",
    "another-goal": "objective",
    "called-infeasible": "there is no answer",
}


@pytest.mark.parametrize("name", GOALS)
@pytest.mark.parametrize("seed", range(2))
def test_every_goal_is_proven_from_the_file(name: str, seed: int) -> None:
    instance = random_cluster(seed)
    document = json.loads(json.dumps(solve(instance, "network", **GOALS[name]).to_dict()))
    certificate = verify(document, instance)
    assert (certificate.ok, certificate.claim, certificate.exact) == (True, "optimal", True)
    jsonschema.validate(document, solution_schema())


@pytest.mark.parametrize("name", GOALS)
@pytest.mark.parametrize("empty", [("machines",), ("jobs",), ("machines", "jobs")], ids=" and ".join)
def test_a_cluster_without_machines_or_jobs_is_proven(name: str, empty: tuple[str, ...]) -> None:
    """Without machines all tasks wait, as when the last machine fails; without jobs nothing is placed."""
    for full in (random_cluster(seed) for seed in range(4)):
        gone = {"running": None, "costs": {}, "data": ()}
        jobs = [j.model_copy(update={"tasks": tuple(t.model_copy(update=gone) for t in j.tasks)}) for j in full.jobs]
        whole = {"name": full.name, "machines": full.machines, "jobs": tuple(jobs)}
        instance = FlowInstance(**{**whole, **dict.fromkeys(empty, ())})
        certificate = solve(instance, "network", **GOALS[name]).certificate
        assert certificate is not None and (certificate.ok, certificate.claim) == (True, "optimal")


@pytest.mark.slow
@pytest.mark.parametrize("name", GOALS)
@pytest.mark.parametrize("start", range(1000, 1100, 10))
def test_every_goal_is_proven_on_many_clusters(name: str, start: int) -> None:
    for seed in range(start, start + 10):
        certificate = solve(random_cluster(seed, size=30), "network", **GOALS[name]).certificate
        assert certificate is not None and certificate.claim == "optimal"


def test_the_swing_of_constrained_tasks_is_exact() -> None:
    """Against every pair of task and machine: where far reading is left out, a bound from above would be too large."""
    spared = 0
    for seed in range(40):
        instance = random_cluster(seed, size=20)
        tasks = [t for job in instance.jobs for t in job.tasks if t.constraints and t.data and not t.costs]
        if not tasks:
            continue
        instance = FlowInstance(name="ruled", machines=instance.machines, jobs=(FlowJob(name="j", tasks=tuple(tasks)),))
        problem = Problem(instance, {"goals": None, "preset": "quincy", "lexicographic": False, "wait_cost": 3}, 1000)
        survey, most = Survey(problem), 0
        cost, fits = survey.costs(np.arange(len(problem.tasks)), Prices({"cost": 1}, [0] * len(problem.slots), []))
        for each, fit, wait in zip(cost, fits, problem.waiting["cost"].tolist(), strict=True):
            ways = [*each[fit], 0, wait]
            most += max(ways) - min(ways)
            spared += bool(fit.any()) and max(each[fit]) < max(each)
        assert survey.swing("cost") == most
    assert spared > 12


def test_the_true_document_is_proven() -> None:
    certificate = verify(TRUE, INSTANCE)
    assert (certificate.ok, certificate.claim) == (True, "optimal")


def test_every_document_of_the_folder_has_its_rule() -> None:
    assert {path.name.removesuffix(".solution.json") for path in (DOCUMENTS / "refused").iterdir()} == set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_untrue_documents_are_refused(name: str) -> None:
    certificate = verify(read_json(DOCUMENTS / "refused" / f"{name}.solution.json"), INSTANCE)
    assert not certificate.ok
    assert REFUSED[name] in [check.name for check in certificate.checks if not check.ok]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["answer"].update(scale=0), "answer.scale: must be greater"),
        (lambda d: d["answer"].update(shares={"a": [1]}), "answer.shares.a: must hold at least 2 items"),
        (lambda d: d["proof"].update(machine_price={"m0": float("nan")}), "proof.machine_price.m0"),
        (lambda d: d["proof"].update(hunch=1), "proof.hunch: unknown field"),
    ],
)
def test_documents_that_cannot_be_judged_say_where(change: Callable[[Any], Any], says: str) -> None:
    document = copy.deepcopy(TRUE)
    change(document)
    with pytest.raises(SolutionError, match=says):
        verify(document, INSTANCE)


def _locality(instance: FlowInstance, placed: dict[str, str], rack_cost: int, cluster_cost: int) -> int:
    """Return the data read by all running tasks, block by block, by exact distances."""
    rack = {machine.name: machine.rack for machine in instance.machines}
    total = 0
    for task in instance.tasks:
        for block in task.data if task.name in placed else ():
            machine = placed[task.name]
            near = any(rack[holder] == rack[machine] for holder in block.machines)
            total += block.size_mb * (0 if machine in block.machines else rack_cost if near else cluster_cost)
    return total


@pytest.mark.parametrize("seed", range(12))
def test_the_gap_of_aggregated_locality_bounds_the_true_optimum(seed: int) -> None:
    instance = random_cluster(seed, size=5)
    apart = {t.name: j.different_machines for j in instance.jobs for t in j.tasks}
    goals = {"goals": (DataLocality(1, 3, threshold=0.5, most=1),)}
    instance = instance.model_copy(
        update={
            "jobs": tuple(
                job.model_copy(update={"tasks": tuple(t.model_copy(update={"costs": {}}) for t in job.tasks)})
                for job in instance.jobs
            )
        }
    )
    solution = solve(instance, "network", **goals)
    names = [task.name for task in instance.tasks]
    slots = {machine.name: machine.slots for machine in instance.machines}
    best: tuple[int, int] | None = None
    for way in product([*slots, None], repeat=len(names)):
        placed = {task: machine for task, machine in zip(names, way, strict=True) if machine is not None}
        pairs = Counter((apart[task], machine) for task, machine in placed.items() if apart[task])
        if any(n > slots[m] for m, n in Counter(placed.values()).items()) or max(pairs.values(), default=0) > 1:
            continue
        value = (len(names) - len(placed), _locality(instance, placed, 1, 3))
        best = value if best is None else min(best, value)
    assert best is not None
    mine = _locality(instance, dict(solution.machine_of), 1, 3)
    assert len(names) - len(solution.machine_of) == best[0]
    said = [c.detail for c in solution.certificate.checks if c.name == "gap of aggregated locality"]  # type: ignore[union-attr]
    gap = int(said[0].split("at most ")[1].split()[0]) if said else 0
    assert best[1] <= mine <= best[1] + gap
    assert mine == solution.score.cost - (int(said[0].split()[3]) if said else 0)  # type: ignore[union-attr]


def test_a_goal_that_no_file_holds_is_quoted() -> None:
    class Mine(Goal):
        pass

    instance = random_cluster(1)
    solution = solve(instance, "network", goals=(Mine(),))
    assert solution.certificate is not None and solution.certificate.claim == "optimal"
    alone = verify(solution.to_dict(), instance)
    assert alone.ok and alone.claim == "feasible"
    assert [c.name for c in alone.checks if c.verdict == "quoted"] == [
        "costs of the goals",
        "status",
        "stated claim",
        "bound",
    ]
