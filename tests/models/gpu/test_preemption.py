"""FSP against exhaustive search: mixed memory, running tasks, ties in elapsed time."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flowlex.instances.gpu import GpuInstance
from flowlex.models.gpu import search
from flowlex.models.gpu.model import GpuAssignment
from flowlex.validation.certificates import verify


def random_round(seed: int) -> GpuInstance:
    """Two to five GPUs of 8 or 16 GB on two nodes in one or two racks; up to three jobs, half of the tasks running."""
    rng = np.random.default_rng(seed)
    memory = rng.choice([8.0, 16.0], size=int(rng.integers(2, 6))).tolist()
    host = [int(x) for x in rng.integers(0, 2, len(memory))]
    racks = ["r0", "r1"] if rng.integers(2) else ["r0", "r0"]
    nodes = [
        {
            "name": f"n{k}",
            "rack": racks[k],
            "gpus": [{"name": f"g{i}", "memory_gb": m} for i, m in enumerate(memory) if host[i] == k],
        }
        for k in range(2)
    ]
    free, jobs = rng.permutation(len(memory)).tolist(), []
    for j in range(int(rng.integers(1, 4))):
        tasks = []
        for t in range(int(rng.integers(1, 4))):
            need, running = float(rng.choice([6.0, 12.0])), None
            fitting = [g for g in free if memory[g] >= need]
            if fitting and rng.random() < 0.6:
                free.remove(fitting[0])
                running = {"gpu": f"g{fitting[0]}", "elapsed_s": float(rng.integers(1, 4))}
            need = min(need, max(memory))
            shards = [{"size_mb": float(rng.integers(1, 4)) * 100, "replicas": [f"n{int(rng.integers(2))}"]}]
            tasks.append({"name": f"t{j}.{t}", "memory_gb": need, "shards": shards, "running": running})
        jobs.append({"name": f"j{j}", "tasks": tasks})
    speeds = {"disk_mb_per_s": 200.0, "rack_mb_per_s": 100.0, "between_racks_mb_per_s": 50.0}
    return GpuInstance.model_validate({"nodes": nodes, "jobs": jobs, **speeds})


def best_by_hand(instance: GpuInstance) -> tuple[tuple[int, ...], Fraction, int]:
    """Sorted counts (leximin), transfer, stops: every way to keep longest-running tasks and to start the others."""
    gpus = [(gpu.name, gpu.memory_gb, node) for node in instance.nodes for gpu in node.gpus]
    rack = {node.name: node.rack for node in instance.nodes}

    def seconds(task: Any, node: Any) -> Fraction:
        total = Fraction(0)
        for shard in task.shards:
            near = node.rack in {rack[name] for name in shard.replicas}
            speed = 200 if node.name in shard.replicas else 100 if near else 50
            total += Fraction(int(shard.size_mb), speed)
        return total

    ways = []
    for job in instance.jobs:
        running = [task for task in job.tasks if task.running is not None]
        ways.append(
            [
                set(kept)
                for n in range(len(running) + 1)
                for kept in itertools.combinations([task.name for task in running], n)
                if all(
                    a.running.elapsed_s >= b.running.elapsed_s
                    for a in running
                    for b in running
                    if a.name in kept and b.name not in kept
                )
            ]
        )
    waiting = [(j, task) for j, job in enumerate(instance.jobs) for task in job.tasks if task.running is None]
    best: Any = None
    for chosen in itertools.product(*ways):
        kept = set().union(*chosen)
        held = {t.running.gpu for job in instance.jobs for t in job.tasks if t.name in kept}
        free = [gpu for gpu in gpus if gpu[0] not in held]
        stops = sum(len(max(way, key=len)) for way in ways) - len(kept)
        base = [len(part) for part in chosen]

        def place(i: int, left: list[Any], count: list[int], cost: Fraction, stops: int = stops) -> None:
            nonlocal best
            if i == len(waiting):
                key = ([-n for n in sorted(count)], cost, stops)
                best = key if best is None or key < best else best
                return
            place(i + 1, left, count, cost, stops)
            j, task = waiting[i]
            for gpu in left:
                if task.memory_gb <= gpu[1]:
                    more = [n + (k == j) for k, n in enumerate(count)]
                    place(i + 1, [g for g in left if g is not gpu], more, cost + seconds(task, gpu[2]), stops)

        place(0, free, base, Fraction(0))
    return tuple(-n for n in best[0]), best[1], best[2]


def found(instance: GpuInstance, **options: Any) -> tuple[tuple[int, ...], Fraction, int]:
    solution = GpuAssignment(instance, **options).solve("network")
    assert solution.status == "optimal"
    assert solution.certificate is not None and solution.certificate.claim == "optimal"
    assert verify(solution.to_dict(), instance).ok
    placement = solution.placement
    counts = tuple(sorted(placement.running_by_job.tolist()))
    return counts, placement.exact_transfer_s, len(placement.preempted)


@pytest.mark.parametrize("network", ["compact", "paper"])
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=0)
def test_exhaustive_search_finds_nothing_better(network: str, seed: int) -> None:
    instance = random_round(seed)
    assert found(instance, network=network) == best_by_hand(instance)


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


def test_a_waiting_task_of_a_job_that_stops_one_takes_an_idle_gpu() -> None:
    instance = unequal()
    waits = {"name": "a2", "memory_gb": 8.0, "shards": []}
    document = instance.model_dump()
    document["jobs"][0]["tasks"] = [*document["jobs"][0]["tasks"], waits]
    solution = GpuAssignment(GpuInstance.model_validate(document)).solve("network")
    assert solution.placement.running_by_job.tolist() == [2, 1]


def test_a_search_that_is_cut_short_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_ARCS", 0)
    for seed in range(200):
        solution = GpuAssignment(random_round(seed)).solve("network")
        if solution.status == "feasible":
            assert solution.bound is None
            assert solution.certificate is not None and solution.certificate.claim == "feasible"
            return
    raise AssertionError("no round needed a search")
