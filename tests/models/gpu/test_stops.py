"""Which tasks FSP may stop: small rounds by hand, and forbidden stops, which the certificate refuses."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from flowlex.instances.gpu import GpuInstance
from flowlex.models.gpu.model import GpuAssignment, Policy
from flowlex.models.model_base import ModelError
from flowlex.validation.certificates import verify
from tests.models.gpu.cases import cluster as built
from tests.models.gpu.cases import job
from tests.models.gpu.cases import task as task_of

_SPEEDS = {"disk_mb_per_s": 100.0, "rack_mb_per_s": 50.0, "between_racks_mb_per_s": 25.0}


def cluster(jobs: dict[str, list[tuple[str, str | None, float]]], gpus: int, speeds: Any = None) -> GpuInstance:
    """One GPU of 8 GB per node, two nodes per rack; tasks: name, node of their 640 MB, and seconds run on that node.

    A task without a place has no data; without seconds it waits.
    """
    nodes = [
        {"name": f"n{k}", "rack": f"r{k // 2}", "gpus": [{"name": f"g{k}", "memory_gb": 8.0}]} for k in range(gpus)
    ]

    def task(name: str, node: str | None, elapsed: float) -> Any:
        running = (f"g{str(node)[1:]}", elapsed) if elapsed else None
        return task_of(name, *([] if node is None else [(640.0, node)]), memory_gb=4.0, running=running)

    made = [job(name, *(task(*each) for each in tasks)) for name, tasks in jobs.items()]
    return GpuInstance.model_validate({"nodes": nodes, "jobs": made, **(speeds or _SPEEDS)})


def within_share() -> GpuInstance:
    """A runs its share of one on n0, which has the data of B; a2 could run on the other GPU without data."""
    return cluster({"A": [("a1", "n0", 100_000.0), ("a2", None, 0.0)], "B": [("b1", "n0", 0.0)]}, 2)


def above_share() -> GpuInstance:
    """A runs four tasks and has a share of two; B waits for two."""
    running = [(f"a{k}", f"n{k}", 10.0 * (k + 1)) for k in range(4)]
    return cluster({"A": running, "B": [("b0", None, 0.0), ("b1", None, 0.0)]}, 4)


@pytest.mark.parametrize("network", ["compact", "paper"])
@pytest.mark.parametrize("engine", ["network", "highs", "pulp"])
def test_a_job_within_its_share_loses_no_task_for_seconds(network: Any, engine: Any) -> None:
    solution = GpuAssignment(within_share(), network=network).solve(engine)
    assert solution.preempted == ()
    assert solution.placement.running_by_job.tolist() == [1, 1]


@pytest.mark.parametrize("network", ["compact", "paper"])
def test_the_price_of_a_stop_decides_who_gets_the_odd_gpu(network: Any) -> None:
    """Shares of 4/3 for A, B and D: one of A and D keeps two tasks; c0 has its data where a0 runs."""
    jobs = {
        "A": [("a0", "n0", 500.0), ("a1", "n1", 900.0)],
        "B": [("b0", "n2", 90.0), ("b1", "n0", 0.0)],
        "C": [("c0", "n0", 0.0)],
        "D": [("d0", "n3", 70.0), ("d1", "n4", 80.0)],
    }
    instance = cluster(jobs, 5)
    free = GpuAssignment(instance, network=network).solve("network")
    assert free.preempted == ("a0",)
    assert "500 s of work lost, weighed as 0 s of transfer" in free.reasons()[0]
    priced = GpuAssignment(instance, network=network, stop_price=1.0).solve("network")
    assert priced.preempted == ("d0",)
    assert "70 s of work lost, weighed as 70 s of transfer" in priced.reasons()[5]
    assert priced.objective == free.objective - 6.4 + 25.6 + 70
    assert verify(json.loads(json.dumps(priced.to_dict())), instance).claim == "optimal"


def test_a_price_of_stops_goes_with_stops() -> None:
    for options, match in (({"policy": Policy.FS, "stop_price": 1.0}, "stops no task"), ({"stop_price": -1.0}, "0")):
        with pytest.raises(ModelError, match=match):
            GpuAssignment(above_share(), **options)


def swap(*moves: tuple[str, str | None]) -> Callable[[dict[str, Any]], None]:
    """Return a consistent answer in which tasks run on other GPUs or stop."""

    def change(document: dict[str, Any]) -> None:
        answer = document["answer"]
        for task, gpu in moves:
            waits = "preempted" if task.startswith("a") and task != "a9" else "waiting"
            for place in ("placements", "preempted", "waiting"):
                answer[place].pop(task, None)
            answer["placements" if gpu else waits][task] = gpu or "because"

    return change


def share(job: int, value: float) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["answer"]["jobs"][job]["fair_share"] = value

    return change


@pytest.mark.parametrize(
    ("instance", "change", "fails"),
    [
        (above_share(), swap(("a2", None)), "every row holds"),
        (above_share(), swap(("a0", "g0"), ("a3", None), ("b0", "g3")), "every row holds"),
        (above_share(), swap(("a1", "g1"), ("b1", None), ("b0", "g0")), "the table of jobs"),
        (above_share(), share(0, 1.0), "fair shares of the table"),
        (above_share(), share(1, 1.5), "fair shares of the table"),
        (within_share(), swap(("a1", None), ("a2", "g1"), ("b1", "g0")), "every row holds"),
    ],
    ids=["a stop too many", "a longer one stopped", "a stop too few", "share less", "share more", "within its share"],
)
def test_an_answer_against_the_rule_is_refused(instance: GpuInstance, change: Any, fails: str) -> None:
    document = json.loads(json.dumps(GpuAssignment(instance).solve("network").to_dict()))
    assert verify(document, instance).claim == "optimal"
    change(document)
    certificate = verify(document, instance)
    failed = [check.name for check in certificate.checks if not check.ok]
    assert any(fails in name for name in failed), str(certificate)


def test_a_share_that_memory_limits_is_proven() -> None:
    """Regression test: two jobs with equal shares by count, one limited by memory; duals alone did not show it."""
    nodes = [(f"n{k}", "r0", [gb]) for k, gb in enumerate((24.0, 16.0, 16.0, 8.0, 8.0))]
    asked = {"large": (20.0, "n0", "n0"), "middle": (12.0, "n4", "n4"), "small": (4.0, "n1", "n2", "n0")}
    jobs = [
        job(name, *(task_of(f"{name}{k}", (640.0, at), memory_gb=gb) for k, at in enumerate(where)))
        for name, (gb, *where) in asked.items()
    ]
    instance = built(jobs, nodes, **_SPEEDS)
    for policy in (Policy.FSP, Policy.FS):
        for network in ("compact", "paper"):
            certificate = GpuAssignment(instance, policy=policy, network=network).solve("highs").certificate  # type: ignore[arg-type]
            assert certificate is not None and certificate.claim == "optimal"
