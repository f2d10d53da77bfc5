"""Pod placement stated again by pod, node and card: admission level by level, then the balance and the moves.

All columns are written out to judge answers of changed models. An unchanged answer is judged on the columns that it
uses, since all others are 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

from flowlex.formulations.block_labels import label_text
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.validation.proofs.exact_program import ExactProgram, Labels
from flowlex.validation.proofs.program_builder import Number, ProgramBuilder, Terms
from flowlex.validation.restated.pods.rules import Amount, RuleBook, domain_of
from flowlex.validation.restated.pods.sizes import (
    Level,
    exact_rates,
    fits_wishes,
    must_run,
    need_of,
    shape_of,
    size_of,
    units_of,
    wants_gpu,
)
from flowlex.validation.restated.pods.values import levels_of, worths_of

#: Loads whose common unit would be finer than 1 / this of a node's capacity are rounded to that.
_FINEST = 10**9
#: Distances, in percent, of the initial tangents of their squares.
_TANGENTS = ("0", "0.25", "0.5", "1", "2", "4", "8", "16", "32")
#: Relative tolerance of the variance.
_MET = 1e-6
#: Where the pods of an answer are: by number of a pod, its node and its cards.
Placed = Mapping[int, tuple[int, Sequence[int]]]
#: Rows that no change may drop.
NEEDED = frozenset(
    {"pod", "running", "card_link", "card_distinct", "count", "fair"}
    | {"largest", "mean", "above", "below", "distance", "tangent"}
)


def restate_pods(
    instance: PodInstance, options: Mapping[str, Any], tangents: Collection[tuple[str, Fraction]] = ()
) -> ExactProgram:
    """The problem that changes refer to.

    ``tangents``: (node, distance in percent) of additional tangents of the squares of ``balance="deviation"``.
    """
    stated = _Stated(instance, options)
    stated.columns()
    stated.rows()
    stated.counts()
    levels = levels_of(instance, options)
    ranks = sorted({(each.rank, each.key) for each in levels if each is not None})
    if options.get("admission") == "fair":
        stated.least_shares(levels, [key for (rest, _), key in ranks if not rest])
        ranks = [(rank, key) for rank, key in ranks if rank[0]]
    for rank, key in ranks:
        worth = {p: each.worth for p, each in enumerate(levels) if each is not None and each.rank == rank}
        terms = {column: worth[p] for (p, _), column in stated.placed.items() if p in worth}
        stated.of.objective(f"admission {key}", terms, maximize=True)
    measure = options.get("balance", "deviation")
    stated.balance(measure, tangents)
    if options.get("moves", "free") == "least" and (moved := stated.moved()):
        stated.of.objective("moves", moved)
    return stated.of.program(_MET if measure == "deviation" else 1e-7)


def restate_placement(
    instance: PodInstance, options: Mapping[str, Any], placed: Placed
) -> tuple[ExactProgram, list[int]]:
    """The rows on the columns that an answer uses, each of which it sets to 1, and the values of the other columns.

    Raises `ValueError`: a pod is where it may not run, or on a card that does not exist.
    """
    stated = _Stated(instance, options, placed)
    stated.columns()
    ones = stated.of.count
    stated.rows()
    for p, (n, cards) in placed.items():
        name = instance.pods[p].name
        if (p, n) not in stated.x:
            raise ValueError(f"pod {name!r} may not run on {instance.nodes[n].name!r}")
        wanted = len(stated.cards_of(p, n))
        if wanted != len(cards):
            raise ValueError(f"pod {name!r} cannot use the cards {', '.join(map(str, cards)) or '(none)'}")
    return stated.of.program(), [1] * ones + stated.others(placed)


class _Stated:
    """Columns and rows; ``placed`` limits the columns to those of an answer."""

    def __init__(self, instance: PodInstance, options: Mapping[str, Any], placed: Placed | None = None) -> None:
        self.instance, self.options, self.only, self.of = instance, options, placed, ProgramBuilder()
        self.cards = bool(options.get("cards", True))
        self.budget = size_of(options.get("move_budget", 0.0))
        self.book = RuleBook(instance).rules
        self.keys: list[set[str | None]] = [set() for _ in instance.pods]
        for rule in self.book:
            for p in rule.asked:
                self.keys[p].add(rule.key)
        #: Column by pod and node, and by pod, node and card.
        self.x: dict[tuple[int, int], int] = {}
        self.y: dict[tuple[int, int, int], int] = {}
        #: By pod and node, the column that counts equal pods there, or x of a pod without equals.
        self.placed: dict[tuple[int, int], int] = {}
        self.z: dict[tuple[str, str], int] = {}
        self.emptiest: dict[str, int] = {}

    def columns(self) -> None:
        """Add ``x`` by pod and node, and ``y`` by pod, node and card."""
        pods, nodes, only = self.instance.pods, self.instance.nodes, self.only
        labels: list[Labels] = []
        on_card: list[tuple[tuple[int, int, int], Labels]] = []
        keys = dict.fromkeys(key for node in nodes for key in node.labels)
        for p, pod in enumerate(pods):
            for n in range(len(nodes)) if only is None else (only[p][0],) if p in only else ():
                node = nodes[n]
                if not self._may(p, node):
                    continue
                self.x[p, n] = len(labels)
                labels.append(_labels(pod, node, keys) if only is None else {"pod": pod.name, "node": node.name})
                on_card += [((p, n, k), {**labels[-1], "card": k}) for k in self.cards_of(p, n)]
        self.of.columns("x", labels, keys=("pod", "node"))
        if on_card:
            start = self.of.columns("y", [each for _, each in on_card], keys=("pod", "node", "card"))
            self.y = {key: start + k for k, (key, _) in enumerate(on_card)}

    def cards_of(self, p: int, n: int) -> list[int]:
        """Cards of a node that a pod may use there, of an answer those that it does use."""
        pod, node = self.instance.pods[p], self.instance.nodes[n]
        fixed = pod.node_cards if pod.node == node.name else None
        cards = range(node.cards) if self.cards and wants_gpu(pod) else ()
        used = None if self.only is None else set(self.only[p][1])
        return [k for k in cards if (fixed is None or k in fixed) and (used is None or k in used)]

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

    def rows(self) -> None:
        """Add all rows but those of numbers and of objectives."""
        self._pods()
        self._nodes()
        if self.cards:
            self._on_cards()
        self._gangs()
        self._limits()

    def _pods(self) -> None:
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
        """Costs of the columns that move a running pod."""
        pods, nodes = self.instance.pods, self.instance.nodes
        away = {key: column for key, column in self.x.items() if pods[key[0]].node not in (None, nodes[key[1]].name)}
        return {column: size_of(pods[p].move_cost or 0.0) for (p, _), column in away.items()}

    def _nodes(self) -> None:
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

    def _on_cards(self) -> None:
        """GPU memory and compute of cards; a GPU pod gets as many different cards as it asks for."""
        pods, nodes = self.instance.pods, self.instance.nodes
        link: dict[tuple[int, int], Terms] = {
            (p, n): {column: -pods[p].gpu_cards} for (p, n), column in self.x.items() if wants_gpu(pods[p])
        }
        if not link:
            return
        gpu: dict[tuple[int, int], Terms] = {(n, k): {} for n, node in enumerate(nodes) for k in range(node.cards)}
        compute: dict[tuple[int, int], Terms] = {key: {} for key in gpu}
        for (p, n, k), column in self.y.items():
            gpu[n, k][column] = need_of(pods[p], nodes[n])
            compute[n, k][column] = size_of(pods[p].gpu_compute)
            link[p, n][column] = 1
            if pods[p].gpu_cards > 1:
                label = label_text((pods[p].name, nodes[n].name, k))
                self.of.row("card_distinct", label, {column: 1, self.x[p, n]: -1}, "<=", 0)
        for (n, k), terms in gpu.items():
            self.of.row("card", label_text((nodes[n].name, k)), terms, "<=", size_of(nodes[n].card_gb))
        for (n, k), terms in compute.items() if any(pod.gpu_compute for pod in pods) else ():
            self.of.row("compute", label_text((nodes[n].name, k)), terms, "<=", 1)
        for (p, n), terms in link.items():
            self.of.row("card_link", label_text((pods[p].name, nodes[n].name)), terms, "==", 0)

    def _by_domain(self, asked: Mapping[int, Amount], key: str | None) -> dict[str, Terms]:
        """Columns of some pods by domain, with what they ask for; those outside every domain are left out."""
        found: dict[str, Terms] = {}
        for (p, n), column in self.x.items():
            if p in asked and (domain := domain_of(self.instance.nodes[n], key)) is not None:
                found.setdefault(domain, {})[column] = asked[p]
        return found

    def _gangs(self) -> None:
        """A gang is completely in one domain, or nowhere."""
        gangs = [rule for rule in self.book if rule.kind == "gang"]
        nodes, pods = self.instance.nodes, self.instance.pods
        domains = [dict.fromkeys(d for node in nodes if (d := domain_of(node, rule.key))) for rule in gangs]
        labels = [{"gang": rule.label, "domain": d} for rule, of in zip(gangs, domains, strict=True) for d in of]
        if not gangs:
            return
        start = self.of.columns("z", labels, keys=("gang", "domain"))
        self.z = {(each["gang"], each["domain"]): start + k for k, each in enumerate(labels)}
        for rule, of in zip(gangs, domains, strict=True):
            self.of.row("gang", rule.label, {self.z[rule.label, d]: 1 for d in of}, "<=", 1)
            for p in rule.asked:
                held = self._by_domain({p: 1}, rule.key)
                for d in of:
                    label = label_text((pods[p].name, d))
                    self.of.row("gang_whole", label, {**held.get(d, {}), self.z[rule.label, d]: -1}, "==", 0)

    def _limits(self) -> None:
        """Limits of domains: spreads (also relative to the emptiest domain), quotas and resources."""
        skewed = [rule.label for rule in self.book if rule.kind == "skew"]
        if skewed:
            start = self.of.columns("emptiest", [{"spread": name} for name in skewed], upper=len(self.instance.pods))
            self.emptiest = {name: start + k for k, name in enumerate(skewed)}
        for rule in self.book:
            if rule.kind == "gang":
                continue
            held, unit, least = self._by_domain(rule.asked, rule.key), 1, dict[int, Number]()
            if rule.kind == "quota":
                assert not isinstance(rule.base, Mapping)
                unit = math.lcm(rule.base.denominator, *(amount.denominator for amount in rule.asked.values()))
            if rule.kind == "skew":
                least[self.emptiest[rule.label]] = -1
            for d, terms in held.items():
                label = rule.label if rule.kind == "quota" else label_text((rule.label, d))
                used = {column: amount * unit for column, amount in terms.items()} | least
                self.of.row(rule.kind, label, used, "<=", rule.limit(d) * unit)
            for d in rule.usable:
                self.of.row("emptiest", label_text((rule.label, d)), {**held.get(d, {}), **least}, ">=", 0)

    def others(self, placed: Placed) -> list[int]:
        """Values of the columns that follow from where pods are: domains of gangs, the emptiest domain of a skew."""
        found = dict.fromkeys((*self.z.values(), *self.emptiest.values()), 0)
        for rule in self.book:
            there = [(p, domain_of(self.instance.nodes[placed[p][0]], rule.key)) for p in rule.asked if p in placed]
            if rule.kind == "gang":
                found |= {self.z[rule.label, d]: 1 for _, d in there if d is not None}
            elif rule.kind == "skew" and rule.usable:
                each = (sum(here == d for _, here in there) for d in rule.usable)
                found[self.emptiest[rule.label]] = min(each)
        return [found[column] for column in sorted(found)]

    # Numbers and objectives of changed models

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
        start = self.of.columns("count", [{"like": like, "node": node} for like, node in names], upper=upper)
        for k, (p, n) in enumerate(dict.fromkeys(keys)):
            self.placed |= dict.fromkeys(((q, n) for q in of[p]), start + k)
            terms: Terms = {self.x[q, n]: 1 for q in of[p]}
            self.of.row("count", label_text(names[k]), {**terms, start + k: -1}, "==", 0)

    def least_shares(self, levels: Sequence[Level | None], keys: Sequence[str]) -> None:
        """Maximise the sums of the 1, 2, ... least shares of queues, in multiples of the shares' common unit."""
        queues = {queue.name: queue for queue in self.instance.queues}
        weight = {key: size_of(queues[key.removeprefix("queue ")].weight) for key in keys}
        unit = units_of(each for each in levels if each is not None)
        ran, asked = dict.fromkeys(keys, Fraction(0)), dict.fromkeys(keys, Fraction(0))
        terms: dict[str, Terms] = {key: {} for key in keys}
        worths = worths_of(self.instance, self.options)
        for p, (pod, each, worth) in enumerate(zip(self.instance.pods, levels, worths, strict=True)):
            key = f"queue {pod.queue}" if each is None else each.key
            if key in terms:
                (ran if each is None else asked)[key] += worth / weight[key]
                mine = [column for n in range(len(self.instance.nodes)) if (column := self.x.get((p, n))) is not None]
                terms[key] |= dict.fromkeys(mine if each is not None else (), worth / weight[key])
        parts = [*(unit[key] / weight[key] for key in keys), *ran.values()]
        whole = math.lcm(1, *(part.denominator for part in parts))
        top = max((ran[key] + asked[key] for key in keys), default=Fraction(0)) * whole
        numbers = range(1, len(keys) + 1)
        labels = [{"rank": k, "queue": key.removeprefix("queue ")} for k in numbers for key in keys]
        level = self.of.columns("level", [{"rank": k} for k in numbers], keys=("rank",), upper=top)
        below = self.of.columns("below", labels, keys=("rank", "queue"), upper=top)
        for m, (k, key) in enumerate((k, key) for k in numbers for key in keys):
            share = {column: -part * whole for column, part in terms[key].items()}
            row = {**share, level + k - 1: 1, below + m: -1}
            self.of.row("fair", label_text((k, key.removeprefix("queue "))), row, "<=", ran[key] * whole)
        for k in numbers:
            less = {below + m: Fraction(-1, whole) for m in range((k - 1) * len(keys), k * len(keys))}
            self.of.objective(f"admission fair {k}", {**less, level + k - 1: Fraction(k, whole)}, maximize=True)

    def balance(self, measure: str, tangents: Collection[tuple[str, Fraction]]) -> None:
        """Minimise the largest load, the mean absolute deviation, or the variance."""
        nodes, loads = self.instance.nodes, self._loads()
        total = [sum(of_node, Fraction(0)) for of_node in zip(*loads, strict=True)]
        top = math.ceil(max(total, default=Fraction(0)))
        on: list[Terms] = [{} for _ in nodes]
        for (p, n), column in self.placed.items():
            on[n][column] = loads[p][n]
        if measure == "max_load":
            largest = self.of.columns("largest_load", [{}], upper=top, integer=False)
            for node, terms in zip(nodes, on, strict=True):
                self.of.row("largest", node.name, {**terms, largest: -1}, "<=", 0)
            self.of.objective("balance", {largest: 1})
            return
        labels: list[Labels] = [{"node": node.name} for node in nodes]
        if measure == "deviation":
            self._variance(on, labels, 100 * top, tangents)
            return
        centre = self.of.columns("centre", [{}], upper=top, integer=False)
        apart = self.of.columns("apart", labels, upper=top, integer=False)
        every = {column: load for terms in on for column, load in terms.items()}
        self.of.row("mean", "", {**every, centre: -len(nodes)}, "==", 0)
        for n, node in enumerate(nodes):
            self.of.row("above", node.name, {**on[n], centre: -1, apart + n: -1}, "<=", 0)
            self.of.row("below", node.name, {**on[n], centre: -1, apart + n: 1}, ">=", 0)
        self.of.objective("balance", {apart + n: Fraction(1, len(nodes)) for n in range(len(nodes))})

    def _variance(
        self, on: Sequence[Terms], labels: Sequence[Labels], top: int, tangents: Collection[tuple[str, Fraction]]
    ) -> None:
        """Minimise the mean square of the distances from the mean load, in percent, bounded below by tangents."""
        number = {node.name: n for n, node in enumerate(self.instance.nodes)}
        centre = self.of.columns("centre", [{}], upper=top, integer=False)
        square = self.of.columns("square", labels, upper=top * top, integer=False)
        distance = self.of.columns("distance", labels, lower=-top, upper=top, integer=False)
        points = {(n, sign * Fraction(a)) for a in _TANGENTS for sign in (-1, 1) for n in range(len(on))}
        for n, terms in enumerate(on):
            percent = {column: 100 * load for column, load in terms.items()}
            self.of.row("distance", str(labels[n]["node"]), {**percent, centre: -1, distance + n: -1}, "==", 0)
        for n, a in {*points, *((number[name], a) for name, a in tangents)}:
            self.of.row(
                "tangent", label_text((labels[n]["node"], a)), {square + n: 1, distance + n: -2 * a}, ">=", -a * a
            )
        self.of.objective("balance", {square + n: Fraction(1, len(on)) for n in range(len(on))})

    def _loads(self) -> list[list[Fraction]]:
        """Load that each pod adds to each node, rounded if the loads have no common unit."""
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
