"""Is a just-in-time schedule true to its instance, and is its sorted load vector proven least, level by level?

Everything is recomputed from the instance and the schedule's runs: latest arrival times, windows, the share that is
planned, sizes, ports, lateness, loads. Nothing that the model says of them is believed. How optimality is judged:
`flowlex.validation.certificates.jit.derivation`. Work and memory grow with runs and windows, not with time.

The transfers may fall into parts that share no load; each is proven on its own, with the ports all to itself (which
can only lower the bound).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Integers
from flowlex.instances.jit import JitInstance
from flowlex.validation.certificates.certificate import Certificate, Check, Claim
from flowlex.validation.certificates.jit.derivation import LATENESS, Board, LevelProof, Prices
from flowlex.validation.certificates.jit.even import Even, sweep
from flowlex.validation.certificates.jit.windows import NEVER, TransferWindows, planned_as_stated, transfer_windows

__all__ = [
    "LATENESS",
    "JitSchedule",
    "LevelProof",
    "Prices",
    "SchedulePart",
    "all_loads",
    "as_stated",
    "certify_schedule",
    "largest_load",
    "level_counts",
    "no_schedule",
    "total_weight",
]

#: Tolerance for rates that are not whole.
_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class SchedulePart:
    """Some transfers (positions in the instance) that share no load with the others, and the proofs of their levels."""

    transfers: Integers
    proofs: tuple[LevelProof, ...]


@dataclass(frozen=True, eq=False)
class JitSchedule:
    """A schedule as it stands in a solution file. R runs; slots count from the slot of the first arrival.

    Attributes
    ----------
    share, share_of, load, lat, windows
        Options of the model.
    planned
        Positions of the planned transfers in the instance's arrays.
    transfer, begin, end, amount
        (R,) position, slots ``begin .. end - 1``, units in all of them: as evenly as whole numbers allow, see `Even`.
    lateness
        Units times the slots by which they arrive after their due slots.
    integral
        Whether the amounts claim to be whole.
    parts
        Proofs; empty when nothing is claimed to be optimal.
    least
        Where the levels are not proven: what shows that no schedule that is no later has a smaller largest load than
        the last level of its proofs; None when nothing does.
    levels_claimed
        ``all``; ``largest`` when only the largest load is claimed to be least; or the lowest level that is proven.
    """

    share: float
    load: str
    lat: str
    windows: str
    planned: Integers
    transfer: Integers
    begin: Integers
    end: Integers
    amount: NDArray[Any]
    lateness: float
    integral: bool
    parts: tuple[SchedulePart, ...] = ()
    share_of: str = "transfers"
    levels_claimed: str | int = "all"
    least: SchedulePart | None = None


def certify_schedule(instance: JitInstance, schedule: JitSchedule) -> Certificate:
    """Recompute a schedule from its instance, and judge the proof of every level."""
    known = _known(instance, schedule)
    if not known.ok:
        return Certificate("feasible", False, (known,))
    view = _View(instance, schedule)
    checks = [known, *_plan(view), *_schedule(view)]
    claims: list[Claim] = ["optimal" if schedule.parts else "feasible"]
    lowest = schedule.levels_claimed
    partial = bool(schedule.parts) and isinstance(lowest, int) and lowest > 1
    if partial:
        top = math.ceil(largest_load(instance, schedule) - _TOLERANCE)
        checks.append(Check("the lowest level proven is not above all loads", int(lowest) <= top))
    if schedule.parts:
        whole = np.array_equal(
            np.sort(np.concatenate([p.transfers for p in schedule.parts])), np.sort(schedule.planned)
        )
        apart = whole and view.parts_apart()
        checks.append(Check("the parts hold every transfer once and share no load", apart))
        for number, part in enumerate(schedule.parts) if apart else ():
            for check, proven in _levels(view, part, number):
                checks.append(check)
                if not proven:
                    claims.append("bounded")
    if partial:
        claims.append("bounded")
    if schedule.least is not None:
        checks.append(_reached(view, schedule.least))
        claims.append("bounded")
    claim: Claim = "bounded" if "bounded" in claims else claims[0]
    exact = schedule.integral
    return Certificate(claim, exact, tuple(checks), 0.0 if exact else _TOLERANCE)


def as_stated(instance: JitInstance, schedule: JitSchedule, stages: Mapping[str, float | int]) -> Check:
    """Whether stated stages (total lateness, loads by level) are those of the schedule."""
    true: dict[str, Any] = {f"level_{s}": n for s, n in level_counts(instance, schedule).items()}
    true["lateness"] = schedule.lateness
    wrong = [
        f"{name} is {true.get(name, 0):g} (stated {stages.get(name, 0):g})"
        for name in sorted(true.keys() | stages.keys())
        if abs(true.get(name, 0) - stages.get(name, 0)) > (0 if schedule.integral else _TOLERANCE * (1 + true[name]))
    ]
    return Check("stages are as stated", not wrong, len(wrong), "; ".join(wrong[:3]))


def no_schedule(instance: JitInstance, lat: str, windows: str) -> Certificate | None:
    """Whether an instance may be without a schedule at all: elastic windows without firm ends always have one."""
    if windows == "strict" or (transfer_windows(instance, lat).firm < NEVER).any():
        return None
    name = "there is no schedule"
    return Certificate("feasible", True, (Check(name, False, detail="no end is firm: what is late may be later"),))


def all_loads(instance: JitInstance, schedule: JitSchedule) -> tuple[NDArray[Any], Integers]:
    """Loads of a schedule, and in how many slots each is met."""
    nothing = np.zeros(0), np.zeros(0, np.int64)
    return _View(instance, schedule).loads(np.ones(len(schedule.transfer), np.bool_)) or nothing


def level_counts(instance: JitInstance, schedule: JitSchedule) -> dict[int, Any]:
    """Level s to the number of loads of at least s (of rates that are not whole: the parts of loads in it)."""
    loads, width = all_loads(instance, schedule)
    top = int(np.ceil(loads.max(initial=0) - _TOLERANCE))
    return {s: (np.clip(loads - (s - 1), 0, 1) * width).sum().item() for s in range(top, 0, -1)}


def largest_load(instance: JitInstance, schedule: JitSchedule) -> int | float:
    """The largest load of a schedule, units in a slot."""
    largest: int | float = all_loads(instance, schedule)[0].max(initial=0).item()
    return largest


def total_weight(instance: JitInstance, schedule: JitSchedule) -> int:
    """P3 and P4: the sum of ``n ** load`` over the n loads (unit and slot in which a planned transfer may be sent)."""
    view, at = _View(instance, schedule), schedule.planned
    loads, width = view.loads(np.ones(len(schedule.transfer), np.bool_)) or (np.zeros(0), np.zeros(0, np.int64))
    ends = view.windows.stop[at]
    spans = [sweep(group[at], view.windows.start[at], ends, np.ones(len(at), np.int64)) for group in view.groups]
    count = sum(int((end - begin).sum()) for _, begin, end, _ in spans)
    table = zip(np.rint(loads).astype(np.int64).tolist(), width.tolist(), strict=True)
    weight: int = count + sum(slots * (count**load - 1) for load, slots in table)  # an empty load weighs 1
    return weight


class _View:
    """The instance's own data of a schedule."""

    def __init__(self, instance: JitInstance, schedule: JitSchedule) -> None:
        self.instance, self.schedule, self.arrays = instance, schedule, instance.arrays
        self.machines = len(instance.machines)
        self.windows: TransferWindows = transfer_windows(instance, schedule.lat)
        arrays = self.arrays
        self.port_most = np.concatenate([arrays.out_units, arrays.in_units])
        self.ports = (arrays.sender, arrays.receiver + self.machines)
        pair = arrays.sender * self.machines + arrays.receiver
        sides = {"pair": (pair,), "port": self.ports, "sender": self.ports[:1], "receiver": self.ports[1:]}
        self.groups: tuple[Integers, ...] = sides[schedule.load]
        self.load_most = self.port_most
        if schedule.load == "pair":
            self.load_most = np.minimum(arrays.out_units[:, None], arrays.in_units[None, :]).ravel()
        first = self.windows.due[schedule.transfer]
        begin = np.maximum(schedule.begin, first)
        length = np.maximum(schedule.end - begin, 0)
        slots = np.maximum(schedule.end - schedule.begin, 1)
        rate = schedule.amount // slots if schedule.integral else schedule.amount / slots
        # Slots begin .. end - 1 are begin + 1 - due, ..., end - due late.
        self.late = (length * (begin + 1 - first) + length * (length - 1) // 2) * rate
        self.open_lateness = (length > 0) & (schedule.amount % slots != 0) if schedule.integral else length < 0

    def parts_apart(self) -> bool:
        part = np.full(len(self.arrays.job), -1)
        for number, each in enumerate(self.schedule.parts):
            part[each.transfers] = number
        planned = self.schedule.planned
        for group in self.groups:
            unit, inverse = np.unique(group[planned], return_inverse=True)
            low, high = np.full(len(unit), 1 << 62), np.full(len(unit), -1)
            np.minimum.at(low, inverse, part[planned])
            np.maximum.at(high, inverse, part[planned])
            if (low != high).any():
                return False
        return True

    def even(self, group: Integers, runs: NDArray[np.bool_]) -> Even:
        """The chosen runs by the units of a group."""
        s = self.schedule
        return Even(group[s.transfer[runs]], s.begin[runs], s.end[runs], s.amount[runs])

    def loads(self, runs: NDArray[np.bool_]) -> tuple[NDArray[Any], Integers] | None:
        """Loads of the chosen runs, and how many slots have them; None where that is open."""
        found = [self.even(group, runs).loads() for group in self.groups]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return None
        return np.concatenate([load for load, _ in known]), np.concatenate([width for _, width in known])


def _known(instance: JitInstance, s: JitSchedule) -> Check:
    """Whether what is named exists; all else is looked at only then."""
    total = len(instance.arrays.job)
    parts = s.parts if s.least is None else (*s.parts, s.least)
    known = all(bool(((a >= 0) & (a < total)).all()) for a in (s.planned, s.transfer, *(p.transfers for p in parts)))
    known = known and bool(np.isin(s.transfer, s.planned).all()) and bool((s.begin < s.end).all())
    known = known and bool((s.begin >= 0).all()) and bool(np.isfinite(s.amount.astype(np.float64)).all())
    return Check("runs are of planned transfers, and end after they begin", known)


def _plan(view: _View) -> Iterator[Check]:
    """The share of every job."""
    s = view.schedule
    wrong = planned_as_stated(view.instance, s.planned, s.share, s.share_of)
    yield Check("the planned transfers are the stated share of every job", not wrong, detail=wrong)


def _schedule(view: _View) -> Iterator[Check]:
    """Rates within windows, sizes and ports; stated lateness."""
    s, w = view.schedule, view.windows
    tolerance = 0.0 if s.integral else _TOLERANCE
    if s.integral:
        yield Check("amounts are whole units", bool(np.issubdtype(s.amount.dtype, np.integer)))
    yield Check("amounts are positive", bool((s.amount > 0).all()), float(-s.amount.min(initial=0)))
    early = s.begin < w.start[s.transfer]
    late = s.end > (w.stop if s.windows == "strict" else w.firm)[s.transfer]
    outside = np.flatnonzero(early | late)
    name = "" if not len(outside) else view.instance.transfer_names[int(s.transfer[outside[0]])]
    bounds = "in their windows" if s.windows == "strict" else "after they are ready, and by firm ends"
    yield Check(f"transfers are sent {bounds}", not len(outside), len(outside), name)
    sent = np.zeros(len(w.units), s.amount.dtype)
    np.add.at(sent, s.transfer, s.amount)
    units = np.where(np.isin(np.arange(len(sent)), s.planned), w.units, 0)
    yield _small("every transfer is sent whole", np.abs(sent - units), tolerance * (1 + units))
    everything = np.ones(len(s.transfer), np.bool_)
    for side, port in zip(("egress", "ingress"), view.ports, strict=True):
        unit, load = view.even(port, everything).most()
        limit = view.port_most[unit]
        yield _small(f"{side} stays within the ports", np.maximum(load - limit, 0), tolerance * (1 + limit))
    known = view.loads(everything) is not None and not view.open_lateness.any()
    yield Check("what its slots do not divide meets the same load in all of them, and is not late", known)
    lateness = view.late.sum()
    close = abs(lateness - s.lateness) <= tolerance * (1 + lateness)
    yield Check("total lateness is as stated", bool(close), float(lateness), f"{lateness:g} units x slots")


def _small(name: str, violation: NDArray[Any], allowed: NDArray[Any]) -> Check:
    worst = float(violation.max(initial=0.0))
    return Check(name, bool((violation <= allowed).all()), worst)


def _board(view: _View, part: SchedulePart, most: int | None, late: bool) -> Board:
    """The columns of a part; no load is above ``most``."""
    s, w, at = view.schedule, view.windows, part.transfers
    stop = w.stop if s.windows == "strict" else w.due
    return Board(
        tuple(g[at] for g in view.groups),
        tuple(g[at] for g in view.ports),
        (w.start[at], stop[at], w.due[at], w.firm[at]),
        w.units[at],
        w.most[at],
        view.load_most if most is None else np.minimum(view.load_most, most),
        view.port_most,
        part.proofs,
        late,
        int(s.end.max(initial=0)),
    )


def _reached(view: _View, part: SchedulePart) -> Check:
    """Some load of a part reaches the last of its levels in every schedule that is no later than this one.

    Else no load would be above that level: then the number of those that reach it is bounded above 0.
    """
    lateness = round(float(view.late.sum())) if view.schedule.windows == "elastic" else 0
    level = part.proofs[-1].level if part.proofs else 0
    name = f"some load is at least {level}, unless more is late"
    if level < 1 or len(np.unique(part.transfers)) < len(part.transfers):
        return Check(name, False, detail="no level of transfers named once")
    if any(len(proof.lam) != len(part.transfers) or _senseless(proof) for proof in part.proofs):
        return Check(name, False, detail="prices make no sense")
    if any(0 <= proof.level < level for proof in part.proofs):
        return Check(name, False, detail="it says nothing of levels below")
    board, bound = _board(view, part, level, lateness > 0), 0
    for proof in part.proofs:
        value = lateness if proof.level == LATENESS else int(proof.level == level)
        bound = board.prove(proof, value, {}, lateness)
    return Check(name, bound > 0, detail=f"at least {bound / part.proofs[-1].scale:.10g} loads")


def _senseless(proof: LevelProof) -> bool:
    """Whether a stage has negative prices of goals, or prices of goals that do not come before it."""
    if proof.scale < 1 or min(proof.nu, *proof.mu.values(), 0) < 0:
        return True
    if proof.level == LATENESS:
        return bool(proof.mu) or proof.nu != proof.scale
    return min(proof.mu, default=proof.level + 1) <= proof.level


def _levels(view: _View, part: SchedulePart, number: int) -> Iterator[tuple[Check, bool]]:
    """One check per level with loads, and whether duality (not a quoted bound) proves it."""
    s, at = view.schedule, part.transfers
    runs = np.isin(s.transfer, at)
    loads, width = view.loads(runs) or (np.zeros(0), np.zeros(0, np.int64))
    top = int(np.ceil(loads.max(initial=0) - _TOLERANCE))
    counts = {k: (np.clip(loads - (k - 1), 0, 1) * width).sum() for k in range(1, top + 1)}
    where = f", part {number + 1}" if len(s.parts) > 1 else ""
    lateness = view.late[runs].sum()
    proofs = {proof.level: proof for proof in part.proofs}
    if any(len(proof.lam) != len(at) for proof in part.proofs):
        yield Check(f"prices are one for every transfer{where}", False), True
        return
    late = lateness > 0 and s.windows == "elastic"
    largest = s.levels_claimed == "largest"
    board = _board(view, part, None if largest else max(top, 1), late)
    lowest = s.levels_claimed if isinstance(s.levels_claimed, int) else max(top, 1) if largest else 1
    levels = ([LATENESS] if late else []) + list(range(top, lowest - 1, -1))
    given = {LATENESS: lateness, **counts}
    # Stages that found nothing late, or no load so high, claim nothing, but later ones build on what they settle.
    before = set() if largest else {level for level in proofs if level == LATENESS or level > top} - set(levels)
    for level in sorted({*levels, *before}, key=lambda k: (k != LATENESS, -k)):
        if level in before:
            if _senseless(proofs[level]):
                yield Check(f"prices of level {level}{where} make sense", False), True
                continue
            _judged(board, proofs[level], 0, counts, lateness, "", s.integral)
            continue
        value = 1 if largest and level != LATENESS else given[level]
        if level == LATENESS:
            name = f"total lateness of {lateness:g} units x slots is least{where}"
        else:
            name = f"level {level}{where}: {given[level]:g} loads"
        if largest and level != LATENESS:
            name = f"no schedule has a largest load below {level}"
        if level not in proofs:
            settled = level == 1
            says = "settled by the sum of all loads" if settled else "no proof given"
            yield Check(f"{name}, {says}", settled), True
            continue
        yield _judged(board, proofs[level], value, counts, lateness, name, s.integral)


def _judged(
    board: Board, proof: LevelProof, value: Any, counts: dict[int, Any], lateness: Any, name: str, integral: bool
) -> tuple[Check, bool]:
    """One stage: by duality, or by the bound that an integer program is quoted with."""
    if _senseless(proof):
        return Check(f"{name}, prices make no sense", False), True
    whole = round(float(value))
    if integral:
        bound = board.prove(proof, whole, {k: round(float(v)) for k, v in counts.items()}, round(float(lateness)))
        ok = bound > proof.scale * (whole - 1)
    else:
        near = int(np.floor(float(value) * proof.scale + _TOLERANCE * proof.scale * (1 + float(value))))
        bound = board.prove(proof, -(-near // proof.scale), {k: int(np.ceil(v)) for k, v in counts.items()}, 0)
        ok = bound >= proof.scale * float(value) - 10 * _TOLERANCE * proof.scale * (1 + float(value))
    detail = f"{bound / proof.scale:.10g}"
    if ok or proof.solver_bound is None:
        return Check(f"{name}, dual bound", bool(ok), max(0.0, float(value) - bound / proof.scale), detail), True
    quoted = proof.solver_bound > value - 1 + _TOLERANCE
    detail = f"{proof.solver_bound:.10g} (duality: {detail})"
    return Check(f"{name}, integer program's bound (quoted)", bool(quoted), 0, detail, how="quoted"), False
