"""Levels of pods in phase 1, the most important first, and the value of each pod in its level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Booleans, Integers
from flowlex.instances.exact_rationals import rational
from flowlex.instances.pods import Pod, PodInstance
from flowlex.models.model_base import ModelError

Ranking: TypeAlias = Literal["lexicographic", "weighted", "fair"]
#: A priority; ``"3 running"``: pods of priority 3 that run and may be stopped; ``"worth"`` and ``"rest"``: weighted;
#: ``"queue q"``: fair.
Key: TypeAlias = int | str
#: Largest sum in a program: HiGHS refuses larger coefficients, and floats represent it exactly.
_EXACT = 10**15


@dataclass(frozen=True, eq=False)
class Levels:
    """Levels of the pods that phase 1 may leave waiting. Sizes: P pods, L levels.

    Lexicographic: by priority; running pods that may be stopped precede waiting pods of the same priority, so that only
    more important pods displace them; their value is their preempt_cost. Weighted: all pods with a value, then the
    others. Fair: one level per queue, without order (`flowlex.models.pods.methods.fair_admission`), then the others.
    """

    keys: tuple[Key, ...]  # names of the levels, the most important first
    of: Integers  # (P,) level, -1 for pods that must keep running
    worth: Integers  # (P,) value in integer units
    unit: tuple[Fraction, ...]  # size of one unit, by level
    # start, weight: for fair admission, by queue: value of the pods that must keep running, and weight
    start: tuple[Fraction, ...] = ()
    weight: tuple[Fraction, ...] = ()

    @classmethod
    def of_instance(
        cls, instance: PodInstance, ranking: Ranking = "lexicographic", by: ValueMeasure = "value"
    ) -> Levels:
        """Rank the pods of an instance; ``by``: measure of their values for weighted and fair ranking."""
        queue = {each.name: k for k, each in enumerate(instance.queues)}
        every = pod_values(instance, by)
        place: list[tuple[tuple[float, int, Key], Fraction] | None] = []
        for pod, worth in zip(instance.pods, every, strict=True):
            stopping = None if pod.preempt_cost is None else rational(pod.preempt_cost)
            if pod.name in instance.must_run:
                place.append(None)
            elif ranking == "fair" and pod.queue is not None and worth:
                place.append(((0, queue[pod.queue], f"queue {pod.queue}"), worth))
            elif ranking == "weighted" and worth:
                place.append(((0, 0, "worth"), worth))
            elif ranking != "lexicographic":
                place.append(((1, 0, "rest"), Fraction(1)))
            elif stopping is not None:
                place.append(((-pod.priority, 0, f"{pod.priority} running"), stopping))
            else:
                place.append(((-pod.priority, 1, pod.priority), Fraction(1)))
        ranks = sorted({each[0] for each in place if each is not None}, key=lambda rank: rank[:2])
        number = {rank: k for k, rank in enumerate(ranks)}
        units = tuple(
            Fraction(1, math.lcm(*(each[1].denominator for each in place if each is not None and each[0] == rank)))
            for rank in ranks
        )
        of = np.array([-1 if each is None else number[each[0]] for each in place], np.int64)
        whole = [0 if each is None else int(each[1] / units[number[each[0]]]) for each in place]
        _refuse_fine(instance, of, whole)
        keys, fair = tuple(rank[2] for rank in ranks), [rank for rank in ranks if ranking == "fair" and not rank[0]]
        start = [Fraction(0)] * len(instance.queues)
        for pod, worth, level in zip(instance.pods, every, of.tolist(), strict=True):
            if level < 0 and pod.queue is not None:
                start[queue[pod.queue]] += worth
        weight = tuple(rational(instance.queues[rank[1]].weight) for rank in fair)
        return cls(keys, of, np.array(whole, np.int64), units, tuple(start[rank[1]] for rank in fair), weight)

    def shares(self, units: Sequence[int]) -> tuple[Fraction, ...]:
        """Shares of the fair queues: value of their pods divided by weight; ``units``: placed value by level."""
        return tuple(
            (start + number * unit) / weight
            for start, number, unit, weight in zip(self.start, units, self.unit, self.weight, strict=False)
        )

    def total(self, chosen: Booleans) -> tuple[int, ...]:
        """Total value of the chosen pods ((P,) booleans) by level, in units."""
        on = chosen & (self.of >= 0)
        return tuple(int(self.worth[on & (self.of == k)].sum()) for k in range(len(self.keys)))

    def rank(self, units: Sequence[int]) -> tuple[Fraction, ...]:
        """Key of comparison, more is better: the sorted shares, the least first, then the units of the other levels."""
        return *sorted(self.shares(units)), *map(Fraction, units[len(self.weight) :])

    def stages(self, units: Sequence[int]) -> dict[str, Fraction]:
        """Values of the objectives of admission, by name, for the placed value ``units`` of the first levels."""
        least, fair = sorted(self.shares(units)), len(self.weight)
        sums = {f"admission fair {k}": sum(least[:k], Fraction(0)) for k in range(1, fair + 1)}
        levels = list(zip(self.keys, units, self.unit, strict=False))[fair:]
        return sums | {f"admission {key}": value * unit for key, value, unit in levels}

    def stated(self, level: int, units: int) -> int | float:
        """Convert units of a level to a number of pods, or to their value."""
        value = units * self.unit[level]
        return int(value) if value.denominator == 1 else float(value)


def _refuse_fine(instance: PodInstance, of: Integers, whole: list[int]) -> None:
    """Raise `ModelError` if sums of values exceed exact floats."""
    for level in range(int(of.max(initial=-1)) + 1):
        mine = np.flatnonzero(of == level).tolist()
        if sum(whole[p] for p in mine) > _EXACT:
            name = instance.pods[max(mine, key=lambda p: len(str(whole[p]).rstrip("0")))].name
            raise ModelError(
                f"what pods are worth, such as {name!r}, has too many digits for exact sums; round value, "
                "preempt_cost, or (worth='gpu') gpu_memory_gb and gpu_share to a few decimals"
            )


ValueMeasure: TypeAlias = Literal["value", "gpu", "fragmentation"]


def pod_values(instance: PodInstance, by: ValueMeasure) -> list[Fraction]:
    """Return the exact value of each pod: its own value, its GPUs, or its GPUs less the fragmentation that it causes.

    Fragmentation as in Weng et al., *Beware of Fragmentation*, section 3: on a node, the expected free GPU that a pod
    drawn from the workload cannot use. Such a pod is worth its GPUs less the least growth of fragmentation on an empty
    node, rounded down to thousandths of a GPU and at least 0 (our definition).
    """
    if by == "value":
        return [rational(pod.value) for pod in instance.pods]
    if by == "fragmentation":
        rows = instance.arrays.load.row
        value = {row: _less_stranded(instance, row) for row in np.unique(rows).tolist()}
        return [value[row] for row in rows.tolist()]
    largest = max((rational(node.card_gb) for node in instance.nodes), default=Fraction(0))
    return [_gpus(pod, largest or Fraction(1)) for pod in instance.pods]


def _gpus(pod: Pod, card: Fraction) -> Fraction:
    """Number of GPUs of this card size that a pod requests."""
    if not pod.wants_gpu:
        return Fraction(0)
    return (rational(pod.gpu_share) or rational(pod.gpu_memory_gb) / card) * pod.gpu_cards


def _less_stranded(instance: PodInstance, row: int) -> Fraction:
    """Value of a kind of pods with ``fragmentation``; 0 if it fits no empty node."""
    view, exact = instance.arrays, instance.arrays.exact
    of, first = view.load.row, np.unique(view.load.row, return_index=True)[1]
    count = np.bincount(of).astype(object)
    cpu, memory, many = (column[first] for column in (exact.cpu, exact.memory, view.gpu_cards))
    best = Fraction(0)
    for n in np.unique(view.load.column, return_index=True)[1].tolist():
        c, cards, size = int(view.load.column[n]), int(view.cards[n]), int(exact.card[n])
        need: NDArray[np.int64] = exact.gpu.table[:, c]
        mine, on = int(need[row]), int(many[row])
        alone = view.allowed.table[:, c] & (cpu <= exact.node[n, 0]) & (memory <= exact.node[n, 1])
        if not on or not cards or not alone[row] or mine > size or on > cards:
            continue
        # Free GPU that each kind cannot use: before, all or nothing; after, also the remainders of the used cards.
        usable = alone & (many > 0) & (many <= cards) & (need <= size)
        left = size - mine
        rest = usable & (cpu + cpu[row] <= exact.node[n, 0]) & (memory + memory[row] <= exact.node[n, 1])
        rest &= many <= cards - on + on * (need <= left)
        before = np.where(usable, 0, cards * size).astype(object)
        after = np.where(rest, np.where(need > left, on * left, 0), (cards - on) * size + on * left).astype(object)
        growth = Fraction(int(((after - before) * count).sum()), int(count.sum()) * size)
        best = max(best, Fraction(on * mine, size) - growth)
    return Fraction(math.floor(1000 * best), 1000)
