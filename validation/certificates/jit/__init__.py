"""Verify a just-in-time schedule from its instance, and the proof that its sorted load vector is least, by level.

Everything is recomputed from the instance and the schedule's runs: latest arrival times, windows, the share that is
planned, sizes, ports, lateness, loads. Nothing is taken from the model. For the proof of optimality see
`flowlex.validation.certificates.jit.duality_proof`. Work and memory grow with runs and windows, not with time.

The transfers may form parts that share no load. Each part is proven separately, with the ports to itself, which can
only lower the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.jit import JitInstance
from flowlex.validation.certificates.certificate import Certificate, Check, Claim
from flowlex.validation.certificates.jit.duality_proof import Board
from flowlex.validation.certificates.jit.even_load_runs import sweep
from flowlex.validation.certificates.jit.lateness import PartWindows, all_allowed, judge_lateness
from flowlex.validation.certificates.jit.prices_and_windows import LATENESS, Allowed, LevelProof, Prices
from flowlex.validation.certificates.jit.schedule import JitSchedule, SchedulePart, View
from flowlex.validation.certificates.jit.tie_break import tie_checks
from flowlex.validation.certificates.jit.transfer_windows import NEVER, planned_transfers, transfer_windows
from flowlex.validation.certificates.proof_time_budget import Budget

__all__ = [
    "LATENESS",
    "JitSchedule",
    "LevelProof",
    "Prices",
    "SchedulePart",
    "all_loads",
    "certify_schedule",
    "largest_load",
    "level_counts",
    "no_schedule",
    "total_weight",
]

#: Tolerance for fractional rates.
_TOLERANCE = 1e-6


def certify_schedule(instance: JitInstance, schedule: JitSchedule, budget: Budget | None = None) -> Certificate:
    """Recompute a schedule from its instance, and judge the proof of every level (while ``budget`` lasts)."""
    budget = budget or Budget()
    known = _known(instance, schedule)
    if not known.ok:
        return Certificate("feasible", False, (known,))
    view = View.of(instance, schedule)
    checks = [known, *_plan(view), *_schedule(view)]
    claims: list[Claim] = ["optimal" if schedule.parts or not len(schedule.planned) else "feasible"]
    lowest = schedule.lowest
    partial = bool(schedule.parts) and lowest > 1
    if partial:
        top = math.ceil(largest_load(instance, schedule) - _TOLERANCE)
        checks.append(Check("the lowest level proven is not above all loads", lowest <= top))
    if schedule.parts:
        whole = np.array_equal(
            np.sort(np.concatenate([p.transfers for p in schedule.parts])), np.sort(schedule.planned)
        )
        apart = whole and view.parts_apart()
        checks.append(Check("the parts hold every transfer once and share no load", apart))
        judged = schedule.parts[:-1] if schedule.ruled else schedule.parts
        for number, part in enumerate(judged) if apart else ():
            for check, proven in _levels(view, part, number, budget):
                checks.append(check)
                if not proven:
                    claims.append("feasible")
    if partial:
        claims.append("bounded")
    if schedule.least is not None:
        checks.append(_reached(view, schedule.least))
        claims.append("bounded")
    claim: Claim = next(each for each in ("feasible", "bounded", "optimal") if each in claims)
    if schedule.ties:
        proven = claim == "optimal" and all(check.ok for check in checks)
        checks += tie_checks(view, int(largest_load(instance, schedule)) if proven else None)
    exact = schedule.integral
    return Certificate(claim, exact, tuple(checks), 0.0 if exact else _TOLERANCE)


def no_schedule(instance: JitInstance, lat: str, windows: str) -> Certificate | None:
    """A refusal of the claim that there is no schedule: elastic windows without firm ends have one; else None."""
    if windows == "strict" or (transfer_windows(instance, lat).firm < NEVER).any():
        return None
    name = "there is no schedule"
    return Certificate("feasible", True, (Check(name, False, detail="no end is firm: what is late may be later"),))


def all_loads(instance: JitInstance, schedule: JitSchedule) -> tuple[NDArray[Any], Integers]:
    """Loads of a schedule, and the number of slots in which each occurs."""
    nothing = np.zeros(0), np.zeros(0, np.int64)
    return View.of(instance, schedule).loads(np.ones(len(schedule.transfer), np.bool_)) or nothing


def level_counts(instance: JitInstance, schedule: JitSchedule) -> dict[int, Any]:
    """By level s, the number of loads of at least s (for fractional rates: the sum of the parts of loads in it)."""
    return dict(reversed(_counts(*all_loads(instance, schedule)).items()))


def _counts(loads: NDArray[Any], width: Integers) -> dict[int, Any]:
    """`level_counts` of given loads, from level 1 up."""
    top = int(np.ceil(loads.max(initial=0) - _TOLERANCE))
    if not np.issubdtype(loads.dtype, np.integer):
        return {s: (np.clip(loads - (s - 1), 0, 1) * width).sum().item() for s in range(1, top + 1)}
    met = np.zeros(top + 1, np.int64)
    np.add.at(met, np.maximum(loads, 0), width)  # amounts below 0 are refused elsewhere
    return dict(enumerate(np.cumsum(met[::-1])[::-1][1:].tolist(), 1))


def largest_load(instance: JitInstance, schedule: JitSchedule) -> int | float:
    """The largest load of a schedule, units in a slot."""
    largest: int | float = all_loads(instance, schedule)[0].max(initial=0).item()
    return largest


def total_weight(instance: JitInstance, schedule: JitSchedule) -> int:
    """P3 and P4: the sum of ``n ** load`` over the n loads (unit and slot in which a planned transfer may be sent)."""
    view, at = View.of(instance, schedule), schedule.planned
    loads, width = view.loads(np.ones(len(schedule.transfer), np.bool_)) or (np.zeros(0), np.zeros(0, np.int64))
    ends = view.windows.stop[at]
    spans = [sweep(group[at], view.windows.start[at], ends, np.ones(len(at), np.int64)) for group in view.groups]
    count = sum(int((end - begin).sum()) for _, begin, end, _ in spans)
    table = zip(np.rint(loads).astype(np.int64).tolist(), width.tolist(), strict=True)
    weight: int = count + sum(slots * (count**load - 1) for load, slots in table)  # an empty load weighs 1
    return weight


def _known(instance: JitInstance, s: JitSchedule) -> Check:
    """Check that all names exist, before anything else."""
    total = sum(len(job.transfers) for job in instance.jobs)
    parts = s.parts if s.least is None else (*s.parts, s.least)
    known = all(bool(((a >= 0) & (a < total)).all()) for a in (s.planned, s.transfer, *(p.transfers for p in parts)))
    known = known and bool(np.isin(s.transfer, s.planned).all()) and bool((s.begin < s.end).all())
    known = known and bool((s.begin >= 0).all()) and bool(np.isfinite(s.amount.astype(np.float64)).all())
    return Check("runs are of planned transfers, and end after they begin", known)


def _plan(view: View) -> Iterator[Check]:
    """Check the planned share of every job."""
    s = view.schedule
    wanted = set(planned_transfers(view.instance, s.share, s.share_of))
    wrong = sorted(wanted ^ set(s.planned.tolist()))
    once = len(np.unique(s.planned)) == len(s.planned)
    detail = ", ".join(view.arrays.names[k] for k in wrong[:3])
    yield Check("the planned transfers are the stated share of every job", not wrong and once, len(wrong), detail)


def _schedule(view: View) -> Iterator[Check]:
    """Check rates against windows, sizes and ports, and the stated lateness."""
    s, w = view.schedule, view.windows
    tolerance = 0.0 if s.integral else _TOLERANCE
    if s.integral:
        yield Check("amounts are whole units", bool(np.issubdtype(s.amount.dtype, np.integer)))
    yield Check("amounts are positive", bool((s.amount > 0).all()), float(-s.amount.min(initial=0)))
    early = s.begin < w.start[s.transfer]
    late = s.end > (w.stop if s.windows == "strict" else w.firm)[s.transfer]
    outside = np.flatnonzero(early | late)
    name = "" if not len(outside) else view.arrays.names[int(s.transfer[outside[0]])]
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
    yield Check("what its slots do not divide meets the same load in all of them, and is late in all or none", known)
    lateness = view.lateness()
    close = abs(lateness - s.lateness) <= tolerance * (1 + lateness)
    yield Check("total lateness is as stated", bool(close), float(lateness), f"{lateness:g} units x slots")


def _small(name: str, violation: NDArray[Any], allowed: NDArray[Any]) -> Check:
    worst = float(violation.max(initial=0.0))
    return Check(name, bool((violation <= allowed).all()), worst)


def _opened(view: View, part: SchedulePart, proofs: dict[int, LevelProof], lateness: Any) -> tuple[int | None, Allowed]:
    """The bound on a part's lateness (None without prices), and when schedules with no more lateness may send."""
    s, w, at = view.schedule, view.windows, part.transfers
    ports = tuple(port[at] for port in view.ports)
    windows = PartWindows(
        w.start[at],
        (w.stop if s.windows == "strict" else w.due)[at],
        w.due[at],
        w.firm[at],
        (ports[0], ports[1]),
        w.units[at],
        w.most[at],
        view.port_most,
        bool(lateness > 0 and s.windows == "elastic"),
        int(s.end.max(initial=0)),
    )
    if LATENESS not in proofs:
        return None, all_allowed(windows, part.proofs)
    value = lateness if windows.late else 0
    near = 10 * _TOLERANCE * (1 + float(value))
    return judge_lateness(windows, proofs[LATENESS], value, whole=s.integral, near=near)


