"""Volumes of pods: nodes with access to them, single-pod claims, and attachment limits of nodes."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from flowlex.instances.group_rules import PodResource
from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, KubePod, label_map
from flowlex.systems.kubernetes.resources import quantity
from flowlex.systems.kubernetes.selectors import matches_node, selects
from flowlex.systems.kubernetes.waiting_pods import Draft

Item = Mapping[str, Any]
_UNLIMITED = 2**31
#: Annotation with the node for which a volume is created.
_SELECTED = "volume.kubernetes.io/selected-node"
#: Labels of nodes and volumes for zone and region, including older names, and their current names.
_PLACES = {
    f"{prefix}/{what}": f"topology.kubernetes.io/{what}"
    for prefix in ("failure-domain.beta.kubernetes.io", "topology.kubernetes.io")
    for what in ("zone", "region")
}
_NO_DRIVERS = "volume claim", "of a driver whose limits on nodes are not known (no CSIDriver objects are listed)"
_UNLISTED = "volume claim", "that could not be looked up (taken to bind anywhere, as no such objects are listed)"


def count_attached(cluster: Cluster) -> None:
    """Make the attachment limit of a CSI driver a resource: nodes have the limit, pods request their volumes.

    A volume of several waiting pods counts for each of them.
    """
    limits: dict[str, dict[str, int]] = defaultdict(dict)
    for item in cluster.others.get("CSINode", ()):
        try:
            for driver in (item.get("spec") or {}).get("drivers") or ():
                if (most := (driver.get("allocatable") or {}).get("count")) is not None:
                    limits[f"volumes to attach of {driver['name']}"][str(item["metadata"]["name"])] = int(most)
        except ANY_ERROR:
            cluster.counts["CSINode", "that cannot be read"] += 1
    if not limits:
        return
    listed, seen = _listed(cluster), set[tuple[str, str]]()
    for pod in (*cluster.running, *cluster.waiting):
        with contextlib.suppress(*ANY_ERROR):
            claims = [each for each in _claims(pod) if (each, pod.node or pod.name) not in seen]
            seen |= {(each, pod.node or pod.name) for each in claims}
            drivers = [f"volumes to attach of {_driver(listed, each)}" for each in claims]
            asked = {what: drivers.count(what) for what in limits.keys() & {*drivers}}
            vars(pod)["requests"] = {k: v for k, v in pod.requests.items() if k not in limits} | asked
    for what, of in limits.items():
        for name, node in cluster.nodes.items():
            node.allocatable[what] = of.get(name, node.allocatable.get(what, _UNLIMITED))


def _driver(listed: Mapping[str, Mapping[str, Item]], claim: str) -> str | None:
    """Return the CSI driver of a claim, from its volume or else its storage class."""
    volumes, classes = listed.get("PersistentVolume", {}), listed.get("StorageClass", {})
    spec = listed.get("PersistentVolumeClaim", {}).get(claim, {}).get("spec") or {}
    if spec.get("volumeName"):
        driver = ((volumes.get(str(spec["volumeName"]), {}).get("spec") or {}).get("csi") or {}).get("driver")
    else:
        driver = classes.get(str(spec.get("storageClassName") or ""), {}).get("provisioner")
    return None if driver is None else str(driver)


def read_volumes(draft: Draft) -> None:
    """Restrict pods to nodes with access to their volumes; pods whose claims cannot be bound yet stay pending."""
    listed = _listed(draft.cluster)
    single: dict[str, list[str]] = {}
    unbound: dict[str, list[str]] = {}

    def reach(pod: KubePod) -> None:
        for name, made_for_it in _claims(pod).items():
            if "PersistentVolumeClaim" not in listed:
                draft.cluster.counts[_UNLISTED] += 1
                continue
            claim = listed["PersistentVolumeClaim"].get(name)
            if claim is None or claim["metadata"].get("deletionTimestamp"):
                draft.cluster.leave(pod, f"its volume claim {name} does not exist or is being deleted")
                return
            if made_for_it and not _owned(claim, pod):
                draft.cluster.leave(pod, f"its volume claim {name} was not made for it")
                return
            if "ReadWriteOncePod" in ((claim.get("spec") or {}).get("accessModes") or ()):
                single.setdefault(name, []).append(pod.name)
            elif not _chosen(claim):
                unbound.setdefault(name, []).append(pod.name)
            _bind(draft, listed, pod, name)

    draft.each(reach)
    shared = single | unbound
    for pod in draft.cluster.running if shared else ():
        with contextlib.suppress(*ANY_ERROR):
            for name in shared.keys() & _claims(pod).keys():
                shared[name].append(pod.name)
    alone = {f"claim {name} of one pod": pods for name, pods in single.items()}
    # the first pod determines where the volume is created, so the others wait for the next placement
    alone |= {f"claim {name} until it is bound": pods for name, pods in unbound.items()}
    for number, (what, pods) in enumerate(alone.items(), 1):
        if len(pods) > 1:
            over = draft.mark(f"claim-{number}", dict.fromkeys(draft.cluster.nodes, "all"))
            draft.add_resource(PodResource(name=what, over=over, amount=1), dict.fromkeys(pods, 1))


def _claims(pod: KubePod) -> dict[str, bool]:
    """Return the claims of a pod, with namespace, and whether Kubernetes creates each (generic ephemeral volumes)."""
    found: dict[str, bool] = {}
    for volume in pod.spec.get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            found[f"{pod.namespace}/{volume['persistentVolumeClaim']['claimName']}"] = False
        elif volume.get("ephemeral"):
            found[f"{pod.name}-{volume['name']}"] = True
    return found


def _owned(claim: Item, pod: KubePod) -> bool:
    """Whether a claim was made for this pod, not for an earlier one of its name."""
    uid, owners = pod.item["metadata"].get("uid"), claim["metadata"].get("ownerReferences") or ()
    return uid is None or any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def _chosen(claim: Item) -> bool:
    """Return whether a claim has a volume, or a node for which the volume will be created."""
    notes = claim["metadata"].get("annotations") or {}
    return bool((claim.get("spec") or {}).get("volumeName") or notes.get(_SELECTED))


def _listed(cluster: Cluster) -> dict[str, dict[str, Item]]:
    """Claims by namespace and name, volumes and storage classes by name, of the kinds that are listed."""
    found: dict[str, dict[str, Item]] = {}
    for kind in ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSIDriver"):
        if kind in cluster.others:
            found[kind] = {}
            for item in cluster.others[kind]:
                with contextlib.suppress(*ANY_ERROR):
                    space = f"{item['metadata'].get('namespace') or 'default'}/" if kind.endswith("Claim") else ""
                    found[kind].setdefault(f"{space}{item['metadata']['name']}", item)
    return found


def _bind(draft: Draft, listed: Mapping[str, Mapping[str, Item]], pod: KubePod, name: str) -> None:
    claim = listed["PersistentVolumeClaim"][name]
    spec = claim.get("spec") or {}
    phase = (claim.get("status") or {}).get("phase")
    if phase == "Lost" or (phase == "Pending" and spec.get("volumeName")):
        said = "has lost its volume" if phase == "Lost" else "is not bound yet to the volume that it names"
        draft.cluster.leave(pod, f"its volume claim {name} {said}")
        return
    if spec.get("volumeName"):
        if "PersistentVolume" not in listed:
            draft.cluster.counts[_UNLISTED] += 1
            return
        volume = listed["PersistentVolume"].get(str(spec["volumeName"]))
        if volume is None:
            draft.cluster.leave(pod, f"the volume of its claim {name} does not exist")
            return
        required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
        _restrict(draft, pod, name, required)
        _keep_zone(draft, pod, name, label_map(volume["metadata"]))
        return
    if chosen := (claim["metadata"].get("annotations") or {}).get(_SELECTED):
        here = draft.bit.get(str(chosen), 0)
        draft.forbid(pod, ~here, f"its volume claim {name} is made for node {chosen}, which does not take it")
    if "StorageClass" not in listed:
        draft.cluster.counts[_UNLISTED] += 1
        return
    storage = listed["StorageClass"].get(str(spec.get("storageClassName") or ""))
    if storage is None or storage.get("volumeBindingMode") != "WaitForFirstConsumer":
        draft.cluster.leave(pod, f"its volume claim {name} is not bound yet")
    elif storage.get("provisioner") == "kubernetes.io/no-provisioner":
        draft.cluster.leave(pod, f"its volume claim {name} chooses among local volumes, which is not read")
    else:
        _restrict_to_capacity(draft, listed, pod, name)
        _restrict(draft, pod, name, _topologies(storage))


def _topologies(storage: Item) -> Item | None:
    """Return the nodes where a storage class creates volumes, as a node selector; None: anywhere."""
    terms = [
        {
            "matchExpressions": [
                {"key": each["key"], "operator": "In", "values": each["values"]}
                for each in term.get("matchLabelExpressions") or ()
            ]
        }
        for term in storage.get("allowedTopologies") or ()
    ]
    return {"nodeSelectorTerms": terms} if terms else None


def _restrict_to_capacity(draft: Draft, listed: Mapping[str, Mapping[str, Item]], pod: KubePod, name: str) -> None:
    """Restrict a pod to nodes with storage for a claim's volume, if its driver reports storage capacity."""
    if "CSIDriver" not in listed:
        draft.cluster.counts[_NO_DRIVERS] += 1
        return
    spec = listed["PersistentVolumeClaim"][name]["spec"]
    storage = str(spec["storageClassName"])
    driver = listed["CSIDriver"].get(str(listed["StorageClass"][storage].get("provisioner")), {})
    if not (driver.get("spec") or {}).get("storageCapacity"):
        return
    size = str(((spec.get("resources") or {}).get("requests") or {}).get("storage") or 0)

    def work() -> int:
        fit = [
            each["nodeTopology"]
            for each in draft.cluster.others.get("CSIStorageCapacity", ())
            if each.get("storageClassName") == storage and each.get("nodeTopology") is not None
            if quantity(each.get("maximumVolumeSize", each.get("capacity", -1))) >= quantity(size)
        ]
        nodes = draft.cluster.nodes.values()
        return draft.mask(node.name for node in nodes if any(selects(where, node.labels) for where in fit))

    there = draft.of_spec(pod, "room", work, storage, size) if quantity(size) else -1
    draft.forbid(pod, ~there, f"the driver of its claim {name} has no room for {size} on a node that takes it")


def _keep_zone(draft: Draft, pod: KubePod, name: str, labels: Mapping[str, str]) -> None:
    """Restrict a pod to nodes in the zones and regions of a volume's labels, or without such labels (VolumeZone)."""
    places = {key: labels[key].split("__") for key in _PLACES if key in labels}
    there = 0
    for node in draft.cluster.nodes.values():
        of = node.labels
        if not of.keys() & _PLACES.keys() or all(of.get(k, of.get(_PLACES[k])) in v for k, v in places.items()):
            there |= draft.bit[node.name]
    draft.forbid(pod, ~there, f"the volume of its claim {name} is in a zone that no node that takes it is in")


def _restrict(draft: Draft, pod: KubePod, name: str, required: Item | None) -> None:
    """Restrict a pod to the nodes that a volume's node affinity selects."""
    if required is None:
        return
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    there = sum(draft.bit[n] for n, node in draft.cluster.nodes.items() if matches_node(spec, n, node.labels))
    draft.forbid(pod, ~there, f"the volume of its claim {name} is reached from no node that takes it")
