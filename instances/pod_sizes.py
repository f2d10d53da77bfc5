"""Sizes of pods and nodes as integers, and matrices of pods and nodes that store equal rows once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.exact_rationals import rational
from flowlex.instances.instance_base import read_only


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """A (P, N) matrix that stores equal rows and columns once; indexing is as for the full matrix."""

    table: NDArray[Any]  # (R, C) one row for each kind of pod, one column for each kind of node
    # row, column: (P,) and (N,) index in ``table`` of each pod's row and each node's column
    row: NDArray[np.int64]
    column: NDArray[np.int64]

    def __getitem__(self, key: Any) -> Any:
        """``[pods, nodes]`` with NumPy's pairing of indices, or complete rows as ``[pods]``."""
        if isinstance(key, tuple):
            return self.table[self.row[key[0]], self.column[key[1]]]
        return self.table[self.row[key]][..., self.column]

    def most(self) -> NDArray[Any]:
        """(P,) the largest entry of each row, 0 when there is none."""
        largest: NDArray[Any] = self.table.max(axis=1, initial=0)[self.row]
        return largest


@dataclass(frozen=True, slots=True, eq=False)
class ExactSizes:
    """Sizes as integer multiples of the largest unit that divides them all, one unit per resource.

    If there is no such unit within 62 bits, requests are rounded up and capacities down, so that nothing fits that
    does not fit exactly; ``rounded`` is then True.
    """

    # cpu, memory: (P,)
    cpu: NDArray[np.int64]
    memory: NDArray[np.int64]
    gpu: Pairs  # (P, N) on each card
    node: NDArray[np.int64]  # (N, 2) cores and memory
    card: NDArray[np.int64]  # (N,) size of a card
    # compute, whole: (P,) compute on each card; compute of a card
    compute: NDArray[np.int64]
    whole: int
    rounded: bool


def in_units(wanted: Sequence[Fraction], held: Sequence[Fraction]) -> tuple[list[int], list[int], bool]:
    """Requests and capacities in their largest common unit, and whether they had to be rounded."""
    unit = math.lcm(*{value.denominator for value in (*wanted, *held)})
    largest = max((*held, Fraction(1)))
    if largest * unit < 2**62:
        # Requests above every capacity can be clipped: they fit nowhere in any case.
        return [min(int(v * unit), 2**62) for v in wanted], [int(v * unit) for v in held], False
    scale = 2**62 / largest
    return [min(math.ceil(v * scale), 2**62) for v in wanted], [math.floor(v * scale) for v in held], True


def exact_sizes(
    pods: Sequence[Any], nodes: Sequence[Any], row: NDArray[np.int64], column: NDArray[np.int64]
) -> ExactSizes:
    """Return the sizes of all pods and nodes, from one of each kind; ``row`` and ``column`` are their kinds."""
    of = rational
    cpu, node_cpu, rounded = in_units([of(p.cpu_cores) for p in pods], [of(n.cpu_cores) for n in nodes])
    memory, node_memory, also = in_units([of(p.memory_gb) for p in pods], [of(n.memory_gb) for n in nodes])
    cards = [of(n.card_gb) for n in nodes]
    need = [of(p.gpu_memory_gb) + of(p.gpu_share) * card for p in pods for card in cards]
    gpu, card, too = in_units(need, cards)
    compute, (whole,), slightly = in_units([of(p.gpu_compute) for p in pods], [Fraction(1)])
    table = np.array(gpu, np.int64).reshape(len(pods), len(nodes))
    return read_only(
        ExactSizes(
            np.array(cpu, np.int64)[row],
            np.array(memory, np.int64)[row],
            read_only(Pairs(table, row, column)),
            np.array([node_cpu, node_memory], np.int64).T[column],
            np.array(card, np.int64)[column],
            np.array(compute, np.int64)[row],
            whole,
            rounded or also or too or slightly,
        )
    )
