"""Volumes that decide where a pod may run: claims, the volumes that they are bound to, and storage classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowlex.instances.importers.kubernetes_draft import Draft
from flowlex.instances.importers.kubernetes_objects import ANY_ERROR, KubePod
from flowlex.instances.importers.kubernetes_selectors import matches_node

__all__ = ["read_volumes"]

Item = Mapping[str, Any]
_UNTOLD = "volume claims that could not be looked up (their objects are not listed; taken to bind anywhere)"


def read_volumes(draft: Draft) -> None:
    """Restrict pods to the nodes that reach their volumes; pods whose claims cannot be bound yet stay pending."""
    listed = draft.cluster.others
    single: dict[str, list[str]] = {}
    for pod in draft.cluster.running:
        for name in _known_claims(pod):
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


def _known_claims(pod: KubePod) -> list[str]:
    try:
        return _claims(pod)
    except ANY_ERROR:
        return []


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


def _restrict(draft: Draft, pod: KubePod, name: str, required: Item | None) -> None:
    """Only nodes that a volume's node affinity selects."""
    if required is None:
        return
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    there = sum(draft.bit[n] for n, node in draft.cluster.nodes.items() if matches_node(spec, n, node.labels))
    draft.forbid(pod, ~there, f"the volume of its claim {name} is reached from no node that takes it")
