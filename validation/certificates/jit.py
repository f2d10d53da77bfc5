"""Is a just-in-time schedule true to its instance, and is its sorted load vector proven least, level by level?

Windows, sizes, ports and whole numbers are recomputed from the instance. Optimality is judged by linear programming
duality, one level after another. With ``N_s`` the number of loads (pair or port, in one slot) of at least s, level k
claims: no schedule whose ``N_s`` for s > k are as small as ours has a smaller ``N_k``. Its proof are prices
``pi >= 0`` per unit of port capacity, ``rho >= 0`` per unit of load, and ``mu_s >= 0`` for the levels above. Whatever
the prices, every schedule has ::

    N_k  >=  sum_f cheapest_f  -  sum_(port,t) C pi  -  sum_(u,t) max_m (rho m - F(m))
             -  sum_(s>k) mu_s N_s  -  nu L

where ``cheapest_f`` is the cost of sending transfer f in the slots where ``rho + pi + nu late`` is least (at most
its ports' capacity in each; that is the best price of its size constraint), ``F(m)`` counts a load of m with weight 1
at level k and ``mu_s`` above, and ``nu`` prices the total lateness L. ``N_k`` is a whole number, so a bound above
``N_k - 1`` proves it. Whole prices are judged without tolerance.

Total lateness, where there is any, is minimised before all levels; its proof has the number `LATENESS` for a level,
``nu = 1``, the first two sums, and for every price rho the capacity of its load instead of the third sum.

The transfers may fall into parts that share no load; each is proven on its own, with the ports all to itself (which
can only lower the bound).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.jit import WHOLE, JitInstance
from flowlex.validation.certificates.certificate import Certificate, Check, Claim

__all__ = ["LATENESS", "JitSchedule", "LevelProof", "SchedulePart", "certify_schedule", "level_bound"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: The "level" of the proof that total lateness is least.
LATENESS = -1
_NONE = np.zeros(0, np.int64)
#: Tolerance for prices that come from a floating-point solver.
_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class LevelProof:
    """Prices that bound ``N_level`` from below for one part.

    Attributes
    ----------
    port, port_slot, pi
        Port (ingress of machine j is ``machines + j``), slot and price.
    load, load_slot, rho
        Pair or port, slot and price.
    mu
        Level to price, for levels above; a level that is missing has price 0.
    nu
        Price of total lateness (of the part).
    solver_bound
        What an integer program proved, where duality leaves a gap; quoted, not recomputed.
    """

    level: int
    load: Ints
    load_slot: Ints
    rho: NDArray[Any]
    port: Ints = field(default_factory=lambda: _NONE)
    port_slot: Ints = field(default_factory=lambda: _NONE)
    pi: NDArray[Any] = field(default_factory=lambda: _NONE)
    mu: dict[int, float] = field(default_factory=dict)
    nu: float = 0.0
    solver_bound: float | None = None


@dataclass(frozen=True, eq=False)
class SchedulePart:
    """Some transfers that share no load with the others, and the proofs of their levels."""

    transfers: Ints
    proofs: tuple[LevelProof, ...]


@dataclass(frozen=True, eq=False)
class JitSchedule:
    """A schedule as its model states it. F transfers; the run of transfer f is slots ``first[f] .. last[f] - 1``.

    Attributes
    ----------
    share, load
        Options of the model: first share of every job's transfers, and what is a load (``pair`` or ``port``).
    transfer
        (F,) position in the instance's arrays.
    latest_s, waits_s
        (all transfers,) latest arrival from the job's arrival; (computations,) when what comes before is done.
    start, stop
        (F,) window in slots.
    first, last, rate
        The runs, and the units sent in each of their slots, run after run.
    lateness
        Units sent at or after ``stop``, times the slots they are late.
    integral
        Whether the rates claim to be whole.
    parts
        Proofs; empty when nothing is claimed to be optimal.
    levels_claimed
        False when only the largest load is claimed to be least (P1).
    """

    share: float
    load: str
    transfer: Ints
    latest_s: Floats
    waits_s: Floats
    start: Ints
    stop: Ints
    first: Ints
    last: Ints
    rate: NDArray[Any]
    lateness: float
    integral: bool
    parts: tuple[SchedulePart, ...]
    levels_claimed: bool = True


def certify_schedule(instance: JitInstance, schedule: JitSchedule) -> Certificate:
    """Recompute a schedule from its instance, and judge the proof of every level."""
    view = _View(instance, schedule)
    checks = [*_latest_times(instance, schedule), *_grid(view), *_schedule(view)]
    claims: list[Claim] = ["optimal" if schedule.parts else "feasible"]
    if schedule.parts:
        together = np.sort(np.concatenate([part.transfers for part in schedule.parts]))
        whole = np.array_equal(together, np.arange(len(schedule.transfer)))
        checks.append(Check("the parts hold every transfer once and share no load", whole and view.parts_apart()))
    for number, part in enumerate(schedule.parts):
        for check, proven in _levels(view, part, number):
            checks.append(check)
            if not proven:
                claims.append("bounded")
    exact = schedule.integral and all(_whole_prices(p) for part in schedule.parts for p in part.proofs)
    return Certificate(claims[-1], exact, tuple(checks), 0.0 if exact else _TOLERANCE)


class _View:
    """The instance's data, and the schedule by column."""

    def __init__(self, instance: JitInstance, schedule: JitSchedule) -> None:
        arrays = instance.arrays
        self.instance, self.schedule, self.arrays = instance, schedule, arrays
        at = schedule.transfer
        self.sender, self.receiver, self.units = arrays.sender[at], arrays.receiver[at], arrays.size_units[at]
        self.machines = len(arrays.out_units)
        self.capacity = np.concatenate([arrays.out_units, arrays.in_units])
        self.cap = np.minimum(arrays.out_units[self.sender], arrays.in_units[self.receiver])
        length = schedule.last - schedule.first
        self.offset = np.concatenate([[0], np.cumsum(length)])
        self.row = np.repeat(np.arange(len(at)), length)
        self.slot = np.arange(len(self.row)) - self.offset[self.row] + schedule.first[self.row]
        self.horizon = int(schedule.last.max(initial=0))
        pair = np.unique(self.sender * self.machines + self.receiver, return_inverse=True)[1]
        ports = (self.sender, self.receiver + self.machines)
        self.groups = (pair,) if schedule.load == "pair" else ports
        self.ports = ports
        self.load_cap = self.capacity
        if schedule.load == "pair":
            self.load_cap = np.zeros(int(pair.max(initial=-1)) + 1, np.int64)
            self.load_cap[pair] = self.cap
        self.late = np.maximum(self.slot + 1 - schedule.stop[self.row], 0)

    def parts_apart(self) -> bool:
        part = np.full(len(self.units), -1)
        for number, each in enumerate(self.schedule.parts):
            part[each.transfers] = number
        for group in self.groups:
            low, high = np.full(group.max(initial=0) + 1, 1 << 62), np.full(group.max(initial=0) + 1, -1)
            np.minimum.at(low, group, part)
            np.maximum.at(high, group, part)
            if (low[group] != high[group]).any():
                return False
        return True

    def loads(self, columns: NDArray[np.bool_]) -> NDArray[Any]:
        """Loads above zero of the chosen columns."""
        rate = self.schedule.rate[columns]
        found = []
        for group in self.groups:
            key = group[self.row[columns]] * self.horizon + self.slot[columns]
            found.append(np.bincount(np.unique(key, return_inverse=True)[1], weights=rate))
        return np.concatenate(found)


