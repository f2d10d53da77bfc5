"""What every method of flow scheduling returns, and what is minimised: shortfall, waiting tasks by class, the goals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import Outcome
from flowlex.instances.flow import FlowInstance, FlowJob
from flowlex.models.flow.arc_costs import Rules
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.flow.solution import Score
from flowlex.models.model_base import ModelError, Run


@dataclass(frozen=True, eq=False)
class FlowRun(Run):
    """The result of a method."""

    method: str  # solution method, and the reason for it
    machine: Integers  # (T,) machine index of each task, -1 for none
    score: Score | None = None  # objective values
    # value and lower bound of each stage by name; empty if there are no stages
    stages: Mapping[str, int] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    # weight of each stage in the objective; None if it is the value of the last stage
    weights: Mapping[str, int] | None = None
    prove: Callable[[], dict[str, Any]] = dict  # returns the fields ``proof`` and ``duals`` of the solution


def chosen_stage(stage: str | None, names: Iterable[str]) -> str:
    """Return the requested stage, or the last one if ``stage`` is None."""
    known = list(names)
    if not known:
        raise ModelError("the goals are one weighted sum; a stage exists with order='phases' only")
    if stage is not None and stage not in known:
        raise ModelError(f"there is no stage {stage!r}; the stages are: {', '.join(known)}")
    return known[-1] if stage is None else stage


def flow_of(outcome: Outcome) -> Integers:
    """Return the flow of an outcome, as integers."""
    assert outcome.values is not None
    flow: Integers = np.rint(outcome.values).astype(np.int64)
    return flow


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
