"""A lexicographic problem over the loads of a linear program, and its result.

Source: P2 of Shi et al. 2021 (docs/papers/jit-bandwidth.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from flowlex.formulations.linear_expression import Expression
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import Outcome, Status

Integrality: TypeAlias = Literal["auto", "lp", "mip"]
#: How an answer was found.
Route: TypeAlias = Literal["lp", "lp, rounded within the optimal face", "mip"]

#: A value this close to an integer counts as one.
WHOLE = 1e-6


@dataclass(frozen=True, eq=False)
class LexicographicProgram:
    """The loads to be minimised lexicographically."""

    base: LinearProgram  # the constraints; its objective is ignored; its variables are integer, but declared continuous
    loads: Expression  # (U,) the loads, non-negative integers for integer answers
    levels: int  # no load exceeds ``levels * width``
    width: Floats  # (U,) number of equal loads (slots of an interval) for which load u stands
    # an expression of one row, minimised before any level (total lateness); None when there is none
    first: Expression | None = None
    constant_sum: float | None = None  # the sum of the loads, when the constraints fix it

    @property
    def lowest(self) -> int:
        """The lowest level that needs a program; a known sum of the loads settles level 1."""
        return 1 if self.constant_sum is None else 2

    def count(self, values: Floats, level: int) -> float:
        """Number of single loads that reach a level, at the given values of the base's columns."""
        above = self.loads.evaluate(values) - (level - 1) * self.width
        return float(np.clip(above, 0, self.width).sum())


@dataclass(frozen=True, eq=False)
class Stage:
    """One program of the sequence."""

    level: int  # the level whose loads were counted; ``levels + 1`` for the objective before all levels
    value: float  # optimum of the stage over integers (or of the linear program if integers were not requested)
    bound: float  # proven lower bound: of the linear program (rounded up), or of the integer program
    # by constraint name of the base program, and ``level_link`` for the loads, from the linear program
    duals: dict[str, Floats] = field(default_factory=dict, repr=False)
    # non-negative multipliers of the levels fixed before, by level; ``levels + 1`` is the objective before all
    multipliers: dict[int, float] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class LexicographicResult:
    """A lexicographic optimum."""

    status: Status  # ``optimal`` when every stage is proven; ``feasible`` when a program stopped at a limit
    values: Floats | None  # (columns of the base,) the answer
    largest: int  # the largest level, K
    # one for each level that equals some load; every level between two of these has as many loads as the higher one
    stages: tuple[Stage, ...]
    route: Route
    outcome: Outcome
    lp_solves: int = 0
    mip_solves: int = 0


def is_whole(values: Floats) -> bool:
    """Whether all values are integers, up to the tolerance of solvers."""
    return bool(np.abs(values - np.rint(values)).max(initial=0.0) <= WHOLE)


def copy_program(base: LinearProgram) -> LinearProgram:
    """A program with the same blocks and no objective, to which more can be added."""
    program = base.copy()
    program.minimize(Expression.empty(1))
    return program
