r"""Proofs that an integer program has no better answer: a tree of linear programs, each with the duals that bound it.

Costs are in strict order; the stages before the one in question are rows ``cost_i x <= value_i``. A leaf fixes some
binary columns. Its duals y, multipliers of the earlier stages included, bound the stage by linear duality, or, where
the leaf is empty, are a ray that shows it. Whoever reads the proof needs no solver: he adds up what the duals say.
Source: branch and bound with dual bounds as in VIPR (Cheung, Gleixner and Steffy, 2017), reconstructed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import highspy
import numpy as np

from flowlex.formulations.arrays import Floats, Integers, LinearProgramArrays, exact_dot
from flowlex.formulations.engines.highs import pass_model, quiet, run

__all__ = ["UNIT", "Leaf", "Relaxation", "Search", "prove"]

#: Duals are kept as whole multiples of 1/UNIT: a bound then loses far less than 1, and holds exactly.
UNIT = 2**24
#: A value this close to a whole number is one (HiGHS keeps rows to 1e-7).
_WHOLE = 1e-6
#: Numbers beyond this are not trusted to 64 bits.
_SAFE = 2.0**58


@dataclass(frozen=True)
class Leaf:
    """A part of the binary choices with what bounds it.

    Attributes
    ----------
    fixed
        Columns with their values, in the order of the branches that led here.
    duals
        (m,) of the program's rows.
    earlier
        Multipliers, at most 0, of the rows that keep the earlier stages.
    own
        Weight of the stage, `UNIT`; 0 where the duals are a ray that shows that the leaf is empty.
    total
        ``own`` times the stage is at least this in every answer of the leaf.
    """

    fixed: tuple[tuple[int, int], ...]
    duals: Integers
    earlier: tuple[int, ...]
    own: int
    total: int

    @property
    def bound(self) -> int | None:
        """The stage is at least this; None where there is no answer at all."""
        if self.own:
            return -(-self.total // self.own)
        return None if self.total > 0 else -_NO_BOUND


_NO_BOUND = 2**62


class Relaxation:
    """A linear program that HiGHS keeps between solves; see `prove`. Its matrix and sides are whole numbers."""

    def __init__(self, arrays: LinearProgramArrays) -> None:
        self.arrays = replace(arrays, integrality=np.zeros_like(arrays.integrality))
        self.binary: Integers = np.flatnonzero(arrays.integrality)
        self._matrix = arrays.matrix.T.astype(np.int64)
        self._highs = quiet(presolve="off", solver="simplex")
        pass_model(self._highs, self.arrays)
        self._cost: Integers = np.zeros(len(arrays.cost), np.int64)
        self._kept: list[tuple[Integers, int]] = []
        self._fixed: dict[int, int] = {}

    def minimise(self, cost: Integers) -> None:
        """What to minimise next."""
        self._cost = cost
        columns = np.arange(len(cost), dtype=np.int32)
        self._highs.changeColsCost(len(columns), columns, cost.astype(np.float64))

    def keep(self, cost: Integers, value: int) -> None:
        """Keep a stage at its optimum from now on."""
        used = np.flatnonzero(cost)
        self._highs.addRow(-inf, float(value), len(used), used.astype(np.int32), cost[used].astype(np.float64))
        self._kept.append((cost, value))

    def solve(self, fixed: tuple[tuple[int, int], ...]) -> tuple[Leaf, Floats]:
        """The leaf of some fixed columns, and the values of all columns (none where it is empty)."""
        wanted = dict(fixed)
        for column in self._fixed.keys() | wanted.keys():
            low, high = (wanted[column],) * 2 if column in wanted else (0, self.arrays.column_upper[column])
            self._highs.changeColBounds(column, float(low), float(high))
        self._fixed = wanted
        run(self._highs)
        status = self._highs.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            _, found, ray = self._highs.getDualRay()
            rays = [sign * np.array(ray) for sign in (1, -1)] if found else [np.zeros(len(self.arrays.row_lower))]
            leaves = [self.leaf(fixed, y / max(np.abs(y).max(initial=0), 1e-9), 0) for y in rays]
            return max(leaves, key=lambda leaf: leaf.total), np.zeros(0)
        if status != highspy.HighsModelStatus.kOptimal:
            raise RuntimeError(f"HiGHS ends a relaxation with {self._highs.modelStatusToString(status)!r}")
        solution = self._highs.getSolution()
        return self.leaf(fixed, np.array(solution.row_dual), 1), np.array(solution.col_value)

    def leaf(self, fixed: tuple[tuple[int, int], ...], duals: Floats, own: int) -> Leaf:
        """What duals, rounded to whole multiples of 1/UNIT, prove: exact."""
        a, rows = self.arrays, len(self.arrays.row_lower)
        if float(np.abs(duals).max(initial=0)) * UNIT > _SAFE:
            return Leaf(fixed, np.zeros(rows, np.int64), (0,) * len(self._kept), own * UNIT, -_NO_BOUND * UNIT)
        scaled = np.rint(np.pad(duals, (0, rows + len(self._kept) - len(duals))) * UNIT).astype(np.int64)
        y, earlier = scaled[:rows], np.minimum(scaled[rows:], 0)
        side = np.where(y > 0, a.row_lower, a.row_upper)
        y = np.where(np.isfinite(side), y, 0)
        low, high = a.column_lower.copy(), a.column_upper.copy()
        columns = [column for column, _ in fixed]
        low[columns] = high[columns] = [value for _, value in fixed]
        reduced = own * UNIT * self._cost - self._matrix @ y
        for each, (cost, _) in zip(earlier, self._kept, strict=True):
            reduced = reduced - each * cost
        end = np.where(reduced > 0, low, high)
        total = exact_dot(y, np.where(y == 0, 0, side).astype(np.int64)) + exact_dot(reduced, end.astype(np.int64))
        total += sum(int(each) * value for each, (_, value) in zip(earlier, self._kept, strict=True))
        return Leaf(fixed, y, tuple(earlier.tolist()), own * UNIT, total)


@dataclass(frozen=True)
class Search:
    """What a search leaves: the best value known, and leaves that together cover all choices."""

    value: int
    leaves: tuple[Leaf, ...]

    @property
    def bound(self) -> int | None:
        """No answer has a smaller value; None where nothing is known."""
        least = min((leaf.bound for leaf in self.leaves if leaf.bound is not None), default=self.value)
        return None if least <= -_NO_BOUND else min(least, self.value)

    @property
    def proven(self) -> bool:
        """Whether nothing is better."""
        return self.bound == self.value


def prove(
    program: Relaxation, value: int, found: Callable[[Floats], int], *, most: int, until: float | None = None
) -> Search:
    """Search all choices of the binary columns for a value below ``value``, depth first.

    Parameters
    ----------
    found
        Told of the column values of an answer that is better, returns the least value known then.
    most, until
        Leaves at which the search stops, and the time (`time.perf_counter`): open choices keep the bounds that they
        have.
    """
    leaves: list[Leaf] = []
    open_: list[tuple[tuple[int, int], ...]] = [()]
    while open_:
        leaf, values = program.solve(open_.pop())
        bound = leaf.bound
        if bound is not None and bound < value and len(values):
            fraction = np.abs(values[program.binary] - np.rint(values[program.binary]))
            late = until is not None and time.perf_counter() > until
            if fraction.max(initial=0) <= _WHOLE:
                value = min(value, found(values))
            elif len(leaves) + len(open_) + 2 <= most and not late:
                column = int(program.binary[int(np.argmax(fraction > fraction.max() / 2))])
                near = int(np.rint(values[column]))
                open_ += [(*leaf.fixed, (column, side)) for side in (1 - near, near)]  # the nearer side comes first
                continue
        leaves.append(leaf)
    return Search(value, tuple(leaves))
