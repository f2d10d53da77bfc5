"""Group identical pods and identical nodes of a placement, and price places by prices of resources.

For any prices >= 0 of cores, memory and card memory on classes of nodes, the pods of a feasible placement pay at most
the price of all nodes' resources, where a card counts as its most valuable filling.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.validation.certificates.pods.pod_sizes import (
    Level,
    kind_of,
    machine_kind,
    need_of,
    rates_of,
    size_of,
    units_of,
)
from flowlex.validation.certificates.pods.pod_values import levels_of
from flowlex.validation.certificates.verifier_interface import Strict
from flowlex.validation.restated.pods import fits_wishes, wants_gpu

#: A price or multiplier of a proof, limited so that sums neither lose precision nor overflow.
#: A pod of one byte (1e-9 GB) may need a price of 1e12 for each GB.
Price: TypeAlias = Annotated[float, Field(ge=-1e13, le=1e13)]


class Priced(Strict):
    """Prices on a class of nodes, in units of the bounded quantity: pods, their value, or the balance's sum."""

    nodes: list[str]
    cpu: Price
    """Price of one core."""
    memory: Price
    """Price of one GB."""
    size: list[list[Price]]
    """Memory as a share of a card (of the node, if cards are not distinguished), and the price of such a slot."""
    slope: Price = 0.0
    """Price of a unit of a node's load, of any sign, if the balance is bounded."""


class Population:
    """The pods of an instance in groups of identical ones, with their levels, and the nodes by name."""

    def __init__(self, instance: PodInstance, options: Mapping[str, Any]) -> None:
        self.options: Mapping[str, Any]
        self.instance, self.options = instance, options
        self.budget: float
        self.cards, self.budget = bool(options.get("cards", True)), float(options.get("move_budget", 0.0))
        groups: dict[tuple[object, ...], list[Pod]] = {}
        for pod in instance.pods:
            groups.setdefault(kind_of(pod), []).append(pod)
        self.groups: list[list[Pod]] = [*groups.values()]
        self.pod: list[Pod] = [pods[0] for pods in self.groups]
        of = {pod.name: level for pod, level in zip(instance.pods, levels_of(instance, options), strict=True)}
        self.level: list[Level | None] = [of[pod.name] for pod in self.pod]
        self.unit: dict[str, Fraction] = units_of(each for each in self.level if each is not None)
        self.node: dict[str, PodNode] = {node.name: node for node in instance.nodes}

    def pinned(self, pod: Pod) -> bool:
        """Whether a pod runs and cannot move; it may still be stopped."""
        return pod.node is not None and (pod.move_cost is None or pod.move_cost > self.budget)

    def held(self, k: int) -> bool:
        """Whether pods of a group stay where they are in every placement."""
        return self.pinned(self.pod[k]) and self.level[k] is None

    def fits(self, pod: Pod, node: PodNode) -> bool:
        """Whether a pod fits the node when it is empty."""
        if pod.cpu_cores > node.cpu_cores or pod.memory_gb > node.memory_gb or not fits_wishes(pod, node):
            return False
        if not wants_gpu(pod):
            return True
        whole, need = self.whole(node), self.need(pod, node)
        return bool(whole) and need <= whole and pod.gpu_cards <= node.cards

    @cached_property
    def able(self) -> list[bool]:
        """By group, whether its pods fit any node."""
        kinds = {machine_kind(node): node for node in self.instance.nodes}
        return [
            any(self.fits(pod, node) for node in kinds.values())
            if not self.pinned(pod)
            else self.fits(pod, self.node[str(pod.node)])
            for pod in self.pod
        ]

    def lost(self, gangs: Iterable[str] = ()) -> dict[str, Fraction]:
        """By level, the value of pods that fit no node even if it is empty, and of the gangs of such pods.

        ``gangs`` are lost as well.
        """
        alone: set[str | None] = {*gangs}
        for pods, able in zip(self.groups, self.able, strict=True):
            alone |= set() if able else {pod.gang for pod in pods}
        lost: dict[str, Fraction] = {}
        for pods, able, level in zip(self.groups, self.able, self.level, strict=True):
            many = sum(not able or (pod.gang is not None and pod.gang in alone) for pod in pods)
            if level is not None and many:
                lost[level.key] = lost.get(level.key, Fraction(0)) + level.worth * many
        return lost

    def by_group(self, priced: Mapping[str, float]) -> list[float]:
        """Prices of pods by group; 0 for those left out."""
        group = {pod.name: k for k, pods in enumerate(self.groups) for pod in pods}
        price = [0.0] * len(self.pod)
        for name, value in priced.items():
            price[group[name]] = value
        return price

    def whole(self, node: PodNode) -> Fraction:
        """GB of a card, or of all cards if these are not distinguished."""
        return size_of(node.card_gb) * (1 if self.cards else node.cards)

    def need(self, pod: Pod, node: PodNode) -> Fraction:
        """GB on each card, or on the node."""
        return need_of(pod, node) * (1 if self.cards else pod.gpu_cards)

    @cached_property
    def rates(self) -> dict[str, tuple[float, float, float]]:
        """By node, the load of a GB of GPU memory, of a core, and of a GB of memory."""
        rows = rates_of(self.instance).tolist()
        return {node.name: tuple(row) for node, row in zip(self.instance.nodes, rows, strict=True)}

    def load(self, pod: Pod, node: PodNode) -> float:
        """Load that a pod adds to a node."""
        gpu, cpu, memory = self.rates[node.name]
        on_cards = float(need_of(pod, node)) * pod.gpu_cards if wants_gpu(pod) else 0.0
        return gpu * on_cards + cpu * pod.cpu_cores + memory * pod.memory_gb

    def least_cost(self, price: list[float], placed: Mapping[str, Fraction], able: Iterable[bool]) -> float:
        """Least total price of pods, at these prices by group, if this much of every level is placed.

        All pods that must run are placed; of a level, those that are cheapest for their value, also in fractions.
        """
        parts: list[float] = []
        of_level: dict[str, list[tuple[float, float, int]]] = {}
        for k, can in enumerate(able):
            level, many = self.level[k], len(self.groups[k])
            if not can or self.held(k):
                continue
            if level is None:
                parts.append(price[k] * many)
            else:
                worth = float(level.worth / self.unit[level.key])
                of_level.setdefault(level.key, []).append((price[k] / worth, worth, many))
        for key, offers in of_level.items():
            left = float(placed.get(key, Fraction(0)) / self.unit[key])
            for each, worth, many in sorted(offers):
                taken = min(left, worth * many)
                parts.append(each * taken)
                left -= taken
            if left > 1e-6:
                return math.inf  # so much of this level cannot be placed at all
        return math.fsum(parts)


