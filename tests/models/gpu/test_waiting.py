"""Priced waiting: exhaustive search, and the paper's statements about a1, a2 and a3."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.instances import generate
from flowlex.instances.gpu import GpuInstance
from flowlex.models import ModelError
from flowlex.models.gpu.model import GpuAssignment, Penalties, Policy
from flowlex.validation.certificates import verify
from tests.models.gpu.cases import cluster, fairness, job, random_round, task, ways

WEIGHTS = [0.0, 0.3, 0.5, 1.0, 50.0]


def priced(instance: Any, weight: float = 1.0, **options: Any) -> Any:
    """Return the proven answer if waiting costs ``weight`` times the most expensive transfer."""
    penalties = options.pop("penalties", Penalties(waiting=weight))
    solution = GpuAssignment(instance, waiting="priced", penalties=penalties, **options).solve("network")
    assert solution.status == "optimal"
    assert solution.certificate is not None and solution.certificate.claim == "optimal"
    return solution


def best_by_hand(instance: GpuInstance, policy: str, weight: float) -> tuple[Fraction, int, int]:
    """Return least transfer plus waiting, then stops, then waiting, if no job has more tasks than in some fair answer.

    Fair answers are those of a round in which all tasks that may stop are open, in any order.
    """
    stop = policy == "FSP"
    free = list(ways(instance, in_order=False, stop=stop))
    fairest = min(map(fairness, free))
    fair = {way[0] for way in free if fairness(way) == fairest}
    sizes = [sum(int(shard.size_mb) for shard in task.shards) for job in instance.jobs for task in job.tasks]
    alpha = Fraction(str(weight)) * Fraction(max(sizes), 50)
    tasks = len(sizes)
    return min(
        (transfer + alpha * (tasks - sum(count)), stops, waiting)
        for count, transfer, stops, waiting in ways(instance, stop=stop)
        if any(all(n <= m for n, m in zip(count, most, strict=True)) for most in fair)
    )


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    policy=st.sampled_from(["FSP", "FS"]),
    network=st.sampled_from(["compact", "paper"]),
    weight=st.sampled_from(WEIGHTS),
)
def test_exhaustive_search_finds_nothing_better(seed: int, policy: str, network: str, weight: float) -> None:
    instance = random_round(seed)
    solution = priced(instance, weight, policy=policy, network=network)
    place = solution.placement
    value = place.exact_transfer_s + (len(place.waiting) + len(place.preempted)) * solution.placement.costs.waiting_s
    assert (value, len(place.preempted), len(place.waiting)) == best_by_hand(instance, policy, weight)
    assert verify(solution.to_dict(), instance).ok


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**31))
def test_what_a3_does(seed: int) -> None:
    """A higher price of waiting never reduces running tasks or transfer; with ``least`` it changes nothing."""
    instance = generate("gpu-random", seed=seed)
    answers = [priced(instance, weight).placement for weight in WEIGHTS[1:]]
    running = [int(place.running_by_job.sum()) for place in answers]
    transfer = [place.exact_transfer_s for place in answers]
    assert running == sorted(running)
    assert transfer == sorted(transfer)
    fixed = [
        GpuAssignment(instance, penalties=Penalties(waiting=weight)).solve("network").placement.exact_transfer_s
        for weight in WEIGHTS
    ]
    assert len(set(fixed)) == 1


def two_nodes(*, idle: str) -> GpuInstance:
    """One free GPU, on A or on B (in another rack); a task with data on A."""
    nodes = [(n, f"r{n}", [8.0] * (n == idle)) for n in "AB"]
    return cluster([job("j", task("t", (100.0, "A")))], nodes)


def test_a_task_whose_transfer_is_too_dear_waits_until_a_suitable_gpu_appears() -> None:
    """The paper: FSP delays tasks with expensive transfers until a suitable resource appears."""
    solution = priced(two_nodes(idle="B"), 0.5)
    assert solution.waiting == ("t",)
    assert solution.to_frame().loc["t", "reason"] == "to wait costs 1 s, less than to run it"
    assert solution.objective == 1.0
    assert priced(two_nodes(idle="A"), 0.5).waiting == ()
    assert GpuAssignment(two_nodes(idle="B"), penalties=Penalties(waiting=0.5)).solve("network").waiting == ()


def test_large_a1_and_a2_favour_locality() -> None:
    """The paper: the larger a1 and a2, the more data are read locally."""
    local = []
    for weight in (1.0, 4.0, 16.0):
        answers = [
            priced(generate("gpu-testbed", seed=seed, replicas=1), penalties=Penalties(weight, weight, 1 / weight))
            for seed in range(4)
        ]
        read = [answer.placement.metrics() for answer in answers]
        local.append(sum(m["node_gb"] for m in read) / sum(m["node_gb"] + m["rack_gb"] + m["between_gb"] for m in read))
    assert local == sorted(local)
    assert local[-1] > local[0]


def test_what_has_no_price_refuses_one() -> None:
    with pytest.raises(ModelError, match="policy FSU runs as many tasks as can; waiting='priced' goes with FSP or FS"):
        GpuAssignment(generate("gpu-figure1"), policy=Policy.FSU, waiting="priced")