def _latest_times(instance: JitInstance, schedule: JitSchedule) -> Iterator[Check]:
    """The latest arrival times are the one solution of their equations (a DAG leaves no other)."""
    arrays = instance.arrays
    machines, jobs = len(instance.machines), len(instance.jobs)
    rate = np.array([(m.out_mbps / 8, m.in_mbps / 8) for m in instance.machines])
    out = np.bincount(arrays.job * machines + arrays.sender, minlength=jobs * machines).reshape(-1, machines)
    into = np.bincount(arrays.job * machines + arrays.receiver, minlength=jobs * machines).reshape(-1, machines)
    slowest = np.minimum(
        rate[arrays.sender, 0] / out[arrays.job, arrays.sender],
        rate[arrays.receiver, 1] / into[arrays.job, arrays.receiver],
    )
    waits = np.full(len(arrays.computation_s), -np.inf)
    fed = waits.copy()
    np.maximum.at(fed, arrays.feeds, schedule.latest_s)
    np.maximum.at(waits, arrays.head, (np.maximum(schedule.waits_s, fed) + arrays.computation_s)[arrays.tail])
    due = np.maximum(schedule.waits_s[arrays.feeds], 0.0) + arrays.size_mb / slowest
    given = arrays.deadline_s - arrays.arrival_s[arrays.job]
    due = np.where(np.isnan(given), due, given)
    with np.errstate(invalid="ignore"):
        off = np.where(waits == schedule.waits_s, 0.0, np.abs(waits - schedule.waits_s))
    worst = max(float(off.max(initial=0.0)), float(np.abs(due - schedule.latest_s).max(initial=0.0)))
    scale = 1.0 + float(np.abs(schedule.latest_s).max(initial=0.0))
    yield Check("latest arrival times satisfy their equations", worst <= 1e-9 * scale, worst)


