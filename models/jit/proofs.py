"""Prices that prove the levels of a just-in-time schedule (what they mean: `flowlex.validation.certificates.jit`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.expression import Floats, Integers
from flowlex.formulations.lexicographic.levels import LexicographicResult, Stage
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import Outcome
from flowlex.models.jit.grid import Grid, Load
from flowlex.models.jit.program import Cells
from flowlex.models.jit.structure import Bands
from flowlex.validation.certificates.jit import LATENESS, LevelProof

__all__ = ["band_proofs", "largest_proof", "stage_proofs"]


def band_proofs(grid: Grid, bands: Bands, load: Load, part: Integers) -> tuple[LevelProof, ...]:
    """Levels of a schedule within the bands: 0 and 1 prices, judged without tolerance.

    At level k the slots of band k-1 and above have price 1; transfers confined to them must pay it.
    """
    mine = np.zeros(len(bands.entries.first), np.bool_)
    for group in grid.groups(load):
        mine[group[part]] = True
    of_part = mine[bands.entries.row]
    top = int(bands.band[of_part].max(initial=-1)) + 1
    proofs = []
    for level in range(top, 1, -1):
        priced = np.flatnonzero(of_part & (bands.band >= level - 1))
        proofs.append(
            LevelProof(
                level=level,
                load=bands.entries.row[priced],
                load_slot=bands.entries.slot[priced],
                rho=np.ones(len(priced), np.int64),
                mu=dict.fromkeys(range(level + 1, top + 1), 1.0),
            )
        )
    return tuple(proofs)


def stage_proofs(cells: Cells, load: Load, result: LexicographicResult) -> tuple[LevelProof, ...]:
    """Duals of the staged linear programs as prices; an integer program's bound is quoted beside them."""
    quoted = result.route == "mip"
    lateness_stage = max((s.level for s in result.stages if s.level > result.largest), default=None)
    proofs = []
    for stage in result.stages:
        if stage.level == 0:
            continue
        first = stage.level == lateness_stage
        bound = stage.bound if quoted else None
        proofs.append(_stage_proof(cells, load, stage, first, lateness_stage, bound))
    return tuple(proofs)


def _stage_proof(
    cells: Cells,
    load: Load,
    stage: Stage,
    first: bool,
    lateness_stage: int | None,
    bound: float | None,
    *,
    every_row: bool = False,
) -> LevelProof:
    machines, duals = len(cells.grid.out_units), stage.duals
    unit, cell, _ = cells.load_entries(load)
    rho = np.maximum(duals.get("level_link", np.zeros(len(unit))), 0.0)
    port, place, pi = [], [], []
    for side, name in enumerate(("egress", "ingress")):
        if name in duals:
            machine, where, _ = cells.port_rows(side, not every_row)
            port.append(machine + side * machines)
            place.append(where)
            pi.append(np.maximum(-duals[name], 0.0))
    ports = np.concatenate(port) if port else np.zeros(0, np.int64)
    places = np.concatenate(place) if place else np.zeros(0, np.int64)
    price = np.concatenate(pi) if pi else np.zeros(0)
    load_at, load_slot, load_price = _over_slots(cells, unit, cell, rho)
    ports, port_slot, port_price = _over_slots(cells, ports, places, price)
    mu = {s: p for s, p in stage.multipliers.items() if s != lateness_stage}
    nu = 1.0 if first else stage.multipliers.get(lateness_stage or -1, 0.0)
    whole = _tidy(load_price, port_price)
    return LevelProof(
        level=LATENESS if first else stage.level,
        load=load_at,
        load_slot=load_slot,
        rho=whole[0],
        port=ports,
        port_slot=port_slot,
        pi=whole[1],
        mu={s: float(round(p)) if abs(p - round(p)) < 1e-7 else p for s, p in mu.items()},
        nu=float(round(nu)) if abs(nu - round(nu)) < 1e-7 else nu,
        solver_bound=bound,
    )


def _over_slots(cells: Cells, row: Integers, cell: Integers, price: Floats) -> tuple[Integers, Integers, Floats]:
    """Prices per slot from prices per cell: the same in each of its slots."""
    kept = np.flatnonzero(price > 1e-9) if len(price) else np.zeros(0, np.int64)
    length = cells.length[cell[kept]]
    again = np.repeat(kept, length)
    within = np.arange(len(again)) - np.repeat(np.cumsum(length) - length, length)
    return row[again], cells.edges[cell[again]] + within, price[again]


def _tidy(*prices: Floats) -> tuple[NDArray[np.number], ...]:
    """Whole prices as integers (then the proof needs no tolerance), when all are whole."""
    if all(np.abs(p - np.rint(p)).max(initial=0.0) < 1e-7 for p in prices):
        return tuple(np.rint(p).astype(np.int64) for p in prices)
    return prices


def largest_proof(
    cells: Cells, load: Load, program: LinearProgram, relaxed: Outcome, outcome: Outcome
) -> tuple[LevelProof, ...]:
    """P1: duals of the largest load, scaled so that they bound the number of loads at that level above zero."""
    duals = {} if relaxed.duals is None else program.split_rows(relaxed.duals)
    rho = np.maximum(-duals.get("largest_link", np.zeros(0)), 0.0)
    scale = 1.0 / rho.max(initial=0.0) if rho.max(initial=0.0) > 0 else 1.0
    level = int(np.ceil(float(outcome.objective or 0.0) - 1e-6))
    scaled = {name: values * scale for name, values in duals.items() if name in ("egress", "ingress")}
    stage = Stage(level, 1.0, 1.0, 1.0, {**scaled, "level_link": rho * scale})
    bound = 1.0 if outcome.bound is not None and outcome.bound > level - 1 + 1e-6 else 0.0
    return (_stage_proof(cells, load, stage, False, None, bound, every_row=True),)
