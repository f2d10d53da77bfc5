"""A search for a plan: its options, its state, and its result."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.engines import runs_highs, solve
from flowlex.formulations.lexicographic.lexicographic_problem import Integrality
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.processor_time import processor_seconds
from flowlex.formulations.program_arrays import Integers, LinearProgramArrays
from flowlex.formulations.sessions.fixed_matrix_program import BoundedProgram
from flowlex.formulations.solver_outcome import EngineName, Infeasibility, Outcome, SolveOptions, Status
from flowlex.models.jit.interval_schedules import Blocks
from flowlex.models.jit.presolve import Bands
from flowlex.models.jit.slot_programs import Horizon
from flowlex.models.jit.transfer_slot_grid import Grid, Load, Windows
from flowlex.validation.certificates.jit import LevelProof, SchedulePart

__all__ = ["Plan", "Ports", "Search", "SearchState"]

#: Part of the time that linear programs leave to integer ones.
_TO_ROUND = 0.1

#: Which egress and which ingress ports, (M,) bool each.
Ports: TypeAlias = tuple[NDArray[np.bool_], NDArray[np.bool_]]


@dataclass(frozen=True)
class Search:
    """How to look for the optimum (see `flowlex.models.jit.model.JitBandwidth`)."""

    load: Load
    horizon: Horizon
    windows: Windows
    integrality: Integrality
    presolve: bool
    engine: EngineName
    options: SolveOptions


@dataclass(frozen=True, eq=False)
class Plan:
    """A schedule of all transfers of a grid, or the reason that there is none."""

    status: Status
    blocks: Blocks  # what is sent when (amounts are float64 when fractional)
    parts: tuple[SchedulePart, ...] = ()  # proofs of optimality
    route: tuple[str, ...] = ()  # how the answer was come by, from the easiest to the hardest means used
    # lower bound on the largest load from windows alone; of a plan that is not proven, what ``least`` shows
    largest_bound: int = 0
    lp_solves: int = 0
    mip_solves: int = 0
    infeasibility: Infeasibility | None = None
    message: str = ""
    weighted: tuple[float, float] | None = None  # for a program with weights: its optimum and the solver's bound
    lowest: int = 1  # the lowest level that is proven; 1 when all are
    least: SchedulePart | None = None  # what shows the bound of a plan that is not proven


@dataclass(eq=False)
class SearchState:
    """What has been found so far."""

    grid: Grid
    search: Search
    blocks: Blocks = field(default_factory=Blocks.empty)
    parts: list[SchedulePart] = field(default_factory=list)
    route: list[str] = field(default_factory=list)
    lp_solves: int = 0
    mip_solves: int = 0
    status: Status = Status.OPTIMAL
    #: Lowest level proven, where time ran out before the last.
    lowest: int = 1
    #: What windows alone say.
    bands: Bands | None = None
    #: Called with each state on the way.
    seen: Callable[[Callable[[], SearchState | None]], None] | None = None

    def __post_init__(self) -> None:
        limit = self.search.options.time_limit_s
        self.deadline: float | None = None if limit is None else processor_seconds() + limit

    def solve(self, program: LinearProgram) -> Outcome:
        """Solve one program before the deadline of all; large linear programs by the simplex method (see `faces`)."""
        engine, options = self.search.engine, self.search.options
        if runs_highs(engine, options):
            engine, options = "highs", replace(options, solver=None)  # PuLP would hand it the same arrays, later
            if options.algorithm == "auto" and not program.is_mip:
                options = replace(options, algorithm="simplex")
        left = self._left(is_mip=program.is_mip)
        if left is not None and left <= 0.01:
            return Outcome(Status.TIME_LIMIT, engine, message="time ran out")
        return solve(program, engine, replace(options, time_limit_s=left))

    def _left(self, *, is_mip: bool = False) -> float | None:
        """Seconds until the deadline; linear programs leave time to make the last answer whole."""
        if self.deadline is None:
            return None
        kept = 0.0 if is_mip else _TO_ROUND * (self.search.options.time_limit_s or 0.0)
        return self.deadline - processor_seconds() - kept

    def session(self, arrays: LinearProgramArrays) -> BoundedProgram | None:
        """A program that HiGHS keeps before the deadline of all; None where other solvers or algorithms are wanted."""
        options = self.search.options
        if not runs_highs(self.search.engine, options) or options.algorithm not in ("auto", "simplex"):
            return None
        return BoundedProgram(arrays, options, self._left)

    @property
    def horizon(self) -> Horizon:
        """Of the programs: what looks at structure goes by intervals anyway, which have the same optimum."""
        return "intervals" if self.search.presolve else self.search.horizon

    def keep(self, which: Integers, blocks: Blocks) -> None:
        """Store the blocks of some transfers instead of those they had."""
        self.blocks = self.blocks.without(which).and_also(blocks)

    def took(self, way: str) -> None:
        """Note a means of solution, once."""
        if way not in self.route:
            self.route.append(way)

    def tell(self, found: Callable[[SearchState], bool] = lambda _: True) -> None:
        """Report the present state to ``seen``; ``found`` may complete it, and returns False to report nothing."""

        def draft() -> SearchState | None:
            mine = copy.copy(self)
            mine.parts, mine.route, mine.seen = list(self.parts), list(self.route), None
            return mine if found(mine) else None

        if self.seen is not None:
            self.seen(draft)

    def prove(self, which: Integers, proofs: tuple[LevelProof, ...]) -> None:
        """Store the proofs of a part; they replace those of parts it has swallowed."""
        at = self.grid.transfer[which]
        self.parts = [part for part in self.parts if not np.isin(part.transfers, at).any()]
        self.parts.append(SchedulePart(at, proofs))

    def plan(self, largest_bound: int) -> Plan:
        """Put everything together."""
        parts, route = tuple(self.parts), tuple(self.route) or ("structure",)
        message = "" if self.status is Status.OPTIMAL else f"time ran out; levels from {self.lowest} up are proven"
        if not self.status.has_answer:
            message = "time ran out before there was a schedule in integer units; raise time_limit_s"
        return Plan(
            self.status,
            self.blocks,
            parts,
            route,
            largest_bound,
            self.lp_solves,
            self.mip_solves,
            message=message,
            lowest=self.lowest,
        )
