"""Claims of jobs under fair shares, and the slots that placement rules allow them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.dominant_shares import dominant_bounds
from flowlex.models.flow.goal_interface import ClusterView, Spot, TaskView
from flowlex.models.flow.queue_shares import Claims, Places

#: Tasks of a job without a limit.
NO_LIMIT = 2**40
#: A conjunction of requirements: the machine must lie in at least one spot of each.
Rule = frozenset[frozenset[Spot]]
_ANYWHERE: Rule = frozenset()


def rule_of(rules: Rules, task: TaskView, cluster: ClusterView) -> Rule:
    """Return the placement rule of a task: where it may run."""
    placing, left = rules.placing(task), rules.allowed(task, cluster)
    if not placing and left is None:
        return _ANYWHERE
    found = frozenset(frozenset(either) for goal in placing for either in goal.required(task))
    return found if left is None else found | {frozenset((left,))}


def places_of(cluster: ClusterView, used: Iterable[Hashable]) -> Places:
    """Count slots by the set of rules that their machines satisfy."""
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
    """(J, 2) least number of tasks of each job that should run, and most that may run."""
    jobs = instance.jobs
    count = np.array([len(job.tasks) for job in jobs], np.int64)
    if rules.shares is None:
        return np.stack([np.zeros_like(count), count], axis=1)
    if rules.shares.kind == "dominant":
        return dominant_bounds(instance)
    mine: dict[str, Counter[Hashable]] = {job.name: Counter() for job in jobs}
    for view in views:
        mine[view.job][rule_of(rules, view, cluster)] += 1
    queue = {each.name: k for k, each in enumerate(instance.queues)} | {None: -1}
    said = [
        (job.min_tasks, NO_LIMIT if job.max_tasks is None else job.max_tasks, job.weight, queue[job.queue])
        for job in jobs
    ]
    least, most, weight, of = np.array(said, np.int64).reshape(-1, 4).T
    claims = Claims(count, least, most, weight, of, list(mine.values()))
    places = places_of(cluster, [rule for table in mine.values() for rule in table])
    return np.stack(rules.shares.bounds(claims, instance.queues, places), axis=1)
