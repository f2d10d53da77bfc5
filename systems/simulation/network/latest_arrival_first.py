"""Work-conserving policy that orders transfers by latest arrival times, jobs before copies, without a slot plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from flowlex.models.jit.latest_arrival import Rule, latest_arrival_times
from flowlex.systems.simulation.event_queue import SimulationError
from flowlex.systems.simulation.network.network_arrays import Grouping
from flowlex.systems.simulation.network.policy_view import NetworkState, Rates
from flowlex.systems.simulation.network.traffic_arrays import Traffic
from flowlex.systems.simulation.policy_registry import policy


@policy("network", "jit-early")
@dataclass(eq=False)
class LatestFirst:
    """Senders send first what a job needs first; jobs share fairly, and the shortest copy gets what they leave.

    A plan (`just_in_time`) delays a transfer until it is due, although early data delay no
    computation. Here latest arrival times only order the transfers of a job. Ports serve classes in order, each
    max-min fairly in the remaining capacity: the first transfer of each sender and job, the other transfers of jobs,
    then the copies one by one, the one with the least left to send first. Serving jobs first delays copies; ordering
    the copies saves more than that.
    """

    conserving: ClassVar[bool] = True
    grouping: ClassVar[Grouping] = "transfer"

    lat: Rule = "critical"  # of the latest arrival times, see `flowlex.models.jit.latest_arrival`
    inside: Literal["latest", "fair"] = "latest"  # as above, or ``fair``: all transfers of jobs share equally
    # ``shortest`` first, or ``fair``; with ``fair`` twice, jobs have strict priority and nothing else is changed
    copies: Literal["shortest", "fair"] = "shortest"

    def begin(self, traffic: Traffic, rng: np.random.Generator) -> None:
        """Order the transfers of every job; the order depends only on the job's graph."""
        if traffic.instance is None:
            raise SimulationError("the policy jit-early needs an instance of just-in-time bandwidth; use fair")
        latest = latest_arrival_times(traffic.instance, self.lat)
        order = np.lexsort((latest.rank, latest.use_s))
        self._rank = np.arange(traffic.count)
        self._rank[order] = np.arange(len(order))

    def decide(self, state: NetworkState) -> Rates:
        """Share the ports class by class."""
        traffic, there = state.traffic, state.transfers
        is_copy = traffic.copy[there]
        copies, classes = there[is_copy], [there[~is_copy]]
        if self.inside == "latest":
            first = np.isin(classes[0], state.first_of_senders(self._rank))
            classes = [classes[0][first], classes[0][~first]]
        if self.copies == "shortest":
            copies = copies[np.argsort(state.left_mb[copies], kind="stable")][:, None]
        classes += [*copies] if self.copies == "shortest" else [copies]
        taken, rates = np.zeros(2 * len(traffic.machines)), []
        for mine in classes:
            rates.append(state.fair_rates(mine, taken))
            np.add.at(taken, traffic.sender[mine], rates[-1])
            np.add.at(taken, traffic.receiver[mine] + len(traffic.machines), rates[-1])
        return Rates(np.concatenate(classes), np.concatenate(rates))
