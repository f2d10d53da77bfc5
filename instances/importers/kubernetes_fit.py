"""What nodes have left for pods: extended resources, storage, pods per node, ports of the host, volumes."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from flowlex.instances.importers.kubernetes_draft import Draft
from flowlex.instances.importers.kubernetes_objects import ANY_ERROR, KubePod, label_map
from flowlex.instances.importers.kubernetes_resources import shown
from flowlex.instances.importers.kubernetes_selectors import matches_node
from flowlex.instances.pod_group_rules import PodResource

__all__ = ["read_capacities", "read_volumes"]

_ANY = "0.0.0.0"
#: Labels of nodes and volumes that name zone and region, older names too, and the names of today.
_PLACES = {
    f"{prefix}/{what}": f"topology.kubernetes.io/{what}"
    for prefix in ("failure-domain.beta.kubernetes.io", "topology.kubernetes.io")
    for what in ("zone", "region")
}


def read_capacities(draft: Draft, stated: frozenset[str]) -> dict[str, dict[str, int]]:
    """Close nodes to pods that ask for more than is left there; by node, capacities that pods compete for.

    ``stated`` are resources that the instance has fields for: of these only what a node does not have closes it.
    """
    short = dict[tuple[str, int], int]()
    has = {name: node.allocatable for name, node in draft.cluster.nodes.items()}
    for pod in draft.waiting:
        for what, amount in pod.requests.items():
            left = has if what in stated else draft.free
            if (what, amount) not in short:
                short[what, amount] = draft.mask(n for n in draft.names if amount > left[n].get(what, 0))
            open_to = draft.allowed[pod.name] & draft.usable
            if not open_to & ~short[what, amount]:
                most = max((left[n].get(what, 0) for n in draft.names if draft.bit[n] & open_to), default=0)
                said = f"it asks for {shown(what, amount)}, the most is {shown(what, max(0, most))}"
                draft.cluster.leave(pod, f"no node that it may run on has enough {what}: {said}")
            draft.forbid(pod, short[what, amount], "no node is left")
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
        use = {pod.name: min(pod.requests.get(what, 0), has[str(pod.node)]) for pod in draft.cluster.running}
        use |= {pod.name: pod.requests.get(what, 0) for pod in waiting}
        unit = math.gcd(*has.values(), *use.values()) or 1
        for name, amount in has.items():
            found.setdefault(name, {})[what] = amount // unit
        draft.add_resource(PodResource(name=what), {name: amount // unit for name, amount in use.items()})


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
            for name in draft.names:
                found.setdefault(name, {})[what] = 1
            taken = {(protocol, port, address), (protocol, port, _ANY)}
            pods = (*draft.cluster.running, *draft.waiting)
            draft.add_resource(PodResource(name=what), {pod.name: 1 for pod in pods if taken & pod.ports})


Item = Mapping[str, Any]
_UNTOLD = "volume claims that could not be looked up (their objects are not listed; taken to bind anywhere)"


def read_volumes(draft: Draft) -> None:
    """Restrict pods to the nodes that reach their volumes; pods whose claims cannot be bound yet stay pending."""
    listed = draft.cluster.others
    single: dict[str, list[str]] = {}
    for pod in draft.cluster.running:
        with contextlib.suppress(*ANY_ERROR):
            for name in _claims(pod):
                single.setdefault(name, []).append(pod.name)

    def reach(pod: KubePod) -> None:
        for name in _claims(pod):
            if "PersistentVolumeClaim" not in listed:
                draft.cluster.counts[_UNTOLD] += 1
                continue
            claim = _find(listed["PersistentVolumeClaim"], name)
            if claim is None or claim["metadata"].get("deletionTimestamp"):
                draft.cluster.leave(pod, f"its volume claim {name} does not exist or is being deleted")
                return
            if "ReadWriteOncePod" in ((claim.get("spec") or {}).get("accessModes") or ()):
                _alone(draft, pod, name, single)
            _bind(draft, pod, name, claim)

    draft.each(reach)


def _alone(draft: Draft, pod: KubePod, name: str, single: dict[str, list[str]]) -> None:
    """A claim that one pod may use at a time."""
    users = single.setdefault(name, [])
    if users:
        draft.cluster.leave(pod, f"its volume claim {name} is for one pod, and {users[0]} has it or goes first")
    users.append(pod.name)


def _claims(pod: KubePod) -> list[str]:
    """Names of the claims of a pod, with their namespace."""
    found = []
    for volume in pod.spec.get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            found.append(f"{pod.namespace}/{volume['persistentVolumeClaim']['claimName']}")
        elif volume.get("ephemeral"):
            found.append(f"{pod.name}-{volume['name']}")
    return found


def _find(items: list[Item], name: str) -> Item | None:
    space, _, own = name.rpartition("/")
    for item in items:
        meta = item["metadata"]
        if meta["name"] == own and (not space or (meta.get("namespace") or "default") == space):
            return item
    return None


def _bind(draft: Draft, pod: KubePod, name: str, claim: Item) -> None:
    listed, spec = draft.cluster.others, claim.get("spec") or {}
    if spec.get("volumeName"):
        if "PersistentVolume" not in listed:
            draft.cluster.counts[_UNTOLD] += 1
            return
        volume = _find(listed["PersistentVolume"], str(spec["volumeName"]))
        if volume is None:
            draft.cluster.leave(pod, f"the volume of its claim {name} does not exist")
            return
        required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
        _restrict(draft, pod, name, required)
        _keep_zone(draft, pod, name, label_map(volume["metadata"]))
        return
    if "StorageClass" not in listed:
        draft.cluster.counts[_UNTOLD] += 1
        return
    storage = _find(listed["StorageClass"], str(spec.get("storageClassName") or ""))
    if storage is None or storage.get("volumeBindingMode") != "WaitForFirstConsumer":
        draft.cluster.leave(pod, f"its volume claim {name} is not bound yet")
    elif storage.get("provisioner") == "kubernetes.io/no-provisioner":
        draft.cluster.leave(pod, f"its volume claim {name} chooses among local volumes, which is not read")
    elif topologies := storage.get("allowedTopologies"):
        terms = [
            {
                "matchExpressions": [
                    {"key": each["key"], "operator": "In", "values": each["values"]}
                    for each in term.get("matchLabelExpressions") or ()
                ]
            }
            for term in topologies
        ]
        _restrict(draft, pod, name, {"nodeSelectorTerms": terms})


def _keep_zone(draft: Draft, pod: KubePod, name: str, labels: Mapping[str, str]) -> None:
    """Only nodes in the zones and regions that labels of a volume name, or in none at all (VolumeZone)."""
    places = {key: labels[key].split("__") for key in _PLACES if key in labels}
    there = 0
    for node in draft.cluster.nodes.values():
        of = node.labels
        if not of.keys() & _PLACES.keys() or all(of.get(k, of.get(_PLACES[k])) in v for k, v in places.items()):
            there |= draft.bit[node.name]
    draft.forbid(pod, ~there, f"the volume of its claim {name} is in a zone that no node that takes it is in")


def _restrict(draft: Draft, pod: KubePod, name: str, required: Item | None) -> None:
    """Only nodes that a volume's node affinity selects."""
    if required is None:
        return
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    there = sum(draft.bit[n] for n, node in draft.cluster.nodes.items() if matches_node(spec, n, node.labels))
    draft.forbid(pod, ~there, f"the volume of its claim {name} is reached from no node that takes it")
