"""Resource quotas, read as queues and resources of an instance."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from flowlex.instances.group_rules import PodQueue, PodResource
from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster
from flowlex.systems.kubernetes.quota_use import counted_by, in_scope
from flowlex.systems.kubernetes.resources import gigabytes, quantity
from flowlex.systems.kubernetes.waiting_pods import Draft

#: Fields of a `PodQueue`, and the ResourceQuota resources that set them.
_QUOTAS = {
    "cpu_cores": ("requests.cpu", "cpu"),
    "memory_gb": ("requests.memory", "memory"),
    "gpus": ("requests.nvidia.com/gpu",),
    "pods": ("pods", "count/pods"),
}
_OF_QUEUES = {name for names in _QUOTAS.values() for name in names}


def read_queues(cluster: Cluster) -> tuple[PodQueue, ...]:
    """Return the quota of each namespace that has one; `read_scoped_quotas` reads quotas with scopes."""
    limits: dict[str, dict[str, Any]] = {}
    for item in cluster.others.get("ResourceQuota", ()):
        try:
            spec = item.get("spec") or {}
            if spec.get("scopes") or spec.get("scopeSelector"):
                continue
            mine = limits.setdefault(str(item["metadata"].get("namespace", "default")), {})
            for field, names in _QUOTAS.items():
                for name in set(names) & (spec.get("hard") or {}).keys():
                    value = _most(field, quantity(spec["hard"][name]))
                    mine[field] = min(value, mine.get(field, value))
        except ANY_ERROR:
            cluster.counts["resource quota", "that cannot be read"] += 1
    return tuple(PodQueue(name=space, **fields) for space, fields in limits.items())


def _most(field: str, amount: Fraction) -> float:
    if field == "memory_gb":
        return gigabytes(max(0, math.floor(amount)), up=True)
    return max(0, math.floor(amount)) if field == "pods" else max(0.0, float(amount))


def read_scoped_quotas(draft: Draft) -> None:
    """Read the quotas that `PodQueue` cannot express: those with scopes or of other resources."""
    number = 0
    for item in draft.cluster.others.get("ResourceQuota", ()):
        try:
            spec, space = item.get("spec") or {}, str(item["metadata"].get("namespace") or "default")
            scopes = [{"scopeName": str(name), "operator": "Exists"} for name in spec.get("scopes") or ()]
            scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
            pods = [pod for pod in (*draft.cluster.running, *draft.waiting) if pod.namespace == space]
            mine = [pod for pod in pods if all(in_scope(pod, scope) for scope in scopes)]
            for hard, limit in (spec.get("hard") or {}).items():
                limited, what = hard.startswith("limits."), counted_by(hard)
                if what is None and limited:
                    draft.cluster.counts["quota", f"of {hard}, which Kubernetes does not count"] += 1
                if what is None or (hard in _OF_QUEUES and not scopes):
                    continue
                number += 1
                amount = max(0, math.floor(quantity(limit) * (1000 if what == "cpu" else 1)))
                name = f"{hard} of quota {item['metadata']['name']} in {space}"
                asked = {pod.name: (pod.limits if limited else pod.requests).get(what, 0) for pod in mine}
                _scoped(draft, name, number, asked, amount)
        except ANY_ERROR:
            draft.cluster.counts["resource quota", "that cannot be read"] += 1


def _scoped(draft: Draft, name: str, number: int, asked: dict[str, int], limit: int) -> None:
    if sum(asked.values()) <= limit:
        return
    unit = math.gcd(*asked.values()) or 1
    over = draft.mark(f"quota-{number}", dict.fromkeys(draft.cluster.nodes, "all"))
    resource = PodResource(name=name, over=over, amount=limit // unit)
    draft.add_resource(resource, {pod: amount // unit for pod, amount in asked.items()})
