"""A network over time: arrivals and computations are events, transfers are fluid, a policy shares the ports."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from flowlex.systems.simulation.decision_time import ask
from flowlex.systems.simulation.event_queue import Kernel, SimulationError
from flowlex.systems.simulation.network.checked_answers import Carried
from flowlex.systems.simulation.network.fluid_loop import ASK, STUCK, run_until_asked
from flowlex.systems.simulation.network.job_computations import Computations
from flowlex.systems.simulation.network.network_arrays import (
    BIN,
    ENDED,
    EVENTS,
    NOW,
    OFFENDER,
    PAIRS,
    Net,
    add,
    make_net,
)
from flowlex.systems.simulation.network.policy_view import NetworkPolicy, NetworkState
from flowlex.systems.simulation.network.rate_checks import FULL, IDLE, RATE
from flowlex.systems.simulation.network.traffic_arrays import Floats, Ints, Traffic
from flowlex.systems.simulation.policy_registry import Run
from flowlex.systems.simulation.random_streams import Streams

_NOBODY, _NO_MARKS = np.zeros(0, np.int64), np.zeros(0)
#: Most decisions within this time (s) while nothing ends; a policy that exceeds them would never stop.
_MOST_IDLE, _HARDLY_S = 100_000, 1e-3


@dataclass(eq=False)
class NetworkRun:
    """Result of a run. F transfers, N computations, M machines."""

    traffic: Traffic
    # begin_s, end_s: (F,) start and end of sending; NaN if after the horizon
    begin_s: Floats
    end_s: Floats
    # start_s, done_s: (N,) start and end of computations
    start_s: Floats
    done_s: Floats
    # (bins, 2, 2M) MB carried by each port (first out of, then into every machine) per bin of ``bin_s`` seconds, for
    # jobs and for copies
    sent_mb: Floats = field(repr=False)
    bin_s: float
    now_s: float
    # events, questions: number of steps of the fluid model (such as ends of transfers); number of calls of the policy
    events: int
    questions: int


def simulate_traffic(
    traffic: Traffic, policy: NetworkPolicy, run: Run | None = None, *, bin_s: float = 0.1
) -> NetworkRun:
    """Simulate all transfers under a policy.

    Parameters
    ----------
    run
        Seed, horizon and decision time; by default those of `Run`.
    bin_s
        Initial width of the bins of port loads; it doubles when they no longer cover the time.

    Raises
    ------
    SimulationError
        The policy's answer is infeasible or breaks its promise; the error names time and event.
    """
    return _Running(traffic, policy, run or Run(), bin_s).go()


class _Running:
    """The state of one run."""

    def __init__(self, traffic: Traffic, policy: NetworkPolicy, run: Run, bin_s: float) -> None:
        if not isinstance(policy, NetworkPolicy):
            raise SimulationError(f"{policy!r} is no policy of the network: it has no method decide(state)")
        if not (bin_s > 0 and math.isfinite(bin_s)):
            raise SimulationError(f"bin_s must be positive and finite, got {bin_s}")
        self.traffic, self.policy, self.run = traffic, policy, run
        self.kernel = Kernel()
        self.net: Net = make_net(traffic, getattr(policy, "grouping", "coflow"), bin_s)
        self.state = NetworkState(traffic, self.net)
        self.computations = Computations(traffic, self.kernel, self.net.missing, self._arrive)
        self.groups: Ints = _NOBODY
        self.new: list[Ints] = []  # groups of transfers released since the last refresh
        self.answer = Carried.nothing(traffic.count)
        self.event, self.ask_again, self.thinking, self.late = "the start", False, False, False
        self.questions = self.idle = 0
        self.still_since_s = 0.0
        if hasattr(policy, "begin"):
            policy.begin(traffic, Streams(run.seed).of("policy"))

    def _arrive(self, transfers: Ints) -> None:
        """Release transfers."""
        add(self.net, transfers)
        self.new.append(self.net.group[transfers])
        self.state.arrived = np.concatenate([self.state.arrived, transfers])
        self.event, self.ask_again = f"transfer {self.traffic.transfer_names[int(transfers[0])]!r} may be sent", True

    def go(self) -> NetworkRun:
        """Alternate between events and the fluid until nothing is left or the horizon is reached."""
        horizon = math.inf if self.run.horizon_s is None else self.run.horizon_s
        net, kernel = self.net, self.kernel
        while net.clock[NOW] < horizon:
            if kernel.next_s() <= net.clock[NOW]:
                kernel.step()
                continue
            self._refresh()
            if len(self.groups):
                self._consult()
            until = min(kernel.next_s(), horizon)
            if len(self.groups):
                self._flow(until if self.thinking else min(until, self.answer.until_s))
            elif math.isinf(until):
                break
            else:
                net.clock[NOW] = until
        return self._result()

    def _refresh(self) -> None:
        """Update the groups with active transfers."""
        if self.new:
            self.groups = np.union1d(self.groups, np.concatenate(self.new))
            self.new = []
        alive = self.net.alive[self.groups] > 0
        if not alive.all():
            self.groups = self.groups[alive]
        self.state.coflows = self.groups

    def _consult(self) -> None:
        """Ask the policy if there are new events; its answer applies after the decision time."""
        if self.thinking or not (self.ask_again or self.net.clock[NOW] >= self.answer.until_s):
            return
        asked, thought = ask(self.run.decision, self._ask, lambda: getattr(self.policy, "work", None))
        self.ask_again, self.state.arrived = False, _NOBODY
        self.questions += 1
        if thought <= 0:
            self._adopt(asked[0])
        else:
            self.thinking = True
            self.kernel.at(float(self.net.clock[NOW]) + thought, lambda: self._adopt(asked[0]))

    def _ask(self) -> list[Carried]:
        now = float(self.net.clock[NOW])
        try:
            answer = self.policy.decide(self.state)
        except Exception as error:
            error.add_note(f"the policy was asked at {now:g} s, {self.event}")
            raise
        return [Carried.checked(answer, self.traffic, self.net, self.groups, now, self._refuse)]

    def _adopt(self, answer: Carried) -> None:
        self.answer, self.late, self.thinking = answer, self.thinking, False

    def _flow(self, until: float) -> None:
        """Advance the fluid; reject infeasible answers."""
        net, answer = self.net, self.answer
        order = answer.take(net)
        on_time = not (self.thinking or self.late)
        marks = _NO_MARKS if self.thinking else answer.marks  # the policy is deciding already
        code = run_until_asked(
            net,
            answer.kind,
            order,
            self.groups,
            until,
            marks,
            answer.held,
            on_time and getattr(self.policy, "conserving", False),
            on_time and getattr(self.policy, "max_min", False),
        )
        if code == STUCK:
            self._refuse(f"nothing is sent and nothing will happen, but {self._waiting()}")
        if code != ASK:
            self._refuse(self._wrong(code))
        if net.numbers[ENDED]:
            last = int(net.ended[net.numbers[ENDED] - 1])
            self.event, self.ask_again = f"transfer {self.traffic.transfer_names[last]!r} has arrived", True
            self.computations.data_arrived(self.traffic.feeds[net.ended[: net.numbers[ENDED]]], float(net.clock[NOW]))
        elif len(marks):
            self.ask_again = True
        self.idle += 1
        if net.numbers[ENDED] or net.clock[NOW] > self.still_since_s + _HARDLY_S:
            self.idle, self.still_since_s = 0, float(net.clock[NOW])
        if self.idle > _MOST_IDLE:
            reason = f"the policy was asked {self.idle} times within {_HARDLY_S:g} s"
            self._refuse(f"time stands still: {reason}; {self._waiting()}")

    def _waiting(self) -> str:
        waiting = self.state.transfers
        return f"{len(waiting)} transfers wait, {self.traffic.transfer_names[int(waiting[0])]!r} among them"

    def _refuse(self, reason: str) -> NoReturn:
        name = type(self.policy).__name__
        raise SimulationError(f"policy {name}: {reason}", at_s=float(self.net.clock[NOW]), event=self.event)

    def _wrong(self, code: int) -> str:
        """Describe a failed check."""
        traffic, net = self.traffic, self.net
        offender = int(net.numbers[OFFENDER])
        if code == FULL:
            machines = len(traffic.machines)
            side, name = "out of" if offender < machines else "into", traffic.machines[offender % machines]
            load, most = float(net.used[:, offender].sum()), float(net.rate_of_port[offender])
            return f"{load:.9g} MB/s {side} machine {name!r}, whose port carries {most:.9g}; give less"
        if code == RATE:
            which = net.row[net.start[net.first[offender]]] if net.numbers[PAIRS] else offender
            return f"the rate of transfer {traffic.transfer_names[int(which)]!r} is no positive number"
        transfer = traffic.transfer_names[offender]
        if code == IDLE:
            return f"it promises to leave nothing idle, but transfer {transfer!r} has room at both its ports"
        return f"it promises max-min fair rates, but {transfer!r} has the largest rate at no full port"

    def _result(self) -> NetworkRun:
        net, computations = self.net, self.computations
        horizon = math.inf if self.run.horizon_s is None else self.run.horizon_s
        last = np.nanmax(computations.done_s, initial=float(net.clock[NOW]))
        net.clock[NOW] = min(last, horizon)
        computations.stop(float(net.clock[NOW]))
        width = float(net.clock[BIN])
        used = max(math.ceil(net.clock[NOW] / width - 1e-9), 0)
        return NetworkRun(
            traffic=self.traffic,
            begin_s=net.begin,
            end_s=net.end,
            start_s=computations.start_s,
            done_s=computations.done_s,
            sent_mb=net.bins[:used],
            bin_s=width,
            now_s=float(net.clock[NOW]),
            events=int(net.numbers[EVENTS]),
            questions=self.questions,
        )
