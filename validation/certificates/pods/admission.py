"""What proves how many pods of a level (a priority, or worth) can be placed: prices of node classes.

By weak duality, whatever the prices of cores, memory and card memory, no placement that keeps what the levels above
have admits more than

    sum over pods of max(0, worth - least cost of its place) + sum over nodes of what their resources cost,

where a card is worth the best filling that it can hold, which is searched here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from flowlex.instances.pods import Pod, PodInstance, PodNode, fits_wishes
from flowlex.validation.certificates.contract import Strict
from flowlex.validation.certificates.pods.sizes import (
    TOLERANCE,
    kind_of,
    level_of,
    machine_kind,
    need_of,
    size_of,
    units_of,
)

__all__ = ["AdmissionProof", "most_by_prices"]


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
        home[node.name] = (of[node.name], machine_kind(node))
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
