"""Random rounds of GPU assignment and all their feasible answers, shared by the tests of this package."""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.instances.gpu import GpuInstance
from tests.models.gpu.oracle import may_lose, may_start

#: Tasks by job, transfer (plus priced lost work), stops, waiting tasks that stay waiting.
Way = tuple[tuple[int, ...], Fraction, int, int]


def cluster(jobs: list[dict[str, Any]], nodes: list[tuple[str, str, list[float]]], **speeds: float) -> GpuInstance:
    """Return a small instance: nodes as (name, rack, GPU memories); default speeds 200, 100, 50 MB/s."""
    return GpuInstance.model_validate(
        {
            "disk_mb_per_s": 200.0,
            "rack_mb_per_s": 100.0,
            "between_racks_mb_per_s": 50.0,
            "nodes": [
                {"name": n, "rack": r, "gpus": [{"name": f"{n}.{i}", "memory_gb": m} for i, m in enumerate(memory)]}
                for n, r, memory in nodes
            ],
            "jobs": jobs,
            **speeds,
        }
    )


def task(
    name: str, *shards: tuple[float, str], memory_gb: float = 8.0, running: tuple[str, float] | None = None
) -> Any:
    """A task whose shards are (MB, space-separated nodes)."""
    return {
        "name": name,
        "memory_gb": memory_gb,
        "shards": [{"size_mb": mb, "replicas": nodes.split()} for mb, nodes in shards],
        "running": None if running is None else {"gpu": running[0], "elapsed_s": running[1]},
    }


def job(name: str, *tasks: Any) -> dict[str, Any]:
    return {"name": name, "tasks": list(tasks)}


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
                running = f"g{fitting[0]}", float(rng.integers(1, 4))
            shard = float(rng.integers(1, 4)) * 100, f"n{int(rng.integers(2))}"
            tasks.append(task(f"t{j}.{t}", shard, memory_gb=min(need, max(memory)), running=running))
        jobs.append(job(f"j{j}", *tasks))
    speeds = {"disk_mb_per_s": 200.0, "rack_mb_per_s": 100.0, "between_racks_mb_per_s": 50.0}
    return GpuInstance.model_validate({"nodes": nodes, "jobs": jobs, **speeds})


def ways(
    instance: GpuInstance, *, in_order: bool = True, stop: bool = True, price: Fraction = Fraction(0)
) -> Iterator[Way]:
    """Yield every feasible answer (which tasks stop and start); a second of lost work costs ``price`` s of transfer.

    With ``in_order=False`` any subset of the tasks that stop in some feasible answer may stop.
    """
    gpus = [(gpu.name, gpu.memory_gb, node) for node in instance.nodes for gpu in node.gpus]
    rack = {node.name: node.rack for node in instance.nodes}

    def seconds(task: Any, node: Any) -> Fraction:
        total = Fraction(0)
        for shard in task.shards:
            near = node.rack in {rack[name] for name in shard.replicas}
            speed = 200 if node.name in shard.replicas else 100 if near else 50
            total += Fraction(int(shard.size_mb), speed)
        return total

    choices = []
    may = may_lose(instance) if stop else [0] * len(instance.jobs)
    starts = may_start(instance) if stop else [True] * len(instance.jobs)
    for job, most in zip(instance.jobs, may, strict=True):
        running = sorted((t for t in job.tasks if t.running is not None), key=lambda t: t.running.elapsed_s)
        last = running[most - 1].running.elapsed_s if most else -1.0
        subsets = [
            set(kept)
            for n in range(len(running) + 1)
            for kept in itertools.combinations([task.name for task in running], n)
            if (all(task.running.elapsed_s <= last for task in running if task.name not in kept) and not in_order)
            or (
                len(running) - n <= most
                and all(
                    a.running.elapsed_s >= b.running.elapsed_s
                    for a in running
                    for b in running
                    if a.name in kept and b.name not in kept
                )
            )
        ]
        choices.append(subsets)
    tasks = [(j, task) for j, job in enumerate(instance.jobs) for task in job.tasks]
    waiting = [(j, task) for j, task in tasks if task.running is None]

    def place(i: int, left: list[Any], count: list[int], cost: Fraction) -> Iterator[tuple[tuple[int, ...], Fraction]]:
        if i == len(waiting):
            yield tuple(count), cost
            return
        yield from place(i + 1, left, count, cost)
        j, task = waiting[i]
        for gpu in left if starts[j] else ():
            if task.memory_gb <= gpu[1]:
                more = [n + (k == j) for k, n in enumerate(count)]
                yield from place(i + 1, [g for g in left if g is not gpu], more, cost + seconds(task, gpu[2]))

    for chosen in itertools.product(*choices):
        kept = set().union(*chosen)
        held = {t.running.gpu for _, t in tasks if t.name in kept and t.running is not None}
        stops = len(tasks) - len(waiting) - len(kept)
        base = [len(part) for part in chosen]
        stopped = [t.running.elapsed_s for _, t in tasks if t.running is not None and t.name not in kept]
        lost = price * sum(map(Fraction, stopped))
        for count, cost in place(0, [gpu for gpu in gpus if gpu[0] not in held], base, lost):
            yield count, cost, stops, len(waiting) - (sum(count) - len(kept))


def fairness(way: Way) -> list[int]:
    """Return the key that fair answers minimise: sorted numbers of tasks, negated."""
    return [-n for n in sorted(way[0])]
