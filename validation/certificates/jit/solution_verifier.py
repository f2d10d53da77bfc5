"""Verify solution files of just-in-time schedules: convert names and runs to numbers, and judge them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from pydantic import Field

from flowlex.formulations.block_labels import label_text
from flowlex.instances.exact_rationals import rational
from flowlex.instances.jit import JitInstance
from flowlex.instances.model_changes import Changes
from flowlex.validation.certificates.certificate import Check
from flowlex.validation.certificates.exact_numbers import agrees
from flowlex.validation.certificates.jit import (
    JitSchedule,
    LevelProof,
    Prices,
    SchedulePart,
    all_loads,
    certify_schedule,
    largest_load,
    level_counts,
    no_schedule,
    total_weight,
)
from flowlex.validation.certificates.jit.dual_values import check_duals
from flowlex.validation.certificates.jit.formulation_from_instance import state_jit
from flowlex.validation.certificates.jit.schedule import View
from flowlex.validation.certificates.jit.tie_break import tie_figures
from flowlex.validation.certificates.jit.transfer_windows import overloaded, planned_transfers, transfer_windows
from flowlex.validation.certificates.jit.user_written_rules import judge_rules
from flowlex.validation.certificates.problem_options import JitOptions
from flowlex.validation.certificates.statement.stage_proof import StatementProof
from flowlex.validation.certificates.verifier_interface import Claimed, Finding, Strict, Verifier, same_values

_SIDES = ("out", "in")
#: How the answer was found, and capacity left to background traffic, which no file holds.
_UNJUDGED = frozenset({"linear_programs", "integer_programs", "least_remaining_egress", "median_remaining_egress"})
_WORDS = frozenset({"route"})


class Answer(Strict):
    """The schedule. Slots count from ``origin_slot``, which counts from time 0."""

    slot_s: float
    unit_mb: float
    origin_slot: int
    lateness_unit_slots: float | int
    schedule: dict[str, list[list[float | int]]]
    """Blocks of each planned transfer: first slot, end, units, spread over the slots as evenly as integers allow."""


class Level(Strict):
    """Prices of one stage (see `flowlex.validation.certificates.jit.duality_proof`)."""

    level: int
    scale: int
    transfers: list[int]
    loads: list[list[str | int]]
    """Sender and receiver (or machine, and ``out`` or ``in``), first slot, end, price."""
    ports: list[list[str | int]]
    """Machine, ``out`` or ``in``, first slot, end, price; for lateness also that in the last slot, if different."""
    above: dict[str, int]
    lateness: int
    solver_bound: float | None


class Part(Strict):
    """Transfers that share no load with others, and their stages."""

    transfers: list[str]
    levels: list[Level]


class Proof(Strict):
    """Proofs of all parts; levels below ``lowest`` are not claimed. An empty proof shows nothing."""

    lowest: int = 1
    parts: list[Part] = Field(default_factory=list)
    least: Part | None = None
    """If no level is claimed: transfers, some load of which must reach the last of these levels."""
    rules: StatementProof | None = None
    """For a changed model: stages of the last part, which rules concern; none if all parts are proven without rules."""


def _judge(claimed: Claimed) -> Finding:
    instance = claimed.instance
    assert isinstance(instance, JitInstance)
    if claimed.answer is None:
        return _no_answer(claimed, instance)
    return _judge_schedule(claimed, instance, schedule_of(claimed))


def _judge_changed(claimed: Claimed, changes: Changes) -> Finding:
    """Judge a schedule with rules: its parts are proven without them, except the part that they concern."""
    instance, rules = claimed.instance, claimed.proof.rules
    if rules is None or claimed.document.options["program"] not in ("P1", "P2"):
        raise ValueError("a changed model needs the proof of what its rules concern")
    schedule = replace(schedule_of(claimed), ties=False, ruled=bool(rules.stages))
    found = _judge_schedule(claimed, instance, schedule)
    if not found.checks[0].ok:
        return found
    ruled, stages = judge_rules(instance, claimed.document.options, changes, schedule, rules, claimed.budget)
    claim = found.claim if ruled.claim == "optimal" or not rules.stages else "feasible"
    largest = found.objective or 0
    return replace(
        found,
        claim=claim,
        checks=(*found.checks, *ruled.checks),
        stages={name: largest if name == "largest" else found.stages.get(name, 0) for name in stages},
    )


def _judge_schedule(claimed: Claimed, instance: JitInstance, schedule: JitSchedule) -> Finding:
    document = claimed.document
    certificate = certify_schedule(instance, schedule, claimed.budget)
    checks = list(certificate.checks)
    known, answer = certificate.checks[0].ok, claimed.answer
    windows = View.of(instance, schedule).windows if known else transfer_windows(instance, schedule.lat)
    same = (answer.slot_s, answer.unit_mb, answer.origin_slot) == (instance.slot_s, instance.unit_mb, windows.origin)
    checks.append(Check("slots and units are those of the instance", same))
    counts = level_counts(instance, schedule) if known else {}
    largest = Fraction(largest_load(instance, schedule)) if known else Fraction(0)
    bound = largest
    if not schedule.parts:
        bound = _least_load(schedule)
    if document.options["program"] in ("P3", "P4") and known:
        weight = Fraction(total_weight(instance, schedule))
        bound = weight if document.bound is None else rational(document.bound)
        near = abs(weight - bound) <= weight / 10**6
        checks.append(Check("sum of weights meets the solver's bound", near, detail=f"{weight}", how="quoted"))
        certificate, largest = replace(certificate, claim="feasible", exact=False), weight
    if document.duals and document.status == "optimal" and not document.proof:
        checks.append(Check("duals", True, detail="without prices", how="quoted"))
    elif document.duals:
        checks.append(check_duals(instance, schedule.parts, document.duals))
    figures = _figures(instance, schedule) if known else {}
    stages: dict[str, Fraction | int] = {f"level_{s}": Fraction(n) for s, n in counts.items()}
    stages["lateness"] = Fraction(schedule.lateness)
    if schedule.ties and known:
        stages |= tie_figures(View.of(instance, schedule))
    tolerance = 0.0 if certificate.exact else 1e-6
    return Finding(certificate.claim, tuple(checks), largest, bound, stages, figures, _UNJUDGED, _WORDS, tolerance)


def _no_answer(claimed: Claimed, instance: JitInstance) -> Finding:
    """Judge the claim of no schedule: proven by an overloaded port, or quoted; refused if all may be late."""
    options, name = claimed.document.options, "there is no schedule"
    if claimed.document.status != "infeasible":
        return Finding("feasible", (Check("there is an answer", False, detail=claimed.document.status),))
    windows, rule = _windows(options), str(options["lat"])
    refused = no_schedule(instance, rule, windows)
    if refused is not None:
        return Finding("feasible", refused.checks)
    found = overloaded(instance, rule, windows) if float(options["share"]) == 1 else ""
    if found:
        return Finding("infeasible", (Check(name, True, detail=found),))
    return Finding("feasible", (Check(name, True, detail="the solver's word", how="quoted"),))


def _windows(options: dict[str, Any]) -> str:
    return str(options["windows"] or ("elastic" if options["program"] == "P2" else "strict"))


def _least_load(schedule: JitSchedule) -> Fraction:
    """A lower bound on the largest load: the proven level, or one unit, if integer units are sent."""
    if schedule.least is not None and schedule.least.proofs:
        return Fraction(schedule.least.proofs[-1].level)
    return Fraction(int(schedule.integral and len(schedule.transfer) > 0))


def _figures(instance: JitInstance, schedule: JitSchedule) -> dict[str, float | int | Fraction | str]:
    """The figures that the schedule and its windows determine."""
    loads, width = all_loads(instance, schedule)
    windows, top = View.of(instance, schedule).windows, largest_load(instance, schedule)
    real = math.fsum(windows.columns.size_mb[schedule.planned].tolist())
    planned = float(windows.units[schedule.planned].sum()) * instance.unit_mb
    levels = [(int(width[loads >= s - 1e-6].sum()), s) for s in range(math.ceil(top - 1e-6), 0, -1)]
    return {
        "largest_load": top,
        "loads_by_level": ", ".join(f"{count} at {s}" for count, s in levels[:4]) or "none",
        "planned_transfers": len(schedule.planned),
        "background_transfers": len(windows.columns.names) - len(schedule.planned),
        "lateness_unit_slots": schedule.lateness,
        "windows_widened_by_grid": int((windows.stop > windows.due)[schedule.planned].sum()),
        "planned_over_real_bytes": planned / real if real else 1.0,
    }


def schedule_of(claimed: Claimed) -> JitSchedule:
    """The schedule that a file states, with numbers in place of names."""
    options, answer, proof, instance = claimed.document.options, claimed.answer, claimed.proof, claimed.instance
    names = (f"{job.name}/{transfer.name}" for job in instance.jobs for transfer in job.transfers)
    place = {name: k for k, name in enumerate(names)}
    machine = {m.name: k for k, m in enumerate(instance.machines)}
    runs = [(place[name], *run) for name, each in answer.schedule.items() for run in each]
    if any(len(run) != 4 or not isinstance(run[1], int) or not isinstance(run[2], int) for run in runs):
        raise ValueError("a block is its first slot, its end, and the units in all its slots")
    integral = all(isinstance(run[3], int) for run in runs)
    return JitSchedule(
        share=float(options["share"]),
        share_of=str(options["share_of"]),
        load=str(options["load"]),
        lat=str(options["lat"]),
        windows=_windows(options),
        planned=np.array([place[name] for name in answer.schedule], np.int64),
        transfer=np.array([run[0] for run in runs], np.int64),
        begin=np.array([run[1] for run in runs], np.int64),
        end=np.array([run[2] for run in runs], np.int64),
        amount=np.array([run[3] for run in runs], np.int64 if integral else np.float64),
        lateness=answer.lateness_unit_slots,
        integral=integral,
        parts=tuple(_part(part, place, machine, str(options["load"])) for part in proof.parts),
        lowest=proof.lowest,
        ties=integral
        and options["program"] == "P2"
        and options["integrality"] != "lp"
        and options.get("tie_break") is not False,
        least=None if proof.least is None else _part(proof.least, place, machine, str(options["load"])),
    )


def _part(part: Part, place: dict[str, int], machine: dict[str, int], load: str) -> SchedulePart:
    proofs = tuple(
        LevelProof(
            level.level,
            np.array(level.transfers, np.int64),
            _prices(level.loads, machine, pair=load == "pair"),
            _prices(level.ports, machine, pair=False),
            level.scale,
            {int(s): price for s, price in level.above.items()},
            level.lateness,
            level.solver_bound,
        )
        for level in part.levels
    )
    return SchedulePart(np.array([place[name] for name in part.transfers], np.int64), proofs)


def _prices(rows: list[list[str | int]], machine: dict[str, int], *, pair: bool) -> Prices:
    units, numbers = [], []
    for first, second, *rest in rows:
        at = machine[str(first)]
        if pair:
            units.append(at * len(machine) + machine[str(second)])
        else:
            units.append(at + len(machine) * _SIDES.index(str(second)))
        if len(rest) not in (3, 4) or not all(isinstance(x, int) for x in rest):
            raise ValueError("a price has two names, its first slot, its end, and an integer, or two")
        numbers.append([*rest, rest[-1]][:4])
    table = np.array(numbers, np.int64).reshape(-1, 4)
    return Prices(np.array(units, np.int64), *table.T)


def _changed_figures(claimed: Claimed, values: Mapping[str, Mapping[str, Any]]) -> Finding:
    """The answer of a changed model: rates are those of the values, and figures follow from them."""
    instance, answer = claimed.instance, claimed.answer
    schedule = replace(schedule_of(claimed), ties=False)
    known = planned_transfers(instance, schedule.share, schedule.share_of)
    windows = View.of(instance, schedule).windows
    names = windows.columns.names
    rates: dict[str, Fraction] = defaultdict(Fraction)
    late = Fraction(0)
    runs = (schedule.transfer, schedule.begin, schedule.end, schedule.amount)
    for f, begin, end, units in zip(*(each.tolist() for each in runs), strict=True):
        for t in range(begin, end):
            rates[label_text((names[f], t))] += rational(units) / (end - begin)
            late += rational(units) / (end - begin) * max(t + 1 - int(windows.due[f]), 0)
    same = (answer.slot_s, answer.unit_mb, answer.origin_slot) == (instance.slot_s, instance.unit_mb, windows.origin)
    checks = (
        Check("planned transfers", sorted(schedule.planned.tolist()) == sorted(known)),
        same_values({"rate": rates}, values, 0.0 if schedule.integral else 1e-6),
        Check("slots and units are those of the instance", same),
        Check("lateness", agrees(answer.lateness_unit_slots, late, 0.0 if schedule.integral else 1e-6)),
    )
    return Finding("feasible", checks, metrics=_figures(instance, schedule), unjudged=_UNJUDGED, words=_WORDS)


VERIFIER = Verifier(
    "jit-bandwidth",
    Answer,
    Proof,
    _judge,
    options=JitOptions,
    state=state_jit,
    changed=_judge_changed,
    figures=_changed_figures,
)
