"""Objects of a cluster as ``kubectl`` prints them: documents taken apart, nodes and pods read one by one.

No single object ends a reading: what cannot be understood is counted, with its place and the reason.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from flowlex.instances.base import InstanceError
from flowlex.instances.importers.kubernetes_resources import Amounts, allocatable, host_ports, requests
from flowlex.instances.importers.kubernetes_selectors import Taint, matches_node, tolerates
from flowlex.instances.storage import read_bytes

__all__ = ["ANY_ERROR", "Cluster", "KubeNode", "KubePod", "label_map", "objects_of", "read_cluster"]

Item = Mapping[str, Any]
#: What an object of another shape than Kubernetes documents raises when it is read.
ANY_ERROR = (KeyError, TypeError, AttributeError, ValueError, OverflowError)
_COMMAND = "`kubectl get nodes,pods -A -o json` prints them"
_CONDITIONS = {
    "Ready": ("True", "node.kubernetes.io/not-ready"),
    "NetworkUnavailable": ("False", "node.kubernetes.io/network-unavailable"),
}
#: Priorities of the classes that every cluster has.
_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclass(frozen=True, eq=False)
class KubeNode:
    """A node: its labels, the taints that keep pods away, what pods may request."""

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    """Those of its specification that keep pods away."""
    closed: tuple[Taint, ...]
    """What it has to be tolerated for beside them: cordoned, not ready."""
    allocatable: Amounts
    """Empty where it could not be read: the node takes no pod."""

    def open_to(self, spec: Item) -> bool:
        """Whether a pod tolerates its taints."""
        return all(tolerates(spec.get("tolerations") or (), taint) for taint in (*self.taints, *self.closed))


@dataclass(frozen=True, eq=False)
class KubePod:
    """A pod that has not ended."""

    name: str
    """``namespace/name``."""
    item: Item
    priority: int = 0

    @cached_property
    def spec(self) -> Item:
        """Its specification."""
        return self.item["spec"]  # type: ignore[no-any-return]

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.name.partition("/")[0]

    @property
    def node(self) -> str | None:
        """Where it runs or is bound to."""
        return self.spec.get("nodeName") or None

    @property
    def ending(self) -> bool:
        """Whether it is being deleted."""
        return self.item["metadata"].get("deletionTimestamp") is not None

    @cached_property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return label_map(self.item["metadata"])

    @cached_property
    def notes(self) -> dict[str, Any]:
        """Its annotations."""
        return dict(self.item["metadata"].get("annotations") or {})

    @cached_property
    def requests(self) -> Amounts:
        """What the scheduler reserves for it; ``pods`` is the pod itself."""
        return requests(self.item) | {"pods": 1}

    @cached_property
    def ports(self) -> set[tuple[str, int, str]]:
        """Ports of the node that it takes."""
        return host_ports(self.item)

    def rules(self, kind: str) -> list[Item]:
        """Required terms of ``podAffinity`` or ``podAntiAffinity``."""
        affinity = (self.spec.get("affinity") or {}).get(kind) or {}
        return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ())

    def chooses(self, node: KubeNode) -> bool:
        """Whether its selector and node affinity name a node."""
        return matches_node(self.spec, node.name, node.labels)


@dataclass(eq=False)
class Cluster:
    """What the objects say.

    Attributes
    ----------
    nodes
        By name.
    running
        Pods that are bound to a listed node: facts, whatever rules say.
    waiting
        Pods to be placed.
    others
        All other objects by kind.
    pending
        Pods that stay pending, and why.
    counts
        What was left out, and how often.
    """

    nodes: dict[str, KubeNode] = field(default_factory=dict)
    running: list[KubePod] = field(default_factory=list)
    waiting: list[KubePod] = field(default_factory=list)
    others: dict[str, list[Item]] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def leave(self, pod: KubePod, reason: str) -> None:
        """Leave a pod pending."""
        self.pending.setdefault(pod.name, reason)

    def drop_pending(self) -> None:
        """Take out of ``waiting`` what is left pending."""
        self.waiting = [pod for pod in self.waiting if pod.name not in self.pending]


def label_map(meta: Item) -> dict[str, str]:
    """Labels of an object."""
    return {str(key): str(value) for key, value in (meta.get("labels") or {}).items()}


def _documents(path: str | Path) -> Iterator[Any]:
    """The JSON documents of a file, one after the other."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InstanceError(f"not UTF-8 text (byte {error.start}); {_COMMAND}", path=path) from error
    decoder, at = json.JSONDecoder(), 0
    if text.lstrip()[:1] not in ("{", "["):
        raise InstanceError("it is not JSON; write the objects with `-o json` instead of YAML", path=path)
    try:
        while text[at:].strip():
            at += len(text[at:]) - len(text[at:].lstrip())
            document, at = decoder.raw_decode(text, at)
            yield document
    except json.JSONDecodeError as error:
        cut = " (cut off?)" if not text[error.pos :].strip() or error.msg.startswith("Unterminated") else ""
        reason = f"damaged JSON{cut}: {error.msg}; write the objects again: {_COMMAND}"
        raise InstanceError(reason, place=f"line {error.lineno} column {error.colno}", path=path) from error
    except (RecursionError, ValueError) as error:
        reason = f"it is no List of objects ({type(error).__name__}); {_COMMAND}"
        raise InstanceError(reason, path=path) from error


