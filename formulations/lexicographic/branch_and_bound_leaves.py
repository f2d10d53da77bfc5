"""The result of minimising stages: values, and a tree of linear programs with duals at its leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from flowlex.formulations.program_arrays import Floats, Integers
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
    #: Multipliers of the cuts, at least 0; shorter than their list, as later cuts have none.
    cuts: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, eq=False)
class Cut:
    """``whole / grain x[columns] >= side``, which holds for all answers: on both sides of a split of integer columns.

    ``split``: columns and integer values with ``<= floor`` or ``>= floor + 1``; ``rows``, ``earlier``, ``cuts`` bound
    the cut on each side, together with ``of_split``, the multiplier of the side itself.
    """

    columns: Integers
    whole: Integers
    grain: int
    side: float
    split: tuple[Integers, Integers, int]
    rows: tuple[Floats, Floats]
    earlier: tuple[Floats, Floats]
    cuts: tuple[Floats, Floats]
    of_split: tuple[float, float]
    #: How many stages are fixed where it holds.
    stage: int

    @cached_property
    def values(self) -> Floats:
        """Coefficients."""
        return self.whole / self.grain


@dataclass(frozen=True, eq=False)
class StageResult:
    """The value of a stage, and the leaves that cover all answers."""

    value: float
    leaves: tuple[Leaf, ...]
    bound: float
    proven: bool
    #: The bound that HiGHS states where the leaves prove less, and whether it calls the value optimal.
    quoted: float | None = None
    sure: bool = False
    #: The answer that attains the value, where later stages may give up some of it.
    values: Floats | None = None
    #: Where there is a tree: the leaf of its root without cuts, whose bound is checked at once.
    root: Leaf | None = None


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
    cuts: tuple[Cut, ...] = ()
    #: Whether every stage is proven, or optimal by HiGHS's word, and no cost is too small for it.
    sure: bool = False
    #: A ray along which a stage improves without end, where the status is ``unbounded``.
    ray: Floats | None = None
