"""Load partition stated from the instance, for answers of changed models; and capacities and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from flowlex.instances.exact_rationals import rational
from flowlex.instances.load import LoadNode, LoadPartitionInstance
from flowlex.validation.certificates.statement.rational_linear_program import ExactStatement


def capacity_of(node: LoadNode, evaluation: str) -> Fraction:
    """The capacity by its name, from the figures of the node."""
    if evaluation == "cpu_load":
        return min(Fraction(1), rational(node.cpu_free or 0) / rational(node.cpu_required))
    if evaluation == "history":
        return sum((rational(r.items) for r in node.history), Fraction(0)) / sum(
            (rational(r.seconds) for r in node.history), Fraction(0)
        )
    found = {"configuration": node.configuration, "performance": node.performance}[evaluation]
    if found is None:
        raise ValueError(f"node {node.name!r} has no {evaluation}")
    return rational(found)


def quotas(capacity: Sequence[Fraction], total: int) -> list[int]:
    """Largest remainders, ties to the earlier node."""
    whole = sum(capacity)
    each = [c / whole * total for c in capacity]
    targets = [int(q) for q in each]
    left = sorted(range(len(each)), key=lambda i: targets[i] - each[i])
    for i in left[: total - sum(targets)]:
        targets[i] += 1
    return targets


def state_load(instance: LoadPartitionInstance, options: Mapping[str, Any]) -> ExactStatement:
    """Variables ``x`` by block, holder and node, and ``late`` by finish time; see the model for the rows."""
    evaluation = str(options.get("capacity", "configuration"))
    makespan, replicas = options.get("objective") == "makespan", options.get("level") == "item"
    names = [node.name for node in instance.nodes]
    capacity = [capacity_of(node, evaluation) for node in instance.nodes]
    total = sum(block.items for block in instance.blocks)
    targets = dict(zip(names, quotas(capacity, total), strict=True))
    lies = dict.fromkeys(names, 0)
    for block in instance.blocks:
        lies[block.holders[0]] += block.items
    labels = []
    for block in instance.blocks:
        for holder in sorted(block.holders, key=names.index) if replicas else block.holders[:1]:
            for node in names:
                paper = lies[holder] > targets[holder] and lies[node] <= targets[node]
                if node == holder or replicas or makespan or paper:
                    labels.append({"block": block.name, "holder": holder, "node": node})
    items = {block.name: block.items for block in instance.blocks}
    statement = ExactStatement("moved", needed=frozenset({"group", "finish", "order"}))
    statement.variables("x", labels, upper=[items[label["block"]] for label in labels])
    of_block: dict[str, dict[int, int]] = {name: {} for name in items}
    on_node: dict[str, dict[int, int]] = {name: {} for name in names}
    for column, label in enumerate(labels):
        of_block[label["block"]][column] = on_node[label["node"]][column] = 1
    for name, terms in of_block.items():
        statement.row("group", name, terms, "==", items[name])
    if makespan:
        _makespan(statement, on_node, capacity, total)
    else:
        for name, terms in on_node.items():
            statement.row("node", name, terms, "==", targets[name])
    usual = rational(instance.seconds_per_item)
    links = {(link.source, link.target): rational(link.seconds_per_item) for link in instance.links}
    moved = {
        column: links.get((label["holder"], label["node"]), usual)
        for column, label in enumerate(labels)
        if label["holder"] != label["node"]
    }
    statement.stage("moved", moved)
    return statement


def _makespan(
    statement: ExactStatement, on_node: Mapping[str, dict[int, int]], capacity: Sequence[Fraction], total: int
) -> None:
    """Add ``late`` for the finish times above the least, rows of what nodes finish by each, and the objective."""
    every = sorted({Fraction(n) / c for c in capacity if c for n in range(total + 1)})
    low, high = 0, len(every) - 1
    while low < high:  # the first time by which the nodes together can end all items
        middle = (low + high) // 2
        enough = sum(int(c * every[middle]) for c in capacity) >= total
        low, high = (low, middle) if enough else (middle + 1, high)
    times = every[low:]
    steps = [{"step": k + 1, "after": float(time)} for k, time in enumerate(times[:-1])]
    late = statement.variables("late", steps, keys=("step",))
    place = {time: k for k, time in enumerate(times)}
    for (name, terms), c in zip(on_node.items(), capacity, strict=True):
        first = min(int(c * times[0]), total)
        later = [place[n / c] for n in range(first + 1, total + 1)] if c else []
        statement.row("finish", name, terms | {late.start + k - 1: -1 for k in later}, "<=", first)
    for k in range(1, len(steps)):
        statement.row("order", str(k + 1), {late.start + k - 1: 1, late.start + k: -1}, ">=", 0)
    statement.stage("makespan", {late.start + k: 1 for k in range(len(steps))}, 0)
