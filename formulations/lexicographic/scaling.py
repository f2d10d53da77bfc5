"""Rows, columns and stages of extreme size in binary units in which a solver's absolute tolerances mean something.

A row of coefficients of 1e-10 is broken by far within a tolerance of 1e-6, a cost of 1e-15 is none for a solver, and
solvers drop small coefficients or refuse large ones. Rows, continuous columns and costs are multiplied by powers of
two, which rounds nothing; values and bounds of the outcome are those of the program as it was given.
Source: Curtis and Reid 1972 (the logarithms of all numbers are brought near 0 by least squares).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from flowlex.formulations.engines.highs import LARGEST, SMALLEST, out_of_range
from flowlex.formulations.lexicographic.branch_and_bound_leaves import StageResult, StagesOutcome
from flowlex.formulations.program_arrays import Booleans, Floats, Integers, LinearProgramArrays

#: Sizes between these stay as they are.
_SMALL, _LARGE = 2.0**-10, 2.0**20
#: Largest exponent of a factor: the inverse of the smallest floats is none.
_EXPONENT = 1000
#: Binary exponents of coefficients that HiGHS keeps.
_LEAST, _MOST = int(np.ceil(np.log2(SMALLEST))), int(np.log2(LARGEST)) - 1
#: Sides up to this binary exponent are finite for HiGHS.
_FINITE = 66
#: Rounds in which rows and columns in turn are brought into this range.
_ROUNDS = 4
#: Coefficients, costs and bounds of continuous columns below these are lost in a solver's tolerances of 1e-7, unless
#: all that they can make is below `_NOTHING`; rows of larger sides have more digits than it has.
_TINY_COEFFICIENT, _TINY_COST, _TINY_BOUND, _LARGE_SIDE, _NOTHING = 2.0**-20, 2.0**-17, 2.0**-20, 2.0**33, 1e-10
#: The same for coefficients as a share of the largest of their row.
_TINY_SHARE = 2.0**-26
#: Sides up to this share of the terms of their row are what rounding left of 0.
_NOISE = 2.0**-46
#: How much a bound counts where units are chosen, of a coefficient: it may only say that there is none.
_OF_BOUND = 0.25
#: Iterations of the least squares of logarithms.
_LEAST_SQUARES = 200


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
        room = _FINITE - _exponent(arrays.row_lower, arrays.row_upper)
        rows = np.minimum(rows, np.exp2(np.clip(room, 0, _EXPONENT)))
        largest = np.array([np.abs(cost).max(initial=0.0) for cost in costs])
        step = np.array(steps, np.float64)
        scale = np.where(largest < _SMALL, np.where(step > 0, step, largest), np.where(step > _LARGE, step, 1.0))
        stages = _powers(np.where(largest >= LARGEST * scale, largest, scale))
        plain = None if (rows == 1).all() and (stages == 1).all() else cls(rows, stages)
        program, goals = (arrays, costs) if plain is None else plain.applied(arrays, costs)
        underflow = plain is not None and np.count_nonzero(program.matrix.data) < np.count_nonzero(value)
        if not underflow and not _lost_in_tolerances(program, goals):
            return plain
        balanced = _balanced(arrays, costs, rows, stages)
        useless = out_of_range(arrays) is None and out_of_range(balanced.applied(arrays, ())[0]) is not None
        return plain if useless else balanced

    def applied(
        self, arrays: LinearProgramArrays, costs: Sequence[Floats]
    ) -> tuple[LinearProgramArrays, Sequence[Floats]]:
        """The program and its stages, if given, in these units."""
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
        return scaled, [cost * unit for cost, unit in zip(costs, self.stages.tolist(), strict=False)]

    def values(self, scaled: Floats) -> Floats:
        """Values of the columns as they were given."""
        return scaled if self.columns is None else scaled * self.columns

    def undone(self, found: StagesOutcome) -> StagesOutcome:
        """The outcome in the units of the program as it was given; leaves and cuts stay as they were found."""
        stages = tuple(self._stage(k, stage) for k, stage in enumerate(found.stages))
        values, ray = (None if each is None else self.values(each) for each in (found.values, found.ray))
        fields = vars(found) | {"values": values, "ray": ray, "stages": stages}
        return ScaledOutcome(**fields, inner=found, scaling=self)

    def _stage(self, k: int, stage: StageResult) -> StageResult:
        unit = float(self.stages[k]) if k < len(self.stages) else 1.0
        return replace(
            stage,
            value=stage.value / unit,
            bound=stage.bound / unit,
            quoted=None if stage.quoted is None else stage.quoted / unit,
            values=None if stage.values is None else self.values(stage.values),
        )

    def duals(self, k: int, rows: Floats) -> Floats:
        """Multipliers of rows in a leaf of a stage, in the units of the program as it was given."""
        found: Floats = rows * self.rows / self.stages[k]
        return found


@dataclass(frozen=True, eq=False)
class ScaledOutcome(StagesOutcome):
    """An outcome in the units of the program as it was given, and the one in the units in which it was solved.

    Its leaves and cuts are those of ``inner``; `flowlex.models.scaled_proofs` converts proofs, exactly.
    """

    inner: StagesOutcome = field(kw_only=True)
    scaling: Scaling = field(kw_only=True)


def _lost_in_tolerances(arrays: LinearProgramArrays, costs: Sequence[Floats]) -> bool:
    """Whether units of columns decide what a solver sees: a number of a continuous column is lost in its tolerances."""
    size = np.abs(arrays.matrix.data)
    small, largest = size < _TINY_COEFFICIENT, float(size.max(initial=0.0))
    if largest * _TINY_SHARE > size.min(initial=1.0):
        most = np.zeros(len(arrays.row_lower))
        np.maximum.at(most, arrays.matrix.indices, size)
        small |= size < _TINY_SHARE * most[arrays.matrix.indices]
    tiny = np.flatnonzero(small)
    if (len(tiny) or largest >= LARGEST) and out_of_range(arrays) is not None:
        return True
    continuous, low, high = ~arrays.integrality, np.abs(arrays.column_lower), np.abs(arrays.column_upper)
    if not continuous.any():
        return False
    reach = np.maximum(low, high, out=low)
    column = np.searchsorted(arrays.matrix.indptr, tiny, "right") - 1
    lost = size[tiny] * np.where(size[tiny] > 0, reach[column], 0.0)
    if (continuous[column] & (lost > _NOTHING)).any():
        return True
    for cost in costs:
        tiny = np.flatnonzero((np.abs(cost) < _TINY_COST) & (cost != 0))
        if (continuous[tiny] & (np.abs(cost[tiny]) * reach[tiny] > _NOTHING)).any():
            return True
    tiny = np.flatnonzero((reach < _TINY_BOUND) | np.isinf(reach))
    bound = _sizes(arrays.column_lower[tiny], arrays.column_upper[tiny])
    if (continuous[tiny] & (bound > 0) & (bound < _TINY_BOUND)).any():
        return True
    sides = _sizes(arrays.row_lower, arrays.row_upper)
    odd = (sides < _TINY_COEFFICIENT) & (sides > 0) | (sides > _LARGE_SIDE)
    return bool(odd.any() and (sides[odd] > _noise(arrays)[odd]).any())


def _sizes(lower: Floats, upper: Floats) -> Floats:
    """The larger of two finite sides in absolute value; 0 where there is none."""
    return np.maximum(*(np.where(np.isfinite(side), np.abs(side), 0.0) for side in (lower, upper)))


def _noise(arrays: LinearProgramArrays) -> Floats:
    """Of each row, up to where a side is what rounding left of 0: by its largest term that is bounded."""
    matrix, reach = arrays.matrix, np.maximum(np.abs(arrays.column_lower), np.abs(arrays.column_upper))
    terms, most = np.abs(matrix.data) * np.repeat(reach, np.diff(matrix.indptr)), np.zeros(len(arrays.row_lower))
    np.maximum.at(most, matrix.indices, np.where(np.isfinite(terms), terms, 0.0))
    return _NOISE * most


def _balanced(arrays: LinearProgramArrays, costs: Sequence[Floats], rows: Floats, stages: Floats) -> Scaling:
    """Factors with which coefficients, costs, sides and bounds are near 1, as far as there are such.

    Integer columns keep their unit, rows and stages of these alone the factors given.
    """
    m, n, continuous = len(arrays.row_lower), len(arrays.cost), ~arrays.integrality
    matrix = arrays.matrix
    used = np.flatnonzero(matrix.data)
    # Unknowns: exponents of rows, of columns, of stages.
    parts: list[tuple[Any, Any, Floats, float]] = [
        (matrix.indices[used], np.repeat(np.arange(n), np.diff(matrix.indptr))[used], matrix.data[used], 1.0)
    ]
    of_integers = np.array([not continuous[cost != 0].any() for cost in costs], bool)
    for k, cost in enumerate(costs):
        own = np.flatnonzero(cost)
        if not of_integers[k]:
            parts.append((np.full(len(own), m + n + k), own, cost[own], 1.0))
    sides, reach = _sizes(arrays.row_lower, arrays.row_upper), _sizes(arrays.column_lower, arrays.column_upper)
    own, bounded = np.flatnonzero(sides > _noise(arrays)), np.flatnonzero((reach > 0) & continuous)
    parts.append((own, np.full(len(own), -1), sides[own], 1.0))
    parts.append((np.full(len(bounded), -1), bounded, 1 / reach[bounded], _OF_BOUND))
    first = np.concatenate([one for one, _, _, _ in parts])
    second = np.concatenate([two for _, two, _, _ in parts])
    size = np.concatenate([np.log2(np.abs(value)) for _, _, value, _ in parts])
    weight = np.concatenate([np.full(len(one), w) for one, _, _, w in parts])
    moved = (second >= 0) & continuous[second]
    at = np.arange(len(size))
    system = csr_array(
        (
            np.concatenate([weight[first >= 0], weight[moved]]),
            (np.concatenate([at[first >= 0], at[moved]]), np.concatenate([first[first >= 0], m + second[moved]])),
        ),
        shape=(len(size), m + n + len(costs)),
    )
    from scipy.sparse.linalg import lsqr  # importing it takes a tenth of a second, and few programs come here

    found = np.rint(lsqr(system, -size * weight, atol=1e-6, btol=1e-6, iter_lim=_LEAST_SQUARES)[0]).astype(np.int64)
    fractional = np.bincount(parts[0][0], continuous[parts[0][1]], m) > 0
    down = np.where(fractional, found[:m], np.frexp(rows)[1] - 1)
    rows, columns = _in_range(arrays, down, found[m : m + n], fractional)
    most = [np.abs(cost if columns is None else cost * columns).max(initial=0.0) for cost in costs]
    of_stages = np.minimum(found[m + n :], _MOST - _exponent(np.array(most)))
    return Scaling(rows, np.where(of_integers, stages, np.exp2(np.clip(of_stages, -_EXPONENT, _EXPONENT))), columns)


def _in_range(
    arrays: LinearProgramArrays, down: Integers, up: Integers, fractional: Booleans
) -> tuple[Floats, Floats | None]:
    """Factors near to 2 ** down of rows and 2 ** up of columns with which HiGHS keeps every coefficient, if possible.

    Integer columns keep their unit, sides and bounds stay finite. In a row of integers alone, the smallest coefficient
    decides as well: such a row is made as large as it may be.
    """
    matrix, n = arrays.matrix, len(arrays.cost)
    used = matrix.data != 0
    row, column = matrix.indices[used].astype(np.int64), np.repeat(np.arange(n), np.diff(matrix.indptr))[used]
    size = np.frexp(matrix.data[used])[1].astype(np.int64) - 1
    # By how much rows may grow until a side counts as infinite, and columns shrink until a bound does.
    reach = _MOST - _exponent(arrays.row_lower, arrays.row_upper)
    narrow = _exponent(arrays.column_lower, arrays.column_upper) - _MOST
    down, up = np.minimum(down, reach), np.where(arrays.integrality, 0, np.maximum(up, narrow))
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
