"""The integer program of phase 2 over pods and nodes, for each measure of balance."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np

from flowlex.formulations.expression import Expression, Floats
from flowlex.formulations.linear_program import LinearProgram
from flowlex.models.pods.problem.program import SCALE, PlacementProgram

__all__ = ["Balance", "balance_program", "measured", "to_measure", "to_objective"]

Balance: TypeAlias = Literal["deviation", "max_load", "mean_absolute"]


def balance_program(
    name: str,
    builder: PlacementProgram,
    measure: Balance,
    admitted: dict[int, int],
    points: list[Floats],
    *,
    integer: bool = True,
    at_most: float | None = None,
) -> LinearProgram:
    """The program of phase 2, in percent; for ``deviation`` its objective is the sum of squares seen by tangents.

    Parameters
    ----------
    admitted
        Pods of each class that have to be placed.
    points
        Tangent points: (N,) each.
    at_most
        The objective of a known answer, to cut off what is worse.
    """
    program, x = builder.program(name, integer=integer)
    if admitted:
        builder.keep(program, x, admitted)
    objective = measured(program, builder.loads(x), np.ones(len(builder.view.cards)), measure, points)
    if at_most is not None:
        program.constrain("at_most", objective, "<=", at_most)
    program.minimize(objective)
    return program


def measured(
    program: LinearProgram, loads: Expression, weight: Floats, measure: Balance, points: list[Floats]
) -> Expression:
    """The balance as an expression: the largest load, or sums of squares or of absolute deviations.

    Parameters
    ----------
    loads, weight
        (C,) loads, and how many nodes each stands for.
    points
        (C,) each: where the squares have tangents.
    """
    size = len(weight)
    if measure == "max_load":
        largest = program.variables("largest_load", 1)
        program.constrain("largest", loads - largest.repeated(size), "<=", 0.0)
        return largest.sum()
    centre = program.variables("centre", 1)
    if measure == "mean_absolute":
        apart, centred = program.variables("apart", size), loads - centre.repeated(size)
        program.constrain("mean", (loads * weight).sum() - centre * float(weight.sum()), "==", 0.0)
        program.constrain("above", centred - apart, "<=", 0.0)
        program.constrain("below", centred + apart, ">=", 0.0)
        return (apart * weight).sum()
    squares, distance = program.variables("square", size), program.variables("distance", size, lower=-np.inf)
    program.constrain("distance", loads - centre.repeated(size) - distance, "==", 0.0)
    place, at = np.tile(np.arange(size), len(points)), np.concatenate(points)
    program.constrain("tangent", squares[place] - distance[place] * (2.0 * at), ">=", -(at**2))
    return (squares * weight).sum()


def to_measure(value: float, measure: Balance, size: int) -> float:
    """Turn a program's objective (percent) into the balance measure (a fraction)."""
    value = max(0.0, value)
    if measure == "max_load":
        return value / SCALE
    return value / SCALE / size if measure == "mean_absolute" else math.sqrt(value / size) / SCALE


def to_objective(value: float, measure: Balance, size: int) -> float:
    """The other way round."""
    if measure == "max_load":
        return value * SCALE
    return value * SCALE * size if measure == "mean_absolute" else (value * SCALE) ** 2 * size
