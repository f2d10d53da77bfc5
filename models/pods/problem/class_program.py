"""Linear programs over node classes: as strong as those over nodes, since equal nodes may share evenly.

Columns count the pods of a group on all nodes of a class together. Their optimum bounds the balance from below, and
their duals prove it (`flowlex.validation.certificates`); they also say where the mean of the loads can lie.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flowlex.formulations.expression import Expression, Floats
from flowlex.formulations.linear_program import LinearProgram
from flowlex.instances.pods import PodArrays
from flowlex.models.pods.problem.classes import Demand
from flowlex.models.pods.problem.cluster import EPSILON
from flowlex.models.pods.problem.program import SCALE

__all__ = ["admission_program", "class_program", "mean_program"]


def _constraints(
    view: PodArrays, demand: Demand, *, cards: bool, move_budget: float, integer: bool = False
) -> tuple[LinearProgram, Expression]:
    """The constraints over classes, and the (C,) mean load of each class's nodes, in percent."""
    program = LinearProgram("classes")
    group, kind = np.nonzero(demand.may)
    count, size = demand.classes.count, len(demand.classes.count)
    pod, node = demand.pod[group], demand.classes.first[kind]
    x = program.variables("x", len(group), upper=demand.most[group], integer=integer, labels=(pod, node))
    placed = x.sum_by(group, len(demand.pod))
    exact = demand.least == demand.most
    if exact.any():
        program.constrain("group", placed[exact], "==", demand.most[exact])
    if (~exact).any():
        program.constrain("group_most", placed[~exact], "<=", demand.most[~exact])
    for k, (members, number) in enumerate(demand.quota):
        program.constrain(f"quota_{k}", placed[members].sum(), "==", number)
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
        half = view.card_gb / 2 + EPSILON
        large = np.where(need > half[node], view.gpu_cards[pod], 0)
        taken = [view.gpu_cards[b][view.gpu[b, n] > half[n]].sum() for b, n in zip(base, first, strict=True)]
        program.constrain("large", (x * large).sum_by(kind, size), "<=", count * (view.cards[first] - np.array(taken)))
    cost = demand.move_cost[group, kind]
    if cost.any():
        program.constrain("move_budget", (x * cost).sum(), "<=", move_budget)
    each = (x * (SCALE * demand.load[group, kind] / count[kind])).sum_by(kind, size)
    return program, each + SCALE * demand.base_load


def _measured(
    program: LinearProgram, demand: Demand, loads: Expression, measure: str, points: list[Floats]
) -> Expression:
    """The balance as an expression: the largest load, or sums over all nodes of squares or absolute deviations."""
    size, weight = len(demand.classes.count), demand.classes.count.astype(np.float64)
    if measure == "max_load":
        largest = program.variables("largest_load", 1)
        program.constrain("largest", loads - largest.repeated(size), "<=", 0.0)
        return largest.sum()
    centre = program.variables("centre", 1)
    distance = loads - centre.repeated(size)
    program.constrain("mean", _weighted(distance, weight), "==", 0.0)
    if measure == "mean_absolute":
        apart = program.variables("apart", size)
        program.constrain("above", distance - apart, "<=", 0.0)
        program.constrain("below", distance + apart, ">=", 0.0)
        return (apart * weight).sum()
    squares = program.variables("square", size)
    for k, point in enumerate(points):
        program.constrain(f"tangent_{k}", squares - distance * (2.0 * point), ">=", -(point**2))
    return (squares * weight).sum()


def _weighted(rows: Expression, weight: Floats) -> Expression:
    return (rows * weight).sum()


def class_program(
    view: PodArrays, demand: Demand, measure: str, points: list[Floats], *, cards: bool, move_budget: float
) -> tuple[LinearProgram, Expression]:
    """The relaxation of phase 2 (percent, as `balance_program`), and the classes' loads.

    Parameters
    ----------
    points
        Tangent points of the squares: (C,) each, in percent.
    """
    program, loads = _constraints(view, demand, cards=cards, move_budget=move_budget)
    program.minimize(_measured(program, demand, loads, measure, points))
    return program, loads


def mean_program(
    view: PodArrays,
    demand: Demand,
    measure: str,
    points: list[Floats],
    at_most: float,
    *,
    cards: bool,
    move_budget: float,
    largest: bool,
) -> LinearProgram:
    """The least or largest mean load (percent) of what is at least as even as ``at_most``, in units of the program."""
    program, loads = _constraints(view, demand, cards=cards, move_budget=move_budget)
    program.constrain("at_most", _measured(program, demand, loads, measure, points), "<=", at_most)
    weight = demand.classes.count / demand.classes.count.sum()
    objective = _weighted(loads, weight)
    if largest:
        program.maximize(objective)
    else:
        program.minimize(objective)
    return program


def admission_program(
    view: PodArrays, demand: Demand, priority: int, *, cards: bool, move_budget: float
) -> LinearProgram:
    """At least as many pods of a priority as can be placed: whole pods, but nodes of a class taken together.

    ``demand`` leaves open how many of that priority are placed (a quota of 0, which is dropped here).
    """
    of_quota = [int(view.priority[demand.pod[members[0]]]) if len(members) else None for members, _ in demand.quota]
    kept = tuple(quota for quota, of in zip(demand.quota, of_quota, strict=True) if of != priority)
    program, _ = _constraints(view, replace(demand, quota=kept), cards=cards, move_budget=move_budget, integer=True)
    group, _ = np.nonzero(demand.may)
    wanted = (view.priority[demand.pod[group]] == priority) & (view.running[demand.pod[group]] < 0)
    program.maximize(program.variable("x")[wanted].sum())
    return program
