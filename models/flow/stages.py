"""What is minimised, stage by stage: shortfall of shares, waiting tasks by class, then the goals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from flowlex.formulations.arrays import Floats, Integers, exact_dot
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.flow.solution import Score
from flowlex.models.statement.statement import Statement

__all__ = ["flow_score", "stage_costs", "stated_score", "waiting_levels"]


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


def stated_score(instance: FlowInstance, statement: Statement, rules: Rules, values: Mapping[str, Floats]) -> Score:
    """What values of the statement's variables come to, by the costs of the unchanged model."""
    x = np.concatenate([values[name] for name in statement.program.variable_blocks])
    found = {stage.name: round(float(stage.value_of(float(stage.cost(len(x)) @ x)))) for stage in statement.stages}
    strict = rules.priority is not None and rules.priority.mode == "strict"
    waiting: dict[int, float] = defaultdict(float)
    job = statement.columns["waits"].codes["job"]
    for at, each in enumerate(instance.jobs):
        waiting[each.priority if strict else 0] += float(values["waits"][job == at].sum())
    classes = tuple(sorted((priority, round(count)) for priority, count in waiting.items()))
    names = ("cost",) if rules.order is None else rules.order.names
    by_goal = () if rules.order is None else tuple((name, found[name]) for name in names)
    return Score(found.get("shortfall", 0), classes, by_goal, sum(found[name] for name in names))
