"""Rows and stages of extreme size in binary units in which a solver's absolute tolerances mean something.

A row of coefficients of 1e-10 is broken by far within a tolerance of 1e-6. Rows and costs are multiplied by powers of
two, which rounds nothing; multipliers, values and bounds of the outcome are those of the program as it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowlex.formulations.lexicographic.branch_and_bound_leaves import Cut, Leaf, StageResult, StagesOutcome
from flowlex.formulations.program_arrays import Floats, LinearProgramArrays

#: Sizes between these stay as they are.
_SMALL, _LARGE = 2.0**-10, 2.0**20
#: Largest exponent of a factor: the inverse of the smallest floats is none.
_EXPONENT = 1000


@dataclass(frozen=True, eq=False)
class Scaling:
    """Factors by which rows and stages are multiplied."""

    rows: Floats
    stages: Floats

    @classmethod
    def of(cls, arrays: LinearProgramArrays, costs: Sequence[Floats], steps: Sequence[float]) -> Scaling | None:
        """The factors of a program; None if it needs none.

        A stage whose values are multiples of a step is measured in about that step, unless the step is of usual size.
        """
        row, value = arrays.matrix.indices, np.abs(arrays.matrix.data)
        most, least = np.zeros(len(arrays.row_lower)), np.full(len(arrays.row_lower), np.inf)
        np.maximum.at(most, row, value)
        np.minimum.at(least, row[value > 0], value[value > 0])
        size = np.where(most < _SMALL, most, np.where(least > _LARGE, least, 1.0))
        largest = np.array([np.abs(cost).max(initial=0.0) for cost in costs])
        step = np.array(steps, np.float64)
        scale = np.where(largest < _SMALL, np.where(step > 0, step, largest), np.where(step > _LARGE, step, 1.0))
        rows, stages = _powers(size), _powers(scale)
        return cls(rows, stages) if (rows != 1).any() or (stages != 1).any() else None

    def applied(
        self, arrays: LinearProgramArrays, costs: Sequence[Floats]
    ) -> tuple[LinearProgramArrays, Sequence[Floats]]:
        """The program and its stages in these units."""
        matrix = arrays.matrix.copy()
        matrix.data = matrix.data * self.rows[matrix.indices]
        scaled = replace(
            arrays, matrix=matrix, row_lower=arrays.row_lower * self.rows, row_upper=arrays.row_upper * self.rows
        )
        return scaled, [cost * unit for cost, unit in zip(costs, self.stages.tolist(), strict=True)]

    def undone(self, found: StagesOutcome) -> StagesOutcome:
        """The outcome in the units of the program as it was given."""
        return replace(
            found,
            stages=tuple(self._stage(k, stage) for k, stage in enumerate(found.stages)),
            empty=tuple(self._leaf(leaf, 1.0) for leaf in found.empty),
            cuts=tuple(self._cut(cut) for cut in found.cuts),
        )

    def _stage(self, k: int, stage: StageResult) -> StageResult:
        unit = float(self.stages[k]) if k < len(self.stages) else 1.0
        return replace(
            stage,
            value=stage.value / unit,
            bound=stage.bound / unit,
            quoted=None if stage.quoted is None else stage.quoted / unit,
            leaves=tuple(self._leaf(leaf, unit) for leaf in stage.leaves),
            root=None if stage.root is None else self._leaf(stage.root, unit),
        )

    def _leaf(self, leaf: Leaf, unit: float) -> Leaf:
        unit = unit if leaf.own else 1.0
        earlier = leaf.earlier * self.stages[: len(leaf.earlier)] / unit
        return replace(
            leaf, rows=leaf.rows * self.rows / unit, earlier=earlier, cuts=leaf.cuts / unit, bound=leaf.bound / unit
        )

    def _cut(self, cut: Cut) -> Cut:
        one, two = (rows * self.rows for rows in cut.rows)
        first, second = (earlier * self.stages[: len(earlier)] for earlier in cut.earlier)
        return replace(cut, rows=(one, two), earlier=(first, second))


def _powers(sizes: Floats) -> Floats:
    """Powers of two that bring sizes near 1; 1 for usual sizes and for 0."""
    usual = (sizes == 0) | ((sizes >= _SMALL) & (sizes <= _LARGE)) | ~np.isfinite(sizes)
    exponent = np.clip(-np.floor(np.log2(np.where(usual, 1.0, sizes))), -_EXPONENT, _EXPONENT)
    return np.where(usual, 1.0, np.exp2(exponent))