def objects_of(path: str | Path) -> list[tuple[str, Any, str]]:
    """Kind, object and place of everything listed, Lists within Lists too; the kind is empty where there is none.

    Raises
    ------
    InstanceError
        There are no objects; names line and remedy.
    """
    found: list[tuple[str, Any, str]] = []
    stack = [("", document) for document in reversed(list(_documents(path)))]
    listed = False
    while stack:
        place, item = stack.pop()
        inner = item if isinstance(item, list) else item.get("items") if isinstance(item, dict) else None
        if isinstance(inner, list):
            listed = True
            base = place if isinstance(item, list) else f"{place}.items" if place else "items"
            stack += [(f"{base}[{k}]", each) for k, each in reversed(list(enumerate(inner)))]
            continue
        kind = item.get("kind") if isinstance(item, dict) else None
        kind = kind if isinstance(kind, str) and not kind.endswith("List") else ""
        meta = item.get("metadata") if isinstance(item, dict) else None
        name = meta.get("name") if isinstance(meta, dict) else None
        listed |= bool(kind)
        found.append(
            (kind, item, f"{place or 'the document'} ({kind or 'no kind'}{'' if name is None else f' {name}'})")
        )
    if not listed:
        raise InstanceError(f"it is no List of objects; {_COMMAND}", path=path)
    return found


def read_cluster(path: str | Path) -> Cluster:
    """Read the objects; nodes and pods that cannot be understood are left out and counted.

    Raises
    ------
    InstanceError
        There is no list of objects, or no node in it that can be read.
    """
    cluster, strange, damaged = Cluster(), list[str](), list[str]()
    pods: list[tuple[Item, str]] = []
    for kind, item, place in objects_of(path):
        if kind == "Node":
            try:
                node = _node(item)
            except ANY_ERROR as error:
                damaged.append(f"{place}: {_reason(error)}")
                continue
            if node.name in cluster.nodes:
                cluster.counts[f"nodes listed twice, such as {node.name!r}"] += 1
            cluster.nodes.setdefault(node.name, node)
        elif kind == "Pod":
            pods.append((item, place))
        elif kind:
            cluster.others.setdefault(kind, []).append(item)
        else:
            strange.append(place)
    if strange:
        cluster.counts[f"objects without a kind, the first at {strange[0]}"] = len(strange)
    if damaged:
        cluster.counts[f"nodes that cannot be read and take no pod, the first: {damaged[0]}"] = len(damaged)
    if not cluster.nodes:
        reason = damaged[0] if damaged else f"it has no Node; {_COMMAND} together with the pods"
        raise InstanceError(reason, path=path)
    _sort_pods(cluster, pods)
    return cluster


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError | TypeError | AttributeError):
        return f"a field is missing or of another type ({error})"
    return str(error)


