"""Find a proven lexicographic optimum of a grid: first by presolve, then by programs for conflicting transfers.

Each pair alone gives a lower bound on the loads, and a schedule that attains it (see `presolve`). Remainders that the
slots do not divide are placed where ports have free capacity (`unit_rounding`). Ports that are still overfull become
constraints, and programs replan their transfers level by level, if necessary with elastic windows.

The capacities of all other ports are relaxed. The solution of this relaxation is optimal as soon as it violates no
port; violated ports become constraints, too. So programs contain only conflicting transfers. Components that share no
load and no constrained port are planned separately: the sorted vector of all loads is least if that of every component
is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import Infeasibility, Status
from flowlex.models.jit.binding_port_stages import solve_components, solve_part
from flowlex.models.jit.incumbent import incumbent
from flowlex.models.jit.interval_schedules import Blocks, overfull
from flowlex.models.jit.multipliers import SchedulePart, band_proofs
from flowlex.models.jit.plan_search import Plan, Ports, Search, SearchState
from flowlex.models.jit.presolve import components, find_bands, port_overload
from flowlex.models.jit.slot_programs import Cells, base_program
from flowlex.models.jit.transfer_slot_grid import Grid
from flowlex.models.jit.unit_rounding import settle

_FIRM = "the firm ends cannot all be met, even if all other transfers are late; raise a firm_s, or leave one out"


def find_plan(grid: Grid, search: Search, seen: Callable[[Callable[[], Plan | None]], None] | None = None) -> Plan:
    """Find a lexicographically least schedule, or at a time limit the best one so far.

    ``seen`` is called during the search with a function that makes a complete schedule (see `incumbent`).
    """
    state = SearchState(grid, search)
    if seen is not None:
        tell = seen
        state.seen = lambda draft: tell(lambda: _incumbent(draft()))
    plan = _find_plan(state)
    found = incumbent(state) if plan.status is Status.TIME_LIMIT else None
    return plan if found is None else replace(found, message=f"time ran out; {found.message}")


def _incumbent(state: SearchState | None) -> Plan | None:
    return None if state is None else incumbent(state)


def _find_plan(state: SearchState) -> Plan:
    grid, search = state.grid, state.search
    if not grid.count:
        return state.plan(0)
    message, overload, ports = port_overload(grid)
    if overload and search.windows == "strict":
        return replace(_infeasible(message), overload=overload)
    if search.presolve:
        return _from_structure(state, ports)
    everything = np.arange(grid.count)
    overloaded = bool(overload) or (search.windows == "elastic" and bool((grid.stop > grid.due).any()))
    if overloaded or not solve_part(state, everything, None, elastic=False):
        if search.windows == "strict":
            return _infeasible(_explain(grid, everything, search))
        if not solve_part(state, everything, None, elastic=True):
            return _infeasible(_FIRM)
    return state.plan(0)


def _from_structure(state: SearchState, ports: Ports) -> Plan:
    """Plan by bands first; then by programs for transfers at violated ports (see the module)."""
    grid, search = state.grid, state.search
    bands = find_bands(grid, search.load, widened=search.windows == "strict")
    state.bands = bands
    late = ports[0][grid.sender] | ports[1][grid.receiver]
    if search.windows == "elastic":
        late |= grid.stop > grid.due
    state.blocks = bands.blocks
    programmed = late.copy()
    active = _first_active(grid, search, ports, np.flatnonzero(late))
    changed = np.ones_like(late) if search.load == "port" else late.copy()
    while True:
        together = [np.searchsorted(grid.transfer, part.transfers) for part in state.parts]
        labels = components(grid, search.load, active, together)
        concerned = np.isin(labels, labels[active[0][grid.sender] | active[1][grid.receiver] | late])
        late |= concerned & np.isin(labels, labels[late])
        again = np.flatnonzero(concerned & np.isin(labels, labels[changed]))
        programmed[again] = True
        if not solve_components(state, again, labels, active, late):
            return _infeasible(_FIRM if search.windows == "elastic" else _explain(grid, again, search))
        if not state.status.has_answer:
            return state.plan(bands.largest)
        over = overfull(grid, state.blocks)
        if search.load == "pair" and state.blocks.whole and (over[0].any() or over[1].any()):
            state.blocks = settle(grid, state.blocks, ~programmed)
            over = overfull(grid, state.blocks)
        new = (over[0] & ~active[0], over[1] & ~active[1])
        if not new[0].any() and not new[1].any():
            break
        active = (active[0] | new[0], active[1] | new[1])
        changed = new[0][grid.sender] | new[1][grid.receiver]
    settled = np.flatnonzero(~programmed)
    if len(settled):
        if search.load != "port":
            state.took("structure")
        proofs = band_proofs(grid, bands, search.load, settled)
        state.parts.insert(0, SchedulePart(grid.transfer[settled], proofs))
    return state.plan(bands.largest)


def _first_active(grid: Grid, search: Search, ports: Ports, late: Integers) -> Ports:
    """Ports that are constraints from the start: overfull ones, or all if loads are counted by port."""
    if search.load == "port":  # each transfer counts towards two loads, so pairs are not independent
        return np.ones_like(ports[0]), np.ones_like(ports[1])
    active = (ports[0].copy(), ports[1].copy())
    if 2 * len(late) > grid.count:  # if most transfers are late, plan all at once instead of in many rounds
        active[0][grid.sender[late]] = True
        active[1][grid.receiver[late]] = True
    return active


def _explain(grid: Grid, members: Integers, search: Search) -> str:
    """Return a message with the conflicting rows of an infeasible program."""
    cells = Cells(grid, members, grid.stop[members], search.horizon)
    outcome = solve(base_program(cells, name="windows and ports", binding_only=True), "highs", search.options)
    reason = outcome.infeasibility.message if outcome.infeasibility is not None else "No schedule exists."
    return f"{reason} Pass windows='elastic' to accept the least total lateness."


def _infeasible(message: str) -> Plan:
    return Plan(Status.INFEASIBLE, Blocks.empty(), infeasibility=Infeasibility(message), message=message)
