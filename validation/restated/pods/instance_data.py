"""Pod placement read again from the data fields of an instance: sizes, kinds, loads, rules, and where pods may run.

Nothing here comes from the properties, arrays and functions of `flowlex.instances.pods` that models use. A wrong rule
there is refused by the certificates, which read theirs here.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.instances.exact_rationals import rational
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.validation.proofs.exact_program import Exact, Positions, Whole, largest

#: Sums of a thousand numbers below this fit into 64 bits.
_SAFE = 2.0**52


@lru_cache(maxsize=100_000)
def size_of(value: float) -> Fraction:
    """A size as the decimal that it is written as."""
    return rational(value)


def wants_gpu(pod: Pod) -> bool:
    """Whether a pod asks for memory of a card, in GB or as a share."""
    return max(pod.gpu_memory_gb, pod.gpu_share) > 0


def fits_wishes(pod: Pod, node: PodNode) -> bool:
    """Whether a node has the labels and card model that a pod asks for, and no taint that it does not tolerate."""
    if pod.card_models and node.card_model not in pod.card_models:
        return False
    if any(taint not in pod.tolerations for taint in node.taints):
        return False
    return all(key in node.labels and node.labels[key] == value for key, value in pod.node_labels.items())


def need_of(pod: Pod, node: PodNode) -> Fraction:
    """GB on each card; 0 for a pod without GPU."""
    return size_of(pod.gpu_memory_gb) or size_of(pod.gpu_share) * size_of(node.card_gb)


def must_run(instance: PodInstance) -> set[str]:
    """Names of pods that no placement may leave out: running ones without a price of stopping, and their gangs."""
    kept = {pod.name: pod.gang for pod in instance.pods if pod.node is not None and pod.preempt_cost is None}
    gangs = set(kept.values()) - {None}
    return {pod.name for pod in instance.pods if pod.name in kept or pod.gang in gangs}


def machine_kind(node: PodNode) -> tuple[object, ...]:
    """Key that is equal for nodes that differ only in their names."""
    sizes = (node.cpu_cores, node.memory_gb, node.cards, node.card_gb, node.card_model)
    return (*sizes, frozenset(node.labels.items()), frozenset(node.taints))


def shape_of(pod: Pod) -> tuple[object, ...]:
    """Key of what a pod asks for, without its importance, its rules and its node."""
    sizes = (pod.cpu_cores, pod.memory_gb, pod.gpu_memory_gb, pod.gpu_share, pod.gpu_cards)
    return (*sizes, frozenset(pod.node_labels.items()), frozenset(pod.tolerations), frozenset(pod.card_models))


def kind_of(pod: Pod) -> tuple[object, ...]:
    """Key that is equal for pods that differ only in their names."""
    groups = (pod.gang, frozenset(pod.spreads), pod.queue, frozenset(pod.resources.items()))
    rules = (pod.gpu_compute, pod.node_cards, *groups)
    return (*shape_of(pod), pod.priority, pod.value, *rules, pod.node, pod.move_cost, pod.preempt_cost)


def numbered(keys: Iterable[Hashable]) -> tuple[Positions, Positions]:
    """The number of each key, in the order of their first occurrence, and where each number occurs first."""
    number: dict[Hashable, int] = {}
    of = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
    return of, np.unique(of, return_index=True)[1].astype(np.int64)


class Amounts(NamedTuple):
    """What pods ask for and what nodes have, as integers times a unit."""

    of_pod: Whole
    of_node: Whole
    unit: Fraction

    @classmethod
    def of(cls, asked: Sequence[Fraction], held: Sequence[Fraction]) -> Amounts:
        """Amounts in their common unit; as Python's integers if sums of them could overflow."""
        both = Exact.of([*asked, *held])
        numbers = both.numbers if largest(both.numbers) < _SAFE else both.numbers.astype(object)
        return cls(numbers[: len(asked)], numbers[len(asked) :], both.unit)


def exact_rates(instance: PodInstance) -> list[tuple[Fraction, ...]]:
    """By node, the load of a GB of GPU memory, of a core, and of a GB of memory."""
    capacity = [(m.cards * size_of(m.card_gb), size_of(m.cpu_cores), size_of(m.memory_gb)) for m in instance.nodes]
    totals = [sum(column, Fraction(0)) for column in zip(*capacity, strict=True)]
    known = {has: _rates(has, totals, instance.load_reading) for has in {*capacity}}
    return [known[has] for has in capacity]


