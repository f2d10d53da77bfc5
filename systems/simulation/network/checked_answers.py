"""Check of a policy's answer before it is applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from flowlex.systems.simulation.network.fluid_loop import RATES, set_rates
from flowlex.systems.simulation.network.network_arrays import PAIRS, Net
from flowlex.systems.simulation.network.policy_view import Instruction, Rates
from flowlex.systems.simulation.network.traffic_arrays import Floats, Ints, Traffic

_NOBODY = np.zeros(0, np.int64)
_NOTHING = np.zeros(0)
Refuse = Callable[[str], NoReturn]


@dataclass(frozen=True, eq=False)
class Carried:
    """A checked answer that the loop applies: an instruction or rates, and the transfers held back on purpose."""

    kind: int
    order: Ints
    marks: Floats
    transfers: Ints
    rates: Floats
    held: NDArray[np.bool_]
    until_s: float = np.inf

    @classmethod
    def nothing(cls, count: int) -> Carried:
        """Return the answer before the first decision: nothing is sent."""
        return cls(RATES, _NOBODY, _NOTHING, _NOBODY, _NOTHING, np.zeros(count, np.bool_))

    @classmethod
    def checked(cls, answer: Any, traffic: Traffic, net: Net, groups: Ints, now_s: float, refuse: Refuse) -> Carried:
        """Check an answer; ``refuse(reason)`` raises if it is invalid."""
        nothing = cls.nothing(traffic.count)
        if isinstance(answer, Instruction):
            _refuse_instruction(answer, groups, refuse)
            if not np.array_equal(np.sort(answer.order), groups):
                refuse(_disorder(answer.order, groups))
            _refuse_early(answer.until_s, now_s, refuse)
            return cls(answer.kind, answer.order, answer.marks, _NOBODY, _NOTHING, nothing.held, answer.until_s)
        if not isinstance(answer, Rates):
            refuse(f"it answered {answer!r:.80}; answer Rates or an instruction like state.in_order(...)")
        if net.numbers[PAIRS]:
            refuse("it answered Rates, but its grouping is 'pair', which serves only state.fair()")
        transfers, rates = _numbers(answer, refuse)
        _refuse_transfers(transfers, rates, traffic, net, refuse)
        _refuse_early(answer.until_s, now_s, refuse)
        held, back = nothing.held.copy(), np.asarray(answer.held)
        if back.size and not (np.issubdtype(back.dtype, np.integer) and 0 <= back.min() <= back.max() < traffic.count):
            refuse(f"it holds back {back.tolist()!r:.80}; there are {traffic.count} transfers, numbered from 0")
        held[back.astype(np.int64)] = True
        return cls(RATES, _NOBODY, _NOTHING, transfers, rates, held, float(answer.until_s))

    def take(self, net: Net) -> Ints:
        """Set the rates of the active transfers; return the groups to serve in order."""
        if self.kind == RATES:
            there = net.place[self.transfers] >= 0
            set_rates(net, self.transfers[there], self.rates[there])
        return np.asarray(self.order[net.alive[self.order] > 0])


def _refuse_instruction(answer: Instruction, groups: Ints, refuse: Refuse) -> None:
    """Refuse marks that are no numbers."""
    if len(answer.marks) and np.isnan(answer.marks[groups]).any():
        refuse(f"it marks coflow {int(groups[np.isnan(answer.marks[groups])][0])} with nan; give a number, or infinity")


def _refuse_early(until_s: float, now_s: float, refuse: Refuse) -> None:
    if not until_s > now_s:
        refuse(f"it wants to be asked again at {until_s} s, which is not later")


def _numbers(answer: Rates, refuse: Refuse) -> tuple[Ints, Floats]:
    transfers, rates = np.asarray(answer.transfers), np.asarray(answer.mb_per_s, dtype=np.float64)
    if transfers.size and not np.issubdtype(transfers.dtype, np.integer):
        refuse(f"transfers are integers, it answered {transfers.dtype}")
    if transfers.shape != rates.shape or transfers.ndim != 1:
        refuse(f"it answered {transfers.size} transfers and {rates.size} rates; give each transfer one rate")
    return transfers.astype(np.int64), rates


def _refuse_transfers(transfers: Ints, rates: Floats, traffic: Traffic, net: Net, refuse: Refuse) -> None:
    """Refuse the first transfer that cannot have the rate it is given."""
    unknown = (transfers < 0) | (transfers >= traffic.count)
    if unknown.any():
        refuse(f"it gave a rate to transfer {transfers[unknown][0]}; there are {traffic.count}, numbered from 0")
    absent = transfers[net.place[transfers] < 0]
    if len(absent):
        when = "has already arrived" if net.end[absent[0]] == net.end[absent[0]] else "may not be sent yet"
        refuse(f"it gave a rate to transfer {traffic.transfer_names[int(absent[0])]!r}, which {when}")
    wrong = np.flatnonzero(~((rates >= 0) & (rates < np.inf)))
    if len(wrong):
        name, rate = traffic.transfer_names[int(transfers[wrong[0]])], float(rates[wrong[0]])
        refuse(f"it gave transfer {name!r} the rate {rate}; rates are finite, at least 0")
    numbers, times = np.unique(transfers, return_counts=True)
    if (times > 1).any():
        refuse(f"it gave transfer {traffic.transfer_names[int(numbers[times > 1][0])]!r} two rates")


def _disorder(order: Ints, groups: Ints) -> str:
    """Describe the first error of an order."""
    numbers, times = np.unique(order, return_counts=True)
    if (times > 1).any():
        return f"its order has {int(numbers[times > 1][0])} twice"
    unknown = np.setdiff1d(order, groups)
    if len(unknown):
        return f"its order has {int(unknown[0])}, which has nothing to send; order all of state.coflows"
    return f"its order leaves out {int(np.setdiff1d(groups, order)[0])}; order all of state.coflows"