def _grid(view: _View) -> Iterator[Check]:
    """Windows on the grid, and the share of every job."""
    schedule, arrays, slot = view.schedule, view.arrays, view.instance.slot_s
    at = schedule.transfer
    number = np.bincount(arrays.job, minlength=len(view.instance.jobs))
    planned = np.bincount(arrays.job[at], minlength=len(number))
    right = np.array_equal(planned, np.ceil(schedule.share * number - WHOLE)) and len(np.unique(at)) == len(at)
    yield Check("the planned transfers are the stated share of every job", bool(right))
    start = arrays.start_s[at] / slot
    due = (arrays.arrival_s[arrays.job] + schedule.latest_s)[at] / slot
    slack = 2 * WHOLE * np.maximum(1, np.abs(due))
    wide = schedule.start - (-view.units // view.cap)
    early = (schedule.start < start - slack) | (schedule.start >= start + 1 + slack)
    stop = np.where(due - slack <= wide, np.maximum(wide, np.floor(due - slack)), np.floor(due - slack))
    late = (schedule.stop < stop) | (schedule.stop > np.maximum(wide, np.floor(due + slack)))
    wrong = np.flatnonzero(early | late)
    yield Check(
        "windows are start and latest arrival on the grid, widened only to the least length that fits",
        not len(wrong),
        len(wrong),
        "" if not len(wrong) else view.instance.transfer_names[int(at[wrong[0]])],
    )


def _schedule(view: _View) -> Iterator[Check]:
    """Rates within windows, sizes and ports; stated lateness."""
    schedule, rate = view.schedule, view.schedule.rate
    tolerance = 0.0 if schedule.integral else _TOLERANCE
    if schedule.integral:
        yield Check("rates are whole units", bool(np.issubdtype(rate.dtype, np.integer)))
    below = float(np.maximum(-rate, 0).max(initial=0))
    outside = float(rate[view.slot < schedule.start[view.row]].sum())
    yield Check("no rate is negative or before its start", below <= tolerance and outside == 0, max(below, outside))
    sent = np.bincount(view.row, weights=rate, minlength=len(view.units))
    yield _small("every transfer is sent whole", np.abs(sent - view.units), tolerance * (1 + view.units))
    for side, port in zip(("egress", "ingress"), view.ports, strict=True):
        load = np.bincount(port[view.row] * view.horizon + view.slot, weights=rate) if len(rate) else np.zeros(0)
        limit = view.capacity[np.arange(len(load)) // max(view.horizon, 1)]
        yield _small(f"{side} stays within the ports", np.maximum(load - limit, 0), tolerance * (1 + limit))
    lateness = float((view.late * rate).sum())
    yield Check(
        "total lateness is as stated", abs(lateness - schedule.lateness) <= tolerance * (1 + lateness), lateness
    )


def _small(name: str, violation: NDArray[Any], allowed: NDArray[Any]) -> Check:
    worst = float(violation.max(initial=0.0))
    return Check(name, bool((violation <= allowed).all()), worst)


def _levels(view: _View, part: SchedulePart, number: int) -> Iterator[tuple[Check, bool]]:
    """One check per level with loads, and whether duality (not a quoted bound) proves it."""
    inside = np.zeros(len(view.units), np.bool_)
    inside[part.transfers] = True
    columns = inside[view.row]
    loads = view.loads(columns)
    loads = np.rint(loads).astype(np.int64) if view.schedule.integral else loads
    top = int(np.ceil(loads.max(initial=0) - _TOLERANCE))
    counts = {s: _plain(np.clip(loads - (s - 1), 0, 1).sum()) for s in range(1, top + 1)}
    proofs = {proof.level: proof for proof in part.proofs}
    where = f", part {number + 1}" if len(view.schedule.parts) > 1 else ""
    lateness = float((view.late * view.schedule.rate)[columns].sum())
    if lateness > 0:
        bound = level_bound(view, part, columns, proofs[LATENESS], {}) if LATENESS in proofs else -np.inf
        detail = f"bound {bound:.10g}, {lateness:g} units x slots late"
        ok = bound > lateness - (1 if view.schedule.integral else _TOLERANCE * lateness) + _TOLERANCE
        yield Check(f"total lateness is least{where}, dual bound", ok, max(0.0, lateness - bound), detail), True
    for level in range(top, 0 if view.schedule.levels_claimed else max(top - 1, 0), -1):
        name = f"level {level}{where}: {counts[level]:g} loads"
        least = counts[level]
        if not view.schedule.levels_claimed:
            name, least = f"no schedule has a largest load below {level}", 1.0
        if level == 1 and 1 not in proofs:
            yield Check(f"{name}, settled by the sum of all loads", True), True
            continue
        proof = proofs.get(level)
        if proof is None:
            yield Check(f"{name}, no proof given", False), True
            continue
        bound = level_bound(view, part, columns, proof, counts)
        need = least - 1 if view.schedule.integral else least - 1e-4 * (1 + least)
        exact = view.schedule.integral and _whole_prices(proof)
        ok = bound > need + (0 if exact else _TOLERANCE * (1 + abs(need)))
        if ok or proof.solver_bound is None:
            yield Check(f"{name}, dual bound", ok, max(0.0, least - bound), f"{bound:.10g}"), True
        else:
            ok = proof.solver_bound > least - 1 + _TOLERANCE
            detail = f"{proof.solver_bound:.10g} (duality: {bound:.6g})"
            yield Check(f"{name}, integer program's bound (quoted)", ok, 0, detail), False


def level_bound(
    view: _View, part: SchedulePart, columns: NDArray[np.bool_], proof: LevelProof, counts: dict[int, float]
) -> float:
    """The right-hand side of the module's inequality for one part and level."""
    if min(proof.pi.min(initial=0), proof.rho.min(initial=0), proof.nu, *proof.mu.values(), 0) < 0:
        return -np.inf
    horizon = max(view.horizon, 1)
    row, slot = view.row[columns], view.slot[columns]
    rho = _dense(proof.load, proof.load_slot, proof.rho, horizon, max(int(g.max(initial=0)) for g in view.groups))
    price = proof.nu * view.late[columns] if proof.nu else np.zeros(len(row), rho.dtype)
    for group in view.groups:
        price = price + rho[group[row] * horizon + slot]
    if len(proof.pi):
        pi = _dense(proof.port, proof.port_slot, proof.pi, horizon, 2 * view.machines)
        for port in view.ports:
            price = price + pi[port[row] * horizon + slot]
    total = _cheapest(row, price, view.cap, view.units)
    if len(proof.pi):
        total = total - (view.capacity[proof.port] * proof.pi).sum()
    if proof.level == LATENESS:  # loads cost nothing, but none exceeds its ports
        return float(total - (proof.rho * view.load_cap[proof.load]).sum())
    top = max(counts, default=0)
    weights = [proof.mu.get(s, 0) if s > proof.level else int(s == proof.level) for s in range(1, top + 1)]
    cost = np.concatenate([[0], np.cumsum(weights)])
    total = total - (proof.rho[:, None] * np.arange(top + 1) - cost).max(axis=1, initial=0).sum()
    total = total - sum(price * counts[s] for s, price in proof.mu.items() if s in counts)
    return float(total - proof.nu * (view.late * view.schedule.rate)[columns].sum())


def _cheapest(row: Ints, price: NDArray[Any], cap: Ints, units: Ints) -> Any:
    """Cost of sending every transfer whole in its cheapest slots."""
    order = np.lexsort((price, row))
    rows = row[order]
    filled = np.cumsum(cap[rows])
    first = np.flatnonzero(np.diff(rows, prepend=-1))
    before = filled - cap[rows] - np.repeat((filled - cap[rows])[first], np.diff(first, append=len(rows)))
    return (price[order] * np.clip(units[rows] - before, 0, cap[rows])).sum()


def _dense(row: Ints, slot: Ints, price: NDArray[Any], horizon: int, rows: int) -> NDArray[Any]:
    """Prices of all rows and slots, flat."""
    table = np.zeros((rows + 1) * horizon, price.dtype)
    np.add.at(table, row * horizon + slot, price)
    return table


def _whole_prices(proof: LevelProof) -> bool:
    prices = (proof.rho, proof.pi)
    return all(np.issubdtype(p.dtype, np.integer) for p in prices) and all(
        float(p).is_integer() for p in (*proof.mu.values(), proof.nu)
    )


def _plain(value: Any) -> float:
    return float(value)
