"""Pod placement stated again by pod, node and card: admission level by level, then the balance and the moves.

All columns are written out to judge answers of changed models. An unchanged answer is judged on the columns that it
uses, since all others are 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.formulations.block_labels import label_text
from flowlex.instances.pods import PodInstance
from flowlex.validation.proofs.exact_program import Exact, ExactProgram, Labels, Positions
from flowlex.validation.proofs.program_builder import ProgramBuilder, Terms, texts_at
from flowlex.validation.restated.pods.instance_data import (
    PodData,
    exact_rates,
    machine_kind,
    numbered,
    shape_of,
    size_of,
    wants_gpu,
)
from flowlex.validation.restated.pods.levels import Level, levels_of, units_of, worths_of

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
    data = PodData(instance, options)
    pods, nodes = len(instance.pods), len(instance.nodes)
    p, n = np.repeat(np.arange(pods), nodes), np.tile(np.arange(nodes), pods)
    may = data.may(p, n)
    stated = _Stated(data, p[may], n[may])
    stated.counts()
    levels = levels_of(instance, options)
    ranks = sorted({(each.rank, each.key) for each in levels if each is not None})
    if options.get("admission") == "fair":
        stated.least_shares(levels, [key for (rest, _), key in ranks if not rest])
        ranks = [(rank, key) for rank, key in ranks if rank[0]]
    for _, key in ranks:
        worth = [each.worth if each is not None and each.key == key else Fraction(0) for each in levels]
        column, first = np.unique(stated.placed, return_index=True)
        value = [worth[q] for q in stated.p[first].tolist()]
        used = np.array([v != 0 for v in value], bool)
        stated.of.objective(f"admission {key}", (column[used], [v for v in value if v]), maximize=True)
    measure = options.get("balance", "deviation")
    stated.balance(measure, tangents)
    if options.get("moves", "free") == "least" and len(stated.moved):
        stated.of.objective("moves", (stated.moved, stated.move_cost))
    return stated.of.program(_MET if measure == "deviation" else 1e-7)


def restate_placement(data: PodData, placed: Placed) -> tuple[ExactProgram, list[int]]:
    """The rows on the columns that an answer uses, each of which it sets to 1, and the values of all columns.

    Raises `ValueError`: a pod is where it may not run, or on a card that does not exist.
    """
    pods = np.array([*placed], np.int64)
    nodes = np.array([n for n, _ in placed.values()], np.int64)
    for k in np.flatnonzero(~data.may(pods, nodes))[:1].tolist():
        raise ValueError(f"pod {data.pod_names[pods[k]]!r} may not run on {data.node_names[nodes[k]]!r}")
    stated = _Stated(data, pods, nodes, [cards for _, cards in placed.values()])
    where = np.full(len(data.home), -1)
    where[pods] = nodes
    return stated.of.program(), [1] * stated.ones + stated.others(where)


class _Stated:
    """Columns ``x`` by pod and node, ``y`` by pod, node and card, and the rows of every placement.

    ``p``, ``n``: pod and node of each x; ``used``: the cards of an answer by x, which then are the only ones.
    """

    def __init__(self, data: PodData, p: Positions, n: Positions, used: Sequence[Sequence[int]] | None = None) -> None:
        self.data, self.p, self.n, self.of = data, p, n, ProgramBuilder()
        self.x = np.arange(len(p))
        self.placed = self.x  # column that counts equal pods on the node of each x, or x itself
        self.of.columns("x", lambda: self._labels(p, n), len(p), keys=("pod", "node"))
        pair, card = self._cards(used)
        self.ones: int = len(p) + len(pair)
        away = (data.home[p] >= 0) & (data.home[p] != n)
        self.moved, cost = self.x[away], data.move_cost
        self.move_cost = Exact(cost.numbers[p[away]], cost.unit)
        self._pods()
        self._sums("cpu", data.cpu.of_pod[p], data.cpu.of_node, data.cpu.unit)
        self._sums("memory", data.memory.of_pod[p], data.memory.of_node, data.memory.unit)
        if data.cards:
            self._on_cards(pair, card)
        else:
            self._sums("gpu", data.need(p, n), data.whole, data.gb)
            if data.compute.of_pod.any():
                has = data.compute.of_node[0] * data.has
                self._sums("compute", data.compute.of_pod[p] * data.many[p], has, data.compute.unit)
        self._gangs()
        self._limits()

    def _labels(self, p: Positions, n: Positions, card: Positions | None = None) -> list[Labels]:
        """Labels by which users select pairs of pod and node."""
        pods, nodes = self.data.instance.pods, self.data.instance.nodes
        keys = dict.fromkeys(key for node in nodes for key in node.labels)
        found: list[Labels] = []
        for k, (pod, node) in enumerate((pods[i], nodes[j]) for i, j in zip(p.tolist(), n.tolist(), strict=True)):
            own: dict[str, Any] = {"pod": pod.name, "node": node.name, "priority": pod.priority}
            own |= {"queue": pod.queue or "", "gang": pod.gang or "", "card_model": node.card_model or ""}
            own |= {"resource": "gpu" if wants_gpu(pod) else "cpu"}
            taken = {*own, "card"}
            own |= {f"node_{key}" if key in taken else key: node.labels.get(key, "") for key in keys}
            found.append(own if card is None else own | {"card": int(card[k])})
        return found

    def _cards(self, used: Sequence[Sequence[int]] | None) -> tuple[Positions, Positions]:
        """Add the columns y; return x and card of each."""
        data, p, n = self.data, self.p, self.n
        many = np.where(data.gpu[p] & data.cards, data.has[n], 0)
        pair = np.repeat(self.x, many)
        card = np.arange(len(pair)) - np.repeat(np.cumsum(many) - many, many)
        bits = np.where(data.home[p[pair]] == n[pair], data.known[p[pair]], np.uint64(0))
        usable = (bits == 0) | ((bits >> card.astype(np.uint64)) & np.uint64(1) > 0)
        if used is not None:
            sets = [{*cards} for cards in used]
            usable &= np.array([k in sets[x] for x, k in zip(pair.tolist(), card.tolist(), strict=True)], bool)
            wanted = np.bincount(pair[usable], minlength=len(p))
            for x in np.flatnonzero(wanted != [len(cards) for cards in used])[:1].tolist():
                listed = ", ".join(map(str, used[x])) or "(none)"
                raise ValueError(f"pod {data.pod_names[p[x]]!r} cannot use the cards {listed}")
        pair, card = pair[usable], card[usable]
        if len(pair):
            keys = ("pod", "node", "card")
            self.y = self.of.columns("y", lambda: self._labels(p[pair], n[pair], card), len(pair), keys=keys)
        return pair, card

    # Rows

    def _sums(self, name: str, asked: Any, has: Any, unit: Fraction) -> None:
        """What pods ask for on each node."""
        self.of.rows(name, "<=", self.data.node_names, Exact(has, unit), (self.n, self.x, Exact(asked, unit)))

    def _pods(self) -> None:
        """A pod runs at most once; pods that must run do; moves are within the budget."""
        data = self.data
        for name, relation, which in (("pod", "<=", ~data.must), ("running", "==", data.must)):
            row, mine = np.cumsum(which) - 1, which[self.p]
            labels = [data.pod_names[k] for k in np.flatnonzero(which).tolist()]
            self.of.rows(name, relation, labels, 1, (row[self.p[mine]], self.x[mine], 1))
        if len(self.moved):
            self.of.rows("move_budget", "<=", [""], data.budget, (0 * self.moved, self.moved, self.move_cost))

    def _on_cards(self, pair: Positions, card: Positions) -> None:
        """GPU memory and compute of cards; a GPU pod gets as many different cards as it asks for."""
        data, on = self.data, np.flatnonzero(self.data.gpu[self.p])
        if not len(on):
            return
        p, n, y = self.p[pair], self.n[pair], np.arange(len(pair)) + len(self.p)
        node = np.repeat(np.arange(len(data.has)), data.has)
        start = np.cumsum(data.has) - data.has
        number = [*range(int(data.has.max()))]
        labels = texts_at((data.node_names, node), (number, np.arange(len(node)) - start[node]))
        sides = [("card", data.need(p, n), data.card[node], data.gb)]
        if data.compute.of_pod.any():
            one = np.full(len(node), data.compute.of_node[0])
            sides.append(("compute", data.compute.of_pod[p], one, data.compute.unit))
        for name, asked, has, unit in sides:
            self.of.rows(name, "<=", labels, Exact(has, unit), (start[n] + card, y, Exact(asked, unit)))
        row = np.cumsum(data.gpu[self.p]) - 1
        labels = texts_at((data.pod_names, self.p[on]), (data.node_names, self.n[on]))
        self.of.rows("card_link", "==", labels, 0, (row[pair], y, 1), (row[on], on, -data.many[self.p[on]]))
        some = np.flatnonzero(data.many[p] > 1)
        labels = texts_at((data.pod_names, p[some]), (data.node_names, n[some]), (number, card[some]))
        each = np.arange(len(some))
        self.of.rows("card_distinct", "<=", labels, 0, (each, y[some], 1), (each, pair[some], -1))

    def _gangs(self) -> None:
        """A gang is completely in one domain, or nowhere."""
        self.gangs = [rule for rule in self.data.rules if rule.kind == "gang"]
        labels = [{"gang": rule.label, "domain": d} for rule in self.gangs for d in rule.domains]
        if not self.gangs:
            return
        start = self.of.columns("z", labels, keys=("gang", "domain"))
        for rule in self.gangs:
            z = start + np.arange(len(rule.domains))
            self.of.row("gang", rule.label, dict.fromkeys(z.tolist(), 1), "<=", 1)
            for p in rule.pods.tolist():
                mine = np.flatnonzero(self.p == p)
                for d, name in enumerate(rule.domains):
                    terms: Terms = dict.fromkeys(mine[rule.domain[self.n[mine]] == d].tolist(), 1)
                    label = label_text((self.data.pod_names[p], name))
                    self.of.row("gang_whole", label, {**terms, int(z[d]): -1}, "==", 0)
            start += len(rule.domains)

    def _limits(self) -> None:
        """Limits of domains: spreads (also relative to the emptiest domain), quotas and resources."""
        self.skewed = [rule for rule in self.data.rules if rule.kind == "skew"]
        emptiest = self.of.count
        if self.skewed:
            labels = [{"spread": rule.label} for rule in self.skewed]
            self.of.columns("emptiest", labels, upper=len(self.data.home))
        for rule in self.data.rules:
            if rule.kind == "gang":
                continue
            least: Terms = {}
            if rule.kind == "skew":
                least, emptiest = {emptiest: -1}, emptiest + 1
            asked = dict(zip(rule.pods.tolist(), rule.asked.tolist(), strict=True))
            held: list[Terms] = [{} for _ in rule.domains]
            for x in np.flatnonzero(np.isin(self.p, rule.pods) & (rule.domain[self.n] >= 0)).tolist():
                held[rule.domain[self.n[x]]][x] = asked[int(self.p[x])] * rule.unit
            for d, (name, terms) in enumerate(zip(rule.domains, held, strict=True)):
                label = rule.label if rule.kind == "quota" else label_text((rule.label, name))
                if terms:
                    self.of.row(rule.kind, label, {**terms, **least}, "<=", rule.limit[d] * rule.unit)
                if rule.counted[d]:
                    self.of.row("emptiest", label, {**terms, **least}, ">=", 0)

    def others(self, where: Positions) -> list[int]:
        """Values of the columns that follow from where pods are: domains of gangs, the emptiest domain of a skew."""
        there = [int(used > 0) for rule in self.gangs for used in rule.used(where[rule.pods])]
        return there + [int(rule.emptiest(rule.used(where[rule.pods]))) for rule in self.skewed]

    # Numbers and objectives of changed models

    def counts(self) -> None:
        """Add the numbers of equal pods on each node."""
        data = self.data
        of, first = numbered(pod.model_dump_json(exclude={"name", "created_s"}) for pod in data.instance.pods)
        many = np.bincount(of)
        some = np.flatnonzero(many[of[self.p]] > 1)
        if not len(some):
            return
        _, one, number = np.unique(
            of[self.p[some]] * len(data.has) + self.n[some], return_index=True, return_inverse=True
        )
        like, node = first[of[self.p[some[one]]]], self.n[some[one]]
        names = [(data.pod_names[p], data.node_names[n]) for p, n in zip(like.tolist(), node.tolist(), strict=True)]
        labels = [{"like": p, "node": n} for p, n in names]
        start = self.of.columns("count", labels, upper=many[of[like]].tolist())
        rows, each = [label_text(pair) for pair in names], np.arange(len(one))
        self.of.rows("count", "==", rows, 0, (number, some, 1), (each, start + each, -1))
        self.placed = self.x.copy()
        self.placed[some] = start + number

    def least_shares(self, levels: Sequence[Level | None], keys: Sequence[str]) -> None:
        """Maximise the sums of the 1, 2, ... least shares of queues, in multiples of the shares' common unit."""
        instance, zero = self.data.instance, Fraction(0)
        names = [key.removeprefix("queue ") for key in keys]
        weight = {queue.name: size_of(queue.weight) for queue in instance.queues}
        worths = zip(instance.pods, worths_of(instance, self.data.options), strict=True)
        part = [w / weight[pod.queue] if pod.queue in names else zero for pod, w in worths]
        mine = [[p for p, pod in enumerate(instance.pods) if pod.queue == name] for name in names]
        ran = [sum((part[p] for p in of if levels[p] is None), zero) for of in mine]
        top = [sum((part[p] for p in of), zero) for of in mine]
        unit = units_of(levels)
        parts = [*(unit[key] / weight[name] for key, name in zip(keys, names, strict=True)), *ran]
        whole = math.lcm(*(each.denominator for each in parts))
        upper, ranks = max(top, default=zero) * whole, range(1, len(names) + 1)
        level = self.of.columns("level", [{"rank": k} for k in ranks], keys=("rank",), upper=upper)
        labels = [{"rank": k, "queue": name} for k in ranks for name in names]
        below = self.of.columns("below", labels, keys=("rank", "queue"), upper=upper)
        for q, name in enumerate(names):
            waits = {p: -part[p] * whole for p in mine[q] if levels[p] is not None and part[p]}
            share = {x: waits[p] for x, p in enumerate(self.p.tolist()) if p in waits}
            for k in ranks:
                row: Terms = {**share, level + k - 1: 1, below + (k - 1) * len(names) + q: -1}
                self.of.row("fair", label_text((k, name)), row, "<=", ran[q] * whole)
        for k in ranks:
            less = {below + m: Fraction(-1, whole) for m in range((k - 1) * len(names), k * len(names))}
            self.of.objective(f"admission fair {k}", {**less, level + k - 1: Fraction(k, whole)}, maximize=True)

    def balance(self, measure: str, tangents: Collection[tuple[str, Fraction]]) -> None:
        """Minimise the largest load, the mean absolute deviation, or the variance in squared percent."""
        names, size = self.data.node_names, len(self.data.node_names)
        load, total = self._loads()
        top, every, node = math.ceil(total), np.arange(size), [{"node": name} for name in names]
        column, first = np.unique(self.placed, return_index=True)
        n, load = self.n[first], Exact(load.numbers[first], load.unit)
        if measure == "max_load":
            largest = self.of.columns("largest_load", [{}], upper=top, integer=False)
            self.of.rows("largest", "<=", names, 0, (n, column, load), (every, largest + 0 * every, -1))
            self.of.objective("balance", {largest: 1})
        elif measure == "mean_absolute":
            centre = self.of.columns("centre", [{}], upper=top, integer=False)
            apart = self.of.columns("apart", node, upper=top, integer=False)
            self.of.rows("mean", "==", [""], 0, (0 * n, column, load), (every[:1], every[:1] + centre, -size))
            for name, relation, sign in (("above", "<=", -1), ("below", ">=", 1)):
                rest = (every, centre + 0 * every, -1), (every, apart + every, sign)
                self.of.rows(name, relation, names, 0, (n, column, load), *rest)
            self.of.objective("balance", (apart + every, Exact(0 * every + 1, Fraction(1, size))))
        else:
            top *= 100
            centre = self.of.columns("centre", [{}], upper=top, integer=False)
            square = self.of.columns("square", node, upper=top * top, integer=False)
            distance = self.of.columns("distance", node, lower=-top, upper=top, integer=False)
            percent = Exact(load.numbers, 100 * load.unit)
            rest = (every, centre + 0 * every, -1), (every, distance + every, -1)
            self.of.rows("distance", "==", names, 0, (n, column, percent), *rest)
            points = {(name, sign * Fraction(a)) for a in _TANGENTS for sign in (-1, 1) for name in names}
            number = {name: k for k, name in enumerate(names)}
            for name, a in {*points, *tangents}:
                terms: Terms = {square + number[name]: 1, distance + number[name]: -2 * a}
                self.of.row("tangent", label_text((name, a)), terms, ">=", -a * a)
            self.of.objective("balance", (square + every, Exact(0 * every + 1, Fraction(1, size))))

    def _loads(self) -> tuple[Exact, Fraction]:
        """Load of each x, rounded if loads have no common unit; the largest load of a node with all pods."""
        data = self.data
        shape, pod = numbered(map(shape_of, data.instance.pods))
        kind, node = numbered(map(machine_kind, data.instance.nodes))
        rates: Any = np.array(exact_rates(data.instance), object)
        cpu, memory = data.cpu.unit * rates[:, 1], data.memory.unit * rates[:, 2]
        p, n = np.repeat(pod, len(node)), np.tile(node, len(pod))
        load = data.need(p, n).astype(object) * (data.many[p] if data.cards else 1) * (data.gb * rates[n, 0])
        load = load + data.cpu.of_pod[p].astype(object) * cpu[n] + data.memory.of_pod[p].astype(object) * memory[n]
        if math.lcm(1, *{each.denominator for each in load.tolist()}) > _FINEST:
            load = np.array([Fraction(round(v * _FINEST), _FINEST) for v in load.tolist()] + [None], object)[:-1]
        table = load.reshape(len(pod), len(node))
        total = (np.bincount(shape, minlength=len(pod)).astype(object)[:, None] * table).sum(axis=0)
        return Exact.of(table[shape[self.p], kind[self.n]].tolist()), max(total.tolist())
