"""What jobs claim of a cluster under fair shares, and the places that rules of placement leave them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.dominant_shares import dominant_bounds
from flowlex.models.flow.goals.base import ClusterView, Spot, TaskView
from flowlex.models.flow.sharing import Claims, Places

__all__ = ["NO_LIMIT", "Rule", "job_bounds", "places_of", "rule_of"]

#: Tasks of a job without a limit.
NO_LIMIT = 2**40

#: For each requirement, the spots of which one must hold the machine.
Rule = frozenset[frozenset[Spot]]
_ANYWHERE: Rule = frozenset()


def rule_of(rules: Rules, task: TaskView, cluster: ClusterView) -> Rule:
    """Where a task may run at all."""
    placing, left = rules.placing(task), rules.allowed(task, cluster)
    if not placing and left is None:
        return _ANYWHERE
    found = frozenset(frozenset(either) for goal in placing for either in goal.required(task))
    return found if left is None else found | {frozenset((left,))}


def places_of(cluster: ClusterView, used: Iterable[Hashable]) -> Places:
    """Slots by the rules that their machines meet."""
    met: dict[str, list[Hashable]] = {name: [] for name, machine in cluster.machines.items() if machine.slots}
    used = frozenset(used)
    for rule in used:
        inside = set(met)
        assert isinstance(rule, frozenset)
        for either in rule:
            inside &= {name for spot in either for name in cluster.members(spot)}
        for name in inside:
            met[name].append(rule)
    slots: Counter[frozenset[Hashable]] = Counter()
    for name, kept in met.items():
        slots[frozenset(kept)] += cluster.machines[name].slots
    return Places(slots, used)


def job_bounds(instance: FlowInstance, rules: Rules, views: Iterable[TaskView], cluster: ClusterView) -> Integers:
    """(J, 2) tasks of each job that should run at least and may run at most."""
    jobs, at = instance.jobs, {job.name: number for number, job in enumerate(instance.jobs)}
    count = np.array([len(job.tasks) for job in jobs], np.int64)
    if rules.shares is None:
        return np.stack([np.zeros_like(count), count], axis=1)
    if rules.shares.kind == "dominant":
        return dominant_bounds(instance)
    tables: list[Counter[Hashable]] = [Counter() for _ in jobs]
    for view in views:
        tables[at[view.job]][rule_of(rules, view, cluster)] += 1
    queue = {queue.name: number for number, queue in enumerate(instance.queues)}
    most = [NO_LIMIT if job.max_tasks is None else job.max_tasks for job in jobs]
    least, weight = (np.array([getattr(job, name) for job in jobs], np.int64) for name in ("min_tasks", "weight"))
    inside = np.array([-1 if job.queue is None else queue[job.queue] for job in jobs], np.int64)
    claims = Claims(count, least, np.array(most, np.int64), weight, inside, tables)
    places = places_of(cluster, {rule for table in tables for rule in table})
    return np.stack(rules.shares.bounds(claims, instance.queues, places), axis=1)
