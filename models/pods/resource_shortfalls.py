"""Reasons why pods wait: missing resources with amounts and numbers of nodes, or rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.instances.input_errors import counted
from flowlex.instances.pod_rule_arrays import GANG
from flowlex.models.pods.problem.group_rules import room
from flowlex.models.pods.problem.node_fill_state import Cluster
from flowlex.models.pods.solution import PlacementSolution


@dataclass(frozen=True)
class Shortfall:
    """Pods that wait for the same reason."""

    pods: tuple[str, ...]  # names, the most important first
    # Missing resources on the closest node, or a rule; empty if more important pods use the resources
    what: tuple[str, ...]
    # least, most: least and largest missing amount of each resource, over the pods; empty if the reason is no amount
    least: tuple[float, ...] = ()
    most: tuple[float, ...] = ()
    # short, nodes: number of nodes with missing resources, and of nodes that a pod may use; the largest over the pods
    short: int = 0
    nodes: int = 0

    def __str__(self) -> str:
        some = f"such as {self.pods[0]}" if len(self.pods) > 1 else self.pods[0]
        if not self.what:
            return f"{len(self.pods)} for room that more important pods hold ({some})"
        lacks = []
        for k, what in enumerate(self.what):
            low, high = (f"{side[k]:.4g}" if side else "" for side in (self.least, self.most))
            lacks.append(f"{low if low == high else f'{low} to {high}'} {what}".strip())
        where = (
            f", {self.short} of {counted(self.nodes, 'node')} {'is' if self.short == 1 else 'are'} short"
            if self.nodes
            else ""
        )
        return f"{len(self.pods)} for {' and '.join(lacks)}{where} ({some})"


def shortfalls(solution: PlacementSolution) -> list[Shortfall]:
    """Group the waiting pods by missing resources, most pods first; amounts are those of the closest node."""
    assert solution.cluster is not None
    index = {pod.name: p for p, pod in enumerate(solution.source.pods)}
    known: dict[tuple[int, int], Shortfall] = {}
    groups: dict[tuple[str, ...], list[Shortfall]] = {}
    view = solution.source.arrays
    left = room(view, solution.cluster.node)
    for name in solution.queue:
        p = index[name]
        if solution.source.pods[p].node is not None:  # it is stopped
            continue
        key = (int(view.load.row[p]), int(view.rules.kind[p]))
        if key not in known:
            known[key] = _of_pod(solution, solution.cluster, p, left)
        groups.setdefault(known[key].what, []).append(replace(known[key], pods=(name,)))
    found = [_joined(what, many) for what, many in groups.items()]
    return sorted(found, key=lambda each: -len(each.pods))


def _joined(what: tuple[str, ...], many: list[Shortfall]) -> Shortfall:
    size = range(len(many[0].least))
    return Shortfall(
        tuple(each.pods[0] for each in many),
        what,
        tuple(min(each.least[k] for each in many) for k in size),
        tuple(max(each.most[k] for each in many) for k in size),
        max(each.short for each in many),
        max(each.nodes for each in many),
    )


def _of_pod(solution: PlacementSolution, cluster: Cluster, pod: int, left: Integers) -> Shortfall:
    view, name = solution.source.arrays, solution.source.pods[pod].name
    may: Booleans = view.allowed[pod]
    lacks = dict(_lacks(solution, cluster, pod))
    short = np.any([amount > 0 for amount in lacks.values()], axis=0) if lacks else np.zeros(len(may), np.bool_)
    if not (short | ~may).all():
        return _of_rule(solution, pod, left, name, may & ~short)
    if not may.any():
        return Shortfall((name,), ("a node with its labels and taints",))
    total = sum(np.where(amount > 0, 1.0 + amount / (1e-9 + amount.max()), 0.0) for amount in lacks.values())
    best = int(np.argmin(np.where(may, total, np.inf)))
    what = tuple(resource for resource, amount in lacks.items() if amount[best] > 0)
    amounts = tuple(float(lacks[resource][best]) for resource in what)
    return Shortfall((name,), what, amounts, amounts, int((short & may).sum()), int(may.sum()))


def _lacks(solution: PlacementSolution, cluster: Cluster, pod: int) -> Iterator[tuple[str, Floats]]:
    """(N,) missing amount of each resource on each node for a pod; 0 if there is enough."""
    view, exact = solution.source.arrays, solution.source.arrays.exact
    for k, (what, asked) in enumerate((("cores", exact.cpu), ("GB of memory", exact.memory))):
        unit = view.capacity[:, k + 1] / exact.node[:, k]
        yield what, np.maximum(0, asked[pod] - cluster.free[:, k]) * unit
    need, many = cluster.need(pod)
    if not many:
        return
    enough = (cluster.card_free >= need[:, None]) & (cluster.compute_free >= cluster.compute(pod))
    cards = np.maximum(0, many - enough.sum(axis=1)).astype(np.float64)
    if solution.source.pods[pod].gpu_share >= 1 or many > 1:
        yield "GPU cards", cards
    else:
        unit = view.card_gb / np.maximum(1, exact.card)
        largest = cluster.card_free.max(axis=1)
        memory = np.maximum(0, need - np.maximum(0, largest)) * np.where(exact.card > 0, unit, 1.0)
        yield "GB of a GPU card", np.where(view.cards > 0, memory, np.maximum(memory, need))
        yield "GPU compute on a card", np.where((cards > 0) & (memory <= 0), 1.0, 0.0)


def _of_rule(solution: PlacementSolution, pod: int, left: Integers, name: str, fits: Booleans) -> Shortfall:
    """The rule that excludes a pod from all nodes where it fits."""
    view = solution.source.arrays
    rules, nodes = view.rules, np.arange(len(fits))
    mine = slice(rules.start[pod], rules.start[pod + 1])
    closing: list[tuple[int, str, float]] = []
    for r, amount in zip(rules.rule[mine].tolist(), rules.amount[mine].tolist(), strict=True):
        if rules.what[r] == GANG:
            return Shortfall((name,), (f"all pods of {rules.names[r]} at once",))
        domain = rules.domain[rules.topology[r]]
        inside = nodes[fits & (domain >= 0)]
        free = left[rules.offset[r] + domain[inside]]
        closing.append((int((free >= amount).sum()), rules.names[r], float(amount - max(0, free.max(initial=0)))))
    still_open, what, lack = min(closing, default=(1, "", 0.0))
    if still_open and len(closing) < 2:
        return Shortfall((name,), ())
    if still_open:
        return Shortfall((name,), ("a node that all its rules allow at once",), (), (), 0, 0)
    return Shortfall((name,), (f"units of {what}",), (lack,), (lack,))
