"""ResourceQuotas and what bound pods use of them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, KubePod
from flowlex.systems.kubernetes.resources import canonical, quantity
from flowlex.systems.kubernetes.selectors import selects

_COUNTED = {"count/pods": "pods"}
#: Resources whose limits Kubernetes counts.
_LIMITED = ("cpu", "memory", "ephemeral-storage")
#: Quota resources that pods can request; the others count objects of other kinds.
_OF_PODS = re.compile(r"cpu|memory|pods|ephemeral-storage|hugepages-.*|(?!count/).*/.*")
_WHEN = "DuringSchedulingIgnoredDuringExecution"


@dataclass(eq=False)
class _Quota:
    name: str
    namespace: str
    scopes: list[Any]
    hard: dict[str, tuple[str, bool, int]]
    """By the name in the quota: resource, whether limits count instead of requests, and the limit."""
    used: Counter[str] = field(default_factory=Counter)
    held: dict[str, dict[str, int]] = field(default_factory=dict)

    def asked(self, pod: KubePod) -> dict[str, int]:
        """Return what the quota counts for a pod; empty if it is not in its scope."""
        if pod.namespace != self.namespace or not all(in_scope(pod, scope) for scope in self.scopes):
            return {}
        found = {}
        for hard, (what, limited, _) in self.hard.items():
            if amount := (pod.limits if limited else pod.requests).get(what, 0):
                found[hard] = amount
        return found


class QuotaUse:
    """The quotas of a cluster; unreadable ones limit nothing."""

    def __init__(self, cluster: Cluster) -> None:
        self._by_space: dict[str, list[_Quota]] = {}
        for item in cluster.others.get("ResourceQuota", ()):
            try:
                spec, meta = item.get("spec") or {}, item["metadata"]
                scopes = [{"scopeName": str(name), "operator": "Exists"} for name in spec.get("scopes") or ()]
                scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
                hard = dict(self._hard(spec.get("hard") or {}))
                space = str(meta.get("namespace") or "default")
                self._by_space.setdefault(space, []).append(_Quota(str(meta["name"]), space, scopes, hard))
            except ANY_ERROR:
                continue  # `read_scoped_quotas` counts it

    @staticmethod
    def _hard(listed: dict[str, Any]) -> Iterator[tuple[str, tuple[str, bool, int]]]:
        for hard, limit in listed.items():
            if (what := counted_by(hard)) is not None:
                amount = max(0, math.floor(quantity(limit) * (1000 if what == "cpu" else 1)))
                yield hard, (what, hard.startswith("limits."), amount)

    def use(self, pod: KubePod, sign: int) -> None:
        """Count a pod that is bound (1), or no longer (-1)."""
        for quota in self._by_space.get(pod.namespace, ()):
            try:
                for hard, amount in quota.asked(pod).items():
                    quota.used[hard] += sign * amount
            except ANY_ERROR:
                continue

    def exceeded(self, pod: KubePod) -> str | None:
        """Return the first quota that a pod would exceed, in the words of the API server."""
        for quota in self._by_space.get(pod.namespace, ()):
            try:
                asked = quota.asked(pod)
            except ANY_ERROR:
                continue
            over = [hard for hard, amount in asked.items() if quota.used[hard] + amount > quota.hard[hard][2]]
            if over:
                what = {hard: quota.hard[hard][0] for hard in over}
                columns = (asked, quota.used, {hard: quota.hard[hard][2] for hard in over})
                texts = [",".join(f"{h}={canonical(what[h], column[h])}" for h in sorted(over)) for column in columns]
                return f"exceeded quota: {quota.name}, requested: {texts[0]}, used: {texts[1]}, limited: {texts[2]}"
        return None


def counted_by(hard: str) -> str | None:
    """Return the resource of pods that an entry of a quota counts, such as ``cpu`` for ``requests.cpu``."""
    limited = hard.startswith("limits.")
    what = _COUNTED.get(hard, hard.removeprefix("limits." if limited else "requests."))
    return what if _OF_PODS.fullmatch(what) and (not limited or what in _LIMITED) else None


def in_scope(pod: KubePod, scope: Any) -> bool:
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
