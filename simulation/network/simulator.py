"""A network over time: arrivals and computations are events, transfers are fluid, a policy shares the ports."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from flowlex.simulation.decision_time import ask
from flowlex.simulation.event_queue import Kernel, SimulationError
from flowlex.simulation.network.checked_answers import Carried
from flowlex.simulation.network.fluid_loop import ASK, STUCK, run_until_asked
from flowlex.simulation.network.job_computations import Computations
from flowlex.simulation.network.network_arrays import BIN, ENDED, EVENTS, NOW, OFFENDER, PAIRS, Net, add, make_net
from flowlex.simulation.network.policy_view import NetworkPolicy, NetworkState
from flowlex.simulation.network.rate_checks import FULL, IDLE, RATE
from flowlex.simulation.network.traffic_arrays import Floats, Ints, Traffic
from flowlex.simulation.policy_registry import Run
from flowlex.simulation.random_streams import Streams

__all__ = ["NetworkRun", "simulate_traffic"]

_NOBODY, _NO_MARKS = np.zeros(0, np.int64), np.zeros(0)
#: A policy that is asked so often in hardly any time, while nothing ends, will not stop by itself.
_MOST_IDLE, _HARDLY_S = 100_000, 1e-3


@dataclass(eq=False)
class NetworkRun:
    """What happened. F transfers, N computations, M machines."""

    traffic: Traffic
    # begin_s, end_s: (F,) first and last moment of sending; NaN where the horizon came first
    begin_s: Floats
    end_s: Floats
    # start_s, done_s: (N,) of computations
    start_s: Floats
    done_s: Floats
    # (bins, 2, 2M) what each port (out of every machine, then into) carried in every ``bin_s`` seconds, for jobs and
    # for copies
    sent_mb: Floats = field(repr=False)
    bin_s: float
    now_s: float
    # events, questions: Ends of transfers and other steps of the fluid; times the policy was asked
    events: int
    questions: int


def simulate_traffic(
    traffic: Traffic, policy: NetworkPolicy, run: Run | None = None, *, bin_s: float = 0.1
) -> NetworkRun:
    """Send everything under a policy.

    Parameters
    ----------
    run
        Seed, horizon and decision time; all at their defaults when not given.
    bin_s
        Width of the bins of port loads to start with; it doubles when they no longer cover the time.

    Raises
    ------
    SimulationError
        The policy answers what is impossible, or breaks its promise: named with time and event.
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
        self.new: list[Ints] = []  # groups of what has come since they were listed
        self.answer = Carried.nothing(traffic.count)
        self.event, self.ask_again, self.thinking, self.late = "the start", False, False, False
        self.questions = self.idle = 0
        self.still_since_s = 0.0
        if hasattr(policy, "begin"):
            policy.begin(traffic, Streams(run.seed).of("policy"))

    def _arrive(self, transfers: Ints) -> None:
        """Transfers may be sent."""
        add(self.net, transfers)
        self.new.append(self.net.group[transfers])
        self.state.arrived = np.concatenate([self.state.arrived, transfers])
        self.event, self.ask_again = f"transfer {self.traffic.transfer_names[int(transfers[0])]!r} may be sent", True

    def go(self) -> NetworkRun:
        """Alternate between events and the fluid until nothing is left or time is up."""
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
        """Which groups have something to send."""
        if self.new:
            self.groups = np.union1d(self.groups, np.concatenate(self.new))
            self.new = []
        alive = self.net.alive[self.groups] > 0
        if not alive.all():
            self.groups = self.groups[alive]
        self.state.coflows = self.groups

    def _consult(self) -> None:
        """Ask the policy if there is news; its answer holds when it has done thinking."""
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
        """Let the fluid run; refuse what is impossible."""
        net, answer = self.net, self.answer
        order = answer.take(net)
        on_time = not (self.thinking or self.late)
        marks = _NO_MARKS if self.thinking else answer.marks  # it is being asked already
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
        """A failed check in words."""
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
