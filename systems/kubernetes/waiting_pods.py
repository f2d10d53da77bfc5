"""The instance under construction: the nodes allowed for each waiting pod, and the rules among pods.

Sets of nodes are integer bit masks in the order of the nodes, so that one set per pod is cheap.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from flowlex.instances.group_rules import PodResource, PodSpread
from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, Kind, KubePod, label_map
from flowlex.systems.kubernetes.selectors import selects

HOST = "kubernetes.io/hostname"
_T = TypeVar("_T")


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
        return selects(json.loads(self.text), dict(kind.labels))


@dataclass(eq=False)
class Draft:
    """The nodes allowed for waiting pods, and the rules of the future instance."""

    cluster: Cluster
    names: list[str]  # all listed nodes
    usable: int  # nodes that the instance has; the others take no pod
    allowed: dict[str, int] = field(default_factory=dict)  # by waiting pod
    marks: dict[str, dict[str, str]] = field(default_factory=dict)  # by node, labels that the instance adds
    # spreads, resources: rules of the instance
    spreads: list[PodSpread] = field(default_factory=list)
    resources: list[PodResource] = field(default_factory=list)
    # spread_of, resources_of: by pod, running ones too
    spread_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    resources_of: dict[str, dict[str, int]] = field(default_factory=dict)
    # running pods that must not stop, because a rule of a waiting pod counts them
    pinned: set[str] = field(default_factory=set)
    _met: dict[tuple[Selection, Kind], bool] = field(default_factory=dict)
    _of_spec: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    @cached_property
    def bit(self) -> dict[str, int]:
        """By node, its bit."""
        return {name: 1 << k for k, name in enumerate(self.names)}

    @property
    def waiting(self) -> list[KubePod]:
        """Pods to be placed that are not left pending so far."""
        return [pod for pod in self.cluster.waiting if pod.name not in self.cluster.pending]

    @cached_property
    def free(self) -> dict[str, dict[str, int]]:
        """Free amount of each resource by node, given the running pods; negative if they use more than the total."""
        found = {name: dict(node.allocatable) for name, node in self.cluster.nodes.items()}
        for pod in self.cluster.running:
            here = found[str(pod.node)]
            for what, amount in pod.requests.items():
                here[what] = here.get(what, 0) - amount
        return found

    def mask(self, names: Iterable[str]) -> int:
        """Return a set of nodes as a bit mask."""
        found = 0
        for name in names:
            found |= self.bit[name]
        return found

    def of_spec(self, pod: KubePod, what: str, work: Callable[[], _T], *more: object) -> _T:
        """Return the result of ``work``, computed once for all pods of one specification (and the same ``more``)."""
        key = (id(pod.spec), what, *more)
        if key not in self._of_spec:
            self._of_spec[key] = work()
        found: _T = self._of_spec[key]
        return found

    def each(self, work: Callable[[KubePod], None]) -> None:
        """Call ``work`` for each waiting pod; a pod for which it fails is left pending."""
        for pod in self.waiting:
            self.tried(pod, lambda pod=pod: work(pod), None)  # type: ignore[misc]

    def tried(self, pod: KubePod, work: Callable[[], _T], otherwise: _T) -> _T:
        """Return the result of ``work``; if it fails, leave the pod pending and return ``otherwise``."""
        try:
            return work()
        except ANY_ERROR as error:
            what = "a field is missing or of another type " if not isinstance(error, ValueError) else ""
            self.cluster.leave(pod, f"a rule of it cannot be read: {what}{error}")
            return otherwise

    def forbid(self, pod: KubePod, nodes: int, reason: str) -> None:
        """Keep a waiting pod away from nodes; without any left it stays pending."""
        left = self.allowed[pod.name] & ~nodes
        self.allowed[pod.name] = left
        if not left & self.usable:
            self.cluster.leave(pod, reason)

    def domains(self, key: str) -> dict[str, int]:
        """Values of a label, each with its nodes."""
        found: dict[str, int] = {}
        for name, node in self.cluster.nodes.items():
            if key in node.labels:
                value = node.labels[key]
                found[value] = found.get(value, 0) | self.bit[name]
        return found

    def same_domain(self, key: str, nodes: int) -> int:
        """Return all nodes in the same domains of a label as the given nodes."""
        return sum(mask for mask in self.domains(key).values() if mask & nodes)

    def means(self, selection: Selection, pod: KubePod) -> bool:
        """Return whether a selection matches a pod."""
        key = (selection, pod.kind)
        if key not in self._met:
            self._met[key] = selection.matches(key[1])
        return self._met[key]

    @cached_property
    def places(self) -> dict[Kind, Counter[str]]:
        """Number of running pods on each node, by kind of pod."""
        return self._count(self.cluster.running)

    @cached_property
    def lasting(self) -> dict[Kind, Counter[str]]:
        """The same, of those that are not being deleted."""
        return self._count(pod for pod in self.cluster.running if not pod.ending)

    def _count(self, pods: Iterable[KubePod]) -> dict[Kind, Counter[str]]:
        found: dict[Kind, Counter[str]] = {}
        for pod in pods:
            found.setdefault(pod.kind, Counter())[str(pod.node)] += 1
        return found

    def selection(
        self, pod: KubePod, rule: Mapping[str, Any], *, anywhere: bool = False, spread: bool = False
    ) -> Selection:
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
        listed = self.cluster.others.get("Namespace")
        if listed is None:
            if anywhere:
                return None
            raise ValueError("its namespaceSelector needs the Namespace objects; list them too")
        labels = {str(each["metadata"]["name"]): label_map(each["metadata"]) for each in listed}
        named |= {
            name for name, mine in labels.items() if selects(selector, {"kubernetes.io/metadata.name": name} | mine)
        }
        return named

    def mark(self, name: str, values: Mapping[str, str]) -> str:
        """Label nodes for a rule; returns the label."""
        label = f"flowlex/{name}"
        for node, value in values.items():
            self.marks.setdefault(node, {})[label] = value
        return label

    def add_spread(self, rule: PodSpread, pods: Iterable[KubePod]) -> None:
        """Add a rule and its pods."""
        self.spreads.append(rule)
        for pod in pods:
            self.spread_of[pod.name] = (*self.spread_of.get(pod.name, ()), rule.name)

    def add_resource(self, resource: PodResource, asked: Mapping[str, int]) -> None:
        """Add a resource and what pods ask of it, by name."""
        self.resources.append(resource)
        for pod, amount in asked.items():
            if amount:
                self.resources_of.setdefault(pod, {})[resource.name] = amount

    def over(self, key: str, name: str, nodes: int, *, others: bool) -> str:
        """Return the domain key of a rule: the label if all nodes have it, else a label made for the rule.

        ``nodes`` count; each other node is in no domain or, with ``others``, a domain of its own.
        """
        listed = [self.cluster.nodes[each] for each in self.names if self.bit[each] & self.usable]
        inside = {node.name: node.labels[key] for node in listed if self.bit[node.name] & nodes and key in node.labels}
        if len(inside) == len(listed):
            return "node" if key == HOST and len({*inside.values()}) == len(inside) else key
        if others:
            inside |= {node.name: f"only {node.name}" for node in listed if node.name not in inside}
        return self.mark(name, inside)
