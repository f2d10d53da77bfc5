"""From a grid to a proven lexicographic optimum: structure first, programs for what is left.

Parts of the plan that share no load and no port row that can bind are optimised apart: the sorted vector of the
whole is least when that of every part is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from flowlex.formulations.engines import solve
from flowlex.formulations.expression import Expression, Integers, Variables
from flowlex.formulations.lexicographic import WHOLE, Integrality, LexicographicResult, staged
from flowlex.formulations.outcome import EngineName, Infeasibility, SolveOptions, Status
from flowlex.models.jit_grid import Grid, Load, Runs, Windows
from flowlex.models.jit_program import Cells, Horizon, base_program, lexicographic_program, rates_of_cells
from flowlex.models.jit_proofs import band_proofs, stage_proofs
from flowlex.models.jit_structure import Bands, components, find_bands, port_overload, relieve
from flowlex.validation.certificates.jit import LevelProof, SchedulePart

__all__ = ["Plan", "Search", "find_plan"]


@dataclass(frozen=True)
class Search:
    """How to look for the optimum (see `flowlex.models.jit_bandwidth.JitBandwidth`)."""

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
    """

    status: Status
    runs: Runs
    rate: NDArray[np.number]
    parts: tuple[SchedulePart, ...] = ()
    route: tuple[str, ...] = ()
    largest_bound: int = 0
    lp_solves: int = 0
    mip_solves: int = 0
    infeasibility: Infeasibility | None = None
    message: str = ""


@dataclass(eq=False)
class _State:
    """What has been found so far; transfers in ``open`` still need a program."""

    grid: Grid
    search: Search
    last: Integers
    rates: dict[int, NDArray[np.number]] = field(default_factory=dict)
    parts: list[SchedulePart] = field(default_factory=list)
    route: list[str] = field(default_factory=list)
    lp_solves: int = 0
    mip_solves: int = 0
    status: Status = Status.OPTIMAL

    def keep(self, which: Integers, runs: Runs, rate: NDArray[np.number]) -> None:
        """Store the rates of some transfers."""
        self.last[which] = runs.last
        for n, k in enumerate(which.tolist()):
            self.rates[k] = rate[runs.offset[n] : runs.offset[n + 1]]

    def took(self, way: str) -> None:
        """Note a means of solution, once."""
        if way not in self.route:
            self.route.append(way)

    def plan(self, largest_bound: int) -> Plan:
        """Put everything together."""
        runs = Runs(self.grid.start, self.last)
        rate = [self.rates[k] for k in range(self.grid.count)]
        joined = np.concatenate(rate) if rate else np.zeros(0, np.int64)
        return Plan(
            self.status,
            runs,
            joined,
            tuple(self.parts),
            tuple(self.route) or ("structure",),
            largest_bound,
            self.lp_solves,
            self.mip_solves,
        )


def find_plan(grid: Grid, search: Search) -> Plan:
    """Find a lexicographically least schedule."""
    state = _State(grid, search, grid.stop.copy())
    everything = np.arange(grid.count)
    if not grid.count:
        return state.plan(0)
    overload = port_overload(grid)
    if overload and search.windows == "strict":
        return _infeasible(grid, overload)
    if not search.presolve:
        failed = [everything] if overload else _staged(state, everything, 0)
        return _unmet(state, failed, 0) if failed else state.plan(0)
    bands = find_bands(grid, search.load)
    left = everything if overload else _in_bands(state, bands)
    settled = np.setdiff1d(everything, left)
    if len(left):
        labels = components(grid, _potential(grid, bands), bands.entries, search.load)
        left = np.flatnonzero(np.isin(labels, labels[left]))
        settled = np.setdiff1d(everything, left)
    failed = [left] if overload else []
    for members in (
        [] if overload else _split(left, components(grid, _potential(grid, bands), bands.entries, search.load))
    ):
        failed += _staged(state, members, bands.largest_of(members))
    if failed:
        return _unmet(state, failed, bands.largest)
    if len(settled):
        state.parts.insert(0, SchedulePart(settled, band_proofs(grid, bands, search.load, settled)))
    return state.plan(bands.largest)


def _unmet(state: _State, failed: list[Integers], largest: int) -> Plan:
    """Some windows cannot all be met: say why, or accept lateness."""
    members = np.concatenate(failed)
    if state.search.windows == "strict":
        return _infeasible(state.grid, _explain(state.grid, members, state.search))
    return _elastic(state, members, largest)


def _in_bands(state: _State, bands: Bands) -> Integers:
    """Schedule what fits into the bands; return the transfers of components where nothing was found."""
    grid, search = state.grid, state.search
    rate = bands.rate.copy()
    stuck = relieve(grid, bands, rate) if search.load == "pair" else np.ones(grid.count, np.bool_)
    state.keep(np.arange(grid.count), grid.columns, rate)
    if not stuck.any():
        state.took("structure")
        return np.zeros(0, np.int64)
    labels = components(grid, np.maximum(bands.band + 1, 0), bands.entries, search.load)
    concerned = np.flatnonzero(np.isin(labels, labels[stuck]))
    if len(concerned) < grid.count:
        state.took("structure")
    left = []
    for members in _split(concerned, labels):
        found = _face_point(state, bands, members)
        if found is None:
            left.append(members)
        else:
            state.keep(members, *found)
    return np.concatenate(left) if left else np.zeros(0, np.int64)


