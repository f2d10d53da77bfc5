"""PodDisruptionBudgets, and which pods they let be evicted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, KubePod
from flowlex.systems.kubernetes.selectors import selects


@dataclass
class _Budget:
    name: str
    namespace: str
    selector: Mapping[str, Any] | None
    left: int
    unhealthy: bool
    """Whether pods that are not ready may always be evicted."""


class Budgets:
    """The PodDisruptionBudgets of a cluster; each eviction reduces them."""

    def __init__(self, cluster: Cluster) -> None:
        self._budgets: list[_Budget] = []
        self.damaged: list[str] = []
        for item in cluster.others.get("PodDisruptionBudget", ()):
            try:
                self._budgets.append(_budget(cluster, item))
            except ANY_ERROR as error:
                self.damaged.append(str(error))

    def take(self, pod: KubePod) -> str | None:
        """Evict a pod, or return why that is forbidden."""
        if self.damaged:
            return f"a PodDisruptionBudget cannot be read: {self.damaged[0]}"
        mine = [b for b in self._budgets if b.namespace == pod.namespace and selects(b.selector, pod.labels)]
        if len(mine) > 1:
            return (
                f"{len(mine)} PodDisruptionBudgets select it ({mine[0].name}, {mine[1].name}), which no eviction passes"
            )
        healthy = _ready(pod)
        for budget in mine:
            if not healthy and (budget.unhealthy or not _started(pod)):
                continue
            if budget.left < 1:
                return f"PodDisruptionBudget {budget.name} allows no disruption now"
            budget.left -= healthy
        return None


def evictable(cluster: Cluster, pods: Iterable[KubePod]) -> set[str]:
    """Return names of pods that the budgets let be evicted together; a budget that allows some takes the first."""
    budgets = Budgets(cluster)
    return {pod.name for pod in pods if budgets.take(pod) is None}


def _budget(cluster: Cluster, item: Mapping[str, Any]) -> _Budget:
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    space, selector = str(meta.get("namespace") or "default"), spec.get("selector")
    if int(status.get("observedGeneration") or 0) < int(meta.get("generation") or 0) and status:
        left = 0  # its status is of an earlier specification: the server refuses evictions until it is updated
    elif "disruptionsAllowed" in status:
        left = int(status["disruptionsAllowed"])
    else:
        mine = [
            pod
            for pod in (*cluster.running, *cluster.waiting)
            if pod.namespace == space and selects(selector, pod.labels)
        ]
        most = spec.get("maxUnavailable")
        if most is not None:
            wanted = len(mine) - _scaled(most, len(mine))
        else:
            wanted = _scaled(spec.get("minAvailable", 1), len(mine))
        left = sum(_ready(pod) for pod in mine) - max(0, wanted)
    selects(selector, {})  # raises where it cannot be read
    unhealthy = spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    return _Budget(str(meta["name"]), space, selector, max(0, left), unhealthy)


def _scaled(amount: Any, total: int) -> int:
    """A number of pods, or a share of them, rounded up as Kubernetes does."""
    text = str(amount)
    return math.ceil(int(text[:-1]) * total / 100) if text.endswith("%") else int(text)


def _started(pod: KubePod) -> bool:
    return (pod.item.get("status") or {}).get("phase") == "Running"


def _ready(pod: KubePod) -> bool:
    """Whether it runs and is ready; a pod without conditions is taken to be."""
    conditions = (pod.item.get("status") or {}).get("conditions")
    ready = [each.get("status") == "True" for each in conditions or () if each.get("type") == "Ready"]
    return _started(pod) and pod.node is not None and not pod.ending and all(ready)
