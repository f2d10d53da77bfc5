"""Value of a pod in weighted or fair admission: its own value, its GPUs, or its GPUs minus fragmentation.

Fragmentation as in Weng et al., *Beware of Fragmentation*, section 3: on a node, the expected free GPU that a pod drawn
from the workload cannot use. The value is the number of requested GPUs minus the least growth of fragmentation on an
empty node, rounded down to thousandths of a GPU and at least 0 (our definition).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.exact_rationals import rational
from flowlex.instances.pods import Pod, PodInstance

ValueMeasure: TypeAlias = Literal["value", "gpu", "fragmentation"]


def pod_values(instance: PodInstance, by: ValueMeasure) -> list[Fraction]:
    """Return the exact value of each pod."""
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