def _rates(has: Sequence[Fraction], totals: Sequence[Fraction], reading: str) -> tuple[Fraction, ...]:
    """Load of a unit of each resource on a node with these capacities."""
    part = [h / total if total else Fraction(0) for h, total in zip(has, totals, strict=True)]
    found = []
    for h, total, p in zip(has, totals, part, strict=True):
        if not h:
            found.append(Fraction(0))
        elif reading == "raw":
            found.append(1 / (3 * total))
        elif reading == "equal":
            found.append(1 / (h * sum(each > 0 for each in has)))
        else:
            found.append(p / sum(part) / (total if reading == "cluster" else h))
    return tuple(found)


def rates_of(instance: PodInstance) -> NDArray[np.float64]:
    """(N, 3) `exact_rates` as floats."""
    return np.array([[float(rate) for rate in node] for node in exact_rates(instance)])


def loads_of(instance: PodInstance, where: Sequence[int]) -> NDArray[np.float64]:
    """(N,) weighted utilisation of each node; ``where``: node of each pod, -1 if it waits."""
    used = [[Fraction(0)] * 3 for _ in instance.nodes]
    for pod, n in zip(instance.pods, where, strict=True):
        if n >= 0:
            gpu = need_of(pod, instance.nodes[n]) * pod.gpu_cards
            sizes = (gpu, size_of(pod.cpu_cores), size_of(pod.memory_gb))
            used[n] = [u + s for u, s in zip(used[n], sizes, strict=True)]
    loads: NDArray[np.float64] = (rates_of(instance) * np.array(used, np.float64)).sum(axis=1)
    return loads


def balance_of(loads: NDArray[np.float64], measure: str) -> float:
    """The balance of node loads by its name: deviation, max_load or mean_absolute."""
    if measure == "deviation":
        return float(np.sqrt(np.mean((loads - loads.mean()) ** 2)))
    if measure == "max_load":
        return float(loads.max())
    return float(np.abs(loads - loads.mean()).mean())


#: What a queue may limit.
_FIELDS = ("gpus", "cpu_cores", "memory_gb", "pods")


def domain_of(node: PodNode, key: str | None) -> str | None:
    """The domain of a node: the cluster, the node, or the value of a label; None where it has none."""
    return "cluster" if key is None else node.name if key == "node" else node.labels.get(key)


@dataclass(frozen=True, eq=False)
class Rule:
    """A limit on what M pods use together in each of D domains."""

    # kind, name, label: ``gang``, ``spread``, ``skew``, ``quota`` or ``resource``; its name in proofs, and in rows
    kind: str
    name: str
    label: str
    key: str | None  # ``node`` or the label whose values are the domains; None: the cluster is the domain
    # pods, asked, home: (M,) numbers of the pods, what they ask for (rationals), and the nodes where they run, else -1
    pods: Positions
    asked: Whole
    home: Positions
    # domain, domains: (N,) domain of each node, -1 outside of all, and names of the domains
    domain: Positions
    domains: tuple[str, ...]
    limit: Whole  # (D,) for a skew, above the emptiest of the domains that are ``counted``
    counted: NDArray[np.bool_]
    unit: int = 1  # its row is stated in multiples of 1 / this

    def used(self, at: Positions) -> Whole:
        """(D,) what pods at these (M,) nodes use."""
        total = np.zeros(len(self.domains), object)
        inside = np.flatnonzero((at >= 0) & (self.domain[at] >= 0))
        np.add.at(total, self.domain[at[inside]], self.asked[inside])
        return total

    def emptiest(self, used: Whole) -> Any:
        """The least that a counted domain uses."""
        return min(used[self.counted].tolist(), default=0)


def rules_of(instance: PodInstance) -> list[Rule]:
    """Gangs, spreads, quotas and resources, as the instance lists them."""
    return [*_rules(instance)]


