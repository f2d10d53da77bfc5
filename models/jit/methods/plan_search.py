"""A search for a plan: its options and state, and its result."""

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
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import LinearProgramArrays
from flowlex.formulations.sessions.fixed_matrix_program import BoundedProgram
from flowlex.formulations.solver_outcome import EngineName, Infeasibility, Outcome, SolveOptions, Status
from flowlex.models.jit.interval_schedules import Blocks
from flowlex.models.jit.methods.presolve import Bands, Overload
from flowlex.models.jit.multipliers import SchedulePart
from flowlex.models.jit.slot_programs import Horizon
from flowlex.models.jit.transfer_slot_grid import Grid, Load, Windows

#: Share of the time limit that is reserved for integer programs.
_TO_ROUND = 0.1

#: Which egress and which ingress ports, (M,) bool each.
Ports: TypeAlias = tuple[NDArray[np.bool_], NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class Plan:
    """A schedule of all transfers of a grid, or the reason why there is none."""

    status: Status
    blocks: Blocks  # the schedule (amounts are float64 when fractional)
    parts: tuple[SchedulePart, ...] = ()  # proofs of optimality
    route: tuple[str, ...] = ()  # methods that produced the plan, from the simplest to the most costly
    # lower bound on the largest load: from the windows alone or, if the plan is not proven optimal, from ``least``
    largest_bound: int = 0
    lp_solves: int = 0
    mip_solves: int = 0
    infeasibility: Infeasibility | None = None
    message: str = ""
    lowest: int = 1  # lowest load level that is proven optimal; 1 if all levels are
    overload: Overload | None = None  # transfers that a port cannot send in strict windows
    least: SchedulePart | None = None  # proof of ``largest_bound`` for a plan that is not proven optimal


@dataclass(eq=False)
class SearchState:
    """Options of the search (see `flowlex.models.jit.model.JitBandwidth`), and what it has found so far."""

    grid: Grid
    load: Load
    horizon: Horizon  # of the programs; with presolve always intervals, which have the same optimum
    windows: Windows
    integrality: Integrality
    presolve: bool
    engine: EngineName
    options: SolveOptions
    blocks: Blocks = field(default_factory=Blocks.empty)
    parts: list[SchedulePart] = field(default_factory=list)
    route: list[str] = field(default_factory=list)
    lp_solves: int = 0
    mip_solves: int = 0
    status: Status = Status.OPTIMAL
    lowest: int = 1  # lowest proven level, if a time limit ended the search
    bands: Bands | None = None  # bounds from windows alone
    #: Called with what makes a state of the search, or None if it has no answer.
    seen: Callable[[Callable[[], SearchState | None]], None] | None = None

    def __post_init__(self) -> None:
        limit = self.options.time_limit_s
        self.deadline: float | None = None if limit is None else processor_seconds() + limit
        self.horizon = "intervals" if self.presolve else self.horizon

    def solve(self, program: LinearProgram) -> Outcome:
        """Solve one program before the deadline; linear programs by the simplex method (see `faces`)."""
        engine, options = self.engine, self.options
        if runs_highs(engine, options):
            engine, options = "highs", replace(options, solver=None)  # as PuLP would, but faster
            if options.algorithm == "auto" and not program.is_mip:
                options = replace(options, algorithm="simplex")
        left = self._left(is_mip=program.is_mip)
        if left is not None and left <= 0.01:
            return Outcome(Status.TIME_LIMIT, engine, message="time ran out")
        return solve(program, engine, replace(options, time_limit_s=left))

    def _left(self, *, is_mip: bool = False) -> float | None:
        """Seconds until the deadline; linear programs reserve time for a final integer program."""
        if self.deadline is None:
            return None
        kept = 0.0 if is_mip else _TO_ROUND * (self.options.time_limit_s or 0.0)
        return self.deadline - processor_seconds() - kept

    def session(self, arrays: LinearProgramArrays) -> BoundedProgram | None:
        """Return a warm-started HiGHS program with the deadline; None if another solver or algorithm is requested."""
        if not runs_highs(self.engine, self.options) or self.options.algorithm not in ("auto", "simplex"):
            return None
        return BoundedProgram(arrays, self.options, self._left)

    def took(self, way: str) -> None:
        """Record a solution method, once."""
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

    def plan(self, largest_bound: int) -> Plan:
        """Return the plan of this state."""
        message = "" if self.status is Status.OPTIMAL else f"time ran out; levels from {self.lowest} up are proven"
        if not self.status.has_answer:
            message = "time ran out before there was a schedule in integer units; raise time_limit_s"
        return Plan(
            self.status,
            self.blocks,
            tuple(self.parts),
            tuple(self.route) or ("structure",),
            largest_bound,
            self.lp_solves,
            self.mip_solves,
            message=message,
            lowest=self.lowest,
        )
