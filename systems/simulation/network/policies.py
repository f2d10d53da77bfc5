"""The policies of the literature, each in a few lines with methods of `NetworkState`.

Sources: Varys (SIGCOMM 2014) for FIFO and SEBF with MADD, Aalo (SIGCOMM 2015) for D-CLAS, Sincronia (SIGCOMM 2018),
TicTac (MLSys 2019); TensorFlow as the just-in-time paper describes it (docs/papers/jit-bandwidth.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from flowlex.systems.simulation.network.coflow_orders import bottleneck_select_scale_iterate, needs_of_job, tac, tic
from flowlex.systems.simulation.network.network_arrays import Grouping
from flowlex.systems.simulation.network.policy_view import Instruction, NetworkState, Rates
from flowlex.systems.simulation.network.traffic_arrays import Ints, Traffic
from flowlex.systems.simulation.policy_registry import policy

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Factor = Annotated[float, Field(gt=1, allow_inf_nan=False)]
Queues = Annotated[int, Field(ge=1, le=64)]


@policy("network", "fair")
class Fair:
    """Max-min fair rates for all transfers."""

    conserving: ClassVar[bool] = True
    max_min: ClassVar[bool] = True
    grouping: ClassVar[Grouping] = "pair"

    def decide(self, state: NetworkState) -> Instruction:
        """Share all ports fairly."""
        return state.fair()


@policy("network", "fifo")
class Fifo:
    """Coflows by arrival, each paced by its bottleneck (MADD); remaining capacity is backfilled in order."""

    conserving: ClassVar[bool] = True

    def decide(self, state: NetworkState) -> Instruction:
        """First come, first served."""
        return state.in_order(_by_arrival(state), "madd")


@policy("network", "sebf")
class Sebf:
    """Smallest effective bottleneck first, with MADD; remaining bottlenecks are re-evaluated when a transfer ends."""

    conserving: ClassVar[bool] = True

    def decide(self, state: NetworkState) -> Instruction:
        """The shortest first; ties by arrival."""
        return state.in_order(_by_arrival(state), "bottleneck")


@policy("network", "d-clas")
class Aalo:
    """Discretised coflow-aware least attained service: sizes unknown, priority by what has been sent.

    Parameters
    ----------
    first_mb, factor, queues
        The first queue holds coflows that have sent less than ``first_mb``; each next limit is ``factor`` times larger.
        Queues have strict priority and are first come, first served; transfers of a coflow share max-min fairly.
    """

    conserving: ClassVar[bool] = True

    def __init__(self, first_mb: Positive = 10.0, factor: Factor = 10.0, queues: Queues = 10) -> None:
        self.limits = first_mb * factor ** np.arange(queues - 1)

    def begin(self, traffic: Traffic, rng: np.random.Generator) -> None:
        """Initialise the volumes of the coflows."""
        self._size = np.zeros(len(traffic.coflow_names))

    def decide(self, state: NetworkState) -> Instruction:
        """Serve by queue, then by arrival; ask again when a coflow moves to the next queue."""
        np.add.at(self._size, state.traffic.coflow[state.arrived], state.traffic.size_mb[state.arrived])
        coflows = _by_arrival(state)
        back = np.argsort(np.argsort(coflows))
        left = state.coflow_left_mb[back]
        sent = self._size[coflows] - left
        # The remainder is a sum over ports: for a large coflow its error may exceed a billionth of a small limit.
        queue = np.searchsorted(self.limits * (1 - 1e-9), sent + 1e-9 * self._size[coflows], side="right")
        bounds = np.append(self.limits, np.inf)[queue]
        order = np.argsort(queue, kind="stable")
        stop = np.where(np.isfinite(bounds), self._size[coflows] - bounds, -np.inf)
        return state.in_order(coflows[order], "fair", stop_at_left_mb=np.where(stop > 0, stop, np.inf)[order])


@policy("network", "sincronia")
class Sincronia:
    """Bottleneck-select-scale-iterate order, recomputed at every arrival; transfers take their ports' free capacity."""

    conserving: ClassVar[bool] = True

    def decide(self, state: NetworkState) -> Instruction:
        """Keep the order until the next arrival."""
        coflows = state.coflows
        if len(state.arrived):
            self._order = coflows[bottleneck_select_scale_iterate(state.load_s)]
        return state.in_order(self._order[np.isin(self._order, coflows)], "greedy")


@policy("network", "tensorflow")
class TensorFlow:
    """A ready transfer starts; a sender sends several transfers of one job one by one, in random order.

    Links are shared fairly. The policy ``fair`` sends all ready transfers at once.
    """

    grouping: ClassVar[Grouping] = "transfer"

    def begin(self, traffic: Traffic, rng: np.random.Generator) -> None:
        """Draw the order."""
        self._rank = rng.permutation(traffic.count)

    def decide(self, state: NetworkState) -> Rates:
        """Send the first transfer of each sender and job."""
        return _first_of_senders(state, self._rank)


@policy("network", "tictac")
@dataclass(eq=False)
class TicTac:
    """Transfers in the order in which the job's computations need them."""

    # ``tac``: with the times of computations and transfers; ``tic``: from the DAG alone
    rule: Literal["tac", "tic"] = "tac"
    # ``fifo``: jobs by arrival, each transfer takes the free capacity of its ports. ``fair``: a sender has one active
    # transfer per job, and jobs share the links fairly.
    between: Literal["fifo", "fair"] = "fifo"
    # with ``between="fifo"``, file copies are served by arrival (``fifo``) or after all jobs (``behind``)
    copies: Literal["fifo", "behind"] = "behind"

    def __post_init__(self) -> None:
        self.conserving: bool = self.between == "fifo"
        self.grouping: Grouping = "coflow" if self.conserving else "transfer"

    def begin(self, traffic: Traffic, rng: np.random.Generator) -> None:
        """Order the transfers of every job, then all of them."""
        inside = np.zeros(traffic.count, np.int64)
        fastest = np.minimum(traffic.out_rate[traffic.sender], traffic.in_rate[traffic.receiver])
        times = traffic.size_mb / fastest
        for job in range(traffic.jobs):
            transfers, needs = needs_of_job(traffic, job)
            if len(transfers):
                order = tic(needs) if self.rule == "tic" else tac(needs, tuple(times[transfers].tolist()))
                inside[transfers[np.asarray(order)]] = np.arange(len(transfers))
        arrival = traffic.coflow_arrival_s[traffic.coflow]
        last = traffic.copy if self.copies == "behind" else np.zeros(traffic.count, np.bool_)
        order = np.lexsort((inside, traffic.coflow, arrival, last))
        self._rank = np.empty(traffic.count, np.int64)
        self._rank[order] = np.arange(traffic.count)
        self._of_coflow = np.full(len(traffic.coflow_names), traffic.count)
        np.minimum.at(self._of_coflow, traffic.coflow, self._rank)

    def decide(self, state: NetworkState) -> Instruction | Rates:
        """Serve in order, or send the first transfer of each sender and job."""
        if self.between == "fair":
            return _first_of_senders(state, self._rank)
        coflows = state.coflows
        return state.in_order(coflows[np.argsort(self._of_coflow[coflows])], "greedy", inside=self._rank)


def _by_arrival(state: NetworkState) -> Ints:
    coflows = state.coflows
    return coflows[np.argsort(state.traffic.coflow_arrival_s[coflows], kind="stable")]


def _first_of_senders(state: NetworkState, rank: Ints) -> Rates:
    """Return fair rates for the first transfer of every sender in every coflow; the others wait."""
    chosen = state.first_of_senders(rank)
    return Rates(chosen, state.fair_rates(chosen))
