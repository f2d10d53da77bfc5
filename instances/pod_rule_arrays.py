"""The rules of a pod placement (`flowlex.instances.group_rules`) as arrays.

Each rule counts its pods by *domain*: a node, the nodes with the same value of a label (a rack), or the whole cluster.
Running pods may violate a rule; the rule then admits no pod that increases the violation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.exact_rationals import rational
from flowlex.instances.instance_base import read_only
from flowlex.instances.pod_sizes import Pairs, in_units

#: Kinds of rules in `SideRules.what`.
GANG, MOST, SKEW, QUOTA = range(4)


@dataclass(frozen=True, slots=True, eq=False)
class SideRules:
    """The rules as arrays. Sizes: P pods, N nodes, R rules, M pairs of pod and rule, T topologies, F domains of all."""

    # start, rule, amount: (P + 1,) start of the pairs of each pod; (M,) rule, and the pod's amount in it
    start: NDArray[np.int64]
    rule: NDArray[np.int64]
    amount: NDArray[np.int64]
    kind: NDArray[np.int64]  # (P,) equal for pods with the same rules; 0: no rule
    gang: NDArray[np.int64]  # (P,) the pod's gang (a rule), -1 without
    # what, limit, topology, offset: (R,) kind of rule; size of a gang, else the limit; row of ``domain``; index of its
    # first domain among the F
    what: NDArray[np.int64]
    limit: NDArray[np.int64]
    topology: NDArray[np.int64]
    offset: NDArray[np.int64]
    domain: NDArray[np.int64]  # (T, N) domain of each node, -1 if it is in none
    capacity: NDArray[np.int64]  # (F,) limit of each domain: that of its rule, or the amount of a resource there
    # base, counted: (F,) amount of running pods; whether the domain counts in the minimum (skew)
    base: NDArray[np.int64]
    counted: NDArray[np.bool_]
    of: NDArray[np.int64]  # (F,) rule of each domain
    names: tuple[str, ...]  # name of each rule, for messages
    keys: tuple[str, ...]  # by rule, ``node`` or the label whose values are its domains; empty: the cluster

    def has(self, *kinds: int) -> bool:
        """Whether there is a rule of one of these kinds."""
        return bool(np.isin(self.what, kinds).any())

    def members(self, *kinds: int) -> NDArray[np.bool_]:
        """(P,) whether a rule of one of these kinds counts the pod."""
        pod = np.repeat(np.arange(len(self.kind)), np.diff(self.start))
        found = np.zeros(len(self.kind), np.bool_)
        found[pod[np.isin(self.what[self.rule], kinds)]] = True
        return found


@dataclass(frozen=True, slots=True)
class _Rule:
    what: int
    name: str
    key: str
    limit: int
    pods: Sequence[int]
    amounts: Sequence[int]
    has: Sequence[int] | None = None
    """Amount that each node adds to the limit of its domain; None: all domains have the limit."""


def side_rules(instance: Any, allowed: Pairs) -> SideRules:
    """The rules of a `PodInstance`; ``allowed`` says where its pods may run."""
    rules = [*_gangs(instance), *_spreads(instance), *_quotas(instance), *_resources(instance)]
    keys = list(dict.fromkeys(["", *(rule.key for rule in rules)]))
    index = {node.name: n for n, node in enumerate(instance.nodes)}
    running = np.array([-1 if pod.node is None else index[pod.node] for pod in instance.pods], np.int64)
    domain = np.array([_domains(instance.nodes, key) for key in keys], np.int64)
    topology = np.array([keys.index(rule.key) for rule in rules], np.int64)
    sizes = domain.max(axis=1, initial=-1)[topology] + 1
    offset = np.cumsum(sizes) - sizes
    base, counted = np.zeros(int(sizes.sum()), np.int64), np.zeros(int(sizes.sum()), np.bool_)
    capacity = np.repeat(np.array([rule.limit for rule in rules], np.int64), sizes)
    for r, rule in enumerate(rules):
        pods, of_node = np.array(rule.pods, np.int64), domain[topology[r]]
        if rule.has is not None:
            inside = of_node >= 0
            capacity[offset[r] : offset[r] + sizes[r]] = 0
            np.add.at(capacity, offset[r] + of_node[inside], np.array(rule.has, np.int64)[inside])
        there = (running[pods] >= 0) & (of_node[running[pods]] >= 0)
        np.add.at(base, offset[r] + of_node[running[pods][there]], np.array(rule.amounts, np.int64)[there])
        if rule.what == SKEW:
            _, one = np.unique(allowed.row[pods], return_index=True)
            may = allowed[pods[one]].any(axis=0) & (of_node >= 0)
            counted[offset[r] + of_node[may]] = True
    pairs = sorted((p, r, a) for r, rule in enumerate(rules) for p, a in zip(rule.pods, rule.amounts, strict=True))
    table = np.array(pairs, np.int64).reshape(-1, 3)
    marks: dict[int, list[tuple[int, int]]] = {}
    gang = np.full(len(running), -1)
    for p, r, a in pairs:
        marks.setdefault(p, []).append((r, a))
        if rules[r].what == GANG:
            gang[p] = r
    number: dict[tuple[tuple[int, int], ...], int] = {(): 0}
    kind = [number.setdefault(tuple(marks.get(p, ())), len(number)) for p in range(len(running))]
    return read_only(
        SideRules(
            np.concatenate([[0], np.cumsum(np.bincount(table[:, 0], minlength=len(running)))]).astype(np.int64),
            table[:, 1].copy(),
            table[:, 2].copy(),
            np.array(kind, np.int64),
            gang,
            np.array([rule.what for rule in rules], np.int64),
            np.array([rule.limit for rule in rules], np.int64),
            topology,
            offset,
            domain,
            capacity,
            base,
            counted,
            np.repeat(np.arange(len(rules)), sizes),
            tuple(rule.name for rule in rules),
            tuple(rule.key for rule in rules),
        )
    )


def _domains(nodes: Sequence[Any], key: str) -> list[int]:
    """Domain of each node: one for all (empty key), one each (``node``), or by a label."""
    number: dict[str, int] = {}
    if key == "node":
        return list(range(len(nodes)))
    if not key:
        return [0] * len(nodes)
    return [number.setdefault(n.labels[key], len(number)) if key in n.labels else -1 for n in nodes]


def _gangs(instance: Any) -> list[_Rule]:
    found, node = [], {node.name: node for node in instance.nodes}
    for gang in instance.gangs:
        pods = [p for p, pod in enumerate(instance.pods) if pod.gang == gang.name]
        key = gang.within or ""
        at = {instance.pods[p].node for p in pods} - {None}
        if key and at:  # running pods in different domains stay there
            where = {name if key == "node" else node[name].labels.get(key) for name in at}
            key = key if len(where) == 1 and None not in where else ""
        found.append(_Rule(GANG, gang.says, key, len(pods), pods, [1] * len(pods)))
    return found


def _spreads(instance: Any) -> list[_Rule]:
    found = []
    for spread in instance.spreads:
        pods = [p for p, pod in enumerate(instance.pods) if spread.name in pod.spreads]
        for what, limit in ((MOST, spread.most), (SKEW, spread.skew)):
            if limit is not None:
                found.append(_Rule(what, spread.says, spread.over, limit, pods, [1] * len(pods)))
    return found


def _quotas(instance: Any) -> list[_Rule]:
    found = []
    largest = max((rational(node.card_gb) for node in instance.nodes), default=Fraction(0)) or Fraction(1)
    for queue in instance.queues:
        pods = [p for p, pod in enumerate(instance.pods) if pod.queue == queue.name]
        for field in ("gpus", "cpu_cores", "memory_gb", "pods"):
            if (limit := getattr(queue, field)) is None:
                continue
            asked = [_asked(instance.pods[p], field, largest) for p in pods]
            units, held, _ = in_units(asked, [rational(limit), sum(asked, Fraction(0))])
            mine = [(p, u) for p, u in zip(pods, units, strict=True) if u]
            name = f"{field} of {queue.says}"
            found.append(_Rule(QUOTA, name, "", held[0], [p for p, _ in mine], [u for _, u in mine]))
    return found


def _resources(instance: Any) -> list[_Rule]:
    found = []
    for resource in instance.resources:
        name = resource.name
        pods = [p for p, pod in enumerate(instance.pods) if pod.resources.get(name)]
        has = [node.resources.get(name, 0) for node in instance.nodes] if resource.amount is None else None
        limit = resource.amount if has is None else max(has)
        amounts = [instance.pods[p].resources[name] for p in pods]
        found.append(_Rule(QUOTA, resource.says, resource.over, limit, pods, amounts, has))
    return found


def _asked(pod: Any, field: str, largest: Fraction) -> Fraction:
    """Return the amount of a pod in a quota."""
    if field == "pods":
        return Fraction(1)
    if field != "gpus":
        return rational(getattr(pod, field))
    share: Fraction = rational(pod.gpu_share) + rational(pod.gpu_memory_gb) / largest
    return share * int(pod.gpu_cards)