def _rules(instance: PodInstance) -> Iterator[Rule]:
    pods, nodes = instance.pods, instance.nodes
    place = {node.name: n for n, node in enumerate(nodes)}

    def rule(kind: str, name: str, label: str, key: str | None, asked: dict[int, Any], base: Any) -> Rule:
        names = [domain_of(node, key) for node in nodes]
        domains = {name: d for d, name in enumerate(dict.fromkeys(name for name in names if name is not None))}
        domain = np.array([-1 if name is None else domains[name] for name in names], np.int64)
        home = np.array([place.get(pods[p].node or "", -1) for p in asked], np.int64)
        amounts = np.array([*asked.values(), None], object)[:-1]
        counted = np.zeros(len(domains), bool)
        if kind == "skew":
            wishes = {shape_of(pods[p]): pods[p] for p in asked}.values()
            able = [any(fits_wishes(pod, node) for pod in wishes) for node in nodes]
            counted[domain[np.array(able, bool) & (domain >= 0)]] = True
        limit = np.array([base(d) if callable(base) else base for d in domains] + [None], object)[:-1]
        made = Rule(
            kind,
            name,
            label,
            key,
            np.array([*asked], np.int64),
            amounts,
            home,
            domain,
            tuple(domains),
            limit,
            counted,
            math.lcm(base.denominator, *(v.denominator for v in asked.values())) if kind == "quota" else 1,
        )
        ran = made.used(home)
        made.limit[:] = np.maximum(limit, ran - made.emptiest(ran))
        return made

    members: dict[tuple[str, str | None], dict[int, Any]] = {}
    for p, pod in enumerate(pods):
        for key in (("gang", pod.gang), ("queue", pod.queue), *(("spread", name) for name in pod.spreads)):
            members.setdefault(key, {})[p] = 1
    for gang in instance.gangs:
        mine = members.get(("gang", gang.name), {})
        at = {domain_of(nodes[place[name]], gang.within) for p in mine if (name := pods[p].node) is not None}
        apart = len(at) > 1 or None in at  # one that already runs in different domains may be anywhere
        yield rule("gang", f"gang {gang.name!r}", gang.name, None if apart else gang.within, mine, len(mine))
    for spread in instance.spreads:
        for kind, limit in (("spread", spread.most), ("skew", spread.skew)):
            if limit is not None:
                mine = members.get(("spread", spread.name), {})
                yield rule(kind, f"spread {spread.name!r}", spread.name, spread.over, mine, limit)
    largest = max(size_of(node.card_gb) for node in nodes) or Fraction(1)
    for queue in instance.queues:
        for field in _FIELDS:
            if (limit := getattr(queue, field)) is not None:
                mine = {p: _asked(pods[p], field, largest) for p in members.get(("queue", queue.name), {})}
                label = label_text((queue.name, field))
                yield rule("quota", f"{field} of queue {queue.name!r}", label, None, mine, size_of(limit))
    for resource in instance.resources:
        mine = {p: amount for p, pod in enumerate(pods) if (amount := pod.resources.get(resource.name))}
        has: dict[str | None, int] = {}
        for node in nodes:
            d = domain_of(node, resource.over)
            has[d] = has.get(d, 0) + node.resources.get(resource.name, 0)
        limit = resource.amount
        yield rule(
            "resource",
            f"resource {resource.name!r}",
            resource.name,
            resource.over,
            mine,
            has.__getitem__ if limit is None else limit,
        )


def _asked(pod: Pod, field: str, largest: Fraction) -> Fraction:
    """Amount of a quota that a pod uses; GB of GPU memory count as fractions of the largest card."""
    if field == "pods":
        return Fraction(1)
    if field != "gpus":
        return size_of(getattr(pod, field))
    share = size_of(pod.gpu_share) or size_of(pod.gpu_memory_gb) / largest
    return share * pod.gpu_cards if wants_gpu(pod) else Fraction(0)


