"""Sizes, loads and balance of pods on nodes, recomputed exactly, and what proves how many can be placed.

The most pods of a level (a priority, or worth) are proven by prices of cores, memory and card memory on classes of
nodes (weak duality): whatever the prices, no placement that keeps what the levels above have admits more than

    sum over pods of max(0, worth - least cost of its place) + sum over nodes of what their resources cost,

where a card is worth the best filling that it can hold, which is searched here. Tiny instances are tried in all ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.pods import Pod, PodInstance, PodNode, fits_wishes
from flowlex.validation.certificates.contract import Strict
from flowlex.validation.certificates.numbers import exact

__all__ = [
    "TOLERANCE",
    "AdmissionProof",
    "Level",
    "all_ways",
    "balance_of",
    "kind_of",
    "level_of",
    "loads_of",
    "most_by_prices",
    "need_of",
    "size_of",
]

#: Largest difference of a stated balance that floating point explains, and of answer and bound that count as met.
TOLERANCE = 1e-6


@lru_cache(maxsize=100_000)
def size_of(value: float) -> Fraction:
    """A size as the decimal that it is written as."""
    return exact(value)


def need_of(pod: Pod, machine: PodNode) -> Fraction:
    """Memory on each card, GB."""
    return size_of(pod.gpu_memory_gb) or size_of(pod.gpu_share) * size_of(machine.card_gb)


def balance_of(loads: NDArray[np.float64], measure: str) -> float:
    """The balance of node loads by its name: deviation, max_load or mean_absolute."""
    if measure == "deviation":
        return float(np.sqrt(np.mean((loads - loads.mean()) ** 2)))
    if measure == "max_load":
        return float(loads.max())
    return float(np.abs(loads - loads.mean()).mean())


def loads_of(
    instance: PodInstance, cpu: list[Fraction], memory: list[Fraction], gpu: list[list[Fraction]]
) -> NDArray[np.float64]:
    """Weighted utilisation of each node."""
    used = np.array([[float(sum(g)) for g in gpu], [float(c) for c in cpu], [float(m) for m in memory]]).T
    capacity = np.array([[m.cards * m.card_gb, m.cpu_cores, m.memory_gb] for m in instance.nodes])
    totals = capacity.sum(axis=0)
    weight = np.divide(capacity, totals, out=np.zeros_like(capacity), where=totals > 0)
    weight /= weight.sum(axis=1, keepdims=True)
    share = np.divide(used, capacity, out=np.zeros_like(used), where=capacity > 0)
    loads: NDArray[np.float64] = (weight * share).sum(axis=1)
    return loads


class Priced(Strict):
    """Prices on a class of nodes, in pods or in their worth."""

    nodes: list[str]
    cpu: float
    """Of one core."""
    memory: float
    """Of one GB."""
    size: list[list[float]]
    """Memory as a share of a card (of the node, where cards are not told apart), and the price of one such slot."""


class AdmissionProof(Strict):
    """Why no more of a level can be placed."""

    classes: list[Priced]
    kept: dict[str, float]
    """More important level to the price of a unit of it."""
    move: float
    """Price of a unit of the move budget."""


def _kind(node: PodNode) -> tuple[object, ...]:
    sizes = (node.cpu_cores, node.memory_gb, node.cards, node.card_gb, node.card_model)
    return (*sizes, frozenset(node.labels.items()), frozenset(node.taints))


def kind_of(pod: Pod) -> tuple[object, ...]:
    """Equal for pods that nothing tells apart but their names."""
    sizes = (pod.cpu_cores, pod.memory_gb, pod.gpu_memory_gb, pod.gpu_share, pod.gpu_cards, pod.priority, pod.value)
    wishes = (frozenset(pod.node_labels.items()), frozenset(pod.tolerations), frozenset(pod.card_models))
    return (*sizes, *wishes, pod.node, pod.move_cost, pod.preempt_cost)


@dataclass(frozen=True)
class Level:
    """What pods of a level are counted under, and what one of them is worth."""

    rank: tuple[int, int]
    """The least comes first."""
    key: str
    worth: Fraction


def level_of(instance: PodInstance, pod: Pod, options: Mapping[str, Any]) -> Level | None:
    """The level of a pod; None when it runs and goes on."""
    if pod.node is not None and pod.preempt_cost is None:
        return None
    if options.get("admission", "lexicographic") == "lexicographic":
        if pod.preempt_cost is not None:
            return Level((-pod.priority, 0), f"{pod.priority} running", size_of(pod.preempt_cost))
        return Level((-pod.priority, 1), str(pod.priority), Fraction(1))
    worth = size_of(pod.value)
    if options.get("worth", "value") == "gpu":
        largest = max(size_of(node.card_gb) for node in instance.nodes)
        asked = size_of(pod.gpu_share) or size_of(pod.gpu_memory_gb) / (largest or 1)
        worth = asked * pod.gpu_cards if pod.wants_gpu else Fraction(0)
    return Level((0, 0), "worth", worth) if worth else Level((1, 0), "rest", Fraction(1))


def units_of(levels: Iterable[Level]) -> dict[str, Fraction]:
    """The largest unit that divides what the pods of a level are worth, by level."""
    denominators: dict[str, list[int]] = {}
    for level in levels:
        denominators.setdefault(level.key, []).append(level.worth.denominator)
    return {key: Fraction(1, math.lcm(*many)) for key, many in denominators.items()}


def _best_filling(sizes: list[tuple[Fraction, float]]) -> float:
    """At most what slots in one card (of size 1) are worth: searched, or by the dearest memory when that is long."""
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


def most_by_prices(
    instance: PodInstance, key: str, kept: Mapping[str, Fraction], proof: AdmissionProof, options: Mapping[str, Any]
) -> Fraction:
    """No placement with at least ``kept`` of the levels above has more of this one; in whole units of its worth."""
    cards, budget = bool(options.get("cards", True)), float(options.get("move_budget", 0.0))
    of = {name: k for k, priced in enumerate(proof.classes) for name in priced.nodes}
    kinds: dict[tuple[object, ...], list[PodNode]] = {}
    home: dict[str, tuple[object, ...]] = {}
    for node in instance.nodes:
        home[node.name] = (of[node.name], _kind(node))
        kinds.setdefault(home[node.name], []).append(node)
    prices = {key: proof.classes[int(str(key[0]))] for key in kinds}
    slot = {key: {share: max(0.0, price) for share, price in priced.size} for key, priced in prices.items()}
    groups: dict[tuple[object, ...], list[Pod]] = {}
    for pod in instance.pods:
        groups.setdefault(kind_of(pod), []).append(pod)
    seen: dict[tuple[object, ...], dict[Fraction, float]] = {key: {} for key in kinds}

    def cost(pod: Pod, key: tuple[object, ...]) -> float:
        node, priced = kinds[key][0], prices[key]
        if pod.cpu_cores > node.cpu_cores or pod.memory_gb > node.memory_gb or not fits_wishes(pod, node):
            return math.inf
        total = max(0.0, priced.cpu) * pod.cpu_cores + max(0.0, priced.memory) * pod.memory_gb
        if pod.wants_gpu:
            whole, many = size_of(node.card_gb) * (1 if cards else node.cards), pod.gpu_cards
            need = need_of(pod, node) * (1 if cards else many)
            if not whole or need > whole or many > node.cards:
                return math.inf
            share = need / whole
            seen[key][share] = slot[key].get(float(share), 0.0)
            total += seen[key][share] * (many if cards else 1)
        return total

    level = {id(pods[0]): level_of(instance, pods[0], options) for pods in groups.values()}
    unit_of = units_of(each for each in level.values() if each is not None)
    unit = unit_of[key]
    parts, paid, all_of_it = [], max(0.0, proof.move), Fraction(0)
    for pods in groups.values():
        pod, many, mine = pods[0], len(pods), level[id(pods[0])]
        if pod.node is None:
            least = min((cost(pod, kind) for kind in kinds), default=math.inf)
        elif pod.move_cost is None or pod.move_cost > budget:
            least = cost(pod, home[pod.node])
        else:
            least = min(cost(pod, kind) + (0.0 if kind == home[pod.node] else paid * pod.move_cost) for kind in kinds)
        if mine is None:
            parts.append(-many * least)
            continue
        all_of_it += mine.worth * many * (mine.key == key)
        price = 1.0 / float(unit) if mine.key == key else 0.0
        price = max(0.0, proof.kept.get(mine.key, 0.0)) / float(unit_of[mine.key]) if mine.key in kept else price
        parts.append(many * max(0.0, price * float(mine.worth) - least) if price else 0.0)
    for kind, nodes in kinds.items():
        node, priced = nodes[0], prices[kind]
        whole = max(0.0, priced.cpu) * node.cpu_cores + max(0.0, priced.memory) * node.memory_gb
        fill = _best_filling(list(seen[kind].items())) * (node.cards if cards else min(1, node.cards))
        parts.append(len(nodes) * (whole + fill))
    parts += [-max(0.0, proof.kept.get(k, 0.0)) * float(number / unit_of[k]) for k, number in kept.items()]
    total = math.fsum((*parts, paid * budget))
    return math.floor(total * (1 + 1e-12) + TOLERANCE) * unit if math.isfinite(total) else all_of_it


def all_ways(
    instance: PodInstance, options: Mapping[str, Any], most: int = 60_000
) -> tuple[list[Fraction], float] | None:
    """The lexicographically most by level and then the least balance, by trying all; None when that is too long."""
    if len(instance.pods) * math.log(len(instance.nodes) + 1) > math.log(most):
        return None
    cards, budget = bool(options.get("cards", True)), size_of(float(options.get("move_budget", 0.0)))
    levels = [level_of(instance, pod, options) for pod in instance.pods]
    ranks = sorted({each.rank for each in levels if each is not None})
    free = [[size_of(n.cpu_cores), size_of(n.memory_gb)] for n in instance.nodes]
    gpu = [[size_of(n.card_gb)] * n.cards if cards else [size_of(n.card_gb) * n.cards] for n in instance.nodes]
    full = [list(each) for each in gpu]
    best: list[Any] = [[Fraction(-1)] * len(ranks), math.inf]
    steps = 0

    def used() -> float:
        cpu = [size_of(n.cpu_cores) - f[0] for n, f in zip(instance.nodes, free, strict=True)]
        memory = [size_of(n.memory_gb) - f[1] for n, f in zip(instance.nodes, free, strict=True)]
        held = [[a - b for a, b in zip(whole, left, strict=True)] for whole, left in zip(full, gpu, strict=True)]
        return balance_of(loads_of(instance, cpu, memory, held), str(options.get("balance", "deviation")))

    def ways(pod: Pod, n: int) -> list[tuple[int, ...]]:
        node = instance.nodes[n]
        if not pod.wants_gpu:
            return [()]
        need = need_of(pod, node)
        if not cards:
            return [(0,)] if node.cards and gpu[n][0] >= need * pod.gpu_cards else []
        return list(combinations([k for k, left in enumerate(gpu[n]) if left >= need], pod.gpu_cards))

    def go(p: int, counts: list[Fraction], spent: Fraction) -> None:
        nonlocal steps
        steps += 1
        if steps > 4 * most:
            return
        if p == len(instance.pods):
            if counts >= best[0]:
                value = used()
                if counts > best[0] or value < best[1]:
                    best[:] = [counts, value]
            return
        pod, level = instance.pods[p], levels[p]
        for n, node in enumerate(instance.nodes):
            moved = pod.node is not None and node.name != pod.node
            more = spent + (size_of(pod.move_cost or 0.0) if moved else 0)
            if (moved and pod.move_cost is None) or more > budget or not fits_wishes(pod, node):
                continue
            if free[n][0] < size_of(pod.cpu_cores) or free[n][1] < size_of(pod.memory_gb):
                continue
            need = need_of(pod, node) * (1 if cards else pod.gpu_cards)
            for on in ways(pod, n):
                free[n] = [free[n][0] - size_of(pod.cpu_cores), free[n][1] - size_of(pod.memory_gb)]
                for k in on:
                    gpu[n][k] -= need
                new = list(counts)
                if level is not None:
                    new[ranks.index(level.rank)] += level.worth
                go(p + 1, new, more)
                for k in on:
                    gpu[n][k] += need
                free[n] = [free[n][0] + size_of(pod.cpu_cores), free[n][1] + size_of(pod.memory_gb)]
        if level is not None:
            go(p + 1, counts, spent)

    go(0, [Fraction(0)] * len(ranks), Fraction(0))
    return None if steps > 4 * most or best[1] == math.inf else (best[0], best[1])
