"""Just-in-time bandwidth as a policy: the first share of every job is planned, the rest shares what is left fairly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from flowlex.instances.jit import JitInstance, Job, Transfer
from flowlex.models.jit.latest_arrival import Rule, latest_arrival_times
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.jit.transfer_slot_grid import Load, ShareOf
from flowlex.systems.scheduler.transfers.scheduler import JitScheduler
from flowlex.systems.simulation.decision_time import Each, EveryNth
from flowlex.systems.simulation.event_queue import SimulationError
from flowlex.systems.simulation.network.network_arrays import Grouping
from flowlex.systems.simulation.network.policy_view import NetworkState, Rates
from flowlex.systems.simulation.network.traffic_arrays import Floats, Traffic
from flowlex.systems.simulation.policy_registry import policy

Share = Annotated[float, Field(gt=0, le=1)]
#: First slot (from time 0) and end of a run of slots, and its rate in MB/s.
Segment = tuple[int, int, float]


@policy("network", "jit")
@dataclass(eq=False)
class JustInTime:
    """Planned transfers are sent exactly as planned; all others share the remaining capacity max-min fairly."""

    conserving: ClassVar[bool] = True
    grouping: ClassVar[Grouping] = "transfer"

    # share, share_of, load, lat: as for `JitBandwidth`
    share: Share = 0.4
    share_of: ShareOf = "transfers"
    load: Load = "pair"
    lat: Rule = "critical"
    # ``submitted``: the controller learns of a job when its first transfer is ready (`JitScheduler`), as in the paper.
    # ``all``: one plan for all jobs, with their arrivals known in advance.
    known: Literal["submitted", "all"] = "submitted"
    # whether later plans must keep arrival times promised by earlier ones; the paper replans without promises
    keep_promises: bool = False
    # plan at multiples of this many seconds; at every job's first transfer when not given
    every_s: Annotated[float, Field(gt=0)] | None = None
    certify: Each = 1  # prove every n-th plan from the data of what is left, the first among them; none when 0
    planned_mb: float = field(default=0.0, init=False)  # planned volume of the jobs, in MB
    # number of plans that failed their certificate and were not used
    refused: int = field(default=0, init=False)
    work: float = field(default=0.0, init=False)  # transfers planned in the last step, for decision times that count

    def __post_init__(self) -> None:
        self.turn = EveryNth(self.certify)

    def begin(self, traffic: Traffic, rng: np.random.Generator) -> None:
        """Create the controller, or the single plan."""
        instance = traffic.instance
        if instance is None:
            raise SimulationError(
                "the policy jit plans on an instance of just-in-time bandwidth; this traffic has none"
            )
        self._instance: JitInstance = instance
        self._latest = latest_arrival_times(instance, self.lat)
        self._number = {name: f for f, name in enumerate(instance.transfer_names)}
        self._seen: set[int] = set()
        self._refused_step = False
        self._runs: dict[int, list[Segment]] = {}
        self._now: tuple[float, Floats, float] = (-np.inf, np.zeros(0), -np.inf)
        if self.known == "all":
            model = JitBandwidth(instance, share=self.share, share_of=self.share_of, load=self.load, lat=self.lat)
            solution = model.solve(certify=next(self.turn))
            solution.require_answer()
            grid, runs = solution.grid, solution.segments
            begin, end = runs.begin + grid.origin, runs.end + grid.origin
            plan = zip(grid.transfer[runs.item], begin, end, runs.rate, strict=True)
            self._take((int(f), int(b), int(e), float(rate)) for f, b, e, rate in plan)
            self.planned_mb = float(traffic.size_mb[grid.transfer].sum())
        else:
            self._live = JitScheduler(
                instance.machines,
                slot_s=instance.slot_s,
                unit_mb=instance.unit_mb,
                share=self.share,
                share_of=self.share_of,
                load=self.load,
                lat=self.lat,
                keep_promises=self.keep_promises,
                every_s=self.every_s,
            )

    def _take(self, runs: Iterable[tuple[int, int, int, float]]) -> None:
        """Store a plan: runs of (transfer, first slot, end, units per slot)."""
        rate = self._instance.unit_mb / self._instance.slot_s
        self._runs = {}
        for f, begin, end, units in runs:
            if units:
                self._runs.setdefault(f, []).append((begin, end, units * rate))
        self._now = (-np.inf, np.zeros(0), -np.inf)

    def decide(self, state: NetworkState) -> Rates:
        """Submit new jobs, plan when it is time, and return the rates."""
        if self.known == "submitted":
            self._submit(state)
        plan, until = self._planned_rates(state)
        there = state.transfers
        planned = there[np.isfinite(plan[there])]
        rest = there[~np.isfinite(plan[there])]
        machines = len(state.traffic.machines)
        taken = np.zeros(2 * machines)
        np.add.at(taken, state.traffic.sender[planned], plan[planned])
        np.add.at(taken, state.traffic.receiver[planned] + machines, plan[planned])
        rates = np.concatenate([plan[planned], state.fair_rates(rest, taken)])
        return Rates(np.concatenate([planned, rest]), rates, planned, until)

    def _submit(self, state: NetworkState) -> None:
        traffic, live, now = state.traffic, self._live, state.now_s
        new = np.unique(traffic.coflow[state.arrived[~traffic.copy[state.arrived]]])
        for job in new.tolist():
            if job not in self._seen:
                self._seen.add(job)
                live.submit(self._from_now(job, state), now)
        due = live.next_step_s
        if due is not None and due <= now and (len(new) or not self._refused_step):
            live.options["certify"] = next(self.turn)
            self._report_left(state)
            try:
                step, self._refused_step = live.step(now), False
            except AssertionError:  # the certificate rejects the plan: keep the older one until the next job arrives
                self.refused, self._refused_step = self.refused + 1, True
                return
            self.work = float(len(live.sending))
            self.planned_mb += float(sum(traffic.size_mb[self._number[name]] for name in step.new))
            rows: list[tuple[int, int, int, float]] = [
                (self._number[n], *run) for n, sending in live.sending.items() for run in sending.runs
            ]
            slot, rate = live.slot_of(now), self._instance.unit_mb * 8 / self._instance.slot_s
            if slot * self._instance.slot_s > now:  # the current slot continues as planned
                rows += [(self._number[n], slot - 1, slot, mbps / rate) for n, mbps in live.rates(now).items()]
            self._take(rows)

    def _report_left(self, state: NetworkState) -> None:
        """Report to the controller the remainders of transfers that were not sent as planned.

        Transfers of a rejected plan share the remaining capacity instead. Data that a computation produces may be
        available later than planned.
        """
        live, now, left = self._live, state.now_s, state.left_mb
        unit, slot = self._instance.unit_mb, self._live.slot_of(state.now_s)
        rates = live.rates(now)
        for name, sending in list(live.sending.items()):
            f = self._number[name]
            slot_mb = rates.get(name, 0.0) * self._instance.slot_s / 8  # at most this much in the current slot
            planned = sending.at(slot).units * unit
            if left[f] <= planned - unit * (1 + 1e-9) or left[f] > planned + slot_mb * (1 + 1e-9) + 1e-9 * unit:
                live.report(name, float(left[f]), now)

    def _planned_rates(self, state: NetworkState) -> tuple[Floats, float]:
        """Return (F,) planned MB/s, NaN for other transfers, and the time until which they hold."""
        began, rates, until = self._now
        if began <= state.now_s < until:
            return rates, until
        slot_s = self._instance.slot_s
        slot = int(np.floor(state.now_s / slot_s + 1e-9))
        rates = np.full(state.traffic.count, np.nan)
        following = np.inf
        for f, runs in self._runs.items():
            for begin, end, rate in runs:
                if end > slot:
                    rates[f] = rate if begin <= slot else (rates[f] if rates[f] > 0 else 0.0)
                    following = min(following, begin if begin > slot else end)
        until = max(following * slot_s, np.nextafter(state.now_s, np.inf))
        if self.known == "submitted" and self._live.next_step_s is not None and not self._refused_step:
            until = min(until, self._live.next_step_s)
        self._now = (state.now_s, rates, until)
        return rates, until

    def _from_now(self, number: int, state: NetworkState) -> Job:
        """Return the job with times relative to now instead of its arrival.

        A computation that produces data may have begun, so its transfers keep the times of the complete job.
        """
        job, latest = self._instance.jobs[number], self._latest
        first = self._number[f"{job.name}/{job.transfers[0].name}"]
        gone = max(state.now_s - job.arrival_s, 0.0)

        def shifted(f: int, transfer: Transfer) -> Transfer:
            ready, due = transfer.ready_s, transfer.deadline_s
            if transfer.made_by is not None:
                ready, due = float(latest.ready_s[f]), float(latest.offset_s[f])
            ready = max(ready - gone, 0.0)
            due = None if due is None else max(due - gone, ready + 1e-9)
            return transfer.model_copy(update={"ready_s": ready, "deadline_s": due, "made_by": None})

        return job.model_copy(update={"transfers": tuple(shifted(first + k, t) for k, t in enumerate(job.transfers))})
