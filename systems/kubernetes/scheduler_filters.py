"""The filters of the default scheduler over all nodes at once, while pods are bound and unbound one by one.

`SchedulerState` holds what bound pods use. `SchedulerState.verdict` says which nodes each filter refuses for a pod, in
the scheduler's order and in its words. Quotas are checked as the API server does when a pod is created.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.systems.kubernetes.card_state import CardState
from flowlex.systems.kubernetes.gpu_cards import Cards
from flowlex.systems.kubernetes.objects import ANY_ERROR, Cluster, Kind, KubePod
from flowlex.systems.kubernetes.pod_selections import Selection, Selections
from flowlex.systems.kubernetes.pod_volumes import NO_VOLUME, Handle, Mask, Volumes, by_driver, late_volume
from flowlex.systems.kubernetes.quota_use import QuotaUse
from flowlex.systems.kubernetes.selectors import Taint, tolerates

Counts = NDArray[np.int64]
_LARGE = 2**62
_ANY = "0.0.0.0"
_CORDONED = "node.kubernetes.io/unschedulable"


class Refusal(NamedTuple):
    """Nodes that a filter refuses, and why."""

    plugin: str
    nodes: Mask  # (N,)
    reason: str | Callable[[int], str]  # of all, or of one node


@dataclass(frozen=True)
class Spread:
    """A hard topology-spread constraint of a pod."""

    selection: Selection
    skew: int
    least_domains: int
    eligible: Mask  # (N,) nodes whose pods count
    itself: int  # 1 if the pod matches its own selector


@dataclass(eq=False)
class PodRules:
    """The rules of a pod over other pods; pods of one specification and kind share them."""

    affinity: tuple[Selection, ...]
    anti_affinity: tuple[Selection, ...]
    spreads: tuple[Spread, ...]
    itself: bool  # whether it matches all its affinity terms

    @property
    def any(self) -> bool:
        """Whether it has any rule whose verdict may turn to the better when other pods are bound."""
        return bool(self.affinity or self.spreads)


class SchedulerState:
    """What the bound pods of a cluster use, and what the filters therefore refuse."""

    def __init__(self, cluster: Cluster, cards: Cards, unreadable: Sequence[str] = ()) -> None:
        self.cluster, self.names = cluster, list(cluster.nodes)
        self.at = {name: k for k, name in enumerate(self.names)}
        self.nodes = list(cluster.nodes.values())
        self.size = len(self.names)
        self.volumes, self.selections = Volumes(cluster, self.names), Selections(cluster)
        self.quotas, self.cards = QuotaUse(cluster), CardState(cluster, cards)
        self.node_of: dict[str, int] = {}
        self.pods: dict[str, KubePod] = {}
        waiting = {what for pod in cluster.waiting if pod.name not in cluster.pending for what in pod.requests}
        self._kinds = sorted(waiting)
        self._row = {what: k for k, what in enumerate(self._kinds)}
        self.total = np.array(
            [[min(_LARGE, node.allocatable.get(what, 0)) for node in self.nodes] for what in self._kinds], np.int64
        ).reshape(len(self._kinds), self.size)
        self.free = self.total.copy()
        self.closed = np.array([not n.allocatable.get("cpu") or not n.allocatable.get("memory") for n in self.nodes])
        for name in unreadable:
            self.closed[self.at[name]] = True
        # ports: by protocol and port, the addresses in use on each node
        self._ports: dict[tuple[str, int], dict[int, Counter[str]]] = {}
        # counted: (N,) bound pods that match all selections of a key; lasting ones only, or all
        self._counted: dict[tuple[tuple[Selection, ...], bool], Counts] = {}
        self._counters: dict[Kind, list[tuple[Counts, bool]]] = {}
        # owners: (N,) bound pods with an anti-affinity term
        self._owners: dict[Selection, Counts] = {}
        self._avoiding: dict[Kind, list[Selection]] = {}
        self._rules: dict[tuple[int, Kind], PodRules] = {}
        self._masks: dict[Any, Any] = {}
        self._disks: dict[str, dict[int, Counter[bool]]] = {}
        self._claimed: Counter[str] = Counter()
        self._late: dict[str, str] = {}  # by claim that gets its volume in this plan, the pod that decides it
        self._taken: dict[str, list[str]] = {}  # by pod, the listed volumes that its late claims take
        self._attached: dict[str, tuple[Counts, dict[tuple[int, Handle], int]]] = {}
        self._nominated: list[tuple[KubePod, int]] = []
        self._register(cluster.waiting)
        for node, handle in self.volumes.attachments():
            self._attach(handle, node, 1)
        for pod in cluster.running:
            self.bind(pod, self.at[str(pod.node)])
        for pod in cluster.waiting:
            room = str((pod.item.get("status") or {}).get("nominatedNodeName") or "")
            if room in self.at:
                with contextlib.suppress(*ANY_ERROR):
                    _ = pod.requests, pod.ports
                    self._nominated.append((pod, self.at[room]))

    # -- reading rules
    def _register(self, pods: Sequence[KubePod]) -> None:
        """Read the rules of waiting pods, so that bound pods are counted from the start."""
        for pod in pods:
            if pod.name in self.cluster.pending:
                continue
            try:
                self.rules(pod)
                _ = self.volumes.of(pod)
                _ = self.static_refusals(pod), self.cards.asked(pod)
            except ANY_ERROR as error:
                what = "a field is missing or of another type " if not isinstance(error, ValueError) else ""
                self.cluster.leave(pod, f"a rule of it cannot be read: {what}{error}")

    def rules(self, pod: KubePod) -> PodRules:
        """Return the rules of a pod over other pods."""
        key = (id(pod.spec), pod.kind)
        if key not in self._rules:
            affinity = tuple(self.selections.of(pod, rule) for rule in pod.rules("podAffinity"))
            anti = tuple(self.selections.of(pod, rule) for rule in pod.rules("podAntiAffinity"))
            found = PodRules(
                affinity,
                anti,
                tuple(self._spreads(pod)),
                all(self.selections.means(term, pod) for term in affinity),
            )
            for terms in ((affinity,) if affinity else ()) + tuple((term,) for term in anti):
                self._count(terms, lasting=False)
            for spread in found.spreads:
                self._count((spread.selection,), lasting=True)
            self._rules[key] = found
        return self._rules[key]

    def _spreads(self, pod: KubePod) -> Iterator[Spread]:
        hard = [
            rule
            for rule in pod.spec.get("topologySpreadConstraints") or ()
            if rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
        ]
        keys = {str(rule["topologyKey"]) for rule in hard}
        for rule in hard:
            affinity, taints = rule.get("nodeAffinityPolicy") or "Honor", rule.get("nodeTaintsPolicy") or "Ignore"
            if {affinity, taints} - {"Honor", "Ignore"}:
                raise ValueError(f"topology spread with policies {affinity}, {taints}; Honor and Ignore are known")
            skew, least = int(rule["maxSkew"]), int(rule.get("minDomains") or 1)
            if skew < 1 or least < 1:
                raise ValueError("topology spread with maxSkew or minDomains below 1")
            eligible = np.array([keys <= node.labels.keys() for node in self.nodes], np.bool_)
            if affinity == "Honor":
                eligible &= self._chosen(pod)
            if taints == "Honor":
                eligible &= ~self._tainted(pod)[0]
            selection = self.selections.of(pod, rule, spread=True)
            yield Spread(selection, skew, least, eligible, int(self.selections.means(selection, pod)))

    def _count(self, terms: tuple[Selection, ...], *, lasting: bool) -> Counts:
        """Return (N,) the bound pods that match all terms; ``lasting``: without those that are being deleted."""
        plain = tuple(Selection("", term.spaces, term.text) for term in terms)
        key = (plain, lasting)
        if key not in self._counted:
            found = np.zeros(self.size, np.int64)
            met: dict[Kind, bool] = {}
            for name, node in self.node_of.items():
                pod = self.pods[name]
                if pod.kind not in met:
                    met[pod.kind] = all(self.selections.means(term, pod) for term in plain)
                found[node] += met[pod.kind] and not (lasting and pod.ending)
            self._counted[key] = found
            self._counters.clear()
        return self._counted[key]

    def row(self, what: str) -> int | None:
        """Return the row of a resource in ``free`` and ``total``; None if no waiting pod asks for it."""
        return self._row.get(what)

    # -- binding
    def bind(self, pod: KubePod, node: int, cards: Sequence[int] | None = None) -> None:
        """Bind a pod to a node, whether or not the filters allow it."""
        self.node_of[pod.name], self.pods[pod.name] = node, pod
        self._use(pod, node, 1)
        self.cards.add(pod, node, cards)

    def unbind(self, pod: KubePod) -> None:
        """Undo a binding."""
        node = self.node_of.pop(pod.name)
        self._use(pod, node, -1)
        self.cards.remove(pod, node)
        del self.pods[pod.name]

    def _use(self, pod: KubePod, node: int, sign: int) -> None:
        for what, amount in pod.requests.items():
            if (row := self._row.get(what)) is not None:
                self.free[row, node] -= sign * min(_LARGE, amount)
        for protocol, port, address in pod.ports:
            self._ports.setdefault((protocol, port), {}).setdefault(node, Counter())[address] += sign
        for counts, lasting in self._matching(pod):
            counts[node] += sign * (not (lasting and pod.ending))
        for term in self._terms(pod):
            if term not in self._owners:
                self._owners[term] = np.zeros(self.size, np.int64)
                self._avoiding.clear()
            self._owners[term][node] += sign
        self.quotas.use(pod, sign)
        if pod.spec.get("volumes"):
            self._use_volumes(pod, node, sign)

    def _matching(self, pod: KubePod) -> list[tuple[Counts, bool]]:
        if pod.kind not in self._counters:
            self._counters[pod.kind] = [
                (counts, lasting)
                for (terms, lasting), counts in self._counted.items()
                if all(self.selections.means(term, pod) for term in terms)
            ]
        return self._counters[pod.kind]

    def _terms(self, pod: KubePod) -> tuple[Selection, ...]:
        """Anti-affinity of a bound pod; where it cannot be read, its node takes no further pod."""
        if not pod.rules("podAntiAffinity"):
            return ()
        key = (id(pod.spec), "terms", pod.kind)
        if key not in self._masks:
            try:
                terms = (self.selections.of(pod, rule, anywhere=True) for rule in pod.rules("podAntiAffinity"))
                self._masks[key] = tuple(terms)
            except ANY_ERROR:
                self._masks[key] = ()
                if pod.node is not None:
                    self.closed[self.at[pod.node]] = True
        found: tuple[Selection, ...] = self._masks[key]
        return found

    def _use_volumes(self, pod: KubePod, node: int, sign: int) -> None:
        try:
            mine = self.volumes.of(pod)
        except ANY_ERROR:
            return
        for name in mine.claims:
            self._claimed[name] += sign
        for disk, writes in mine.disks.items():
            self._disks.setdefault(disk, {}).setdefault(node, Counter())[writes] += sign
        for handle in mine.handles:
            self._attach(handle, node, sign)
        if sign > 0:
            taken = {volume for volumes in self._taken.values() for volume in volumes}
            for claim in mine.late:
                self._late.setdefault(claim.name, pod.name)
                if pod.node is None and (volume := late_volume(claim, node, self.volumes, taken)):
                    taken.add(volume)
                    self._taken.setdefault(pod.name, []).append(volume)
        elif sign < 0:
            self._taken.pop(pod.name, None)
            for claim in mine.late:
                if self._late.get(claim.name) == pod.name:
                    del self._late[claim.name]

    def _attach(self, handle: Handle, node: int, sign: int) -> None:
        if handle.driver not in self.volumes.limits:
            return
        if handle.plugin is not None and not self.volumes.migrated[handle.plugin][node]:
            return
        counts, users = self._attached.setdefault(handle.driver, (np.zeros(self.size, np.int64), {}))
        key = (node, Handle(handle.driver, handle.name))
        before = users.get(key, 0)
        users[key] = before + sign
        counts[node] += (before + sign > 0) - (before > 0)

    def late_volumes(self, pod: KubePod) -> tuple[dict[str, str | None], int]:
        """Return the claims that get their volume with this pod, each with the listed volume that it takes, if any."""
        node, found = self.node_of[pod.name], dict[str, str | None]()
        taken = {v for name, volumes in self._taken.items() if name != pod.name for v in volumes}
        for claim in self.volumes.of(pod).late if pod.spec.get("volumes") else ():
            volume = late_volume(claim, node, self.volumes, taken)
            taken |= {volume} if volume else set()
            found[claim.name] = volume or None
        return found, node

    # -- filters
    def verdict(self, pod: KubePod) -> tuple[str | None, list[Refusal]]:
        """Return why a pod cannot go anywhere, or what each filter refuses now, in the scheduler's order."""
        if (why := self.cluster.pending.get(pod.name)) is not None:
            return why, []
        if (why := self._before(pod)) is not None:
            return why, []
        return None, list(self._refusals(pod))

    def open_nodes(self, pod: KubePod) -> Mask:
        """(N,) nodes on which all filters allow a pod now."""
        found = np.zeros(self.size, np.bool_)
        if pod.name in self.cluster.pending or self._before(pod) is not None:
            return found
        found = self._passing(pod)
        return self._beside_nominated(pod, found) if self._nominated else found

    def takes(self, pod: KubePod, node: int) -> bool:
        """Return whether a node has the resources, ports and cards for a pod that ran there before."""
        if not self._known(pod):
            return False
        rows = ((self._row[what], amount) for what, amount in pod.requests.items() if what in self._row)
        used = any(self._no_port(pod)) if pod.ports else False
        cards = any(bool(nodes[node]) for _, nodes, _ in self.cards.refusals(pod))
        near = bool(self.near_others(pod)[node])
        return all(self.free[row, node] >= amount for row, amount in rows) and not (used or cards or near)

    def _known(self, pod: KubePod) -> bool:
        try:
            return self.rules(pod) is not None
        except ANY_ERROR:
            return False

    def _passing(self, pod: KubePod) -> Mask:
        found = np.ones(self.size, np.bool_)
        for refusal in self._refusals(pod):
            found &= ~refusal.nodes
            if not found.any():
                break
        return found

    def _before(self, pod: KubePod) -> str | None:
        """Return what keeps a pod from all nodes, before any node is looked at."""
        if (why := self.quotas.exceeded(pod)) is not None:
            return why
        return self.volume_wait(pod) if pod.spec.get("volumes") else None

    def volume_wait(self, pod: KubePod) -> str | None:
        """Return why the claims of a pod keep it from all nodes now."""
        mine = self.volumes.of(pod)
        if mine.waits is not None:
            return mine.waits
        for claim in mine.late:
            if self._late.get(claim.name, pod.name) != pod.name:
                short = claim.name.partition("/")[2]
                return f'persistentvolumeclaim "{short}" gets its volume with pod {self._late[claim.name]}'
        if any(self._claimed[claim] for claim in mine.alone):
            return "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
        return None

    def _beside_nominated(self, pod: KubePod, found: Mask) -> Mask:
        """Exclude nodes on which a pod fits only without nominated pods that are as important."""
        rivals: dict[int, list[KubePod]] = {}
        for other, node in self._nominated:
            waits = other.name not in self.node_of and other.name != pod.name
            if found[node] and waits and other.priority >= pod.priority:
                rivals.setdefault(node, []).append(other)
        for node, pods in rivals.items():
            for other in pods:
                self.bind(other, node)
            found[node] &= self._before(pod) is None and bool(self._passing(pod)[node])
            for other in pods:
                self.unbind(other)
        return found

    def static_refusals(self, pod: KubePod) -> list[Refusal]:
        """Return the filters that do not depend on other pods: taints, node selector and affinity."""
        key = (id(pod.spec), "static")
        if key not in self._masks:
            cordoned, tainted, reason = self._cordoned(pod), *self._tainted(pod)
            self._masks[key] = [
                Refusal("NodeUnschedulable", cordoned, "node(s) were unschedulable"),
                Refusal("TaintToleration", tainted, reason),
                Refusal("NodeAffinity", ~self._chosen(pod), "node(s) didn't match Pod's node affinity/selector"),
                Refusal("NodeResourcesFit", self.closed, "node(s) took no pod, as they or a pod there cannot be read"),
            ]
            self._masks[key] = [each for each in self._masks[key] if each.nodes.any() or each.nodes is self.closed]
        found: list[Refusal] = self._masks[key]
        return found

    @cached_property
    def _taint_sets(self) -> tuple[list[tuple[Taint, ...]], NDArray[np.intp]]:
        sets = {taints: k for k, taints in enumerate(dict.fromkeys((*n.taints, *n.closed) for n in self.nodes))}
        return list(sets), np.array([sets[(*n.taints, *n.closed)] for n in self.nodes], np.intp)

    def _untolerated(self, pod: KubePod) -> list[list[Taint]]:
        listed = pod.spec.get("tolerations") or ()
        for toleration in listed:
            if (toleration.get("operator") or "Equal") not in ("Equal", "Exists"):
                tolerates([toleration], Taint("", "", ""))  # raises
        return [[taint for taint in taints if not tolerates(listed, taint)] for taints in self._taint_sets[0]]

    def _cordoned(self, pod: KubePod) -> Mask:
        lacks = [any(taint.key == _CORDONED for taint in taints) for taints in self._untolerated(pod)]
        return np.array(lacks, np.bool_)[self._taint_sets[1]]

    def _tainted(self, pod: KubePod) -> tuple[Mask, Callable[[int], str]]:
        lacks = [[taint for taint in taints if taint.key != _CORDONED] for taints in self._untolerated(pod)]
        of = self._taint_sets[1]

        def reason(node: int) -> str:
            taint = lacks[of[node]][0]
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"

        return np.array([bool(taints) for taints in lacks], np.bool_)[of], reason

    def _chosen(self, pod: KubePod) -> Mask:
        """(N,) nodes that the node selector and the required node affinity of a pod name."""
        affinity = (pod.spec.get("affinity") or {}).get("nodeAffinity")
        selector = pod.spec.get("nodeSelector")
        if not affinity and not selector:
            return np.ones(self.size, np.bool_)
        key = ("chosen", str(selector), str(affinity))
        if key not in self._masks:
            self._masks[key] = np.array([pod.chooses(node) for node in self.nodes], np.bool_)
        found: Mask = self._masks[key]
        return found

    def _refusals(self, pod: KubePod) -> Iterator[Refusal]:
        yield from self.static_refusals(pod)
        if pod.ports:
            yield Refusal("NodePorts", self._no_port(pod), "node(s) didn't have free ports for the requested pod ports")
        yield from self._resources(pod)
        for refusal in self.cards.refusals(pod):
            yield Refusal(*refusal)
        if pod.spec.get("volumes"):
            yield from self.volume_refusals(pod)
        rules = self.rules(pod)
        for spread in rules.spreads:
            yield from self._uneven(spread)
        yield from self._affinity(pod, rules)

    def _resources(self, pod: KubePod) -> Iterator[Refusal]:
        for what, amount in pod.requests.items():
            lacking = self.free[self._row[what]] < amount
            if lacking.any():
                yield Refusal(
                    "NodeResourcesFit", lacking, "Too many pods" if what == "pods" else f"Insufficient {what}"
                )

    def _no_port(self, pod: KubePod) -> Mask:
        found = np.zeros(self.size, np.bool_)
        for protocol, port, address in pod.ports:
            for node, addresses in self._ports.get((protocol, port), {}).items():
                used = {each for each, many in addresses.items() if many > 0}
                found[node] |= bool(used) and (address == _ANY or bool({address, _ANY} & used))
        return found

    def attachable(self, driver: str) -> Counts:
        """(N,) how many more volumes of a driver can be attached to each node."""
        limit = self.volumes.limits[driver]
        used = self._attached[driver][0] if driver in self._attached else np.zeros(self.size, np.int64)
        return np.where(limit < 0, 2**31, limit - used)

    def volume_refusals(self, pod: KubePod) -> Iterator[Refusal]:
        """Yield what the volumes of a pod refuse."""
        mine = self.volumes.of(pod)
        met = np.zeros(self.size, np.bool_)
        for disk, writes in mine.disks.items():
            for node, there in self._disks.get(disk, {}).items():
                met[node] |= there[True] > 0 or (writes and there[False] > 0)
        if met.any():
            yield Refusal("VolumeRestrictions", met, "node(s) had no available disk")
        for driver, handles in by_driver(mine.handles).items():
            limit = self.volumes.limits.get(driver)
            if limit is None:
                continue
            counts, users = self._attached.get(driver, (np.zeros(self.size, np.int64), {}))
            new = np.zeros(self.size, np.int64)
            for handle in handles:
                counted = (
                    np.ones(self.size, np.bool_) if handle.plugin is None else self.volumes.migrated[handle.plugin]
                )
                new += counted
                for (node, other), many in users.items():
                    if many > 0 and other.name == handle.name:
                        new[node] -= bool(counted[node])
            yield Refusal(
                "NodeVolumeLimits", (limit >= 0) & (new > 0) & (counts + new > limit), "node(s) exceed max volume count"
            )
        for nodes, reason in mine.refused:
            yield Refusal("VolumeBinding", nodes, reason)
        if mine.late:
            yield Refusal("VolumeBinding", self._no_volume(pod), NO_VOLUME)

    def _no_volume(self, pod: KubePod) -> Mask:
        late = self.volumes.of(pod).late
        held = {volume for volumes in self._taken.values() for volume in volumes}
        if not any(claim.volumes for claim in late):
            found: Mask = ~np.logical_and.reduce([claim.provision for claim in late])
            return found
        found = np.zeros(self.size, np.bool_)
        for node in range(self.size):
            taken = set(held)
            for claim in late:
                volume = late_volume(claim, node, self.volumes, taken)
                found[node] |= volume is None
                taken |= {volume} if volume else set()
        return found

    def domain(self, key: str) -> tuple[NDArray[np.intp], int]:
        """(N,) number of each node's domain of a label, -1 without the label; and how many domains there are."""
        known = ("domain", key)
        if known not in self._masks:
            values = {v: k for k, v in enumerate(dict.fromkeys(n.labels[key] for n in self.nodes if key in n.labels))}
            of = np.array(
                [values.get(n.labels.get(key, ""), -1) if key in n.labels else -1 for n in self.nodes], np.intp
            )
            self._masks[known] = (of, len(values))
        found: tuple[NDArray[np.intp], int] = self._masks[known]
        return found

    def by_domain(self, key: str, counts: Counts) -> tuple[Counts, NDArray[np.intp]]:
        """Sum counts of nodes over the domains of a label; also (N,) the domain of each node."""
        of, many = self.domain(key)
        inside = of >= 0
        return np.bincount(of[inside], counts[inside], minlength=many).astype(np.int64), of

    def _uneven(self, spread: Spread) -> Iterator[Refusal]:
        key = spread.selection.key
        of, many = self.domain(key)
        yield Refusal(
            "PodTopologySpread", of < 0, "node(s) didn't match pod topology spread constraints (missing required label)"
        )
        if not many:
            return
        counts = np.where(spread.eligible, self._count((spread.selection,), lasting=True), 0)
        held, _ = self.by_domain(key, counts)
        there, _ = self.by_domain(key, spread.eligible.astype(np.int64))
        least = int(held[there > 0].min(initial=np.iinfo(np.int64).max)) if (there > 0).any() else 0
        if int((there > 0).sum()) < spread.least_domains:
            least = 0
        over = (held + spread.itself - least > spread.skew)[of] & (of >= 0)
        yield Refusal("PodTopologySpread", over, "node(s) didn't match pod topology spread constraints")

    def _affinity(self, pod: KubePod, rules: PodRules) -> Iterator[Refusal]:
        if rules.affinity:
            yield Refusal("InterPodAffinity", self._not_near(rules), "node(s) didn't match pod affinity rules")
        for term in rules.anti_affinity:
            held, of = self.by_domain(term.key, self._count((term,), lasting=False))
            if held.any():
                near = (held > 0)[of] & (of >= 0)
                yield Refusal("InterPodAffinity", near, "node(s) didn't match pod anti-affinity rules")
        if pod.kind not in self._avoiding:
            self._avoiding[pod.kind] = [term for term in self._owners if self.selections.means(term, pod)]
        for term in self._avoiding[pod.kind]:
            held, of = self.by_domain(term.key, self._owners[term])
            if held.any():
                near = (held > 0)[of] & (of >= 0)
                yield Refusal("InterPodAffinity", near, "node(s) didn't satisfy existing pods anti-affinity rules")

    def near_others(self, pod: KubePod) -> Mask:
        """(N,) nodes that anti-affinity excludes now, the pod's own or that of bound pods."""
        found = np.zeros(self.size, np.bool_)
        for refusal in self._affinity(pod, replace(self.rules(pod), affinity=())):
            found |= refusal.nodes
        return found

    def _not_near(self, rules: PodRules) -> Mask:
        counts = self._count(rules.affinity, lasting=False)
        near, labelled, known = np.ones(self.size, np.bool_), np.ones(self.size, np.bool_), False
        for term in rules.affinity:
            held, of = self.by_domain(term.key, counts)
            known |= bool(held.any())
            labelled &= of >= 0
            near &= (of >= 0) & (np.append(held > 0, False)[of])
        if not known and rules.itself:  # the first of a group goes anywhere with the labels
            return ~labelled
        return ~near

    # -- answers
    def reason(self, pod: KubePod) -> str:
        """Return why a pod is not bound now, in the words of Kubernetes' events."""
        why, refusals = self.verdict(pod)
        if why is not None:
            return why
        told, open_to, first = dict[str, set[int]](), np.ones(self.size, np.bool_), np.full(self.size, "", object)
        for refusal in refusals:  # a node counts for its first filter, and for all resources that it lacks
            more = refusal.plugin == "NodeResourcesFit"
            new = refusal.nodes & (open_to | (first == refusal.plugin) if more else open_to)
            first[refusal.nodes & open_to] = refusal.plugin
            open_to &= ~refusal.nodes
            for node in np.flatnonzero(new).tolist():
                why = refusal.reason(node) if callable(refusal.reason) else refusal.reason
                told.setdefault(why, set()).add(node)
        if open_to.any() and self._nominated:
            beside = self._beside_nominated(pod, open_to.copy())
            held, open_to = set(np.flatnonzero(open_to & ~beside).tolist()), beside
            if held:
                told["node(s) are kept for nominated pods of the same or a higher priority"] = held
        if open_to.any():
            return f"{int(open_to.sum())}/{self.size} nodes are available"
        reasons = ", ".join(sorted(f"{len(nodes)} {what}" for what, nodes in told.items()))
        return f"0/{self.size} nodes are available: {reasons}."
