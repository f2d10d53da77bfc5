"""The values of pods, and the shares of queues, recomputed from the documents.

Value by fragmentation: the GPUs that a pod asks for, minus the growth of the expected free GPU that a random pod of the
instance cannot use, on the empty node where that is least; thousandths, rounded down, at least 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.validation.restated.pods.sizes import (
    Level,
    fits_wishes,
    machine_kind,
    must_run,
    need_of,
    shape_of,
    size_of,
    wants_gpu,
)


def levels_of(instance: PodInstance, options: Mapping[str, Any]) -> list[Level | None]:
    """The level of every pod; None if it must run."""
    ranking = options.get("admission", "lexicographic")
    place, found = {queue.name: k for k, queue in enumerate(instance.queues)}, list[Level | None]()
    must = must_run(instance)
    for pod, worth in zip(instance.pods, worths_of(instance, options), strict=True):
        if pod.name in must:
            found.append(None)
        elif ranking == "lexicographic" and pod.preempt_cost is not None:
            found.append(Level((-pod.priority, 0), f"{pod.priority} running", size_of(pod.preempt_cost)))
        elif ranking == "lexicographic":
            found.append(Level((-pod.priority, 1), str(pod.priority), Fraction(1)))
        elif worth and ranking == "weighted":
            found.append(Level((0, 0), "worth", worth))
        elif worth and pod.queue is not None:
            found.append(Level((0, place[pod.queue]), f"queue {pod.queue}", worth))
        else:
            found.append(Level((1, 0), "rest", Fraction(1)))
    return found


class QueueShares:
    """Shares of the queues with pods to be placed: the value of placed pods over the queue's weight."""

    def __init__(self, instance: PodInstance, options: Mapping[str, Any]) -> None:
        asked = {level.key for level in levels_of(instance, options) if level is not None}
        queues = [queue for queue in instance.queues if f"queue {queue.name}" in asked]
        self.weights: list[Fraction] = [size_of(queue.weight) for queue in queues]
        number = {queue.name: k for k, queue in enumerate(queues)}
        worths = zip(instance.pods, worths_of(instance, options), strict=True)
        self.pods = [(p, number[pod.queue], worth) for p, (pod, worth) in enumerate(worths) if pod.queue in number]

    def ordered(self, where: Sequence[int]) -> list[Fraction]:
        """The shares of a placement, the least first."""
        total = [Fraction(0)] * len(self.weights)
        for p, k, worth in self.pods:
            if where[p] >= 0:
                total[k] += worth
        return sorted(worth / weight for worth, weight in zip(total, self.weights, strict=True))


def worths_of(instance: PodInstance, options: Mapping[str, Any]) -> list[Fraction]:
    """The value of every pod."""
    by = options.get("worth", "value")
    if by == "value":
        return [size_of(pod.value) for pod in instance.pods]
    if by == "gpu":
        largest = max(size_of(node.card_gb) for node in instance.nodes) or Fraction(1)
        parts = [size_of(pod.gpu_share) or size_of(pod.gpu_memory_gb) / largest for pod in instance.pods]
        return [part * pod.gpu_cards for part, pod in zip(parts, instance.pods, strict=True)]
    shapes, many = {shape_of(pod): pod for pod in instance.pods}, Counter(shape_of(pod) for pod in instance.pods)
    nodes = {machine_kind(node): node for node in instance.nodes if node.cards}.values()
    machines = [_Machine(node, [(pod, many[key]) for key, pod in shapes.items()]) for node in nodes]
    known = {key: _less_stranded(pod, machines, len(instance.pods)) for key, pod in shapes.items()}
    return [known[shape_of(pod)] for pod in instance.pods]


def _less_stranded(pod: Pod, machines: Sequence[_Machine], whole: int) -> Fraction:
    """Value of a pod by fragmentation; 0 if it fits no empty node."""
    best = Fraction(0)
    for machine in machines if wants_gpu(pod) else ():
        cards, zero = machine.node.cards, Fraction(0)
        if not machine.node.card_gb or not machine.usable(machine.asks(pod), cards, cards, zero, zero):
            continue
        part, on = machine.asks(pod).part, pod.gpu_cards
        cpu, memory = size_of(pod.cpu_cores), size_of(pod.memory_gb)
        left, growth = 1 - part, Fraction(0)
        for ask, count in machine.workload:
            before = zero if machine.usable(ask, cards, cards, zero, zero) else Fraction(cards)
            after = cards - on + on * left
            if machine.usable(ask, cards, cards - on + on * (ask.part <= left), cpu, memory):
                after = on * left if ask.part > left else zero
            growth += count * (after - before)
        best = max(best, part * on - growth / whole)
    return Fraction(math.floor(1000 * best), 1000)


@dataclass(frozen=True)
class _Ask:
    """What a pod asks of a node: fractions of cards, sizes, and whether it may run there."""

    part: Fraction
    cards: int
    cpu: Fraction
    memory: Fraction
    may: bool


class _Machine:
    """An empty node, and what each shape of the workload asks of it, with the number of its pods."""

    def __init__(self, node: PodNode, workload: Sequence[tuple[Pod, int]]) -> None:
        self.node, self.cpu, self.memory = node, size_of(node.cpu_cores), size_of(node.memory_gb)
        self.workload = [(self.asks(pod), count) for pod, count in workload]

    def asks(self, pod: Pod) -> _Ask:
        part = need_of(pod, self.node) / size_of(self.node.card_gb) if self.node.card_gb else Fraction(0)
        may = wants_gpu(pod) and fits_wishes(pod, self.node)
        return _Ask(part, pod.gpu_cards, size_of(pod.cpu_cores), size_of(pod.memory_gb), may)

    def usable(self, ask: _Ask, cards: int, enough: int, cpu: Fraction, memory: Fraction) -> bool:
        """Whether a pod fits with this CPU and memory in use and ``enough`` cards that have enough left."""
        fits = ask.may and ask.part <= 1 and ask.cards <= min(cards, enough)
        return fits and ask.cpu + cpu <= self.cpu and ask.memory + memory <= self.memory
