"""Small instances, tried in all ways: compiled, and by a plain recursion that is its oracle in tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.pods import Pod, PodInstance, fits_wishes
from flowlex.validation.certificates.pods.price_bound import Population
from flowlex.validation.certificates.pods.rules import RuleBook
from flowlex.validation.certificates.pods.sizes import balance_of, kind_of, loads_of, need_of, size_of
from flowlex.validation.certificates.pods.values import QueueShares, levels_of

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
    own = _own_cards(people, [instance.pods[p] for p in order])
    distinct = own.any(axis=0)
    units = [0 if (each := found[p]) is None else int(each.worth / people.unit[each.key]) for p in order]
    levels, worth = np.array([level[p] for p in order], np.int64), np.array(units, np.int64)
    like = np.array([k > 0 and kinds[p] == kinds[order[k - 1]] for k, p in enumerate(order)], np.bool_)
    mode = ("deviation", "mean_absolute", "max_load").index(str(people.options.get("balance", "deviation")))
    ways = choices_of_cards(cards)
    ranked = (levels < 0, levels, worth, like, load, room, card)
    best, value, whole = try_all(size, need, many, may, own, distinct, cost, *ranked, *ways, budget, mode, _STEPS)
    if not whole or not math.isfinite(value):
        return None
    return [int(n) * people.unit[key] for n, key in zip(best, keys, strict=True)], float(value)


def _own_cards(people: Population, pods: list[Pod]) -> NDArray[np.int64]:
    """(P, N) the cards that a pod has to use on a node, as bits; 0: any."""
    node = {each.name: n for n, each in enumerate(people.instance.nodes)}
    own = np.zeros((len(pods), len(node)), np.int64)
    for p, pod in enumerate(pods):
        if people.cards and pod.node is not None and pod.node_cards:
            own[p, node[pod.node]] = sum(1 << card for card in pod.node_cards)
    return own


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
    search = _AllWays(instance, options, where, 4 * most)
    search.go(0, [Fraction(0)] * len(search.ranks), Fraction(0))
    if search.steps > search.limit or search.value == math.inf:
        return None
    return search.counts, search.value


class _AllWays:
    """Pod after pod on every node and its cards, or waiting; what is free is taken and given back."""

    def __init__(self, instance: PodInstance, options: Mapping[str, Any], given: Sequence[int], limit: int) -> None:
        self.instance, self.cards = instance, bool(options.get("cards", True))
        self.measure = str(options.get("balance", "deviation"))
        self.budget = size_of(float(options.get("move_budget", 0.0)))
        self.levels, self.fair = levels_of(instance, options), options.get("admission") == "fair"
        self.shares, self.book = QueueShares(instance, options), RuleBook(instance)
        self.ranks = sorted({each.rank for each in self.levels if each is not None})
        nodes, cards = instance.nodes, self.cards
        self.free = [[size_of(n.cpu_cores), size_of(n.memory_gb)] for n in nodes]
        self.gpu = [[size_of(n.card_gb)] * n.cards if cards else [size_of(n.card_gb) * n.cards] for n in nodes]
        self.full = [list(each) for each in self.gpu]
        self.compute = [[Fraction(1)] * n.cards if cards else [Fraction(n.cards)] for n in nodes]
        self.size = [(size_of(pod.cpu_cores), size_of(pod.memory_gb)) for pod in instance.pods]
        self.where = [-1] * len(instance.pods)
        self.own = [Fraction(0)] * len(self.ranks)
        for level, n in zip(self.levels, given, strict=False):
            if level is not None and n >= 0:
                self.own[self.ranks.index(level.rank)] += level.worth
        self.best, self.value, self.counts = [Fraction(-1)] * len(self.ranks), math.inf, list[Fraction]()
        self.steps, self.limit = 0, limit

    def go(self, p: int, counts: list[Fraction], spent: Fraction) -> None:
        """All ways for the pods from one on, with what the levels have and what moves have cost before."""
        self.steps += 1
        if self.steps > self.limit:
            return
        if p == len(self.instance.pods):
            self._offer(counts)
            return
        pod, level = self.instance.pods[p], self.levels[p]
        for n, node in enumerate(self.instance.nodes):
            moved = pod.node is not None and node.name != pod.node
            more = spent + (size_of(pod.move_cost or 0.0) if moved else 0)
            if (moved and pod.move_cost is None) or more > self.budget or not fits_wishes(pod, node):
                continue
            for on in self._ways(p, n):
                self._take(p, n, on, 1)
                new, self.where[p] = list(counts), n
                if level is not None:
                    new[self.ranks.index(level.rank)] += level.worth
                self.go(p + 1, new, more)
                self._take(p, n, on, -1)
        self.where[p] = -1
        if level is not None:
            self.go(p + 1, counts, spent)

    def _offer(self, counts: list[Fraction]) -> None:
        """Take a placement that admits more, or as much and more evenly."""
        if (now := self._rank(counts)) >= self.best and (not self.book or self.book.holds(self.where)):
            value = self._balance()
            if now > self.best or value < self.value:
                self.best, self.value, self.counts = now, value, counts

    def _rank(self, counts: list[Fraction]) -> list[Fraction]:
        """What is compared: the levels, or sorted shares, the pods of no queue, and whether it is the given answer."""
        if not self.fair:
            return counts
        rest = [many for many, level in zip(counts, self.ranks, strict=True) if level[0]]
        return [*self.shares.ordered(self.where), *rest, Fraction(counts == self.own)]

    def _balance(self) -> float:
        pairs = [*zip(self.instance.nodes, self.free, strict=True)]
        cpu, memory = [size_of(n.cpu_cores) - f[0] for n, f in pairs], [size_of(n.memory_gb) - f[1] for n, f in pairs]
        held = [[a - b for a, b in zip(*each, strict=True)] for each in zip(self.full, self.gpu, strict=True)]
        return balance_of(loads_of(self.instance, cpu, memory, held), self.measure)

    def _ways(self, p: int, n: int) -> list[tuple[int, ...]]:
        """Cards for a pod on a node; none where it does not fit."""
        pod, (cpu, memory) = self.instance.pods[p], self.size[p]
        if self.free[n][0] < cpu or self.free[n][1] < memory:
            return []
        if not pod.wants_gpu:
            return [()]
        need, part = self._asks(pod, n)
        gpu = zip(self.gpu[n], self.compute[n], strict=True)
        able = [k for k, (left, compute) in enumerate(gpu) if left >= need and compute >= part]
        if self.cards and pod.node_cards is not None and pod.node == self.instance.nodes[n].name:
            able = [k for k in able if k in pod.node_cards]
        if not self.cards:
            return [(0,)] if self.instance.nodes[n].cards and able else []
        return list(combinations(able, pod.gpu_cards))

    def _asks(self, pod: Pod, n: int) -> tuple[Fraction, Fraction]:
        """GB and compute on each card, or on all of the node's where they are not told apart."""
        times = 1 if self.cards else pod.gpu_cards
        return need_of(pod, self.instance.nodes[n]) * times, size_of(pod.gpu_compute) * times

    def _take(self, p: int, n: int, on: tuple[int, ...], sign: int) -> None:
        """Take what a pod asks for (1), or give it back (-1)."""
        cpu, memory = self.size[p]
        self.free[n][0] -= sign * cpu
        self.free[n][1] -= sign * memory
        need, part = self._asks(self.instance.pods[p], n) if on else (0, 0)
        for k in on:
            self.gpu[n][k] -= sign * need
            self.compute[n][k] -= sign * part
