"""From a grid to a proven lexicographic optimum: structure first, programs for what is left.

Every pair on its own gives the least loads one can hope for, and a schedule that has them (see `presolve`). Where it
breaks the capacity of ports, these ports become constraints, and the transfers that use them are planned again:

1. by a linear program over intervals that looks for a point within the bands (the loads stay least);
2. if there is none, by the staged programs; their windows may be elastic.

Capacities of all other ports are left out. The answer to that relaxation is an optimum of the whole problem as soon
as it breaks no port; while it does, these ports become constraints too. So the programs stay as small as the conflict.
Parts that share no load and no constrained port are planned apart: the sorted vector of the whole is least when that
of every part is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Integers
from flowlex.formulations.engines import solve
from flowlex.formulations.outcome import Infeasibility, Status
from flowlex.models.jit.blocks import Blocks, overfull
from flowlex.models.jit.grid import Grid
from flowlex.models.jit.incumbent import incumbent
from flowlex.models.jit.presolve import Bands, components, find_bands, port_overload
from flowlex.models.jit.program import Cells, base_program
from flowlex.models.jit.proofs import band_proofs
from flowlex.models.jit.rounding import settle
from flowlex.models.jit.search import Plan, Ports, Search, SearchState
from flowlex.models.jit.stages import all_staged, face_point, split, staged_together
from flowlex.validation.certificates.jit import SchedulePart

__all__ = ["Plan", "Search", "find_plan"]

_FIRM = "the firm ends cannot all be met, whatever else is late; raise a firm_s, or leave one out"


def find_plan(grid: Grid, search: Search, seen: Callable[[Callable[[], Plan | None]], None] | None = None) -> Plan:
    """Find a lexicographically least schedule; when time runs out first, the best one so far.

    ``seen`` is told on the way, with what makes a whole schedule of what there is (see `incumbent`).
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
    overload, ports = port_overload(grid)
    if overload and search.windows == "strict":
        return _infeasible(overload)
    if search.presolve:
        return _from_structure(state, ports)
    state.tell()
    everything = np.arange(grid.count)
    overloaded = bool(overload) or (search.windows == "elastic" and bool((grid.stop > grid.due).any()))
    if overloaded or not staged_together(state, everything, None, 0, elastic=False):
        if search.windows == "strict":
            return _infeasible(_explain(grid, everything, search))
        if not staged_together(state, everything, None, 0, elastic=True):
            return _infeasible(_FIRM)
    return state.plan(0)


def _from_structure(state: SearchState, ports: Ports) -> Plan:
    """Bands first; then, around the ports that they break, programs (see the module)."""
    grid, search = state.grid, state.search
    bands = find_bands(grid, search.load, widened=search.windows == "strict")
    state.bands = bands
    late = ports[0][grid.sender] | ports[1][grid.receiver]
    if search.windows == "elastic":
        late |= grid.stop > grid.due
    state.blocks = bands.blocks
    staged_ones = late.copy()
    active = _first_active(grid, search, ports, np.flatnonzero(late))
    changed = np.ones_like(late) if search.load == "port" else late.copy()
    while True:
        hard = _planned_again(state, bands, active, late, changed, staged_ones)
        if not all_staged(state, hard, active, bands, late):
            return _infeasible(_FIRM if search.windows == "elastic" else _explain(grid, np.concatenate(hard), search))
        if not state.status.has_answer:
            return state.plan(bands.largest)
        over = _settled(state, overfull(grid, state.blocks), active, staged_ones)
        new = (over[0] & ~active[0], over[1] & ~active[1])
        if not new[0].any() and not new[1].any():
            break
        active = (active[0] | new[0], active[1] | new[1])
        changed = new[0][grid.sender] | new[1][grid.receiver]
    settled = np.flatnonzero(~staged_ones)
    if len(settled):
        if search.load != "port":
            state.took("structure")
        proofs = band_proofs(grid, bands, search.load, settled)
        state.parts.insert(0, SchedulePart(grid.transfer[settled], proofs))
    return state.plan(bands.largest)


def _first_active(grid: Grid, search: Search, ports: Ports, late: Integers) -> Ports:
    """Ports that are constraints from the start: overfull ones, and those that the bands say nothing of."""
    if search.load == "port":  # both ends of a transfer are loads: nothing can be planned pair by pair
        return np.ones_like(ports[0]), np.ones_like(ports[1])
    active = (ports[0].copy(), ports[1].copy())
    if 2 * len(late) > grid.count:  # where most is late, it all becomes one part: not port by port, each a round
        active[0][grid.sender[late]] = True
        active[1][grid.receiver[late]] = True
    return active


def _planned_again(
    state: SearchState,
    bands: Bands,
    active: Ports,
    late: NDArray[np.bool_],
    changed: NDArray[np.bool_],
    staged_ones: NDArray[np.bool_],
) -> list[Integers]:
    """Look for points within the bands in the parts that are concerned; return those that have none.

    These are marked in ``staged_ones``, and need the staged programs.
    """
    grid = state.grid
    together = [np.searchsorted(grid.transfer, part.transfers) for part in state.parts]
    labels = components(grid, state.search.load, active, together)
    concerned = np.isin(labels, labels[active[0][grid.sender] | active[1][grid.receiver] | late])
    hard = []
    for members in split(np.flatnonzero(concerned & np.isin(labels, labels[changed])), labels):
        state.tell()
        found = None if staged_ones[members].any() else face_point(state, bands, members, active)
        if found is not None:
            state.keep(members, found)
        else:
            hard.append(members)
            staged_ones[members] = True
    return hard


def _settled(state: SearchState, over: Ports, active: Ports, staged_ones: NDArray[np.bool_]) -> Ports:
    """Settle what shares ports that are over with what programs have planned, which need not be solved anew then.

    Returns the ports that are over. Ports that are constraints stay within their capacity, or nothing is changed.
    """
    grid, blocks = state.grid, state.blocks
    if state.search.load != "pair" or not blocks.whole or not (over[0].any() or over[1].any()):
        return over
    labels = components(grid, "pair", (active[0] | over[0], active[1] | over[1]))
    beside = np.isin(labels, labels[staged_ones]) & ~staged_ones
    changed = settle(grid, blocks, (over[0] | active[0], over[1] | active[1]), beside)
    after = overfull(grid, changed)
    if (after[0] & active[0]).any() or (after[1] & active[1]).any():
        return over
    state.blocks = changed
    return after


def _explain(grid: Grid, members: Integers, search: Search) -> str:
    """Say which rows of the ports cannot hold together, by the program's own names."""
    cells = Cells(grid, members, grid.stop[members], search.horizon)
    outcome = solve(base_program(cells, name="windows and ports", binding_only=True), "highs", search.options)
    reason = outcome.infeasibility.message if outcome.infeasibility is not None else "No schedule exists."
    return f"{reason} Pass windows='elastic' to accept the least total lateness."


def _infeasible(message: str) -> Plan:
    return Plan(Status.INFEASIBLE, Blocks.empty(), infeasibility=Infeasibility(message), message=message)
