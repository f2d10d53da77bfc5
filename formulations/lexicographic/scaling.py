"""Rows, columns and stages of extreme size in binary units in which a solver's absolute tolerances mean something.

A row of coefficients of 1e-10 is broken by far within a tolerance of 1e-6, and solvers drop smaller coefficients or
refuse large ones. Rows, continuous columns and costs are multiplied by powers of two, which rounds nothing;
multipliers, values and bounds of the outcome are those of the program as it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowlex.formulations.engines.highs import LARGEST, SMALLEST, out_of_range
from flowlex.formulations.lexicographic.branch_and_bound_leaves import Cut, Leaf, StageResult, StagesOutcome
from flowlex.formulations.program_arrays import Floats, Integers, LinearProgramArrays

#: Sizes between these stay as they are.
_SMALL, _LARGE = 2.0**-10, 2.0**20
#: Largest exponent of a factor: the inverse of the smallest floats is none.
_EXPONENT = 1000
#: Binary exponents of coefficients that HiGHS keeps.
_LEAST, _MOST = int(np.ceil(np.log2(SMALLEST))), int(np.log2(LARGEST)) - 1
#: Rounds in which rows and columns in turn are brought into this range.
_ROUNDS = 4


@dataclass(frozen=True, eq=False)
class Scaling:
    """Factors by which rows, columns and stages are multiplied; the values of a column are divided by its factor."""

    rows: Floats
    stages: Floats
    #: None: all 1.
    columns: Floats | None = None

    @classmethod
    def of(cls, arrays: LinearProgramArrays, costs: Sequence[Floats], steps: Sequence[float]) -> Scaling | None:
        """The factors of a program; None if it needs none.

        A stage whose values are multiples of a step is measured in about that step, unless the step is of usual size.
        """
        row, value = arrays.matrix.indices, np.abs(arrays.matrix.data)
        most, least = np.zeros(len(arrays.row_lower)), np.full(len(arrays.row_lower), np.inf)
        np.maximum.at(most, row, value)
        np.minimum.at(least, row[value > 0], value[value > 0])
        rows = _powers(np.where(most < _SMALL, most, np.where(least > _LARGE, least, 1.0)))
        columns: Floats | None = None
        extreme = (least * rows <= SMALLEST).any() or (most * rows >= LARGEST).any()
        if extreme and out_of_range(cls(rows, np.ones(0)).applied(arrays, ())[0]) is not None:
            rows, columns = _in_range(arrays)
        largest = np.array([np.abs(cost if columns is None else cost * columns).max(initial=0.0) for cost in costs])
        step = np.array(steps, np.float64)
        scale = np.where(largest < _SMALL, np.where(step > 0, step, largest), np.where(step > _LARGE, step, 1.0))
        stages = _powers(np.where(largest / scale >= LARGEST, largest, scale))
        usual = columns is None and (rows == 1).all() and (stages == 1).all()
        return None if usual else cls(rows, stages, columns)

    def applied(
        self, arrays: LinearProgramArrays, costs: Sequence[Floats]
    ) -> tuple[LinearProgramArrays, Sequence[Floats]]:
        """The program and its stages in these units."""
        matrix = arrays.matrix.copy()
        matrix.data = matrix.data * self.rows[matrix.indices]
        scaled = replace(
            arrays, matrix=matrix, row_lower=arrays.row_lower * self.rows, row_upper=arrays.row_upper * self.rows
        )
        if self.columns is not None:
            matrix.data *= np.repeat(self.columns, np.diff(matrix.indptr))
            low, high = arrays.column_lower / self.columns, arrays.column_upper / self.columns
            scaled = replace(scaled, column_lower=low, column_upper=high)
            costs = [cost * self.columns for cost in costs]
        return scaled, [cost * unit for cost, unit in zip(costs, self.stages.tolist(), strict=True)]

    def values(self, scaled: Floats) -> Floats:
        """Values of the columns as they were given."""
        return scaled if self.columns is None else scaled * self.columns

    def undone(self, found: StagesOutcome) -> StagesOutcome:
        """The outcome in the units of the program as it was given."""
        return replace(
            found,
            values=None if found.values is None else self.values(found.values),
            ray=None if found.ray is None else self.values(found.ray),
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
            values=None if stage.values is None else self.values(stage.values),
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


def _in_range(arrays: LinearProgramArrays) -> tuple[Floats, Floats | None]:
    """Factors of rows and columns with which HiGHS keeps every coefficient, as far as there are such.

    Integer columns keep their unit, sides and bounds stay finite. In a row of integers alone, the smallest coefficient
    decides as well: such a row is made as large as it may be.
    """
    matrix, m, n = arrays.matrix, len(arrays.row_lower), len(arrays.cost)
    used = matrix.data != 0
    row, column = matrix.indices[used].astype(np.int64), np.repeat(np.arange(n), np.diff(matrix.indptr))[used]
    size = np.frexp(matrix.data[used])[1].astype(np.int64) - 1
    fractional = np.bincount(row, ~arrays.integrality[column], m) > 0
    down, up = np.zeros(m, np.int64), np.zeros(n, np.int64)
    # By how much rows may grow until a side counts as infinite, and columns shrink until a bound does.
    reach = _MOST - _exponent(arrays.row_lower, arrays.row_upper)
    narrow = _exponent(arrays.column_lower, arrays.column_upper) - _MOST
    for _ in range(_ROUNDS):
        for own, at, factor in ((row, down, down), (column, up, up)):
            now = size + down[row] + up[column]
            least, most = np.full(len(at), 2 * _EXPONENT), np.full(len(at), -2 * _EXPONENT)
            np.minimum.at(least, own, now)
            np.maximum.at(most, own, now)
            wrong = (least <= most) & ((least < _LEAST) | (most > _MOST))
            middle = (_LEAST + _MOST) // 2 - (least + most) // 2
            if at is down:
                moved = np.where(fractional, middle, _MOST - most)
                factor[wrong] = np.minimum(factor + moved, reach)[wrong]
            else:
                factor[wrong & ~arrays.integrality] = np.maximum(factor + middle, narrow)[wrong & ~arrays.integrality]
    down, up = np.clip(down, -_EXPONENT, _EXPONENT), np.clip(up, -_EXPONENT, _EXPONENT)
    return np.exp2(down), np.exp2(up) if up.any() else None


def lost_in_integers(scaled: LinearProgramArrays) -> tuple[int, int, float] | None:
    """Row, column and value of a coefficient of a scaled row of integers alone that tolerances swallow, if any.

    Only for programs that have coefficients out of range: their rows of integers are as large as they may be.
    """
    matrix = scaled.matrix
    column, size = np.repeat(np.arange(len(scaled.cost)), np.diff(matrix.indptr)), np.abs(matrix.data)
    whole = np.bincount(matrix.indices, ~scaled.integrality[column], len(scaled.row_lower)) == 0
    most = np.zeros(len(whole))
    np.maximum.at(most, matrix.indices, size)
    lost = whole[matrix.indices] & (size > 0) & (size < _SMALL) & (most[matrix.indices] > LARGEST / 4)
    return next(
        ((int(matrix.indices[k]), int(column[k]), float(matrix.data[k])) for k in np.flatnonzero(lost).tolist()), None
    )


def _exponent(*sides: Floats) -> Integers:
    """Binary exponent of the larger of some finite sides; that of the smallest float for 0."""
    most = np.max([np.where(np.isfinite(side), np.abs(side), 0.0) for side in sides], axis=0)
    return np.where(most > 0, np.frexp(most)[1], -_EXPONENT).astype(np.int64)


def _powers(sizes: Floats) -> Floats:
    """Powers of two that bring sizes near 1; 1 for usual sizes and for 0."""
    usual = (sizes == 0) | ((sizes >= _SMALL) & (sizes <= _LARGE)) | ~np.isfinite(sizes)
    exponent = np.clip(-np.floor(np.log2(np.where(usual, 1.0, sizes))), -_EXPONENT, _EXPONENT)
    return np.where(usual, 1.0, np.exp2(exponent))
