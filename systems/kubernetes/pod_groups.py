"""Pod groups of the coscheduling plugin, Volcano and Kueue: who belongs to one, and how many it needs at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import Any

from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, KubePod
from flowlex.systems.kubernetes.resources import quantity

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


def _marks(pod: KubePod) -> dict[str, Any]:
    return {**pod.notes, **pod.labels}


def group_of(pod: KubePod) -> str | None:
    """The pod group of a pod, with its namespace."""
    marks = _marks(pod)
    group = next((marks[key] for key in _GROUPS if key in marks), None)
    return None if group is None else f"{pod.namespace}/{group}"


class Groups:
    """The pod groups of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.unreadable = cluster, 0
        self._of = {pod.name: group for pod in (*cluster.running, *cluster.waiting) if (group := group_of(pod))}
        self.waiting: dict[str, list[KubePod]] = {}
        self.running: dict[str, list[KubePod]] = {}
        for pods, found in ((cluster.waiting, self.waiting), (cluster.running, self.running)):
            for pod in pods:
                if pod.name in self._of:
                    found.setdefault(self._of[pod.name], []).append(pod)
        self._least: dict[str, int] = {}
        self._short: dict[str, str] = {}
        for item in (*cluster.others.get("PodGroup", ()), *cluster.others.get("Workload", ())):
            try:
                name = f"{item['metadata'].get('namespace', 'default')}/{item['metadata']['name']}"
                spec = item.get("spec") or {}
                sets = sum(int(each.get("minCount") or each.get("count", 1)) for each in spec.get("podSets") or ())
                self._least[name] = int(spec.get("minMember", sets))
                if name not in self.running and (lacks := _lacking(cluster, spec.get("minResources") or {})):
                    self._short[name] = lacks
            except ANY_ERROR:
                self.unreadable += 1
        for pod in (*cluster.running, *cluster.waiting):
            group = self._of.get(pod.name)
            stated = next((_marks(pod)[key] for key in _LEAST if key in _marks(pod)), "") if group else ""
            if group is not None and str(stated).isdecimal():
                self._least[group] = max(int(stated), self._least.get(group, 0))

    def of(self, pod: KubePod) -> str | None:
        """Return the group of a pod."""
        return self._of.get(pod.name)

    def least(self, group: str) -> int:
        """Return how many pods a group needs at once: its ``minMember``, or all of its pods if that is not known."""
        everyone = len(self.waiting.get(group, ())) + len(self.running.get(group, ()))
        return self._least.get(group) or everyone

    def lacks(self, group: str, bound: Container[str]) -> int:
        """Return how many pods more a group needs; 0 if some of its pods ran before: its scheduler let it start."""
        if group in self.running:
            return 0
        return self.least(group) - sum(pod.name in bound for pod in self.waiting[group])

    def refused(self, group: str) -> str | None:
        """Return why a group cannot start, whatever is placed."""
        if group in self.running:
            return None
        if group in self._short:
            what = self._short[group]
            return f"the minResources of its pod group are more than is left on all nodes: {what}"
        able = [pod for pod in self.waiting[group] if pod.name not in self.cluster.pending]
        if len(self.waiting[group]) < self.least(group):
            return "its pod group has fewer pods than its minMember"
        if len(able) < self.least(group):
            return "its pod group holds a pod that stays pending"
        return None

    def leave_refused(self) -> None:
        """Leave the pods of groups pending that cannot start; that may make further groups too small."""
        left = -1
        while left != len(self.cluster.pending):
            left = len(self.cluster.pending)
            for group, pods in self.waiting.items():
                if why := self.refused(group):
                    for pod in pods:
                        self.cluster.leave(pod, why)

    def spare(self, group: str) -> int:
        """Return how many of its running pods a group can lose without falling below its ``minMember``."""
        return max(0, len(self.running.get(group, ())) - self.least(group))


def _lacking(cluster: Cluster, wanted: Mapping[str, Any]) -> str:
    """Return the first resource of which all nodes together have too little left; empty if there is none."""
    used: Counter[tuple[str, str]] = Counter()
    for pod in cluster.running if wanted else ():
        for what in wanted:
            used[str(pod.node), what] += pod.requests.get(what, 0)
    for what, text in wanted.items():
        left = (max(0, node.allocatable.get(what, 0) - used[n, what]) for n, node in cluster.nodes.items())
        if quantity(text) * (1000 if what == "cpu" else 1) > sum(left):
            return str(what)
    return ""
