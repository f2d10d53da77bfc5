"""Label selectors of affinity, anti-affinity and spread, with the namespaces in which they select."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flowlex.systems.kubernetes.objects import Cluster, Kind, KubePod, label_map
from flowlex.systems.kubernetes.selectors import selects


@dataclass(frozen=True)
class Selection:
    """The pods that a rule selects: a label selector in namespaces (None: all), over domains of a label."""

    key: str
    spaces: frozenset[str] | None
    text: str
    """The selector as JSON."""

    def matches(self, kind: Kind) -> bool:
        """Return whether it selects pods of a kind."""
        if self.spaces is not None and kind.namespace not in self.spaces:
            return False
        return selects(_parsed(self.text), dict(kind.labels))


@lru_cache(maxsize=10_000)
def _parsed(text: str) -> Any:
    return json.loads(text)


class Selections:
    """The selections of a cluster's rules; whether one selects a kind of pods is computed once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._met: dict[tuple[Selection, Kind], bool] = {}

    def means(self, selection: Selection, pod: KubePod) -> bool:
        """Return whether a selection matches a pod."""
        key = (selection, pod.kind)
        if key not in self._met:
            self._met[key] = selection.matches(key[1])
        return self._met[key]

    def of(self, pod: KubePod, rule: Mapping[str, Any], *, anywhere: bool = False, spread: bool = False) -> Selection:
        """Return the selection of a pod's rule; ``anywhere``: all namespaces, if they are not known."""
        selector = rule.get("labelSelector")
        if selector is not None:
            more = list(selector.get("matchExpressions") or ())
            for field_name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
                keys = [key for key in rule.get(field_name) or () if key in pod.labels]
                more += [{"key": key, "operator": operator, "values": [pod.labels[key]]} for key in keys]
            selector = {"matchLabels": dict(selector.get("matchLabels") or {}), "matchExpressions": more}
            selects(selector, {})  # raises where it cannot be read
        spaces = frozenset({pod.namespace}) if spread else self._spaces(pod, rule, anywhere)
        return Selection(str(rule["topologyKey"]), spaces, json.dumps(selector, sort_keys=True))

    def _spaces(self, pod: KubePod, rule: Mapping[str, Any], anywhere: bool) -> frozenset[str] | None:
        named, selector = frozenset(map(str, rule.get("namespaces") or ())), rule.get("namespaceSelector")
        if selector is None:
            return named or frozenset({pod.namespace})
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            return None
        listed = self._cluster.others.get("Namespace")
        if listed is None:
            if anywhere:
                return None
            raise ValueError("its namespaceSelector needs the Namespace objects; list them too")
        labels = {str(each["metadata"]["name"]): label_map(each["metadata"]) for each in listed}
        named |= {
            name for name, mine in labels.items() if selects(selector, {"kubernetes.io/metadata.name": name} | mine)
        }
        return named
