"""Stages of pod placement, stated from the instance: admission level by level, the balance, the moves."""

from __future__ import annotations

import math
from collections.abc import Collection
from fractions import Fraction
from typing import Any

from flowlex.validation.certificates.pods.formulation_rows import StatedPods, Terms
from flowlex.validation.certificates.pods.pod_sizes import Level, exact_rates, need_of, shape_of, size_of, units_of
from flowlex.validation.certificates.pods.pod_values import levels_of, worths_of
from flowlex.validation.certificates.statement.rational_linear_program import Labels

#: Loads whose common unit would be finer than 1 / this of a node's capacity are rounded to that.
_FINEST = 10**9
#: Distances, in percent, of the initial tangents of their squares.
_TANGENTS = ("0", "0.25", "0.5", "1", "2", "4", "8", "16", "32")
#: Relative tolerance within which the variance meets its bound.
_MET = 1e-6


def add_admission(stated: StatedPods) -> None:
    """Maximise each level, the most important first."""
    levels = levels_of(stated.instance, stated.options)
    ranks = sorted({(each.rank, each.key) for each in levels if each is not None})
    if stated.options.get("admission") == "fair":
        _least_shares(stated, levels, [key for (rest, _), key in ranks if not rest])
        ranks = [(rank, key) for rank, key in ranks if rank[0]]
    for rank, key in ranks:
        worth = {p: each.worth for p, each in enumerate(levels) if each is not None and each.rank == rank}
        terms = {column: worth[p] for (p, _), column in stated.placed.items() if p in worth}
        stated.of.stage(f"admission {key}", terms, maximize=True)


def _least_shares(stated: StatedPods, levels: list[Level | None], keys: list[str]) -> None:
    """Maximise the sums of the 1, 2, ... least shares of queues, in integer multiples of the shares' common unit."""
    queues = {queue.name: queue for queue in stated.instance.queues}
    weight = {key: size_of(queues[key.removeprefix("queue ")].weight) for key in keys}
    unit = units_of(each for each in levels if each is not None)
    ran, asked = dict.fromkeys(keys, Fraction(0)), dict.fromkeys(keys, Fraction(0))
    terms: dict[str, Terms] = {key: {} for key in keys}
    for p, (pod, each, worth) in enumerate(
        zip(stated.instance.pods, levels, worths_of(stated.instance, stated.options), strict=True)
    ):
        key = f"queue {pod.queue}" if each is None else each.key
        if key in terms:
            (ran if each is None else asked)[key] += worth / weight[key]
            mine = [column for n in range(len(stated.instance.nodes)) if (column := stated.x.get((p, n))) is not None]
            terms[key] |= dict.fromkeys(mine if each is not None else (), worth / weight[key])
    parts = [*(unit[key] / weight[key] for key in keys), *ran.values()]
    whole = math.lcm(1, *(part.denominator for part in parts))
    top = max((ran[key] + asked[key] for key in keys), default=Fraction(0)) * whole
    numbers = range(1, len(keys) + 1)
    labels = [{"rank": k, "queue": key.removeprefix("queue ")} for k in numbers for key in keys]
    level = stated.of.variables("level", [{"rank": k} for k in numbers], keys=("rank",), upper=top).start
    below = stated.of.variables("below", labels, keys=("rank", "queue"), upper=top).start
    for m, (k, key) in enumerate((k, key) for k in numbers for key in keys):
        share = {column: -part * whole for column, part in terms[key].items()}
        row = {**share, level + k - 1: 1, below + m: -1}
        stated.of.row("fair", f"{k},{key.removeprefix('queue ')}", row, "<=", ran[key] * whole)
    for k in numbers:
        less = {below + m: Fraction(-1, whole) for m in range((k - 1) * len(keys), k * len(keys))}
        stated.of.stage(f"admission fair {k}", {**less, level + k - 1: Fraction(k, whole)}, maximize=True)


