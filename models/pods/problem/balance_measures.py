"""Measures of balance, with their forms in programs, patterns and compiled loops.

Programs minimise `Measure.total`: the largest load, or a sum over nodes of squares or of absolute deviations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats

#: Loads are in percent, so that their squares are well above the solver's tolerances.
SCALE = 100.0

Balance: TypeAlias = Literal["deviation", "max_load", "mean_absolute"]
#: Codes of the measures, also in compiled loops.
DEVIATION, MEAN_ABSOLUTE, LARGEST = 0, 1, 2


@dataclass(frozen=True)
class Measure:
    """A measure of the balance of (N,) loads: standard deviation, mean distance from the mean, or largest load."""

    mode: int

    @property
    def curved(self) -> bool:
        """Whether it is a sum of squares, approximated by tangents."""
        return self.mode == DEVIATION

    @property
    def centred(self) -> bool:
        """Whether loads are compared with their mean; bounds then branch on it."""
        return self.mode != LARGEST

    def value(self, loads: Floats) -> float:
        """The measure of loads; smaller is better."""
        if self.curved:
            return float(loads.std())
        return float(np.abs(loads - loads.mean()).mean()) if self.centred else float(loads.max())

    def total(self, value: float, size: int) -> float:
        """Convert the measure ``value`` of ``size`` nodes to the total that programs minimise."""
        return value * value * size if self.curved else value * size if self.centred else value

    def of_total(self, total: float, size: int) -> float:
        """Convert a total to the measure (inverse of `total`)."""
        return math.sqrt(total / size) if self.curved else total / size if self.centred else total

    def expression(self, program: LinearProgram, loads: Expression, weight: Floats, points: list[Floats]) -> Expression:
        """Return the total as an expression, and add the rows that it needs.

        ``loads``, ``weight``: (C,) loads, and the number of nodes that each represents. ``points``: tangent points of
        the squares, (C,) each.
        """
        size = len(weight)
        if not self.centred:
            largest = program.variables("largest_load", 1)
            program.constrain("largest", loads - largest.repeated(size), "<=", 0.0)
            return largest.sum()
        centre = program.variables("centre", 1)
        if self.curved:
            square, distance = program.variables("square", size), program.variables("distance", size, lower=-np.inf)
            program.constrain("distance", loads - (centre.repeated(size) + distance), "==", 0.0)
            place, at = np.tile(np.arange(size), len(points)), np.concatenate(points)
            program.constrain("tangent", square[place] - distance[place] * (2.0 * at), ">=", -(at**2))
            return (square * weight).sum()
        apart, centred = program.variables("apart", size), loads - centre.repeated(size)
        program.constrain("mean", (loads * weight).sum() - centre * float(weight.sum()), "==", 0.0)
        program.constrain("above", centred - apart, "<=", 0.0)
        program.constrain("below", centred + apart, ">=", 0.0)
        return (apart * weight).sum()

    @property
    def loaded(self) -> tuple[str, ...]:
        """Rows of `expression` with positive load terms; minus their duals per node is the cost of a unit of load."""
        return (("distance",), ("above", "below"), ("largest",))[self.mode]

    def cost(self, load: float, low: float, high: float) -> float:
        """Lower bound on the contribution of one load to the total if the mean lies between ``low`` and ``high``."""
        if self.curved:
            return (load - low) * (load - high)
        return max(0.0, load - high, low - load) if self.centred else 0.0

    def penalty(self, loads: Floats) -> Floats:
        """Penalties that exceed the gain in the total from not placing pods of these (scaled) loads."""
        if self.curved:
            return 2 * loads * (loads + 3) + 1
        return 3 * loads + 1 if self.centred else np.ones(len(loads))

    def narrow(self, gap: float) -> float:
        """Width below which an interval of the mean is not split."""
        return max(1e-3, 0.3 * math.sqrt(gap) if self.curved else 0.2 * gap)


MEASURES: dict[Balance, Measure] = {
    "deviation": Measure(DEVIATION),
    "max_load": Measure(LARGEST),
    "mean_absolute": Measure(MEAN_ABSOLUTE),
}


def to_measure(total: float, measure: Measure, size: int) -> float:
    """Convert a program's objective (percent) to the balance measure (a fraction)."""
    return measure.of_total(max(0.0, total), size) / SCALE


def to_objective(value: float, measure: Measure, size: int) -> float:
    """Convert a balance measure (a fraction) to a program's objective (percent)."""
    return measure.total(value * SCALE, size)
