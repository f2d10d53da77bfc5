"""Phase 1 of pod placement: as many pods as possible of each priority, the most important first."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.expression import Floats
from flowlex.formulations.outcome import EngineName, Outcome, SolveOptions
from flowlex.models.pods.problem.class_program import admission_program
from flowlex.models.pods.problem.classes import Demand
from flowlex.models.pods.problem.cluster import Cluster, place_in_order

if TYPE_CHECKING:
    from flowlex.models.pods.model import PodPlacement

__all__ = ["LARGEST", "Admission", "admit", "class_bound", "first_fit_by_priority", "remaining"]

#: Share of the time that admission may use.
_SHARE = 0.4
#: Up to so many columns x, the program over nodes is as quick as that over node classes.
_DIRECT = 150
#: Columns beyond which the program over single nodes finds nothing in time, but takes gigabytes.
LARGEST = 1_000_000


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
    """The best of a few quick placements by priority; None when the running pods do not pack in the order tried.

    Within a priority pods go by size, or by GPU memory first; each where the loads become least uneven, or on the
    fullest node that takes it, pods without GPU off the GPU nodes if they can.
    """
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
    priorities = np.unique(view.priority[fresh])[::-1]

    def placed(first: Floats, *, tight: bool) -> Cluster:
        trial = cluster.copy()
        order = fresh[np.lexsort((fresh, -size[fresh], -first[fresh], -view.priority[fresh]))].tolist()
        if tight:
            _pack_tightly(trial, order)
        else:
            place_in_order(trial, order)
        return trial

    def admitted(trial: Cluster) -> tuple[int, ...]:
        return tuple(int(((trial.node >= 0) & (view.running < 0) & (view.priority == k)).sum()) for k in priorities)

    best = placed(size, tight=False)
    for first, tight in ((gpu, False), (view.gpu_cards * 1000.0 + gpu, True), (-size, True)):
        if (best.node >= 0).all():
            break
        trial = placed(first, tight=tight)
        if admitted(trial) > admitted(best):
            best = trial
    return best


def _pack_tightly(cluster: Cluster, pods: list[int]) -> None:
    view = cluster.view
    for pod in pods:
        fits = np.flatnonzero(cluster.fits(pod))
        if len(fits):
            spare = (view.cards[fits] > 0) & (view.gpu_cards[pod] == 0)
            free = cluster.card_free[fits].clip(0).sum(axis=1) / np.maximum(view.capacity[fits, 0], 1e-9)
            free = free if view.gpu_cards[pod] else cluster.free[fits, 0] / view.capacity[fits, 1]
            cluster.add(pod, int(fits[np.lexsort((free, spare))[0]]))


def admit(model: PodPlacement, engine: EngineName, options: SolveOptions, until: float) -> Admission:
    """Admit class by class: first fit, a bound over node classes, and the integer program where they differ."""
    view, builder = model.instance.arrays, model.builder
    started = time.perf_counter()
    until = started + _SHARE * (until - started)  # the rest is for the balance
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
            wanted = min(wanted, max(found, class_bound(model, admitted, priority, engine, options, until)))
        if found < wanted and (cluster is None or builder.columns <= LARGEST):
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


def class_bound(
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
