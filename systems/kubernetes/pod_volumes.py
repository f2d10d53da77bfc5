"""What the volumes of a pod ask of a node: VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits.

The parts that do not depend on other pods are computed once for each pod (`Volumes.of`). In-tree volumes count under
the CSI driver that replaced them, on nodes whose CSINode says that their plug-in is migrated.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.systems.kubernetes.documents import COMMAND
from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, KubePod, label_map
from flowlex.systems.kubernetes.resources import quantity
from flowlex.systems.kubernetes.selectors import matches_node, selects

Item = Mapping[str, Any]
Mask = NDArray[np.bool_]
#: Annotation with the node for which a volume is created.
_SELECTED = "volume.kubernetes.io/selected-node"
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
#: Labels of nodes and volumes for zone and region, including older names, and their current names.
_PLACES = {
    f"{prefix}/{what}": f"topology.kubernetes.io/{what}"
    for prefix in ("failure-domain.beta.kubernetes.io", "topology.kubernetes.io")
    for what in ("zone", "region")
}
#: In-tree plug-ins: the field of a volume, the CSI driver that replaced them, and the fields that identify a volume.
_IN_TREE = {
    "kubernetes.io/aws-ebs": ("awsElasticBlockStore", "ebs.csi.aws.com", ("volumeID",)),
    "kubernetes.io/gce-pd": ("gcePersistentDisk", "pd.csi.storage.gke.io", ("pdName",)),
    "kubernetes.io/azure-disk": ("azureDisk", "disk.csi.azure.com", ("diskURI", "diskName")),
    "kubernetes.io/cinder": ("cinder", "cinder.csi.openstack.org", ("volumeID",)),
    "kubernetes.io/vsphere-volume": ("vsphereVolume", "csi.vsphere.vmware.com", ("volumePath",)),
    "kubernetes.io/portworx-volume": ("portworxVolume", "pxd.portworx.com", ("volumeID",)),
}
#: Disks that pods name directly, without a claim, and the fields that identify a disk.
_DISKS = {
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "iscsi": ("iqn",),
}
AFFINITY, ZONE = "node(s) had volume node affinity conflict", "node(s) had no available volume zone"
_LOST = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
_NO_SPACE = "node(s) did not have enough free storage"


@dataclass(frozen=True)
class Handle:
    """A volume that is attached to a node: it counts under the driver, on nodes where its plug-in is migrated."""

    driver: str
    name: str
    plugin: str | None = None
    """The in-tree plug-in, or None for a volume of the CSI driver itself."""


@dataclass(frozen=True, eq=False)
class LateClaim:
    """A claim that gets its volume once its pod has a node: one of the listed volumes, or a new one."""

    name: str
    volumes: tuple[str, ...]
    """Names of volumes that it could take, the smallest first."""
    provision: Mask
    """(N,) where a new volume can be made."""


@dataclass(eq=False)
class PodVolumes:
    """What the volumes of a pod ask, apart from other pods."""

    waits: str | None = None
    """Why the pod cannot go anywhere now."""
    refused: list[tuple[Mask, str]] = field(default_factory=list)
    """Nodes (N,) that a volume excludes, and why."""
    late: tuple[LateClaim, ...] = ()
    alone: frozenset[str] = frozenset()
    """Claims that one pod in the cluster may use (``ReadWriteOncePod``)."""
    claims: frozenset[str] = frozenset()
    handles: frozenset[Handle] = frozenset()
    disks: Mapping[str, bool] = field(default_factory=dict)
    """Disks that the pod names itself, and whether it must be the only one on a node that uses it."""


class Volumes:
    """The claims, volumes, storage classes and drivers of a cluster."""

    def __init__(self, cluster: Cluster, names: Sequence[str]) -> None:
        self._cluster, self._names = cluster, names
        self.listed: dict[str, dict[str, Item]] = {}
        for kind in ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSIDriver"):
            found = self.listed[kind] = {}
            for item in cluster.others.get(kind, ()):
                with contextlib.suppress(*ANY_ERROR):
                    space = f"{item['metadata'].get('namespace') or 'default'}/" if kind.endswith("Claim") else ""
                    found.setdefault(f"{space}{item['metadata']['name']}", item)
        self._reach: dict[str, Mask] = {}
        self._known: dict[str, PodVolumes] = {}

    def of(self, pod: KubePod) -> PodVolumes:
        """Return what the volumes of a pod ask; raises `ANY_ERROR` where they cannot be read."""
        if not pod.spec.get("volumes"):
            return _NONE
        if pod.name not in self._known:
            self._known[pod.name] = self._read(pod)
        return self._known[pod.name]

    @cached_property
    def limits(self) -> dict[str, NDArray[np.int64]]:
        """(N,) how many volumes each CSI driver attaches to a node, by driver; -1: any number."""
        found: dict[str, NDArray[np.int64]] = {}
        for item in self._cluster.others.get("CSINode", ()):
            try:
                node = self._names.index(str(item["metadata"]["name"]))
                for driver in (item.get("spec") or {}).get("drivers") or ():
                    if (most := (driver.get("allocatable") or {}).get("count")) is not None:
                        empty = np.full(len(self._names), -1, np.int64)
                        found.setdefault(str(driver["name"]), empty)[node] = min(int(most), 2**31)
            except ANY_ERROR:
                continue  # a node without a readable CSINode limits nothing, as in Kubernetes
        return found

    @cached_property
    def migrated(self) -> dict[str, Mask]:
        """(N,) where each in-tree plug-in is migrated to its CSI driver."""
        found = {plugin: np.zeros(len(self._names), np.bool_) for plugin in _IN_TREE}
        at = {name: k for k, name in enumerate(self._names)}
        for item in self._cluster.others.get("CSINode", ()):
            with contextlib.suppress(*ANY_ERROR):
                text = (item["metadata"].get("annotations") or {}).get(_MIGRATED) or ""
                for plugin in str(text).split(","):
                    if plugin in found and item["metadata"]["name"] in at:
                        found[plugin][at[item["metadata"]["name"]]] = True
        return found

    def attachments(self) -> Iterator[tuple[int, Handle]]:
        """Yield the volumes that VolumeAttachments hold, with their nodes."""
        at = {name: k for k, name in enumerate(self._names)}
        for item in self._cluster.others.get("VolumeAttachment", ()):
            with contextlib.suppress(*ANY_ERROR):
                spec = item["spec"]
                node, volume = at.get(str(spec["nodeName"])), (spec.get("source") or {}).get("persistentVolumeName")
                if node is not None and volume:
                    known = self.listed["PersistentVolume"].get(str(volume))
                    handle = None if known is None else _handle(known.get("spec") or {})
                    yield node, handle or Handle(str(spec["attacher"]), f"volume {volume}")

    def _read(self, pod: KubePod) -> PodVolumes:
        found = PodVolumes()
        handles, late, disks, alone = set[Handle](), list[LateClaim](), dict[str, bool](), set[str]()
        for volume in pod.spec.get("volumes") or ():
            if not volume.get("csi") and (handle := _handle(volume)) is not None:  # inline CSI volumes do not count
                handles.add(handle)
            for disk, writes in _disks(volume):
                disks[disk] = disks.get(disk, False) or writes
        names = _claims(pod)
        for name, made_for_it in names.items():
            claim = self.listed["PersistentVolumeClaim"].get(name)
            found.waits = found.waits or self._unusable(pod, name, claim, made_for_it)
            if claim is None:
                continue
            if "ReadWriteOncePod" in ((claim.get("spec") or {}).get("accessModes") or ()):
                alone.add(name)
            if (handle := self._of_claim(name, claim)) is not None:
                handles.add(handle)
            if found.waits is None and (more := self._bind(found, name, claim)) is not None:
                late.append(more)
        late.sort(key=lambda one: self._size(self.listed["PersistentVolumeClaim"][one.name]))
        found.late, found.disks, found.handles = tuple(late), disks, frozenset(handles)
        found.claims, found.alone = frozenset(names), frozenset(alone)
        return found

    def _unusable(self, pod: KubePod, name: str, claim: Item | None, made_for_it: bool) -> str | None:
        """Return why a claim keeps its pod from all nodes."""
        short = name.partition("/")[2]
        if claim is None:
            if "PersistentVolumeClaim" not in self._cluster.others:
                return f'persistentvolumeclaim "{short}" is not listed; list claims and volumes too: {COMMAND}'
            if made_for_it:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{short}"'
            return f'persistentvolumeclaim "{short}" not found'
        if claim["metadata"].get("deletionTimestamp"):
            return f'persistentvolumeclaim "{short}" is being deleted'
        if made_for_it and not _owned(claim, pod):
            return f"PVC {name} was not created for pod {pod.name} (pod is not owner)"
        spec, phase = claim.get("spec") or {}, (claim.get("status") or {}).get("phase")
        if phase == "Lost":
            return f'persistentvolumeclaim "{short}" bound to non-existent persistentvolume "{spec.get("volumeName")}"'
        if spec.get("volumeName"):
            if phase == "Pending":
                return f'persistentvolumeclaim "{short}" is not bound yet to the volume that it names'
            if "PersistentVolume" not in self._cluster.others:
                return f'persistentvolume "{spec["volumeName"]}" is not listed; list volumes too: {COMMAND}'
            return None
        storage = self.listed["StorageClass"].get(str(spec.get("storageClassName") or ""))
        if spec.get("storageClassName") and storage is None and "StorageClass" not in self._cluster.others:
            return f'storageclass "{spec["storageClassName"]}" is not listed; list storage classes too: {COMMAND}'
        if storage is None or storage.get("volumeBindingMode") != "WaitForFirstConsumer":
            return "pod has unbound immediate PersistentVolumeClaims"
        return None

    def _bind(self, found: PodVolumes, name: str, claim: Item) -> LateClaim | None:
        """Exclude the nodes that the volume of a claim does not reach; return a claim that has no volume yet."""
        spec, volumes = claim.get("spec") or {}, self.listed["PersistentVolume"]
        if spec.get("volumeName"):
            volume = str(spec["volumeName"])
            if volume not in volumes:
                found.refused.append((np.ones(len(self._names), np.bool_), _LOST))
            else:
                found.refused.append((~self.reach(volume), AFFINITY))
                found.refused.append((~self._zone(label_map(volumes[volume]["metadata"])), ZONE))
            return None
        storage = self.listed["StorageClass"][str(spec["storageClassName"])]
        chosen = (claim["metadata"].get("annotations") or {}).get(_SELECTED)
        if chosen:
            found.refused.append((np.array([n != chosen for n in self._names], np.bool_), AFFINITY))
        provision = np.zeros(len(self._names), np.bool_)
        if storage.get("provisioner") != "kubernetes.io/no-provisioner":
            provision = self._selected(_topologies(storage))
            space = self._space(claim, storage)
            if not space.all() and not self._candidates(claim, name):
                found.refused.append((provision & ~space, _NO_SPACE))
            provision = provision & space
        return LateClaim(name, () if chosen else self._candidates(claim, name), provision)

    def _candidates(self, claim: Item, name: str) -> tuple[str, ...]:
        """Return the volumes that an unbound claim could take, the smallest first."""
        spec, wanted = claim["spec"], self._size(claim)
        space, _, short = name.partition("/")
        sizes: dict[str, Fraction] = {}
        for volume, item in self.listed["PersistentVolume"].items():
            with contextlib.suppress(*ANY_ERROR):
                has, phase = item["spec"], (item.get("status") or {}).get("phase", "Available")
                of = has.get("claimRef")
                mine = bool(of) and (of.get("namespace"), of.get("name")) == (space, short)
                if (
                    item["metadata"].get("deletionTimestamp")
                    or (of and not mine)
                    or (phase != "Available" and not mine)
                ):
                    continue
                size = quantity((has.get("capacity") or {}).get("storage", 0))
                if (
                    (has.get("storageClassName") or "") == spec.get("storageClassName")
                    and (has.get("volumeMode") or "Filesystem") == (spec.get("volumeMode") or "Filesystem")
                    and {*(spec.get("accessModes") or ())} <= {*(has.get("accessModes") or ())}
                    and (not spec.get("selector") or selects(spec["selector"], label_map(item["metadata"])))
                    and size >= wanted
                ):
                    sizes[volume] = size
        return tuple(sorted(sizes, key=lambda volume: (sizes[volume], volume)))

    @staticmethod
    def _size(claim: Item) -> Fraction:
        return quantity((((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}).get("storage") or 0)

    def reach(self, volume: str) -> Mask:
        """(N,) nodes that the node affinity of a volume selects."""
        if volume not in self._reach:
            spec = self.listed["PersistentVolume"][volume].get("spec") or {}
            self._reach[volume] = self._selected((spec.get("nodeAffinity") or {}).get("required"))
        return self._reach[volume]

    def _selected(self, required: Item | None) -> Mask:
        if required is None:
            return np.ones(len(self._names), np.bool_)
        spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
        nodes = (self._cluster.nodes[name] for name in self._names)
        return np.array([matches_node(spec, node.name, node.labels) for node in nodes], np.bool_)

    def _zone(self, labels: Mapping[str, str]) -> Mask:
        """(N,) nodes in the zones and regions of a volume's labels, or without such labels (VolumeZone)."""
        places = {key: labels[key].split("__") for key in _PLACES if key in labels}
        found = np.ones(len(self._names), np.bool_)
        for k, name in enumerate(self._names if places else ()):
            of = self._cluster.nodes[name].labels
            known = bool(of.keys() & _PLACES.keys())
            found[k] = not known or all(of.get(key, of.get(_PLACES[key])) in v for key, v in places.items())
        return found

    def _space(self, claim: Item, storage: Item) -> Mask:
        """(N,) nodes with storage for a new volume, if the driver reports its storage capacity."""
        driver = self.listed["CSIDriver"].get(str(storage.get("provisioner")), {})
        size = self._size(claim)
        if not (driver.get("spec") or {}).get("storageCapacity") or not size:
            return np.ones(len(self._names), np.bool_)
        fit = [
            each["nodeTopology"]
            for each in self._cluster.others.get("CSIStorageCapacity", ())
            if each.get("storageClassName") == storage["metadata"]["name"] and each.get("nodeTopology") is not None
            if quantity(each.get("maximumVolumeSize", each.get("capacity", -1))) >= size
        ]
        nodes = (self._cluster.nodes[name] for name in self._names)
        return np.array([any(selects(where, node.labels) for where in fit) for node in nodes], np.bool_)

    def _of_claim(self, name: str, claim: Item) -> Handle | None:
        """Return what a claim attaches: its volume, or the one that its storage class will make."""
        spec = claim.get("spec") or {}
        if spec.get("volumeName"):
            volume = self.listed["PersistentVolume"].get(str(spec["volumeName"]))
            return None if volume is None else _handle(volume.get("spec") or {})
        storage = self.listed["StorageClass"].get(str(spec.get("storageClassName") or ""), {})
        made = storage.get("provisioner")
        if made in _IN_TREE:
            return Handle(_IN_TREE[made][1], f"claim {name}", made)
        return None if made is None else Handle(str(made), f"claim {name}")


