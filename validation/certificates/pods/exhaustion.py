"""Tiny instances, tried in all ways."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

from flowlex.instances.pods import Pod, PodInstance, fits_wishes
from flowlex.validation.certificates.pods.rules import RuleBook
from flowlex.validation.certificates.pods.sizes import balance_of, loads_of, need_of, size_of
from flowlex.validation.certificates.pods.worths import QueueShares, levels_of

__all__ = ["all_ways"]


def all_ways(
    instance: PodInstance, options: Mapping[str, Any], where: Sequence[int] = (), most: int = 60_000
) -> tuple[list[Fraction], float] | None:
    """The lexicographically most by level and then the least balance, by trying all; None when that is too long.

    Fair admission goes by the sorted shares of queues; where these are those of the placement ``where``, the balance is
    that of its own numbers by level.
    """
    if len(instance.pods) * math.log(len(instance.nodes) + 1) > math.log(most):
        return None
    cards, budget = bool(options.get("cards", True)), size_of(float(options.get("move_budget", 0.0)))
    levels, fair = levels_of(instance, options), options.get("admission") == "fair"
    shares = QueueShares(instance, options)
    ranks = sorted({each.rank for each in levels if each is not None})
    free = [[size_of(n.cpu_cores), size_of(n.memory_gb)] for n in instance.nodes]
    gpu = [[size_of(n.card_gb)] * n.cards if cards else [size_of(n.card_gb) * n.cards] for n in instance.nodes]
    full = [list(each) for each in gpu]
    best: list[Any] = [[Fraction(-1)] * len(ranks), math.inf, []]
    steps, book, given, where = 0, RuleBook(instance), where, [-1] * len(instance.pods)
    own = [Fraction(0)] * len(ranks)
    for level, n in zip(levels, given, strict=False):
        if level is not None and n >= 0:
            own[ranks.index(level.rank)] += level.worth

    def rank(counts: list[Fraction], at: Sequence[int]) -> list[Fraction]:
        """What is compared: the levels, or sorted shares, the pods of no queue, and whether it is the given answer."""
        if not fair:
            return counts
        rest = [many for many, level in zip(counts, ranks, strict=True) if level[0]]
        return [*shares.ordered(at), *rest, Fraction(counts == own)]

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
            if (now := rank(counts, where)) >= best[0] and (not book or book.holds(where)):
                value = used()
                if now > best[0] or value < best[1]:
                    best[:] = [now, value, counts]
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
                new, where[p] = list(counts), n
                if level is not None:
                    new[ranks.index(level.rank)] += level.worth
                go(p + 1, new, more)
                for k in on:
                    gpu[n][k] += need
                free[n] = [free[n][0] + size_of(pod.cpu_cores), free[n][1] + size_of(pod.memory_gb)]
        where[p] = -1
        if level is not None:
            go(p + 1, counts, spent)

    go(0, [Fraction(0)] * len(ranks), Fraction(0))
    return None if steps > 4 * most or best[1] == math.inf else (best[2], best[1])
