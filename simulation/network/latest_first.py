"""Latest arrival times as an order: nothing is idle, jobs go before copies, and nothing is planned slot by slot."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from flowlex.models.jit.latest_arrival import Rule, latest_arrival_times
from flowlex.simulation.kernel import SimulationError
from flowlex.simulation.network.arrays import Grouping
from flowlex.simulation.network.state import NetworkState, Rates
from flowlex.simulation.network.traffic import Traffic
from flowlex.simulation.registry import policy

__all__ = ["LatestFirst"]


@policy("network", "jit-early")
class LatestFirst:
    """Of each job, every sender sends first what is needed first; jobs share fairly, copies take what jobs leave.

    A plan (`flowlex.simulation.network.just_in_time`) holds a transfer back until it is due, although a computation
    that gets its data early delays nobody. Here latest arrival times only order the transfers of a job. Ports serve
    three classes, each max-min fairly in what the one before leaves: the first transfer of each sender and job, the
    other transfers of jobs, copies.

    Parameters
    ----------
    lat
        Rule of the latest arrival times, see `flowlex.models.jit.latest_arrival`.
    """

    conserving: ClassVar[bool] = True
    grouping: ClassVar[Grouping] = "transfer"

    def __init__(self, lat: Rule = "critical") -> None:
        self.lat: Rule = lat

    def begin(self, traffic: Traffic, rng: np.random.Generator) -> None:
        """Order the transfers of every job; a job's order depends on nothing but its own graph."""
        if traffic.instance is None:
            raise SimulationError("the policy jit-early needs an instance of just-in-time bandwidth; use fair")
        latest = latest_arrival_times(traffic.instance, self.lat)
        jobs = len(latest.rank)
        order = np.lexsort((latest.rank, latest.use_s))
        self._rank = np.arange(traffic.count)
        self._rank[order] = np.arange(jobs)

    def decide(self, state: NetworkState) -> Rates:
        """Share the ports class by class."""
        traffic, there = state.traffic, state.transfers
        machines = len(traffic.machines)
        level = np.where(traffic.copy[there], 2, 1)
        level[np.isin(there, state.first_of_senders(self._rank)) & (level == 1)] = 0
        taken, rates = np.zeros(2 * machines), np.zeros(len(there))
        for k in range(3):
            mine = np.flatnonzero(level == k)
            rates[mine] = state.fair_rates(there[mine], taken)
            np.add.at(taken, traffic.sender[there[mine]], rates[mine])
            np.add.at(taken, traffic.receiver[there[mine]] + machines, rates[mine])
        return Rates(there, rates)
