"""Enumerate all placements of small instances by a plain recursion in exact numbers."""

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from flowlex.instances.pods import PodInstance
from flowlex.validation.restated.pods.instance_data import PodData, Rule, balance_of, kind_of, loads_of
from flowlex.validation.restated.pods.levels import QueueShares, levels_of

#: Most placements, before any exclusion, for which enumeration is tried.
_PLACEMENTS = 2e7


def hold(rules: Sequence[Rule], where: Sequence[int]) -> bool:
    """Whether a placement, the number of each pod's node or -1, satisfies all rules."""
    return not any(_broken(rule, np.asarray(where, np.int64)) for rule in rules)


def _broken(rule: Rule, where: Any) -> bool:
    """Whether there is too much in a domain, a pod outside all domains, or a split gang."""
    at = where[rule.pods]
    if ((at >= 0) & (rule.domain[at] < 0) & (at != rule.home)).any():
        return True
    used = rule.used(at)
    if rule.kind == "gang" and (at >= 0).any() and ((at < 0).any() or np.count_nonzero(used) > 1):
        return True
    return bool((used - rule.emptiest(used) > rule.limit).any())


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


class _AllWays:
    """Backtracking over pods: each on every node and its cards, or waiting."""

    def __init__(self, instance: PodInstance, options: Mapping[str, Any], given: Sequence[int], limit: int) -> None:
        self.instance, self.measure = instance, str(options.get("balance", "deviation"))
        data = self.data = PodData(instance, options)
        self.levels, self.fair = levels_of(instance, options), options.get("admission") == "fair"
        self.shares = QueueShares(instance, options)
        self.ranks = sorted({each.rank for each in self.levels if each is not None})
        pods, nodes = len(instance.pods), len(instance.nodes)
        p, n = np.repeat(np.arange(pods), nodes), np.tile(np.arange(nodes), pods)
        self.may = data.may(p, n).reshape(pods, nodes).tolist()
        self.need = data.need(p, n).reshape(pods, nodes).tolist()
        self.cost = [data.move_cost[k] for k in range(pods)]
        times = 1 if data.cards else data.many
        self.sizes = [*zip(data.cpu.of_pod.tolist(), data.memory.of_pod.tolist(), strict=True)]
        self.compute = (data.compute.of_pod * times).tolist()
        # What is free: cores and memory of nodes; memory and compute of cards, or of all together.
        self.free = [[*each] for each in zip(data.cpu.of_node.tolist(), data.memory.of_node.tolist(), strict=True)]
        one = int(data.compute.of_node[0])
        has = zip(data.has.tolist(), data.whole.tolist(), strict=True)
        self.room = [[[gb, one] for _ in range(k)] if data.cards else [[gb, one * k]] for k, gb in has]
        self.where = [-1] * pods
        self.own = [Fraction(0)] * len(self.ranks)
        for level, at in zip(self.levels, given, strict=False):
            if level is not None and at >= 0:
                self.own[self.ranks.index(level.rank)] += level.worth
        # The most important first, equal pods together, to prune what cannot reach the best and to try exchanges of
        # equal pods only once.
        kinds = [repr(kind_of(pod)) for pod in instance.pods]
        rank = [(0, 0) if each is None else each.rank for each in self.levels]
        self.order = sorted(range(pods), key=lambda p: (self.levels[p] is not None, rank[p], kinds[p]))
        self.equal = [k > 0 and kinds[p] == kinds[self.order[k - 1]] for k, p in enumerate(self.order)]
        self.left = [[Fraction(0)] * len(self.ranks)]
        for k in reversed(self.order):
            self.left.insert(0, self._with(self.left[0], k))
        self.best, self.value, self.counts = [Fraction(-1)] * len(self.ranks), math.inf, list[Fraction]()
        self.steps, self.limit = 0, limit

    def _with(self, counts: list[Fraction], p: int) -> list[Fraction]:
        """The admission by level with one more pod."""
        level, more = self.levels[p], list(counts)
        if level is not None:
            more[self.ranks.index(level.rank)] += level.worth
        return more

    def go(self, k: int, counts: list[Fraction], spent: Fraction) -> None:
        """Enumerate the pods from the k-th on, given the admission by level and the cost of moves so far."""
        self.steps += 1
        hopeless = not self.fair and [a + b for a, b in zip(counts, self.left[k], strict=True)] < self.best
        if self.steps > self.limit or hopeless:
            return
        if k == len(self.order):
            self._offer(counts)
            return
        p = self.order[k]
        before = self.where[self.order[k - 1]] if self.equal[k] else 0
        for n in range(before, len(self.free)) if before >= 0 else ():
            more = spent + (self.cost[p] if self.data.home[p] not in (-1, n) else 0)
            if more > self.data.budget or not self.may[p][n]:
                continue
            for on in self._cards(p, n):
                self._take(p, n, on, 1)
                self.where[p] = n
                self.go(k + 1, self._with(counts, p), more)
                self._take(p, n, on, -1)
        self.where[p] = -1
        if self.levels[p] is not None:
            self.go(k + 1, counts, spent)

    def _take(self, p: int, n: int, on: Sequence[int], sign: int) -> None:
        """Take (or with -1 give back) what a pod uses of a node and of these cards."""
        for r, size in enumerate(self.sizes[p]):
            self.free[n][r] -= sign * size
        for k in on:
            self.room[n][k][0] -= sign * self.need[p][n]
            self.room[n][k][1] -= sign * self.compute[p]

    def _cards(self, p: int, n: int) -> Iterator[tuple[int, ...]]:
        """Choices of cards on which a pod fits; of equally filled cards only the first, unless cards are known."""
        if any(size > left for size, left in zip(self.sizes[p], self.free[n], strict=True)):
            return
        if not self.data.gpu[p]:
            yield ()
            return
        known = int(self.data.known[p]) if self.data.home[p] == n and self.data.cards else 0
        room = enumerate(self.room[n])
        able = [k for k, (gb, part) in room if gb >= self.need[p][n] and part >= self.compute[p]]
        able = [k for k in able if not known or known >> k & 1]
        tried = set[tuple[tuple[int, ...], ...]]()
        for on in combinations(able, int(self.data.many[p]) if self.data.cards else 1):
            held = tuple(sorted(tuple(self.room[n][k]) for k in on))
            if self.data.known.any() or held not in tried:
                tried.add(held)
                yield on

    def _offer(self, counts: list[Fraction]) -> None:
        """Keep a placement that admits more than the best, or as much and more evenly."""
        now = counts
        if self.fair:  # sorted shares, pods without queue, and whether it is the given answer
            rest = [many for many, level in zip(counts, self.ranks, strict=True) if level[0]]
            now = [*self.shares.ordered(self.where), *rest, Fraction(counts == self.own)]
        if now >= self.best and hold(self.data.rules, self.where):
            value = balance_of(loads_of(self.instance, self.where), self.measure)
            if now > self.best or value < self.value:
                self.best, self.value, self.counts = now, value, counts