class PodData:
    """Sizes of pods and nodes as arrays, with the rules over pods. Sizes: P pods, N nodes."""

    def __init__(self, instance: PodInstance, options: Mapping[str, Any]) -> None:
        pods, nodes = instance.pods, instance.nodes
        self.options: Mapping[str, Any]
        self.instance, self.options, self.rules = instance, options, rules_of(instance)
        self.cards: bool = bool(options.get("cards", True))
        self.budget: Fraction = size_of(float(options.get("move_budget", 0.0)))
        place, must = {node.name: n for n, node in enumerate(nodes)}, must_run(instance)
        self.pod_names, self.node_names = [pod.name for pod in pods], [node.name for node in nodes]
        #: (P,) node where a pod runs, else -1; whether it must go on; whether it may move; its cards there, as bits.
        self.home: Positions = np.array([place.get(pod.node or "", -1) for pod in pods], np.int64)
        self.must = np.array([pod.name in must for pod in pods], bool)
        costs = [None if pod.move_cost is None else size_of(pod.move_cost) for pod in pods]
        self.movable = np.array([cost is not None and cost <= self.budget for cost in costs], bool)
        self.move_cost = Exact.of([cost or Fraction(0) for cost in costs])
        self.known = np.array([sum(1 << k for k in pod.node_cards or ()) for pod in pods], np.uint64)
        #: (P,) whether it is a GPU pod, and on how many cards; (N,) cards of a node.
        self.gpu = np.array([wants_gpu(pod) for pod in pods], bool)
        self.many: Positions = np.array([pod.gpu_cards for pod in pods], np.int64)
        self.has: Positions = np.array([node.cards for node in nodes], np.int64)
        self.cpu = Amounts.of([size_of(p.cpu_cores) for p in pods], [size_of(n.cpu_cores) for n in nodes])
        self.memory = Amounts.of([size_of(p.memory_gb) for p in pods], [size_of(n.memory_gb) for n in nodes])
        self.compute = Amounts.of([size_of(p.gpu_compute) for p in pods], [Fraction(1)])
        # GB on a card by request and by size of cards
        self._ask, ask = numbered((pod.gpu_memory_gb, pod.gpu_share) for pod in pods)
        self._card, card = numbered(node.card_gb for node in nodes)
        needs = [need_of(pods[p], nodes[n]) for p in ask.tolist() for n in card.tolist()]
        gb = Amounts.of(needs, [size_of(nodes[n].card_gb) for n in card.tolist()])
        self._need, self.gb = gb.of_pod.reshape(len(ask), len(card)), gb.unit
        self.card: Whole = gb.of_node[self._card]  # (N,) size of a card, in units of ``gb``

    def need(self, p: Positions, n: Positions) -> Whole:
        """GPU memory of pods on each card of nodes, or in all if cards are not distinguished, in units of ``gb``."""
        on_card: Whole = self._need[self._ask[p], self._card[n]]
        return on_card if self.cards else on_card * self.many[p]

    @property
    def whole(self) -> Whole:
        """(N,) the size of a card, or of all cards if these are not distinguished, in units of ``gb``."""
        return self.card if self.cards else self.card * self.has

    @cached_property
    def _wishes(self) -> tuple[Positions, Positions, NDArray[np.bool_]]:
        pods, nodes = self.instance.pods, self.instance.nodes
        wish, p = numbered(shape_of(pod)[5:] for pod in pods)
        place, n = numbered(machine_kind(node)[4:] for node in nodes)
        fits = [[fits_wishes(pods[i], nodes[j]) for j in n.tolist()] for i in p.tolist()]
        return wish, place, np.array(fits, bool).reshape(len(p), len(n))

    def may(self, p: Positions, n: Positions) -> NDArray[np.bool_]:
        """Whether each of these pods, by itself, may run on its node."""
        wish, place, fits = self._wishes
        home = self.home[p] == n
        may: NDArray[np.bool_] = fits[wish[p], place[n]] & ((self.home[p] < 0) | home | self.movable[p])
        may &= (self.cpu.of_pod[p] <= self.cpu.of_node[n]) & (self.memory.of_pod[p] <= self.memory.of_node[n])
        room = (self.need(p, n) <= self.whole[n]) & ((self.many[p] <= self.has[n]) | (not self.cards))
        may &= ~self.gpu[p] | (room & (self.has[n] > 0))
        for member, inside in self._inside:
            may &= home | inside[n] | ~member[p]
        return np.asarray(may, bool)

    @cached_property
    def _inside(self) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """By label whose values are domains: (P,) pods that a rule binds to one, and (N,) whether a node has one."""
        found: dict[str | None, tuple[NDArray[np.bool_], NDArray[np.bool_]]] = {}
        for rule in self.rules:
            if (rule.domain < 0).any():
                member, _ = found.setdefault(rule.key, (np.zeros(len(self.home), bool), rule.domain >= 0))
                member[rule.pods] = True
        return [*found.values()]


def repacked(data: PodData) -> int:
    """Number of running GPU pods that use some of their node's cards, where the file does not say which."""
    unknown = np.array([pod.node_cards is None for pod in data.instance.pods], bool)
    return int((unknown & data.gpu & (data.home >= 0) & (data.many < data.has[data.home])).sum())
