"""The incumbent of an unfinished search: a complete schedule with the proven levels and a bound.

It keeps the parts planned by programs, and the other transfers, spread evenly over their windows, where no port is
overfull. The remaining transfers are sent on the remaining capacity of the ports, in order of latest arrival. Below the
proven levels there is a bound: a level that some load of a part must reach.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.solver_outcome import Status
from flowlex.models.jit.baselines import fill
from flowlex.models.jit.interval_schedules import Blocks, load_counts, overfull, port_pieces
from flowlex.models.jit.methods.plan_search import Plan, SearchState
from flowlex.models.jit.multipliers import LATENESS, SchedulePart, band_proofs, highest_level
from flowlex.models.jit.transfer_slot_grid import Grid


def incumbent(state: SearchState) -> Plan | None:
    """Return the best complete schedule found so far; None if each violates a window (or a firm end)."""
    grid, last = state.grid, state.grid.stop if state.windows == "strict" else state.grid.firm
    if not grid.count:
        return None
    planned = np.isin(grid.transfer, np.concatenate([np.zeros(0, np.int64), *(p.transfers for p in state.parts)]))
    found = [_completed(grid, Blocks.empty(), planned)]
    if state.blocks.whole:
        found.append(_completed(grid, state.blocks, planned))
    found = [blocks for blocks in found if (blocks.end <= last[blocks.item]).all()]
    if not found:
        return None
    blocks = min(found, key=lambda each: _worth(state, each))
    parts = _parts(state, planned) if blocks is state.blocks else ()
    least = None if parts else max(_reached(state, blocks), key=lambda part: part.proofs[-1].level, default=None)
    return Plan(
        Status.FEASIBLE,
        blocks,
        parts,
        (*state.route, "on the way") if parts else (*state.route, "the earliest latest arrival first"),
        1 if least is None else least.proofs[-1].level,
        state.lp_solves,
        state.mip_solves,
        message=f"levels from {state.lowest} up are proven" if parts else "no level is proven",
        lowest=state.lowest if parts else 1,
        least=least,
    )


def _worth(state: SearchState, blocks: Blocks) -> tuple[int, list[tuple[int, int]]]:
    """Key of comparison: total lateness, then the sorted loads; smaller is better."""
    value, width = load_counts(state.grid, blocks, state.load)
    late = _lateness(state, blocks)
    return late, list(zip(value.tolist(), width.tolist(), strict=True))


def _lateness(state: SearchState, blocks: Blocks) -> int:
    return int(blocks.lateness(state.grid.due)) if state.windows == "elastic" else 0


def _parts(state: SearchState, planned: NDArray[np.bool_]) -> tuple[SchedulePart, ...]:
    """Proofs of all transfers from programs and bands; empty if some have none."""
    grid, rest = state.grid, np.flatnonzero(~planned)
    if state.lowest < 2 or (len(rest) and (state.bands is None or (grid.stop > grid.due)[rest].any())):
        return ()
    if not len(rest) or state.bands is None:
        return tuple(state.parts)
    return (SchedulePart(grid.transfer[rest], band_proofs(grid, state.bands, state.load, rest)), *state.parts)


def _reached(state: SearchState, blocks: Blocks) -> Iterator[SchedulePart]:
    """Proofs that some load must reach a level: from windows alone, or from the first stages of a part.

    None where something is late, as no proof shows that less is impossible.
    """
    grid, load = state.grid, state.load
    if _lateness(state, blocks):
        return
    by_windows = None if state.bands is None else highest_level(grid, state.bands, load)
    if by_windows is not None:
        yield by_windows
    for part in state.parts:
        own = state.blocks.only(np.searchsorted(grid.transfer, part.transfers))
        top = int(max(load_counts(grid, own, load)[0], default=0))
        proofs = [proof for proof in part.proofs if proof.level == LATENESS or proof.level >= top]
        proofs.sort(key=lambda proof: (proof.level != LATENESS, -proof.level))
        if not part.quoted and proofs and proofs[-1].level == top > 0:
            yield SchedulePart(part.transfers, tuple(proofs))


def _completed(grid: Grid, blocks: Blocks, planned: NDArray[np.bool_]) -> Blocks:
    """Complete a schedule: send missing units, and those that overfill a port, on the remaining capacity."""
    sent = np.bincount(blocks.item, blocks.amount, grid.count)
    loose = sent < grid.units
    for fixed in (planned, np.zeros_like(planned)):
        over = overfull(grid, blocks.without(np.flatnonzero(loose)))
        loose |= (over[0][grid.sender] | over[1][grid.receiver]) & ~fixed
    at = np.flatnonzero(loose)
    if not len(at):
        return blocks
    runs = blocks.without(at).cut(grid)
    taken = port_pieces(grid, runs)
    facts = (grid.sender[at], grid.receiver[at], grid.units[at], grid.start[at])
    _, added = fill(grid.out_units, grid.in_units, *facts, taken, grid.due[at])
    return runs.and_also(Blocks(at[added.item], added.begin, added.end, added.amount))
