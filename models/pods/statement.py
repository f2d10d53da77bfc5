"""Pod placement as a statement: pods by name on nodes and cards, admission level by level, then balance and moves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from flowlex.formulations.arrays import Floats, Integers
from flowlex.formulations.linear_program import LinearProgram
from flowlex.instances.exact import rational
from flowlex.instances.pods import PodInstance
from flowlex.models.base import ModelError
from flowlex.models.pods.problem.cluster import Cluster
from flowlex.models.pods.problem.measures import MEASURES, Balance
from flowlex.models.pods.problem.program import PlacementProgram
from flowlex.models.pods.statement_labels import column_labels, row_labels
from flowlex.models.statement.statement import Stage, Statement

__all__ = ["placement_statement", "pods_of_values"]

#: Columns beyond which a statement by pod, node and card is not made.
LARGEST_STATEMENT = 200_000
#: Loads are whole multiples of one over at most this, rounded where they have no such unit.
_LOAD_UNIT = 10**9
#: The stage of the balance is scaled by this, so that rounded multipliers prove it far below a millionth.
_FINE = 10**6
_EXACT = 2**53

_NO_BALANCE = "the balance would have no meaning"
_NEEDED = {
    "pod": "a pod would run more than once",
    "running": "a running pod stops only at a price; give it a preempt_cost instead",
    "card_link": "GPU pods would run without their cards",
    "card_distinct": "a pod would use one card several times",
    **dict.fromkeys(("largest", "mean", "above", "below"), _NO_BALANCE),
}


def placement_statement(
    instance: PodInstance, builder: PlacementProgram, balance: Balance, *, fewest_moves: bool
) -> Statement:
    """The statement by pod, node and card; ``builder`` keeps every pod on its own and sizes in whole units.

    Raises
    ------
    ModelError
        The balance is no linear program, admission is fair, or the instance is too large or too finely measured.
    """
    _refuse(instance, builder, balance)
    if builder.columns > LARGEST_STATEMENT:
        raise ModelError(
            f"a changed pod placement is stated by pod, node and card: {builder.columns} columns, at most "
            f"{LARGEST_STATEMENT}; change a smaller instance, or restrict pods by node_labels"
        )
    program, x = builder.program(instance.name)
    size, (load, unit) = len(instance.nodes), _loads(instance)
    loads = (x * load[builder.groups.first[builder.pairs[0]], builder.pairs[1]].astype(np.float64)).sum_by(
        builder.pairs[1], size
    )
    objective = MEASURES[balance].expression(program, loads, np.ones(size), [], unit=unit)
    statement = _labelled(program, instance, builder, -(-int(load.sum(axis=0).max(initial=0)) // unit))
    stages = [
        Stage(f"admission {key}", builder.by_level(x)[[level]], maximize=True, unit=builder.levels.unit[level])
        for level, key in enumerate(builder.levels.keys)
    ]
    each = 1 if balance == "max_load" else size
    stages.append(Stage("balance", objective * float(_FINE), unit=Fraction(1, _FINE * each)))
    if fewest_moves and builder.moved.any():
        cost = np.rint(builder.view.move_cost[builder.pairs[0][builder.moved]] * builder.move_unit)
        stages.append(Stage("moves", (x[builder.moved] * cost).sum(), unit=Fraction(1, builder.move_unit)))
    return replace(statement, scales=_scales(instance, builder, unit), needed=_NEEDED).with_stages(*stages)


def _refuse(instance: PodInstance, builder: PlacementProgram, balance: Balance) -> None:
    """Raise `ModelError` for options that have no linear statement, and sizes that doubles do not hold."""
    if balance == "deviation":
        raise ModelError(
            "balance='deviation' is no linear program, so the model takes no changes; "
            "use balance='mean_absolute' or balance='max_load'"
        )
    if builder.levels.ranking == "fair":
        raise ModelError("admission='fair' takes no changes; use admission='lexicographic' or 'weighted'")
    if instance.resources:
        raise ModelError("an instance with resources takes no changes; solve it without changes")
    exact, rules = instance.arrays.exact, instance.arrays.rules
    largest = max(
        exact.node.max(), exact.card.max(), exact.whole, rules.limit.max(initial=0), rules.base.max(initial=0)
    )
    if exact.rounded or largest > _EXACT:
        raise ModelError("sizes of pods and nodes have no common unit that is exact; write fewer digits")


def _loads(instance: PodInstance) -> tuple[Integers, int]:
    """(P, N) what each pod adds to the load of a node, in whole multiples of one over the number returned."""
    nodes, pods, view = instance.nodes, instance.pods, instance.arrays
    has = [[rational(n.card_gb) * n.cards, rational(n.cpu_cores), rational(n.memory_gb)] for n in nodes]
    total = [sum(column, Fraction(0)) for column in zip(*has, strict=True)]
    first_pod, first_node = (np.unique(k, return_index=True)[1].tolist() for k in (view.load.row, view.load.column))
    table: list[list[Fraction]] = [[] for _ in first_pod]
    for n in first_node:
        rate = _rates(has[n], total, instance.load_reading)
        for r, p in enumerate(first_pod):
            pod = pods[p]
            gpu = (rational(pod.gpu_memory_gb) + rational(pod.gpu_share) * rational(nodes[n].card_gb)) * pod.gpu_cards
            used = (gpu, rational(pod.cpu_cores), rational(pod.memory_gb))
            table[r].append(sum(((u * w) for u, w in zip(used, rate, strict=True)), Fraction(0)))
    unit = min(_LOAD_UNIT, math.lcm(*(load.denominator for row in table for load in row)))
    whole = np.array([[round(load * unit) for load in row] for row in table], np.int64)
    return whole.reshape(len(first_pod), len(first_node))[np.ix_(view.load.row, view.load.column)], unit


def _rates(has: Sequence[Fraction], total: Sequence[Fraction], reading: str) -> list[Fraction]:
    """What a unit of each resource adds to the load of a node that has so much of them."""
    share = [h / t if t else Fraction(0) for h, t in zip(has, total, strict=True)]
    if reading == "equal":
        share = [Fraction(h > 0) for h in has]
    whole = Fraction(3) if reading == "raw" else sum(share, Fraction(0))
    of = total if reading == "cluster" else has
    return [s / whole / o if h else Fraction(0) for s, h, o in zip(share, has, of, strict=True)]


def _scales(instance: PodInstance, builder: PlacementProgram, load_unit: int) -> dict[str, Fraction]:
    """By what rows are multiplied, compared with cores, GB, cards and loads."""
    exact, node = builder.view.exact, instance.nodes[0]
    card = next(
        (Fraction(int(exact.card[n])) / rational(m.card_gb) for n, m in enumerate(instance.nodes) if m.cards), 1
    )
    balance = dict.fromkeys(("largest", "mean", "above", "below"), Fraction(load_unit))
    return {
        "cpu": Fraction(int(exact.node[0, 0])) / rational(node.cpu_cores),
        "memory": Fraction(int(exact.node[0, 1])) / rational(node.memory_gb),
        "card": Fraction(card),
        "gpu": Fraction(card),
        "compute": Fraction(exact.whole),
        "move_budget": Fraction(builder.move_unit),
        **balance,
    }


def _labelled(program: LinearProgram, instance: PodInstance, builder: PlacementProgram, top: int) -> Statement:
    """Names for all columns and rows; bounds where the builder gives none."""
    columns = column_labels(instance, builder)
    label = row_labels(instance, builder, columns)
    bounded = {"emptiest": float(len(instance.pods)), **dict.fromkeys(("largest_load", "centre", "apart"), float(top))}
    columns = {name: columns[name] for name in program.variable_blocks}
    rows = {name: label[name](block) for name, block in program.constraint_blocks.items()}
    named = LinearProgram(program.name)
    for name, block in program.variable_blocks.items():
        upper = np.full(block.count, bounded[name]) if name in bounded else block.upper
        integer, labels = block.integer or name == "emptiest", tuple(columns[name].texts())
        named.variable_blocks[name] = replace(block, upper=upper, integer=integer, labels=labels)
    for name, constraint in program.constraint_blocks.items():
        named.constraint_blocks[name] = replace(constraint, labels=tuple(rows[name].texts()))
    return Statement(named, columns, rows)


def pods_of_values(
    instance: PodInstance, builder: PlacementProgram, values: Mapping[str, Floats]
) -> tuple[Cluster, list[str]]:
    """Pods that run whole in values of the statement's variables, and the names of those that run in parts."""
    view, (group, at) = builder.view, builder.pairs
    pod, (pair, card) = builder.groups.first[group], builder.card_slots
    x = values["x"]
    placed = np.flatnonzero(x > 1 - 1e-6)
    node = np.full(len(view.cpu), -1)
    node[pod[placed]] = at[placed]
    start = np.cumsum(view.cards) - view.cards
    on: dict[int, list[int]] = {int(p): [] for p in pod[placed] if builder.cards and view.gpu_cards[p]}
    for k in np.flatnonzero(values["y"] > 1 - 1e-6).tolist() if on else ():
        on.setdefault(int(pod[pair[k]]), []).append(int(card[k] - start[at[pair[k]]]))
    for p, cards in on.items():
        if len(cards) != view.gpu_cards[p]:
            node[p] = -1
    parts = {int(p) for p in pod[x > 1e-6] if node[p] < 0}
    used = {p: np.array(cards, np.int64) for p, cards in on.items() if node[p] >= 0}
    return Cluster.of(view, node, used, cards=builder.cards), [instance.pods[p].name for p in sorted(parts)]
