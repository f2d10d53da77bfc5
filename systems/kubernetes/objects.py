"""Nodes and pods of a cluster, read one by one with only the fields that matter for a binding.

A malformed object does not stop the import: it is counted, with its place and the reason.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from flowlex.formulations.gc_pause import collector_paused
from flowlex.instances.instance_base import InstanceError
from flowlex.systems.kubernetes.documents import COMMAND, objects_of
from flowlex.systems.kubernetes.resources import Amounts, allocatable, host_ports, limits, requests
from flowlex.systems.kubernetes.selectors import Taint, matches_node, tolerates
from flowlex.systems.kubernetes.version_fields import as_of, minor_version

Item = Mapping[str, Any]
_T = TypeVar("_T")
#: Exceptions from reading an object that does not have the documented Kubernetes structure.
ANY_ERROR = (KeyError, TypeError, AttributeError, ValueError, OverflowError)
_NOT_READY = "node.kubernetes.io/not-ready"
_CONDITIONS = {
    "Ready": ("True", _NOT_READY),
    "NetworkUnavailable": ("False", "node.kubernetes.io/network-unavailable"),
}
#: Fields of a pod that are read, and those of the objects in its lists.
_POD_FIELDS = {
    "metadata": "name namespace labels annotations creationTimestamp deletionTimestamp ownerReferences "
    "resourceVersion uid",
    "spec": "nodeName nodeSelector affinity tolerations topologySpreadConstraints priority priorityClassName "
    "preemptionPolicy overhead resources containers initContainers volumes schedulingGates resourceClaims hostNetwork "
    "terminationGracePeriodSeconds activeDeadlineSeconds schedulerName",
    "status": "phase conditions resize containerStatuses initContainerStatuses nominatedNodeName",
}
_LISTED_FIELDS = {
    "containers": "name resources ports restartPolicy",
    "initContainers": "name resources ports restartPolicy",
    "volumes": "name persistentVolumeClaim ephemeral gcePersistentDisk awsElasticBlockStore iscsi rbd azureDisk cinder "
    "vsphereVolume portworxVolume",
    "conditions": "type status reason lastTransitionTime",
    "containerStatuses": "name resources allocatedResources",
    "initContainerStatuses": "name resources allocatedResources",
}
_POD = {part: tuple(fields.split()) for part, fields in _POD_FIELDS.items()}
_LISTED = {name: tuple(fields.split()) for name, fields in _LISTED_FIELDS.items()}
_POD_CONDITIONS = ("Ready", "PodResizePending", "PodScheduled")
_IN_STATUS = ("containerStatuses", "initContainerStatuses")
#: Phases of pods that have ended.
ENDED = ("Succeeded", "Failed")
_OTHERS = (
    *("CSIDriver", "CSINode", "CSIStorageCapacity", "Namespace", "PersistentVolume", "PersistentVolumeClaim"),
    *("PodDisruptionBudget", "PodGroup", "PriorityClass", "ResourceQuota", "StorageClass"),
    *("VolumeAttachment", "Workload"),
)
#: Priorities of the classes that every cluster has.
_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclass(frozen=True, eq=False)
class KubeNode:
    """A node: its labels, the taints that exclude pods, and its allocatable resources."""

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    """Taints of its specification that exclude pods."""
    closed: tuple[Taint, ...]
    """Further taints from its state that pods must tolerate: cordoned, not ready."""
    allocatable: Amounts
    """Empty if it could not be read; the node then takes no pod."""

    def open_to(self, spec: Item) -> bool:
        """Whether a pod tolerates its taints."""
        return all(tolerates(spec.get("tolerations") or (), taint) for taint in (*self.taints, *self.closed))


class Kind(NamedTuple):
    """The properties that pod selectors use; pods of one kind are matched at once."""

    namespace: str
    labels: frozenset[tuple[str, str]]


@dataclass(frozen=True, eq=False)
class KubePod:
    """A pod that has not ended."""

    name: str
    """``namespace/name``."""
    item: Item
    spec: Item
    """Its specification without the node; pods of one template share it."""
    node: str | None = None
    """Where it runs or is bound to."""
    priority: int = 0
    memo: dict[str, Any] = field(default_factory=dict)
    """Cached results about the specification, for all pods that share it."""

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.name.partition("/")[0]

    @property
    def ending(self) -> bool:
        """Whether it is being deleted."""
        return self.item["metadata"].get("deletionTimestamp") is not None

    @property
    def static(self) -> bool:
        """Whether the kubelet of its node runs it regardless of the Pod object."""
        owners = self.item["metadata"].get("ownerReferences") or ()
        return "kubernetes.io/config.mirror" in self.notes or any(
            isinstance(owner, dict) and owner.get("kind") == "Node" for owner in owners
        )

    @property
    def preempts(self) -> bool:
        """Whether other pods may be stopped for it."""
        return self.spec.get("preemptionPolicy") != "Never"

    @property
    def scheduler(self) -> str:
        """The scheduler that shall bind it."""
        return str(self.spec.get("schedulerName") or "default-scheduler")[:100]

    @property
    def since(self) -> str:
        """Since when it waits, as the API server says: the time of the condition PodScheduled, or of its creation."""
        conditions = (self.item.get("status") or {}).get("conditions") or ()
        tried = [str(each["lastTransitionTime"]) for each in conditions if each.get("lastTransitionTime")]
        return next(iter(tried), str(self.item["metadata"].get("creationTimestamp") or ""))

    @cached_property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return label_map(self.item["metadata"])

    @cached_property
    def kind(self) -> Kind:
        """The properties that selectors use."""
        return Kind(self.namespace, frozenset(self.labels.items()))

    @cached_property
    def notes(self) -> dict[str, Any]:
        """Its annotations."""
        return dict(self.item["metadata"].get("annotations") or {})

    @cached_property
    def requests(self) -> Amounts:
        """Resources that the scheduler reserves for it; ``pods`` counts the pod itself."""
        return self._resizable("requests", lambda item: requests(item) | {"pods": 1})

    @cached_property
    def limits(self) -> Amounts:
        """Its limits, as quotas count them."""
        return self._resizable("limits", limits)

    @cached_property
    def ports(self) -> set[tuple[str, int, str]]:
        """Ports of the node that it takes."""
        return self._shared("ports", host_ports)

    def _resizable(self, what: str, work: Callable[[Item], Amounts]) -> Amounts:
        status = self.item.get("status") or {}
        return work(self.item) if any(status.get(name) for name in _IN_STATUS) else self._shared(what, work)

    def _shared(self, what: str, work: Callable[[Item], _T]) -> _T:
        """Compute a value once for all pods of one specification."""
        if what not in self.memo:
            self.memo[what] = work(self.item)
        found: _T = self.memo[what]
        return found

    def rules(self, kind: str) -> list[Item]:
        """Required terms of ``podAffinity`` or ``podAntiAffinity``."""
        affinity = (self.spec.get("affinity") or {}).get(kind) or {}
        return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ())

    def chooses(self, node: KubeNode) -> bool:
        """Whether its selector and node affinity name a node."""
        return matches_node(self.spec, node.name, node.labels)


@dataclass(eq=False)
class Cluster:
    """The state of the cluster, as read from the objects."""

    nodes: dict[str, KubeNode] = field(default_factory=dict)  # by name
    # pods that are bound to a listed node: given, even if they violate rules
    running: list[KubePod] = field(default_factory=list)
    waiting: list[KubePod] = field(default_factory=list)  # pods to be placed
    others: dict[str, list[Item]] = field(default_factory=dict)  # all other objects by kind
    pending: dict[str, str] = field(default_factory=dict)  # pods that stay pending, and why
    # number of left-out objects, by (kind in singular, description)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def leave(self, pod: KubePod, reason: str) -> None:
        """Leave a pod pending."""
        self.pending.setdefault(pod.name, reason)


def label_map(meta: Item) -> dict[str, str]:
    """Labels of an object."""
    return {str(key): str(value) for key, value in (meta.get("labels") or {}).items()}


@collector_paused()
def read_cluster(path: str | Path) -> Cluster:
    """Read the objects; nodes and pods that cannot be understood are left out and counted."""
    cluster, strange, damaged = Cluster(), list[str](), list[str]()
    pods, minor = list[tuple[Item, str]](), 0
    for kind, item, place in objects_of(path):
        if kind == "Node":
            try:
                node = read_node(item)
            except ANY_ERROR as error:
                damaged.append(f"{place}: {_reason(error)}")
                continue
            if node.name in cluster.nodes:
                cluster.counts["node", f"listed twice, such as {node.name!r}"] += 1
            cluster.nodes.setdefault(node.name, node)
            minor = max(minor, minor_version(item))
        elif kind == "Pod":
            pods.append((relevant_fields(item), place))
        elif kind == "Status":  # instead of a list, the API server said why there is none
            said = f"{item.get('message') or item.get('status') or 'no message'} ({item.get('reason') or 'no reason'})"
            raise InstanceError(f"the API server answered: {said}; list the objects again", path=path)
        elif kind in _OTHERS:
            cluster.others.setdefault(kind, []).append(item)
        elif not kind:
            strange.append(place if not strange else "")
    if strange:
        cluster.counts["object", f"without a kind, the first at {strange[0]}"] = len(strange)
    if damaged:
        cluster.counts["node", f"that cannot be read, where no pod is placed, the first: {damaged[0]}"] = len(damaged)
    if not cluster.nodes:
        reason = damaged[0] if damaged else f"it has no Node; {COMMAND} together with the pods"
        raise InstanceError(reason, path=path)
    _sort_pods(cluster, pods, minor)
    return cluster


def relevant_fields(item: Item) -> Item:
    """Return a pod with only the fields that are read; parts of unexpected structure stay unchanged."""
    found = {part: _only(item.get(part), fields) for part, fields in _POD.items()}
    meta, spec, status = found.values()
    for part, name in ((spec, "volumes"), *((status, name) for name in _IN_STATUS)):  # a name alone says nothing
        if isinstance(part, dict) and isinstance(part.get(name), list):
            part[name] = [each for each in part[name] if not isinstance(each, dict) or len(each) > 1]
    if isinstance(status, dict) and isinstance(listed := status.get("conditions"), list):
        status["conditions"] = [
            each for each in listed if not isinstance(each, dict) or each.get("type") in _POD_CONDITIONS
        ]
    if isinstance(meta, dict) and isinstance(meta.get("annotations"), dict):
        meta["annotations"] = {k: v for k, v in meta["annotations"].items() if len(str(v)) < 1000}
    return found


def _only(item: Any, keys: tuple[str, ...]) -> Any:
    """Copy an object and the objects in its lists with only some of their fields."""
    if not isinstance(item, dict):
        return item
    found = {key: item[key] for key in keys if key in item}
    for key, inner in _LISTED.items():
        if isinstance(listed := found.get(key), list):
            found[key] = [_only(each, inner) for each in listed]
    return found


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError(f"a name must be text, got {str(name)[:40]!r}")
    return name


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError | TypeError | AttributeError):
        return f"a field is missing or of another type ({error})"
    return str(error)


def read_node(item: Item) -> KubeNode:
    """Read a Node; raises one of `ANY_ERROR` where it has no meaning."""
    meta, spec, status = item["metadata"], item.get("spec") or {}, item["status"]
    listed = [Taint(str(t["key"]), str(t.get("value") or ""), str(t["effect"])) for t in spec.get("taints") or ()]
    taints = [taint for taint in listed if taint.effect in ("NoSchedule", "NoExecute")]
    closed = [Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")] if spec.get("unschedulable") else []
    for condition in status.get("conditions") or ():
        good, key = _CONDITIONS.get(condition.get("type"), (None, ""))
        if good is not None and condition.get("status") != good:
            if condition.get("status") == "Unknown" and key == _NOT_READY:
                key = "node.kubernetes.io/unreachable"
            closed.append(Taint(key, "", "NoSchedule"))
    known = {(taint.key, taint.effect) for taint in taints}
    closed = [taint for taint in closed if (taint.key, taint.effect) not in known]
    return KubeNode(str(meta["name"]), label_map(meta), tuple(dict.fromkeys(taints)), tuple(closed), allocatable(item))


def _sort_pods(cluster: Cluster, pods: list[tuple[Item, str]], minor: int) -> None:
    """Separate pods that run from those that wait and those that are left out."""
    seen: dict[str, str] = {}
    shared: dict[str, tuple[Item, dict[str, Any]]] = {}
    classes = _priorities(cluster.others.get("PriorityClass", ()))
    for item, place in sorted(pods, key=lambda pod: not _bound(pod[0])):
        try:
            if (item.get("status") or {}).get("phase") in ENDED:
                continue
            pod = read_pod(item, minor, classes, shared)
        except ANY_ERROR as error:
            cluster.counts["pod", f"that cannot be read, such as {place}: {_reason(error)}"] += 1
            continue
        name = pod.name
        if name in seen:
            cluster.counts["pod", f"of a name that is taken, such as {place}"] += 1
            if pod.node is None:  # keep the first one
                continue
            pod = replace(pod, name=f"{name} ({place.partition(' ')[0]})")
        seen[name] = place
        if pod.node is None:
            _wait(cluster, pod)
        elif pod.node in cluster.nodes:
            cluster.running.append(pod)
        else:
            cluster.counts["pod", "running on a node that is not listed"] += 1


def read_pod(
    item: Item,
    minor: int = 0,
    classes: tuple[Mapping[str | None, int], Collection[str]] | None = None,
    shared: dict[str, tuple[Item, dict[str, Any]]] | None = None,
) -> KubePod:
    """Read a Pod; raises one of `ANY_ERROR` where it has no meaning.

    ``minor`` is the version of the cluster; ``classes`` are the priorities by class and the classes that never preempt,
    None: those of every cluster; pods of equal specifications share them through ``shared``.
    """
    meta = item["metadata"]
    name = f"{_text(meta.get('namespace') or 'default')}/{_text(meta['name'])}"
    item = as_of(item, minor)
    spec = item["spec"]
    node = spec.pop("nodeName", None) or None
    priorities, never = classes or _priorities(())
    if spec.get("priorityClassName") in never:
        spec.setdefault("preemptionPolicy", "Never")
    if shared is None:
        memo = dict[str, Any]()
    else:
        spec, memo = shared.setdefault(json.dumps(spec, sort_keys=True), (spec, {}))
    pod = KubePod(name, {**item, "spec": spec}, spec, node, _priority(spec, priorities), memo)
    _ = pod.ending, pod.labels, pod.notes
    return pod


def _bound(item: Item) -> bool:
    spec = item.get("spec")
    return isinstance(spec, dict) and bool(spec.get("nodeName"))


def _wait(cluster: Cluster, pod: KubePod) -> None:
    """Add a waiting pod; leave it pending if it may not be scheduled or its requests cannot be read."""
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


def _priorities(classes: Any) -> tuple[dict[str | None, int], set[str]]:
    """Return priorities by class (None: pods without a class), and the classes whose pods never preempt."""
    found, never = dict[str | None, int](_CLASSES.items()), set[str]()
    for each in classes:
        try:
            name = str(each["metadata"]["name"])
            never |= {name} if each.get("preemptionPolicy") == "Never" else set()
            found |= dict.fromkeys((name, None) if each.get("globalDefault") else (name,), int(each["value"]))
        except ANY_ERROR:
            continue
    return found, never


def _priority(spec: Item, known: Mapping[str | None, int]) -> int:
    stated = spec.get("priority")
    found = known.get(spec.get("priorityClassName") or None, 0) if stated is None else int(stated)
    return max(-(2**31), min(2**31 - 1, found))