def add_balance(stated: StatedPods, measure: str, tangents: Collection[tuple[str, Fraction]]) -> None:
    """Minimise the largest load, the mean absolute deviation, or the variance."""
    nodes, loads = stated.instance.nodes, _loads(stated)
    total = [sum(of_node, Fraction(0)) for of_node in zip(*loads, strict=True)]
    top = math.ceil(max(total, default=Fraction(0)))
    on: list[Terms] = [{} for _ in nodes]
    for (p, n), column in stated.placed.items():
        on[n][column] = loads[p][n]
    if measure == "max_load":
        largest = stated.of.variables("largest_load", [{}], upper=top, integer=False).start
        for node, terms in zip(nodes, on, strict=True):
            stated.of.row("largest", node.name, {**terms, largest: -1}, "<=", 0)
        stated.of.stage("balance", {largest: 1})
        return
    labels: list[Labels] = [{"node": node.name} for node in nodes]
    if measure == "deviation":
        _variance(stated, on, labels, 100 * top, tangents)
        return
    centre = stated.of.variables("centre", [{}], upper=top, integer=False).start
    apart = stated.of.variables("apart", labels, upper=top, integer=False).start
    every = {column: load for terms in on for column, load in terms.items()}
    stated.of.row("mean", "", {**every, centre: -len(nodes)}, "==", 0)
    for n, node in enumerate(nodes):
        stated.of.row("above", node.name, {**on[n], centre: -1, apart + n: -1}, "<=", 0)
        stated.of.row("below", node.name, {**on[n], centre: -1, apart + n: 1}, ">=", 0)
    stated.of.stage("balance", {apart + n: Fraction(1, len(nodes)) for n in range(len(nodes))})


def _variance(
    stated: StatedPods, on: list[Terms], labels: list[Labels], top: int, tangents: Collection[tuple[str, Fraction]]
) -> None:
    """Minimise the mean square of the distances from the mean load, in percent, bounded below by tangents."""
    of = stated.of
    of.tolerance = _MET
    centre = of.variables("centre", [{}], upper=top, integer=False).start
    square = of.variables("square", labels, upper=top * top, integer=False).start
    distance = of.variables("distance", labels, lower=-top, upper=top, integer=False).start
    points = {(n, sign * Fraction(a)) for a in _TANGENTS for sign in (-1, 1) for n in range(len(on))}
    for n, terms in enumerate(on):
        percent = {column: 100 * load for column, load in terms.items()}
        of.row("distance", str(labels[n]["node"]), {**percent, centre: -1, distance + n: -1}, "==", 0)
    for n, a in {*points, *((stated.number[name], a) for name, a in tangents)}:
        of.row("tangent", f"{labels[n]['node']},{a}", {square + n: 1, distance + n: -2 * a}, ">=", -a * a)
    of.stage("balance", {square + n: Fraction(1, len(on)) for n in range(len(on))})


def _loads(stated: StatedPods) -> list[list[Fraction]]:
    """Load that each pod adds to each node, rounded if the loads have no common unit."""
    rates, nodes, known = exact_rates(stated.instance), stated.instance.nodes, dict[Any, list[Fraction]]()
    for pod in stated.instance.pods:
        own = (size_of(pod.cpu_cores), size_of(pod.memory_gb))
        if shape_of(pod) not in known:
            used = [(need_of(pod, node) * pod.gpu_cards, *own) for node in nodes]
            known[shape_of(pod)] = [
                sum((u * r for u, r in zip(each, rate, strict=True)), Fraction(0))
                for each, rate in zip(used, rates, strict=True)
            ]
    unit = math.lcm(1, *(load.denominator for row in known.values() for load in row))
    if unit > _FINEST:
        known = {key: [Fraction(round(load * _FINEST), _FINEST) for load in row] for key, row in known.items()}
    return [known[shape_of(pod)] for pod in stated.instance.pods]


def add_moves(stated: StatedPods) -> None:
    """Minimise the cost of moves, if requested."""
    if stated.options.get("moves", "free") == "least" and (moved := stated.moved()):
        stated.of.stage("moves", moved)
