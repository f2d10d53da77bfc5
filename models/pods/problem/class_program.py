"""Linear programs over node classes: as strong as those over nodes, since equal nodes may share evenly.

Columns count the pods of a group on all nodes of a class together. Their optimum bounds the balance from below, and
their duals prove it (`flowlex.validation.certificates`); they also say where the mean of the loads can lie.
"""

from __future__ import annotations

import numpy as np

from flowlex.formulations.arrays import Floats
from flowlex.formulations.expression import Expression
from flowlex.formulations.linear_program import LinearProgram
from flowlex.instances.pods import PodArrays
from flowlex.models.pods.problem.classes import Demand
from flowlex.models.pods.problem.measures import Measure
from flowlex.models.pods.problem.program import SCALE

__all__ = ["class_program", "mean_program"]


def _constraints(
    view: PodArrays, demand: Demand, *, cards: bool, move_budget: float
) -> tuple[LinearProgram, Expression]:
    """The constraints over classes, and the (C,) mean load of each class's nodes, in percent."""
    program = LinearProgram("classes")
    group, kind = np.nonzero(demand.may)
    count, size = demand.classes.count, len(demand.classes.count)
    pod, node = demand.pod[group], demand.classes.first[kind]
    x = program.variables("x", len(group), upper=demand.most[group], labels=(pod, node))
    placed = x.sum_by(group, len(demand.pod))
    exact = demand.least == demand.most
    if exact.any():
        program.constrain("group", placed[exact], "==", demand.most[exact])
    if (~exact).any():
        program.constrain("group_most", placed[~exact], "<=", demand.most[~exact])
    for k, (members, worth, number) in enumerate(demand.quota):
        program.constrain(f"quota_{k}", (placed[members] * worth).sum(), "==", number)
    base, first = demand.base, demand.classes.first
    held = np.array([[view.cpu[b].sum(), view.memory[b].sum()] for b in base]).reshape(size, 2)
    program.constrain(
        "cpu", (x * view.cpu[pod]).sum_by(kind, size), "<=", count * (view.capacity[first, 1] - held[:, 0])
    )
    memory = count * (view.capacity[first, 2] - held[:, 1])
    program.constrain("memory", (x * view.memory[pod]).sum_by(kind, size), "<=", memory)
    need = view.gpu[pod, node]
    room = [view.capacity[n, 0] - (view.gpu[b, n] * view.gpu_cards[b]).sum() for b, n in zip(base, first, strict=True)]
    program.constrain("gpu", (x * (need * view.gpu_cards[pod])).sum_by(kind, size), "<=", count * np.array(room))
    if cards:  # no two pods of more than half a card share one
        half = view.card_gb * (0.5 + 1e-9)
        large = np.where(need > half[node], view.gpu_cards[pod], 0)
        taken = [view.gpu_cards[b][view.gpu[b, n] > half[n]].sum() for b, n in zip(base, first, strict=True)]
        program.constrain("large", (x * large).sum_by(kind, size), "<=", count * (view.cards[first] - np.array(taken)))
    cost = demand.move_cost[group, kind]
    if cost.any():
        program.constrain("move_budget", (x * cost).sum(), "<=", move_budget)
    each = (x * (SCALE * demand.load[group, kind] / count[kind])).sum_by(kind, size)
    return program, each + SCALE * demand.base_load


def class_program(
    view: PodArrays, demand: Demand, measure: Measure, points: list[Floats], *, cards: bool, move_budget: float
) -> tuple[LinearProgram, Expression]:
    """The relaxation of phase 2 (percent, as `balance_program`), and the classes' loads.

    Parameters
    ----------
    points
        Tangent points of the squares: (C,) each, in percent.
    """
    program, loads = _constraints(view, demand, cards=cards, move_budget=move_budget)
    program.minimize(measure.expression(program, loads, demand.classes.count.astype(np.float64), points))
    return program, loads


def mean_program(
    view: PodArrays,
    demand: Demand,
    measure: Measure,
    points: list[Floats],
    at_most: float,
    *,
    cards: bool,
    move_budget: float,
    largest: bool,
) -> LinearProgram:
    """The least or largest mean load (percent) of what is at least as even as ``at_most``, in units of the program."""
    program, loads = _constraints(view, demand, cards=cards, move_budget=move_budget)
    weight = demand.classes.count.astype(np.float64)
    program.constrain("at_most", measure.expression(program, loads, weight, points), "<=", at_most)
    objective = (loads * (weight / weight.sum())).sum()
    if largest:
        program.maximize(objective)
    else:
        program.minimize(objective)
    return program
