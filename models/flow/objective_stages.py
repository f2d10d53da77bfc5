"""What is minimised, stage by stage: shortfall of shares, waiting tasks by class, then the goals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.flow import FlowInstance, FlowJob
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.flow.solution import Score

__all__ = ["rank_names", "score_of", "stage_costs", "waiting_by_job", "waiting_levels"]


def waiting_levels(schedule: ScheduleNetwork) -> list[int]:
    """Classes of waiting tasks in strict order, the most important first."""
    levels = schedule.columns.level
    return sorted(set(levels[levels > 0].tolist()), reverse=True)


def rank_names(rules: Rules) -> tuple[str, ...]:
    """Names of the last stages: ``cost``, or the goals in strict order."""
    return ("cost",) if rules.order is None else rules.order.names


def stage_costs(schedule: ScheduleNetwork, rules: Rules) -> dict[str, Integers]:
    """Cost of each arc by stage, in order; of goals in strict order, those that cost nothing anywhere are left out."""
    columns = schedule.columns
    costs = {"shortfall": columns.shortfall}
    for level in waiting_levels(schedule):
        costs[f"waiting_{level}"] = np.where(columns.level == level, 1, 0)
    ranks = zip(rank_names(rules), columns.ranks, strict=True)
    return costs | {name: cost for name, cost in ranks if cost.any() or rules.order is None}


def waiting_by_job(instance: FlowInstance, machine: Integers) -> list[int]:
    """(J,) waiting tasks, from the (T,) machines of tasks, -1 for none."""
    waits = iter((machine < 0).tolist())
    return [sum(next(waits) for _ in job.tasks) for job in instance.jobs]


def score_of(jobs: Iterable[FlowJob], rules: Rules, waiting: Iterable[float], values: Mapping[str, int]) -> Score:
    """The score of a schedule.

    ``waiting``: (J,) waiting tasks by job. ``values``: shortfall (0 when left out) and cost of every rank by name.
    """
    strict = rules.priority is not None and rules.priority.mode == "strict"
    classes: dict[int, float] = defaultdict(float)
    for job, count in zip(jobs, waiting, strict=True):
        classes[job.priority if strict else 0] += count
    names = rank_names(rules)
    by_goal = () if rules.order is None else tuple((name, values[name]) for name in names)
    counts = tuple(sorted((priority, round(count)) for priority, count in classes.items()))
    return Score(values.get("shortfall", 0), counts, by_goal, sum(values[name] for name in names))
