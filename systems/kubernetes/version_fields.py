"""Versions of Kubernetes, and the fields of a pod that older ones drop."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

Item = Mapping[str, Any]
#: The minor version assumed if no node reports one.
_NEWEST = 34


def minor_version(node: Item) -> int:
    """Return the minor version of Kubernetes that a node runs; 0 if it does not report one."""
    about = node["status"].get("nodeInfo")
    found = re.match(r"v?1\.(\d{1,3})", str(about.get("kubeletVersion"))) if isinstance(about, dict) else None
    return int(found[1]) if found else 0


def as_of(pod: Item, minor: int) -> Item:
    """Return the pod without fields that a cluster of a minor version (0: the newest) drops for lack of the feature."""
    item, minor = pod, minor or _NEWEST
    spec = dict(item["spec"])
    if minor < 34:  # PodLevelResources
        spec.pop("resources", None)
    if minor < 33 and item.get("status"):  # InPlacePodVerticalScaling
        drop = {"containerStatuses": None, "initContainerStatuses": None}
        item = {**item, "status": item["status"] | drop}
    if minor < 31 and spec.get("affinity"):  # MatchLabelKeysInPodAffinity
        text = json.dumps(spec["affinity"])
        spec["affinity"] = json.loads(text, object_hook=_without_label_keys)
    if minor < 29 and spec.get("initContainers"):  # SidecarContainers
        spec["initContainers"] = [{k: v for k, v in c.items() if k != "restartPolicy"} for c in spec["initContainers"]]
    return {**item, "spec": spec}


def _without_label_keys(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key not in ("matchLabelKeys", "mismatchLabelKeys")}
