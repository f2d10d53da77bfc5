"""Jobs as DAGs of computations and transfers, to be sent just in time (kind ``jit-bandwidth``).

A computation starts when the transfers that feed it have arrived and its predecessors are done.
Rates are Mbit/s, sizes MB (10**6 bytes), times seconds. For planning, time is cut into slots of ``slot_s``
and data into units of ``unit_mb``; `JitInstance.rounding` returns the rounding loss.

Source: Shi, Wen, Fei, Zhang, "A DAG-Based Network Traffic Scheduler", 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from flowlex.instances.array_types import Floats, Integers, floats, integers
from flowlex.instances.grid_rounding import WHOLE, Rounding, whole_above, whole_below
from flowlex.instances.instance_base import Instance, Name, Part, Positive, read_only, require_known, require_unique
from flowlex.instances.jit_jobs import BackgroundCopy, Computation, Job, Transfer

__all__ = [
    "BackgroundCopy",
    "Computation",
    "JitArrays",
    "JitInstance",
    "Job",
    "Machine",
    "Rounding",
    "Transfer",
]


#: Units and slots stay below these, so that products and sums of both are exact.
MOST = 2**53
LATEST = 10**12


class Machine(Part):
    """A machine with one port into a non-blocking switch.

    Attributes
    ----------
    out_mbps, in_mbps
        Rate of the port in each direction, Mbit/s.
    """

    name: Name
    out_mbps: Positive
    in_mbps: Positive


@dataclass(frozen=True, eq=False)
class JitArrays:
    """The instance as arrays, in file order.

    M machines, F transfers, N computations, E edges between computations; all indices count from 0 over the
    whole instance.
    """

    # out_units, in_units: (M,) capacity of the ports, integer units a slot (rounded down)
    out_units: Integers
    in_units: Integers
    # sender, receiver, job, feeds: (F,) machine, machine, job and computation of each transfer
    sender: Integers
    receiver: Integers
    job: Integers
    feeds: Integers
    # size_mb, size_units: (F,) size, and size in integer units (rounded up)
    size_mb: Floats
    size_units: Integers
    # ready_s, deadline_s, firm_s: (F,) from the job's arrival; ``deadline_s`` is NaN if the DAG determines it,
    # ``firm_s`` is NaN if there is none
    ready_s: Floats
    start_s: Floats  # (F,) the earliest start as absolute time
    deadline_s: Floats
    firm_s: Floats
    # computation_s, computation_job: (N,) duration and job of each computation
    computation_s: Floats
    computation_job: Integers
    # tail, head: (E,) the edges tail -> head between computations
    tail: Integers
    head: Integers
    arrival_s: Floats  # (jobs,) arrival of each job


class JitInstance(Instance):
    """DAG jobs on machines behind a non-blocking switch, with background copies.

    Attributes
    ----------
    slot_s
        Length of a slot of the planning grid, seconds.
    unit_mb
        Unit of data, MB; a port with a capacity of C units sends 0..C units per slot.
    horizon_s
        No job or copy may arrive at or after this time (None: no horizon).
    """

    kind: Literal["jit-bandwidth"] = "jit-bandwidth"
    machines: Annotated[tuple[Machine, ...], Field(min_length=2)]
    """The machines; at least two."""
    jobs: tuple[Job, ...]
    """The jobs, in any order."""
    copies: tuple[BackgroundCopy, ...] = ()
    """Traffic without deadlines."""
    slot_s: Positive = 0.1
    unit_mb: Positive = 1.25
    horizon_s: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> JitInstance:
        for kind in ("machines", "jobs", "copies"):
            require_unique((each.name for each in getattr(self, kind)), kind)
        self._check_machines()
        self._check_arrivals()
        self._check_sizes()
        for machine in self.machines:
            for rate, side in ((machine.out_mbps, "out"), (machine.in_mbps, "in")):
                if whole_below(rate / 8 * self.slot_s / self.unit_mb) < 1:
                    raise ValueError(
                        f"machine {machine.name!r} sends {rate / 8 * self.slot_s:.6g} MB a slot {side}, "
                        f"which is rounded down to no unit of {self.unit_mb:g} MB; use a smaller unit_mb "
                        "or longer slots"
                    )
        return self

    def _check_machines(self) -> None:
        known = dict.fromkeys(m.name for m in self.machines)
        for j in self.jobs:
            for c in j.computations:
                require_known(c.machine, known, f"computation {c.name!r} of job {j.name!r} uses machine", "machines")
            for f in j.transfers:
                for end in (f.sender, f.receiver):
                    require_known(end, known, f"transfer {f.name!r} of job {j.name!r} uses machine", "machines")
        for copy in self.copies:
            for end in (copy.sender, copy.receiver):
                require_known(end, known, f"copy {copy.name!r} uses machine", "machines")

    def _check_sizes(self) -> None:
        """Check that numbers of units and slots, and their sums, stay exact in 64-bit arithmetic."""
        volume = sum(f.size_mb for j in self.jobs for f in j.transfers) + sum(c.size_mb for c in self.copies)
        rate = max(max(m.out_mbps, m.in_mbps) for m in self.machines) / 8 * self.slot_s
        for what, amount in (("all sizes together are", volume), ("the fastest port sends in a slot", rate)):
            if not amount / self.unit_mb < MOST:
                raise ValueError(
                    f"{what} {amount:.6g} MB, {amount / self.unit_mb:.3g} units of {self.unit_mb:g} MB; beyond "
                    "2**53 units are not exact: use a larger unit_mb"
                )
        times = [(f"copy {c.name!r}", "arrival_s", c.arrival_s) for c in self.copies]
        for j in self.jobs:
            computed = sum(c.seconds for c in j.computations)
            times += [(f"job {j.name!r}", "arrival_s", j.arrival_s)]
            times += [(f"job {j.name!r}", "computations together, in seconds,", computed)]
            for f in j.transfers:
                owner = f"transfer {f.name!r} of job {j.name!r}"
                times += [(owner, what, getattr(f, what) or 0.0) for what in ("ready_s", "deadline_s", "firm_s")]
        for owner, what, value in times:
            if not value / self.slot_s < LATEST:
                raise ValueError(
                    f"{owner}: {what} {value:g} is {value / self.slot_s:.3g} slots of {self.slot_s:g} s; at most "
                    f"{LATEST:.0g} slots are kept apart: use longer slots, or correct the time"
                )

    def _check_arrivals(self) -> None:
        if self.horizon_s is None:
            return
        for what, item in [("job", j) for j in self.jobs] + [("copy", c) for c in self.copies]:
            if item.arrival_s >= self.horizon_s:
                raise ValueError(
                    f"{what} {item.name!r} arrives at {item.arrival_s:g} s, not before the horizon of "
                    f"{self.horizon_s:g} s; remove it or raise horizon_s"
                )

    @cached_property
    def transfer_names(self) -> tuple[str, ...]:
        """``job/transfer`` of every transfer, in the order of `arrays`."""
        return tuple(f"{job.name}/{transfer.name}" for job in self.jobs for transfer in job.transfers)

    @cached_property
    def arrays(self) -> JitArrays:
        """The instance as NumPy arrays."""
        per_slot = self.slot_s / 8 / self.unit_mb
        machine = {m.name: k for k, m in enumerate(self.machines)}
        place: list[dict[str, int]] = []
        count = 0
        for job in self.jobs:
            place.append({c.name: count + k for k, c in enumerate(job.computations)})
            count += len(job.computations)
        transfers = [(k, f) for k, job in enumerate(self.jobs) for f in job.transfers]
        edges = [
            (place[k][before], place[k][c.name])
            for k, job in enumerate(self.jobs)
            for c in job.computations
            for before in c.after
        ]
        arrival = floats(job.arrival_s for job in self.jobs)
        size = floats(f.size_mb for _, f in transfers)
        owner = integers([k for k, _ in transfers])
        ready = floats(f.ready_s for _, f in transfers)
        return read_only(
            JitArrays(
                out_units=whole_below(np.array([m.out_mbps for m in self.machines]) * per_slot),
                in_units=whole_below(np.array([m.in_mbps for m in self.machines]) * per_slot),
                sender=integers([machine[f.sender] for _, f in transfers]),
                receiver=integers([machine[f.receiver] for _, f in transfers]),
                job=owner,
                feeds=integers([place[k][f.feeds] for k, f in transfers]),
                size_mb=size,
                size_units=whole_above(size / self.unit_mb),
                ready_s=ready,
                start_s=arrival[owner] + ready,
                deadline_s=floats(f.deadline_s for _, f in transfers),
                firm_s=floats(f.firm_s for _, f in transfers),
                computation_s=floats(c.seconds for j in self.jobs for c in j.computations),
                computation_job=np.repeat(np.arange(len(self.jobs)), [len(j.computations) for j in self.jobs]),
                tail=integers([tail for tail, _ in edges]),
                head=integers([head for _, head in edges]),
                arrival_s=arrival,
            )
        )

    def rounding(self) -> Rounding:
        """Return the loss from rounding ports to integer units per slot and transfers to integer units."""
        arrays = self.arrays
        unit_rate = self.unit_mb * 8 / self.slot_s
        exact = np.array([(m.out_mbps, m.in_mbps) for m in self.machines])
        lost = np.maximum(exact - np.stack([arrays.out_units, arrays.in_units], axis=1) * unit_rate, 0.0)
        lost[lost <= WHOLE * exact] = 0.0
        share = (lost / exact).max(axis=1)
        added = np.maximum(arrays.size_units * self.unit_mb - arrays.size_mb, 0.0)
        total = float(arrays.size_mb.sum())
        return Rounding(
            rate_lost_mbps=float(lost.sum()),
            rate_lost_share=float(lost.sum() / exact.sum()),
            machine=self.machines[int(share.argmax())].name if share.max() > 0 else "",
            size_added_mb=float(added.sum()),
            size_added_share=float(added.sum() / total) if total else 0.0,
        )

    @property
    def cells(self) -> int:
        """Machines times transfers."""
        return len(self.machines) * sum(len(job.transfers) for job in self.jobs)

    def summary(self) -> dict[str, str | int | float]:
        """Sizes and totals for `flowlex show`."""
        arrays = self.arrays
        return {
            "machines": len(self.machines),
            "jobs": len(self.jobs),
            "computations": len(arrays.computation_s),
            "edges": len(arrays.tail),
            "transfers": len(arrays.size_mb),
            "volume_mb": round(float(arrays.size_mb.sum()), 6),
            "copies": len(self.copies),
            "slot_s": self.slot_s,
            "unit_mb": self.unit_mb,
            "rounding": str(self.rounding()),
        }
