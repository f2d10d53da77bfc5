"""Pod placement read again from the data fields of an instance: sizes, loads, and where a pod may run.

Nothing here comes from the properties, arrays and functions of `flowlex.instances.pods` that models use. A wrong rule
there is refused by the certificates, which read theirs here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.exact_rationals import rational
from flowlex.instances.pods import Pod, PodInstance, PodNode

#: Tolerance of a stated balance (floating point), and for an answer that meets its bound.
TOLERANCE = 1e-6


@lru_cache(maxsize=100_000)
def size_of(value: float) -> Fraction:
    """A size as the decimal that it is written as."""
    return rational(value)


def wants_gpu(pod: Pod) -> bool:
    """Whether a pod asks for memory of a card, in GB or as a share."""
    return max(pod.gpu_memory_gb, pod.gpu_share) > 0


def fits_wishes(pod: Pod, node: PodNode) -> bool:
    """Whether a node has the labels and card model that a pod asks for, and no taint that it does not tolerate."""
    if pod.card_models and node.card_model not in pod.card_models:
        return False
    if any(taint not in pod.tolerations for taint in node.taints):
        return False
    return all(key in node.labels and node.labels[key] == value for key, value in pod.node_labels.items())


def must_run(instance: PodInstance) -> set[str]:
    """Names of pods that no placement may leave out: running ones without a price of stopping, and their gangs."""
    kept = {pod.name: pod.gang for pod in instance.pods if pod.node is not None and pod.preempt_cost is None}
    gangs = set(kept.values()) - {None}
    return {pod.name for pod in instance.pods if pod.name in kept or pod.gang in gangs}


def repacked(instance: PodInstance) -> list[str]:
    """Names of running GPU pods that use some of their node's cards, where the file does not say which."""
    cards = {node.name: node.cards for node in instance.nodes}
    return [
        pod.name
        for pod in instance.pods
        if pod.node is not None and wants_gpu(pod) and pod.node_cards is None and pod.gpu_cards < cards[pod.node]
    ]


def need_of(pod: Pod, machine: PodNode) -> Fraction:
    """Memory on each card, GB."""
    return size_of(pod.gpu_memory_gb) or size_of(pod.gpu_share) * size_of(machine.card_gb)


def balance_of(loads: NDArray[np.float64], measure: str) -> float:
    """The balance of node loads by its name: deviation, max_load or mean_absolute."""
    if measure == "deviation":
        return float(np.sqrt(np.mean((loads - loads.mean()) ** 2)))
    if measure == "max_load":
        return float(loads.max())
    return float(np.abs(loads - loads.mean()).mean())


def exact_rates(instance: PodInstance) -> list[tuple[Fraction, ...]]:
    """By node, the load of a GB of GPU memory, of a core, and of a GB of memory."""
    capacity = [(m.cards * size_of(m.card_gb), size_of(m.cpu_cores), size_of(m.memory_gb)) for m in instance.nodes]
    totals = [sum(column, Fraction(0)) for column in zip(*capacity, strict=True)]
    known = {has: _rates(has, totals, instance.load_reading) for has in {*capacity}}
    return [known[has] for has in capacity]


def _rates(has: Sequence[Fraction], totals: Sequence[Fraction], reading: str) -> tuple[Fraction, ...]:
    """Load of a unit of each resource on a node with these capacities."""
    part = [h / total if total else Fraction(0) for h, total in zip(has, totals, strict=True)]
    found = []
    for h, total, p in zip(has, totals, part, strict=True):
        if not h:
            found.append(Fraction(0))
        elif reading == "raw":
            found.append(1 / (3 * total))
        elif reading == "equal":
            found.append(1 / (h * sum(each > 0 for each in has)))
        else:
            found.append(p / sum(part) / (total if reading == "cluster" else h))
    return tuple(found)


def rates_of(instance: PodInstance) -> NDArray[np.float64]:
    """(N, 3) `exact_rates` as floats."""
    return np.array([[float(rate) for rate in node] for node in exact_rates(instance)])


def loads_of(
    instance: PodInstance, cpu: list[Fraction], memory: list[Fraction], gpu: list[list[Fraction]]
) -> NDArray[np.float64]:
    """Weighted utilisation of each node."""
    used = np.array([[float(sum(g)) for g in gpu], [float(c) for c in cpu], [float(m) for m in memory]]).T
    loads: NDArray[np.float64] = (rates_of(instance) * used).sum(axis=1)
    return loads


def machine_kind(node: PodNode) -> tuple[object, ...]:
    """Key that is equal for nodes that differ only in their names."""
    sizes = (node.cpu_cores, node.memory_gb, node.cards, node.card_gb, node.card_model)
    return (*sizes, frozenset(node.labels.items()), frozenset(node.taints))


def kind_of(pod: Pod) -> tuple[object, ...]:
    """Key that is equal for pods that differ only in their names."""
    groups = (pod.gang, frozenset(pod.spreads), pod.queue, frozenset(pod.resources.items()))
    rules = (pod.gpu_compute, pod.node_cards, *groups)
    return (*shape_of(pod), pod.priority, pod.value, *rules, pod.node, pod.move_cost, pod.preempt_cost)


def shape_of(pod: Pod) -> tuple[object, ...]:
    """Key of what a pod asks for, without its importance, its rules and its node."""
    sizes = (pod.cpu_cores, pod.memory_gb, pod.gpu_memory_gb, pod.gpu_share, pod.gpu_cards)
    return (*sizes, frozenset(pod.node_labels.items()), frozenset(pod.tolerations), frozenset(pod.card_models))


@dataclass(frozen=True)
class Level:
    """The key of a level of pods, and the value of one of them."""

    rank: tuple[int, int]
    """The least comes first."""
    key: str
    worth: Fraction


def units_of(levels: Iterable[Level]) -> dict[str, Fraction]:
    """By level, the unit 1 / n of which the values of its pods are integer multiples."""
    denominators: dict[str, list[int]] = {}
    for level in levels:
        denominators.setdefault(level.key, []).append(level.worth.denominator)
    return {key: Fraction(1, math.lcm(*many)) for key, many in denominators.items()}
