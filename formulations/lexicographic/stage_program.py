"""The linear and integer programs of the stages: one relaxation, re-solved warm, and the best answer so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any

import highspy
import numpy as np

from flowlex.formulations.engines.highs import choose_algorithm, configured, keep_small, pass_model, quiet, run
from flowlex.formulations.lexicographic.branch_and_bound_leaves import Branch, Cut, Leaf
from flowlex.formulations.lexicographic.mixed_integer_rounding import Rounding
from flowlex.formulations.lexicographic.solver_watch import Watch
from flowlex.formulations.processor_clock import coarse_seconds
from flowlex.formulations.program_arrays import Booleans, Floats, Integers, LinearProgramArrays
from flowlex.formulations.solver_outcome import SolveOptions

#: A value this close to an integer counts as one.
WHOLE = 1e-6
#: After rounding by less than this, the other columns are not optimised again.
_DUST = 1e-11
#: HiGHS's ``simplex_strategy``: the dual and the primal simplex method.
_DUAL, _PRIMAL = 1, 4
#: Node limit of the search for an integer answer on the optimal face of a linear program.
_FACE_NODES = 50
#: Default limit of the leaves of a stage's tree (``max_steps``).
_LEAVES = 500
#: With strong branching: their limit within a time limit, and the most multipliers that all leaves may hold.
_TIMED_LEAVES, _MULTIPLIERS = 50_000, 20_000_000
_NO_LIMIT = 2**31 - 1
#: HiGHS's tolerance of reduced costs: those below count as zero where a bound is missing.
_DUAL_FEASIBLE = 1e-7
#: Share of a time limit that trees leave for their check.
_FOR_CHECK = 0.2
#: Columns tried at a node, pivots of each try, and tries after which averages are trusted.
_TRIED, _PIVOTS, _TRUSTED = 10, 60, 4


def close_to(value: float, gap: float) -> float:
    """Tolerance within which a bound counts as equal to a value."""
    return max(1e-6, 1e-9 * abs(value), gap * max(1.0, abs(value)) if gap else 0.0)


def raised(bound: float, step: float) -> float:
    """A bound raised to the next multiple of the step."""
    return bound if not step or not np.isfinite(bound) else float(np.ceil((bound - WHOLE) / step)) * step


class Gains:
    """How much bounds rise with a unit of branching up or down, by column (pseudo costs)."""

    def __init__(self, columns: int) -> None:
        self._sum, self._count = np.zeros((2, columns)), np.zeros((2, columns), np.int64)

    def learn(self, column: int, upper: bool, gain: float) -> None:
        """Record the gain of a branch for each unit of its column."""
        self._sum[int(upper), column] += gain
        self._count[int(upper), column] += 1

    def trusted(self, column: int, upper: bool) -> bool:
        """Whether the branch was tried often enough."""
        return bool(self._count[int(upper), column] >= _TRUSTED)

    def expected(self, column: int, upper: bool) -> float:
        """Average gain of the column, or of all if it has none."""
        count = self._count[int(upper), column]
        if count:
            return float(self._sum[int(upper), column] / count)
        return float(self._sum.sum() / max(self._count.sum(), 1))

    def order(self, columns: Integers, x: Floats) -> Integers:
        """Fractional columns, the most promising first."""
        down = x[columns] - np.floor(x[columns])
        one = np.array([self.expected(k, True) for k in columns.tolist()]) * down
        two = np.array([self.expected(k, False) for k in columns.tolist()]) * (1 - down)
        return columns[np.lexsort((-np.minimum(down, 1 - down), -np.minimum(one, two) * np.maximum(one, two)))]


@dataclass(eq=False)
class StageProgram:
    """State shared by all stages: the program, its relaxation in HiGHS, the fixed stages and the best answer."""

    arrays: LinearProgramArrays
    costs: Sequence[Floats]
    options: SolveOptions
    until: float
    nodes: int | None = None
    watch: Watch | None = None
    #: Whether columns to branch on are chosen by trying them.
    strong: bool = False
    integer: Integers = field(init=False)
    lp: highspy.Highs = field(init=False)
    kept: list[tuple[Floats, float]] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    #: Rows of the relaxation after those of the program: ``(False, k)`` keeps stage k, ``(True, k)`` is cut k.
    added: list[tuple[bool, int]] = field(default_factory=list)
    #: A ray along which the last relaxation improves without end.
    ray: Floats | None = None
    bounded: set[int] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)
    best: Floats | None = None
    #: The bound of the last integer program by HiGHS's word, and whether it calls the answer optimal.
    quoted: float | None = None
    sure: bool = False
    #: Whether the solver reports infeasibility that the tree was too large to prove.
    refuted: bool = False
    _numbers: tuple[Booleans, Integers] | None = field(default=None, repr=False)
    #: (n,) the row of each idle column that the relaxation leaves out so far; -1: none.
    asleep: Integers | None = None

    def __post_init__(self) -> None:
        self.integer = np.flatnonzero(self.arrays.integrality)
        relaxation = replace(self.arrays, integrality=np.zeros_like(self.arrays.integrality))
        self.lp = quiet(solver=choose_algorithm(relaxation, SolveOptions()), random_seed=self.options.seed)
        pass_model(self.lp, relaxation)
        keep_small(self.lp, relaxation.matrix.data, *self.costs)
        self._sleep()
        if self.watch is not None:
            self.watch.follow(self.lp, integer=False, columns=len(self.arrays.cost))

    @property
    def leaves(self) -> int:
        """How many leaves a tree may have."""
        if self.options.max_steps or not self.strong or self.until == inf:
            return self.options.max_steps or _LEAVES
        return max(_LEAVES, min(_TIMED_LEAVES, _MULTIPLIERS // (1 + len(self.arrays.row_lower))))

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return coarse_seconds() > self.until or (self.watch is not None and self.watch.interrupted)

    @property
    def late(self) -> bool:
        """Whether the tree must end: of a time limit, a share is left for the exact check of its leaves."""
        share = _FOR_CHECK * (self.options.time_limit_s or 0.0) if self.strong else 0.0
        return self.expired or coarse_seconds() > self.until - share

    @property
    def left(self) -> float:
        """Seconds that a solver may take."""
        return max(self.until - coarse_seconds(), 0.1)

    def minimise(self, cost: Floats) -> None:
        columns = np.arange(len(cost), dtype=np.int32)
        self.lp.changeColsCost(len(columns), columns, cost)

    def keep(self, cost: Floats, value: float, step: float, allowance: float = 0.0) -> None:
        """Fix a stage at its value, or at most ``allowance`` above it, from now on."""
        used = np.flatnonzero(cost)
        # The best answer reaches it, but for rounding.
        side = value + allowance + (0.0 if step else 1e-13 * max(1.0, abs(value)))
        self.lp.addRow(-inf, side, len(used), used.astype(np.int32), cost[used])
        self.added.append((False, len(self.kept)))
        self._numbers = None
        self.kept.append((cost, side))

    def add_cut(self, cut: Cut) -> None:
        """Add a row that holds for all answers to the relaxation."""
        self.lp.addRow(cut.side, inf, len(cut.columns), cut.columns.astype(np.int32), cut.values)
        self.added.append((True, len(self.cuts)))
        self._numbers = None
        self.cuts.append(cut)

    def drop_slack_cuts(self) -> None:
        """Take cuts that are slack at the vertex out of the relaxation, which stays solved."""
        basis = self.lp.getBasis()
        if not basis.valid:
            return
        m, status = len(self.arrays.row_lower), list(basis.row_status)
        slack = [
            is_cut and status[m + k] == highspy.HighsBasisStatus.kBasic for k, (is_cut, _) in enumerate(self.added)
        ]
        if not any(slack):
            return
        rows = m + np.flatnonzero(slack).astype(np.int32)
        self.lp.deleteRows(len(rows), rows)
        self.added = [each for each, gone in zip(self.added, slack, strict=True) if not gone]
        self._numbers = None
        basis.row_status = status[:m] + [each for each, gone in zip(status[m:], slack, strict=True) if not gone]
        self.lp.setBasis(basis)

    def apart(self, duals: Floats) -> tuple[Floats, Floats, Floats]:
        """Duals of the program's rows, of the stages before, and of the cuts."""
        m = len(self.arrays.row_lower)
        earlier, cuts = np.zeros(len(self.kept)), np.zeros(len(self.cuts))
        is_cut, number = self._added
        more = duals[m : m + len(number)]
        is_cut, number = is_cut[: len(more)], number[: len(more)]
        cuts[number[is_cut]] = np.maximum(more[is_cut], 0.0)
        earlier[number[~is_cut]] = np.minimum(more[~is_cut], 0.0)
        return duals[:m].copy(), earlier, cuts

    @property
    def _added(self) -> tuple[Booleans, Integers]:
        """Of each added row, whether it is a cut, and which cut or stage."""
        if self._numbers is None:
            self._numbers = (
                np.array([flag for flag, _ in self.added], bool),
                np.array([number for _, number in self.added], np.int64),
            )
        return self._numbers

    @cached_property
    def rounding(self) -> Rounding:
        """Sums of rows that can be rounded."""
        return Rounding(self.arrays)

    @cached_property
    def transposed(self) -> Any:
        """The matrix with a row for each column."""
        return self.arrays.matrix.T

    def added_to(self, sums: Floats, multipliers: Floats) -> Floats:
        """Add the rows in ``added``, times their multipliers, to a sum of rows, (columns,), in place."""
        for number in np.flatnonzero(multipliers).tolist():
            is_cut, k = self.added[number]
            if is_cut:
                sums[self.cuts[k].columns] += multipliers[number] * self.cuts[k].values
            else:
                stage_cost, _ = self.kept[k]
                sums += multipliers[number] * stage_cost
        return sums

    def relax(self, branches: tuple[Branch, ...], cost: Floats) -> tuple[Leaf, Floats | None]:
        """Solve the linear program of a leaf; return the leaf with the bound of its duals, and the vertex."""
        low, high = self._bounds(branches)
        for column in self.bounded | {branch.column for branch in branches}:
            self.lp.changeColBounds(column, float(low[column]), float(high[column]))
        self.bounded = {branch.column for branch in branches}
        crossed = next((b.column for b in branches if low[b.column] > high[b.column]), None)
        if crossed is not None:
            none = np.zeros(len(self.arrays.row_lower) + len(self.added))
            return Leaf(branches, *self.apart(none)[:2], 0, inf), None
        # The last vertex stays primal feasible if only the cost changed, and dual feasible if bounds did.
        self.lp.setOptionValue("simplex_strategy", _DUAL if branches or not self.kept else _PRIMAL)
        self.lp.setOptionValue("presolve", "choose")
        if self.until < inf:
            self.lp.setOptionValue("time_limit", self.lp.getRunTime() + self.left)
        run(self.lp)
        status = self.lp.getModelStatus()
        for strategy in (_DUAL, _PRIMAL):
            if status != highspy.HighsModelStatus.kUnknown:
                break
            self.lp.setOptionValue("simplex_strategy", strategy)  # numerical trouble: drop the last basis
            self.lp.clearSolver()
            run(self.lp)
            status = self.lp.getModelStatus()
        self.lp.setOptionValue("solver", "simplex")
        stopped = (highspy.HighsModelStatus.kTimeLimit, highspy.HighsModelStatus.kInterrupt)
        if status in stopped or status == highspy.HighsModelStatus.kUnknown:  # nothing is known of this leaf
            return self.leaf(branches, np.zeros(len(self.arrays.row_lower)), 1, cost, low, high), None
        infeasible, unbounded = highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnbounded
        unclear = status in (unbounded, highspy.HighsModelStatus.kUnboundedOrInfeasible)
        if unclear or (status == infeasible and not self.lp.getDualRay()[1]):
            # Presolve of HiGHS 1.15 calls some unbounded programs infeasible (random problem 5555).
            self.lp.setOptionValue("presolve", "off")
            self.lp.clearSolver()
            run(self.lp)
            status = self.lp.getModelStatus()
        if status == infeasible:
            return self._empty(branches, low, high), None
        if status == unbounded or unclear:
            self.ray = self._best_direction(cost)
            none = np.zeros(len(self.arrays.row_lower) + len(self.added))
            return Leaf(branches, *self.apart(none)[:2], 1, -inf), None
        if status not in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kModelEmpty):
            raise RuntimeError(f"HiGHS ends a relaxation with {self.lp.modelStatusToString(status)!r}")
        solution = self.lp.getSolution()
        leaf = self.leaf(branches, np.array(solution.row_dual), 1, cost, low, high)
        return leaf, np.array(solution.col_value)

    def try_branches(self, columns: Integers, x: Floats, bound: float, cutoff: float, gains: Gains) -> int:
        """The column of some fractional ones whose two branches raise the bound most, by trying some of them.

        ``columns`` come best first by the gains known; ``x`` is the vertex of the relaxation that was solved last.
        """
        lp, best, chosen = self.lp, -1.0, int(columns[0])
        basis = lp.getBasis()
        lp.setOptionValue("simplex_iteration_limit", _PIVOTS)
        lp.setOptionValue("simplex_strategy", _DUAL)
        low, high = lp.getLp().col_lower_, lp.getLp().col_upper_
        for place, column in enumerate(columns.tolist()):
            below = float(np.floor(x[column]))
            found = []
            for upper in (True, False):
                apart = x[column] - below if upper else below + 1 - x[column]
                if gains.trusted(column, upper) or place >= _TRIED:
                    found.append(gains.expected(column, upper) * apart)
                    continue
                sides = (low[column], below) if upper else (below + 1, high[column])
                lp.changeColBounds(column, *sides)
                run(lp)
                status = lp.getModelStatus()
                if status == highspy.HighsModelStatus.kInfeasible:
                    gain = inf
                elif np.isfinite(bound) and status in (
                    highspy.HighsModelStatus.kOptimal,
                    highspy.HighsModelStatus.kIterationLimit,
                ):
                    gain = max(float(lp.getInfo().objective_function_value) - bound, 0.0)
                    gains.learn(column, upper, gain / apart)
                else:
                    gain = 0.0
                lp.changeColBounds(column, low[column], high[column])
                lp.setBasis(basis)
                found.append(inf if bound + gain >= cutoff else gain)
            small, large = min(found), max(found)
            size = max(abs(bound), 1.0)
            score = max(min(small, size), 1e-6 * size) * max(min(large, size), 1e-6 * size)
            score *= 1 + np.isinf(found).sum()
            if score > best * (1 + 1e-9):
                best, chosen = score, column
            if small == inf or self.late:
                break
        lp.setOptionValue("simplex_iteration_limit", _NO_LIMIT)
        return chosen

    def _bounds(self, branches: tuple[Branch, ...]) -> tuple[Floats, Floats]:
        low, high = self.arrays.column_lower.copy(), self.arrays.column_upper.copy()
        for b in branches:
            if b.upper:
                high[b.column] = min(high[b.column], b.side)
            else:
                low[b.column] = max(low[b.column], b.side)
        return low, high

    def _best_direction(self, cost: Floats) -> Floats:
        """The direction in the cone of all rows and bounds, with entries in -1..1, along which the cost falls most."""
        a = self.arrays
        solver = quiet()
        pass_model(
            solver,
            replace(
                a,
                cost=cost,
                offset=0.0,
                maximize=False,
                integrality=np.zeros_like(a.integrality),
                row_lower=np.where(np.isfinite(a.row_lower), 0.0, -inf),
                row_upper=np.where(np.isfinite(a.row_upper), 0.0, inf),
                column_lower=np.where(np.isfinite(a.column_lower), 0.0, -1.0),
                column_upper=np.where(np.isfinite(a.column_upper), 0.0, 1.0),
            ),
        )
        for before, _ in self.kept:
            used = np.flatnonzero(before)
            solver.addRow(-inf, 0.0, len(used), used.astype(np.int32), before[used])
        run(solver)
        return np.array(solver.getSolution().col_value)

    def _empty(self, branches: tuple[Branch, ...], low: Floats, high: Floats) -> Leaf:
        """The leaf with the multipliers that show that it has no answer."""
        _, found, ray = self.lp.getDualRay()
        duals = np.array(ray) if found else np.zeros(len(self.arrays.row_lower) + len(self.added))
        duals = duals / max(float(np.abs(duals).max(initial=0)), 1e-12)
        none = np.zeros(len(self.arrays.cost))
        each = [self.leaf(branches, sign * duals, 0, none, low, high) for sign in (1.0, -1.0)]
        best = max(each, key=lambda leaf: leaf.bound)
        return replace(best, bound=inf)

    def leaf(
        self, branches: tuple[Branch, ...], duals: Floats, own: int, cost: Floats, low: Floats, high: Floats
    ) -> Leaf:
        """The leaf with the bound that multipliers prove, in floating point; certificates recompute it exactly."""
        y, earlier, cuts = self.apart(np.pad(duals, (0, len(self.arrays.row_lower) + len(self.added) - len(duals))))
        y = self.signed(y)
        total = self.total(own * cost, y, earlier, cuts, low, high)
        return Leaf(branches, y, earlier, own, total, cuts)

    def signed(self, y: Floats) -> Floats:
        """Multipliers of rows without those against a side that a row does not have."""
        side = np.where(y > 0, self.arrays.row_lower, self.arrays.row_upper)
        return np.where(np.isfinite(side), y, 0.0)

    def total(
        self, cost: Floats, y: Floats, earlier: Floats, cuts: Floats, low: Floats, high: Floats, extra: float = 0.0
    ) -> float:
        """The lower bound on a cost that multipliers show, in floating point; tiny reduced costs count 0."""
        a = self.arrays
        side = np.where(y > 0, a.row_lower, a.row_upper)
        reduced = cost - self.transposed @ y
        total = float(y @ np.where(np.isfinite(side), side, 0)) + extra
        for multiplier, (before, value) in zip(earlier, self.kept, strict=False):
            if multiplier:
                reduced = reduced - multiplier * before
                total += multiplier * value
        for k in np.flatnonzero(cuts).tolist():
            cut = self.cuts[k]
            reduced[cut.columns] -= cuts[k] * cut.values
            total += cuts[k] * cut.side
        end = np.where(reduced > 0, low, high)
        size = float(np.abs(cost).max(initial=0))
        used = np.abs(reduced) > np.where(np.isfinite(end), 1e-11, _DUAL_FEASIBLE * (1 + size))
        return total + float(reduced[used] @ end[used])

    def integral(self, values: Floats) -> bool:
        """Whether all integer columns have integer values."""
        x = values[self.integer]
        return bool((np.abs(x - np.rint(x)) <= WHOLE).all())

    def rounded(self, values: Floats) -> Floats:
        """The values with integer columns rounded, and the other columns optimised again."""
        values = values.copy()
        whole = np.rint(values[self.integer])
        apart = np.abs(values[self.integer] - whole).max(initial=0)
        values[self.integer] = whole
        values = self.settled(values)
        if len(self.integer) < len(values) and (apart > _DUST or not self.keeps(values)):
            columns = self.integer.astype(np.int32)
            self.lp.changeColsBounds(len(columns), columns, whole, whole)
            self.bounded |= set(columns.tolist())
            run(self.lp)
            if self.lp.getModelStatus() == highspy.HighsModelStatus.kOptimal:
                found = np.array(self.lp.getSolution().col_value)
                found[self.integer] = whole
                return self.settled(found)
        return values

    def tidied(self, values: Floats) -> Floats:
        """The values with those that are almost simple fractions rounded, if rows and earlier stages allow it.

        A stage of fractional columns is kept within a tolerance, which later stages use up.
        """
        a = self.arrays
        for parts in (60, 1):
            near = np.rint(values * parts)
            found = np.where(np.abs(values * parts - near) <= WHOLE, near / parts, values)
            holds = True
            rows = np.asarray(a.matrix @ values), np.asarray(a.matrix @ found), abs(a.matrix) @ np.abs(found)
            columns = values, found, np.abs(found)
            for (before, after, size), low, high in (
                (rows, a.row_lower, a.row_upper),
                (columns, a.column_lower, a.column_upper),
            ):
                slack = np.maximum(np.maximum(low - before, before - high).clip(0), 1e-12 * size)
                holds = holds and not ((after < low - slack) | (after > high + slack)).any()
            worth = [(float(cost @ values), float(cost @ found)) for cost, _ in self.kept]
            if holds and all(after <= before + 1e-9 * max(1.0, abs(before)) for before, after in worth):
                return found
        return values

    def keeps(self, values: Floats, tolerance: float = 1e-9) -> bool:
        """Whether values satisfy all bounds and rows."""
        a = self.arrays
        rows = np.asarray(a.matrix @ values)
        for value, low, high in ((values, a.column_lower, a.column_upper), (rows, a.row_lower, a.row_upper)):
            slack = tolerance * np.maximum(1.0, np.abs(value))
            if ((value < low - slack) | (value > high + slack)).any():
                return False
        return True

    @cached_property
    def idle(self) -> tuple[Integers, Integers, Floats, Booleans] | None:
        """Columns in one row alone, no two in the same, that costs want small, or want large; None: there are none.

        With the row of each, its coefficient there, and whether it is wanted small.
        """
        if len(self.costs) < 2:
            return None
        matrix = self.arrays.matrix.tocsc()
        costs = np.array(self.costs)
        small, large = np.asarray((costs >= 0).all(axis=0)), np.asarray((costs <= 0).all(axis=0))
        columns = np.flatnonzero((np.diff(matrix.indptr) == 1) & (small != large))
        rows = matrix.indices[matrix.indptr[columns]].astype(np.int64)
        alone = np.bincount(rows, minlength=matrix.shape[0])[rows] == 1
        columns, rows = columns[alone], rows[alone]
        return (columns, rows, matrix.data[matrix.indptr[columns]], small[columns]) if len(columns) else None

    def _sleep(self) -> None:
        """Leave out rows that a column without a cost can satisfy whatever the others are, until it has one."""
        if self.idle is None:
            return
        a = self.arrays
        columns, rows, coefficient, small = self.idle
        # The least and the largest sum of the other terms of each row.
        entries = a.matrix.tocsr()[rows].tocoo()
        other = entries.col != columns[entries.row]
        row, column, value = entries.row[other], entries.col[other], entries.data[other]
        ends = value * a.column_lower[column], value * a.column_upper[column]
        least = np.bincount(row, np.minimum(*ends), len(rows))
        most = np.bincount(row, np.maximum(*ends), len(rows))
        # Of rows with one side: the value of the column from which on, against its cost, the row always holds.
        below, above = np.isfinite(a.row_lower[rows]), np.isfinite(a.row_upper[rows])
        with np.errstate(invalid="ignore"):
            enough = np.where(below, a.row_lower[rows] - least, a.row_upper[rows] - most) / coefficient
        reachable = np.where(small, enough <= a.column_upper[columns] + 1e-9, enough >= a.column_lower[columns] - 1e-9)
        opposed = below == ((coefficient > 0) == small)
        asleep = (below != above) & opposed & reachable
        self.asleep = np.full(len(a.cost), -1, np.int64)
        self.asleep[columns[asleep]] = rows[asleep]
        for number in rows[asleep].tolist():
            self.lp.changeRowBounds(number, -inf, inf)

    def wake(self, cost: Floats) -> None:
        """Bring back the rows of columns that have a cost from now on; a feasible vertex stays feasible."""
        if self.asleep is None or not len(columns := np.flatnonzero((self.asleep >= 0) & (cost != 0))):
            return
        a, lp, rows = self.arrays, self.lp, self.asleep[columns]
        for row in rows.tolist():
            lp.changeRowBounds(row, float(a.row_lower[row]), float(a.row_upper[row]))
        self.asleep[columns] = -1
        basis = lp.getBasis()
        if not basis.valid:
            return
        sums = np.array(lp.getSolution().row_value)[rows]
        below, above = sums < a.row_lower[rows] - WHOLE, sums > a.row_upper[rows] + WHOLE
        col_status, row_status = list(basis.col_status), list(basis.row_status)
        for k in np.flatnonzero(below | above).tolist():  # the column enters in place of the row's slack
            if row_status[rows[k]] == highspy.HighsBasisStatus.kBasic:
                col_status[columns[k]] = highspy.HighsBasisStatus.kBasic
                row_status[rows[k]] = highspy.HighsBasisStatus.kLower if below[k] else highspy.HighsBasisStatus.kUpper
        basis.col_status, basis.row_status = col_status, row_status
        lp.setBasis(basis)

    def settled(self, values: Floats) -> Floats:
        """The values with columns that only one row holds as cheap for the stages as this row allows.

        An answer of one stage leaves them anywhere; made cheap, it is often the answer of the next stages as well.
        """
        if self.idle is None:
            return values
        a = self.arrays
        columns, rows, coefficient, small = self.idle
        x = values[columns]
        others = np.asarray(a.matrix @ values)[rows] - coefficient * x
        ends = (a.row_lower[rows] - others) / coefficient, (a.row_upper[rows] - others) / coefficient
        least = np.maximum(a.column_lower[columns], np.minimum(*ends))
        most = np.minimum(a.column_upper[columns], np.maximum(*ends))
        whole = a.integrality[columns]
        least, most = np.where(whole, np.ceil(least - WHOLE), least), np.where(whole, np.floor(most + WHOLE), most)
        cheap = np.where(small, least, most)
        better = np.isfinite(cheap) & (np.abs(cheap - x) > _DUST) & (least <= most)
        if not better.any():
            return values
        values = values.copy()
        values[columns[better]] = cheap[better]
        return values

    def begin(self, values: Floats) -> None:
        """Make values the best answer if, once rounded, they satisfy all bounds and rows."""
        found = self.rounded(values)
        if self.keeps(found, WHOLE):
            self.best = found

    def take(self, values: Floats, cost: Floats) -> bool:
        """Make values that are integer where required the best answer, if they are no worse.

        False: they satisfy the rows only before they are rounded.
        """
        found = self.rounded(values)
        if self._moves_rows(found, values) and not self.keeps(found, WHOLE):
            return False
        if self.best is None or cost @ found <= cost @ self.best + close_to(float(cost @ self.best), 0):
            self.best = found
        return True

    def _moves_rows(self, found: Floats, values: Floats) -> bool:
        """Whether rounding integer columns changes a row by more than its tolerance, as with large coefficients."""
        apart = np.zeros(len(values))
        apart[self.integer] = np.abs(found[self.integer] - values[self.integer])
        if not apart.any():
            return False
        moved, rows = abs(self.arrays.matrix) @ apart, np.asarray(self.arrays.matrix @ found)
        return bool((moved > WHOLE * np.maximum(1.0, np.abs(rows))).any())

    def reached(self, bound: float, cost: Floats, step: float) -> bool:
        """Whether the best answer is as good as a bound."""
        if self.best is None:
            return False
        value = float(cost @ self.best)
        return value - raised(bound, step) <= close_to(value, 0)

    def overlooks(self, cost: Floats, value: float) -> bool:
        """Whether costs that count as zero within the solver's tolerance may change a value by more than its own."""
        small = np.flatnonzero((np.abs(cost) <= _DUAL_FEASIBLE) & (cost != 0))
        a = self.arrays
        share = np.abs(cost[small]) * (a.column_upper[small] - a.column_lower[small])
        return bool(share.sum() > close_to(value, self.options.gap))

    def whole_program(self, cost: Floats) -> tuple[Floats | None, bool]:
        """Solve the integer program with HiGHS from the best answer; return an answer and whether it is proven."""
        solver = self._whole_solver(replace(self.arrays, cost=cost, offset=0.0, maximize=False))
        for before, value in self.kept:
            used = np.flatnonzero(before)
            solver.addRow(-inf, value, len(used), used.astype(np.int32), before[used])
        if self.best is not None:
            start = highspy.HighsSolution()
            start.col_value = self.best.tolist()
            solver.setSolution(start)
        run(solver)
        self.methods.add("integer program")
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None, True
        quoted = float(solver.getInfo().mip_dual_bound) if len(self.integer) else None
        self.quoted = quoted if quoted is not None and np.isfinite(quoted) else None
        self.sure = status == highspy.HighsModelStatus.kOptimal
        if solver.getInfo().primal_solution_status != 2:
            return None, False
        return np.array(solver.getSolution().col_value), status == highspy.HighsModelStatus.kOptimal

    def _whole_solver(self, arrays: LinearProgramArrays) -> highspy.Highs:
        left = None if self.until == inf else self.left
        if self.watch is not None and self.watch.interrupted:
            left = 0.1
        steps = self.options.max_steps if self.nodes is None else self.nodes
        solver = configured(
            replace(self.options, time_limit_s=left, max_steps=steps, solver=None), "choose", is_mip=True
        )
        pass_model(solver, arrays)
        keep_small(solver, arrays.matrix.data, *self.costs)
        if self.watch is not None:
            self.watch.follow(solver, integer=True, columns=len(arrays.cost), reporting=bool(arrays.cost.any()))
        return solver

    def on_face(self, root: Leaf, cost: Floats) -> Floats | None:
        """An integer answer at which the bound of the linear program is tight; None if none is found soon.

        By complementary slackness, columns with a reduced cost are at their bounds and rows with a dual at their
        sides; this leaves a small program without an objective.
        """
        a = self.arrays
        reduced = cost - a.matrix.T @ root.rows
        kept = [(before, side, e) for (before, side), e in zip(self.kept, root.earlier, strict=False)]
        for before, _, multiplier in kept:
            reduced = reduced - multiplier * before
        for k in np.flatnonzero(root.cuts).tolist():
            reduced[self.cuts[k].columns] -= root.cuts[k] * self.cuts[k].values
        low = np.where(reduced < -WHOLE, a.column_upper, a.column_lower)
        high = np.where(reduced > WHOLE, a.column_lower, a.column_upper)
        at_lower, at_upper = root.rows > WHOLE, root.rows < -WHOLE
        solver = self._whole_solver(
            replace(
                a,
                column_lower=low,
                column_upper=high,
                row_lower=np.where(at_upper, a.row_upper, a.row_lower),
                row_upper=np.where(at_lower, a.row_lower, a.row_upper),
                cost=np.zeros_like(cost),
                offset=0.0,
                maximize=False,
            )
        )
        for before, side, multiplier in kept:
            used = np.flatnonzero(before)
            least = side if multiplier < -WHOLE else -inf
            solver.addRow(least, side, len(used), used.astype(np.int32), before[used])
        solver.setOptionValue("mip_max_nodes", _FACE_NODES)
        run(solver)
        if solver.getInfo().primal_solution_status != 2:
            return None
        return self.rounded(np.array(solver.getSolution().col_value))
