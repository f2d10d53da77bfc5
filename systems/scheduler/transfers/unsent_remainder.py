"""The unsent remainder of a live plan: as an instance, and with new transfers appended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from flowlex.instances.exact_rationals import rational
from flowlex.instances.jit import Computation, JitInstance, Job, Transfer
from flowlex.models.jit.baselines import fill
from flowlex.models.jit.transfer_slot_grid import Load, make_grid
from flowlex.validation.certificates import Certificate
from flowlex.validation.restated.jit import certify_schedule

#: First slot, end, units in each slot; slots count from time 0.
RunOfSlots: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class Sending:
    """A planned transfer with unsent units. Slots count from time 0."""

    name: str
    sender: str
    receiver: str
    units: int  # units left to send at the slot where ``runs`` begin
    # first slot, and end slot of the latest arrival time
    start: int
    due: int
    runs: tuple[RunOfSlots, ...] = ()
    promise: int | None = None  # guaranteed arrival slot; None while the transfer is not planned

    def at(self, slot: int) -> Sending:
        """Return the remainder from a slot on, if everything before was sent as planned."""
        sent = sum(rate * max(min(end, slot) - begin, 0) for begin, end, rate in self.runs)
        runs = tuple((max(begin, slot), end, rate) for begin, end, rate in self.runs if end > slot)
        return replace(self, units=self.units - sent, runs=runs)

    def planned(self, runs: tuple[RunOfSlots, ...], keep: bool) -> Sending:
        """Return it with new runs and their promise; with ``keep``, at most the present promise."""
        promise = max(self.due, *(end for _, end, _ in runs))
        if keep and self.promise is not None:
            promise = min(promise, self.promise)
        return replace(self, runs=runs, promise=promise)


def rest_instance(empty: JitInstance, rest: Mapping[str, Sending], slot: int, *, firm: bool, name: str) -> JitInstance:
    """Return the remainder as an instance that begins with a slot.

    A due slot in the past is replaced by the first usable slot, which reduces all lateness by a constant. With
    ``firm``, promises must be met.
    """
    step, unit = rational(empty.slot_s), rational(empty.unit_mb)
    jobs: dict[str, list[Transfer]] = {}
    for full, s in rest.items():
        job, _, own = full.rpartition("/")
        start = Fraction(max(s.start - slot, 0))
        due = Fraction(s.due - slot)
        if due <= start:
            due = start + Fraction(1, 2)  # rounded down to the start
        last = None if s.promise is None or not firm else max(Fraction(s.promise - slot), due)
        transfer = Transfer(
            name=own,
            size_mb=float(s.units * unit),
            sender=s.sender,
            receiver=s.receiver,
            feeds="arrived",
            ready_s=float(start * step),
            deadline_s=float(due * step),
            firm_s=None if last is None else float(last * step),
        )
        jobs.setdefault(job, []).append(transfer)
    arrived, at = Computation(name="arrived", seconds=0.0), float(slot * step)
    made = tuple(
        Job(name=job, arrival_s=at, computations=(arrived,), transfers=tuple(each)) for job, each in jobs.items()
    )
    return empty.model_copy(update={"jobs": made, "name": name})


def behind(empty: JitInstance, rest: Mapping[str, Sending], slot: int) -> dict[str, Sending]:
    """Keep the older plan; new transfers use the remaining capacity, first come first served."""
    arrays = empty.arrays
    place = {m.name: k for k, m in enumerate(empty.machines)}
    machines = len(empty.machines)
    taken = [
        (port, max(begin - slot, 0), end - slot, rate)
        for s in rest.values()
        for begin, end, rate in s.runs
        for port in (place[s.sender], place[s.receiver] + machines)
    ]
    new = [s for s in rest.values() if not s.runs]
    sender, receiver, units, start = (
        np.array([(place[s.sender], place[s.receiver], s.units, max(s.start - slot, 0)) for s in new], np.int64)
        .reshape(-1, 4)
        .T
    )
    port, begin, end, rate = np.array(taken, np.int64).reshape(-1, 4).T
    _, sent = fill(arrays.out_units, arrays.in_units, sender, receiver, units, start, (port, begin, end, rate))
    runs: list[list[RunOfSlots]] = [[] for _ in new]
    table = (sent.item.tolist(), sent.begin.tolist(), sent.end.tolist(), sent.rate.tolist())
    for k, first, last, each in zip(*table, strict=True):
        runs[k].append((first + slot, last + slot, each))
    return {**rest, **{s.name: s.planned(tuple(r), keep=True) for s, r in zip(new, runs, strict=True)}}


def certified(instance: JitInstance, rest: Mapping[str, Sending], slot: int, load: Load) -> Certificate:
    """Return the certificate of a plan without a claim of optimality, checked against the remainder."""
    grid = make_grid(instance, 1.0, "elastic")
    schedule = {name: [(begin - slot, end - slot, rate) for begin, end, rate in s.runs] for name, s in rest.items()}
    late = sum(
        rate * max(t + 1 - int(grid.due[k]), 0)
        for k, name in enumerate(instance.transfer_names)
        for begin, end, rate in schedule[name]
        for t in range(begin, end)
    )
    answer = {
        "slot_s": instance.slot_s,
        "unit_mb": instance.unit_mb,
        "origin_slot": grid.origin,
        "lateness_unit_slots": late,
        "schedule": schedule,
    }
    found = certify_schedule(instance, {"share": 1.0, "load": load}, answer)
    return found.require("jit-bandwidth: the older plan with new transfers behind it")