def _node(item: Item) -> KubeNode:
    meta, spec, status = item["metadata"], item.get("spec") or {}, item["status"]
    listed = [Taint(str(t["key"]), str(t.get("value") or ""), str(t["effect"])) for t in spec.get("taints") or ()]
    taints = [taint for taint in listed if taint.effect in ("NoSchedule", "NoExecute")]
    closed = [Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")] if spec.get("unschedulable") else []
    for condition in status.get("conditions") or ():
        good, key = _CONDITIONS.get(condition.get("type"), (None, ""))
        if good is not None and condition.get("status") != good:
            closed.append(Taint(key, "", "NoSchedule"))
    known = {(taint.key, taint.effect) for taint in taints}
    closed = [taint for taint in closed if (taint.key, taint.effect) not in known]
    return KubeNode(str(meta["name"]), label_map(meta), tuple(dict.fromkeys(taints)), tuple(closed), allocatable(item))


def _sort_pods(cluster: Cluster, pods: list[tuple[Item, str]]) -> None:
    """Tell pods that run from those that wait and those that are left out."""
    seen: dict[str, str] = {}
    known = _priorities(cluster.others.get("PriorityClass", ()))
    for item, place in sorted(pods, key=lambda pod: not _bound(pod[0])):
        try:
            meta, spec = item["metadata"], item["spec"]
            name = f"{meta.get('namespace') or 'default'}/{meta['name']}"
            ended = (item.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            pod = KubePod(name, item, _priority(spec, known))
            _ = pod.node, pod.ending, pod.labels, pod.notes
        except ANY_ERROR as error:
            cluster.counts[f"pods that cannot be read, such as {place}: {_reason(error)}"] += 1
            continue
        if ended:
            continue
        if name in seen:
            cluster.counts[f"pods of a name that is taken, such as {place}"] += 1
            if pod.node is None:  # the other one is taken for it
                continue
            pod = KubePod(f"{name} ({place.partition(' ')[0]})", item, pod.priority)
        seen[name] = place
        if pod.node is None:
            _wait(cluster, pod)
        elif pod.node in cluster.nodes:
            cluster.running.append(pod)
        else:
            cluster.counts["pods that run on nodes which are not listed"] += 1


def _bound(item: Item) -> bool:
    spec = item.get("spec")
    return isinstance(spec, dict) and bool(spec.get("nodeName"))


def _wait(cluster: Cluster, pod: KubePod) -> None:
    """A pod that waits: to be placed, or left pending where it may not be scheduled or asks for the unknown."""
    cluster.waiting.append(pod)
    try:
        if pod.ending:
            cluster.leave(pod, "it is being deleted")
        elif pod.spec.get("schedulingGates"):
            gates = ", ".join(str(gate["name"]) for gate in pod.spec["schedulingGates"])
            cluster.leave(pod, f"scheduling gates hold it: {gates}")
        elif pod.spec.get("resourceClaims"):
            cluster.leave(pod, "it claims devices by ResourceClaims, which are not read")
        _ = pod.requests, pod.ports
    except ANY_ERROR as error:
        cluster.leave(pod, f"its requests cannot be read: {_reason(error)}")


def _priorities(classes: Any) -> dict[str | None, int]:
    found: dict[str | None, int] = dict(_CLASSES.items())
    for each in classes:
        try:
            found[str(each["metadata"]["name"])] = int(each["value"])
            if each.get("globalDefault"):
                found[None] = int(each["value"])
        except ANY_ERROR:
            continue
    return found


def _priority(spec: Item, known: Mapping[str | None, int]) -> int:
    stated = spec.get("priority")
    if stated is None:
        stated = known.get(spec.get("priorityClassName") or None, 0)
    return max(-(2**31), min(2**31 - 1, int(stated)))
