"""Dual values that prove the levels of a schedule (meaning: `flowlex.validation.certificates.jit.duality_proof`)."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.lexicographic.lexicographic_problem import LexicographicResult, Stage
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.models.jit.presolve import Bands
from flowlex.models.jit.slot_programs import Cells
from flowlex.models.jit.transfer_slot_grid import Grid, Load
from flowlex.validation.certificates.jit import LATENESS, LevelProof, Prices, SchedulePart

_SIDES = ("out", "in")
#: Largest denominator of duals; programs with 0/1 coefficients have duals with small denominators.
_DENOMINATOR = 64
#: Largest common denominator; beyond it, duals are rounded to multiples of 1 / this.
_ROUNDING = 720_720 * 16


def band_proofs(grid: Grid, bands: Bands, load: Load, part: Integers) -> tuple[LevelProof, ...]:
    """Proofs of the levels of a schedule within the bands, with duals 0 and 1.

    At level k, the slots of band k-1 have dual 1, and so have the transfers confined to bands k-1 and above: the levels
    above exclude the slots of higher bands for all other transfers.
    """
    rows = np.unique(np.concatenate([group[part] for group in grid.groups(load)]))
    used = bands.band[np.isin(bands.unit, rows)]
    confined = bands.transfer_band[:, part]
    proofs = []
    for level in sorted({each for each in np.unique([used, used + 1]).tolist() if each > 1}, reverse=True):
        unit, begin, end = _pieces(bands, (bands.band == level - 1) & np.isin(bands.unit, rows))
        lam = np.asarray(sum((band == level - 1).astype(np.int64) for band in confined))
        prices = Prices(_number(grid, load)[unit], begin, end, np.ones(len(unit), np.int64))
        proofs.append(LevelProof(level, lam, prices))
    return tuple(proofs)


def highest_level(grid: Grid, bands: Bands, load: Load, lateness: int) -> SchedulePart | None:
    """Prove the highest level that some load must reach in every schedule with bounded lateness; None if trivial.

    Transfers confined to bands from level - 1 up have no other slots except late ones.
    """
    if bands.largest < 1:
        return None
    length, late = bands.end - bands.begin, int(bool(lateness))

    def spare(level: int) -> int:
        """Least sum of the loads above ``level - 1``, minus the units that may be late instead."""
        confined = (bands.transfer_band >= level - 1).sum(axis=0)
        slots = int(length[bands.band >= level - 1].sum())
        return int(confined @ grid.units) - (level - 1) * slots - int(confined.max(initial=0)) * late * lateness

    level = bisect.bisect_left(range(1, bands.largest + 1), True, key=lambda k: spare(k) <= 0)
    if level < 2:  # trivial: some unit is sent
        return None
    confined = bands.transfer_band >= level - 1
    members = np.flatnonzero(confined.any(axis=0))
    units = np.concatenate([g[c] for g, c in zip(grid.groups(load), confined, strict=True)])
    unit, begin, end = _pieces(bands, (bands.band >= level - 1) & np.isin(bands.unit, units))
    lam = confined[:, members].sum(axis=0)
    prices = Prices(_number(grid, load)[unit], begin, end, np.ones(len(unit), np.int64))
    proof = LevelProof(level, lam, prices, nu=late * int(lam.max()))
    return SchedulePart(grid.transfer[members], (proof,))


def _pieces(bands: Bands, chosen: NDArray[np.bool_]) -> tuple[Integers, Integers, Integers]:
    """Unit, first slot and end of the chosen pieces, with adjacent pieces merged."""
    at = np.flatnonzero(chosen)
    if not len(at):
        return at, at, at
    breaks = (np.diff(bands.unit[at]) != 0) | (bands.begin[at[1:]] != bands.end[at[:-1]])
    first, last = at[np.r_[True, breaks]], at[np.r_[breaks, True]]
    return bands.unit[first], bands.begin[first], bands.end[last]


def _number(grid: Grid, load: Load) -> Integers:
    """Number of each load in the certificate: ``sender * machines + receiver``, or the number of the port."""
    machines = len(grid.out_units)
    if load != "pair":
        return np.arange(grid.units_of_load(load)) + (machines if load == "receiver" else 0)
    number = np.zeros(grid.units_of_load("pair"), np.int64)
    number[grid.pair] = grid.sender * machines + grid.receiver
    return number


def stage_proofs(cells: Cells, load: Load, result: LexicographicResult) -> tuple[LevelProof, ...]:
    """Proofs from the duals of the staged linear programs; for integer programs also with the solver's bound."""
    quoted = result.route == "mip"
    before_all = max((s.level for s in result.stages if s.level > result.largest), default=None)
    proofs = []
    for stage in result.stages:
        bound = stage.bound if quoted else None
        proofs.append(_stage_proof(cells, load, stage, stage.level == before_all, before_all, bound))
    return tuple(proofs)


