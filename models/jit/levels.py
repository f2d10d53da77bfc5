"""From a grid to a proven lexicographic optimum: structure first, programs for what is left.

Every pair on its own gives the least loads one can hope for, and a schedule that has them (`jit_structure`). Where it
breaks the capacity of ports, these ports become constraints, and the transfers that use them are planned again:

1. by a linear program over intervals that looks for a point within the bands (the loads stay least);
2. if there is none, by the staged programs; their windows may be elastic.

Capacities of all other ports are left out. The answer to that relaxation is an optimum of the whole problem as soon
as it breaks no port; while it does, these ports become constraints too. So the programs stay as small as the conflict.
Parts that share no load and no constrained port are planned apart: the sorted vector of the whole is least when that
of every part is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Integers
from flowlex.formulations.engines import solve
from flowlex.formulations.expression import Expression, Variables
from flowlex.formulations.lexicographic.faces import minimize_on_faces
from flowlex.formulations.lexicographic.levels import WHOLE, Integrality, LexicographicResult, first_program, staged
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import EngineName, Infeasibility, Outcome, SolveOptions, Status
from flowlex.models.jit.baselines import fill
from flowlex.models.jit.grid import Grid, Load, Runs, Windows
from flowlex.models.jit.program import Cells, Horizon, base_program, latest_end, lexicographic_program, rates_of_cells
from flowlex.models.jit.proofs import band_proofs, stage_proofs
from flowlex.models.jit.structure import Bands, components, find_bands, port_overload, relieve, spread
from flowlex.validation.certificates.jit import LevelProof, SchedulePart

__all__ = ["Plan", "Search", "find_plan"]

_FIRM = "the firm ends cannot all be met, whatever else is late; raise a firm_s, or leave one out"

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
class _State:
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
        self.deadline = None if limit is None else time.perf_counter() + limit
        self.last = self.grid.stop.copy()
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


def find_plan(grid: Grid, search: Search) -> Plan:
    """Find a lexicographically least schedule; when time runs out first, the best one so far."""
    plan = _find_plan(grid, search)
    if plan.status is not Status.TIME_LIMIT:
        return plan
    out, into = (np.zeros((len(most), 0), np.int64) for most in (grid.out_units, grid.in_units))
    end, sent = fill(out, into, grid.out_units, grid.in_units, grid.sender, grid.receiver, grid.units, grid.start)
    if (end > (grid.stop if search.windows == "strict" else grid.firm)).any():
        return plan
    runs = Runs(grid.start, end)
    rate = np.zeros(runs.count, np.int64)
    rate[runs.entry(sent[:, 0], sent[:, 1])] = sent[:, 2]
    message = "time ran out before the first program was solved: first come, first served; no level is proven"
    return Plan(Status.FEASIBLE, runs, rate, (), ("first come, first served",), plan.largest_bound, message=message)


def _find_plan(grid: Grid, search: Search) -> Plan:
    state = _State(grid, search)
    if not grid.count:
        return state.plan(0)
    overload, ports = port_overload(grid)
    if overload and search.windows == "strict":
        return _infeasible(grid, overload)
    if search.presolve:
        return _from_structure(state, ports)
    everything = np.arange(grid.count)
    overloaded = bool(overload) or (search.windows == "elastic" and bool((grid.stop > grid.due).any()))
    if overloaded or not _staged(state, everything, None, 0, elastic=False):
        if search.windows == "strict":
            return _infeasible(grid, _explain(grid, everything, search))
        if not _staged(state, everything, None, 0, elastic=True):
            return _infeasible(grid, _FIRM)
    return state.plan(0)


def _from_structure(state: _State, ports: Ports) -> Plan:
    """Bands first; then, around the ports that they break, programs (see the module)."""
    grid, search = state.grid, state.search
    bands = find_bands(grid, search.load)
    state.keep(np.arange(grid.count), grid.columns, bands.rate.copy())
    late = ports[0][grid.sender] | ports[1][grid.receiver]
    if search.windows == "elastic":
        late |= grid.stop > grid.due
    staged_ones = late.copy()
    active = (ports[0].copy(), ports[1].copy())
    if search.load == "port":  # both ends of a transfer are loads: nothing can be planned pair by pair
        active = (np.ones_like(ports[0]), np.ones_like(ports[1]))
    changed = np.ones(grid.count, np.bool_) if search.load == "port" else late.copy()
    while True:
        labels = components(grid, search.load, active)
        concerned = active[0][grid.sender] | active[1][grid.receiver] | np.isin(labels, labels[late])
        for members in _split(np.flatnonzero(concerned & np.isin(labels, labels[changed])), labels):
            hard = bool(staged_ones[members].any())
            if not hard:
                found = _face_point(state, bands, members, active)
                hard = found is None
                if found is not None:
                    state.keep(members, *found)
            if hard:
                staged_ones[members] = True
                bound = bands.largest_of(members)
                met = not late[members].any() and _staged(state, members, active, bound, elastic=False)
                if not met and search.windows == "strict":
                    return _infeasible(grid, _explain(grid, members, search))
                if not met:
                    late[members] = True
                    if not _staged(state, members, active, 0, elastic=True):
                        return _infeasible(grid, _FIRM)
            if not state.status.has_answer:
                return state.plan(bands.largest)
        over = _relieve(state, bands, ~staged_ones)
        new = (over[0] & ~active[0], over[1] & ~active[1])
        if not new[0].any() and not new[1].any():
            break
        active = (active[0] | new[0], active[1] | new[1])
        changed = new[0][grid.sender] | new[1][grid.receiver]
    settled = np.flatnonzero(~staged_ones)
    if len(settled):
        if search.load == "pair":
            state.took("structure")
        proofs = band_proofs(grid, bands, search.load, settled)
        state.parts.insert(0, SchedulePart(grid.transfer[settled], proofs))
    return state.plan(bands.largest)


def _relieve(state: _State, bands: Bands, movable: NDArray[np.bool_]) -> Ports:
    """Move units within bands; return the ports that are still over their capacity."""
    grid = state.grid
    runs, rate = state.joined()
    out, into = spread(grid, runs, rate)
    limits = (grid.out_units[:, None], grid.in_units[:, None])
    whole = np.issubdtype(rate.dtype, np.integer)
    if whole and state.search.load == "pair" and ((out > limits[0]).any() or (into > limits[1]).any()):
        own = np.zeros(grid.columns.count, np.int64)
        inside = movable[grid.columns.row]
        own[inside] = rate[movable[runs.row]]
        relieve(grid, bands, own, movable, out, into)
        chosen = np.flatnonzero(movable)
        for k in chosen.tolist():
            state.rates[k] = own[grid.columns.offset[k] : grid.columns.offset[k + 1]]
    return np.any(out > limits[0] + WHOLE, axis=1), np.any(into > limits[1] + WHOLE, axis=1)


def _face_point(state: _State, bands: Bands, members: Integers, ports: Ports) -> tuple[Runs, Integers] | None:
    """A schedule of some transfers within their bands and the given ports, or None when there is none."""
    grid, search = state.grid, state.search
    cells = Cells(grid, members, grid.stop[members], "intervals", ports)
    program = base_program(cells, name="bands", binding_only=True, labels=False)
    columns = cells.columns
    unit, cell, parts = cells.load_entries(search.load)
    rate = Variables(np.arange(columns.count))
    loads = Expression.empty(len(unit))
    for part in parts:
        loads = loads + rate.sum_by(part, len(unit))
    band = bands.band[bands.entries.entry(unit, cells.edges[cell])]
    program.constrain("band_most", loads, "<=", (band + 1) * cells.length[cell])
    program.constrain("band_least", loads, ">=", np.maximum(band, 0) * cells.length[cell])
    closed = ~bands.allowed[grid.columns.entry(members[columns.row], cells.edges[columns.slot])]
    program = program.with_upper("rate", np.where(closed, 0.0, program.variable_blocks["rate"].upper))
    state.lp_solves += 1
    outcome = state.solve(program)
    if outcome.values is None:
        return None
    values = np.rint(outcome.values)
    if np.abs(outcome.values - values).max(initial=0.0) <= WHOLE:
        state.took("lp in bands")
    else:
        state.mip_solves += 1
        outcome = state.solve(program.with_integer("rate"))
        if outcome.values is None:
            return None
        values = np.rint(outcome.values)
        state.took("lp in bands, rounded")
    return rates_of_cells(cells, values.astype(np.int64))


def _staged(state: _State, members: Integers, ports: Ports | None, at_least: int, *, elastic: bool) -> bool:
    """Run the staged programs for some transfers; return whether they have a schedule."""
    grid, search = state.grid, state.search
    stop = _elastic_end(state, members, ports) if elastic else grid.stop[members]
    cells = Cells(grid, members, stop, "slots" if elastic else search.horizon, ports)
    problem = lexicographic_program(
        cells, search.load, name="lexicographic", binding_only=True, labels=False, elastic=elastic
    )
    result = minimize_on_faces(problem, state.solve, at_least) if search.integrality == "auto" else None
    if result is None:
        result = staged(problem, solve=state.solve, integrality=search.integrality, at_least=at_least)
    state.lp_solves += result.lp_solves
    state.mip_solves += result.mip_solves
    if result.status is Status.INFEASIBLE:
        return False
    _accept(state, cells, result)
    if elastic:
        state.took("least lateness first")
    return True


def _elastic_end(state: _State, members: Integers, ports: Ports | None) -> Integers:
    """End of elastic windows: no unit is later than the least total lateness allows."""
    grid, search = state.grid, state.search
    cells = Cells(grid, members, latest_end(grid, members), "slots", ports)
    problem = lexicographic_program(cells, search.load, name="lateness", binding_only=True, labels=False, elastic=True)
    outcome = state.solve(first_program(problem))
    state.lp_solves += 1
    if outcome.status is not Status.OPTIMAL or outcome.objective is None or search.integrality != "auto":
        return cells.stop
    values = np.asarray(outcome.values)
    whole = np.abs(values - np.rint(values)).max(initial=0.0) <= WHOLE
    # Only a whole answer shows that whole units can be that little late.
    last = np.maximum(grid.stop[members], grid.due[members] + round(outcome.objective)) + 1
    return np.minimum(cells.stop, last) if whole else cells.stop


def _accept(state: _State, cells: Cells, result: LexicographicResult) -> None:
    """Store a staged answer with its proofs."""
    if result.values is None:
        state.status = result.status
        zero = np.zeros(int((cells.stop - cells.grid.start[cells.which]).sum()), np.int64)
        state.keep(cells.which, Runs(cells.grid.start[cells.which], cells.stop), zero)
        return
    if result.status is not Status.OPTIMAL:
        state.status = result.status
        open_levels = [s.level + 1 for s in result.stages if s.level and s.bound < s.value - WHOLE]
        last = min((s.level for s in result.stages if s.level), default=0)
        state.lowest = max(state.lowest, last, *open_levels)
    whole = np.rint(result.values)
    if np.abs(result.values - whole).max(initial=0.0) <= WHOLE:
        runs, rate = rates_of_cells(cells, whole.astype(np.int64))
        state.keep(cells.which, runs, rate)
    else:
        runs = Runs(cells.grid.start[cells.which], cells.stop)
        cell = np.searchsorted(cells.edges, runs.slot, side="right") - 1
        share = result.values / cells.length[cells.columns.slot]
        state.keep(cells.which, runs, share[cells.columns.entry(runs.row, cell)])
    state.took(f"staged {result.route}")
    state.prove(cells.which, stage_proofs(cells, state.search.load, result))


def _split(which: Integers, labels: Integers) -> list[Integers]:
    """Cut a set of transfers by component, in order of their first transfers."""
    _, first, inverse = np.unique(labels[which], return_index=True, return_inverse=True)
    return [which[inverse == c] for c in np.argsort(first)]


def _explain(grid: Grid, members: Integers, search: Search) -> str:
    """Say which rows of the ports cannot hold together, by the program's own names."""
    cells = Cells(grid, members, grid.stop[members], search.horizon)
    outcome = solve(base_program(cells, name="windows and ports", binding_only=True), "highs", search.options)
    reason = outcome.infeasibility.message if outcome.infeasibility is not None else "No schedule exists."
    return f"{reason} Pass windows='elastic' to accept the least total lateness."


def _infeasible(grid: Grid, message: str) -> Plan:
    return Plan(
        Status.INFEASIBLE,
        grid.columns,
        np.zeros(grid.columns.count, np.int64),
        infeasibility=Infeasibility(message),
        message=message,
    )
