"""Pod placement stated from the instance, for answers of changed models."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from flowlex.instances.pods import Pod, PodInstance, PodNode, fits_wishes
from flowlex.validation.certificates.pods.sizes import exact_rates, need_of, shape_of, size_of
from flowlex.validation.certificates.pods.values import levels_of
from flowlex.validation.certificates.statement.program import ExactStatement, Labels, Number

__all__ = ["state_pods"]

#: Loads without a common unit of at least this part of a node's capacity are rounded to it.
_FINEST = 10**9
_NEEDED = frozenset({"pod", "running", "card_link", "card_distinct", "largest", "mean", "above", "below"})
_QUOTAS = ("gpus", "cpu_cores", "memory_gb", "pods")
Terms = dict[int, Number]


def state_pods(instance: PodInstance, options: Mapping[str, Any]) -> ExactStatement:
    """Pods on nodes and cards, admission level by level, then the balance and the moves.

    Raises
    ------
    ValueError
        The options have no linear statement.
    """
    measure = options.get("balance", "deviation")
    if measure == "deviation" or options.get("admission", "lexicographic") == "fair":
        raise ValueError("balance='deviation' and admission='fair' are stated by no linear program")
    state = _State(instance, options, ExactStatement("balance", needed=_NEEDED))
    state.columns()
    state.pods()
    state.nodes()
    if state.cards:
        state.on_cards()
    state.gangs()
    state.spreads()
    state.quotas()
    state.admission()
    state.balance(measure)
    state.moves()
    return state.of


@dataclass
class _State:
    """A statement in the making."""

    instance: PodInstance
    options: Mapping[str, Any]
    of: ExactStatement
    #: Column by pod and node, and by pod, node and card.
    x: dict[tuple[int, int], int] = field(default_factory=dict)
    y: dict[tuple[int, int, int], int] = field(default_factory=dict)

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
        if not home and any(_domain(node, key) is None for key in (*keys, *(self.over[s] for s in pod.spreads))):
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
        if moved := self._moved():
            self.of.row("move_budget", "", moved, "<=", self.budget)

    def _moved(self) -> Terms:
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

    # Stages

    def admission(self) -> None:
        """The most of each level, the most important first."""
        levels = levels_of(self.instance, self.options)
        for rank, key in sorted({(each.rank, each.key) for each in levels if each is not None}):
            worth = {p: each.worth for p, each in enumerate(levels) if each is not None and each.rank == rank}
            terms = {column: worth[p] for (p, _), column in self.x.items() if p in worth}
            self.of.stage(f"admission {key}", terms, maximize=True)

    def balance(self, measure: str) -> None:
        """The largest load, or the mean distance from the mean."""
        nodes, loads = self.instance.nodes, self._loads()
        total = [sum(of_node, Fraction(0)) for of_node in zip(*loads, strict=True)]
        top = math.ceil(max(total, default=Fraction(0)))
        on: list[Terms] = [{} for _ in nodes]
        for (p, n), column in self.x.items():
            on[n][column] = loads[p][n]
        if measure == "max_load":
            largest = self.of.variables("largest_load", [{}], upper=top, integer=False).start
            for node, terms in zip(nodes, on, strict=True):
                self.of.row("largest", node.name, {**terms, largest: -1}, "<=", 0)
            self.of.stage("balance", {largest: 1})
            return
        centre = self.of.variables("centre", [{}], upper=top, integer=False).start
        labels = [{"node": node.name} for node in nodes]
        apart = self.of.variables("apart", labels, upper=top, integer=False).start
        every = {column: load for terms in on for column, load in terms.items()}
        self.of.row("mean", "", {**every, centre: -len(nodes)}, "==", 0)
        for n, node in enumerate(nodes):
            self.of.row("above", node.name, {**on[n], centre: -1, apart + n: -1}, "<=", 0)
            self.of.row("below", node.name, {**on[n], centre: -1, apart + n: 1}, ">=", 0)
        self.of.stage("balance", {apart + n: Fraction(1, len(nodes)) for n in range(len(nodes))})

    def _loads(self) -> list[list[Fraction]]:
        """What each pod adds to the load of each node, rounded where all have no common unit."""
        rates, nodes, known = exact_rates(self.instance), self.instance.nodes, dict[Any, list[Fraction]]()
        for pod in self.instance.pods:
            own = (size_of(pod.cpu_cores), size_of(pod.memory_gb))
            if shape_of(pod) not in known:
                used = [(need_of(pod, node) * pod.gpu_cards, *own) for node in nodes]
                known[shape_of(pod)] = [
                    sum((u * r for u, r in zip(each, rate, strict=True)), Fraction(0))
                    for each, rate in zip(used, rates, strict=True)
                ]
        unit = math.lcm(1, *(load.denominator for row in known.values() for load in row))
        if unit > _FINEST:
            known = {key: [Fraction(round(load * _FINEST), _FINEST) for load in row] for key, row in known.items()}
        return [known[shape_of(pod)] for pod in self.instance.pods]

    def moves(self) -> None:
        """The cheapest moves, where they are asked for."""
        if self.options.get("moves", "free") == "least" and (moved := self._moved()):
            self.of.stage("moves", moved)


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
