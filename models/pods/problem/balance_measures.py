"""Measures of balance, with their forms in programs, patterns and kernels.

Programs minimise `Measure.total`: the largest load, or a sum over nodes of squares or of absolute deviations.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats

#: Loads are in percent, so that their squares are well above the solver's tolerances.
SCALE = 100.0

Balance: TypeAlias = Literal["deviation", "max_load", "mean_absolute"]


class Measure(ABC):
    """A measure of the balance of (N,) loads; smaller is better."""

    mode: ClassVar[int]  # its code in compiled loops
    centred: ClassVar[bool] = True  # whether loads are compared with their mean; bounds then branch on it
    curved: ClassVar[bool] = False  # whether it is a sum of squares, approximated by tangents
    #: Rows with positive load terms; minus their duals per node is the cost of a unit of load.
    loaded: ClassVar[tuple[str, ...]]

    @abstractmethod
    def value(self, loads: Floats) -> float:
        """The measure of loads."""

    @abstractmethod
    def total(self, value: float, size: int) -> float:
        """Convert the measure ``value`` of ``size`` nodes to the total that programs minimise."""

    @abstractmethod
    def of_total(self, total: float, size: int) -> float:
        """Convert a total to the measure (inverse of `total`)."""

    @abstractmethod
    def expression(self, program: LinearProgram, loads: Expression, weight: Floats, points: list[Floats]) -> Expression:
        """Return the total as an expression, and add the rows that it needs.

        ``loads``, ``weight``: (C,) loads, and the number of nodes that each represents. ``points``: tangent points of
        the squares, (C,) each.
        """

    def cost(self, load: float, low: float, high: float) -> float:
        """Lower bound on the contribution of one load to the total if the mean lies between ``low`` and ``high``."""
        return 0.0

    def penalty(self, loads: Floats) -> Floats:
        """Penalties that exceed the gain in the total from not placing pods of these (scaled) loads."""
        return np.ones(len(loads))

    def narrow(self, gap: float) -> float:
        """Width below which an interval of the mean is not split."""
        return max(1e-3, 0.2 * gap)


class MaxLoad(Measure):
    """The largest load."""

    mode, centred, loaded = 2, False, ("largest",)

    def value(self, loads: Floats) -> float:
        return float(loads.max())

    def total(self, value: float, size: int) -> float:
        return value

    def of_total(self, total: float, size: int) -> float:
        return total

    def expression(self, program: LinearProgram, loads: Expression, weight: Floats, points: list[Floats]) -> Expression:
        largest = program.variables("largest_load", 1)
        program.constrain("largest", loads - largest.repeated(len(weight)), "<=", 0.0)
        return largest.sum()


class MeanAbsolute(Measure):
    """The mean distance of the loads from their mean."""

    mode, loaded = 1, ("above", "below")

    def value(self, loads: Floats) -> float:
        return float(np.abs(loads - loads.mean()).mean())

    def total(self, value: float, size: int) -> float:
        return value * size

    def of_total(self, total: float, size: int) -> float:
        return total / size

    def expression(self, program: LinearProgram, loads: Expression, weight: Floats, points: list[Floats]) -> Expression:
        size, centre = len(weight), program.variables("centre", 1)
        apart, centred = program.variables("apart", size), loads - centre.repeated(size)
        program.constrain("mean", (loads * weight).sum() - centre * float(weight.sum()), "==", 0.0)
        program.constrain("above", centred - apart, "<=", 0.0)
        program.constrain("below", centred + apart, ">=", 0.0)
        return (apart * weight).sum()

    def cost(self, load: float, low: float, high: float) -> float:
        return max(0.0, load - high, low - load)

    def penalty(self, loads: Floats) -> Floats:
        return 3 * loads + 1


class Deviation(Measure):
    """The standard deviation of the loads."""

    mode, curved, loaded = 0, True, ("distance",)

    def value(self, loads: Floats) -> float:
        return float(loads.std())

    def total(self, value: float, size: int) -> float:
        return value * value * size

    def of_total(self, total: float, size: int) -> float:
        return math.sqrt(total / size)

    def expression(self, program: LinearProgram, loads: Expression, weight: Floats, points: list[Floats]) -> Expression:
        size, centre = len(weight), program.variables("centre", 1)
        square, distance = program.variables("square", size), program.variables("distance", size, lower=-np.inf)
        program.constrain("distance", loads - (centre.repeated(size) + distance), "==", 0.0)
        place, at = np.tile(np.arange(size), len(points)), np.concatenate(points)
        program.constrain("tangent", square[place] - distance[place] * (2.0 * at), ">=", -(at**2))
        return (square * weight).sum()

    def cost(self, load: float, low: float, high: float) -> float:
        return (load - low) * (load - high)

    def penalty(self, loads: Floats) -> Floats:
        return 2 * loads * (loads + 3) + 1

    def narrow(self, gap: float) -> float:
        return max(1e-3, 0.3 * math.sqrt(gap))


MEASURES: dict[Balance, Measure] = {"deviation": Deviation(), "max_load": MaxLoad(), "mean_absolute": MeanAbsolute()}


def to_measure(total: float, measure: Measure, size: int) -> float:
    """Convert a program's objective (percent) to the balance measure (a fraction)."""
    return measure.of_total(max(0.0, total), size) / SCALE


def to_objective(value: float, measure: Measure, size: int) -> float:
    """Convert a balance measure (a fraction) to a program's objective (percent)."""
    return measure.total(value * SCALE, size)