def _board(view: View, part: SchedulePart, most: int, allowed: Allowed) -> Board:
    """The columns of a part; no load is above ``most``."""
    w, at = view.windows, part.transfers
    return Board(
        tuple(g[at] for g in view.groups),
        tuple(g[at] for g in view.ports),
        allowed,
        w.due[at],
        w.units[at],
        w.most[at],
        np.minimum(view.load_most, most),
        view.port_most,
        tuple(proof for proof in part.proofs if proof.level != LATENESS),
    )


def _reached(view: View, part: SchedulePart) -> Check:
    """Check that in every schedule that is no later, some load of a part reaches the last of its levels.

    With loads limited to that level, the proof bounds the number of loads that reach it above 0.
    """
    lateness = int(view.lateness()) if view.schedule.windows == "elastic" else 0
    level = part.proofs[-1].level if part.proofs else 0
    name = f"some load is at least {level}, unless more is late"
    if level < 1 or len(np.unique(part.transfers)) < len(part.transfers):
        return Check(name, False, detail="no level of transfers named once")
    if any(len(proof.lam) != len(part.transfers) or _senseless(proof) for proof in part.proofs):
        return Check(name, False, detail="prices make no sense")
    if any(0 <= proof.level < level for proof in part.proofs):
        return Check(name, False, detail="it says nothing of levels below")
    bound, proofs = 0, {proof.level: proof for proof in part.proofs}
    board = _board(view, part, level, _opened(view, part, proofs, lateness)[1])
    for proof in part.proofs:
        if proof.level != LATENESS:
            bound = board.prove(proof, int(proof.level == level), {}, lateness)
    return Check(name, bound > 0, detail=f"at least {bound / part.proofs[-1].scale:.10g} loads")


