"""Find a proven lexicographic optimum of a grid: first by presolve, then by programs for conflicting transfers.

Measured (benchmark *jit_bandwidth*, where ports bind): 40 jobs at share 1.0, loads by port, every level in 2.3 s.

Each pair alone gives a lower bound on the loads, and a schedule that attains it (see `presolve`). Remainders that the
slots do not divide are placed where ports have free capacity (`rate_rounding`). Ports that are still overfull become
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
from numpy.typing import NDArray

from flowlex.formulations.engines import solve
from flowlex.formulations.lexicographic.decreasing_minimisation import minimize_levels
from flowlex.formulations.lexicographic.lexicographic_problem import (
    WHOLE,
    LexicographicProgram,
    LexicographicResult,
    is_whole,
)
from flowlex.formulations.lexicographic.optimal_faces import minimize_on_faces
from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import Infeasibility, Status
from flowlex.models.jit.interval_schedules import Blocks, overfull
from flowlex.models.jit.methods.incumbent import incumbent
from flowlex.models.jit.methods.least_lateness import least_late
from flowlex.models.jit.methods.plan_search import Plan, Ports, SearchState
from flowlex.models.jit.methods.presolve import ELASTIC, components, find_bands, port_overload
from flowlex.models.jit.methods.rate_rounding import settle
from flowlex.models.jit.multipliers import LevelProof, SchedulePart, band_proofs, stage_proofs
from flowlex.models.jit.slot_programs import Cells, base_program, latest_end, lexicographic_program

#: Approximate number of transfers of a program that several components share.
TOGETHER = 150
_FIRM = "the firm ends cannot all be met, even if all other transfers are late; raise a firm_s, or leave one out"


def find_plan(state: SearchState) -> Plan:
    """Find a lexicographically least schedule, or at a time limit the best one so far (see `incumbent`)."""
    plan = _find_plan(state)
    found = incumbent(state) if plan.status is Status.TIME_LIMIT else None
    return plan if found is None else replace(found, message=f"time ran out; {found.message}")


def _find_plan(state: SearchState) -> Plan:
    grid = state.grid
    if not grid.count:
        return state.plan(0)
    message, overload, ports = port_overload(grid)
    if overload and state.windows == "strict":
        return replace(_infeasible(message), overload=overload)
    if state.presolve:
        return _from_structure(state, ports)
    everything = np.arange(grid.count)
    overloaded = bool(overload) or (state.windows == "elastic" and bool((grid.stop > grid.due).any()))
    if overloaded or not _solve_part(state, everything, None, elastic=False):
        if state.windows == "strict":
            return _infeasible(_explain(state, everything))
        if not _solve_part(state, everything, None, elastic=True):
            return _infeasible(_FIRM)
    return state.plan(0)


def _from_structure(state: SearchState, ports: Ports) -> Plan:
    """Plan by bands first; then by programs for transfers at violated ports (see the module)."""
    grid = state.grid
    bands = find_bands(grid, state.load, widened=state.windows == "strict")
    state.bands = bands
    late = ports[0][grid.sender] | ports[1][grid.receiver]
    if state.windows == "elastic":
        late |= grid.stop > grid.due
    state.blocks = bands.blocks
    programmed = late.copy()
    coupled = len(grid.loads(state.load).groups) > 1  # a transfer counts towards several loads
    active = _first_active(state, ports, np.flatnonzero(late), coupled)
    changed = np.ones_like(late) if coupled else late.copy()
    while True:
        together = [np.searchsorted(grid.transfer, part.transfers) for part in state.parts]
        labels = components(grid, state.load, active, together)
        concerned = np.isin(labels, labels[active[0][grid.sender] | active[1][grid.receiver] | late])
        late |= concerned & np.isin(labels, labels[late])
        again = np.flatnonzero(concerned & np.isin(labels, labels[changed]))
        programmed[again] = True
        if not _solve_components(state, again, labels, active, late):
            return _infeasible(_FIRM if state.windows == "elastic" else _explain(state, again))
        if not state.status.has_answer:
            return state.plan(bands.largest)
        over = overfull(grid, state.blocks)
        if state.load == "pair" and state.blocks.whole and (over[0].any() or over[1].any()):
            state.blocks = settle(grid, state.blocks, ~programmed)
            over = overfull(grid, state.blocks)
        new = (over[0] & ~active[0], over[1] & ~active[1])
        if not new[0].any() and not new[1].any():
            break
        active = (active[0] | new[0], active[1] | new[1])
        changed = new[0][grid.sender] | new[1][grid.receiver]
    settled = np.flatnonzero(~programmed)
    if len(settled):
        if not coupled:
            state.took("structure")
        proofs = band_proofs(grid, bands, state.load, settled)
        state.parts.insert(0, SchedulePart(grid.transfer[settled], proofs))
    return state.plan(bands.largest)


def _first_active(state: SearchState, ports: Ports, late: Integers, coupled: bool) -> Ports:
    """Ports that are constraints from the start: overfull ones, or all if transfers couple loads."""
    if coupled:
        return np.ones_like(ports[0]), np.ones_like(ports[1])
    grid, active = state.grid, (ports[0].copy(), ports[1].copy())
    if 2 * len(late) > grid.count:  # if most transfers are late, plan all at once instead of in many rounds
        active[0][grid.sender[late]] = True
        active[1][grid.receiver[late]] = True
    return active


def _solve_components(
    state: SearchState, members: Integers, labels: Integers, ports: Ports, late: NDArray[np.bool_]
) -> bool:
    """Plan the components of some transfers; return whether all have a schedule.

    Small components share a program, which is much faster than hundreds of programs; if its solution is not integral,
    each gets its own program. Components without a schedule on time are marked ``late``; their windows are elastic.
    """
    for elastic in (False, True):
        chosen = members[late[members] == elastic]
        _, inverse, size = np.unique(labels[chosen], return_inverse=True, return_counts=True)
        batch = (np.cumsum(size) - 1) // TOGETHER
        for number in np.unique(batch):
            parts = [chosen[inverse == c] for c in np.flatnonzero(batch == number)]
            if len(parts) > 1 and _solve_part(state, np.concatenate(parts), ports, elastic=elastic, several=True):
                continue
            for part in parts:
                if _solve_part(state, part, ports, elastic=elastic):
                    continue
                if elastic or state.windows == "strict":
                    return False
                late[part] = True
    return True


def _solve_part(
    state: SearchState, members: Integers, ports: Ports | None, *, elastic: bool, several: bool = False
) -> bool:
    """Plan some transfers; return whether they have a schedule.

    With ``several`` components, False only means that linear programs alone found no integral schedule.
    """
    grid = state.grid
    state.tell()
    result: LexicographicResult | None = None
    first: LevelProof | None = None  # of least lateness
    if not elastic:
        cells = Cells(grid, members, grid.stop[members], state.horizon, ports)
        at_least = 0 if state.bands is None else state.bands.largest_of(members)
        result = _minimized(state, cells, _problem(state, cells), at_least, several)
    elif state.integrality != "mip":
        late = least_late(state, members)
        if late.cells is not None and late.proof is not None and late.open is not None:
            # All schedules of least lateness; no result if integer units may need more.
            cells, first = replace(late.cells, ports=ports), late.proof
            problem = _problem(state, cells)
            upper = np.where(late.open, problem.base.variable_blocks["rate"].upper, 0.0)
            problem = replace(problem, base=problem.base.with_upper("rate", upper))
            result = _minimized(state, cells, problem, late.least_load(state.load), several, first)
            if result is not None and result.status is Status.INFEASIBLE:
                result = None
        elif late.outcome.status is not Status.OPTIMAL:
            cells = Cells(grid, members, grid.stop[members], "intervals", ports)
            result = LexicographicResult(late.outcome.status, None, 0, (), "lp", late.outcome)
    if result is None:
        if several:
            return False
        first, cells = None, Cells(grid, members, latest_end(grid, members), "slots", ports)
        problem = _problem(state, cells, elastic=True)
        result = minimize_levels(problem, state.solve, integrality=state.integrality, session=state.session)
    state.lp_solves += result.lp_solves
    state.mip_solves += result.mip_solves
    if result.status is Status.INFEASIBLE:
        return False
    _accept(state, cells, result, first)
    if elastic:
        state.took("least lateness first")
    return True


def _problem(state: SearchState, cells: Cells, *, elastic: bool = False) -> LexicographicProgram:
    return lexicographic_program(cells, state.load, name="lexicographic", elastic=elastic)


def _minimized(
    state: SearchState,
    cells: Cells,
    problem: LexicographicProgram,
    at_least: int,
    several: bool,
    first: LevelProof | None = None,
) -> LexicographicResult | None:
    """Minimise the levels, and report incumbents; None if linear programs fail for several components together."""

    def report(result: Callable[[], LexicographicResult | None]) -> None:
        def accepted(draft: SearchState) -> bool:
            found = result()
            if found is not None:
                _accept(draft, cells, found, first)
            return found is not None

        state.tell(accepted)

    how = state.integrality
    if not several:
        return minimize_levels(
            problem, state.solve, integrality=how, at_least=at_least, session=state.session, report=report
        )
    if how == "mip":
        return None
    return minimize_on_faces(problem, state.solve, state.session, at_least, fractional=how == "lp", report=report)


def _accept(state: SearchState, cells: Cells, result: LexicographicResult, first: LevelProof | None) -> None:
    """Store the schedule of a part with its proofs; ``first``: the proof of least lateness."""
    others = state.blocks.without(cells.which)
    if result.values is None:
        state.status, state.blocks = result.status, others
        return
    if result.status is not Status.OPTIMAL:
        state.status = result.status
        open_levels = [s.level + 1 for s in result.stages if s.bound < s.value - WHOLE]
        last = min((s.level for s in result.stages), default=0)
        state.lowest = max(state.lowest, last, *open_levels)
    whole = np.rint(result.values)
    rates = whole.astype(np.int64) if is_whole(result.values) else result.values
    state.blocks = others.and_also(cells.blocks(rates))
    state.took(f"staged {result.route}")
    proofs = (*(() if first is None else (first,)), *stage_proofs(cells, state.load, result))
    at = state.grid.transfer[cells.which]
    state.parts = [part for part in state.parts if not np.isin(part.transfers, at).any()]
    state.parts.append(SchedulePart(at, proofs, quoted=result.route == "mip"))


def _explain(state: SearchState, members: Integers) -> str:
    """Return a message with the conflicting rows of an infeasible program."""
    cells = Cells(state.grid, members, state.grid.stop[members], state.horizon)
    outcome = solve(base_program(cells, name="windows and ports"), "highs", state.options)
    reason = outcome.infeasibility.message if outcome.infeasibility is not None else "No schedule exists."
    return f"{reason} {ELASTIC}"


def _infeasible(message: str) -> Plan:
    return Plan(Status.INFEASIBLE, Blocks.empty(), infeasibility=Infeasibility(message), message=message)
