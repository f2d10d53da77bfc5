"""Decreasing minimisation stage by stage, each on the optimal face of the stages before.

At level k the parts of the loads above ``(k - 1) * width`` are minimised. A dual optimum describes all primal ones
(complementary slackness): columns with a reduced cost stay at their bound, rows with a price are tight. So instead of
a dense row that fixes the level, columns, rows and loads are *settled*, by their bounds.

So all levels are one program: load u is at most ``edge + above_u``, what is above costs 1, and from level to level only
bounds change. The last basis stays dual feasible, and the dual simplex method goes on from it (70 VGG16 jobs, port
loads: 0.2 s a level instead of 0.9 cold; a warm primal simplex stalls on these degenerate faces). Where no session is
at hand, the program of each level is made anew from what is left.

Source: decreasing minimisation, Frank and Murota (2022); faces by complementary slackness are textbook.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from flowlex.formulations.arrays import Floats, Integers, LinearProgramArrays
from flowlex.formulations.expression import Expression
from flowlex.formulations.lexicographic.levels import (
    WHOLE,
    LexicographicProgram,
    LexicographicResult,
    Route,
    Stage,
)
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import Outcome, Status
from flowlex.formulations.sessions.bounded import BoundedProgram

__all__ = ["minimize_on_faces"]

Solve = Callable[[LinearProgram], Outcome]
#: Keeps a program between solves; None where the engine cannot.
Keep = Callable[[LinearProgramArrays], BoundedProgram | None]
_ZERO = 1e-7


def minimize_on_faces(
    problem: LexicographicProgram,
    solve: Solve,
    at_least: int = 0,
    enough: Callable[[Stage], bool] | None = None,
    keep: Keep = lambda arrays: None,
    told: Callable[[Callable[[], LexicographicResult | None]], None] | None = None,
) -> LexicographicResult | None:
    """Minimise level by level; the answer is whole.

    Parameters
    ----------
    solve
        Solves one program.
    at_least
        A known lower bound of the largest level; 0 when none is known.
    enough
        Looks at the objective before all levels (its prices); False ends here with None.
    keep
        Opens a session, in which levels start from the basis of the one before.
    told
        Told before each further level, with what makes a result of the levels so far.

    Returns
    -------
    LexicographicResult
        Status ``feasible`` when ``solve`` stopped (at a limit) after some levels: then those are proven that have a
        stage. None when a stage's optimum, or the last answer, is not whole: this way then does not lead there.
    """
    faces = _Faces(problem, solve, keep)
    outcome = faces.first() if problem.first is not None else None
    if outcome is not None and outcome.status is not Status.OPTIMAL:
        return faces.ended(outcome)
    if outcome is not None and enough is not None and faces.is_whole and not enough(faces.stages[0]):
        return None
    lowest = 2 if problem.constant_sum is not None else 1
    level = max(at_least, faces.settled_level) if at_least else 0
    if outcome is not None:
        faces.tell(told)
    if level:
        outcome = faces.level(level)
    if not level or outcome is None or outcome.status is Status.INFEASIBLE:
        outcome = faces.largest()
        if outcome.status is not Status.OPTIMAL:
            return faces.ended(outcome)
        level = faces.top
        outcome = faces.level(level) if level >= 1 else outcome
    while outcome.status is Status.OPTIMAL:
        level -= 1
        if not faces.is_whole or level < lowest:
            break
        faces.tell(told)
        outcome = faces.level(level)
    return faces.ended(outcome)


@dataclass(frozen=True)
class _Prices:
    """Values of all columns with their reduced costs; duals of all base rows; prices of all loads."""

    values: Floats
    reduced: Floats
    dual: Floats
    rho: Floats


class _Faces:
    """What has been settled about columns, rows and loads."""

    def __init__(self, problem: LexicographicProgram, solve: Solve, keep: Keep) -> None:
        self.problem, self.solve = problem, solve
        arrays, loads = problem.base.arrays(), problem.loads
        self.matrix, self.row_lower, self.row_upper = (
            arrays.matrix.tocsr(),
            arrays.row_lower.copy(),
            arrays.row_upper.copy(),
        )
        self.lower, self.upper = arrays.column_lower.copy(), arrays.column_upper.copy()
        shape = (loads.count, len(self.lower))
        self.loads = scipy.sparse.coo_array((loads.value, (loads.row, loads.column)), shape=shape).tocsr()
        self.width, self.low = problem.width, np.zeros(loads.count)
        self.high = problem.levels * self.width
        self._merge()
        self.undecided = np.ones(loads.count, np.bool_)
        self.top, self.solves, self.is_whole = 0, 0, True
        self.stages: list[Stage] = []
        self.values: Floats | None = None
        self.session = keep(self._kept_arrays())

    def _merge(self) -> None:
        """A row of the base that is the sum of one load, as a port's is where ports are loads, is a bound of that."""
        rows, loads = _hashes(self.matrix), _hashes(self.loads)
        same, count = np.unique(loads, return_counts=True)  # of two loads of one sum, it is not known which has the row
        order = np.argsort(loads)
        place = order[np.minimum(np.searchsorted(loads[order], rows), len(order) - 1)] if len(order) else rows * 0
        at = np.flatnonzero((self.row_lower == -np.inf) & np.isin(rows, same[count == 1]))
        at = at[abs(self.matrix[at] - self.loads[place[at]]).sum(axis=1) == 0]
        np.minimum.at(self.high, place[at], self.row_upper[at])
        self.row_upper[at] = np.inf

    def _kept_arrays(self) -> LinearProgramArrays:
        """The base, and ``load - above`` of every load; bounds and costs come with every solve."""
        self.limits = np.flatnonzero((self.row_lower > -np.inf) | (self.row_upper < np.inf))
        count = self.loads.shape[0]
        above = scipy.sparse.eye_array(len(self.limits) + count, count, k=-len(self.limits))
        matrix = scipy.sparse.hstack([scipy.sparse.vstack([self.matrix[self.limits], self.loads]), -above])
        rows, columns = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[1])
        whole = np.zeros(matrix.shape[1], np.bool_)
        return LinearProgramArrays(
            scipy.sparse.csc_array(matrix), rows, rows, columns, columns, columns, 0.0, whole, maximize=False
        )

    @property
    def settled_level(self) -> int:
        """The highest level of a load that the objective before all levels has settled."""
        height = (self.low / self.width)[~self.undecided].max(initial=0.0)
        return int(np.ceil(height - WHOLE))

    def first(self) -> Outcome:
        """The objective before all levels."""
        return self._settle(self.problem.levels + 1, None)

    def largest(self) -> Outcome:
        """The largest level that there must be."""
        program = self._program(np.zeros(0, np.int64))
        largest = program.variables("largest", 1, upper=float(self.problem.levels))
        held, load = self._held()
        spread = largest.repeated(len(self.width)) * self.width
        program.constrain("largest_link", _expression(load, held) - spread, "<=", 0.0)
        program.minimize(largest.sum())
        outcome = self.solve(program)
        self.solves += 1
        if outcome.objective is not None:
            self.top = int(np.ceil(outcome.objective - WHOLE))
        return outcome

    def level(self, level: int) -> Outcome:
        """Minimise the loads' parts above ``level - 1``."""
        most = np.asarray(self.loads @ self.upper)
        before = self.high
        self.high = np.where(self.undecided, np.minimum(self.high, level * self.width), self.high)
        edge = (level - 1) * self.width
        outcome = self._settle(level, np.flatnonzero(self.undecided & (np.minimum(most, self.high) > edge + _ZERO)))
        if outcome.status is Status.INFEASIBLE:
            self.high = before
        else:
            self.top = max(self.top, level)
        return outcome

    def _warm(self, session: BoundedProgram, level: int, active: Integers | None) -> tuple[Outcome, _Prices | None]:
        """Solve the next level from the basis of the last."""
        count, loads = len(self.lower), len(self.width)
        cost, room, most = np.zeros(count + loads), np.zeros(loads), self.high.copy()
        first = self.problem.first
        if active is None:
            assert first is not None
            np.add.at(cost, first.column, first.value)
        else:
            cost[count:] = 1.0
            most[active] = (level - 1) * self.width[active]
            room[active] = self.high[active] - most[active]
        columns = np.r_[self.lower, np.zeros(loads)], np.r_[self.upper, room]
        least = np.where(self.low > _ZERO, self.low, -np.inf)
        rows = np.r_[self.row_lower[self.limits], least], np.r_[self.row_upper[self.limits], most]
        outcome = session.solve(cost, columns, rows)
        if outcome.values is None or outcome.duals is None or outcome.reduced_costs is None:
            return outcome, None
        dual = np.zeros(len(self.row_lower))
        dual[self.limits] = outcome.duals[: len(self.limits)]
        rho = -outcome.duals[len(self.limits) :]
        return outcome, _Prices(outcome.values[:count], outcome.reduced_costs[:count], dual, rho)

    def _cold(self, level: int, active: Integers | None) -> tuple[Outcome, _Prices | None]:
        """Solve a program of what is free."""
        program = self._program(np.zeros(0, np.int64) if active is None else active)
        held, load = self._held()
        if active is None:
            first = self.problem.first
            assert first is not None
            at = np.full(len(self.lower), -1)
            at[self.kept] = np.arange(len(self.kept))
            free = at[first.column] >= 0
            settled = float((first.value * self.lower[first.column])[~free].sum())
            row = np.zeros(int(free.sum()), np.int64)
            program.minimize(Expression(row, at[first.column[free]], first.value[free], np.array([settled])))
        else:
            edge = (level - 1) * self.width[active]
            above = program.variables("above", len(active), upper=self.high[active] - edge)
            program.constrain("level_link", _expression(load[active], held[active]) - above, "<=", edge)
            program.minimize(above.sum())
        outcome = self.solve(program)
        if outcome.values is None or outcome.duals is None or outcome.reduced_costs is None:
            return outcome, None
        values, reduced = self.lower.copy(), np.zeros(len(self.lower))
        values[self.kept] = outcome.values[: len(self.kept)]
        reduced[self.kept] = outcome.reduced_costs[: len(self.kept)]
        dual, rho = np.zeros(len(self.row_lower)), np.zeros(len(self.width))
        for name, part in program.split_rows(outcome.duals).items():
            if name == "level_link":
                rho[active] = -part
            elif name.startswith("base"):
                dual[self.rows[name]] += part
            else:
                rho[self.rows[name]] -= part
        return outcome, _Prices(values, reduced, dual, rho)

    def _held(self) -> tuple[Floats, scipy.sparse.csr_array]:
        fixed = np.where(self.upper > self.lower, 0.0, self.lower)
        return self.loads @ fixed, self.loads[:, self.kept]

    def _program(self, active: Integers) -> LinearProgram:
        """The columns that are free, and the rows that they could break."""
        self.kept = kept = np.flatnonzero(self.upper > self.lower)
        self.active = active
        program = LinearProgram("face")
        program.variables("rate", len(kept), lower=self.lower[kept], upper=self.upper[kept])
        most, least = self.matrix @ self.upper, self.matrix @ self.lower
        equal = self.row_lower >= self.row_upper
        over, under = self.row_upper < most - _ZERO, self.row_lower > least + _ZERO
        self.rows = {"base_equal": equal & (over | under), "base_most": over & ~equal, "base_least": under & ~equal}
        fixed = self.matrix @ np.where(self.upper > self.lower, 0.0, self.lower)
        for name, relation, bound in (
            ("base_equal", "==", self.row_upper),
            ("base_most", "<=", self.row_upper),
            ("base_least", ">=", self.row_lower),
        ):
            at = np.flatnonzero(self.rows[name])
            program.constrain(name, _expression(self.matrix[at][:, kept], fixed[at]), relation, bound[at])  # type: ignore[arg-type]
        held, load = self._held()
        others = np.ones(len(self.width), np.bool_)
        others[active] = False
        self.rows["load_most"] = others & (np.asarray(self.loads @ self.upper) > self.high + _ZERO)
        self.rows["load_least"] = others & (np.asarray(self.loads @ self.lower) < self.low - _ZERO)
        for name, relation, bound in (("load_most", "<=", self.high), ("load_least", ">=", self.low)):
            at = np.flatnonzero(self.rows[name])
            program.constrain(name, _expression(load[at], held[at]), relation, bound[at])  # type: ignore[arg-type]
        return program

    def _settle(self, level: int, active: Integers | None) -> Outcome:
        """Solve (``active``: the loads that count; None: the objective before all levels), and settle the face."""
        outcome, prices = self._cold(level, active) if self.session is None else self._warm(self.session, level, active)
        self.solves += 1
        if outcome.status is not Status.OPTIMAL or outcome.objective is None:
            return outcome
        if prices is None:  # some PuLP solvers give none
            self.is_whole = False
            return outcome
        self.values = prices.values
        value = float(outcome.objective)
        if active is None:
            value += float(self.problem.first.constant[0])  # type: ignore[union-attr]
        else:  # loads that are higher already count in full at this level
            value += float(self.width[~self.undecided].sum())
        self.is_whole = abs(value - round(value)) <= WHOLE
        names = self.problem.base.split_rows(prices.dual) | {"level_link": prices.rho}
        self.stages.append(Stage(level, float(np.ceil(value - WHOLE)), float(np.ceil(value - WHOLE)), value, names))
        self._fix(prices, level, active)
        return outcome

    def _fix(self, prices: _Prices, level: int, active: Integers | None) -> None:
        reduced, dual, rho = prices.reduced, prices.dual, prices.rho
        self.upper = np.where(reduced > _ZERO, self.lower, self.upper)
        self.lower = np.where(reduced < -_ZERO, self.upper, self.lower)
        self.row_lower = np.where(dual < -_ZERO, self.row_upper, self.row_lower)
        self.row_upper = np.where(dual > _ZERO, self.row_lower, self.row_upper)
        decided = ~self.undecided if active is not None else np.ones_like(self.undecided)
        self.low = np.where(decided & (rho > _ZERO), self.high, self.low)
        self.high = np.where(decided & (rho < -_ZERO), self.low, self.high)
        if active is None:  # a load with a price is full: it counts at every level
            self.undecided &= ~(rho > _ZERO)
            return
        edge, full = (level - 1) * self.width, level * self.width
        mine = np.zeros(len(rho), np.bool_)
        mine[active] = True
        priced = mine & (rho > _ZERO)
        self.low = np.where(priced, np.where(rho > 1 + _ZERO, np.minimum(full, self.high), edge), self.low)
        self.high = np.where(self.undecided & (rho < 1 - _ZERO), np.minimum(self.high, edge), self.high)
        self.undecided &= ~priced

    def _rounded(self, values: Floats, tries: int) -> tuple[Floats | None, int]:
        """Whole values on the face, and the integer programs it took.

        Few columns are fractional, and mostly they suffice: the others are held at first. Where that leaves no
        whole point, also what shares a row with them is free, and at last everything.
        """
        lower, upper = self.lower, self.upper
        free = np.abs(values - np.rint(values)) > WHOLE
        beside = abs(scipy.sparse.vstack([self.matrix, self.loads])).tocsr()
        near = (beside.T @ ((beside @ free.astype(np.float64)) > 0)) > 0
        for mips, chosen in enumerate((free, near, np.ones_like(free))[:tries], 1):
            self.lower = np.where(chosen, lower, np.rint(values))
            self.upper = np.where(chosen, upper, np.rint(values))
            outcome = self.solve(self._program(np.zeros(0, np.int64)).with_integer("rate"))
            if outcome.values is not None:
                found = self.lower.copy()
                found[self.kept] = np.rint(outcome.values[: len(self.kept)])
                self.lower, self.upper = lower, upper
                return found, mips
        self.lower, self.upper = lower, upper
        return None, mips

    def tell(self, told: Callable[[Callable[[], LexicographicResult | None]], None] | None) -> None:
        """Offer what there is: as if a limit had ended the search here; rounded only where that is easy."""
        if told is not None:
            told(lambda: self.ended(Outcome(Status.TIME_LIMIT, "highs"), tries=1))

    def ended(self, outcome: Outcome, tries: int = 3) -> LexicographicResult | None:
        """The result, or None when it is not whole; tries: how hard to look for whole units."""
        problem = self.problem
        if not self.is_whole:
            return None
        if self.values is None:
            return LexicographicResult(outcome.status, None, 0, {}, (), "lp", outcome, self.solves)
        values, mips = np.rint(self.values), 0
        route: Route = "lp"
        if np.abs(self.values - values).max(initial=0.0) > WHOLE:
            route = "lp, rounded within the optimal face"
            rounded, mips = self._rounded(self.values, tries)
            if rounded is None:
                return None
            values = rounded
        loads = problem.loads.evaluate(values)
        counts = {s: float(np.clip(loads - (s - 1) * self.width, 0, self.width).sum()) for s in range(1, self.top + 1)}
        if problem.first is not None:
            counts[problem.levels + 1] = float(problem.first.evaluate(values)[0])
        if any(abs(counts.pop(s.level, s.value) - s.value) > WHOLE for s in self.stages if s.level > self.top):
            return None
        if any(abs(counts.get(s.level, s.value) - s.value) > WHOLE for s in self.stages):
            return None
        status = Status.OPTIMAL if outcome.status is Status.OPTIMAL else Status.FEASIBLE
        return LexicographicResult(
            status,
            values,
            self.top,
            counts,
            tuple(self.stages),
            route,
            outcome,
            self.solves,
            mips,
        )


def _expression(matrix: scipy.sparse.csr_array, constant: Floats) -> Expression:
    found = matrix.tocoo()
    return Expression(found.row.astype(np.int64), found.col.astype(np.int64), found.data, constant)


def _hashes(rows: scipy.sparse.csr_array) -> Integers:
    """(rows,) equal for equal rows, and hardly ever for others."""
    weight = np.random.default_rng(0).integers(1 << 62, size=rows.shape[1])
    terms = np.append((rows.data * 4096).astype(np.int64) * weight[rows.indices], 0)  # wraps around
    sums = np.append(0, np.cumsum(terms))
    return np.asarray(sums[rows.indptr[1:]] - sums[rows.indptr[:-1]])
