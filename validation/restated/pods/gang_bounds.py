"""Upper bounds from gangs and spreads, whatever else is placed, computed from the documents.

A node holds at most as many pods of a set as of its smallest ones fit, by cores, memory, GPU memory and cards (a pod
that wants more than half of a card takes a whole one); a domain holds at most what its nodes do. This finds gangs that
fit nowhere, and bounds the pods of a spread. A level counts whole gangs and single pods, so not every number of pods is
possible. Rules with running pods give no bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np

from flowlex.validation.proofs.exact_program import Positions, Whole
from flowlex.validation.restated.pods.instance_data import PodData, Rule, machine_kind, numbered
from flowlex.validation.restated.pods.levels import Level, units_of

#: Most units of a level, times the number of distinct values, for which the possible sums are computed.
_SUMS = 5_000_000


class GangBounds:
    """What rules exclude; ``levels``: (P,) level of each pod."""

    def __init__(self, data: PodData, levels: Sequence[Level | None]) -> None:
        self.data, self.levels = data, levels
        self._fresh = [rule for rule in data.rules if len(rule.pods) and (rule.home < 0).all()]
        self._kind, self._first = numbered(machine_kind(node) for node in data.instance.nodes)

    def _gpu(self, pods: Positions, n: int) -> Whole:
        """Total GPU memory that pods need on a node."""
        need: Whole = self.data.need(pods, np.full(len(pods), n)) * (self.data.many[pods] if self.data.cards else 1)
        return need

    def _held(self, rule: Rule) -> tuple[Positions, Whole]:
        """(D,) the most of a rule's pods by domain; (D, 3) cores, memory and GPU memory of nodes that fit any."""
        data, most, room = self.data, np.zeros(len(rule.domains), np.int64), np.zeros((len(rule.domains), 3), object)
        for k, n in enumerate(self._first.tolist()):
            mine = rule.pods[data.may(rule.pods, np.full(len(rule.pods), n))]
            if not len(mine):
                continue
            need, whole = data.need(mine, np.full(len(mine), n)), data.whole[n]
            large = data.gpu[mine] & (2 * need > whole) & data.cards
            asked = (data.cpu.of_pod[mine], data.memory.of_pod[mine], self._gpu(mine, n), large * data.many[mine])
            has = [data.cpu.of_node[n], data.memory.of_node[n], data.card[n] * data.has[n], data.has[n]]
            sums = [np.cumsum(np.sort(each).astype(object)) for each in asked]
            fit = [int((each <= left).sum()) for each, left in zip(sums, has, strict=True)]
            there = rule.domain[(self._kind == k) & (rule.domain >= 0)]
            np.add.at(most, there, min(fit))
            np.add.at(room, there, np.array(has[:3], object))
        return most, room

    @cached_property
    def nowhere(self) -> frozenset[str]:
        """Gangs that fit in no domain, even if all nodes are empty."""
        found, data = set(), self.data
        for rule in self._fresh:
            if rule.kind == "gang":
                most, room = self._held(rule)
                gpu = np.min([self._gpu(rule.pods, n) for n in self._first.tolist()], axis=0)
                asked = (data.cpu.of_pod[rule.pods], data.memory.of_pod[rule.pods], gpu)
                least = [each.astype(object).sum() for each in asked]
                if not ((most >= len(rule.pods)) & (room >= np.array(least, object)).all(axis=1)).any():
                    found.add(rule.label)
        return frozenset(found)

    def of_spread(self, name: str) -> int | None:
        """Upper bound on the pods of a spread in all domains together; None if some of them already run."""
        mine = [rule for rule in self._fresh if rule.kind in ("spread", "skew") and rule.label == name]
        if not mine:
            return None
        most, _ = self._held(mine[0])
        for rule in mine:
            least = int(most[rule.counted].min(initial=len(rule.pods))) if rule.kind == "skew" else 0
            most = np.minimum(most, rule.limit.astype(np.int64) + least)
        return int(most.sum())

    def totals(self) -> dict[str, tuple[Positions, Whole]]:
        """By name of a quota or spread: pods, and the share that each takes of all that it allows in all its domains.

        Pods that run outside of all domains are excluded, since they may stay there.
        """
        found: dict[str, tuple[Positions, Whole]] = {}
        for rule in self.data.rules:
            together = self.of_spread(rule.label) if rule.kind in ("spread", "skew") else None
            if rule.name in found or rule.kind == "gang" or (rule.kind == "skew" and together is None):
                continue
            if whole := sum(rule.limit.tolist()) if together is None else together:
                inside = (rule.home < 0) | (rule.domain[rule.home] >= 0)
                found[rule.name] = rule.pods[inside], rule.asked[inside] * Fraction(1, whole)
        return found

    def largest(self, key: str, most: Fraction) -> Fraction:
        """The largest number up to ``most`` that is a sum of whole gangs and single pods of a level."""
        lone, gangs, unit = Counter[int](), Counter[str](), units_of(self.levels)[key]
        for pod, level in zip(self.data.instance.pods, self.levels, strict=True):
            if level is not None and level.key == key:
                if pod.gang is None:
                    lone[int(level.worth / unit)] += 1
                elif pod.gang not in self.nowhere:
                    gangs[pod.gang] += int(level.worth / unit)
        lone.update(gangs.values())
        end = int(most / unit)
        if not gangs or end < 0 or end * len(lone) > _SUMS:
            return most
        sums, mask = 1, (1 << (end + 1)) - 1  # bit n: some of them add up to n
        for worth, many in lone.items():
            step = 1
            while many > 0 and worth:
                step = min(step, many)
                sums |= (sums << (worth * step)) & mask
                many, step = many - step, 2 * step
        return unit * (sums.bit_length() - 1)
