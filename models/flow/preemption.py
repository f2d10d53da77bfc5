"""Preemption limits: which running tasks are held, and how many of a job may stop (`FlowJob.preemptions_per_hour`).

A running task of a job with a limit is *held*: it stays on its machine, or stops through the gate of its job, an arc
whose capacity is the remaining limit. So a limit takes one arc per job, and the model stays a network. If a machine
lost slots or capacity, it holds only tasks for which it has both; the others are free, as if the machine had failed.
Tasks of a gang, affinity or spread are released too if the held tasks alone would break the rule. So it is always
feasible to keep all held tasks. A share stops tasks only within the limit, and none of a gang, which stops as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain

from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import FlowInstance, FlowJob, Machine
from flowlex.models.flow.goal_interface import TaskView
from flowlex.models.flow.task_rules import TaskRules

#: Period in seconds over which preemptions are counted.
HOUR_S = 3600.0


def left(job: FlowJob, ages_s: Iterable[float]) -> int:
    """Return how many tasks of a job with a limit may still stop, after preemptions of these ages."""
    assert job.preemptions_per_hour is not None
    return max(0, job.preemptions_per_hour - sum(age < HOUR_S for age in ages_s))


def kept_tasks(
    running: Mapping[str, Iterable[TaskView]],
    machines: Mapping[str, Machine],
    jobs: Callable[[TaskView], FlowJob],
    may_stay: Callable[[TaskView], bool],
    task_rules: TaskRules,
    resources: Collection[str],
) -> dict[str, TaskView]:
    """Return the held tasks by name, among the ``running`` tasks of each machine; ``resources``: those with a limit."""
    kept: dict[str, TaskView] = {}
    for machine, tasks in running.items():
        inside = (t for t in tasks if t.limited and machine in task_rules.inside.get(t.task.name, (machine,)))
        limited = [task for task in inside if may_stay(task)]
        limited.sort(key=lambda t: (jobs(t).preemptions_per_hour != 0, t.priority, -t.elapsed_s, t.task.name))
        left_slots, rules = machines[machine].slots, set[str]()
        free = {name: rational(machines[machine].capacity.get(name, 0)) for name in resources}
        for task in limited:
            asked = {name: rational(amount) for name, amount in task.task.demands.items() if name in free}
            if left_slots and task.apart not in rules and all(free[name] >= asked[name] for name in asked):
                kept[task.task.name], left_slots = task, left_slots - 1
                rules |= {task.apart} - {""}
                free |= {name: free[name] - amount for name, amount in asked.items()}
    while broken := set(chain.from_iterable(task_rules.broken({name: str(t.machine) for name, t in kept.items()}))):
        kept = {name: task for name, task in kept.items() if name not in broken}
    return kept


def hold(
    instance: FlowInstance, views: Iterable[TaskView], may_stay: Callable[[TaskView], bool], task_rules: TaskRules
) -> dict[str, tuple[int, int]]:
    """Mark the held tasks of an instance; return by job how many may stop, and how many keep running in any case."""
    jobs = {job.name: job for job in instance.jobs}
    machines = {machine.name: machine for machine in instance.machines}
    on: dict[str, list[TaskView]] = defaultdict(list)
    for view in views:
        if view.machine in machines and view.limited:
            on[str(view.machine)].append(view)
    held: dict[str, list[str]] = defaultdict(list)
    kept = kept_tasks(on, machines, lambda view: jobs[view.job], may_stay, task_rules, instance.resources)
    for name, view in kept.items():
        view.held = True
        held[view.job].append(name)
    found = {}
    for job, names in held.items():
        may = left(jobs[job], jobs[job].preempted_s)
        ganged = not task_rules.gang_tasks.isdisjoint(names)
        found[job] = may, len(names) - (0 if ganged else may)
    return found
