"""Pod groups, resource quotas and PodDisruptionBudgets, read as gangs, queues, resources and allowed evictions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flowlex.instances.group_rules import PodQueue, PodResource
from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, KubePod
from flowlex.systems.kubernetes.resources import gigabytes, quantity
from flowlex.systems.kubernetes.selectors import selects
from flowlex.systems.kubernetes.waiting_pods import Draft

#: Labels and annotations that name a pod's group: the coscheduling plugin, Volcano, Kueue.
_GROUPS = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "kueue.x-k8s.io/pod-group-name",
    "kueue.x-k8s.io/workload",
)
#: Labels and annotations with the least number of pods of the group.
_LEAST = ("pod-group.scheduling.sigs.k8s.io/min-available", "kueue.x-k8s.io/pod-group-total-count")
#: Fields of a `PodQueue`, and the ResourceQuota resources that set them.
_QUOTAS = {
    "cpu_cores": ("requests.cpu", "cpu"),
    "memory_gb": ("requests.memory", "memory"),
    "gpus": ("requests.nvidia.com/gpu",),
    "pods": ("pods", "count/pods"),
}
_OF_QUEUES = {name for names in _QUOTAS.values() for name in names}
_COUNTED = {"count/pods": "pods"}
#: Resources whose limits Kubernetes counts.
_LIMITED = ("cpu", "memory", "ephemeral-storage")
#: Quota resources that pods can request; the others count objects of other kinds.
_OF_PODS = re.compile(r"cpu|memory|pods|ephemeral-storage|hugepages-.*|(?!count/).*/.*")
_WHEN = "DuringSchedulingIgnoredDuringExecution"


def _marks(pod: KubePod) -> dict[str, Any]:
    return {**pod.notes, **pod.labels}


def group_of(pod: KubePod) -> str | None:
    """The pod group of a pod, with its namespace."""
    marks = _marks(pod)
    group = next((marks[key] for key in _GROUPS if key in marks), None)
    return None if group is None else f"{pod.namespace}/{group}"


def read_gangs(cluster: Cluster) -> dict[str, str]:
    """Return the gang of each waiting pod: a group of which no pod runs and none stays pending."""
    runs = {group_of(pod) for pod in cluster.running}
    left = {group_of(pod) for pod in cluster.waiting if pod.name in cluster.pending}
    least, short = {}, dict[str, str]()
    for item in (*cluster.others.get("PodGroup", ()), *cluster.others.get("Workload", ())):
        try:
            name = f"{item['metadata'].get('namespace', 'default')}/{item['metadata']['name']}"
            spec = item.get("spec") or {}
            sets = sum(int(each.get("minCount") or each.get("count", 1)) for each in spec.get("podSets") or ())
            least[name] = int(spec.get("minMember", sets))
            if name not in runs and (lacks := _lacking(cluster, spec.get("minResources") or {})):
                short[name] = lacks
        except ANY_ERROR:
            cluster.counts["pod group", "that cannot be read"] += 1
    for pod in (*cluster.running, *cluster.waiting):
        group, stated = group_of(pod), next((_marks(pod)[key] for key in _LEAST if key in _marks(pod)), "")
        if group is not None and str(stated).isdecimal():
            least[group] = max(int(stated), least.get(group, 0))
    gangs: dict[str, str] = {}
    for pod in cluster.waiting:
        group = group_of(pod)
        if group is None or group in runs or pod.name in cluster.pending:
            continue  # pods of a partly running group start one by one, as in gang schedulers
        if group in short:
            cluster.leave(pod, f"the minResources of its pod group are more than is left on all nodes: {short[group]}")
        elif group in left:
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
        cluster.counts["pod group", "with minMember below the number of pods (all are placed, or none)"] = partly
    if together := len({group_of(pod) for pod in cluster.waiting} & runs - {None}):
        cluster.counts["pod group", "running in part (the other pods are placed one by one)"] = together
    return {name: group for name, group in gangs.items() if name not in cluster.pending}


def _lacking(cluster: Cluster, wanted: Mapping[str, Any]) -> str:
    """Return the first resource of which all nodes together have too little left; empty if there is none."""
    for what, text in wanted.items():
        left = {n: node.allocatable.get(what, 0) for n, node in cluster.nodes.items()}
        for pod in cluster.running:
            left[str(pod.node)] -= pod.requests.get(what, 0)
        if quantity(text) * (1000 if what == "cpu" else 1) > sum(max(0, amount) for amount in left.values()):
            return str(what)
    return ""


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
            mine = [pod for pod in pods if all(_in_scope(pod, scope) for scope in scopes)]
            for hard, limit in (spec.get("hard") or {}).items():
                limited = hard.startswith("limits.")
                what = _COUNTED.get(hard, hard.removeprefix("limits." if limited else "requests."))
                if limited and what not in _LIMITED:
                    draft.cluster.counts["quota", f"of {hard}, which Kubernetes does not count"] += 1
                    continue
                if not _OF_PODS.fullmatch(what) or (hard in _OF_QUEUES and not scopes):
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


def _in_scope(pod: KubePod, scope: Any) -> bool:
    """Return whether a pod is in the scope of a quota."""
    name = scope["scopeName"]
    if name == "PriorityClass":
        rule = {"key": "class", **{key: value for key, value in scope.items() if key != "scopeName"}}
        named = pod.spec.get("priorityClassName")
        return selects({"matchExpressions": [rule]}, {"class": str(named)} if named else {})
    ends = pod.spec.get("activeDeadlineSeconds") is not None
    asks = bool(pod.requests.keys() & {"cpu", "memory"})
    affinity = pod.spec.get("affinity") or {}
    terms = [term for kind in ("podAffinity", "podAntiAffinity") for term in _terms(affinity.get(kind) or {})]
    known = {
        "Terminating": ends,
        "NotTerminating": not ends,
        "BestEffort": not asks,
        "NotBestEffort": asks,
        "CrossNamespacePodAffinity": any(t.get("namespaces") or t.get("namespaceSelector") is not None for t in terms),
    }
    return known[name]


def _terms(rules: Any) -> list[Any]:
    soft = [each.get("podAffinityTerm") or {} for each in rules.get(f"preferred{_WHEN}") or ()]
    return [*(rules.get(f"required{_WHEN}") or ()), *soft]


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
