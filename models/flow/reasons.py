"""Why a task waits, and whether a schedule keeps every rule of its instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.goals.base import ClusterView
from flowlex.models.flow.goals.placement import Placement
from flowlex.models.flow.network import task_views
from flowlex.models.flow.offers import Rules
from flowlex.models.flow.solution import FlowSolution
from flowlex.validation.certificates import Check

__all__ = ["SHARE_USED", "WORTH_MORE", "verify_schedule", "waiting_reasons"]

SHARE_USED = "the share of its job is used up"
WORTH_MORE = "no slot it could take is worth more to it than to the tasks that hold them, or than waiting"


def waiting_reasons(
    instance: FlowInstance, rules: Rules, machine_of: Mapping[str, str], shares: Mapping[str, tuple[int, int]]
) -> dict[str, str]:
    """Reason by waiting task."""
    cluster = ClusterView()
    for machine in instance.machines:
        cluster.add(machine)
    running = Counter(view.job for view in task_views(instance) if view.task.name in machine_of)
    apart: dict[str, set[str]] = {}
    for view in task_views(instance):
        if view.apart and view.task.name in machine_of:
            apart.setdefault(view.apart, set()).add(machine_of[view.task.name])
    reasons = {}
    for view in task_views(instance):
        if view.task.name in machine_of:
            continue
        unmet = rules.unmet(view, cluster, apart.get(view.apart, ()))
        full = rules.shares is not None and running[view.job] >= shares[view.job][1]
        reasons[view.task.name] = unmet or (SHARE_USED if full else WORTH_MORE)
    return reasons


def verify_schedule(instance: FlowInstance, rules: Rules, solution: FlowSolution) -> tuple[Check, ...]:
    """Recompute from the instance: slots, placement constraints, shares."""
    slots = {machine.name: machine.slots for machine in instance.machines}
    held = Counter(solution.machine_of.values())
    over = [name for name, count in held.items() if count > slots[name]]
    checks = [Check("no machine runs more tasks than it has slots", not over, len(over), ", ".join(over[:3]))]
    tags = {machine.name: machine.tags for machine in instance.machines}
    placement = next((goal for goal in rules.goals if isinstance(goal, Placement)), None)
    wrong = []
    for view in task_views(instance) if placement is not None else ():
        machine = solution.machine_of.get(view.task.name)
        if machine is None:
            continue
        assert placement is not None
        for constraint in placement.constraints(view):
            meets = not tags[machine].isdisjoint(constraint.resources)
            if (constraint.kind == "required" and not meets) or (constraint.kind == "forbidden" and meets):
                wrong.append(view.task.name)
    checks.append(Check("every required and forbidden resource is honoured", not wrong, len(wrong), ", ".join(wrong)))
    pairs = Counter((v.apart, solution.machine_of.get(v.task.name)) for v in task_views(instance) if v.apart)
    shared = [f"{rule} on {machine}" for (rule, machine), n in pairs.items() if machine is not None and n > 1]
    checks.append(Check("tasks that must are on different machines", not shared, len(shared), ", ".join(shared[:3])))
    names = list(solution.job_of)
    checks.append(
        Check(
            "every task runs or waits",
            len(names) == len(solution.machine_of) + len(solution.waiting),
            detail=f"{len(solution.machine_of)} run, {len(solution.waiting)} wait",
        )
    )
    if solution.shares:
        running = Counter(solution.job_of[task] for task in solution.machine_of)
        above = [job for job, (_, most) in solution.shares.items() if running[job] > most]
        checks.append(Check("no job runs more tasks than its share", not above, len(above), ", ".join(above[:3])))
    return tuple(checks)
