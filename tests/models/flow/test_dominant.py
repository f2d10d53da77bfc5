"""Dominant resource fairness: the paper's example, the certificate's own filling, max-min where tasks take a slot."""

import copy
import json

import numpy as np
import pytest

from flowlex import solve
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine, Queue
from flowlex.models.flow.dominant_shares import dominant_bounds
from flowlex.models.flow.goals import FairShares, Placement
from flowlex.models.flow.model import FlowScheduling
from flowlex.validation.certificates import verify
from flowlex.validation.restated.flow.dominant_resource_fairness import dominant_shares

GOALS = (FairShares(kind="dominant"), Placement())


def job(name: str, count: int, demands: dict[str, float], **more: object) -> FlowJob:
    tasks = tuple(FlowTask(name=f"{name}{k}", demands=demands) for k in range(count))
    return FlowJob.model_validate({"name": name, "tasks": tasks, **more})


def claims(seed: int, *, unit: bool = False) -> FlowInstance:
    """A random tree of queues on one machine."""
    rng = np.random.default_rng(seed)
    capacity = {} if unit else {"cpu": int(rng.integers(3, 20)), "gb": int(rng.integers(3, 20))}
    queues = tuple(
        Queue(
            name=f"q{k}",
            parent=f"q{rng.integers(k)}" if k and rng.random() < 0.6 else None,
            min_tasks=int(rng.integers(3)),
            max_tasks=int(rng.integers(3, 7)) if rng.random() < 0.3 else None,
            weight=int(rng.integers(1, 4)),
        )
        for k in range(int(rng.integers(4)))
    )
    jobs = tuple(
        job(
            f"j{k}-",
            int(rng.integers(1, 7)),
            {} if unit else {"cpu": int(rng.integers(5)), "gb": int(rng.integers(5))},
            weight=int(rng.integers(1, 4)),
            min_tasks=int(rng.integers(2)),
            max_tasks=int(rng.integers(2, 5)) if rng.random() < 0.3 else None,
            queue=f"q{rng.integers(len(queues))}" if queues and rng.random() < 0.7 else None,
        )
        for k in range(int(rng.integers(1, 6)))
    )
    machine = Machine(name="m", slots=int(rng.integers(1, 12)), capacity=capacity)
    return FlowInstance(name=f"claims-{seed}", machines=(machine,), jobs=jobs, queues=queues)


@pytest.fixture(scope="module")
def paper() -> FlowInstance:
    """The example of the paper: 9 CPUs and 18 GB; tasks of 1 CPU and 4 GB, and of 3 CPUs and 1 GB."""
    box = Machine(name="m", slots=20, capacity={"cpu": 9, "gb": 18})
    users = job("a", 9, {"cpu": 1, "gb": 4}), job("b", 9, {"cpu": 3, "gb": 1})
    return FlowInstance(name="paper", machines=(box,), jobs=users)


def test_the_example_of_the_paper(paper: FlowInstance) -> None:
    solution = solve(paper, "highs", goals=GOALS)
    assert {name: least for name, (least, _) in solution.shares.items()} == {"a": 3, "b": 2}
    assert len([task for task in solution.machine_of if task.startswith("a")]) == 3 and len(solution.machine_of) == 5
    assert solution.certificate.claim == "optimal"


def test_two_fillings_agree() -> None:
    for seed in range(60):
        instance = claims(seed)
        share, most = dominant_shares(instance, instance.resources)
        assert dominant_bounds(instance).tolist() == [list(pair) for pair in zip(share, most, strict=True)], seed


def test_tasks_of_one_slot_share_as_weighted_max_min_does() -> None:
    for seed in range(60):
        instance = claims(seed, unit=True)
        weighted = FlowScheduling(instance, goals=(FairShares(kind="weighted"),)).priced.shares
        assert dominant_bounds(instance)[:, 0].tolist() == weighted[:, 0].tolist(), seed


def test_what_a_share_cannot_place_is_lent() -> None:
    """Two machines of 3 CPUs: the pool gives three tasks of 2 CPUs, but only two fit; the rest is lent."""
    boxes = tuple(Machine(name=f"m{k}", slots=9, capacity={"cpu": 3}) for k in range(2))
    jobs = job("wide", 9, {"cpu": 2}, weight=9), job("thin", 9, {"cpu": 1})
    instance = FlowInstance(name="lent", machines=boxes, jobs=jobs)
    solution = solve(instance, "highs", goals=GOALS)
    assert solution.shares["wide"][0] == 3 and solution.score.shortfall == 1
    assert sorted(task[:4] for task in solution.machine_of) == ["thin", "thin", "wide", "wide"]
    closed = FlowInstance(
        name="closed",
        machines=boxes,
        jobs=(jobs[0], job("thin", 9, {"cpu": 1}, queue="q")),
        queues=(Queue(name="q", max_tasks=1),),
    )
    assert len([task for task in solve(closed, "highs", goals=GOALS).machine_of if task[:4] == "thin"]) <= 1


def test_other_shares_are_refused(paper: FlowInstance) -> None:
    true = json.loads(json.dumps(solve(paper, "highs", goals=GOALS).to_dict()))
    assert verify(copy.deepcopy(true), paper).ok
    for share in ([2, 9], [3, 8], [4, 9]):
        false = copy.deepcopy(true)
        false["answer"]["shares"]["a"] = share
        certificate = verify(false, paper)
        assert next(c.name for c in certificate.checks if not c.ok) == "shares by dominant resources"
