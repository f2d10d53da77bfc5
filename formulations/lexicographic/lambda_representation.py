"""Separable convex piecewise-linear functions inside a linear program.

Two exact forms of ``sum_u f_u(w_u)`` for convex ``f_u`` that is linear between integer breakpoints:

lambda form
    ``w = sum_s s * lambda_s``, ``f(w) = sum_s f(s) * lambda_s``, ``sum_s lambda_s = 1``, ``lambda >= 0``.
increment form
    ``w = b_0 + sum_s y_s`` with ``0 <= y_s <= b_s - b_(s-1)``; the slope of piece s is the cost of ``y_s``.

Both need convexity (otherwise pieces would be filled in the wrong order), so they refuse anything else.

Source: the lambda form is P4 of Shi et al. 2021 (docs/papers/jit-bandwidth.md).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from flowlex.formulations.linear_expression import Expression, Variables
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats


def lambda_representation(
    program: LinearProgram,
    name: str,
    load: Expression,
    breakpoints: ArrayLike,
    values: ArrayLike,
    *,
    width: ArrayLike = 1.0,
) -> Expression:
    """Add the lambda form of ``sum_u f(load_u)`` and return that sum, as an expression of one row.

    Parameters
    ----------
    program
        Gets the variables ``name``, and the constraints ``name_link`` and ``name_one``.
    load
        (U,) the arguments.
    breakpoints
        (S,) increasing; arguments are confined to their range (times ``width``).
    values
        (S,) the function at the breakpoints.
    width
        (U,) or one number: number of equal copies of the function over which argument u is spread. The term is
        ``width * f(load / width)``, so one variable can stand for an interval of slots.

    Raises
    ------
    ValueError
        Breakpoints do not increase, or the function is not convex or has a value that is not finite.
    """
    points, heights = _checked(breakpoints, values)
    count, pieces = load.count, len(points)
    copies = np.broadcast_to(np.asarray(width, np.float64), (count,))
    unit = np.repeat(np.arange(count), pieces)
    level = np.tile(np.arange(pieces), count)
    weights = program.variables(name, count * pieces, labels=(unit, points[level]))
    program.constrain(f"{name}_link", (weights * points[level]).sum_by(unit, count) - load, "==", 0.0)
    program.constrain(f"{name}_one", weights.sum_by(unit, count), "==", copies)
    return (weights * heights[level]).sum()


def increments(
    program: LinearProgram, name: str, load: Expression, breakpoints: ArrayLike, *, width: ArrayLike = 1.0
) -> list[Variables]:
    """Add the increment form of ``load`` and return one vector of variables per piece, lowest first.

    Parameters are those of `lambda_representation`; the constraints are named ``name_link``, the variables of
    the piece that ends at breakpoint b are named ``name_b``. With breakpoints 0, 1, .., C the variable ``y_s`` of
    an integer load is 1 if the load is at least s: sums of one piece count loads.
    """
    points, _ = _checked(breakpoints, np.zeros(len(np.asarray(breakpoints))))
    copies = np.broadcast_to(np.asarray(width, np.float64), (load.count,))
    total: Expression = load * -1.0 + points[0] * copies
    pieces = []
    for low, high in pairwise(points.tolist()):
        piece = program.variables(f"{name}_{high:g}", load.count, upper=(high - low) * copies)
        total = total + piece
        pieces.append(piece)
    program.constrain(f"{name}_link", total, "==", 0.0)
    return pieces


def _checked(breakpoints: ArrayLike, values: ArrayLike) -> tuple[Floats, Floats]:
    points, heights = np.asarray(breakpoints, np.float64), np.asarray(values, np.float64)
    if points.ndim != 1 or points.shape != heights.shape or len(points) < 2:
        raise ValueError(f"need two or more breakpoints with one value each, got {points.shape} and {heights.shape}")
    if not (np.isfinite(points).all() and np.isfinite(heights).all()):
        raise ValueError("breakpoints and values must be finite")
    if (np.diff(points) <= 0).any():
        raise ValueError(f"breakpoints must increase, got {points.tolist()}")
    slopes = np.diff(heights) / np.diff(points)
    if (np.diff(slopes) < 0).any():
        first = int(np.argmax(np.diff(slopes) < 0)) + 1
        raise ValueError(
            f"the function is not convex at {points[first]:g} (slope falls from {slopes[first - 1]:g} to "
            f"{slopes[first]:g}); the lambda form would fill its pieces in the wrong order"
        )
    return points, heights
