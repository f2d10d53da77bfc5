"""Which running tasks may only stay or stop, and how many of a job may stop (`FlowJob.preemptions_per_hour`).

A running task of a job with a limit is *held*: it stays, or stops through a gate of its job, an arc whose capacity is
what is left of the limit. So the limit is one more arc per job, and the whole is still a network. A machine that lost
slots may run more such tasks than it has slots; the others are free to go, as if it had failed under them. So are the
tasks of a gang, affinity or spread that would be broken if just the held tasks ran, all where they are: this schedule
is always possible. A share makes tasks stop as far as the limit lets them, but none of a gang, which stops only whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from flowlex.instances.flow import FlowJob, Machine
from flowlex.models.flow.goals.goal_interface import TaskView
from flowlex.models.flow.task_rules import TaskRules

__all__ = ["HOUR_S", "hold", "kept_tasks", "left"]

#: Seconds in which preemptions are counted.
HOUR_S = 3600.0


def left(job: FlowJob, ages_s: Iterable[float]) -> int:
    """Tasks of a job with a limit that may still stop, after preemptions of these ages."""
    assert job.preemptions_per_hour is not None
    return max(0, job.preemptions_per_hour - sum(age < HOUR_S for age in ages_s))


def kept_tasks(
    running: Mapping[str, Iterable[TaskView]],
    machines: Mapping[str, Machine],
    jobs: Callable[[TaskView], FlowJob],
    may_stay: Callable[[TaskView], bool],
    task_rules: TaskRules,
) -> dict[str, TaskView]:
    """Of the tasks running on each machine, those that are held, by name."""
    kept: dict[str, TaskView] = {}
    for machine, tasks in running.items():
        inside = (t for t in tasks if t.limited and machine in task_rules.inside.get(t.task.name, (machine,)))
        limited = [task for task in inside if may_stay(task)]
        limited.sort(key=lambda t: (jobs(t).preemptions_per_hour != 0, t.priority, -t.elapsed_s, t.task.name))
        left_slots, rules = machines[machine].slots, set[str]()
        for task in limited:
            if left_slots and task.apart not in rules:
                kept[task.task.name], left_slots = task, left_slots - 1
                rules |= {task.apart} - {""}
    while broken := set(chain.from_iterable(task_rules.broken({name: str(t.machine) for name, t in kept.items()}))):
        kept = {name: task for name, task in kept.items() if name not in broken}
    return kept


def hold(
    views: Iterable[TaskView],
    jobs: Mapping[str, FlowJob],
    machines: Mapping[str, Machine],
    may_stay: Callable[[TaskView], bool],
    task_rules: TaskRules,
) -> dict[str, tuple[int, int]]:
    """Mark the tasks of an instance that are held; by job, how many may stop, and how many run beyond any share."""
    on: dict[str, list[TaskView]] = defaultdict(list)
    for view in views:
        if view.machine in machines and view.limited:
            on[str(view.machine)].append(view)
    held: dict[str, list[str]] = defaultdict(list)
    for name, view in kept_tasks(on, machines, lambda view: jobs[view.job], may_stay, task_rules).items():
        view.held = True
        held[view.job].append(name)
    found = {}
    for job, names in held.items():
        may = left(jobs[job], jobs[job].preempted_s)
        ganged = not task_rules.gang_tasks.isdisjoint(names)
        found[job] = may, len(names) - (0 if ganged else may)
    return found
