"""The result of minimising stages: values, and a tree of linear programs with duals at its leaves."""

from __future__ import annotations

from dataclasses import dataclass

from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.solver_outcome import Status


@dataclass(frozen=True)
class Branch:
    """``x_column <= side`` (``upper``), or ``>= side``."""

    column: int
    upper: bool
    side: int


@dataclass(frozen=True, eq=False)
class Leaf:
    """A subset of the answers, and its bound."""

    branches: tuple[Branch, ...]  # from the root
    # rows, earlier: (m,) multipliers of the rows; multipliers of the earlier stages, at most 0
    rows: Floats
    earlier: Floats
    own: int  # 1, or 0 if the multipliers prove that the leaf is empty
    bound: float  # lower bound of the stage in the leaf; infinite if it is empty


@dataclass(frozen=True, eq=False)
class StageResult:
    """The value of a stage, and the leaves that cover all answers."""

    value: float
    leaves: tuple[Leaf, ...]
    bound: float
    proven: bool


@dataclass(frozen=True, eq=False)
class StagesOutcome:
    """The status, the values of all columns, and a result for each stage that was reached."""

    status: Status
    values: Floats | None = None
    stages: tuple[StageResult, ...] = ()
    method: str = ""
    message: str = ""
    seconds: float = 0.0
    #: Leaves that prove infeasibility.
    empty: tuple[Leaf, ...] = ()
