"""FSP against exhaustive search: mixed memory, running tasks, ties in elapsed time."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flowlex.instances.gpu import GpuInstance
from flowlex.models.gpu import preemption_search as search
from flowlex.models.gpu.model import GpuAssignment
from flowlex.validation.certificates import verify
from tests.models.gpu.cases import fairness, random_round, ways


def best_by_hand(instance: GpuInstance, price: Fraction = Fraction(0)) -> tuple[tuple[int, ...], Fraction, int]:
    """Sorted counts (leximin), transfer and lost work, stops."""
    count, transfer, stops, _ = min(ways(instance, price=price), key=lambda way: (fairness(way), way[1:3]))
    return tuple(sorted(count)), transfer, stops


def found(instance: GpuInstance, **options: Any) -> tuple[tuple[int, ...], Fraction, int]:
    solution = GpuAssignment(instance, **options).solve("network")
    assert solution.status == "optimal"
    assert solution.certificate is not None and solution.certificate.claim == "optimal"
    assert verify(solution.to_dict(), instance).ok
    placement = solution.placement
    counts = tuple(sorted(placement.running_by_job.tolist()))
    return counts, placement.exact_transfer_s + placement.lost_work_s, len(placement.preempted)


@pytest.mark.parametrize("network", ["compact", "paper"])
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=0)
def test_exhaustive_search_finds_nothing_better(network: str, seed: int) -> None:
    instance, price = random_round(seed), (0.0, 0.01, 2.5)[seed % 3]
    answer = found(instance, network=network, stop_price=price)
    assert answer == best_by_hand(instance, Fraction(str(price)))


@pytest.mark.slow
@settings(max_examples=4000, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_exhaustive_search_finds_nothing_better_in_thousands(seed: int) -> None:
    instance = random_round(seed)
    assert found(instance) == best_by_hand(instance)


def unequal() -> GpuInstance:
    """GPUs of 16, 16, 8, 8 GB; A runs two tasks of 8 GB on both large ones, B waits for 16 GB."""
    memory = [16.0, 16.0, 8.0, 8.0]
    held = [{"name": f"a{i}", "memory_gb": 8.0, "shards": [], "running": {"gpu": f"g{i}", "elapsed_s": 9.0 - i}}
            for i in range(2)]  # fmt: skip
    waits = [{"name": f"b{i}", "memory_gb": 16.0, "shards": []} for i in range(2)]
    gpus = [{"name": f"g{i}", "memory_gb": m} for i, m in enumerate(memory)]
    speeds = {"disk_mb_per_s": 200.0, "rack_mb_per_s": 100.0, "between_racks_mb_per_s": 50.0}
    jobs = [{"name": "A", "tasks": held}, {"name": "B", "tasks": waits}]
    return GpuInstance.model_validate({"nodes": [{"name": "n", "rack": "r", "gpus": gpus}], "jobs": jobs, **speeds})


def test_a_large_gpu_that_a_small_task_holds_is_given_up() -> None:
    solution = GpuAssignment(unequal()).solve("network")
    assert solution.placement.running_by_job.tolist() == [1, 1]
    assert solution.preempted == ("a1",)


def test_a_job_above_its_share_starts_nothing() -> None:
    """The round after this one starts it: the job is within its share then."""
    instance = unequal()
    waits = {"name": "a2", "memory_gb": 8.0, "shards": []}
    document = instance.model_dump()
    document["jobs"][0]["tasks"] = [*document["jobs"][0]["tasks"], waits]
    solution = GpuAssignment(GpuInstance.model_validate(document)).solve("network")
    assert solution.placement.running_by_job.tolist() == [1, 1]
    assert "starts nothing" in solution.reasons()[2]


def test_a_search_that_is_cut_short_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_ARCS", 0)
    for seed in range(200):
        solution = GpuAssignment(random_round(seed)).solve("network")
        if solution.status == "feasible":
            claim = "feasible" if solution.bound is None else "bounded"
            assert solution.certificate is not None and solution.certificate.claim == claim
            return
    raise AssertionError("no round needed a search")
