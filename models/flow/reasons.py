"""Why a task waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from flowlex.instances.exact import rational
from flowlex.instances.flow import FlowInstance
from flowlex.instances.flow_rules import RACK, domain_tags, members_of
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.goals.base import ClusterView, TaskView, task_views
from flowlex.models.flow.rule_reasons import RuleReasons
from flowlex.models.flow.task_rules import TaskRules

__all__ = ["CHANGED", "NO_ROOM", "SHARE_USED", "TOO_LARGE", "WORTH_MORE", "waiting_reasons"]

CHANGED = "no slot that the changed model leaves it is worth more to it than to others, or than waiting"
TOO_LARGE = "no machine that it may use has as much of everything it asks for"
NO_ROOM = "no machine that it may use has as much left of everything it asks for"
SHARE_USED = "the share of its job is used up"
WORTH_MORE = "no slot it could take is worth more to it than to the tasks that hold them, or than waiting"


def waiting_reasons(
    instance: FlowInstance,
    rules: Rules,
    machine_of: Mapping[str, str],
    shares: Mapping[str, tuple[int, int]],
    task_rules: TaskRules,
) -> dict[str, str]:
    """Reason by waiting task."""
    if len(machine_of) == sum(len(job.tasks) for job in instance.jobs):
        return {}
    cluster = ClusterView.of(instance)
    views = {view.task.name: view for view in task_views(instance)}
    tied = RuleReasons(task_rules, rules, cluster, views, machine_of, shares)
    running = Counter(view.job for view in views.values() if view.task.name in machine_of)
    apart: dict[str, set[str]] = {}
    for view in views.values():
        if view.apart and view.task.name in machine_of:
            apart.setdefault(view.apart, set()).add(machine_of[view.task.name])
    reasons = _places_gone(instance)
    for view in views.values():
        if view.task.name in machine_of:
            continue
        unmet = rules.unmet(view, cluster, apart.get(view.apart, ()))
        full = rules.shares is not None and running[view.job] >= shares[view.job][1]
        own = tied.reason(view.task.name)
        gone = reasons.get(view.task.name)
        reasons[view.task.name] = gone or own or unmet or (SHARE_USED if full else WORTH_MORE)
    found = {task: why for task, why in reasons.items() if task not in machine_of}
    return _with_capacities(instance, rules, cluster, views, machine_of, found) if instance.resources else found


def _places_gone(instance: FlowInstance) -> dict[str, str]:
    """By task, the rule whose rack or label no machine has."""
    tasks_of = {job.name: [task.name for task in job.tasks] for job in instance.jobs}
    found: dict[str, str] = {}
    for rule in (*instance.gangs, *instance.spreads, *instance.affinities):
        if rule.key not in (None, RACK) and not domain_tags(instance.machines, str(rule.key)):
            why = f"{rule.says} needs a machine with a label '{rule.key}=...', and none has it now"
            found |= dict.fromkeys(members_of(rule, tasks_of), why)
    return found


def _with_capacities(
    instance: FlowInstance,
    rules: Rules,
    cluster: ClusterView,
    views: Mapping[str, TaskView],
    machine_of: Mapping[str, str],
    reasons: dict[str, str],
) -> dict[str, str]:
    """The reasons, where a lack of capacity is one."""
    free = {(m.name, r): rational(m.capacity.get(r, 0)) for m in instance.machines for r in instance.resources}
    there = dict(free)
    asked = {
        view.task.name: {r: rational(view.task.demands.get(r, 0)) for r in instance.resources}
        for view in views.values()
    }
    for task, machine in machine_of.items():
        for r, amount in asked[task].items():
            free[machine, r] -= amount
    for task, why in reasons.items():
        if why != WORTH_MORE:
            continue
        may = rules.everywhere(views[task], cluster)
        fits, left = (
            any(all(amount <= has[m, r] for r, amount in asked[task].items()) for m in may) for has in (there, free)
        )
        reasons[task] = TOO_LARGE if not fits else NO_ROOM if not left else why
    return reasons
