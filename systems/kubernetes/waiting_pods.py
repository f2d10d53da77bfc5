"""The instance under construction: the nodes allowed for each waiting pod, and the rules among pods.

Sets of nodes are integer bit masks in the order of the nodes, so that one set per pod is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from flowlex.instances.group_rules import PodResource, PodSpread
from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, Kind, KubePod
from flowlex.systems.kubernetes.pod_selections import Selection
from flowlex.systems.kubernetes.pod_volumes import Mask
from flowlex.systems.kubernetes.scheduler_filters import SchedulerState

HOST = "kubernetes.io/hostname"
_T = TypeVar("_T")


@dataclass(eq=False)
class Draft:
    """The nodes allowed for waiting pods, and the rules of the future instance."""

    cluster: Cluster
    state: SchedulerState  # the filters, with only the running pods bound
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
    # nodes of a one-by-one pass: where it met an affinity, the pods of the instance may meet it too; None: no pass
    guide: Mapping[str, str] | None = None
    # whether rules that can only be stated more strictly than Kubernetes checks them are left out instead
    relaxed: bool = False
    # the placement of a one-by-one pass, computed when it is asked for
    first_places: Callable[[], Mapping[str, str]] = dict
    # by pod of the guide on which others count, the nodes where these met it
    anchors: dict[str, int] = field(default_factory=dict)
    stoppable: bool = False  # whether running pods may be stopped
    # whether its bounds hold: not where a pod that may be stopped closes nodes by anti-affinity or volumes
    sound: bool = True
    exact: bool = True  # whether the instance allows whatever Kubernetes does
    # running pods that must not stop, because a rule of a waiting pod counts them
    pinned: set[str] = field(default_factory=set)
    _of_spec: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    _domains: dict[str, dict[str, int]] = field(default_factory=dict)
    _matched: dict[tuple[Selection, ...], list[KubePod]] = field(default_factory=dict)

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

    def of_mask(self, nodes: Mask) -> int:
        """Return a (N,) mask as a bit mask."""
        return int.from_bytes(np.packbits(nodes, bitorder="little").tobytes(), "little")

    def stricter(self) -> bool:
        """Return whether to state a rule more strictly than Kubernetes checks it; the instance then is not exact."""
        self.exact = self.exact and self.relaxed
        return not self.relaxed

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
        """Keep a waiting pod away from nodes; without any left it stays pending.

        Without a ``reason``, it is what Kubernetes says of the pod while only the running pods are bound.
        """
        left = self.allowed[pod.name] & ~nodes
        self.allowed[pod.name] = left
        if not left & self.usable and pod.name not in self.cluster.pending:
            self.cluster.leave(pod, reason or self.state.reason(pod))

    def domains(self, key: str) -> dict[str, int]:
        """Values of a label, each with its nodes."""
        if key not in self._domains:
            found = self._domains[key] = dict[str, int]()
            for name, node in self.cluster.nodes.items():
                if key in node.labels:
                    value = node.labels[key]
                    found[value] = found.get(value, 0) | self.bit[name]
        return self._domains[key]

    def same_domain(self, key: str, nodes: int) -> int:
        """Return all nodes in the same domains of a label as the given nodes."""
        return sum(mask for mask in self.domains(key).values() if mask & nodes)

    def means(self, selection: Selection, pod: KubePod) -> bool:
        """Return whether a selection matches a pod."""
        return self.state.selections.means(selection, pod)

    @cached_property
    def _kinds(self) -> dict[Kind, list[KubePod]]:
        found: dict[Kind, list[KubePod]] = {}
        for pod in self.cluster.waiting:
            found.setdefault(pod.kind, []).append(pod)
        return found

    def of_kinds(self, terms: Iterable[Selection]) -> list[KubePod]:
        """Return the waiting pods that all terms match, without those left pending."""
        terms = tuple(Selection("", term.spaces, term.text) for term in terms)
        if terms not in self._matched:
            kinds = (pods for pods in self._kinds.values() if all(self.means(term, pods[0]) for term in terms))
            self._matched[terms] = [pod for pods in kinds for pod in pods]
        return [pod for pod in self._matched[terms] if pod.name not in self.cluster.pending]

    @cached_property
    def _running_kinds(self) -> dict[Kind, list[KubePod]]:
        found: dict[Kind, list[KubePod]] = {}
        for pod in self.cluster.running:
            found.setdefault(pod.kind, []).append(pod)
        return found

    def running_of(self, terms: Iterable[Selection]) -> list[KubePod]:
        """Return the running pods that all terms match."""
        terms = tuple(terms)
        kinds = self._running_kinds.values()
        return [pod for pods in kinds if all(self.means(term, pods[0]) for term in terms) for pod in pods]

    def joined(self, terms: Iterable[Selection], nodes: int) -> int:
        """Return the nodes that are in the same domains as the given nodes, by the labels of all terms."""
        found = ~0 if nodes else 0
        for term in terms:
            found &= self.same_domain(term.key, nodes)
        return found

    def selection(
        self, pod: KubePod, rule: Mapping[str, Any], *, anywhere: bool = False, spread: bool = False
    ) -> Selection:
        """Return the selection of a pod's rule; ``anywhere``: all namespaces, if they are not known."""
        return self.state.selections.of(pod, rule, anywhere=anywhere, spread=spread)

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
