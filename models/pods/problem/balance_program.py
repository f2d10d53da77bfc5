"""The integer program of phase 2 over pods and nodes, for each measure of balance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowlex.formulations.arrays import Floats
from flowlex.formulations.linear_program import LinearProgram
from flowlex.models.pods.problem.measures import Measure
from flowlex.models.pods.problem.program import SCALE, PlacementProgram

__all__ = ["balance_program", "to_measure", "to_objective"]


def balance_program(
    name: str,
    builder: PlacementProgram,
    measure: Measure,
    admitted: Sequence[int],
    points: list[Floats],
    *,
    integer: bool = True,
    at_most: float | None = None,
) -> LinearProgram:
    """The program of phase 2, in percent; for ``deviation`` its objective is the sum of squares seen by tangents.

    Parameters
    ----------
    admitted
        By level, the worth of the pods that have to be placed, in units.
    points
        Tangent points: (N,) each.
    at_most
        The objective of a known answer, to cut off what is worse.
    """
    program, x = builder.program(name, integer=integer)
    if admitted:
        builder.keep(program, x, admitted)
    objective = measure.expression(program, builder.loads(x), np.ones(len(builder.view.cards)), points)
    if at_most is not None:
        program.constrain("at_most", objective, "<=", at_most)
    program.minimize(objective)
    return program


def to_measure(total: float, measure: Measure, size: int) -> float:
    """Turn a program's objective (percent) into the balance measure (a fraction)."""
    return measure.of_total(max(0.0, total), size) / SCALE


def to_objective(value: float, measure: Measure, size: int) -> float:
    """The other way round."""
    return measure.total(value * SCALE, size)
