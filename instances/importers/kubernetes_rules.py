"""Pod groups and resource quotas of Kubernetes objects as gangs and queues."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flowlex.instances.importers.kubernetes_objects import ANY_ERROR, Cluster, KubePod
from flowlex.instances.importers.kubernetes_resources import quantity
from flowlex.instances.pod_rules import PodQueue

__all__ = ["group_of", "read_gangs", "read_queues"]

_GROUPS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io", "scheduling.k8s.io/group-name")
#: Fields of a `PodQueue` and the resources of a ResourceQuota that say them.
_QUOTAS = {
    "cpu_cores": ("requests.cpu", "cpu"),
    "memory_gb": ("requests.memory", "memory"),
    "gpus": ("requests.nvidia.com/gpu",),
    "pods": ("pods", "count/pods"),
}


def group_of(pod: KubePod) -> str | None:
    """The pod group of a pod, with its namespace."""
    marks = {**pod.notes, **pod.labels}
    group = next((marks[key] for key in _GROUPS if key in marks), None)
    return None if group is None else f"{pod.namespace}/{group}"


def read_gangs(cluster: Cluster) -> dict[str, str]:
    """By waiting pod, the group that it is placed with: one of which no pod runs and none stays pending."""
    runs = {group_of(pod) for pod in cluster.running}
    left = {group_of(pod) for pod in cluster.waiting if pod.name in cluster.pending}
    least = {}
    for item in cluster.others.get("PodGroup", ()):
        try:
            name = f"{item['metadata'].get('namespace', 'default')}/{item['metadata']['name']}"
            least[name] = int((item.get("spec") or {}).get("minMember", 0))
        except ANY_ERROR:
            cluster.counts["pod groups that cannot be read"] += 1
    gangs: dict[str, str] = {}
    for pod in cluster.waiting:
        group = group_of(pod)
        if group is None or group in runs or pod.name in cluster.pending:
            continue  # pods of a group that runs in part follow one by one, as gang schedulers let them
        if group in left:
            cluster.leave(pod, "its pod group holds a pod that stays pending")
        else:
            gangs[pod.name] = group
    sizes = Counter(gangs.values())
    for pod in cluster.waiting:
        group = gangs.get(pod.name)
        if group is not None and sizes[group] < least.get(group, 0):
            cluster.leave(pod, "its pod group has fewer pods than its minMember")
    partly = sum(0 < least.get(group, 0) < many for group, many in sizes.items())
    if partly:
        cluster.counts["pod groups whose minMember is less than their pods (all are placed, or none)"] = partly
    if together := len({group_of(pod) for pod in cluster.waiting} & runs - {None}):
        cluster.counts["pod groups that run in part (their other pods are placed one by one)"] = together
    return {name: group for name, group in gangs.items() if name not in cluster.pending}


def read_queues(cluster: Cluster) -> tuple[PodQueue, ...]:
    """The quota of each namespace that has one; quotas with scopes are counted."""
    limits: dict[str, dict[str, Any]] = {}
    for item in cluster.others.get("ResourceQuota", ()):
        try:
            spec = item.get("spec") or {}
            if spec.get("scopes") or spec.get("scopeSelector"):
                cluster.counts["resource quotas with scopes"] += 1
                continue
            mine = limits.setdefault(str(item["metadata"].get("namespace", "default")), {})
            for field, names in _QUOTAS.items():
                for name in set(names) & (spec.get("hard") or {}).keys():
                    amount = quantity(spec["hard"][name]) / (1024**3 if field == "memory_gb" else 1)
                    value = max(0, int(amount)) if field == "pods" else max(0.0, float(amount))
                    mine[field] = min(value, mine.get(field, value))
        except ANY_ERROR:
            cluster.counts["resource quotas that cannot be read"] += 1
    return tuple(PodQueue(name=space, **fields) for space, fields in limits.items())
