"""Enumerate all placements of small instances by a plain recursion in exact numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.pods import Pod, PodInstance
from flowlex.validation.restated.pods.rules import RuleBook
from flowlex.validation.restated.pods.sizes import (
    balance_of,
    fits_wishes,
    kind_of,
    loads_of,
    need_of,
    size_of,
    wants_gpu,
)
from flowlex.validation.restated.pods.values import QueueShares, levels_of

#: Most placements, before any exclusion, for which enumeration is tried.
_PLACEMENTS = 2e7


def enumerable(instance: PodInstance) -> bool:
    """Whether there are few enough placements to enumerate."""
    return len(instance.pods) * math.log(len(instance.nodes) + 1) <= math.log(_PLACEMENTS)


def all_ways(
    instance: PodInstance, options: Mapping[str, Any], where: Sequence[int] = (), steps: int = 240_000
) -> tuple[list[Fraction], float] | None:
    """The lexicographically greatest admission by level, then the least balance, by enumeration; None if too long.

    Fair admission compares the sorted shares of queues; among equal shares, the numbers by level of the placement
    ``where`` are preferred, so that the balance is that of these numbers.
    """
    if not enumerable(instance):
        return None
    search = _AllWays(instance, options, where, steps)
    search.go(0, [Fraction(0)] * len(search.ranks), Fraction(0))
    if search.steps > search.limit or search.value == math.inf:
        return None
    return search.counts, search.value


class _Usage:
    """What is used of every node and card."""

    def __init__(self, instance: PodInstance, *, cards: bool) -> None:
        self.instance, self.apart, nodes = instance, cards, instance.nodes
        self.cpu, self.memory = [Fraction(0)] * len(nodes), [Fraction(0)] * len(nodes)
        self.gpu = [[Fraction(0)] * max(1, node.cards if self.apart else 1) for node in nodes]
        self.compute = [[Fraction(0)] * len(held) for held in self.gpu]

    def put(self, pod: Pod, n: int, on: Sequence[int], sign: int = 1) -> None:
        """Add (or with -1 remove) what a pod takes of a node and of these cards."""
        need, part = self._asks(pod, n)
        self.cpu[n] += sign * size_of(pod.cpu_cores)
        self.memory[n] += sign * size_of(pod.memory_gb)
        for k in on if wants_gpu(pod) else ():
            if 0 <= k < len(self.gpu[n]):
                self.gpu[n][k] += sign * need
                self.compute[n][k] += sign * part

    def _asks(self, pod: Pod, n: int) -> tuple[Fraction, Fraction]:
        """GB and compute on each card, or on the node."""
        times = 1 if self.apart else pod.gpu_cards
        return need_of(pod, self.instance.nodes[n]) * times, size_of(pod.gpu_compute) * times

    def _has(self, n: int) -> tuple[Fraction, Fraction]:
        """GB and compute of each card, or of all of them."""
        node = self.instance.nodes[n]
        return size_of(node.card_gb) * (1 if self.apart else node.cards), Fraction(1 if self.apart else node.cards)

    def ways(self, pod: Pod, n: int) -> Iterator[tuple[int, ...]]:
        """Yield the choices of cards on which a pod fits beside what a node holds."""
        node = self.instance.nodes[n]
        if not fits_wishes(pod, node) or size_of(node.cpu_cores) - self.cpu[n] < size_of(pod.cpu_cores):
            return
        if size_of(node.memory_gb) - self.memory[n] < size_of(pod.memory_gb):
            return
        if not wants_gpu(pod):
            yield ()
        elif node.cards:
            (need, part), (memory, compute) = self._asks(pod, n), self._has(n)
            rooms = enumerate(zip(self.gpu[n], self.compute[n], strict=True))
            able = [k for k, (gb, shares) in rooms if memory - gb >= need and compute - shares >= part]
            if self.apart and pod.node_cards is not None and pod.node == node.name:  # it may only be on these
                able = [k for k in able if k in pod.node_cards]
            yield from combinations(able, pod.gpu_cards if self.apart else 1)

    def loads(self) -> NDArray[np.float64]:
        """(N,) weighted utilisation."""
        return loads_of(self.instance, self.cpu, self.memory, self.gpu)


class _AllWays:
    """Backtracking over pods: each on every node and its cards, or waiting."""

    def __init__(self, instance: PodInstance, options: Mapping[str, Any], given: Sequence[int], limit: int) -> None:
        self.instance, self.measure = instance, str(options.get("balance", "deviation"))
        self.budget = size_of(float(options.get("move_budget", 0.0)))
        self.levels, self.fair = levels_of(instance, options), options.get("admission") == "fair"
        self.shares, self.book = QueueShares(instance, options), RuleBook(instance)
        self.pinned = any(pod.node_cards is not None for pod in instance.pods)
        self.ranks = sorted({each.rank for each in self.levels if each is not None})
        self.usage = _Usage(instance, cards=bool(options.get("cards", True)))
        self.where = [-1] * len(instance.pods)
        self.own = [Fraction(0)] * len(self.ranks)
        for level, n in zip(self.levels, given, strict=False):
            if level is not None and n >= 0:
                self.own[self.ranks.index(level.rank)] += level.worth
        # The most important first, equal pods together, to prune what cannot reach the best and to try exchanges of
        # equal pods only once.
        kinds = [repr(kind_of(pod)) for pod in instance.pods]
        rank = [(0, 0) if each is None else each.rank for each in self.levels]
        self.order = sorted(range(len(kinds)), key=lambda p: (self.levels[p] is not None, rank[p], kinds[p]))
        self.equal = [k > 0 and kinds[p] == kinds[self.order[k - 1]] for k, p in enumerate(self.order)]
        self.left = [[Fraction(0)] * len(self.ranks)]
        for p in reversed(self.order):
            rest, level = list(self.left[0]), self.levels[p]
            if level is not None:
                rest[self.ranks.index(level.rank)] += level.worth
            self.left.insert(0, rest)
        self.best, self.value, self.counts = [Fraction(-1)] * len(self.ranks), math.inf, list[Fraction]()
        self.steps, self.limit = 0, limit

    def go(self, k: int, counts: list[Fraction], spent: Fraction) -> None:
        """Enumerate the pods from the k-th on, given the admission by level and the cost of moves so far."""
        self.steps += 1
        if self.steps > self.limit or self._hopeless(k, counts):
            return
        if k == len(self.order):
            self._offer(counts)
            return
        p = self.order[k]
        pod, level = self.instance.pods[p], self.levels[p]
        before = self.where[self.order[k - 1]] if self.equal[k] else 0
        for n, node in enumerate(self.instance.nodes):
            moved = pod.node is not None and node.name != pod.node
            more = spent + (size_of(pod.move_cost or 0.0) if moved else 0)
            if n < before or before < 0 or more > self.budget:
                continue
            if moved and pod.move_cost is None:
                continue
            for on in self._unequal(pod, n):
                self.usage.put(pod, n, on)
                new, self.where[p] = list(counts), n
                if level is not None:
                    new[self.ranks.index(level.rank)] += level.worth
                self.go(k + 1, new, more)
                self.usage.put(pod, n, on, -1)
        self.where[p] = -1
        if level is not None:
            self.go(k + 1, counts, spent)

    def _unequal(self, pod: Pod, n: int) -> Iterator[tuple[int, ...]]:
        """Choices of cards for a pod; of equally filled cards only the first, unless pods are tied to cards."""
        tried, gpu, compute = set[tuple[tuple[Fraction, Fraction], ...]](), self.usage.gpu[n], self.usage.compute[n]
        for on in self.usage.ways(pod, n):
            held = tuple(sorted((gpu[k], compute[k]) for k in on))
            if self.pinned or held not in tried:
                tried.add(held)
                yield on

    def _hopeless(self, k: int, counts: list[Fraction]) -> bool:
        """Whether even with all remaining pods less is placed than in the best placement."""
        return not self.fair and [a + b for a, b in zip(counts, self.left[k], strict=True)] < self.best

    def _offer(self, counts: list[Fraction]) -> None:
        """Keep a placement that admits more than the best, or as much and more evenly."""
        if (now := self._rank(counts)) >= self.best and self.book.holds(self.where):
            value = balance_of(self.usage.loads(), self.measure)
            if now > self.best or value < self.value:
                self.best, self.value, self.counts = now, value, counts

    def _rank(self, counts: list[Fraction]) -> list[Fraction]:
        """Key of comparison: the levels; or sorted shares, pods without queue, and whether it is the given answer."""
        if not self.fair:
            return counts
        rest = [many for many, level in zip(counts, self.ranks, strict=True) if level[0]]
        return [*self.shares.ordered(self.where), *rest, Fraction(counts == self.own)]
