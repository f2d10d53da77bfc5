"""The lexicographic minimum in one program, with the literal weights ``|delta|**s`` (|delta| is the number of loads).

Over integers it has the same minimisers as the stages of `flowlex.formulations.lexicographic.decreasing_minimisation`.
The weights lose precision even at small sizes; such a program is refused.

Source: P3 and P4 of Shi et al. 2021 (docs/papers/jit-bandwidth.md).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from flowlex.errors import FlowlexError
from flowlex.formulations.lexicographic.lambda_representation import increments, lambda_representation
from flowlex.formulations.lexicographic.lexicographic_problem import LexicographicProgram, copy_program
from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.linear_program import LinearProgram

#: Above this, sums of integers are no longer exact in double precision.
EXACT = 2.0**53


class PrecisionError(FlowlexError, ValueError):
    """Coefficients of the literal weighted form would not be exact; use the staged form."""


def weighted_program(
    problem: LexicographicProgram, *, form: Literal["lambda", "increments"] = "lambda"
) -> LinearProgram:
    """The literal program: one sum of ``|delta|**load`` over the loads (P3 in increments, P4 in lambda form).

    Raises `PrecisionError`: ``|delta| * |delta|**levels`` is above 2**53, so that a unit at the lowest level could be
    lost.
    """
    size = float(problem.width.sum())
    if size > 1 and (problem.levels + 1) * np.log2(size) > np.log2(EXACT):
        raise PrecisionError(
            f"the weights |delta|**s reach {size:g}**{problem.levels} and are summed over {size:g} loads: above "
            "2**53, where double precision loses single units; use the staged form, whose coefficients are 0 and 1"
        )
    program = copy_program(problem.base)
    points = np.arange(problem.levels + 1)
    heights = size**points
    if form == "lambda":
        objective = lambda_representation(program, "lambda", problem.loads, points, heights, width=problem.width)
    else:
        pieces = increments(program, "level", problem.loads, points, width=problem.width)
        objective = Expression.empty(1) + float(problem.width.sum())
        for slope, piece in zip(np.diff(heights), pieces, strict=True):
            objective = objective + (piece * slope).sum()
    program.minimize(objective)
    return program
