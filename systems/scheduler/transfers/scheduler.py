"""Online scheduling of arriving jobs: each step replans the unsent transfers and keeps promises.

The model plans all jobs of an instance at once, with known arrivals. A controller learns the DAG of a job only when the
job is submitted. `JitScheduler` works over time:

1. `submit` computes the latest arrival times of a job, and the share of its transfers that is planned.
2. `step` plans all unsent transfers by solving `JitBandwidth` for the remainder, so each step has the model's
   certificate. The current slot is completed as planned; the new plan starts with the next slot.
3. A planned transfer has a *promise*: it arrives by its due slot, or by the planned slot if that is later. Later steps
   keep promises (``firm_s`` of the remainder), unless ``keep_promises=False`` or the transfer is reported to be behind
   (`report`).

Transfers are assumed to be sent as planned unless `report` says otherwise. Times must not decrease. A refused event
changes nothing.

Each step is optimal for the jobs known then; in total, this may be worse than a plan with known arrivals. A step is
needed only after an event: the remainder of an optimal plan is optimal.

Source: the paper solves again when a new job submits its first transfer, or at fixed intervals.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from pydantic import ValidationError

from flowlex.errors import FlowlexError
from flowlex.formulations.solver_outcome import EngineName, Status
from flowlex.instances.exact_rationals import rational
from flowlex.instances.input_errors import first_fault
from flowlex.instances.jit import JitInstance, Job, Machine, Transfer
from flowlex.models.jit.latest_arrival import Rule
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.jit.solution import JitSolution
from flowlex.models.jit.transfer_slot_grid import Load, ShareOf, make_grid
from flowlex.models.model_base import ModelError
from flowlex.systems.scheduler.transfers.unsent_remainder import RunOfSlots, Sending, behind, certified, rest_instance
from flowlex.validation.certificates import Certificate


class JitEventError(FlowlexError, ValueError):
    """An event does not fit the state of the scheduler; it was not applied."""


@dataclass(frozen=True)
class JitStep:
    """One decision.

    Attributes
    ----------
    at_s, slot
        Time of the step, and the first slot (counted from time 0) that it plans.
    new, changed
        Names of transfers planned for the first time, and of those whose plan has changed.
    late
        Transfers that will arrive after their due slot, with the number of slots.
    status
        ``optimal``; ``feasible`` at a time limit; then the older plan may stay, with new transfers added to it.
    certificate
        Certificate of the plan of the remainder; None with the option ``certify=False``.
    solution
        The model's solution of the remainder; None if there was nothing to plan, or the older plan stays.
    """

    at_s: float
    slot: int
    status: Status
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    late: dict[str, int] = field(default_factory=dict)
    certificate: Certificate | None = None
    solution: JitSolution | None = field(default=None, repr=False)
    seconds: float = 0.0


class JitScheduler:
    """Just-in-time bandwidth over time (see the module).

    Parameters
    ----------
    machines
        Machines with the capacities of their ports.
    slot_s, unit_mb
        The grid, as for `flowlex.instances.jit.JitInstance`.
    share, share_of, load, lat
        As for `JitBandwidth`.
    keep_promises
        Whether later steps must keep the promises of earlier ones.
    every_s
        Plan at multiples of this many seconds; by default as soon as the first transfer of a submitted job is ready.
    engine, options
        How to solve each step, see `flowlex.formulations.SolveOptions` (``time_limit_s`` bounds a step).

    Examples
    --------
    >>> from flowlex.instances.jit import Computation
    >>> machines = [Machine(name=n, out_mbps=8, in_mbps=8) for n in "ab"]
    >>> live = JitScheduler(machines, slot_s=1.0, unit_mb=1.0, share=1.0)
    >>> done = Computation(name="done", seconds=0)
    >>> t = Transfer(name="t", size_mb=2, sender="a", receiver="b", feeds="done", deadline_s=4)
    >>> live.submit(Job(name="j", computations=(done,), transfers=(t,)), at_s=3.0)
    >>> live.step(3.0).certificate.claim
    'optimal'
    >>> sum(end - begin for begin, end, rate in live.sending["j/t"].runs)
    2
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        *,
        slot_s: float = 0.1,
        unit_mb: float = 1.25,
        share: float = 0.4,
        share_of: ShareOf = "transfers",
        load: Load = "pair",
        lat: Rule = "critical",
        keep_promises: bool = True,
        every_s: float | None = None,
        engine: EngineName = "highs",
        **options: Any,
    ) -> None:
        if every_s is not None and not every_s > 0:
            raise ModelError(f"every_s must be above 0, got {every_s}")
        if not isinstance(keep_promises, bool):
            raise ModelError(f"keep_promises must be true or false, got {keep_promises!r}")
        self.empty: JitInstance = JitInstance(machines=tuple(machines), jobs=(), slot_s=slot_s, unit_mb=unit_mb)
        model = JitBandwidth(self.empty, share=share, share_of=share_of, load=load, lat=lat)  # checks the options
        self.share: float
        self.share, self.share_of, self.load, self.lat = model.share, model.share_of, model.load, model.lat
        self.every_s: float | None
        self.keep_promises: bool
        self.keep_promises, self.every_s = keep_promises, every_s
        self.options: dict[str, Any]
        self.engine, self.options = engine, options
        self.slot: Fraction = rational(slot_s)
        #: Planned transfers that are not completely sent, by ``job/transfer``.
        self.sending: dict[str, Sending] = {}
        #: Unplanned transfers (beyond the share), which use the remaining bandwidth.
        self.background: dict[str, Transfer] = {}
        self.jobs: set[str] = set()
        self.now_s: float = 0.0
        self._waiting: list[float] = []
        #: The slot during which the last step was made, and its rates by transfer.
        self._under_way: tuple[int, dict[str, float]] = (-1, {})
        self._steps = 0

    # Events

    def submit(self, job: Job, at_s: float) -> None:
        """Add a job with its DAG; its ``arrival_s`` is ignored.

        Parameters
        ----------
        job
            Its times (``ready_s``, ``deadline_s``) count from its arrival; its machines must be those of the scheduler.
        at_s
            Arrival in seconds from time 0; finite, and not before the last event.

        Raises
        ------
        JitEventError
            The time lies before the last event, the name is in use, or the job does not fit the machines.
        """
        self._check_time(at_s)
        if job.name in self.jobs:
            raise JitEventError(f"job {job.name!r} has been submitted before; give the new one another name")
        try:
            here = job.model_copy(update={"arrival_s": at_s})
            alone = JitInstance.model_validate({**dict(self.empty), "jobs": (here,)})
            grid = make_grid(alone, self.share, "elastic", self.lat, self.share_of)
        except ValidationError as error:
            raise JitEventError(f"job {job.name!r} is refused: {first_fault(error)[1]}") from error
        except ModelError as error:
            raise JitEventError(f"job {job.name!r} is refused: {error}") from error
        machines = self.empty.machines
        for k in range(grid.count):
            start, due = int(grid.start[k]) + grid.origin, int(grid.due[k]) + grid.origin
            sender, receiver = machines[int(grid.sender[k])].name, machines[int(grid.receiver[k])].name
            name = grid.name(k)
            self.sending[name] = Sending(name, sender, receiver, int(grid.units[k]), start, due)
        self.background |= {alone.transfer_names[k]: job.transfers[k] for k in grid.rest.tolist()}
        self.jobs.add(job.name)
        first = min((transfer.ready_s for transfer in job.transfers), default=None)
        if first is not None:
            self._waiting.append(at_s + first)
        self.now_s = at_s

    def withdraw(self, job: str, at_s: float) -> None:
        """Withdraw a job; its unsent transfers are dropped.

        Parameters
        ----------
        job
            Name of a submitted job.
        at_s
            Time in seconds from time 0; finite, and not before the last event.

        Raises
        ------
        JitEventError
            The time lies before the last event, or no job has this name.
        """
        self._check_time(at_s)
        if job not in self.jobs:
            raise JitEventError(f"there is no job {job!r}")
        self.jobs.discard(job)
        for table in (self.sending, self.background):
            for name in [n for n in table if n.rpartition("/")[0] == job]:
                del table[name]
        self._waiting.append(at_s)
        self.now_s = at_s

    def report(self, transfer: str, left_mb: float, at_s: float) -> None:
        """Report the remainder of a transfer that differs from the plan; the next step gives it a new promise.

        Parameters
        ----------
        transfer
            ``job/transfer``, one of the keys of ``sending``.
        left_mb
            Megabytes still to send, rounded up to integer units; 0 ends the transfer.
        at_s
            When, in seconds from time 0; finite, and not before the last event.

        Raises
        ------
        JitEventError
            The time lies before the last event, the transfer is not planned, or ``left_mb`` is negative or not finite.
        """
        self._check_time(at_s)
        if transfer not in self.sending:
            raise JitEventError(f"there is no planned transfer {transfer!r} left to send")
        if not (left_mb >= 0 and math.isfinite(left_mb)):
            raise JitEventError(f"transfer {transfer!r}: left_mb must not be negative, got {left_mb}")
        units = math.ceil(rational(left_mb) / rational(self.empty.unit_mb))
        slot = self.slot_of(at_s)
        if units:
            now = self.sending[transfer].at(slot)
            self.sending[transfer] = replace(now, units=units, runs=(), promise=None)
        else:
            del self.sending[transfer]
        self._waiting.append(at_s)
        self.now_s = at_s

    # Reading the plan

    def slot_of(self, at_s: float) -> int:
        """Return the first slot that begins at or after a time (with a tolerance of 1e-9 slots).

        Parameters
        ----------
        at_s
            Seconds from time 0.
        """
        return math.ceil(rational(at_s) / self.slot - Fraction(1, 10**9))

    def rates(self, at_s: float) -> dict[str, float]:
        """Return the rate in Mbit/s of every planned transfer that is sent at a time.

        Parameters
        ----------
        at_s
            Seconds from time 0; the rates of the slot with this time are returned.

        Returns
        -------
        dict
            Rate by ``job/transfer``; transfers without a rate in this slot are omitted.
        """
        slot = math.floor(rational(at_s) / self.slot + Fraction(1, 10**9))
        if slot == self._under_way[0]:
            return dict(self._under_way[1])
        mbps = self.empty.unit_mb * 8 / self.empty.slot_s
        return {
            name: rate * mbps
            for name, sending in self.sending.items()
            for begin, end, rate in sending.runs
            if begin <= slot < end
        }

    @property
    def next_step_s(self) -> float | None:
        """Time of the next step: the first transfer of a new job (or a change), or the next multiple of every_s."""
        if not self._waiting:
            return None
        first = max(min(self._waiting), self.now_s)
        if self.every_s is None:
            return first
        every = rational(self.every_s)
        return float(math.ceil(rational(first) / every) * every)

    # Deciding

    def step(self, at_s: float) -> JitStep:
        """Plan all unsent transfers from the next slot on.

        Parameters
        ----------
        at_s
            Seconds from time 0; finite, and not before the last event. The plan begins with the next slot (`slot_of`).

        Raises
        ------
        JitEventError
            The time lies before the last event.
        CertificateError
            The check of the plan failed (a defect of the program, never an input error).
        """
        self._check_time(at_s)
        started = time.perf_counter()
        slot = self.slot_of(at_s)
        rest = {name: unsent for name, s in self.sending.items() if (unsent := s.at(slot)).units}
        new = tuple(name for name, s in rest.items() if s.promise is None)
        before = {name: s.runs for name, s in rest.items()}
        status, certificate, solution = Status.OPTIMAL, None, None
        if rest:
            instance = rest_instance(self.empty, rest, slot, firm=self.keep_promises, name=f"rest {self._steps}")
            model = JitBandwidth(instance, share=1.0, load=self.load, windows="elastic")
            solution = model.solve(self.engine, **self.options)
            status, certificate = solution.status, solution.certificate
            if status.has_answer:
                rest = self._planned(rest, solution)
            else:  # nothing was found in time, so the older plan stays
                solution, status = None, Status.FEASIBLE
                rest = behind(self.empty, rest, slot)
                certificate = certified(instance, rest, slot, self.load)
        # A slot that has begun is sent as planned before; `sending` forgets it.
        begun = slot * self.slot > rational(at_s)
        self._under_way = (slot - 1, self.rates(at_s)) if begun else (-1, {})
        self.sending = rest
        self.now_s, self._steps = at_s, self._steps + 1
        self._waiting = [at for at in self._waiting if at > at_s]
        late = {name: s.promise - s.due for name, s in rest.items() if s.promise is not None and s.promise > s.due}
        changed = tuple(name for name, s in rest.items() if s.runs != before[name] and name not in new)
        seconds = time.perf_counter() - started
        return JitStep(at_s, slot, status, new, changed, late, certificate, solution, seconds)

    def _check_time(self, at_s: float) -> None:
        if not (at_s >= self.now_s and math.isfinite(at_s)):
            raise JitEventError(f"time runs forwards: {at_s} s comes before {self.now_s} s")

    def _planned(self, rest: dict[str, Sending], solution: JitSolution) -> dict[str, Sending]:
        """Return the remainder with the runs of a solution."""
        grid, runs = solution.grid, solution.segments
        found: dict[str, list[RunOfSlots]] = {grid.name(k): [] for k in range(grid.count)}
        names = list(found)
        table = (runs.item.tolist(), runs.begin.tolist(), runs.end.tolist(), runs.rate.tolist())
        for k, begin, end, rate in zip(*table, strict=True):
            found[names[k]].append((begin + grid.origin, end + grid.origin, rate))
        return {name: s.planned(tuple(found[name]), self.keep_promises) for name, s in rest.items()}
