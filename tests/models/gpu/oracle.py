"""Fair shares and allowed stops of small rounds by counting: the oracle of the preemption tests."""

import math
from fractions import Fraction

from flowlex.instances.gpu import GpuInstance


def fair_levels(instance: GpuInstance, *, stop: bool) -> list[Fraction]:
    """Return max-min fair shares, filled in fractions of a task: the lowest job that can grow takes the next one."""
    parts = math.lcm(*range(1, len(instance.jobs) + 1))
    memory = {gpu.name: gpu.memory_gb for gpu in instance.gpus}
    held = {task.running.gpu for task in instance.tasks if task.running is not None} if not stop else set()
    free = [gb for name, gb in memory.items() if name not in held]
    asks, level = [], []
    for job in instance.jobs:
        needs = [task.memory_gb if task.running is None else memory[task.running.gpu] for task in job.tasks
                 if stop or task.running is None]  # fmt: skip
        asks.append([min(gb for gb in free if gb >= need) for need in needs if need <= max(free, default=0.0)])
        level.append(0 if stop else parts * (len(job.tasks) - len(needs)))
    taken = [0] * len(asks)

    def served() -> bool:
        return all(
            sum(max(0, n - parts * sum(need < gb for need in needs)) for n, needs in zip(taken, asks, strict=True))
            <= parts * sum(other >= gb for other in free)
            for gb in set(free)
        )

    growing = set(range(len(asks)))
    while growing:
        j = min(growing, key=lambda j: (level[j] + taken[j], j))
        taken[j] += 1
        if taken[j] > parts * len(asks[j]) or not served():
            taken[j] -= 1
            growing.remove(j)
    return [Fraction(base + n, parts) for base, n in zip(level, taken, strict=True)]


def may_lose(instance: GpuInstance) -> list[int]:
    """Return the number of running tasks that each job may lose."""
    running = [sum(task.running is not None for task in job.tasks) for job in instance.jobs]
    shares = fair_levels(instance, stop=True)
    return [max(0, n - max(math.floor(x), int(x > 0))) for n, x in zip(running, shares, strict=True)]


def may_start(instance: GpuInstance) -> list[bool]:
    """Return for each job whether it runs no more than its share."""
    running = [sum(task.running is not None for task in job.tasks) for job in instance.jobs]
    return [n <= math.floor(x) for n, x in zip(running, fair_levels(instance, stop=True), strict=True)]
