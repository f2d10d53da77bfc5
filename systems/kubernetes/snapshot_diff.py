"""Changes of a cluster between a placement and its bindings that affect the bindings."""

from __future__ import annotations

from collections.abc import Sequence

from flowlex.systems.kubernetes.bindings import Plan, pod_of
from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, Kind, KubePod
from flowlex.systems.kubernetes.pod_selections import Selection, Selections


def changed_since(found: Plan, before: Cluster, now: Cluster) -> dict[str, str]:
    """Return how pods and nodes of the plan have changed since the placement, by name."""
    was, pods = ({pod.name: pod for pod in (*each.running, *each.waiting)} for each in (before, now))
    wrong: dict[str, str] = {}
    used = {item["target"]["name"] for item in found.items if item["kind"] == "Binding"}
    for item in found.items:
        old, new = was.get(name := pod_of(item)), pods.get(name)
        if old is None:
            wrong[name] = "it is not among the objects that the placement was made from"
        elif new is None:
            wrong[name] = "it is gone"
        elif _version(old) != _version(new):
            at = f"on {new.node}" if new.node else "waiting"
            wrong[name] = f"resourceVersion {_version(old)} became {_version(new)} (it is {at} now)"
    for name in sorted(used):
        if name not in now.nodes:
            wrong[f"node {name}"] = "it is gone"
        elif name in before.nodes and vars(before.nodes[name]) != vars(now.nodes[name]):
            wrong[f"node {name}"] = "its labels, taints, readiness or allocatable resources changed"
    for pod in now.running:
        old = was.get(pod.name)
        if pod.node not in used:
            continue
        if old is None or old.node != pod.node:
            wrong.setdefault(pod.name, f"it came to node {pod.node}")
        elif (old.requests, old.ports) != (pod.requests, pod.ports):
            wrong.setdefault(pod.name, f"what it uses of node {pod.node} changed")
    ours = {pod_of(item) for item in found.items}
    rules = _Rules(now, [pods[name] for name in sorted(ours & pods.keys()) if pods[name].node is None])
    for name in sorted((was.keys() | pods.keys()) - wrong.keys() - ours):
        old, new = was.get(name), pods.get(name)
        if _place(old) != _place(new) and (other := rules.between(old, new)):
            wrong[name] = f"it came, went or has other labels, and {other} joins it, avoids it or is spread with it"
    return wrong


class _Rules:
    """Affinity, anti-affinity and spread of pods that are to be bound."""

    def __init__(self, now: Cluster, pods: Sequence[KubePod]) -> None:
        self._selected = Selections(now)
        self._stated: dict[tuple[int, Kind], tuple[str, list[Selection]]] = {}
        self._kinds: dict[Kind, str] = {}
        for pod in pods:
            self._kinds.setdefault(pod.kind, pod.name)
            if (id(pod.spec), pod.kind) not in self._stated:
                self._stated[id(pod.spec), pod.kind] = (pod.name, self._selections(pod, "podAffinity", spread=True))

    def _selections(self, pod: KubePod, *more: str, spread: bool = False) -> list[Selection]:
        terms = [rule for kind in ("podAntiAffinity", *more) for rule in pod.rules(kind)]
        found = [self._selected.of(pod, rule, anywhere=True) for rule in terms]
        even = pod.spec.get("topologySpreadConstraints") or () if spread else ()
        return found + [self._selected.of(pod, rule, spread=True) for rule in even]

    def between(self, *changed: KubePod | None) -> str | None:
        """Return a pod to be bound that a rule relates to a changed pod, in its old or new state."""
        for pod in changed:
            if pod is None or pod.node is None:
                continue
            for name, selections in self._stated.values():
                if any(self._selected.means(each, pod) for each in selections):
                    return name
            try:
                avoided = self._selections(pod)
            except ANY_ERROR:
                return next(iter(self._kinds.values()), None)
            for kind, name in self._kinds.items():
                if any(each.matches(kind) for each in avoided):
                    return name
        return None


def _place(pod: KubePod | None) -> tuple[str, Kind, bool] | None:
    """Return the properties of a running pod that rules of other pods depend on."""
    return None if pod is None or pod.node is None else (pod.node, pod.kind, pod.ending)


def _version(pod: KubePod) -> str:
    meta = pod.item["metadata"]
    return f"{meta.get('uid') or ''}:{meta.get('resourceVersion') or ''}:{pod.node or ''}".strip(":") or "unknown"
