"""Columns and rows of pod placement, stated from the instance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from flowlex.instances.pod_rules import PodResource
from flowlex.instances.pods import Pod, PodInstance, PodNode, fits_wishes
from flowlex.validation.certificates.pods.sizes import need_of, size_of
from flowlex.validation.certificates.statement.program import ExactStatement, Labels, Number

__all__ = ["StatedPods", "Terms"]

_QUOTAS = ("gpus", "cpu_cores", "memory_gb", "pods")
Terms = dict[int, Number]


@dataclass
class StatedPods:
    """Columns and rows of the statement in the making; `statement_stages` adds the stages."""

    instance: PodInstance
    options: Mapping[str, Any]
    of: ExactStatement
    #: Column by pod and node, and by pod, node and card.
    x: dict[tuple[int, int], int] = field(default_factory=dict)
    y: dict[tuple[int, int, int], int] = field(default_factory=dict)
    #: By pod and node, the number of equal pods there, or x of a pod without equals.
    placed: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cards = bool(self.options.get("cards", True))
        self.budget = size_of(self.options.get("move_budget", 0.0))
        self.number = {node.name: n for n, node in enumerate(self.instance.nodes)}
        self.gang = {gang.name: self._gang_key(gang.name, gang.within) for gang in self.instance.gangs}
        self.over = {spread.name: spread.over for spread in self.instance.spreads}

    def _gang_key(self, name: str, within: str | None) -> str | None:
        """Where a gang must stay together; None: anywhere, also when its running pods are apart already."""
        mine = [self.number[pod.node] for pod in self.instance.pods if pod.gang == name and pod.node is not None]
        homes = {_domain(self.instance.nodes[n], within) for n in mine}
        return within if len(homes) <= 1 and None not in homes else None

    # Variables

    def columns(self) -> None:
        """``x`` by pod and node; ``y`` by pod, node and card."""
        labels: list[Labels] = []
        on_card: list[tuple[tuple[int, int, int], Labels]] = []
        keys = dict.fromkeys(key for node in self.instance.nodes for key in node.labels)
        for p, pod in enumerate(self.instance.pods):
            for n, node in enumerate(self.instance.nodes):
                if not self._may(pod, node):
                    continue
                self.x[p, n] = len(labels)
                labels.append(_labels(pod, node, keys))
                fixed = pod.node_cards if pod.node == node.name else None
                cards = range(node.cards) if self.cards and pod.wants_gpu else ()
                on_card += [((p, n, k), {**labels[-1], "card": k}) for k in cards if fixed is None or k in fixed]
        self.of.variables("x", labels, keys=("pod", "node"))
        if on_card:
            start = self.of.variables("y", [each for _, each in on_card], keys=("pod", "node", "card")).start
            self.y = {key: start + k for k, (key, _) in enumerate(on_card)}

    def _may(self, pod: Pod, node: PodNode) -> bool:
        """Whether a pod by itself may run on a node."""
        home = pod.node == node.name
        if pod.node is not None and not home and (pod.move_cost is None or size_of(pod.move_cost) > self.budget):
            return False
        keys = [self.gang[pod.gang]] if pod.gang is not None else []
        keys += [*(self.over[s] for s in pod.spreads), *(r.over for r in self.instance.resources if _wants(pod, r))]
        if not home and any(_domain(node, key) is None for key in keys):
            return False
        if not fits_wishes(pod, node) or size_of(pod.cpu_cores) > size_of(node.cpu_cores):
            return False
        if size_of(pod.memory_gb) > size_of(node.memory_gb):
            return False
        if not pod.wants_gpu:
            return True
        need, card = need_of(pod, node), size_of(node.card_gb)
        if self.cards:
            return need <= card and pod.gpu_cards <= node.cards
        return node.cards > 0 and need * pod.gpu_cards <= card * node.cards

    # Rows

    def pods(self) -> None:
        """A pod runs once; what runs and may not be stopped goes on; moves are within the budget."""
        of_pod: list[Terms] = [{} for _ in self.instance.pods]
        for (p, _), column in self.x.items():
            of_pod[p][column] = 1
        for pod, terms in zip(self.instance.pods, of_pod, strict=True):
            stays = pod.name in self.instance.must_run
            self.of.row("running" if stays else "pod", pod.name, terms, "==" if stays else "<=", 1)
        if moved := self.moved():
            self.of.row("move_budget", "", moved, "<=", self.budget)

    def moved(self) -> Terms:
        pods, nodes = self.instance.pods, self.instance.nodes
        away = {key: column for key, column in self.x.items() if pods[key[0]].node not in (None, nodes[key[1]].name)}
        return {column: size_of(pods[p].move_cost or 0.0) for (p, _), column in away.items()}

    def nodes(self) -> None:
        """Cores and memory of nodes; GPU memory and compute where cards are not told apart."""
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

    def _by_domain(self, pods: list[int], key: str | None) -> dict[str, Terms]:
        """Columns of some pods by domain; those outside every domain are left out."""
        found: dict[str, Terms] = {}
        wanted = set(pods)
        for (p, n), column in self.x.items():
            domain = _domain(self.instance.nodes[n], key)
            if p in wanted and domain is not None:
                found.setdefault(domain, {})[column] = 1
        return found

    def gangs(self) -> None:
        """A gang is in one domain whole, or nowhere."""
        pods, nodes = self.instance.pods, self.instance.nodes
        keys = {
            name: dict.fromkeys(d for node in nodes if (d := _domain(node, key))) for name, key in self.gang.items()
        }
        labels = [{"gang": gang, "domain": domain} for gang, domains in keys.items() for domain in domains]
        if not self.gang:
            return
        start = self.of.variables("z", labels, keys=("gang", "domain")).start
        z = {(each["gang"], each["domain"]): start + k for k, each in enumerate(labels)}
        for gang, domains in keys.items():
            self.of.row("gang", gang, {z[gang, d]: 1 for d in domains}, "<=", 1)
        for p, pod in enumerate(pods):
            if pod.gang is not None:
                held = self._by_domain([p], self.gang[pod.gang])
                for d in keys[pod.gang]:
                    self.of.row("gang_whole", f"{pod.name},{d}", {**held.get(d, {}), z[pod.gang, d]: -1}, "==", 0)

    def spreads(self) -> None:
        """Pods of a spread: so many in a domain, or so many above the emptiest, or what runs there already."""
        pods, nodes = self.instance.pods, self.instance.nodes
        skewed = [spread.name for spread in self.instance.spreads if spread.skew is not None]
        if skewed:
            block = self.of.variables("emptiest", [{"spread": name} for name in skewed], upper=len(pods))
        for spread in self.instance.spreads:
            mine = [p for p, pod in enumerate(pods) if spread.name in pod.spreads]
            held = self._by_domain(mine, spread.over)
            homes = (_domain(nodes[self.number[at]], spread.over) for p in mine if (at := pods[p].node))
            ran = Counter(d for d in homes if d is not None)
            if spread.most is not None:
                for d, terms in held.items():
                    self.of.row("spread", f"{spread.name},{d}", terms, "<=", max(spread.most, ran[d]))
            if spread.skew is None:
                continue
            usable = {_domain(n, spread.over) for n in nodes if any(fits_wishes(pods[p], n) for p in mine)} - {None}
            before, least = min((ran[d] for d in usable if d), default=0), block.start + skewed.index(spread.name)
            for d, terms in held.items():
                limit = max(spread.skew, ran[d] - before)
                self.of.row("skew", f"{spread.name},{d}", {**terms, least: -1}, "<=", limit)
            for domain in usable:
                terms = {**held.get(str(domain), {}), least: -1}
                self.of.row("emptiest", f"{spread.name},{domain}", terms, ">=", 0)

    def quotas(self) -> None:
        """What the pods of a queue use, or used already."""
        pods, nodes = self.instance.pods, self.instance.nodes
        largest = max(size_of(node.card_gb) for node in nodes) or Fraction(1)
        for queue in self.instance.queues:
            for name in _QUOTAS:
                if (limit := getattr(queue, name)) is None:
                    continue
                asked = {p: _asked(pod, name, largest) for p, pod in enumerate(pods) if pod.queue == queue.name}
                running = sum((a for p, a in asked.items() if pods[p].node is not None), Fraction(0))
                terms = {column: asked[p] for (p, _), column in self.x.items() if asked.get(p)}
                if terms:
                    unit = math.lcm(size_of(limit).denominator, *(a.denominator for a in asked.values()))
                    whole = {column: a * unit for column, a in terms.items()}
                    self.of.row("quota", f"{queue.name},{name}", whole, "<=", max(size_of(limit), running) * unit)

    def resources(self) -> None:
        """What pods take of a resource of a domain, or took already."""
        nodes = self.instance.nodes
        for resource in self.instance.resources:
            asked = {
                p: pod.resources[resource.name] for p, pod in enumerate(self.instance.pods) if _wants(pod, resource)
            }
            held = self._by_domain([*asked], resource.over)
            homes = {p: self.number[at] for p in asked if (at := self.instance.pods[p].node)}
            pod_of = {column: p for (p, _), column in self.x.items()}
            for domain, terms in held.items():
                there = [node for node in nodes if _domain(node, resource.over) == domain]
                has = sum(node.resources.get(resource.name, 0) for node in there)
                ran = sum(asked[p] for p, n in homes.items() if _domain(nodes[n], resource.over) == domain)
                used = {column: asked[pod_of[column]] for column in terms}
                limit = max(has if resource.amount is None else resource.amount, ran)
                self.of.row("resource", f"{resource.name},{domain}", used, "<=", limit)

    def counts(self) -> None:
        """How many of several equal pods are on a node."""
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


def _wants(pod: Pod, resource: PodResource) -> bool:
    return bool(pod.resources.get(resource.name))


def _domain(node: PodNode, key: str | None) -> str | None:
    """The domain of a node: the cluster, the node, or the value of a label; None where it has none."""
    return "cluster" if key is None else node.name if key == "node" else node.labels.get(key)


def _labels(pod: Pod, node: PodNode, keys: Mapping[str, None]) -> Labels:
    """What users select the pair by."""
    own: dict[str, Any] = {
        "pod": pod.name,
        "node": node.name,
        "priority": pod.priority,
        "queue": pod.queue or "",
        "gang": pod.gang or "",
        "resource": "gpu" if pod.wants_gpu else "cpu",
        "card_model": node.card_model or "",
    }
    taken = {*own, "card"}
    return own | {f"node_{key}" if key in taken else key: node.labels.get(key, "") for key in keys}


def _asked(pod: Pod, name: str, largest: Fraction) -> Fraction:
    """What a pod counts for a quota; GB of a card are parts of the largest card."""
    if name == "pods":
        return Fraction(1)
    if name != "gpus":
        return size_of(getattr(pod, name))
    return (size_of(pod.gpu_share) + size_of(pod.gpu_memory_gb) / largest) * pod.gpu_cards
