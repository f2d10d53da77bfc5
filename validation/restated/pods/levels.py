"""Levels of admission, the values of pods and the shares of queues, recomputed from the documents.

Value by fragmentation: the GPUs that a pod asks for, minus the growth of the expected free GPU that a random pod of the
instance cannot use, on the empty node where that is least; thousandths, rounded down, at least 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.instances.pods import PodInstance
from flowlex.validation.restated.pods.instance_data import (
    Amounts,
    fits_wishes,
    machine_kind,
    must_run,
    need_of,
    numbered,
    shape_of,
    size_of,
    wants_gpu,
)


@dataclass(frozen=True)
class Level:
    """The key of a level of pods, and the value of one of them; the least rank comes first."""

    rank: tuple[int, int]
    key: str
    worth: Fraction


def units_of(levels: Iterable[Level | None]) -> dict[str, Fraction]:
    """By level, the unit 1 / n of which the values of its pods are integer multiples."""
    denominators: dict[str, int] = {}
    for level in levels:
        if level is not None:
            denominators[level.key] = math.lcm(denominators.get(level.key, 1), level.worth.denominator)
    return {key: Fraction(1, many) for key, many in denominators.items()}


def levels_of(instance: PodInstance, options: Mapping[str, Any]) -> list[Level | None]:
    """The level of every pod; None if it must run."""
    ranking, must = options.get("admission", "lexicographic"), must_run(instance)
    place, found = {queue.name: k for k, queue in enumerate(instance.queues)}, list[Level | None]()
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
        #: Weights of these queues by name, and by queue the number and the value of each pod.
        self.weights = {q.name: size_of(q.weight) for q in instance.queues if f"queue {q.name}" in asked}
        worths = [*enumerate(zip(instance.pods, worths_of(instance, options), strict=True))]
        self.pods = {name: [(p, worth) for p, (pod, worth) in worths if pod.queue == name] for name in self.weights}

    def ordered(self, where: Sequence[int]) -> list[Fraction]:
        """The shares of a placement, the least first."""
        zero = Fraction(0)
        total = {name: sum((w for p, w in of if where[p] >= 0), zero) for name, of in self.pods.items()}
        return sorted(total[name] / weight for name, weight in self.weights.items())


def worths_of(instance: PodInstance, options: Mapping[str, Any]) -> list[Fraction]:
    """The value of every pod."""
    by = options.get("worth", "value")
    if by == "value":
        return [size_of(pod.value) for pod in instance.pods]
    if by == "gpu":
        largest = max(size_of(node.card_gb) for node in instance.nodes) or Fraction(1)
        parts = [size_of(pod.gpu_share) or size_of(pod.gpu_memory_gb) / largest for pod in instance.pods]
        return [part * pod.gpu_cards for part, pod in zip(parts, instance.pods, strict=True)]
    of, first = numbered(map(shape_of, instance.pods))
    pods, many, best = [instance.pods[p] for p in first.tolist()], np.bincount(of), [Fraction(0)] * len(first)
    cards = np.array([pod.gpu_cards for pod in pods], np.int64)
    for node in {machine_kind(node): node for node in instance.nodes if node.cards}.values():
        size, k = size_of(node.card_gb), node.cards
        part = Amounts.of([need_of(pod, node) / size for pod in pods], [Fraction(1)])
        cpu = Amounts.of([size_of(pod.cpu_cores) for pod in pods], [size_of(node.cpu_cores)])
        memory = Amounts.of([size_of(pod.memory_gb) for pod in pods], [size_of(node.memory_gb)])
        need, (card,) = part.of_pod.astype(object), part.of_node.tolist()
        alone = np.array([wants_gpu(pod) and fits_wishes(pod, node) for pod in pods], bool) & (cards <= k)
        alone &= np.array(need <= card, bool)
        alone &= np.array((cpu.of_pod <= cpu.of_node) & (memory.of_pod <= memory.of_node), bool)
        for s in np.flatnonzero(alone).tolist():
            on, left = pods[s].gpu_cards, card - need[s]
            fits = alone & (cards <= k - on + on * (need <= left).astype(np.int64))
            for each in (cpu, memory):
                fits &= np.array(each.of_pod + each.of_pod[s] <= each.of_node, bool)
            unused = np.where(fits, np.where(need > left, on * left, 0), (k - on) * card + on * left)
            growth = ((unused.astype(object) - np.where(alone, 0, k * card)) * many).sum()
            best[s] = max(best[s], Fraction(on * need[s], card) - Fraction(int(growth), len(of) * card))
    return [Fraction(math.floor(1000 * best[s]), 1000) for s in of.tolist()]