_NONE = PodVolumes()


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


def _handle(spec: Item) -> Handle | None:
    """Return what a volume, inline or persistent, attaches."""
    if csi := spec.get("csi"):
        name = csi.get("volumeHandle")
        return None if csi.get("driver") is None else Handle(str(csi["driver"]), str(name or id(spec)))
    for plugin, (kind, driver, fields) in _IN_TREE.items():
        if said := spec.get(kind):
            name = next((str(said[each]) for each in fields if said.get(each)), "")
            return Handle(driver, name, plugin)
    return None


def _disks(volume: Item) -> Iterator[tuple[str, bool]]:
    """Yield the disks that a volume names directly, and whether it needs each exclusively."""
    for kind in _DISKS.keys() & volume.keys():
        said = volume[kind] or {}
        disk = " ".join(str(said.get(part)) for part in _DISKS[kind])
        yield f"{kind} {disk}", kind == "awsElasticBlockStore" or not said.get("readOnly")
    if said := volume.get("rbd"):  # one disk for each monitor: pods that share any of them share the disk
        disk = f"{said.get('pool') or 'rbd'} {said.get('image')}"
        for monitor in said.get("monitors") or ("any",):
            yield f"rbd {monitor} {disk}", not said.get("readOnly")


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


def late_volume(claim: LateClaim, node: int, volumes: Volumes, taken: set[str]) -> str | None:
    """Return the volume that a late claim takes on a node; '' for a new one, None if there is none."""
    for name in claim.volumes:
        if name not in taken and volumes.reach(name)[node]:
            return name
    return "" if claim.provision[node] else None


def by_driver(handles: frozenset[Handle]) -> dict[str, list[Handle]]:
    """Group volumes by the driver that attaches them."""
    found: dict[str, list[Handle]] = defaultdict(list)
    for handle in handles:
        found[handle.driver].append(handle)
    return found