def _stage_proof(
    cells: Cells, load: Load, stage: Stage, first: bool, before_all: int | None, bound: float | None
) -> LevelProof:
    machines, duals = len(cells.grid.out_units), stage.duals
    unit, cell, _ = cells.load_entries(load)
    rho = duals.get("level_link", np.zeros(len(unit)))
    lam = duals.get("size", np.zeros(len(cells.which)))
    port, place, pi = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    for side, name in enumerate(("egress", "ingress")):
        if name in duals:
            machine, where, _ = cells.port_rows(side, binding_only=True)
            price = -duals[name]
            if cells.full is not None:
                price[np.isin(machine * len(cells.length) + where, cells.full[side])] -= duals[f"{name}_full"]
            port.append(machine + side * machines)
            place.append(where)
            pi.append(price)
    mu = {s: p for s, p in stage.multipliers.items() if s != before_all}
    nu = 1.0 if first else stage.multipliers.get(before_all or -1, 0.0)
    price = np.concatenate(pi)
    scale = common_scale([rho, lam, price, np.array([*mu.values(), nu])])
    return LevelProof(
        level=LATENESS if first else stage.level,
        lam=scaled(lam, scale),
        load=_prices(cells, _number(cells.grid, load)[unit], cell, scaled(rho, scale), before_all is None),
        port=_prices(cells, np.concatenate(port), np.concatenate(place), scaled(price, scale), before_all is None),
        scale=scale,
        mu={s: int(scaled(np.array([p]), scale)[0]) for s, p in mu.items() if p > 1e-9},
        nu=int(scaled(np.array([nu]), scale)[0]),
        solver_bound=bound,
    )


def common_scale(values: list[Floats]) -> int:
    """Return the least common denominator of all duals, limited to `_ROUNDING`."""
    parts = np.unique(np.round(np.concatenate(values) % 1.0, 9))
    scale = math.lcm(*(Fraction(part).limit_denominator(_DENOMINATOR).denominator for part in parts.tolist()))
    return min(scale, _ROUNDING)


def scaled(values: Floats, scale: int) -> NDArray[np.int64]:
    return np.rint(values * scale).astype(np.int64)


def _prices(cells: Cells, unit: Integers, cell: Integers, price: Integers, joined: bool) -> Prices:
    """Nonzero duals; adjacent cells with equal duals are merged (if ``joined``)."""
    kept = np.flatnonzero(price)
    kept = kept[np.lexsort((cell[kept], unit[kept]))]
    unit, cell, price = unit[kept], cell[kept], price[kept]
    if not len(kept) or not joined:
        return Prices(unit, cells.edges[cell], cells.edges[cell + 1], price)
    breaks = (np.diff(unit) != 0) | (np.diff(cell) != 1) | (np.diff(price) != 0)
    first, last = np.flatnonzero(np.r_[True, breaks]), np.flatnonzero(np.r_[breaks, True])
    return Prices(unit[first], cells.edges[cell[first]], cells.edges[cell[last] + 1], price[first])


def part_document(part: SchedulePart, transfers: Sequence[str], machines: Sequence[str], load: Load) -> dict[str, Any]:
    """Return a part as plain data for a solution file, with the names of the instance."""
    count = len(machines)

    def named(prices: Prices, *, pair: bool) -> list[list[str | int]]:
        rows = (prices.unit, prices.begin, prices.end, prices.price, prices.last)
        named = []
        for u, *run, price, last in zip(*(each.tolist() for each in rows), strict=True):
            ends = [machines[u // count], machines[u % count]] if pair else [machines[u % count], _SIDES[u // count]]
            named.append([*ends, *run, price] if last == price else [*ends, *run, price, last])
        return named

    return {
        "transfers": [transfers[k] for k in part.transfers.tolist()],
        "levels": [
            {
                "level": proof.level,
                "scale": proof.scale,
                "transfers": proof.lam.tolist(),
                "loads": named(proof.load, pair=load == "pair"),
                "ports": named(proof.port, pair=False),
                "above": {str(s): price for s, price in proof.mu.items()},
                "lateness": proof.nu,
                "solver_bound": proof.solver_bound,
            }
            for proof in part.proofs
        ],
    }
