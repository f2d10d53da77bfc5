"""GPU placements recomputed from the instance, task by task, without the model's arrays or its network."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction

from flowlex.instances.gpu import GpuInstance, Task
from flowlex.validation.certificates.certificate import Check

__all__ = ["check_placements"]


def check_placements(
    instance: GpuInstance,
    gpu_of_task: Sequence[int],
    *,
    policy: str,
    weights: tuple[float, float],
    transfer_s: float,
    rounded_s: float,
) -> tuple[Check, ...]:
    """Check who runs where against the instance.

    Parameters
    ----------
    gpu_of_task
        (T,) GPU number of each task in the order of the instance, -1 when it does not run.
    policy
        ``FSP``, ``FS`` or ``FSU``.
    weights
        Penalties of traffic within and between racks.
    transfer_s
        Weighted transfer seconds that the model states.
    rounded_s
        Error that rounding costs may have caused.
    """
    gpus = [(gpu, node) for node in instance.nodes for gpu in node.gpus]
    tasks = [(task, job.name) for job in instance.jobs for task in job.tasks]
    number = {gpu.name: index for index, (gpu, _) in enumerate(gpus)}
    used = Counter(gpu for gpu in gpu_of_task if gpu >= 0)
    double = [gpus[gpu][0].name for gpu, times in used.items() if times > 1]
    small = [
        task.name
        for (task, _), gpu in zip(tasks, gpu_of_task, strict=True)
        if gpu >= 0 and task.memory_gb > gpus[gpu][0].memory_gb
    ]
    moved: list[tuple[Task, str]] = []
    stopped: list[tuple[Task, str]] = []
    for (task, job), gpu in zip(tasks, gpu_of_task, strict=True):
        if task.running is not None and gpu != number[task.running.gpu]:
            (moved if gpu >= 0 else stopped).append((task, job))
    return (
        _none("every GPU runs at most one task", double, "runs two tasks"),
        _none("every task fits the memory of its GPU", small, "does not fit"),
        _none("no running task is moved", [task.name for task, _ in moved], "moved"),
        *_preemption(tasks, gpu_of_task, policy, stopped),
        *_fairness(instance, gpu_of_task, policy, {job for _, job in stopped}),
        _cost(instance, gpu_of_task, weights, transfer_s, rounded_s),
    )


def _none(name: str, offenders: Sequence[str], what: str) -> Check:
    detail = f"{offenders[0]} {what}" if offenders else ""
    return Check(name, not offenders, len(offenders), detail)


def _preemption(
    tasks: Sequence[tuple[Task, str]], gpu_of_task: Sequence[int], policy: str, stopped: Sequence[tuple[Task, str]]
) -> Iterator[Check]:
    if policy != "FSP":
        yield _none("no running task is stopped", [task.name for task, _ in stopped], "was stopped")
        return
    longest_stopped: dict[str, float] = {}
    for task, job in stopped:
        assert task.running is not None
        longest_stopped[job] = max(longest_stopped.get(job, 0.0), task.running.elapsed_s)
    kept_shorter, started = [], []
    for (task, job), gpu in zip(tasks, gpu_of_task, strict=True):
        if job in longest_stopped and gpu >= 0:
            if task.running is None:
                started.append(task.name)
            elif task.running.elapsed_s < longest_stopped[job]:
                kept_shorter.append(task.name)
    yield _none("a job loses its shortest-running tasks", kept_shorter, "ran shorter than one that was stopped")
    yield _none("a job that loses tasks starts none", started, "was started")


def _fairness(instance: GpuInstance, gpu_of_task: Sequence[int], policy: str, losing: set[str]) -> Iterator[Check]:
    """No job that starts a task has two more GPUs than a job with a waiting task that would fit there.

    Jobs that lose tasks start none in the same round, so they cannot be the poorer ones.
    """
    if policy == "FSU":
        return
    memory = [gpu.memory_gb for node in instance.nodes for gpu in node.gpus]
    held: dict[str, int] = defaultdict(int)
    least_waiting: dict[str, float] = {}
    largest_started: dict[str, float] = {}
    position = iter(gpu_of_task)
    for job in instance.jobs:
        for task in job.tasks:
            gpu = next(position)
            if gpu >= 0:
                held[job.name] += 1
                if task.running is None:
                    largest_started[job.name] = max(largest_started.get(job.name, 0.0), memory[gpu])
            elif task.running is None and job.name not in losing:
                least_waiting[job.name] = min(least_waiting.get(job.name, task.memory_gb), task.memory_gb)
    # Sorted by what they hold, only the poorest waiting job of each memory need matters.
    envious = []
    for rich, room in largest_started.items():
        poorer = [held[job] for job, need in least_waiting.items() if need <= room and job != rich]
        if poorer and held[rich] >= min(poorer) + 2:
            envious.append(rich)
    yield _none(
        "no job starts tasks at the expense of a poorer one", envious, "has two GPUs more than a job that waits"
    )


def _cost(
    instance: GpuInstance,
    gpu_of_task: Sequence[int],
    weights: tuple[float, float],
    stated: float,
    rounded_s: float,
) -> Check:
    """Add up every shard's size at the level it is read from; exact until the last division."""
    rack_of = {node.name: node.rack for node in instance.nodes}
    host = [node for node in instance.nodes for _ in node.gpus]
    sizes: tuple[list[float], list[float], list[float]] = ([], [], [])
    tasks = (task for job in instance.jobs for task in job.tasks)
    for task, gpu in zip(tasks, gpu_of_task, strict=True):
        if gpu < 0 or task.running is not None:
            continue
        node = host[gpu]
        for shard in task.shards:
            if node.name in shard.replicas:
                level = 0
            elif any(rack_of[holder] == node.rack for holder in shard.replicas):
                level = 1
            else:
                level = 2
            sizes[level].append(shard.size_mb)
    node_s, rack_s, between_s = (
        sum((Fraction(Decimal(repr(x))) * n for x, n in Counter(s).items()), Fraction(0)) for s in sizes
    )
    disk, rack, between = (
        Fraction(Decimal(repr(x)))
        for x in (instance.disk_mb_per_s, instance.rack_mb_per_s, instance.between_racks_mb_per_s)
    )
    within, across = (Fraction(Decimal(repr(w))) for w in weights)
    total = float(node_s / disk + within * rack_s / rack + across * between_s / between)
    off = abs(total - stated)
    # The stated number is an exact rational in floating point: a few units in the last place may differ.
    ok = off <= rounded_s + 1e-12 * max(1.0, abs(total))
    return Check(
        "transfer seconds recomputed from shards and replicas", ok, off, f"{total:.12g} s (stated {stated:.12g})"
    )
