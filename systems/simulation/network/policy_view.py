"""The state that a policy sees, and the answers that it may return.

A policy is any object with ``decide(state)``. It returns `Rates` (which hold until the next event) or an `Instruction`
such as ``state.fair()`` or ``state.in_order(coflows)``, which is applied again whenever a transfer ends until something
happens that the policy must see. Optional attributes of a policy:

``conserving`` (default False)
    It promises to be work-conserving, except for transfers held back on purpose. Checked at every event.
``max_min`` (default False)
    It promises max-min fair rates. Checked at every event.
``grouping`` (default ``coflow``)
    What ``in_order`` orders: coflows, or single transfers; ``pair`` makes ``fair()`` fast and allows only that.
``begin(traffic, rng)``
    Called once, with a random generator of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from flowlex.systems.simulation.max_min import max_min_rates
from flowlex.systems.simulation.network.fluid_loop import FAIR, GREEDY, LISTED, MADD, SEBF, SPLIT, bottlenecks
from flowlex.systems.simulation.network.network_arrays import NOW, PAIRS, Net
from flowlex.systems.simulation.network.traffic_arrays import Floats, Ints, Traffic


@dataclass(frozen=True, eq=False)
class Rates:
    """Rates of transfers in MB/s until the next event; those not named send nothing.

    Attributes
    ----------
    transfers, mb_per_s
        (n,) numbers of transfers that may be sent now, and their rates.
    held
        Transfers held back on purpose; the promise to be work-conserving does not cover them.
    until_s
        Latest time at which to ask again.
    """

    transfers: ArrayLike
    mb_per_s: ArrayLike
    held: ArrayLike = ()
    until_s: float = np.inf


@dataclass(frozen=True, eq=False)
class Instruction:
    """A standing rule for the compiled loop; made by `NetworkState`."""

    kind: int
    order: Ints
    marks: Floats
    until_s: float = np.inf


Answer: TypeAlias = Rates | Instruction


@runtime_checkable
class NetworkPolicy(Protocol):
    """A policy that shares the ports."""

    def decide(self, state: NetworkState) -> Answer:
        """Answer for the present state."""
        ...


class NetworkState:
    """The network at one moment. Arrays are created on access; changing them has no effect.

    Attributes
    ----------
    traffic
        All transfers of the run; `transfers` lists those that may be sent now.
    arrived
        Numbers of the transfers released since the last decision.
    coflows
        Numbers of the groups (coflows, unless ``grouping`` says otherwise) with transfers to send, ascending.
    """

    def __init__(self, traffic: Traffic, net: Net) -> None:
        self.traffic = traffic
        self.arrived: Ints = np.zeros(0, np.int64)
        self.coflows: Ints = np.zeros(0, np.int64)
        self._net = net
        self._inside: Ints | None = None

    @property
    def now_s(self) -> float:
        """Simulated seconds."""
        return float(self._net.clock[NOW])

    @property
    def transfers(self) -> Ints:
        """Numbers of the transfers that may be sent now."""
        return np.flatnonzero(self._net.place >= 0)

    @property
    def left_mb(self) -> Floats:
        """(F,) remaining MB of each transfer; 0 after its end, its size before it starts."""
        net = self._net
        on_way = net.place >= 0
        pairs = net.numbers[PAIRS]
        left = net.left - net.served[net.group] if pairs else net.left * net.scale[net.group]
        return np.where(on_way, np.maximum(left, 0.0), np.where(np.isnan(net.end), net.size, 0.0))

    @property
    def load_s(self) -> Floats:
        """(coflows, 2M) seconds that each of the `coflows` still needs at each port, sending ports first."""
        net, ports = self._net, len(self._net.rate_of_port)
        if net.numbers[PAIRS]:
            raise TypeError("pairs keep no loads by port; give the policy another grouping")
        rows = [np.arange(net.first[g], net.first[g + 1]) for g in self.coflows]
        load = np.zeros((len(rows), ports))
        for k, entries in enumerate(rows):
            load[k, net.port[entries]] = net.load[entries] * net.scale[self.coflows[k]]
        return np.asarray(load / net.rate_of_port)

    @property
    def bottleneck_s(self) -> Floats:
        """(coflows,) seconds that each of the `coflows` still needs alone."""
        return np.asarray(bottlenecks(self._net, self.coflows))

    @property
    def coflow_left_mb(self) -> Floats:
        """(coflows,) remaining MB of each of the `coflows` in transfers that may be sent now."""
        net = self._net
        return np.array([net.scale[g] * net.load[net.first[g] : net.split[g]].sum() for g in self.coflows])

    def fair(self) -> Instruction:
        """Share all ports max-min fairly among all transfers."""
        if not self._net.numbers[PAIRS]:
            raise TypeError("fair() serves pairs of machines; set grouping = 'pair' in the policy")
        return Instruction(FAIR, self.coflows, np.zeros(0))

    def in_order(
        self,
        coflows: Sequence[int] | Ints,
        share: str = "greedy",
        *,
        stop_at_left_mb: ArrayLike | None = None,
        inside: Ints | None = None,
    ) -> Instruction:
        """Serve coflows strictly in order, each in the capacity that those before it leave.

        Parameters
        ----------
        coflows
            All of `coflows`, first served first.
        share
            ``greedy``: every transfer takes the free capacity of its ports. ``madd``: transfers of a coflow get the
            least rates that end together, then the rest is filled greedily in order. ``bottleneck``: the same, in
            order of the remaining bottleneck instead of the given order. ``fair``: max-min fair inside a coflow.
        stop_at_left_mb
            (coflows,) ask again when the remainder of a coflow falls to this.
        inside
            (F,) rank of every transfer inside its coflow, for ``greedy``: the smallest is served first. Without it,
            transfers are served by sending port.
        """
        kinds = {"greedy": GREEDY, "madd": MADD, "bottleneck": SEBF, "fair": SPLIT}
        if share not in kinds:
            raise ValueError(f"share must be one of {', '.join(kinds)}, got {share!r}")
        kind = kinds[share]
        if inside is not None:
            if kind != GREEDY:
                raise ValueError(f"inside ranks the transfers for 'greedy'; {share!r} has no use for it")
            if len(inside) != self.traffic.count:
                raise ValueError(f"inside has {len(inside)} ranks; there are {self.traffic.count} transfers")
            self._list(inside)
            kind = LISTED
        order = _whole(coflows)
        marks = np.zeros(0) if stop_at_left_mb is None else self._marks(order, stop_at_left_mb, "stop_at_left_mb")
        return Instruction(kind, order, marks)

    def _marks(self, order: Ints, values: ArrayLike, what: str) -> Floats:
        """Return (G,) the number of each coflow of an order, infinity for others; other checks come later."""
        given, marks = np.asarray(values, dtype=np.float64), np.full(len(self._net.alive), np.inf)
        if given.shape != order.shape:
            raise ValueError(f"{what} has the shape {given.shape}, coflows {order.shape}; give each coflow one number")
        known = (order >= 0) & (order < len(marks))
        marks[order[known]] = given[known]
        return marks

    def _list(self, inside: Ints) -> None:
        """List the transfers of every group by rank; the same array is processed once."""
        if self._inside is inside:
            return
        net = self._net
        net.listed[:] = np.lexsort((inside, net.group))
        ends = np.cumsum(np.bincount(net.group, minlength=len(net.alive)))
        net.span[:, 0], net.span[:, 1] = np.append(0, ends[:-1]), ends
        self._inside = inside

    def first_of_senders(self, rank: Ints) -> Ints:
        """The first transfer, by rank, of every sender in every coflow."""
        traffic, there = self.traffic, self.transfers
        ordered = there[np.argsort(rank[there], kind="stable")]
        keys = traffic.coflow[ordered] * len(traffic.machines) + traffic.sender[ordered]
        return np.asarray(ordered[np.unique(keys, return_index=True)[1]])

    def fair_rates(self, transfers: ArrayLike, taken: Floats | None = None) -> Floats:
        """Return max-min fair rates of some transfers, MB/s, in the free capacity of all ports.

        Parameters
        ----------
        taken
            (2M,) MB/s of the ports that are already allocated, sending ports first.
        """
        chosen = np.asarray(transfers, dtype=np.int64)
        free = self._net.rate_of_port - (0.0 if taken is None else taken)
        free[free < 1e-9 * self._net.rate_of_port] = 0.0
        ports = (self.traffic.sender[chosen], self.traffic.receiver[chosen] + len(self.traffic.machines))
        return max_min_rates(np.column_stack(ports), free)


def _whole(coflows: Sequence[int] | Ints) -> Ints:
    """Return coflow numbers as integers; reject numbers that are not."""
    order = np.asarray(coflows)
    if order.ndim != 1 or (order.size and not np.issubdtype(order.dtype, np.integer)):
        raise ValueError(f"coflows are integers in a row, got {order.dtype} of shape {order.shape}")
    return order.astype(np.int64)