def _senseless(proof: LevelProof) -> bool:
    """Whether a proof is malformed: negative prices of goals, prices of later goals, or linear prices of a level."""
    if proof.scale < 1 or min(proof.nu, *proof.mu.values(), 0) < 0:
        return True
    if proof.level == LATENESS:
        return bool(proof.mu) or proof.nu != proof.scale
    if any((prices.price != prices.last).any() for prices in (proof.load, proof.port)):
        return True
    return min(proof.mu, default=proof.level + 1) <= proof.level


def _levels(view: View, part: SchedulePart, number: int, budget: Budget) -> Iterator[tuple[Check, bool]]:
    """Yield a check for each level with loads, and whether duality (not a quoted bound) proves it."""
    s, at = view.schedule, part.transfers
    runs = np.isin(s.transfer, at)
    loads, width = view.loads(runs) or (np.zeros(0), np.zeros(0, np.int64))
    top = int(np.ceil(loads.max(initial=0) - _TOLERANCE))
    counts = _counts(loads, width)
    where = f", part {number + 1}" if len(s.parts) > 1 else ""
    lateness = view.lateness(runs)
    proofs = {proof.level: proof for proof in part.proofs}
    if any(len(proof.lam) != len(at) for proof in part.proofs):
        yield Check(f"prices are one for every transfer{where}", False), True
        return
    late = lateness > 0 and s.windows == "elastic"
    if LATENESS in proofs and _senseless(proofs[LATENESS]):
        yield Check(f"prices of lateness{where} make sense", False), True
        return
    if budget.spent:
        yield budget.quoted(f"lateness and levels of {len(at)} transfers{where}"), False
        return
    bound, allowed = _opened(view, part, proofs, lateness)
    if late:
        name = f"total lateness of {lateness:g} units x slots is least{where}"
        if bound is None:
            yield Check(f"{name}, no proof given", False), True
        else:
            yield _met(name, bound, proofs[LATENESS], lateness, s.integral)
    board = _board(view, part, max(top, 1), allowed)
    # If as many loads reach a level as the next higher one, no equally good schedule has fewer.
    runs_of = _runs_of_levels(counts, s.lowest)
    # Proofs of other levels claim nothing, but later levels use the bounds that they settle.
    for level in sorted({*runs_of, *(level for level in proofs if level >= max(s.lowest, 1))}, reverse=True):
        if budget.spent:
            yield budget.quoted(f"levels from {level} down{where}"), False
            return
        if level not in runs_of:
            if _senseless(proofs[level]):
                yield Check(f"prices of level {level}{where} make sense", False), True
            else:
                _judged(board, proofs[level], counts.get(level, 0), counts, lateness, "", s.integral)
            continue
        value, until = counts[level], runs_of[level]
        name = f"level {level}" if until == level else f"levels {until} to {level}"
        name = f"{name}{where}: {counts[level]:g} loads"
        if level == 1 and level not in proofs:
            yield Check(f"{name}, settled by the sum of all loads", True), True
            continue
        proof = proofs.get(level, LevelProof(level, np.zeros(len(at), np.int64), Prices()))
        yield _judged(board, proof, value, counts, lateness, name, s.integral)
        board.count_full(until, value)


