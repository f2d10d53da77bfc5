"""Decreasing minimisation level by level, each on the optimal face of the levels before.

At level k the parts of the loads above ``(k - 1) * width`` are minimised. A dual optimum describes all primal ones
(complementary slackness): columns with a reduced cost stay at their bound, rows with a price are tight. So instead of
a dense row that fixes the level, columns, rows and loads are *settled*, by their bounds.

The next level is the highest that a load which is not settled reaches in the answer at hand. Where that level turns
out to need none of these loads, one program finds how low the largest of them can be. So there are at most two
programs for each different load of the answer, however many units it has.

So all levels are one program: load u is at most ``edge + above_u``, what is above costs 1, and from level to level only
bounds change. The last basis stays dual feasible, and the dual simplex method goes on from it (70 VGG16 jobs, port
loads: 0.2 s a level instead of 0.9 cold; a warm primal simplex stalls on these degenerate faces). Without a session,
the program of each level is made anew from what is left.

Source: decreasing minimisation, Frank and Murota (2022); faces by complementary slackness are textbook.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy

from flowlex.formulations.arrays import Floats, Integers, LinearProgramArrays
from flowlex.formulations.expression import Expression
from flowlex.formulations.lexicographic.problem import (
    WHOLE,
    LexicographicProgram,
    LexicographicResult,
    Route,
    Stage,
    is_whole,
)
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import Outcome, Status
from flowlex.formulations.sessions.bounded import BoundedProgram

__all__ = ["OpenSession", "Report", "minimize_on_faces"]

#: Opens a session for a program; None where the engine has none.
OpenSession: TypeAlias = Callable[[LinearProgramArrays], BoundedProgram | None]
#: Called before each further level, with what makes a result of the levels so far.
Report: TypeAlias = Callable[[Callable[[], LexicographicResult | None]], None]
_ZERO = 1e-7


def minimize_on_faces(
    problem: LexicographicProgram,
    solve: Callable[[LinearProgram], Outcome],
    at_least: int = 0,
    *,
    fractional: bool = False,
    session: OpenSession = lambda arrays: None,
    report: Report | None = None,
) -> LexicographicResult | None:
    """Minimise level by level; the objective before all levels (`LexicographicProgram.first`) is ignored.

    Parameters
    ----------
    solve
        Solves one program.
    at_least
        A known lower bound of the largest level; 0 when none is known.
    fractional
        Whether the answer may be fractional; otherwise it is in integers.
    session
        Opens a session, in which levels start from the basis of the one before.
    report
        Called before each further level.

    Returns
    -------
    LexicographicResult
        Status ``feasible`` when ``solve`` stopped (at a limit) after some levels: then those are proven that have a
        stage. None when a stage's optimum is fractional, or no integers lie on the last face: linear programs alone
        then do not lead to an answer.
    """
    faces = _Faces(problem, solve, session, fractional)
    level, outcome = at_least, None
    if level:
        outcome = faces.level(level)
    if outcome is None or outcome.status is Status.INFEASIBLE:
        outcome = faces.largest()
        if outcome.status is not Status.OPTIMAL:
            return faces.ended(outcome)
        level = faces.top
        outcome = faces.level(level) if level >= 1 else outcome
    while outcome.status is Status.OPTIMAL and (fractional or faces.integral):
        level = min(level - 1, faces.height)
        if level >= problem.lowest and not faces.reached:
            found = faces.largest()
            if found.objective is None:
                outcome = found
                break
            level = min(level, int(np.ceil(found.objective - WHOLE)))
        if level < problem.lowest:
            break
        if report is not None:
            report(lambda: faces.ended(Outcome(Status.TIME_LIMIT, "highs"), tries=1))
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

    def __init__(
        self,
        problem: LexicographicProgram,
        solve: Callable[[LinearProgram], Outcome],
        session: OpenSession,
        fractional: bool,
    ) -> None:
        self.problem, self.solve, self.fractional = problem, solve, fractional
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
        self.top, self.solves = 0, 0
        #: Whether the optima of all levels are integers; whether the last level needed loads that were not settled.
        self.integral, self.reached = True, True
        self.stages: list[Stage] = []
        self.values: Floats | None = None
        self.session = session(self._session_arrays())

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

    def _session_arrays(self) -> LinearProgramArrays:
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
    def height(self) -> int:
        """The highest level that a load which is not settled reaches in the answer at hand."""
        assert self.values is not None
        loads = np.asarray(self.loads @ self.values)[self.undecided] / self.width[self.undecided]
        return int(np.ceil(loads.max(initial=0.0) - WHOLE))

    def largest(self) -> Outcome:
        """How low the largest of the loads that are not settled can be."""
        program = self._program(np.zeros(0, np.int64))
        largest = program.variables("largest", 1, upper=float(self.problem.levels))
        held, load = self._held()
        at = np.flatnonzero(self.undecided)
        spread = largest.repeated(len(at)) * self.width[at]
        program.constrain("largest_link", _expression(load[at], held[at]) - spread, "<=", 0.0)
        program.minimize(largest.sum())
        outcome = self.solve(program)
        self.solves += 1
        if outcome.objective is not None and outcome.values is not None:
            self.top = max(self.top, int(np.ceil(outcome.objective - WHOLE)))
            self.values = self.lower.copy()
            self.values[self.kept] = outcome.values[: len(self.kept)]
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

    def _warm(self, session: BoundedProgram, level: int, active: Integers) -> tuple[Outcome, _Prices | None]:
        """Solve the next level from the basis of the last."""
        count, loads = len(self.lower), len(self.width)
        cost, room, most = np.zeros(count + loads), np.zeros(loads), self.high.copy()
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

    def _cold(self, level: int, active: Integers) -> tuple[Outcome, _Prices | None]:
        """Solve a program of what is free."""
        program = self._program(active)
        held, load = self._held()
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

    def _settle(self, level: int, active: Integers) -> Outcome:
        """Minimise the parts of the active loads that are above the level before, and settle the face."""
        outcome, prices = self._cold(level, active) if self.session is None else self._warm(self.session, level, active)
        self.solves += 1
        if outcome.status is not Status.OPTIMAL or outcome.objective is None:
            return outcome
        if prices is None:  # some PuLP solvers give none
            self.integral = self.fractional = False
            return outcome
        self.values, self.reached = prices.values, outcome.objective > WHOLE
        # Loads that are higher already count in full at this level.
        value = float(outcome.objective) + float(self.width[~self.undecided].sum())
        self.integral = abs(value - round(value)) <= WHOLE
        value = value if self.fractional else float(np.ceil(value - WHOLE))
        names = self.problem.base.split_rows(prices.dual) | {"level_link": prices.rho}
        self.stages.append(Stage(level, value, value, names))
        self._fix(prices, level, active)
        return outcome

    def _fix(self, prices: _Prices, level: int, active: Integers) -> None:
        reduced, dual, rho = prices.reduced, prices.dual, prices.rho
        self.upper = np.where(reduced > _ZERO, self.lower, self.upper)
        self.lower = np.where(reduced < -_ZERO, self.upper, self.lower)
        self.row_lower = np.where(dual < -_ZERO, self.row_upper, self.row_lower)
        self.row_upper = np.where(dual > _ZERO, self.row_lower, self.row_upper)
        decided = ~self.undecided
        self.low = np.where(decided & (rho > _ZERO), self.high, self.low)
        self.high = np.where(decided & (rho < -_ZERO), self.low, self.high)
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

    def ended(self, outcome: Outcome, tries: int = 3) -> LexicographicResult | None:
        """The result, or None when it is not in integers; tries: how hard to look for integers."""
        problem, values, mips = self.problem, self.values, 0
        if not (self.integral or self.fractional):
            return None
        if values is None:
            return LexicographicResult(outcome.status, None, 0, (), "lp", outcome, self.solves)
        route: Route = "lp"
        if not self.fractional:
            if not is_whole(values):
                route = "lp, rounded within the optimal face"
                values, mips = self._rounded(values, tries)
                if values is None:
                    return None
            values = np.rint(values)
            if any(abs(problem.count(values, s.level) - s.value) > WHOLE for s in self.stages):
                return None
        status = Status.OPTIMAL if outcome.status is Status.OPTIMAL else Status.FEASIBLE
        return LexicographicResult(status, values, self.top, tuple(self.stages), route, outcome, self.solves, mips)


def _expression(matrix: scipy.sparse.csr_array, constant: Floats) -> Expression:
    found = matrix.tocoo()
    return Expression(found.row.astype(np.int64), found.col.astype(np.int64), found.data, constant)


def _hashes(rows: scipy.sparse.csr_array) -> Integers:
    """(rows,) equal for equal rows, and hardly ever for others."""
    weight = np.random.default_rng(0).integers(1 << 62, size=rows.shape[1])
    terms = np.append((rows.data * 4096).astype(np.int64) * weight[rows.indices], 0)  # wraps around
    sums = np.append(0, np.cumsum(terms))
    return np.asarray(sums[rows.indptr[1:]] - sums[rows.indptr[:-1]])
