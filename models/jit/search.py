"""What a search for a plan was asked, what it has found so far, and what it ends with."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Integers
from flowlex.formulations.engines import solve
from flowlex.formulations.lexicographic.levels import Integrality
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineName, Infeasibility, Outcome, SolveOptions, Status
from flowlex.models.jit.grid import Grid, Load, Runs, Windows
from flowlex.models.jit.program import Horizon
from flowlex.validation.certificates.jit import LevelProof, SchedulePart

__all__ = ["Plan", "Ports", "Search", "SearchState"]

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
    """A schedule of all transfers of a grid, or why there is none.

    Attributes
    ----------
    runs, rate
        One row of slots per transfer, and the units sent in each (float64 when fractional).
    parts
        Proofs of optimality.
    route
        How the answer was come by, from the easiest to the hardest means used.
    largest_bound
        Lower bound on the largest load from windows alone.
    weighted
        For a program with weights: its optimum and the solver's bound.
    lowest
        The lowest level that is proven; 1 when all are.
    """

    status: Status
    runs: Runs
    rate: NDArray[Any]
    parts: tuple[SchedulePart, ...] = ()
    route: tuple[str, ...] = ()
    largest_bound: int = 0
    lp_solves: int = 0
    mip_solves: int = 0
    infeasibility: Infeasibility | None = None
    message: str = ""
    weighted: tuple[float, float] | None = None
    lowest: int = 1


@dataclass(eq=False)
class SearchState:
    """What has been found so far."""

    grid: Grid
    search: Search
    rates: list[NDArray[Any]] = field(default_factory=list)
    parts: list[SchedulePart] = field(default_factory=list)
    route: list[str] = field(default_factory=list)
    lp_solves: int = 0
    mip_solves: int = 0
    status: Status = Status.OPTIMAL
    #: Lowest level proven, where time ran out before the last.
    lowest: int = 1

    def __post_init__(self) -> None:
        limit = self.search.options.time_limit_s
        self.deadline: float | None = None if limit is None else time.perf_counter() + limit
        self.last: Integers = self.grid.stop.copy()
        self.rates = [np.zeros(0, np.int64)] * self.grid.count

    def solve(self, program: LinearProgram, engine: EngineName | None = None) -> Outcome:
        """Solve one program before the deadline of all; large linear programs by the simplex method (see `faces`)."""
        options = self.search.options
        if options.algorithm == "auto" and not program.is_mip and options.solver is None:
            options = replace(options, algorithm="simplex")
        if self.deadline is not None:
            left = self.deadline - time.perf_counter()
            if left <= 0.01:
                return Outcome(Status.TIME_LIMIT, self.search.engine, message="time ran out")
            options = replace(options, time_limit_s=left)
        return solve(program, engine or self.search.engine, options)

    def keep(self, which: Integers, runs: Runs, rate: NDArray[Any]) -> None:
        """Store the rates of some transfers."""
        self.last[which] = runs.last
        for n, k in enumerate(which.tolist()):
            self.rates[k] = rate[runs.offset[n] : runs.offset[n + 1]]

    def took(self, way: str) -> None:
        """Note a means of solution, once."""
        if way not in self.route:
            self.route.append(way)

    def prove(self, which: Integers, proofs: tuple[LevelProof, ...]) -> None:
        """Store the proofs of a part; they replace those of parts it has swallowed."""
        at = self.grid.transfer[which]
        self.parts = [part for part in self.parts if not np.isin(part.transfers, at).any()]
        self.parts.append(SchedulePart(at, proofs))

    def joined(self) -> tuple[Runs, NDArray[Any]]:
        """All runs and rates."""
        rate = np.concatenate(self.rates) if self.rates else np.zeros(0, np.int64)
        return Runs(self.grid.start, self.last), rate

    def plan(self, largest_bound: int) -> Plan:
        """Put everything together."""
        parts, route = tuple(self.parts), tuple(self.route) or ("structure",)
        message = "" if self.status is Status.OPTIMAL else f"time ran out; levels from {self.lowest} up are proven"
        return Plan(
            self.status,
            *self.joined(),
            parts,
            route,
            largest_bound,
            self.lp_solves,
            self.mip_solves,
            message=message,
            lowest=self.lowest,
        )
