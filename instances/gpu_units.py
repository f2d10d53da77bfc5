"""Exact cost data of a GPU round: shard sizes, seconds per MB, costs of waiting and stopping, and their common unit.

Models and certificates both read these data here; each computes the cost of a task on a GPU with its own code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.exact_rationals import rational
from flowlex.instances.gpu import GpuArrays, GpuInstance

#: Integers below this stay distinct as floats after division by a power of ten.
_DECIMAL = 2**51


@dataclass(frozen=True, eq=False)
class ExactCosts:
    """Exact figures of a round. Sizes: S shards, T tasks."""

    view: GpuArrays
    # size, per_mb: (S,) integer sizes of the shards in their largest common unit, and the number of units per MB
    size: NDArray[Any]
    per_mb: Fraction
    # weighted seconds per MB from the task's own node, from its rack, from another rack
    rates: tuple[Fraction, Fraction, Fraction]
    waiting_s: Fraction  # seconds that a waiting task costs (alpha): a3 times the most expensive transfer of any task
    # (T,) cost of stopping each running task, in seconds: ``stop_price`` times its elapsed seconds
    stop_s: tuple[Fraction, ...]
    unit_s: Fraction  # (weighted) seconds of a cost of 1; all costs are integer multiples of it

    @classmethod
    def read(cls, instance: GpuInstance, weights: tuple[Fraction, Fraction, Fraction], stop_price: Fraction) -> Self:
        """Read an instance; ``weights`` are a1, a2 and a3."""
        view, zero = instance.arrays, Fraction(0)
        disk, rack, between = map(
            rational, (instance.disk_mb_per_s, instance.rack_mb_per_s, instance.between_racks_mb_per_s)
        )
        rates = 1 / disk, weights[0] / rack, weights[1] / between
        size, per_mb = _whole_sizes(view.shard_size_mb)
        of_task = np.zeros(len(view.task_job), dtype=size.dtype)
        np.add.at(of_task, view.shard_task, size)
        waiting = weights[2] * int(of_task.max(initial=0)) * rates[2] / per_mb
        stops: tuple[Fraction, ...] = (zero,) * len(of_task)
        if stop_price:
            stops = tuple(stop_price * rational(x) for x in view.task_elapsed.tolist())
        numbers = *(r / per_mb for r in rates), waiting, *(stops if stop_price else ())
        return cls(view, size, per_mb, rates, waiting, stops, largest_unit(numbers))


def largest_unit(numbers: Iterable[Fraction]) -> Fraction:
    """Return the largest number of which all numbers are integer multiples; 1 if all are 0.

    Examples
    --------
    >>> largest_unit([Fraction(1, 2), Fraction(0), Fraction(5, 3)])
    Fraction(1, 6)
    """
    some = {number for number in numbers if number}
    below = math.lcm(*(number.denominator for number in some))
    above = math.gcd(*(number.numerator * (below // number.denominator) for number in some))
    return Fraction(above or 1, below)


def _whole_sizes(size_mb: NDArray[np.float64]) -> tuple[NDArray[Any], Fraction]:
    """Return the sizes as integers in their largest common unit, and the number of units per MB."""
    size, parts = _decimal_sizes(size_mb)
    shared = int(np.gcd.reduce(size)) if len(size) else 1
    return size // shared, Fraction(parts, shared)


def _decimal_sizes(size_mb: NDArray[np.float64]) -> tuple[NDArray[Any], int]:
    """Return the sizes as integers, and the number of units per MB: a power of ten if that is exact."""
    for digits in range(16):
        scaled = np.rint(size_mb * 10.0**digits)
        if not (scaled < _DECIMAL).all() or float(scaled.sum()) >= 2**62:
            break
        if (scaled / 10.0**digits == size_mb).all():
            return scaled.astype(np.int64), 10**digits
    numbers = [rational(size) for size in size_mb.tolist()]
    parts = math.lcm(*(number.denominator for number in numbers))
    return np.array([int(number * parts) for number in numbers], dtype=object), parts
