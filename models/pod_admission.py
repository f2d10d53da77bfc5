"""Phase 1 of pod placement: as many pods as possible of each priority, the most important first."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.outcome import EngineName, Outcome, SolveOptions
from flowlex.models.pod_aggregate import admission_program
from flowlex.models.pod_classes import Demand
from flowlex.models.pod_state import Cluster, place_in_order

if TYPE_CHECKING:
    from flowlex.models.pod_placement import PodPlacement

__all__ = ["Admission", "admit", "first_fit_by_priority", "remaining"]

#: Up to so many columns x, the program over nodes is as quick as that over node classes.
_DIRECT = 150


@dataclass(frozen=True)
class Admission:
    """What phase 1 found.

    Attributes
    ----------
    admitted, most
        By priority, most important first: pods placed, and the proven most.
    cluster
        A placement that has them; None without an answer, with the outcome that says why in ``failed``.
    """

    admitted: dict[int, int] = field(default_factory=dict)
    most: dict[int, int] = field(default_factory=dict)
    cluster: Cluster | None = None
    failed: Outcome | None = None


def first_fit_by_priority(model: PodPlacement) -> Cluster | None:
    """A quick placement by priority; None when the running pods do not pack in the order tried."""
    view = model.instance.arrays
    cluster = Cluster(view, cards=model.cards)
    gpu = view.gpu.max(axis=1, initial=0) * view.gpu_cards
    running = np.flatnonzero(view.running >= 0)
    for pod in running[np.argsort(-gpu[running], kind="stable")].tolist():
        if not cluster.fits(pod)[view.running[pod]]:
            return None
        cluster.add(pod, int(view.running[pod]))
    fresh = np.flatnonzero(view.running < 0)
    size = view.load.max(axis=1, initial=0)
    place_in_order(cluster, fresh[np.lexsort((fresh, -size[fresh], -view.priority[fresh]))].tolist())
    return cluster


def admit(model: PodPlacement, engine: EngineName, options: SolveOptions, until: float) -> Admission:
    """Admit class by class: first fit, a bound over node classes, and the integer program where they differ."""
    view, builder = model.instance.arrays, model.builder
    cluster = first_fit_by_priority(model)
    placeable = np.zeros(len(model.groups.count), bool)
    placeable[builder.pairs[0]] = True
    can = placeable[model.groups.of] & (view.running < 0)
    admitted: dict[int, int] = {}
    most: dict[int, int] = {}
    for priority in builder.classes():
        of_class = view.priority == priority
        wanted = int((can & of_class).sum())
        found = -1 if cluster is None else int((cluster.node[of_class & (view.running < 0)] >= 0).sum())
        if 0 <= found < wanted and len(builder.pairs[0]) > _DIRECT:
            wanted = min(wanted, max(found, _class_bound(model, admitted, priority, engine, options, until)))
        if found < wanted:
            program, x = builder.program(model.instance.name)
            if admitted:
                builder.keep(program, x, admitted)
            program.maximize(builder.admitted(x, priority))
            outcome = solve(program, engine, remaining(options, until))
            if outcome.values is not None and round(float(outcome.objective or 0)) > found:
                cluster = model.expand(outcome.values)
                found = round(float(outcome.objective or 0))
            if cluster is None:
                return Admission(failed=outcome)
            bound = wanted if outcome.bound is None else int(np.floor(min(float(outcome.bound), wanted) + 1e-6))
            wanted = max(found, min(wanted, bound))
        admitted[priority], most[priority] = found, wanted
    if cluster is None:  # nothing is to be placed, but what runs has to be packed
        program, x = builder.program(model.instance.name)
        program.minimize(x.sum() * 0.0)
        outcome = solve(program, engine, remaining(options, until))
        if outcome.values is None:
            return Admission(failed=outcome)
        cluster = model.expand(outcome.values)
    return Admission(admitted, most, cluster)


def _class_bound(
    model: PodPlacement,
    admitted: dict[int, int],
    priority: int,
    engine: EngineName,
    options: SolveOptions,
    until: float,
) -> int:
    """No more pods of the class than this can be placed: nodes of a class taken together."""
    view = model.instance.arrays
    later = {k: 0 for k in model.builder.classes() if k not in admitted}
    demand = Demand.of_program(model.instance, model.builder, {**admitted, **later}, apart=not model.aggregate)
    program = admission_program(view, demand, priority, cards=model.cards, move_budget=model.move_budget)
    outcome = solve(program, engine, remaining(options, until))
    many = int((view.priority == priority).sum())
    return many if outcome.bound is None else int(np.floor(min(float(outcome.bound), many) + 1e-6))


def remaining(options: SolveOptions, until: float) -> SolveOptions:
    """The options with what is left of the time limit, proven optima asked for."""
    return replace(options, gap=0.0, time_limit_s=max(0.1, until - time.perf_counter()))
