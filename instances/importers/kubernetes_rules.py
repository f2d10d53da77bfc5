"""Rules over several pods that Kubernetes objects state: pod groups, anti-affinity, topology spread, resource quotas.

A required rule is read where every pod that it selects states it as well, so that it is one rule over a set of pods;
all else (rules against other pods, preferences, pod affinity) is counted and reported.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from flowlex.instances.pod_rules import PodGang, PodQueue, PodSpread

__all__ = ["read_rules"]

_GROUPS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io", "scheduling.k8s.io/group-name")
_HOST = "kubernetes.io/hostname"
#: Fields of a `PodQueue` and the resources of a ResourceQuota that say them.
_QUOTAS = {
    "cpu_cores": ("requests.cpu", "cpu"),
    "memory_gb": ("requests.memory", "memory"),
    "gpus": ("requests.nvidia.com/gpu",),
    "pods": ("pods",),
}
Fields = dict[str, Any]


def read_rules(
    pods: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], quantity: Callable[[object], Fraction]
) -> tuple[list[Fields], Fields, Counter[str]]:
    """Fields of each pod, fields of the instance, and how often what could not be read occurs.

    Parameters
    ----------
    pods
        The Pod objects that are read.
    others
        All other objects; ResourceQuota and PodGroup are looked at.
    """
    of: list[Fields] = [{} for _ in pods]
    skipped: Counter[str] = Counter()
    gangs = _gangs(pods, others, of, skipped)
    spreads = _spreads(pods, of, skipped)
    queues = _queues(pods, others, of, quantity)
    return of, {"gangs": gangs, "spreads": spreads, "queues": queues}, skipped


def _space(item: Mapping[str, Any]) -> str:
    return str(item["metadata"].get("namespace", "default"))


def _gangs(
    pods: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], of: list[Fields], skipped: Counter[str]
) -> tuple[PodGang, ...]:
    members: dict[str, list[int]] = {}
    for p, pod in enumerate(pods):
        marks = {**(pod["metadata"].get("annotations") or {}), **(pod["metadata"].get("labels") or {})}
        group = next((marks[key] for key in _GROUPS if key in marks), None)
        if group is not None:
            members.setdefault(f"{_space(pod)}/{group}", []).append(p)
    least = {
        f"{_space(item)}/{item['metadata']['name']}": int((item.get("spec") or {}).get("minMember", 0))
        for item in others
        if item.get("kind") == "PodGroup"
    }
    found = []
    for name, mine in members.items():
        waits = [p for p in mine if not pods[p]["spec"].get("nodeName")]
        if len(waits) < len(mine):  # some run: those that wait follow one by one, as gang schedulers let them
            skipped["pod groups that run in part"] += bool(waits)
            waits = []
        if waits:
            skipped["pod groups whose minMember is less than their pods (taken whole)"] += (
                0 < least.get(name, 0) < len(waits)
            )
            found.append(PodGang(name=name))
        for p in waits:
            of[p]["gang"] = name
    return tuple(found)


def _selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches; without one, nothing does."""
    if selector is None or any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for rule in selector.get("matchExpressions") or ():
        key, operator, values = rule["key"], rule["operator"], rule.get("values") or ()
        met = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if operator not in met:
            raise ValueError(f"label selector with operator {operator!r}; In, NotIn, Exists or DoesNotExist")
        if not met[operator]:
            return False
    return True


def _stated(pod: Mapping[str, Any], skipped: Counter[str]) -> list[tuple[str, str, int, Any]]:
    """Kind, topology key, number and selector of every required rule of a pod."""
    spec, found = pod["spec"], []
    affinity = spec.get("affinity") or {}
    hard, soft = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
    skipped["pods with required pod affinity"] += bool((affinity.get("podAffinity") or {}).get(hard))
    liked = [(affinity.get(kind) or {}).get(soft) for kind in ("podAffinity", "podAntiAffinity", "nodeAffinity")]
    skipped["pods with preferences"] += any(liked)
    for term in (affinity.get("podAntiAffinity") or {}).get(hard) or ():
        if term.get("namespaces") or term.get("namespaceSelector") or term.get("matchLabelKeys"):
            skipped["anti-affinity over namespaces or by label keys"] += 1
        else:
            found.append(("most", term["topologyKey"], 1, term.get("labelSelector")))
    for rule in spec.get("topologySpreadConstraints") or ():
        if rule.get("whenUnsatisfiable") != "DoNotSchedule":
            skipped["pods that spread where possible"] += 1
        elif rule.get("matchLabelKeys") or rule.get("minDomains"):
            skipped["spread constraints with matchLabelKeys or minDomains"] += 1
        else:
            found.append(("skew", rule["topologyKey"], int(rule["maxSkew"]), rule.get("labelSelector")))
    return found


def _spreads(pods: Sequence[Mapping[str, Any]], of: list[Fields], skipped: Counter[str]) -> tuple[PodSpread, ...]:
    states: dict[tuple[str, str, str, int, str], list[int]] = {}
    for p, pod in enumerate(pods):
        for kind, key, number, selector in _stated(pod, skipped):
            text = json.dumps(selector, sort_keys=True)
            states.setdefault((_space(pod), kind, key, number, text), []).append(p)
    found = list[PodSpread]()
    for (space, kind, key, number, text), mine in states.items():
        selector = json.loads(text)
        meant = [
            p
            for p, pod in enumerate(pods)
            if _space(pod) == space and _selects(selector, pod["metadata"].get("labels") or {})
        ]
        if meant != mine:
            what = "anti-affinity" if kind == "most" else "spread constraints"
            skipped[f"{what} over pods that do not all state it"] += len(mine)
            continue
        name = f"{space}/{'apart' if kind == 'most' else 'even'}-{len(found) + 1}"
        found.append(PodSpread(name=name, over="node" if key == _HOST else key, **{kind: number}))
        for p in mine:
            of[p]["spreads"] = (*of[p].get("spreads", ()), name)
    return tuple(found)


def _queues(
    pods: Sequence[Mapping[str, Any]],
    others: Sequence[Mapping[str, Any]],
    of: list[Fields],
    quantity: Callable[[object], Fraction],
) -> tuple[PodQueue, ...]:
    limits: dict[str, Fields] = {}
    for item in others:
        if item.get("kind") != "ResourceQuota":
            continue
        hard, mine = (item.get("spec") or {}).get("hard") or {}, limits.setdefault(_space(item), {})
        for field, names in _QUOTAS.items():
            for name in names:
                if name in hard:
                    amount = quantity(hard[name]) / (1024**3 if field == "memory_gb" else 1)
                    value = int(amount) if field == "pods" else float(amount)
                    mine[field] = min(value, mine.get(field, value))
    for p, pod in enumerate(pods):
        if _space(pod) in limits:
            of[p]["queue"] = _space(pod)
    return tuple(PodQueue(name=space, **fields) for space, fields in limits.items())
