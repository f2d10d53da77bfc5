"""Labels by which users select variables and rows of the statement of pod placement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flowlex.formulations.linear_program import ConstraintBlock, LinearProgram, VariableBlock
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.pod_rule_arrays import GANG, SKEW
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.problem.integer_program import PlacementProgram
from flowlex.models.statement.variable_labels import Index

_ONE = Index({}, {}, 1)
#: Reserved labels of pairs (pod, node); a node label with such a name gets the prefix ``node_``.
_OWN = ("pod", "node", "card", "priority", "queue", "gang", "resource", "card_model")


def column_labels(program: LinearProgram, instance: PodInstance, builder: PlacementProgram) -> dict[str, Index]:
    """Labels of all variables by name."""
    group, node = builder.pairs
    pod = builder.groups.first[group]
    pair, card = builder.card_slots
    start = np.cumsum(builder.view.cards) - builder.view.cards
    numbers = np.arange(max(1, int(builder.view.cards.max(initial=0))))
    rules = builder.view.rules
    skewed = [rules.names[r].split("'", 1)[1][:-1] for r in np.flatnonzero(rules.what == SKEW).tolist()]
    gangs = np.flatnonzero(np.isin(rules.of, np.flatnonzero(rules.what == GANG)))
    ranks, queues = _ranks(builder)
    return {
        "x": _pairs(instance, pod, node).named_by("pod", "node"),
        "y": _pairs(instance, pod[pair], node[pair], card=(numbers.tolist(), card - start[node[pair]])).named_by(
            "pod", "node", "card"
        ),
        "z": _domains(instance, builder, gangs, "gang"),
        "count": _counted(instance, program.variable_blocks.get("count")),
        "emptiest": Index.of(spread=skewed),
        "largest_load": _ONE,
        "centre": _ONE,
        **dict.fromkeys(("apart", "square", "distance"), _nodes(instance)),
        "level": Index.of(rank=ranks),
        "below": _ranked(ranks, queues),
    }


def _pairs(instance: PodInstance, pod: Integers, node: Integers, **more: tuple[list[Any], Integers]) -> Index:
    """Pods on nodes with labels of both."""
    pods, nodes = instance.pods, instance.nodes
    of_pod: dict[str, list[Any]] = {
        "priority": [each.priority for each in pods],
        "queue": [each.queue or "" for each in pods],
        "gang": [each.gang or "" for each in pods],
        "resource": ["gpu" if each.wants_gpu else "cpu" for each in pods],
    }
    of_node: dict[str, list[Any]] = {"card_model": [each.card_model or "" for each in nodes]}
    for key in dict.fromkeys(key for each in nodes for key in each.labels):
        of_node[f"node_{key}" if key in _OWN else key] = [each.labels.get(key, "") for each in nodes]
    columns = {
        "pod": ([each.name for each in pods], pod),
        "node": ([each.name for each in nodes], node),
        **more,
        **{name: _coded(labels, pod) for name, labels in of_pod.items()},
        **{name: _coded(labels, node) for name, labels in of_node.items()},
    }
    return Index.coded(**columns)


def _counted(instance: PodInstance, block: VariableBlock | ConstraintBlock | None) -> Index:
    """Labels of counts of equal pods: the first of these pods, and the node."""
    pod, node = (block.labels if block is not None else None) or ((), ())
    return Index.of(like=[instance.pods[p].name for p in pod], node=[instance.nodes[n].name for n in node])


def _ranks(builder: PlacementProgram) -> tuple[list[int], list[str]]:
    """Ranks of the least shares, and the queues, if admission is fair."""
    queues = [str(key).removeprefix("queue ") for key in builder.levels.keys[: len(builder.levels.weight)]]
    return list(range(1, len(queues) + 1)), queues


def _ranked(ranks: list[int], queues: list[str]) -> Index:
    return Index.of(rank=[k for k in ranks for _ in queues], queue=[q for _ in ranks for q in queues])


def _coded(labels: list[Any], of: Integers) -> tuple[list[Any], Integers]:
    """Distinct labels, and the code of each pod or node in ``of``."""
    number: dict[Any, int] = {}
    code = np.array([number.setdefault(label, len(number)) for label in labels], np.int64)
    return list(number), code[of]


def _nodes(instance: PodInstance) -> Index:
    return Index.of(node=[node.name for node in instance.nodes])


def _domains(instance: PodInstance, builder: PlacementProgram, flat: Integers, level: str) -> Index:
    """Labels of domains of gangs, spreads, quotas or resources, given by index over all rules."""
    rules = builder.view.rules
    columns: dict[str, list[str]] = {level: [], "resource" if level == "queue" else "domain": []}
    for f in flat.tolist():
        r = int(rules.of[f])
        before, name = rules.names[r].split("'", 1)
        columns[level].append(name[:-1])
        if level == "queue":
            columns["resource"].append(before.split(" ", 1)[0])
            continue
        where = instance.nodes[int(np.argmax(rules.domain[rules.topology[r]] == f - rules.offset[r]))]
        key = rules.keys[r]
        columns["domain"].append("cluster" if not key else where.name if key == "node" else where.labels[key])
    return Index.of(**columns)


def row_labels(
    instance: PodInstance, builder: PlacementProgram, columns: dict[str, Index]
) -> dict[str, Index | Callable[[ConstraintBlock], Index]]:
    """By name of the rows, their labels, or what reads them off a block."""
    view, (pair, _) = builder.view, builder.card_slots
    names, stays = np.array([pod.name for pod in instance.pods], object), view.stays
    nodes = _nodes(instance)
    held, several = np.repeat(np.arange(len(view.cards)), view.cards), builder.several
    number = np.arange(len(held)) - np.repeat(np.cumsum(view.cards) - view.cards, view.cards)
    cards = Index.of(node=[instance.nodes[n].name for n in held.tolist()], card=number)

    def domains(level: str) -> Callable[[ConstraintBlock], Index]:
        def of(block: ConstraintBlock) -> Index:
            rule, domain = (np.asarray(part, np.int64) for part in block.labels or ())
            return _domains(instance, builder, view.rules.offset[rule] + domain, level)

        return of

    def gang_members(block: ConstraintBlock) -> Index:
        pod, domain = (np.asarray(part, np.int64) for part in block.labels or ())
        where = _domains(instance, builder, view.rules.offset[view.rules.gang[pod]] + domain, "gang")
        return Index.coded(
            pod=(names.tolist(), pod),
            domain=(where.levels["domain"], where.codes["domain"]),
            gang=(where.levels["gang"], where.codes["gang"]),
        ).named_by("pod", "domain")

    fixed: dict[str, Index] = {
        "pod": Index.of(pod=names[~stays]),
        "running": Index.of(pod=names[stays]),
        "card": cards,
        "compute": cards if builder.cards else nodes,
        "card_link": columns["x"].take(np.unique(pair)),
        "card_distinct": columns["y"].take(np.flatnonzero(several)),
        "gang": Index.of(gang=[gang.name for gang in instance.gangs]),
        "fair": _ranked(*_ranks(builder)),
        **dict.fromkeys(("cpu", "memory", "gpu", "largest", "above", "below", "distance"), nodes),
        **dict.fromkeys(("move_budget", "mean"), _ONE),
    }

    def tangents(block: ConstraintBlock) -> Index:
        node, at = block.labels or ((), ())
        return Index.of(node=[instance.nodes[n].name for n in node], at=[str(each) for each in at])

    return {
        **fixed,
        "tangent": tangents,
        "count": lambda block: _counted(instance, block),
        **{name: domains("spread") for name in ("spread", "skew", "emptiest")},
        "quota": domains("queue"),
        "resource": domains("resource"),
        "gang_whole": gang_members,
    }
