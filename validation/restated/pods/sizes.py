"""Pod placement read again from the data fields of an instance: sizes, kinds, and loads.

Nothing here comes from the properties, arrays and functions of `flowlex.instances.pods` that models use. A wrong rule
there is refused by the certificates, which read theirs here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.exact_rationals import rational
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.validation.proofs.exact_program import Exact, Positions, Whole, largest

#: Sums of a thousand numbers below this fit into 64 bits.
_SAFE = 2.0**52


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


def need_of(pod: Pod, node: PodNode) -> Fraction:
    """GB on each card; 0 for a pod without GPU."""
    return size_of(pod.gpu_memory_gb) or size_of(pod.gpu_share) * size_of(node.card_gb)


def must_run(instance: PodInstance) -> set[str]:
    """Names of pods that no placement may leave out: running ones without a price of stopping, and their gangs."""
    kept = {pod.name: pod.gang for pod in instance.pods if pod.node is not None and pod.preempt_cost is None}
    gangs = set(kept.values()) - {None}
    return {pod.name for pod in instance.pods if pod.name in kept or pod.gang in gangs}


def machine_kind(node: PodNode) -> tuple[object, ...]:
    """Key that is equal for nodes that differ only in their names."""
    sizes = (node.cpu_cores, node.memory_gb, node.cards, node.card_gb, node.card_model)
    return (*sizes, frozenset(node.labels.items()), frozenset(node.taints))


def shape_of(pod: Pod) -> tuple[object, ...]:
    """Key of what a pod asks for, without its importance, its rules and its node."""
    sizes = (pod.cpu_cores, pod.memory_gb, pod.gpu_memory_gb, pod.gpu_share, pod.gpu_cards)
    return (*sizes, frozenset(pod.node_labels.items()), frozenset(pod.tolerations), frozenset(pod.card_models))


def kind_of(pod: Pod) -> tuple[object, ...]:
    """Key that is equal for pods that differ only in their names."""
    groups = (pod.gang, frozenset(pod.spreads), pod.queue, frozenset(pod.resources.items()))
    rules = (pod.gpu_compute, pod.node_cards, *groups)
    return (*shape_of(pod), pod.priority, pod.value, *rules, pod.node, pod.move_cost, pod.preempt_cost)


def numbered(keys: Iterable[Hashable]) -> tuple[Positions, Positions]:
    """The number of each key, in the order of their first occurrence, and where each number occurs first."""
    number: dict[Hashable, int] = {}
    of = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
    return of, np.unique(of, return_index=True)[1].astype(np.int64)


class Amounts(NamedTuple):
    """What pods ask for and what nodes have, as integers times a unit."""

    of_pod: Whole
    of_node: Whole
    unit: Fraction

    @classmethod
    def of(cls, asked: Sequence[Fraction], held: Sequence[Fraction]) -> Amounts:
        """Amounts in their common unit; as Python's integers if sums of them could overflow."""
        both = Exact.of([*asked, *held])
        numbers = both.numbers if largest(both.numbers) < _SAFE else both.numbers.astype(object)
        return cls(numbers[: len(asked)], numbers[len(asked) :], both.unit)


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


def loads_of(instance: PodInstance, where: Sequence[int]) -> NDArray[np.float64]:
    """(N,) weighted utilisation of each node; ``where``: node of each pod, -1 if it waits."""
    used = [[Fraction(0)] * 3 for _ in instance.nodes]
    for pod, n in zip(instance.pods, where, strict=True):
        if n >= 0:
            gpu = need_of(pod, instance.nodes[n]) * pod.gpu_cards
            sizes = (gpu, size_of(pod.cpu_cores), size_of(pod.memory_gb))
            used[n] = [u + s for u, s in zip(used[n], sizes, strict=True)]
    loads: NDArray[np.float64] = (rates_of(instance) * np.array(used, np.float64)).sum(axis=1)
    return loads


def balance_of(loads: NDArray[np.float64], measure: str) -> float:
    """The balance of node loads by its name: deviation, max_load or mean_absolute."""
    if measure == "deviation":
        return float(np.sqrt(np.mean((loads - loads.mean()) ** 2)))
    if measure == "max_load":
        return float(loads.max())
    return float(np.abs(loads - loads.mean()).mean())
