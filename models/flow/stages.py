"""What is minimised, stage by stage: shortfall of shares, waiting tasks by class, then the goals."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from flowlex.formulations.arrays import Integers, exact_dot
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.flow.offers import Rules
from flowlex.models.flow.solution import Score

__all__ = ["flow_score", "stage_costs", "waiting_levels"]


def waiting_levels(schedule: ScheduleNetwork) -> list[int]:
    """Classes of waiting tasks in strict order, the most important first."""
    levels = schedule.columns.level
    return sorted(set(levels[levels > 0].tolist()), reverse=True)


def stage_costs(schedule: ScheduleNetwork, rules: Rules, *, free: bool = False) -> dict[str, Integers]:
    """Cost of each arc by stage, in order; goals that cost nothing anywhere are left out unless ``free``."""
    columns = schedule.columns
    costs = {"shortfall": columns.shortfall}
    for level in waiting_levels(schedule):
        costs[f"waiting_{level}"] = np.where(columns.level == level, 1, 0)
    if rules.order is None:
        return costs | {"cost": columns.ordinary}
    ranks = zip(rules.order.names, columns.ranks, strict=True)
    return costs | {name: cost for name, cost in ranks if cost.any() or free}


def flow_score(instance: FlowInstance, schedule: ScheduleNetwork, rules: Rules, flow: Integers) -> Score:
    """What a flow comes to."""
    blocks = schedule.network.arc_blocks
    waiting: dict[int, int] = defaultdict(int)
    short = flow[blocks["short"].slice]
    strict = rules.priority is not None and rules.priority.mode == "strict"
    for job, count in zip(instance.jobs, flow[blocks["share"].slice] + short, strict=True):
        waiting[job.priority if strict else 0] += int(count)
    ranks = [exact_dot(cost, flow) for cost in schedule.columns.ranks]
    by_goal = () if rules.order is None else tuple(zip(rules.order.names, ranks, strict=True))
    return Score(int(short.sum()), tuple(sorted(waiting.items())), by_goal, sum(ranks))
