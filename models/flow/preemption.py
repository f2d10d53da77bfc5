"""Which running tasks may only stay or stop, and how many of a job may stop (`FlowJob.preemptions_per_hour`).

A running task of a job with a limit is *held*: it stays, or stops through a gate of its job, an arc whose capacity is
what is left of the limit. So the limit is one more arc per job, and the whole is still a network. A machine that lost
slots may run more such tasks than it has slots; the others are free to go, as if it had failed under them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from flowlex.instances.flow import FlowJob, Machine
from flowlex.models.flow.goals.goal_interface import TaskView

__all__ = ["HOUR_S", "hold", "kept_tasks", "left"]

#: Seconds in which preemptions are counted.
HOUR_S = 3600.0


def left(job: FlowJob, ages_s: Iterable[float]) -> int:
    """Tasks of a job with a limit that may still stop, after preemptions of these ages."""
    assert job.preemptions_per_hour is not None
    return max(0, job.preemptions_per_hour - sum(age < HOUR_S for age in ages_s))


def kept_tasks(
    slots: int, running: Iterable[TaskView], jobs: Callable[[TaskView], FlowJob], may_stay: Callable[[TaskView], bool]
) -> list[TaskView]:
    """Of the tasks on one machine, those that are held: first "never", then the more important, the longer running."""
    limited = [task for task in running if jobs(task).preemptions_per_hour is not None and may_stay(task)]
    limited.sort(key=lambda t: (jobs(t).preemptions_per_hour != 0, t.priority, -t.elapsed_s, t.task.name))
    kept: list[TaskView] = []
    rules: set[str] = set()
    for task in limited:
        if len(kept) < slots and task.apart not in rules:
            kept.append(task)
            rules |= {task.apart} - {""}
    return kept


def hold(
    views: Iterable[TaskView],
    jobs: Mapping[str, FlowJob],
    machines: Mapping[str, Machine],
    may_stay: Callable[[TaskView], bool],
) -> Counter[str]:
    """Mark the tasks of an instance that are held; returns how many by job."""
    on: dict[str, list[TaskView]] = defaultdict(list)
    for view in views:
        if view.machine in machines and jobs[view.job].preemptions_per_hour is not None:
            on[str(view.machine)].append(view)
    held: Counter[str] = Counter()
    for machine, running in on.items():
        for view in kept_tasks(machines[machine].slots, running, lambda view: jobs[view.job], may_stay):
            view.held = True
            held[view.job] += 1
    return held
