"""One factor that makes all real-valued costs of an instance integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import lcm

from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.goals.goal_interface import Goal
from flowlex.models.flow.goals.placement import Placement
from flowlex.models.model_base import ModelError

#: Largest factor; with larger ones most costs would exceed `LARGEST_COST`.
_MOST = 2**53


def common_scale(instance: FlowInstance, goals: Sequence[Goal], wait_cost: float | None) -> int:
    """Return the least factor that makes every cost an integer (decimals are read as written).

    Raises `ModelError` with cost and factor if a cost is not finite or the factor would exceed 2^53.
    """
    factor = 1
    seen: set[float] = set()
    for value, what in _costs(instance, goals, wait_cost):
        if isinstance(value, int) or value in seen:
            continue
        if value != value or value in (float("inf"), float("-inf")):
            raise ModelError(f"{what} is {value}; a cost must be a finite number")
        seen.add(value)
        factor = lcm(factor, rational(value).denominator)
        if factor > _MOST:
            raise ModelError(
                f"{what} = {value!r} would need costs to be scaled by {factor}, beyond {_MOST}; round it to "
                "fewer digits"
            )
    return factor


def _costs(instance: FlowInstance, goals: Sequence[Goal], wait_cost: float | None) -> Iterator[tuple[float, str]]:
    if wait_cost is not None:
        yield wait_cost, "wait_cost"
    for goal in goals:
        yield from goal.real_costs()
    placement = next((goal for goal in goals if isinstance(goal, Placement)), None)
    for job in instance.jobs:
        yield job.preempt_cost, f"preempt_cost of job {job.name!r}"
    for task in instance.tasks:
        for machine, cost in task.costs.items():
            yield cost, f"cost of task {task.name!r} on machine {machine!r}"
        if placement is not None:
            for constraint in task.constraints:
                yield constraint.utility, f"utility of task {task.name!r}"
    if placement is not None:
        for name, rules in placement.rules.items():
            for constraint in rules:
                yield constraint.utility, f"utility of a rule for {name!r}"
