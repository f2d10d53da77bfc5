"""Free capacity of nodes: extended resources, storage, pods per node, attachable volumes, ports, disks."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from functools import cache

from flowlex.instances.group_rules import PodResource
from flowlex.systems.kubernetes.objects import ANY_ERROR, KubePod
from flowlex.systems.kubernetes.volumes import read_volumes
from flowlex.systems.kubernetes.waiting_pods import Draft

_ANY = "0.0.0.0"


def restrict_to_capacities(draft: Draft, stated: frozenset[str], *, stoppable: bool) -> None:
    """Exclude nodes with too little left for a pod.

    ``stated`` are resources with a field in the instance: for these, while running pods are ``stoppable``, only the
    node's total excludes it.
    """
    short = dict[tuple[str, int], int]()
    has = {name: node.allocatable for name, node in draft.cluster.nodes.items()}
    for pod in draft.waiting:
        for what, amount in pod.requests.items():
            left = has if what in stated and stoppable else draft.free
            if (what, amount) not in short:
                short[what, amount] = draft.mask(n for n in draft.names if amount > left[n].get(what, 0))
            draft.forbid(pod, short[what, amount], "")


def read_capacities(draft: Draft, stated: frozenset[str]) -> dict[str, dict[str, int]]:
    """Return, by node, the capacities that pods compete for, beside those that are ``stated`` in fields."""
    _close_nominated(draft)
    found: dict[str, dict[str, int]] = {}
    read_volumes(draft, found)
    _contended(draft, stated, found)
    _ports(draft, found)
    _disks(draft, found)
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
        use = {pod.name: min(pod.requests.get(what, 0), has[str(pod.node)]) for pod in draft.cluster.running}
        use |= {pod.name: pod.requests.get(what, 0) for pod in waiting}
        unit = math.gcd(*has.values(), *use.values()) or 1
        for name, amount in has.items():
            found.setdefault(name, {})[what] = amount // unit
        draft.add_resource(PodResource(name=what), {name: amount // unit for name, amount in use.items()})


def _ports(draft: Draft, found: dict[str, dict[str, int]]) -> None:
    """Make a port of a node a resource of one unit for each named address; ``0.0.0.0`` uses them all."""
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
            for name in draft.names:
                found.setdefault(name, {})[what] = 1
            taken = {(protocol, port, address), (protocol, port, _ANY)}
            pods = (*draft.cluster.running, *draft.waiting)
            draft.add_resource(PodResource(name=what), {pod.name: 1 for pod in pods if taken & pod.ports})


def _close_nominated(draft: Draft) -> None:
    """Reserve a node being freed for a pod (``nominatedNodeName``): exclude it for pods of no higher priority."""
    rooms: dict[str, list[KubePod]] = {}
    for pod in draft.cluster.waiting:
        node = str((pod.item.get("status") or {}).get("nominatedNodeName") or "")
        if node in draft.bit:
            rooms.setdefault(node, []).append(pod)
    named = {pod.name for pods in rooms.values() for pod in pods}

    @cache
    def closed(priority: int, own: str) -> int:
        before = {node for node, pods in rooms.items() if any(p.priority >= priority and p.name != own for p in pods)}
        return draft.mask(before)

    if rooms and not draft.stricter():
        return
    for pod in draft.waiting if rooms else ():
        nodes = closed(pod.priority, pod.name if pod.name in named else "")
        draft.forbid(pod, nodes, "where it may run, room is made for pods as important (nominatedNodeName)")


def _disks(draft: Draft, found: dict[str, dict[str, int]]) -> None:
    """Limit each disk that pods name directly: on a node, one pod uses it or several only read it."""
    users: dict[str, dict[str, bool]] = {}

    def note(pod: KubePod) -> None:
        for disk, writes in draft.state.volumes.of(pod).disks.items():
            users.setdefault(disk, {})[pod.name] = writes

    draft.each(note)
    running: dict[tuple[str, str], list[str]] = {}
    for pod in draft.cluster.running if users else ():
        with contextlib.suppress(*ANY_ERROR):
            for disk, writes in draft.state.volumes.of(pod).disks.items():
                if disk in users:
                    users[disk][pod.name] = writes
                    running.setdefault((disk, str(pod.node)), []).append(pod.name)
    for number, (disk, of) in enumerate(sorted(users.items()), 1):
        asked = {name: len(of) if writes else 1 for name, writes in of.items()}
        for (other, _), names in running.items():
            if other == disk:  # running pods are given: together they hold at most the amount
                asked |= dict.fromkeys(names, 1)
                asked |= {name: len(of) - len(names) + 1 for name in [n for n in names if of[n]][:1]}
        what = f"disk {number}, {disk}"[:150]
        for name in draft.names if len(of) > 1 else ():
            found.setdefault(name, {})[what] = len(of)
        if len(of) > 1:
            draft.add_resource(PodResource(name=what), asked)
