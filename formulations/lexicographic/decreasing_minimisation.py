"""The lexicographically smallest sorted vector of loads over a linear program with integer answers.

Of all integer answers, find the one whose largest load is least, then (among those) the one with the fewest loads
at that level, then at the next lower level, and so on. That is the lexicographic minimum of the loads sorted in
descending order.

Only levels that equal a load of the current answer need a program: if the answer has no more loads at a level than at
the next higher one, no answer has fewer. So the number of programs grows with the number of distinct loads, not with
their size.

Linear programs come first, each on the optimal face of the previous ones
(`flowlex.formulations.lexicographic.optimal_faces`). If one has a fractional optimum, or the last face has no integer
point, the levels are solved again from the highest down, with a row for each fixed level: by linear programs, and by
integer programs where the linear ones have fractional answers. The result names the route.

Source: P2 to P4 of Shi et al. 2021; increments: docs/papers/jit-bandwidth.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from flowlex.formulations.engines import solve as solve_formulation
from flowlex.formulations.lexicographic.lexicographic_problem import (
    WHOLE,
    Integrality,
    LexicographicProgram,
    LexicographicResult,
    Route,
    Stage,
    copy_program,
    is_whole,
)
from flowlex.formulations.lexicographic.optimal_faces import OpenSession, Report, minimize_on_faces
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Floats
from flowlex.formulations.sessions.fixed_matrix_program import BoundedProgram
from flowlex.formulations.solver_outcome import Outcome, SolveOptions, Status


def minimize_levels(
    problem: LexicographicProgram,
    solve: Callable[[LinearProgram], Outcome] = lambda program: solve_formulation(program, "highs"),
    *,
    integrality: Integrality = "auto",
    at_least: int = 0,
    session: OpenSession = lambda arrays: BoundedProgram(arrays, SolveOptions()),
    report: Report | None = None,
) -> LexicographicResult:
    """Minimise level by level (see the module).

    ``solve``: solves one program. ``integrality``: ``lp``: linear programs only, the answer may be fractional. ``mip``:
    integer programs only. ``auto``: linear programs first. ``at_least``: a known lower bound of the largest level; 0
    when none is known. ``session``, ``report``: see
    `flowlex.formulations.lexicographic.optimal_faces.minimize_on_faces`. Without an answer, ``values`` is None and
    the status is ``infeasible`` or that of the engine.

    Examples
    --------
    Five units in three slots:

    >>> base = LinearProgram("slots")
    >>> x = base.variables("x", 3, upper=4)
    >>> _ = base.constrain("amount", x.sum(), "==", 5)
    >>> found = minimize_levels(LexicographicProgram(base, x, 4, np.ones(3)))
    >>> sorted(found.values.tolist())
    [1.0, 2.0, 2.0]
    """
    if integrality != "mip" and problem.first is None:
        found = minimize_on_faces(problem, solve, session, at_least, fractional=integrality == "lp", report=report)
        if found is not None:
            return found
    return _FixedLevels(problem, solve, integrality).result()


class _FixedLevels:
    """Programs in increment form, with a row for each level that is fixed."""

    def __init__(
        self, problem: LexicographicProgram, solve: Callable[[LinearProgram], Outcome], integrality: Integrality
    ) -> None:
        self.problem, self.solve, self.integrality = problem, solve, integrality
        self.solves = {"lp": 0, "mip": 0}
        self.stages: list[Stage] = []
        self.first: float | None = None
        #: Levels with their counts.
        self.fixed: dict[int, float] = {}

    def result(self) -> LexicographicResult:
        problem, before_all = self.problem, self.problem.levels + 1
        if problem.first is not None:
            program = copy_program(problem.base)
            program.constrain("level_link", problem.loads, "<=", problem.levels * problem.width)
            program.minimize(problem.first)
            outcome = self._stage(program, before_all)
            if outcome.values is None:
                return self._ended(outcome, 0)
            self.first = self.stages[-1].value
        outcome = self._solved(self._largest())[0]
        if outcome.values is None or outcome.objective is None:
            return self._ended(outcome, 0)
        level = top = int(np.ceil(outcome.objective - WHOLE))
        while level >= problem.lowest:
            outcome = self._stage(self._program(level), level)
            if outcome.values is None:
                return self._ended(outcome, top)
            self.fixed[level] = self.stages[-1].value
            height = problem.loads.evaluate(self._base_values(outcome)) / problem.width
            level = min(level - 1, int(np.ceil(height[height < level - WHOLE].max(initial=0.0) - WHOLE)))
        return self._ended(outcome, top)

    def _largest(self) -> LinearProgram:
        """The program that minimises the largest level."""
        problem = self.problem
        program = self._base()
        largest = program.variables("largest", 1, upper=problem.levels)
        spread = largest.repeated(len(problem.width)) * problem.width
        program.constrain("largest_link", problem.loads - spread, "<=", 0.0)
        program.minimize(largest.sum())
        return program

    def _program(self, level: int) -> LinearProgram:
        """The program that minimises the loads at a level; loads are cut into pieces at this and all fixed levels."""
        program = self._base()
        edges = {0, level - 1, level, *self.fixed, *(above - 1 for above in self.fixed)}
        cut = self.problem.loads * -1.0
        for low, high in pairwise(sorted(edges)):
            width = (high - low) * self.problem.width
            piece = program.variables(f"level_{high}", self.problem.loads.count, upper=width)
            cut = cut + piece
            if low >= level:
                count = self.fixed[min(above for above in self.fixed if above >= high)]
                program.constrain(f"level_fixed_{low}_{high}", piece.sum(), "<=", (high - low) * count)
            elif high == level:
                program.minimize(piece.sum())
        program.constrain("level_link", cut, "==", 0.0)
        return program

    def _base(self) -> LinearProgram:
        program = copy_program(self.problem.base)
        if self.first is not None and self.problem.first is not None:
            program.constrain("first_fixed", self.problem.first, "<=", self.first)
        return program

    def _base_values(self, outcome: Outcome) -> Floats:
        assert outcome.values is not None
        return outcome.values[: self.problem.base.column_count]

    def _solved(self, program: LinearProgram) -> tuple[Outcome, Outcome | None]:
        """Outcome of a program, in integers if requested, and of its linear relaxation (None if not solved)."""
        relaxed = None
        if self.integrality != "mip":
            self.solves["lp"] += 1
            relaxed = self.solve(program)
            if relaxed.status is Status.FEASIBLE:
                relaxed = replace(relaxed, status=Status.TIME_LIMIT, values=None)
            if relaxed.values is None or self.integrality == "lp" or is_whole(self._base_values(relaxed)):
                return relaxed, relaxed
        self.solves["mip"] += 1
        integer = {*self.problem.base.variable_blocks, "largest"} & program.variable_blocks.keys()
        return self.solve(program.with_integer(*integer)), relaxed

    def _stage(self, program: LinearProgram, level: int) -> Outcome:
        """Solve a stage and record the result with its proof."""
        outcome, relaxed = self._solved(program)
        if outcome.values is None or outcome.objective is None:
            return outcome
        value, bound = float(outcome.objective), -np.inf if outcome.bound is None else outcome.bound
        if self.integrality != "lp":
            value = float(round(value))
            bound = value if outcome is relaxed else float(np.ceil(bound - WHOLE))
        duals = {} if relaxed is None or relaxed.duals is None else program.split_rows(relaxed.duals)
        prices: dict[int, float] = {}
        for name in duals:
            if name.startswith("level_fixed_"):
                low, high = map(int, name.split("_")[2:])
                prices |= dict.fromkeys(range(low + 1, high + 1), max(-float(duals[name][0]), 0.0))
        if "first_fixed" in duals:
            prices[self.problem.levels + 1] = max(-float(duals["first_fixed"][0]), 0.0)
        own = {name: duals[name] for name in (*self.problem.base.constraint_blocks, "level_link") if name in duals}
        if level > self.problem.levels and "level_link" in own:
            own["level_link"] = -own["level_link"]
        self.stages.append(Stage(level, value, value if self.integrality == "lp" else bound, own, prices))
        return outcome

    def _ended(self, outcome: Outcome, top: int) -> LexicographicResult:
        lp, mip = self.solves["lp"], self.solves["mip"]
        route: Route = "mip" if mip else "lp"
        if outcome.values is None:
            return LexicographicResult(outcome.status, None, 0, (), route, outcome, lp, mip)
        values = self._base_values(outcome)
        limited = any(stage.bound < stage.value - WHOLE for stage in self.stages)
        return LexicographicResult(
            Status.FEASIBLE if limited else Status.OPTIMAL,
            values if self.integrality == "lp" else np.rint(values),
            top,
            tuple(self.stages),
            route,
            outcome,
            lp,
            mip,
        )
