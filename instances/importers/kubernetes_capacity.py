"""Resources beside cores, memory and cards: extended ones, storage, pods per node, ports of the host."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from flowlex.instances.importers.kubernetes_draft import Draft
from flowlex.instances.importers.kubernetes_objects import KubePod
from flowlex.instances.pod_rules import PodResource

__all__ = ["read_capacities"]

_ANY = "0.0.0.0"


def read_capacities(draft: Draft, stated: frozenset[str]) -> dict[str, dict[str, int]]:
    """Close nodes to pods that ask for more than is left there; by node, capacities that pods compete for.

    ``stated`` are resources that the instance has fields for: of these only what a node does not have closes it.
    """
    free, short = draft.free, dict[tuple[str, int], int]()
    for pod in draft.waiting:
        for what, amount in pod.requests.items():
            if (what, amount) not in short:
                has = {n: draft.cluster.nodes[n].allocatable if what in stated else free[n] for n in draft.names}
                short[what, amount] = draft.mask(n for n in draft.names if amount > has[n].get(what, 0))
            draft.forbid(pod, short[what, amount], f"no node that it may run on has enough {what} left")
    found: dict[str, dict[str, int]] = {}
    _contended(draft, stated, found)
    _ports(draft, found)
    return found


def _contended(draft: Draft, stated: frozenset[str], found: dict[str, dict[str, int]]) -> None:
    asked: Counter[str] = Counter()
    waiting = draft.waiting
    for pod in waiting:
        asked.update(pod.requests)
    for what in sorted(asked.keys() - stated):
        reached = 0
        for pod in waiting:
            reached |= draft.allowed[pod.name] if pod.requests.get(what) else 0
        within = [draft.free[name] for name in draft.names if draft.bit[name] & reached & draft.usable]
        if all(left.get(what, 0) >= asked[what] for left in within):
            continue
        has = {name: draft.cluster.nodes[name].allocatable.get(what, 0) for name in draft.names}
        _compete(draft, found, what, has, {pod.name: pod.requests.get(what, 0) for pod in waiting}, waiting)


def _compete(
    draft: Draft,
    found: dict[str, dict[str, int]],
    what: str,
    has: Mapping[str, int],
    asked: Mapping[str, int],
    waiting: list[KubePod],
) -> None:
    """A resource of the nodes, in its largest common unit; running pods use what they have."""
    used = {pod.name: min(pod.requests.get(what, 0), has[str(pod.node)]) for pod in draft.cluster.running}
    unit = math.gcd(*has.values(), *asked.values(), *used.values()) or 1
    for name, amount in has.items():
        found.setdefault(name, {})[what] = amount // unit
    draft.resources.append(PodResource(name=what))
    for pod in (*waiting, *draft.cluster.running):
        amount = asked.get(pod.name, 0) or used.get(pod.name, 0)
        if amount:
            draft.resources_of.setdefault(pod.name, {})[what] = amount // unit


def _ports(draft: Draft, found: dict[str, dict[str, int]]) -> None:
    """A port of a node is a resource of one unit for each address that is named; all addresses together are each."""
    named: dict[tuple[str, int], set[str]] = {}
    waits: Counter[tuple[str, int]] = Counter()
    for pod in (*draft.cluster.running, *draft.waiting):
        for protocol, port, address in pod.ports:
            named.setdefault((protocol, port), set()).add(address)
    for pod in draft.waiting:
        waits.update({(protocol, port) for protocol, port, _ in pod.ports})
    for (protocol, port), addresses in sorted(named.items()):
        if not waits[protocol, port]:
            continue
        for address in sorted(addresses - {_ANY} or {_ANY}):
            what = f"port {port}/{protocol} of {address}"
            draft.resources.append(PodResource(name=what))
            for name in draft.names:
                found.setdefault(name, {})[what] = 1
            for pod in (*draft.cluster.running, *draft.waiting):
                if {(protocol, port, address), (protocol, port, _ANY)} & pod.ports:
                    draft.resources_of.setdefault(pod.name, {})[what] = 1
