"""The lexicographically smallest sorted vector of loads over a linear program with integer answers.

Of all integer answers, find the one whose largest load is least, then (among those) the one with the fewest loads
at that level, then at the next lower level, and so on. That is the lexicographic minimum of the loads sorted in
descending order. Three ways to the same answer:

staged
    In increment form ``load_u = sum_s y_(u,s)``, ``0 <= y_(u,s) <= 1``: minimise ``sum_u y_(u,s)`` for
    s = C, C-1, ..., fixing each optimum. All coefficients are 0 or 1.
staged, largest level first
    The same after one program that finds the least possible maximum K; levels above K then have no variables.
weighted
    One program with the literal weights ``|delta|**s``: `flowlex.formulations.lexicographic.weighted`.

The lowest level needs no program: the sum of all loads is often a constant, and then the counts of the higher
levels fix it (``constant_sum``).

Fractional answers: every stage is first a linear program, whose optimum is a bound. When the last answer is not
integer, integers are sought in the optimal face (all levels at their bounds); only if there are none does the
integer program run, from the highest level down, and the result says so.

Source: P2 to P4 of Shi et al. 2021; the staged form is finding 2 of shared/papers/jit-bandwidth.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from flowlex.formulations.arrays import Floats
from flowlex.formulations.engines import solve as solve_formulation
from flowlex.formulations.expression import Expression, Variables
from flowlex.formulations.lexicographic.lambda_representation import increments
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineName, Outcome, SolveOptions, Status

__all__ = [
    "Integrality",
    "LexicographicProgram",
    "LexicographicResult",
    "Route",
    "Stage",
    "copy_program",
    "first_program",
    "staged",
]

Integrality: TypeAlias = Literal["auto", "lp", "mip"]
#: How an integer answer was come by.
Route: TypeAlias = Literal["lp", "lp, rounded within the optimal face", "mip"]

#: Distance from an integer that counts as none.
WHOLE = 1e-6


@dataclass(frozen=True, eq=False)
class LexicographicProgram:
    """What is to be minimised lexicographically.

    Attributes
    ----------
    base
        The constraints; its objective is ignored. Its variables take integers (declared continuous).
    loads
        (U,) the loads, non-negative integers for integer answers.
    levels
        No load exceeds ``levels * width``.
    width
        (U,) load u stands for this many equal loads (slots of an interval); 1 when each is one.
    first
        An expression of one row, minimised before any level (total lateness); None when there is none.
    constant_sum
        The sum of the loads, when the constraints fix it.
    """

    base: LinearProgram
    loads: Expression
    levels: int
    width: Floats
    first: Expression | None = None
    constant_sum: float | None = None


@dataclass(frozen=True, eq=False)
class Stage:
    """One program of the sequence.

    Attributes
    ----------
    level
        The level s whose loads were counted; ``levels + 1`` for the objective before all levels; 0 for the
        program that found the largest level.
    value
        Optimum of the stage over integers (or of the linear program when integers were not asked for).
    bound
        Proven lower bound: of the linear program (rounded up), or of the integer program.
    duals
        By constraint name of the base program, and ``level_link`` for the loads, from the linear program.
    multipliers
        Level to non-negative price of the levels fixed before; key ``levels + 1`` is the objective before all.
    """

    level: int
    value: float
    bound: float
    relaxed: float
    duals: dict[str, Floats] = field(default_factory=dict, repr=False)
    multipliers: dict[int, float] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class LexicographicResult:
    """A lexicographic optimum.

    Attributes
    ----------
    status
        ``optimal`` when every stage is proven; ``feasible`` when an integer program stopped at a limit.
    values
        (columns of the base,) the answer.
    largest
        The largest level, K.
    counts
        Level s (1 .. K) to the number of loads of at least s.
    """

    status: Status
    values: Floats | None
    largest: int
    counts: dict[int, float]
    stages: tuple[Stage, ...]
    route: Route
    outcome: Outcome
    lp_solves: int = 0
    mip_solves: int = 0


def staged(
    problem: LexicographicProgram,
    *,
    engine: EngineName = "highs",
    options: SolveOptions | None = None,
    solve: Callable[[LinearProgram], Outcome] | None = None,
    integrality: Integrality = "auto",
    largest_first: bool = True,
    at_least: int = 0,
) -> LexicographicResult:
    """Minimise level by level (see the module).

    Parameters
    ----------
    engine, options
        See `flowlex.formulations.engines.solve`.
    solve
        Solves one program instead of these two (to share one deadline among all).
    integrality
        ``lp``: linear programs only, the answer may be fractional. ``mip``: integer programs only. ``auto``: linear
        programs first.
    largest_first
        Find the largest level K by a program of its own, and leave out all levels above it.
    at_least
        A known lower bound of K.

    Returns
    -------
    LexicographicResult
        Status ``infeasible`` (or what the engine said) with ``values`` None when there is no answer.
    """
    chosen = options or SolveOptions()
    by_engine = solve or (lambda program: solve_formulation(program, engine, chosen))
    run = _Run(problem, by_engine, integrality, largest_first, at_least)
    if integrality == "mip":
        return run.levels(integer=True, route="mip")
    relaxed = run.levels(integer=False, route="lp")
    if integrality == "lp" or relaxed.values is None or run.is_whole(relaxed):
        return relaxed
    rounded = run.within_face(relaxed)
    return rounded if rounded is not None else run.levels(integer=True, route="mip", bounds=relaxed)


@dataclass(eq=False)
class _Run:
    """The sequence of programs for one problem."""

    problem: LexicographicProgram
    solve: Callable[[LinearProgram], Outcome]
    integrality: Integrality
    largest_first: bool
    at_least: int
    lp_solves: int = 0
    mip_solves: int = 0
    #: Reduced costs and duals of the first objective's linear program, when it met its integer optimum.
    first_prices: tuple[Floats, dict[str, Floats]] | None = None

    def levels(self, *, integer: bool, route: Route, bounds: LexicographicResult | None = None) -> LexicographicResult:
        """Run all stages as linear or as integer programs."""
        problem = self.problem
        stages: list[Stage] = []
        fixed: dict[int, float] = {}
        outcome: Outcome | None = None
        known = {} if bounds is None else {stage.level: stage for stage in bounds.stages}
        top = problem.levels
        first: float | None = None
        if problem.first is not None:
            outcome, stage = self._stage(first_program(problem, integer), top + 1, known)
            if outcome.values is None:
                return self._failed(outcome, route)
            stages.append(stage)
            first = stage.value
            if outcome.reduced_costs is not None and abs(stage.relaxed - first) <= WHOLE:
                self.first_prices = (outcome.reduced_costs, stage.duals)
        if self.largest_first:
            outcome, stage = self._largest(integer, first, known)
            if outcome.values is None:
                return self._failed(outcome, route)
            stages.append(stage)
            top = max(round(stage.value), self.at_least)
        # The lowest level is settled by the sum of the loads, unless nothing else has given values.
        last = 2 if problem.constant_sum is not None else 1
        for level in range(top, last - 1, -1) if outcome is not None or top >= last else (1,):
            program, pieces = self._program(top, integer, fixed, first)
            program.minimize(pieces[level - 1].sum())
            outcome, stage = self._stage(program, level, known)
            if outcome.values is None:
                return self._failed(outcome, route)
            stages.append(stage)
            fixed[level] = stage.value
        assert outcome is not None and outcome.values is not None
        values = outcome.values[: problem.base.column_count]
        limited = any(stage.bound < stage.value - WHOLE for stage in stages if stage.level)
        return LexicographicResult(
            Status.FEASIBLE if integer and limited else Status.OPTIMAL,
            np.rint(values) if integer else values,
            top,
            self._counts(values, top),
            tuple(stages),
            route,
            outcome,
            self.lp_solves,
            self.mip_solves,
        )

    def within_face(self, relaxed: LexicographicResult) -> LexicographicResult | None:
        """Look for integers among the answers that meet all bounds of the linear programs."""
        stages = {stage.level: stage for stage in relaxed.stages}
        before = stages.get(self.problem.levels + 1)
        counts = {s.level: float(round(s.value)) for s in stages.values() if 0 < s.level <= relaxed.largest}
        program, _ = self._program(relaxed.largest, True, counts, None if before is None else before.value)
        outcome = self.solve(program)
        self.mip_solves += 1
        if outcome.status is not Status.OPTIMAL or outcome.values is None:
            return None
        values = np.rint(outcome.values[: self.problem.base.column_count])
        return LexicographicResult(
            Status.OPTIMAL,
            values,
            relaxed.largest,
            self._counts(values, relaxed.largest),
            relaxed.stages,
            "lp, rounded within the optimal face",
            outcome,
            self.lp_solves,
            self.mip_solves,
        )

    def is_whole(self, result: LexicographicResult) -> bool:
        """Whether a linear programming answer is integer and meets the bound of every stage."""
        assert result.values is not None
        if np.abs(result.values - np.rint(result.values)).max(initial=0.0) > WHOLE:
            return False
        counts = self._counts(np.rint(result.values), result.largest)
        return all(abs(counts[s.level] - s.value) <= WHOLE for s in result.stages if s.level in counts)

    def _largest(self, integer: bool, first: float | None, known: dict[int, Stage]) -> tuple[Outcome, Stage]:
        program = self._base(integer)
        largest = program.variables(
            "largest", 1, lower=min(self.at_least, self.problem.levels), upper=self.problem.levels, integer=integer
        )
        self._fix_first(program, first)
        width = self.problem.width
        program.constrain("largest_link", self.problem.loads - largest.repeated(len(width)) * width, "<=", 0.0)
        program.minimize(largest.sum())
        return self._stage(program, 0, known)

    def _program(
        self, top: int, integer: bool, fixed: dict[int, float], first: float | None
    ) -> tuple[LinearProgram, list[Variables]]:
        """The base with increments up to ``top`` and the levels fixed so far."""
        program = self._base(integer)
        pieces = increments(program, "level", self.problem.loads, np.arange(max(top, 1) + 1), width=self.problem.width)
        self._fix_first(program, first)
        for level, value in fixed.items():
            program.constrain(f"level_fixed_{level}", pieces[level - 1].sum(), "<=", value)
        return program, pieces

    def _base(self, integer: bool) -> LinearProgram:
        """The base; columns that no optimum of the first objective uses are closed."""
        program = copy_program(self.problem.base, integer)
        if self.first_prices is not None:
            for name, block in self.problem.base.variable_blocks.items():
                closed = self.first_prices[0][block.columns] > WHOLE
                program = program.with_upper(name, np.where(closed, block.lower, block.upper))
        return program

    def _opened(self, outcome: Outcome, own: dict[str, Floats], prices: dict[int, float]) -> None:
        """Add so much of the first objective's prices that closed columns need not be closed for the bound."""
        assert self.first_prices is not None and outcome.reduced_costs is not None
        reduced, duals = self.first_prices
        later = outcome.reduced_costs[: len(reduced)]
        wanting = (reduced > WHOLE) & (later < 0)
        times = float(np.ceil((-later[wanting] / reduced[wanting]).max(initial=0.0)))
        if times:
            for name, dual in duals.items():
                own[name] = own[name] + times * dual if name in own else times * dual
            before_all = self.problem.levels + 1
            prices[before_all] = prices.get(before_all, 0.0) + times

    def _fix_first(self, program: LinearProgram, first: float | None) -> None:
        if first is not None and self.problem.first is not None:
            program.constrain("first_fixed", self.problem.first, "<=", first)

    def _stage(self, program: LinearProgram, level: int, known: dict[int, Stage]) -> tuple[Outcome, Stage]:
        outcome = self.solve(program)
        if program.is_mip:
            self.mip_solves += 1
        else:
            self.lp_solves += 1
        if outcome.status is Status.FEASIBLE and not program.is_mip:
            return replace(outcome, status=Status.TIME_LIMIT, values=None), Stage(level, np.nan, np.nan, np.nan)
        if outcome.values is None or outcome.objective is None:
            return outcome, Stage(level, np.nan, np.nan, np.nan)
        value = float(outcome.objective)
        if program.is_mip:
            before = known.get(level)
            bound = float(np.ceil((outcome.bound if outcome.bound is not None else -np.inf) - WHOLE))
            duals, prices = ({}, {}) if before is None else (before.duals, before.multipliers)
            relaxed = value if before is None else before.relaxed
            return outcome, Stage(level, float(round(value)), bound, relaxed, duals, prices)
        whole = float(np.ceil(value - WHOLE)) if self.integrality != "lp" or level == 0 else value
        duals = {} if outcome.duals is None else program.split_rows(outcome.duals)
        prices = {
            int(name.rpartition("_")[2]): max(-float(price[0]), 0.0)
            for name, price in duals.items()
            if name.startswith("level_fixed_")
        }
        if "first_fixed" in duals:
            prices[self.problem.levels + 1] = max(-float(duals["first_fixed"][0]), 0.0)
        kept = {*self.problem.base.constraint_blocks, "level_link"}
        own = {name: price for name, price in duals.items() if name in kept}
        if "load_most" in duals:
            own["level_link"] = -duals["load_most"]
        elif self.first_prices is not None and 0 < level <= self.problem.levels:
            self._opened(outcome, own, prices)
        return outcome, Stage(level, whole, whole, value, own, prices)

    def _counts(self, values: Floats, top: int) -> dict[int, float]:
        """How many of the equal loads behind each load reach each level."""
        loads = self.problem.loads.evaluate(values)
        width = self.problem.width
        return {s: float(np.clip(loads - (s - 1) * width, 0, width).sum()) for s in range(1, top + 1)}

    def _failed(self, outcome: Outcome, route: Route) -> LexicographicResult:
        return LexicographicResult(outcome.status, None, 0, {}, (), route, outcome, self.lp_solves, self.mip_solves)


def first_program(problem: LexicographicProgram, integer: bool = False) -> LinearProgram:
    """The objective before all levels, over the base and with no load above the highest level."""
    assert problem.first is not None
    program = copy_program(problem.base, integer)
    program.constrain("load_most", problem.loads, "<=", problem.levels * problem.width)
    program.minimize(problem.first)
    return program


def copy_program(base: LinearProgram, integer: bool = False) -> LinearProgram:
    """A program with the same blocks and no objective, to which more can be added; optionally all integer."""
    program = base.with_integer() if integer else base.copy()
    program.minimize(Expression.empty(1))
    return program
