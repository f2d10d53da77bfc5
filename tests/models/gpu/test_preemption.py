"""FSP compared with exhaustive search: mixed memory, running tasks, ties in elapsed time."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flowlex.instances.gpu import GpuInstance
from flowlex.models.gpu.model import GpuAssignment
from flowlex.validation.certificates import verify
from tests.models.gpu.cases import cluster, fairness, job, random_round, task, ways


def best_by_hand(instance: GpuInstance, price: Fraction = Fraction(0)) -> tuple[tuple[int, ...], Fraction, int]:
    """Return (sorted counts for leximin, transfer plus lost work, stops)."""
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
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=0)
def test_exhaustive_search_finds_nothing_better(network: str, seed: int) -> None:
    instance, price = random_round(seed), (0.0, 0.01, 2.5)[seed % 3]
    answer = found(instance, network=network, stop_price=price)
    assert answer == best_by_hand(instance, Fraction(str(price)))


def test_a_job_above_its_share_starts_nothing() -> None:
    """A runs two tasks of 8 GB on both large GPUs, B waits for 16 GB; the round after this one starts a third of A."""
    held = [task(f"a{i}", running=(f"n.{i}", 9.0 - i)) for i in range(2)]
    waits = [task(f"b{i}", memory_gb=16.0) for i in range(2)]
    instance = cluster([job("A", *held, task("a2")), job("B", *waits)], [("n", "r", [16.0, 16.0, 8.0, 8.0])])
    solution = GpuAssignment(instance).solve("network")
    assert solution.placement.running_by_job.tolist() == [1, 1] and solution.preempted == ("a1",)
    assert "starts nothing" in solution.reasons()[2]
