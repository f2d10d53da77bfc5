"""Columns and rows of pod placement, stated from the instance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.validation.certificates.pods.group_rules import Amount, RuleBook, domain_of
from flowlex.validation.certificates.pods.pod_sizes import need_of, size_of
from flowlex.validation.certificates.statement.rational_linear_program import ExactStatement, Labels, Number
from flowlex.validation.restated.pods import fits_wishes, must_run, wants_gpu

Terms = dict[int, Number]


@dataclass
class StatedPods:
    """Builder of the columns and rows of the statement; `formulation_stages` adds the stages."""

    instance: PodInstance
    options: Mapping[str, Any]
    of: ExactStatement
    #: Column by pod and node, and by pod, node and card.
    x: dict[tuple[int, int], int] = field(default_factory=dict)
    y: dict[tuple[int, int, int], int] = field(default_factory=dict)
    #: By pod and node, the column that counts equal pods there, or x of a pod without equals.
    placed: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cards = bool(self.options.get("cards", True))
        self.budget = size_of(self.options.get("move_budget", 0.0))
        self.number = {node.name: n for n, node in enumerate(self.instance.nodes)}
        self.rules = RuleBook(self.instance).rules
        self.keys: list[set[str | None]] = [set() for _ in self.instance.pods]
        for rule in self.rules:
            for p in rule.asked:
                self.keys[p].add(rule.key)

    # Variables

    def columns(self) -> None:
        """Add ``x`` by pod and node, and ``y`` by pod, node and card."""
        labels: list[Labels] = []
        on_card: list[tuple[tuple[int, int, int], Labels]] = []
        keys = dict.fromkeys(key for node in self.instance.nodes for key in node.labels)
        for p, pod in enumerate(self.instance.pods):
            for n, node in enumerate(self.instance.nodes):
                if not self._may(p, node):
                    continue
                self.x[p, n] = len(labels)
                labels.append(_labels(pod, node, keys))
                fixed = pod.node_cards if pod.node == node.name else None
                cards = range(node.cards) if self.cards and wants_gpu(pod) else ()
                on_card += [((p, n, k), {**labels[-1], "card": k}) for k in cards if fixed is None or k in fixed]
        self.of.variables("x", labels, keys=("pod", "node"))
        if on_card:
            start = self.of.variables("y", [each for _, each in on_card], keys=("pod", "node", "card")).start
            self.y = {key: start + k for k, (key, _) in enumerate(on_card)}

    def _may(self, p: int, node: PodNode) -> bool:
        """Whether a pod by itself may run on a node."""
        pod = self.instance.pods[p]
        home = pod.node == node.name
        if pod.node is not None and not home and (pod.move_cost is None or size_of(pod.move_cost) > self.budget):
            return False
        if not home and any(domain_of(node, key) is None for key in self.keys[p]):
            return False
        if not fits_wishes(pod, node) or size_of(pod.cpu_cores) > size_of(node.cpu_cores):
            return False
        if size_of(pod.memory_gb) > size_of(node.memory_gb):
            return False
        if not wants_gpu(pod):
            return True
        need, card = need_of(pod, node), size_of(node.card_gb)
        if self.cards:
            return need <= card and pod.gpu_cards <= node.cards
        return node.cards > 0 and need * pod.gpu_cards <= card * node.cards

    # Rows

    def pods(self) -> None:
        """A pod runs at most once; pods that must run do; moves are within the budget."""
        of_pod: list[Terms] = [{} for _ in self.instance.pods]
        must = must_run(self.instance)
        for (p, _), column in self.x.items():
            of_pod[p][column] = 1
        for pod, terms in zip(self.instance.pods, of_pod, strict=True):
            stays = pod.name in must
            self.of.row("running" if stays else "pod", pod.name, terms, "==" if stays else "<=", 1)
        if moved := self.moved():
            self.of.row("move_budget", "", moved, "<=", self.budget)

    def moved(self) -> Terms:
        pods, nodes = self.instance.pods, self.instance.nodes
        away = {key: column for key, column in self.x.items() if pods[key[0]].node not in (None, nodes[key[1]].name)}
        return {column: size_of(pods[p].move_cost or 0.0) for (p, _), column in away.items()}

    def nodes(self) -> None:
        """Cores and memory of nodes; GPU memory and compute of nodes if cards are not distinguished."""
        pods = self.instance.pods
        on: list[list[tuple[int, Pod]]] = [[] for _ in self.instance.nodes]
        for (p, n), column in self.x.items():
            on[n].append((column, pods[p]))
        compute = any(pod.gpu_compute for pod in pods)
        for node, here in zip(self.instance.nodes, on, strict=True):
            self.of.row("cpu", node.name, {c: size_of(p.cpu_cores) for c, p in here}, "<=", size_of(node.cpu_cores))
            self.of.row("memory", node.name, {c: size_of(p.memory_gb) for c, p in here}, "<=", size_of(node.memory_gb))
            if self.cards:
                continue
            gpu = {c: need_of(p, node) * p.gpu_cards for c, p in here}
            self.of.row("gpu", node.name, gpu, "<=", size_of(node.card_gb) * node.cards)
            if compute:
                share = {c: size_of(p.gpu_compute) * p.gpu_cards for c, p in here}
                self.of.row("compute", node.name, share, "<=", node.cards)

    def on_cards(self) -> None:
        """GPU memory and compute of cards; a GPU pod gets as many different cards as it asks for."""
        pods, nodes = self.instance.pods, self.instance.nodes
        if not self.y:
            return
        gpu: dict[str, Terms] = {f"{node.name},{k}": {} for node in nodes for k in range(node.cards)}
        compute: dict[str, Terms] = {label: {} for label in gpu}
        link: dict[tuple[int, int], Terms] = {}
        for (p, n, k), column in self.y.items():
            gpu[f"{nodes[n].name},{k}"][column] = need_of(pods[p], nodes[n])
            compute[f"{nodes[n].name},{k}"][column] = size_of(pods[p].gpu_compute)
            link.setdefault((p, n), {self.x[p, n]: -pods[p].gpu_cards})[column] = 1
            if pods[p].gpu_cards > 1:
                label = f"{pods[p].name},{nodes[n].name},{k}"
                self.of.row("card_distinct", label, {column: 1, self.x[p, n]: -1}, "<=", 0)
        for node in nodes:
            for k in range(node.cards):
                self.of.row("card", f"{node.name},{k}", gpu[f"{node.name},{k}"], "<=", size_of(node.card_gb))
                if any(pod.gpu_compute for pod in pods):
                    self.of.row("compute", f"{node.name},{k}", compute[f"{node.name},{k}"], "<=", 1)
        for (p, n), terms in link.items():
            self.of.row("card_link", f"{pods[p].name},{nodes[n].name}", terms, "==", 0)

    def _by_domain(self, asked: Mapping[int, Amount], key: str | None) -> dict[str, Terms]:
        """Columns of some pods by domain, with what they ask for; those outside every domain are left out."""
        found: dict[str, Terms] = {}
        for (p, n), column in self.x.items():
            if p in asked and (domain := domain_of(self.instance.nodes[n], key)) is not None:
                found.setdefault(domain, {})[column] = asked[p]
        return found

    def gangs(self) -> None:
        """A gang is completely in one domain, or nowhere."""
        gangs = [rule for rule in self.rules if rule.kind == "gang"]
        nodes, pods = self.instance.nodes, self.instance.pods
        domains = [dict.fromkeys(d for node in nodes if (d := domain_of(node, rule.key))) for rule in gangs]
        labels = [{"gang": rule.label, "domain": d} for rule, of in zip(gangs, domains, strict=True) for d in of]
        if not gangs:
            return
        start = self.of.variables("z", labels, keys=("gang", "domain")).start
        z = {(each["gang"], each["domain"]): start + k for k, each in enumerate(labels)}
        for rule, of in zip(gangs, domains, strict=True):
            self.of.row("gang", rule.label, {z[rule.label, d]: 1 for d in of}, "<=", 1)
            for p in rule.asked:
                held = self._by_domain({p: 1}, rule.key)
                for d in of:
                    label = f"{pods[p].name},{d}"
                    self.of.row("gang_whole", label, {**held.get(d, {}), z[rule.label, d]: -1}, "==", 0)

    def limits(self) -> None:
        """Limits of domains: spreads (also relative to the emptiest domain), quotas and resources."""
        skewed = [rule.label for rule in self.rules if rule.kind == "skew"]
        if skewed:
            block = self.of.variables("emptiest", [{"spread": name} for name in skewed], upper=len(self.instance.pods))
        for rule in self.rules:
            if rule.kind == "gang":
                continue
            held, unit, least = self._by_domain(rule.asked, rule.key), 1, dict[int, Number]()
            if rule.kind == "quota":
                assert not isinstance(rule.base, Mapping)
                unit = math.lcm(rule.base.denominator, *(amount.denominator for amount in rule.asked.values()))
            if rule.kind == "skew":
                least[block.start + skewed.index(rule.label)] = -1
            for d, terms in held.items():
                label = rule.label if rule.kind == "quota" else f"{rule.label},{d}"
                used = {column: amount * unit for column, amount in terms.items()} | least
                self.of.row(rule.kind, label, used, "<=", rule.limit(d) * unit)
            for d in rule.usable:
                self.of.row("emptiest", f"{rule.label},{d}", {**held.get(d, {}), **least}, ">=", 0)

    def counts(self) -> None:
        """Add the numbers of equal pods on each node."""
        alike: dict[str, list[int]] = {}
        for p, pod in enumerate(self.instance.pods):
            alike.setdefault(pod.model_dump_json(exclude={"name", "created_s"}), []).append(p)
        of = {p: pods for pods in alike.values() for p in pods if len(pods) > 1}
        self.placed = dict(self.x)
        keys = [(of[p][0], n) for p, n in self.x if p in of]
        if not keys:
            return
        names = [(self.instance.pods[p].name, self.instance.nodes[n].name) for p, n in dict.fromkeys(keys)]
        upper = [len(of[p]) for p, _ in dict.fromkeys(keys)]
        block = self.of.variables("count", [{"like": like, "node": node} for like, node in names], upper=upper)
        for k, (p, n) in enumerate(dict.fromkeys(keys)):
            self.placed |= dict.fromkeys(((q, n) for q in of[p]), block.start + k)
            terms: Terms = {self.x[q, n]: 1 for q in of[p]}
            self.of.row("count", ",".join(names[k]), {**terms, block.start + k: -1}, "==", 0)


def _labels(pod: Pod, node: PodNode, keys: Mapping[str, None]) -> Labels:
    """Labels by which users select the pair."""
    own: dict[str, Any] = {
        "pod": pod.name,
        "node": node.name,
        "priority": pod.priority,
        "queue": pod.queue or "",
        "gang": pod.gang or "",
        "resource": "gpu" if wants_gpu(pod) else "cpu",
        "card_model": node.card_model or "",
    }
    taken = {*own, "card"}
    return own | {f"node_{key}" if key in taken else key: node.labels.get(key, "") for key in keys}
