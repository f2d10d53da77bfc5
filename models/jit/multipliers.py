"""Multipliers that prove the levels of a schedule, how solution files write them, and the duals that users see.

A stage proves one objective of some transfers that share no load with others: lateness, or how many loads reach a
level. It has integer prices over a common ``scale``: of units of transfers, of loads and of ports in runs of slots.
In files they are multipliers of the rows ``size``, ``level_link``, ``egress`` and ``ingress`` of the problem as
`flowlex.validation.restated.jit` states it; see `flowlex.validation.proofs.proof` for the format.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.lexicographic.lexicographic_problem import LexicographicResult
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.models.jit.methods.presolve import Bands
from flowlex.models.jit.slot_programs import Cells
from flowlex.models.jit.transfer_slot_grid import Grid, Load, run_label
from flowlex.models.solution import Dual
from flowlex.validation.proofs.proof import number

#: The "level" of the proof that total lateness is least.
LATENESS = -1
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class LoadPrices:
    """Prices of loads or ports: ``unit`` (its number), slots ``begin .. end - 1``, price per unit sent.

    For lateness, ports may have another price in the ``last`` slot; between the two it is linear.
    """

    unit: Integers = field(default_factory=lambda: _NONE)
    begin: Integers = field(default_factory=lambda: _NONE)
    end: Integers = field(default_factory=lambda: _NONE)
    price: Integers = field(default_factory=lambda: _NONE)
    last: Integers = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.last is None:
            object.__setattr__(self, "last", self.price)


@dataclass(frozen=True, eq=False)
class LevelProof:
    """Prices that bound the number of loads that reach a level (or the total lateness) from below."""

    level: int
    lam: Integers  # (transfers of the part,) price of sending one unit
    load: LoadPrices  # by number of the load, see `Grid.loads`
    port: LoadPrices = field(default_factory=LoadPrices)  # by number of the port
    scale: int = 1  # the integer that stands for a price of 1
    mu: dict[int, int] = field(default_factory=dict)  # price by level, for higher levels
    nu: int = 0  # price of total lateness


@dataclass(frozen=True, eq=False)
class SchedulePart:
    """Some transfers (positions in the instance) that share no load with the others, and the proofs of their levels.

    ``quoted``: whether an integer program's bound counts where the prices prove less.
    """

    transfers: Integers
    proofs: tuple[LevelProof, ...]
    quoted: bool = False


#: Largest denominator of duals; programs with 0/1 coefficients have duals with small denominators.
_DENOMINATOR = 64
#: Largest common denominator; beyond it, duals are rounded to multiples of 1 / this.
_ROUNDING = 720_720 * 16


def band_proofs(grid: Grid, bands: Bands, load: Load, part: Integers) -> tuple[LevelProof, ...]:
    """Proofs of the levels of a schedule within the bands, with duals 0 and 1.

    At level k, the slots of band k-1 have dual 1, and so have the transfers confined to bands k-1 and above: the levels
    above exclude the slots of higher bands for all other transfers.
    """
    rows = np.unique(np.concatenate([group[part] for group in grid.loads(load).groups]))
    used = bands.band[np.isin(bands.unit, rows)]
    confined = bands.transfer_band[:, part]
    proofs = []
    for level in sorted({each for each in np.unique([used, used + 1]).tolist() if each > 1}, reverse=True):
        lam = np.asarray(sum((band == level - 1).astype(np.int64) for band in confined))
        prices = _band_prices(bands, (bands.band == level - 1) & np.isin(bands.unit, rows))
        proofs.append(LevelProof(level, lam, prices))
    return tuple(proofs)


def highest_level(grid: Grid, bands: Bands, load: Load) -> SchedulePart | None:
    """Prove the highest level that some load must reach in every schedule without lateness; None if trivial.

    Transfers confined to bands from level - 1 up have no other slots.
    """
    if bands.largest < 1:
        return None

    def settled(level: int) -> bool:
        """Whether the confined transfers fit below the level."""
        confined = (bands.transfer_band >= level - 1).sum(axis=0)
        slots = int((bands.end - bands.begin)[bands.band >= level - 1].sum())
        return int(confined @ grid.units) <= (level - 1) * slots

    level = bisect.bisect_left(range(1, bands.largest + 1), True, key=settled)
    if level < 2:  # trivial: some unit is sent
        return None
    confined = bands.transfer_band >= level - 1
    members = np.flatnonzero(confined.any(axis=0))
    units = np.concatenate([g[c] for g, c in zip(grid.loads(load).groups, confined, strict=True)])
    prices = _band_prices(bands, (bands.band >= level - 1) & np.isin(bands.unit, units))
    return SchedulePart(grid.transfer[members], (LevelProof(level, confined[:, members].sum(axis=0), prices),))


def _band_prices(bands: Bands, chosen: NDArray[np.bool_]) -> LoadPrices:
    """Prices of 1 on chosen pieces."""
    at = np.flatnonzero(chosen)
    ones = np.ones(len(at), np.int64)
    return _merged(bands.unit[at], bands.begin[at], bands.end[at], ones)


def _merged(unit: Integers, begin: Integers, end: Integers, price: Integers) -> LoadPrices:
    """Prices in the order of units and time; adjacent runs with equal prices become one."""
    if not len(unit):
        return LoadPrices()
    breaks = (np.diff(unit) != 0) | (begin[1:] != end[:-1]) | (np.diff(price) != 0)
    first, last = np.flatnonzero(np.r_[True, breaks]), np.flatnonzero(np.r_[breaks, True])
    return LoadPrices(unit[first], begin[first], end[last], price[first])


def stage_proofs(cells: Cells, load: Load, result: LexicographicResult) -> tuple[LevelProof, ...]:
    """Proofs from the duals of the staged linear programs."""
    before_all = max((s.level for s in result.stages if s.level > result.largest), default=None)
    machines, (unit, cell, _) = len(cells.grid.out_units), cells.load_entries(load)
    joined, proofs = before_all is None, []
    for stage in result.stages:
        duals, first = stage.duals, stage.level == before_all
        rho = duals.get("level_link", np.zeros(len(unit)))
        lam = duals.get("size", np.zeros(len(cells.which)))
        port, place, pi = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
        for side, name in enumerate(("egress", "ingress")):
            if name in duals:
                machine, where, _ = cells.port_rows(side)
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
        proofs.append(
            LevelProof(
                level=LATENESS if first else stage.level,
                lam=scaled(lam, scale),
                load=_prices(cells, unit, cell, scaled(rho, scale), joined),
                port=_prices(cells, np.concatenate(port), np.concatenate(place), scaled(price, scale), joined),
                scale=scale,
                mu={s: int(scaled(np.array([p]), scale)[0]) for s, p in mu.items() if p > 1e-9},
                nu=int(scaled(np.array([nu]), scale)[0]),
            )
        )
    return tuple(proofs)


def common_scale(values: list[Floats]) -> int:
    """Return the least common denominator of all duals, limited to `_ROUNDING`."""
    parts = np.unique(np.round(np.concatenate(values) % 1.0, 9))
    scale = math.lcm(*(Fraction(part).limit_denominator(_DENOMINATOR).denominator for part in parts.tolist()))
    return min(scale, _ROUNDING)


def scaled(values: Floats, scale: int) -> NDArray[np.int64]:
    return np.rint(values * scale).astype(np.int64)


def _prices(cells: Cells, unit: Integers, cell: Integers, price: Integers, joined: bool) -> LoadPrices:
    """Nonzero duals of cells; where units may be late (in slots), every cell stays a run of its own."""
    kept = np.flatnonzero(price)
    kept = kept[np.lexsort((cell[kept], unit[kept]))]
    runs = unit[kept], cells.edges[cell[kept]], cells.edges[cell[kept] + 1], price[kept]
    return _merged(*runs) if joined else LoadPrices(*runs)


class PartDocument:
    """A part as plain data for a solution file, with the names of the instance.

    Parameters
    ----------
    part, grid, load
        The part, all planned transfers, and what is counted.
    ends
        (F,) end of the window of every planned transfer.
    loads
        Distinct positive loads of the part's transfers.
    """

    def __init__(self, part: SchedulePart, grid: Grid, load: Load, ends: Integers, loads: Sequence[int]) -> None:
        self.part, self.grid, self.loads, self.ends = part, grid, loads, ends
        self.counted, self.top = grid.loads(load), grid.level_count(load)
        self.names = [grid.instance.transfer_names[k] for k in part.transfers.tolist()]
        self.machines = [machine.name for machine in grid.instance.machines]
        self.at = np.searchsorted(grid.transfer, part.transfers)
        windows = grid.start[self.at], np.clip(grid.due[self.at], grid.start[self.at], None), ends[self.at]
        prices = [prices for proof in part.proofs for prices in (proof.load, proof.port)]
        self.edges = np.unique(np.concatenate([*windows, *(each for p in prices for each in (p.begin, p.end))]))

    def made(self) -> dict[str, Any]:
        """The document."""
        stages: dict[str, Any] = {}
        proofs = sorted(self.part.proofs, key=lambda proof: (proof.level != LATENESS, -proof.level))
        levels = [proof for proof in proofs if proof.level != LATENESS]
        if self.loads:
            stages["largest"] = [self._largest(levels)]
        for proof in proofs:
            name = "lateness" if proof.level == LATENESS else f"level_{proof.level}"
            leaf: dict[str, Any] = {
                "rows": self._rows(proof, "level_link", Fraction(proof.scale)),
                "with_earlier": True,
            }
            if proof.mu or (proof.nu and proof.level != LATENESS):
                leaf["earlier"] = self._earlier(proof, Fraction(proof.scale))
            stages[name] = [leaf]
        return {"transfers": self.names, "stages": stages, "quoted": self.part.quoted}

    def _largest(self, levels: Sequence[LevelProof]) -> dict[str, Any]:
        """The leaf of the largest load: that of the highest level, as a mean over the loads that have a price there."""
        reached = [proof for proof in levels if proof.level <= max(self.loads, default=0)]
        if reached:
            first, p = reached[0], reached[0].load
            weight = int(((p.end - p.begin) * p.price).sum())
            earlier = self._earlier(first, Fraction(max(weight, 1)))
            return {
                "rows": self._rows(first, "largest_link", Fraction(max(weight, 1))),
                "earlier": earlier,
                "with_earlier": True,
            }
        k = int(self.at[0])
        begin, end = int(self.grid.start[k]), int(self.ends[k])
        label = run_label(self.counted.label(int(self.counted.groups[0][k])), begin, end)
        slots = end - begin
        share = number(Fraction(1, slots))
        rows = {"size": {"at": {self.names[0]: share}}, "largest_link": {"at": {label: number(Fraction(-1, slots))}}}
        return {"rows": rows, "with_earlier": True}

    def _earlier(self, proof: LevelProof, scale: Fraction) -> dict[str, Any]:
        """Multipliers of lateness and of the levels above, which are cut where loads end."""
        top = self.top
        levels = {*self.loads, *(each.level for each in self.part.proofs if each.level != LATENESS)}
        steps = sorted(k for k in {0, top, *levels, *(k - 1 for k in levels)} if 0 <= k <= top)
        found = {"lateness": number(Fraction(-proof.nu) / scale)} if proof.nu and proof.level != LATENESS else {}
        for low, high in pairwise(steps) if proof.mu else ():
            if price := proof.mu.get(high, 0):
                name = f"level_{high}" if high == low + 1 else f"level_{low + 1}..{high}"
                found[name] = number(Fraction(-price) / scale)
        return found

    def _rows(self, proof: LevelProof, link: str, scale: Fraction) -> dict[str, Any]:
        rows: dict[str, dict[str, Any]] = {}

        def add(name: str, label: str, value: Fraction) -> None:
            rows.setdefault(name, {"at": {}})["at"][label] = number(value / scale)

        for k in np.flatnonzero(proof.lam).tolist():
            add("size", self.names[k], Fraction(int(proof.lam[k])))
        p = proof.load
        for unit, begin, end, price in zip(*(x.tolist() for x in (p.unit, p.begin, p.end, p.price)), strict=True):
            if price:
                add(link, run_label(self.counted.label(unit), begin, end), Fraction(-price))
        for name, label, value in self._ports(proof.port):
            add(name, label, value)
        return rows

    def _ports(self, prices: LoadPrices) -> Iterator[tuple[str, str, Fraction]]:
        """Rows, labels and multipliers of ports; a price that rises or falls has a row for that."""
        columns = (prices.unit, prices.begin, prices.end, prices.price, prices.last)
        for unit, begin, end, first, last in zip(*(each.tolist() for each in columns), strict=True):
            side, machine = ("egress", "ingress")[unit // len(self.machines)], self.machines[unit % len(self.machines)]
            if first == last:
                if first:
                    yield side, run_label(machine, begin, end), Fraction(-first)
                continue
            change = Fraction(last - first, end - 1 - begin)
            yield f"{side}_{'late' if change > 0 else 'early'}", run_label(machine, begin, end), -abs(change)
            inside = self.edges[(self.edges > begin) & (self.edges < end)].tolist()
            for a, b in pairwise([begin, *inside, end]):
                if least := first + change * ((a if change > 0 else b - 1) - begin):
                    yield side, run_label(machine, a, b), -least


def duals_of(grid: Grid, parts: Sequence[SchedulePart]) -> dict[str, Dual]:
    """Nonzero duals: ports by ``machine,slot`` (or ``machine,first..last`` with the mean dual), sizes by transfer.

    Each is the dual of the first goal in which it is nonzero. Goals in order: lateness, then levels from the highest
    down; level 1 has no dual, because the sum of all loads determines it.
    """
    names = [machine.name for machine in grid.instance.machines]
    found: dict[int, list[tuple[int, int, int, int, int]]] = {}
    size: dict[int, float] = {}
    for part in parts:
        for proof in sorted(part.proofs, key=lambda p: (p.level == LATENESS, p.level)):
            p = proof.port
            rows = (p.unit, p.begin, p.end, p.price, p.last)
            for port, begin, end, price, last in zip(*(each.tolist() for each in rows), strict=True):
                found.setdefault(port, []).append((begin, end, -price, -last, proof.scale))
            priced = np.flatnonzero(proof.lam)
            size |= dict(zip(part.transfers[priced].tolist(), (proof.lam[priced] / proof.scale).tolist(), strict=True))
    duals = {}
    for side, name in enumerate(("egress", "ingress")):
        rows_of = [(p, row) for p in sorted(found) if p // len(names) == side for row in _overlaid(found[p])]
        labels = [f"{names[p % len(names)]},{a}" + (f"..{b - 1}" if b > a + 1 else "") for p, (a, b, _) in rows_of]
        duals[name] = Dual(np.array([row[2] for _, row in rows_of]), labels)
    chosen = sorted(size)
    duals["size"] = Dual(np.array([size[k] for k in chosen]), [grid.instance.transfer_names[k] for k in chosen])
    return duals


def _overlaid(prices: list[tuple[int, int, int, int, int]]) -> list[tuple[int, int, float]]:
    """Cut overlapping runs into pieces, each with the mean dual of the last run that covers it.

    ``prices``: first slot, end, price in the first slot and in the last, and the scale of both.
    """
    edges = np.unique([mark for begin, end, *_ in prices for mark in (begin, end)])
    top = np.full(len(edges) - 1, -1)
    for k, (begin, end, *_) in enumerate(prices):
        top[np.searchsorted(edges, begin) : np.searchsorted(edges, end)] = k
    found = []
    for a, b, k in zip(edges[:-1].tolist(), edges[1:].tolist(), top.tolist(), strict=True):
        if k >= 0:
            begin, end, first, last, scale = prices[k]
            steps = 2 * max(end - 1 - begin, 1)
            mean = first * steps + (last - first) * (a + b - 1 - 2 * begin)
            found.append((a, b, mean / (steps * scale)))
    return found
