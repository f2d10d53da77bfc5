"""Small instances, tried in all ways: compiled, and by a plain recursion that is its oracle in tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from flowlex.instances.pods import Pod, PodInstance, fits_wishes
from flowlex.validation.certificates.pods.market import Population
from flowlex.validation.certificates.pods.rules import RuleBook
from flowlex.validation.certificates.pods.sizes import balance_of, kind_of, loads_of, need_of, size_of
from flowlex.validation.certificates.pods.worths import QueueShares, levels_of

__all__ = ["all_ways", "best_of_all"]


#: Placements before anything is excluded, and steps, beyond which not all is tried.
_PLACEMENTS, _STEPS = 1e10, 30_000_000
#: Cards of a node beyond which there are too many ways to choose some.
_CARDS = 8


def best_of_all(people: Population, where: Sequence[int] = ()) -> tuple[list[Fraction], float] | None:
    """The lexicographically most by level and then the least balance, by trying all; None when that is too long.

    Rules, compute and fair shares (which ``where`` is for) are judged by `all_ways` alone.
    """
    instance = people.instance
    ruled = RuleBook(instance) or any(pod.gpu_compute for pod in instance.pods)
    if ruled or people.options.get("admission") == "fair":
        return all_ways(instance, people.options, where)
    cards = max(node.cards for node in instance.nodes) if people.cards else 1
    if len(instance.pods) * math.log(len(instance.nodes) + 1) > math.log(_PLACEMENTS) or cards > _CARDS:
        return None
    from flowlex.validation.certificates.pods.trying import choices_of_cards, try_all

    found = levels_of(instance, people.options)
    keys = [key for _, key in sorted({(each.rank, each.key) for each in found if each is not None})]
    level = [-1 if each is None else keys.index(each.key) for each in found]
    kinds = [repr(kind_of(pod)) for pod in instance.pods]
    order = sorted(range(len(level)), key=lambda p: (level[p], kinds[p]))
    sizes = _sizes(people, [instance.pods[p] for p in order], cards)
    if sizes is None:
        return None
    size, need, many, may, cost, load, room, card, budget = sizes
    units = [0 if (each := found[p]) is None else int(each.worth / people.unit[each.key]) for p in order]
    levels, worth = np.array([level[p] for p in order], np.int64), np.array(units, np.int64)
    like = np.array([k > 0 and kinds[p] == kinds[order[k - 1]] for k, p in enumerate(order)], np.bool_)
    mode = ("deviation", "mean_absolute", "max_load").index(str(people.options.get("balance", "deviation")))
    ways = choices_of_cards(cards)
    best, value, whole = try_all(
        size, need, many, may, cost, levels < 0, levels, worth, like, load, room, card, *ways, budget, mode, _STEPS
    )
    if not whole or not math.isfinite(value):
        return None
    return [int(n) * people.unit[key] for n, key in zip(best, keys, strict=True)], float(value)


def _sizes(people: Population, pods: list[Pod], cards: int) -> tuple[Any, ...] | None:
    """What `try_all` takes of sizes, in whole units; None where 60 bits do not hold them."""
    nodes, shape = people.instance.nodes, (len(pods), len(people.instance.nodes))
    cpu, cpu_room = _units([size_of(pod.cpu_cores) for pod in pods], [size_of(node.cpu_cores) for node in nodes])
    gb, gb_room = _units([size_of(pod.memory_gb) for pod in pods], [size_of(node.memory_gb) for node in nodes])
    needs = [people.need(pod, node) if pod.wants_gpu else Fraction(0) for pod in pods for node in nodes]
    need, card = _units(needs, [people.whole(node) for node in nodes])
    cost, budget = _units([size_of(pod.move_cost or 0.0) for pod in pods], [size_of(people.budget)])
    if max([0, *cpu, *cpu_room, *gb, *gb_room, *need, *card, *cost, *budget]) >= 2**60:
        return None
    moves = [pod.node is not None and pod.node != node.name for pod in pods for node in nodes]
    away = np.array(moves, np.bool_).reshape(shape)
    fits = np.array([people.fits(pod, node) for pod in pods for node in nodes], np.bool_).reshape(shape)
    pinned = np.array([people.pinned(pod) for pod in pods], np.bool_)
    count = [node.cards if people.cards else min(1, node.cards) for node in nodes]
    free = [[one if k < many else -1 for k in range(max(1, cards))] for one, many in zip(card, count, strict=True)]
    return (
        np.array([cpu, gb], np.int64).T.copy(),
        np.array(need, np.int64).reshape(shape),
        np.array([(pod.gpu_cards if people.cards else 1) if pod.wants_gpu else 0 for pod in pods], np.int64),
        fits & ~(away & pinned[:, None]),
        np.array(cost, np.int64)[:, None] * away,
        np.array([people.load(pod, node) for pod in pods for node in nodes], np.float64).reshape(shape),
        np.array([cpu_room, gb_room], np.int64).T.copy(),
        np.array(free, np.int64),
        budget[0],
    )


def _units(*parts: list[Fraction]) -> list[list[int]]:
    """Numbers in their largest common whole unit."""
    unit = math.lcm(*{value.denominator for part in parts for value in part})
    return [[int(value * unit) for value in part] for part in parts]


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
    compute = [[Fraction(1)] * n.cards if cards else [Fraction(n.cards)] for n in instance.nodes]
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
        need, part = need_of(pod, node), size_of(pod.gpu_compute)
        if not cards:
            many = pod.gpu_cards
            return [(0,)] if node.cards and gpu[n][0] >= need * many and compute[n][0] >= part * many else []
        able = [k for k, left in enumerate(gpu[n]) if left >= need and compute[n][k] >= part]
        return list(combinations(able, pod.gpu_cards))

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
            part = size_of(pod.gpu_compute) * (1 if cards else pod.gpu_cards)
            for on in ways(pod, n):
                free[n] = [free[n][0] - size_of(pod.cpu_cores), free[n][1] - size_of(pod.memory_gb)]
                for k in on:
                    gpu[n][k] -= need
                    compute[n][k] -= part
                new, where[p] = list(counts), n
                if level is not None:
                    new[ranks.index(level.rank)] += level.worth
                go(p + 1, new, more)
                for k in on:
                    gpu[n][k] += need
                    compute[n][k] += part
                free[n] = [free[n][0] + size_of(pod.cpu_cores), free[n][1] + size_of(pod.memory_gb)]
        where[p] = -1
        if level is not None:
            go(p + 1, counts, spent)

    go(0, [Fraction(0)] * len(ranks), Fraction(0))
    return None if steps > 4 * most or best[1] == math.inf else (best[2], best[1])
