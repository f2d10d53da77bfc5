"""The integer program of phase 2 over pods and nodes, for each measure of balance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

from flowlex.formulations.expression import Floats
from flowlex.formulations.linear_program import LinearProgram
from flowlex.models.pods.problem.program import SCALE

if TYPE_CHECKING:
    from flowlex.models.pods.model import PodPlacement

__all__ = ["Balance", "balance_program", "to_measure", "to_objective"]

Balance: TypeAlias = Literal["deviation", "max_load", "mean_absolute"]


def balance_program(
    model: PodPlacement,
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
    builder = model.builder
    program, x = builder.program(model.instance.name, integer=integer)
    if admitted:
        builder.keep(program, x, admitted)
    loads, size = builder.loads(x), len(model.instance.nodes)
    if measure == "max_load":
        largest = program.variables("largest_load", 1)
        program.constrain("largest", loads - largest.repeated(size), "<=", 0.0)
        objective = largest.sum()
    elif measure == "mean_absolute":
        apart = program.variables("apart", size)
        mean = program.variables("mean", 1)
        program.constrain("mean_load", loads.sum() - mean * float(size), "==", 0.0)
        centred = loads - mean.repeated(size)
        program.constrain("above", centred - apart, "<=", 0.0)
        program.constrain("below", centred + apart, ">=", 0.0)
        objective = apart.sum()
    else:
        squares = program.variables("square", size)
        distance = loads - program.variables("centre", 1).repeated(size)
        for k, point in enumerate(points):
            program.constrain(f"tangent_{k}", squares - distance * (2.0 * point), ">=", -(point**2))
        objective = squares.sum()
    if at_most is not None:
        program.constrain("at_most", objective, "<=", at_most)
    program.minimize(objective)
    return program


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