class PriceBound:
    """Payments at prices of resources: the least of each pod, and the price of all nodes."""

    def __init__(self, people: Population, classes: list[Priced], move: float, *, sloped: bool = False) -> None:
        self.sloped: bool
        self.people, self.move, self.sloped = people, max(0.0, move), sloped
        of = {name: k for k, priced in enumerate(classes) for name in priced.nodes}
        self.kinds: dict[tuple[object, ...], list[PodNode]] = {}
        self.home: dict[str, tuple[object, ...]] = {}
        for node in people.instance.nodes:
            self.home[node.name] = (of[node.name], machine_kind(node))
            self.kinds.setdefault(self.home[node.name], []).append(node)
        self.prices: dict[tuple[object, ...], Priced] = {kind: classes[int(str(kind[0]))] for kind in self.kinds}
        self.slot: dict[tuple[object, ...], dict[float, float]] = {
            kind: {share: max(0.0, price) for share, price in priced.size} for kind, priced in self.prices.items()
        }
        self.seen: dict[tuple[object, ...], dict[Fraction, float]] = {kind: {} for kind in self.kinds}

    def cost(self, pod: Pod, kind: tuple[object, ...]) -> float:
        """Payment of a pod on a kind of nodes; infinite if it does not fit."""
        node, priced, people = self.kinds[kind][0], self.prices[kind], self.people
        if not people.fits(pod, node):
            return math.inf
        total = max(0.0, priced.cpu) * pod.cpu_cores + max(0.0, priced.memory) * pod.memory_gb
        if self.sloped:
            total += priced.slope * people.load(pod, node)
        if wants_gpu(pod):
            share = people.need(pod, node) / people.whole(node)
            self.seen[kind][share] = self.slot[kind].get(float(share), 0.0)
            total += self.seen[kind][share] * (pod.gpu_cards if people.cards else 1)
        return total

    def least(self, k: int) -> float:
        """Least payment of a pod of a group, moving included; infinite if it fits nowhere."""
        pod = self.people.pod[k]
        if pod.node is None:
            return min((self.cost(pod, kind) for kind in self.kinds), default=math.inf)
        home = self.home[pod.node]
        if self.people.pinned(pod):
            return self.cost(pod, home)
        paid = self.move * (pod.move_cost or 0.0)
        return min(self.cost(pod, kind) + (0.0 if kind == home else paid) for kind in self.kinds)

    def rent(self) -> float:
        """Price of the resources of all nodes and of the move budget; call it after `least` of all pods."""
        parts = [self.move * self.people.budget]
        for kind, nodes in self.kinds.items():
            node, priced = nodes[0], self.prices[kind]
            whole = max(0.0, priced.cpu) * node.cpu_cores + max(0.0, priced.memory) * node.memory_gb
            cards = node.cards if self.people.cards else min(1, node.cards)
            parts.append(len(nodes) * (whole + _best_filling(list(self.seen[kind].items())) * cards))
        return math.fsum(parts)


def _best_filling(sizes: list[tuple[Fraction, float]]) -> float:
    """Upper bound on the value of slots in a card of size 1: by a search, or if that is long by the best ratio."""
    worth = sorted(((s, p) for s, p in sizes if p > 0 and s <= 1), key=lambda each: -each[1] / float(each[0]))
    if any(s == 0 for s, _ in worth):
        return math.inf
    ratio = [p / float(s) for s, p in worth]
    best, steps = 0.0, 0
    stack = [(0, Fraction(1), 0.0)]
    while stack:
        k, left, value = stack.pop()
        steps += 1
        if steps > 50_000:
            return ratio[0] * (1 + 1e-9)
        best = max(best, value)
        if k < len(worth) and value + ratio[k] * float(left) > best + 1e-12:
            size, price = worth[k]
            stack += [(k + 1, left - many * size, value + many * price) for many in range(int(left / size) + 1)]
    return best + 1e-12
