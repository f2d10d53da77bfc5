"""Upper bounds from gangs and spreads, whatever else is placed, computed from the documents.

A node holds at most as many pods of a set as of its smallest ones fit, by cores, memory, GPU memory and cards (a pod
that wants more than half of a card takes a whole one); a domain holds at most what its nodes do. This finds gangs that
fit nowhere, and bounds the pods of a spread. A level counts whole gangs and single pods, so not every number of pods is
possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Protocol

from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.validation.restated.pods.rules import domain_of
from flowlex.validation.restated.pods.sizes import Level, fits_wishes, machine_kind, size_of, wants_gpu

#: Most units of a level, times the number of distinct values, for which the possible sums are computed.
_SUMS = 5_000_000


class People(Protocol):
    """Equal pods of an instance, their levels, and where they fit."""

    @property
    def instance(self) -> PodInstance:
        """The instance."""

    @property
    def cards(self) -> bool:
        """Whether cards are distinguished."""

    @property
    def groups(self) -> Sequence[Sequence[Pod]]:
        """Groups of equal pods."""

    @property
    def level(self) -> Sequence[Level | None]:
        """Level of each group."""

    @property
    def unit(self) -> Mapping[str, Fraction]:
        """Unit of the values of each level."""

    def fits(self, pod: Pod, node: PodNode) -> bool:
        """Whether a pod fits the empty node."""

    def need(self, pod: Pod, node: PodNode) -> Fraction:
        """GB on each card, or on the node."""

    def whole(self, node: PodNode) -> Fraction:
        """GB of a card, or of all cards."""


class GangBounds:
    """Sets of pods that rules bind together, none of which runs."""

    def __init__(self, people: People) -> None:
        self.people = people
        self.sets: dict[tuple[str, str], list[Pod]] = {}
        for pod in people.instance.pods:
            names = [("gang", pod.gang)] if pod.gang is not None else []
            for key in [*names, *(("spread", name) for name in pod.spreads)]:
                self.sets.setdefault(key, []).append(pod)
        self.sets = {key: pods for key, pods in self.sets.items() if all(pod.node is None for pod in pods)}
        self.kinds: dict[tuple[object, ...], PodNode] = {machine_kind(n): n for n in people.instance.nodes}

    def _held(self, pods: Sequence[Pod], over: str | None) -> dict[str, tuple[int, list[Fraction]]]:
        """By domain, the most of these pods, and cores, memory and GPU memory of the nodes that fit any of them."""
        each = {kind: self._on(pods, node) for kind, node in self.kinds.items()}
        found: dict[str, tuple[int, list[Fraction]]] = {}
        for node in self.people.instance.nodes:
            if (domain := domain_of(node, over)) is None:
                continue
            many, room = each[machine_kind(node)]
            before, sums = found.get(domain, (0, [Fraction(0)] * 3))
            found[domain] = before + many, [a + b for a, b in zip(sums, room, strict=True)]
        return found

    def _on(self, pods: Sequence[Pod], node: PodNode) -> tuple[int, list[Fraction]]:
        """The most of these pods on one node, and its cores, memory and GPU memory (0 if none fits)."""
        mine, asks = [pod for pod in pods if self.people.fits(pod, node)], list[list[Fraction]]()
        room = [size_of(node.cpu_cores), size_of(node.memory_gb), size_of(node.card_gb) * node.cards]
        if not mine:
            return 0, [Fraction(0)] * 3
        for pod in mine:
            gpu = self.people.need(pod, node) * (pod.gpu_cards if self.people.cards else 1) if wants_gpu(pod) else 0
            large = wants_gpu(pod) and self.people.cards and 2 * self.people.need(pod, node) > self.people.whole(node)
            cards = Fraction(pod.gpu_cards if large else 0)
            asks.append([size_of(pod.cpu_cores), size_of(pod.memory_gb), Fraction(gpu), cards])
        most = len(mine)
        for r, left in enumerate([*room, Fraction(node.cards)]):
            many = 0
            for asked in sorted(ask[r] for ask in asks):
                left -= asked
                many += left >= 0
            most = min(most, many)
        return most, room

    @cached_property
    def nowhere(self) -> frozenset[str]:
        """Gangs that fit in no domain, even if all nodes are empty."""
        found = set()
        for gang in self.people.instance.gangs:
            pods = self.sets.get(("gang", gang.name), [])
            least = [
                sum((size_of(pod.cpu_cores) for pod in pods), Fraction(0)),
                sum((size_of(pod.memory_gb) for pod in pods), Fraction(0)),
                sum((self._least_gpu(pod) for pod in pods if wants_gpu(pod)), Fraction(0)),
            ]
            domains = self._held(pods, gang.within).values() if pods else []
            if pods and not any(
                many >= len(pods) and all(a <= b for a, b in zip(least, room, strict=True)) for many, room in domains
            ):
                found.add(gang.name)
        return frozenset(found)

    def _least_gpu(self, pod: Pod) -> Fraction:
        """Total GB of GPU memory of a pod, on the kind of node where it is least."""
        many = pod.gpu_cards if self.people.cards else 1
        return min((self.people.need(pod, node) * many for node in self.kinds.values()), default=Fraction(0))

    def of_spread(self, name: str) -> int | None:
        """Upper bound on the pods of a spread in all domains together; None if some of them already run."""
        spread = next(each for each in self.people.instance.spreads if each.name == name)
        pods = self.sets.get(("spread", name))
        if pods is None:
            return None
        held = {domain: many for domain, (many, _) in self._held(pods, spread.over).items()}
        if spread.most is not None:
            held = {domain: min(many, spread.most) for domain, many in held.items()}
        if spread.skew is not None:
            able = (node for node in self.people.instance.nodes if any(fits_wishes(pod, node) for pod in pods))
            usable = {domain_of(node, spread.over) for node in able}
            least = min((many for domain, many in held.items() if domain in usable), default=len(pods))
            held = {domain: min(many, least + spread.skew) for domain, many in held.items()}
        return sum(held.values())

    def largest(self, key: str, most: Fraction) -> Fraction:
        """The largest number up to ``most`` that is a sum of whole gangs and single pods of a level."""
        people, lone, gangs = self.people, Counter[int](), dict[str, int]()
        unit = people.unit[key]
        for pods, level in zip(people.groups, people.level, strict=True):
            if level is None or level.key != key:
                continue
            worth = int(level.worth / unit)
            for pod in pods:
                if pod.gang is None:
                    lone[worth] += 1
                elif pod.gang not in self.nowhere:
                    gangs[pod.gang] = gangs.get(pod.gang, 0) + worth
        for worth in gangs.values():
            lone[worth] += 1
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