def _face_point(state: _State, bands: Bands, members: Integers) -> tuple[Runs, Integers] | None:
    """A schedule of some transfers within their bands and the ports, or None when there is none."""
    grid, search = state.grid, state.search
    cells = Cells(grid, members, grid.stop[members], "intervals")
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
    block = program.variable_blocks["rate"]
    program.variable_blocks["rate"] = replace(block, upper=np.where(closed, 0.0, block.upper))
    state.lp_solves += 1
    outcome = solve(program, "highs", replace(search.options, algorithm="simplex"))
    if outcome.values is None:
        return None
    values = np.rint(outcome.values)
    if np.abs(outcome.values - values).max(initial=0.0) <= WHOLE:
        state.took("lp in bands")
    else:
        program.variable_blocks["rate"] = replace(program.variable_blocks["rate"], integer=True)
        state.mip_solves += 1
        outcome = solve(program, "highs", replace(search.options, algorithm="auto"))
        if outcome.values is None:
            return None
        values = np.rint(outcome.values)
        state.took("lp in bands, rounded")
    return rates_of_cells(cells, values.astype(np.int64))


def _staged(state: _State, members: Integers, at_least: int) -> list[Integers]:
    """Run the staged programs for some transfers; return them when they have no schedule."""
    cells = Cells(state.grid, members, state.grid.stop[members], state.search.horizon)
    result = _run(state, cells, at_least, elastic=False)
    if result.status is Status.INFEASIBLE:
        return [members]
    _accept(state, cells, result)
    return []


def _elastic(state: _State, failed: Integers, largest: int) -> Plan:
    """Least total lateness first, for everything that shares ports with transfers that cannot all be on time."""
    grid, search = state.grid, state.search
    machines = len(grid.out_units)
    graph = sparse.coo_array(
        (np.ones(grid.count), (grid.sender, grid.receiver + machines)), shape=(2 * machines, 2 * machines)
    )
    label = np.asarray(csgraph.connected_components(graph, directed=False)[1][grid.sender], np.int64)
    late = np.isin(label, label[failed])
    fresh = _State(grid, search, grid.stop.copy(), lp_solves=state.lp_solves, mip_solves=state.mip_solves)
    others = np.flatnonzero(~late)
    if len(others):
        rest = find_plan(_subgrid(grid, others), search)
        fresh.keep(others, rest.runs, rest.rate)
        fresh.parts += [replace(part, transfers=others[part.transfers]) for part in rest.parts]
        fresh.route += rest.route
        fresh.lp_solves, fresh.mip_solves = fresh.lp_solves + rest.lp_solves, fresh.mip_solves + rest.mip_solves
    for members in _split(np.flatnonzero(late), label):
        cells = Cells(grid, members, _latest_end(grid, members), "slots")
        _accept(fresh, cells, _run(fresh, cells, 0, elastic=True))
        fresh.took("least lateness first")
    return fresh.plan(largest)


def _latest_end(grid: Grid, members: Integers) -> Integers:
    """Slots by which everything is sent in any schedule of least lateness.

    A unit sent later than that would find an earlier slot with room at both its ports.
    """
    busy = 0
    for port, limit in ((grid.sender, grid.out_units), (grid.receiver, grid.in_units)):
        total = np.bincount(port[members], weights=grid.units[members], minlength=len(limit)).astype(np.int64)
        busy += int((-(-total // limit)).max())
    end = max(int(grid.start[members].max()), int(grid.stop[members].max())) + busy
    return np.full(len(members), end)


def _run(state: _State, cells: Cells, at_least: int, *, elastic: bool) -> LexicographicResult:
    search = state.search
    problem = lexicographic_program(
        cells, search.load, name="lexicographic", binding_only=True, labels=False, elastic=elastic
    )
    result = staged(
        problem,
        engine=search.engine,
        options=search.options,
        integrality=search.integrality,
        at_least=at_least if not elastic else 0,
    )
    state.lp_solves += result.lp_solves
    state.mip_solves += result.mip_solves
    return result


def _accept(state: _State, cells: Cells, result: LexicographicResult) -> None:
    """Store a staged answer with its proofs."""
    if result.values is None:
        state.status = result.status
        zero = np.zeros(int((cells.stop - cells.grid.start[cells.which]).sum()), np.int64)
        state.keep(cells.which, Runs(cells.grid.start[cells.which], cells.stop), zero)
        return
    if result.status is not Status.OPTIMAL:
        state.status = result.status
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
    proofs: tuple[LevelProof, ...] = stage_proofs(cells, state.search.load, result)
    state.parts.append(SchedulePart(cells.which, proofs))


def _potential(grid: Grid, bands: Bands) -> Integers:
    """(entries,) the most that the transfers of a load could put into a slot."""
    columns, entries = grid.columns, bands.entries
    most = np.zeros(entries.count, np.int64)
    groups = (grid.pair,) if len(bands.transfer_band) == 1 else grid.groups("port")
    for group in groups:
        np.add.at(most, entries.entry(group[columns.row], columns.slot), np.minimum(grid.units, grid.cap)[columns.row])
    if len(groups) == 1:
        cap = np.zeros(len(entries.first), np.int64)
        cap[grid.pair] = grid.cap
        most = np.minimum(most, cap[entries.row])
    return most


def _split(which: Integers, labels: Integers) -> list[Integers]:
    """Cut a set of transfers by component, in order of their first transfers."""
    _, first, inverse = np.unique(labels[which], return_index=True, return_inverse=True)
    return [which[inverse == c] for c in np.argsort(first)]


def _subgrid(grid: Grid, which: Integers) -> Grid:
    return replace(
        grid,
        **{
            name: getattr(grid, name)[which]
            for name in ("transfer", "sender", "receiver", "units", "start", "stop", "due", "cap")
        },
    )


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