def _runs_of_levels(counts: dict[int, Any], lowest: int) -> dict[int, int]:
    """Map the highest level of every run of equal counts to the lowest."""
    found: dict[int, int] = {}
    highest = 0
    for level in range(max(counts, default=0), lowest - 1, -1):
        if abs(counts[level] - counts.get(level + 1, 0)) > (_TOLERANCE * counts[level] if level + 1 in counts else -1):
            highest = level
        found[highest] = level
    return found


def _judged(
    board: Board, proof: LevelProof, value: Any, counts: dict[int, Any], lateness: Any, name: str, integral: bool
) -> tuple[Check, bool]:
    """Check one stage by duality, or by the quoted bound of an integer program."""
    if _senseless(proof):
        return Check(f"{name}, prices make no sense", False), True
    whole = round(float(value))
    if integral:
        bound = board.prove(proof, whole, {k: round(float(v)) for k, v in counts.items()}, int(lateness))
    else:
        near = int(np.floor(float(value) * proof.scale + _TOLERANCE * proof.scale * (1 + float(value))))
        bound = board.prove(proof, -(-near // proof.scale), {k: int(np.ceil(v)) for k, v in counts.items()}, 0)
    return _met(name, bound, proof, value, integral)


def _met(name: str, bound: int, proof: LevelProof, value: Any, integral: bool) -> tuple[Check, bool]:
    """Whether a stage's value meets its bound."""
    if integral:
        ok = bound > proof.scale * (round(float(value)) - 1)
    else:
        ok = bound >= proof.scale * float(value) - 10 * _TOLERANCE * proof.scale * (1 + float(value))
    detail = f"{bound / proof.scale:.10g}"
    if ok or proof.solver_bound is None:
        return Check(f"{name}, dual bound", bool(ok), max(0.0, float(value) - bound / proof.scale), detail), True
    quoted = proof.solver_bound > value - 1 + _TOLERANCE
    detail = f"{proof.solver_bound:.10g} (duality: {detail})"
    return Check(f"{name}, integer program's bound (quoted)", bool(quoted), 0, detail, how="quoted"), False
