"""Programs for the transfers around ports that bind: a point within the bands, or the stages one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Integers
from flowlex.formulations.expression import Expression, Variables
from flowlex.formulations.lexicographic.faces import minimize_on_faces
from flowlex.formulations.lexicographic.levels import minimize_levels
from flowlex.formulations.lexicographic.problem import WHOLE, LexicographicProgram, LexicographicResult, is_whole
from flowlex.formulations.outcome import Status
from flowlex.models.jit.blocks import Blocks
from flowlex.models.jit.grid import Grid
from flowlex.models.jit.lateness import least_late
from flowlex.models.jit.presolve import Bands
from flowlex.models.jit.program import Cells, base_program, latest_end, lexicographic_program
from flowlex.models.jit.proofs import split_proofs, stage_proofs
from flowlex.models.jit.search import Ports, SearchState
from flowlex.validation.certificates.jit import LevelProof

__all__ = ["all_staged", "face_point", "split", "staged_together"]

#: Parts of fewer transfers share programs.
TOGETHER = 150


def face_point(state: SearchState, bands: Bands, members: Integers, ports: Ports) -> Blocks | None:
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
    band = bands.at(unit, cells.edges[cell])
    program.constrain("band_most", loads, "<=", (band + 1) * cells.length[cell])
    program.constrain("band_least", loads, ">=", np.maximum(band, 0) * cells.length[cell])
    closed = np.zeros(columns.count, np.bool_)
    for group, lowest in zip(grid.groups(search.load), bands.transfer_band, strict=True):
        chosen = members[columns.row]
        closed |= bands.at(group[chosen], cells.edges[columns.slot]) > lowest[chosen]
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
    return cells.blocks(values.astype(np.int64))


def all_staged(state: SearchState, parts: list[Integers], ports: Ports, bands: Bands, late: NDArray[np.bool_]) -> bool:
    """Run the staged programs for parts that share nothing; return whether all have a schedule.

    Small ones go into one program, which is many times quicker than hundreds; each alone where that does not lead to
    whole units. Parts for which there is no time on time are marked ``late``, and planned with elastic windows.
    """
    for elastic in (False, True):
        now = [part for part in parts if bool(late[part].any()) is elastic]
        missed = []
        for batch in _batches(now, state.grid if elastic else None):
            state.tell()
            together = np.concatenate(batch)
            at_least = 0 if elastic else bands.largest_of(together)
            if len(batch) > 1 and staged_together(state, together, ports, at_least, elastic=elastic, parts=batch):
                continue
            for part in batch:
                at_least = 0 if elastic else bands.largest_of(part)
                if not staged_together(state, part, ports, at_least, elastic=elastic):
                    missed.append(part)
        if missed and (elastic or state.search.windows == "strict"):
            return False
        for part in missed:
            late[part] = True
    return True


def _batches(parts: list[Integers], grid: Grid | None) -> list[list[Integers]]:
    """Parts in batches of at most `TOGETHER` transfers; a larger one is a batch of its own.

    With a grid, parts of a batch share no port at all: lateness is planned and proven with ports to themselves.
    """
    batches: list[list[Integers]] = []
    room: list[int] = []
    taken: list[set[int]] = []
    for part in sorted(parts, key=len):
        own = set() if grid is None else {*grid.sender[part].tolist(), *(-1 - grid.receiver[part]).tolist()}
        at = next((n for n in range(len(room)) if len(part) <= room[n] and not own & taken[n]), len(room))
        if at == len(room):
            batches.append([])
            room.append(TOGETHER)
            taken.append(set())
        batches[at].append(part)
        room[at] -= len(part)
        taken[at] |= own
    return batches


def staged_together(
    state: SearchState,
    members: Integers,
    ports: Ports | None,
    at_least: int,
    *,
    elastic: bool,
    parts: list[Integers] | None = None,
) -> bool:
    """Run the staged programs for some transfers; return whether they have a schedule.

    ``parts`` share nothing and are proven one by one; then False only says that this way does not lead there.
    """
    grid, search = state.grid, state.search
    cells, result = None, None
    first: LevelProof | None = None
    if elastic and search.integrality != "mip":
        cells, result, first = _least_late(state, members, ports, parts)
    elif not elastic:
        cells = Cells(grid, members, grid.stop[members], state.horizon, ports)
        result = _minimized(state, cells, _problem(state, cells, elastic=False), at_least, parts)
    if result is None or cells is None:
        if parts is not None:
            return False
        first = None
        cells = Cells(grid, members, latest_end(grid, members), "slots", ports)
        result = minimize_levels(_problem(state, cells, elastic=True), state.solve, integrality=search.integrality)
    state.lp_solves += result.lp_solves
    state.mip_solves += result.mip_solves
    if result.status is Status.INFEASIBLE:
        return False
    _accept(state, cells, result, parts, first)
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
    parts: list[Integers] | None,
    first: LevelProof | None = None,
) -> LexicographicResult | None:
    """Minimise the levels, and offer what there is on the way; None where parts are not solved together."""

    def report(result: Callable[[], LexicographicResult | None]) -> None:
        def accepted(draft: SearchState) -> bool:
            found = result()
            if found is not None:
                _accept(draft, cells, found, parts, first)
            return found is not None

        state.tell(accepted)

    integrality, session = state.search.integrality, state.session
    if parts is None:
        return minimize_levels(
            problem, state.solve, integrality=integrality, at_least=at_least, session=session, report=report
        )
    if integrality == "mip":
        return None
    fractional = integrality == "lp"
    return minimize_on_faces(problem, state.solve, at_least, fractional=fractional, session=session, report=report)


def _least_late(
    state: SearchState, members: Integers, ports: Ports | None, parts: list[Integers] | None
) -> tuple[Cells | None, LexicographicResult | None, LevelProof | None]:
    """The stages over all schedules of least lateness (`flowlex.models.jit.lateness`), and what shows that it is least.

    The result is None where whole units may have to be later than that, or the way by faces leads to no whole units.
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
    result = _minimized(state, cells, problem, late.least_load(state.search.load), parts, late.proof)
    if result is not None and result.status is Status.INFEASIBLE:
        result = None
    return cells, result, late.proof


def _accept(
    state: SearchState,
    cells: Cells,
    result: LexicographicResult,
    parts: list[Integers] | None = None,
    first: LevelProof | None = None,
) -> None:
    """Store a staged answer with its proofs, part by part; ``first``: of what came before the stages."""
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
    proofs = proofs if first is None else (first, *proofs)
    if parts is None:
        state.prove(cells.which, proofs)
        return
    place = {k: n for n, k in enumerate(cells.which.tolist())}
    for part in parts:
        at = np.array([place[k] for k in part.tolist()], np.int64)
        state.prove(part, split_proofs(cells.grid, state.search.load, proofs, part, at))


def split(which: Integers, labels: Integers) -> list[Integers]:
    """Cut a set of transfers by component, in order of their first transfers."""
    _, first, inverse = np.unique(labels[which], return_index=True, return_inverse=True)
    return [which[inverse == c] for c in np.argsort(first)]
