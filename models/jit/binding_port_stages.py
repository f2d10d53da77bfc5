"""Programs for the transfers at binding ports: least lateness, then the levels one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.lexicographic.decreasing_minimisation import minimize_levels
from flowlex.formulations.lexicographic.lexicographic_problem import (
    WHOLE,
    LexicographicProgram,
    LexicographicResult,
    is_whole,
)
from flowlex.formulations.lexicographic.optimal_faces import minimize_on_faces
from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import Status
from flowlex.models.jit.interval_schedules import Blocks
from flowlex.models.jit.least_lateness import least_late
from flowlex.models.jit.multipliers import LevelProof, stage_proofs
from flowlex.models.jit.plan_search import Ports, SearchState
from flowlex.models.jit.slot_programs import Cells, latest_end, lexicographic_program

#: Approximate number of transfers of a program that several components share.
TOGETHER = 150


def solve_components(
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
            if len(parts) > 1 and solve_part(state, np.concatenate(parts), ports, elastic=elastic, several=True):
                continue
            for part in parts:
                if solve_part(state, part, ports, elastic=elastic):
                    continue
                if elastic or state.search.windows == "strict":
                    return False
                late[part] = True
    return True


def solve_part(
    state: SearchState, members: Integers, ports: Ports | None, *, elastic: bool, several: bool = False
) -> bool:
    """Plan some transfers; return whether they have a schedule.

    With ``several`` components, False only means that linear programs alone found no integral schedule.
    """
    grid, search = state.grid, state.search
    state.tell()
    cells, result = None, None
    first: LevelProof | None = None
    if elastic and search.integrality != "mip":
        cells, result, first = _least_late(state, members, ports, several)
    elif not elastic:
        cells = Cells(grid, members, grid.stop[members], state.horizon, ports)
        at_least = 0 if state.bands is None else state.bands.largest_of(members)
        result = _minimized(state, cells, _problem(state, cells, elastic=False), at_least, several)
    if result is None or cells is None:
        if several:
            return False
        first = None
        cells = Cells(grid, members, latest_end(grid, members), "slots", ports)
        result = minimize_levels(
            _problem(state, cells, elastic=True), state.solve, integrality=search.integrality, session=state.session
        )
    state.lp_solves += result.lp_solves
    state.mip_solves += result.mip_solves
    if result.status is Status.INFEASIBLE:
        return False
    _accept(state, cells, result, first)
    if elastic:
        state.took("least lateness first")
    return True


def _problem(state: SearchState, cells: Cells, *, elastic: bool) -> LexicographicProgram:
    return lexicographic_program(
        cells, state.search.load, name="lexicographic", binding_only=True, labels=False, elastic=elastic
    )


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

    how = state.search.integrality
    if not several:
        return minimize_levels(
            problem, state.solve, integrality=how, at_least=at_least, session=state.session, report=report
        )
    return (
        None
        if how == "mip"
        else minimize_on_faces(problem, state.solve, state.session, at_least, fractional=how == "lp", report=report)
    )


def _least_late(
    state: SearchState, members: Integers, ports: Ports | None, several: bool
) -> tuple[Cells | None, LexicographicResult | None, LevelProof | None]:
    """Minimise the levels over all schedules of least lateness (`flowlex.models.jit.least_lateness`), with its proof.
    The result is None if integer units may need more lateness, or if the method by faces finds no integer units.
    """
    grid = state.grid
    late = least_late(state, members)
    if late.cells is None or late.proof is None or late.open is None:
        if late.outcome.status is Status.OPTIMAL:
            return None, None, None
        failed = LexicographicResult(late.outcome.status, None, 0, (), "lp", late.outcome)
        return Cells(grid, members, grid.stop[members], "intervals", ports), failed, None
    cells = replace(late.cells, ports=ports)
    problem = _problem(state, cells, elastic=False)
    closed = problem.base.with_upper("rate", np.where(late.open, problem.base.variable_blocks["rate"].upper, 0.0))
    problem = replace(problem, base=closed)
    result = _minimized(state, cells, problem, late.least_load(state.search.load), several, late.proof)
    if result is not None and result.status is Status.INFEASIBLE:
        result = None
    return cells, result, late.proof


def _accept(state: SearchState, cells: Cells, result: LexicographicResult, first: LevelProof | None = None) -> None:
    """Store the schedule of a part with its proofs; ``first``: the proof of least lateness."""
    if result.values is None:
        state.status = result.status
        state.keep(cells.which, Blocks.empty())
        return
    if result.status is not Status.OPTIMAL:
        state.status = result.status
        open_levels = [s.level + 1 for s in result.stages if s.bound < s.value - WHOLE]
        last = min((s.level for s in result.stages), default=0)
        state.lowest = max(state.lowest, last, *open_levels)
    whole = np.rint(result.values)
    rates = whole.astype(np.int64) if is_whole(result.values) else result.values
    state.keep(cells.which, cells.blocks(rates))
    state.took(f"staged {result.route}")
    proofs = stage_proofs(cells, state.search.load, result)
    state.prove(cells.which, proofs if first is None else (first, *proofs), quoted=result.route == "mip")
