"""A network that is re-solved from its last optimum as nodes and arcs are added, removed and changed.

pylmcf restarts warm only with the same nodes and arcs, and copies whole arrays each time; here the work of Python is
proportional to the changes. Nodes and arcs occupy slots; a new one reuses a free slot. A change of any kind (ends,
capacity, cost, supply) leaves every arc optimal for the potentials and some nodes out of balance. Shortest paths
balance them (kernels in `residual_network` and `shortest_path_kernels`); where that takes long, the network engine
solves the residual network, in which only these nodes supply or need anything. Node 0 is the root: it takes whatever
the other nodes supply.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.deferred_compilation import small_work
from flowlex.formulations.engines.network import solve_exactly
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.program_arrays import Integers, exact_dot
from flowlex.formulations.solver_outcome import EngineError
from flowlex.systems.scheduler.warm_network import residual_network as kernels
from flowlex.systems.scheduler.warm_network.shortest_path_kernels import balance, cheapest

#: Costs along any path must stay below this, so that no potential leaves 64 bits.
PATH_COST_LIMIT = 2**56


class NoFlowError(EngineError):
    """No flow satisfies the network; ``node`` is one that cannot be balanced.

    The session stays usable: after more changes, `solve` continues from its state.
    """

    def __init__(self, node: int) -> None:
        self.node = node
        super().__init__(f"no flow satisfies the network: node {node} cannot be balanced; give it an outlet")


@dataclass(frozen=True)
class Violations:
    """Largest violations found in the present flow; all zero proves it feasible and of minimum cost."""

    conservation: int
    bounds: int
    reduced_costs: int
    by_stage: tuple[int, ...] = ()  # reduced costs, among the arcs that the earlier stages leave free


class CheapestPaths(NamedTuple):
    """Cheapest paths from a node through the residual network: to each node its cost and its last arc's slot."""

    cost: NDArray[Any]  # (N,) integers, of no meaning where not reached
    link: Integers  # (N,) -1 at the source and where not reached
    reached: NDArray[np.bool_]  # (N,)


#: Where a large part of the supply is out of balance, the search from the last optimum has this part of its patience.
_HASTE = 12
#: A step looks at few arcs of a large network: plain loops take 50 ms for 30 events on 70 000 arcs, compiled ones 4 ms.
_ARCS_PER_STEP = 50

Method = TypeVar("Method", bound=Callable[..., Any])


def _sized(method: Method) -> Method:
    """Let loops that no cache holds run as plain Python on a small network."""

    @functools.wraps(method)
    def call(self: NetworkSession, *arguments: Any, **keywords: Any) -> Any:
        with small_work(self._arcs // _ARCS_PER_STEP):
            return method(self, *arguments, **keywords)

    return cast(Method, call)


class NetworkSession:
    """A minimum-cost-flow problem that changes and is re-solved from its last optimum.

    ``nodes``, ``arcs``: slots made ahead; more are added when these run out. ``patience``: arcs looked at, per node and
    arc of the network, beyond which solving anew is quicker than going on.
    """

    root = 0

    def __init__(self, nodes: int = 64, arcs: int = 256, *, patience: int = 60) -> None:
        self._patience = patience
        self._nodes, self._arcs = 1, 0
        self._t = kernels.empty(max(nodes, 1) + 1, max(arcs, 1))
        self._supply = np.zeros(max(nodes, 1) + 1, np.int64)
        self._free_nodes: list[int] = []
        self._free_arcs: list[int] = []
        self._fresh: dict[int, None] = {}
        self._changes = array("q")  # slot, tail, head, capacity, cost; and so on
        self._supplies = array("q")  # node, amount; and so on

    # Shape -----------------------------------------------------------------------------------------------------
    @property
    def node_count(self) -> int:
        """Number of node slots, used or free (node 0 is the root)."""
        return self._nodes

    @property
    def arc_count(self) -> int:
        """Number of arc slots, used or free."""
        return self._arcs

    @property
    def changes(self) -> int:
        """Size of the record of changes since the last `solve`; 0 if there are none."""
        return len(self._changes) + len(self._supplies)

    @property
    def supply(self) -> Integers:
        """(N,) what nodes supply as of the last `apply`; a view."""
        supply: Integers = self._supply[: self._nodes]
        return supply

    @property
    def paths(self) -> int:
        """Number of augmenting paths since the session began."""
        return int(self._t.counters[kernels.PATHS])

    def add_node(self) -> int:
        """Add a node without supply; return its slot."""
        if self._free_nodes:
            node = self._free_nodes.pop()
        else:
            if self._nodes == len(self._t.pi):
                self._grow(2 * self._nodes, len(self._t.flow))
            node = self._nodes
            self._nodes += 1
        self._fresh[node] = None
        return node

    def remove_node(self, node: int) -> None:
        """Free a node slot; its arcs must be free and its supply zero."""
        self._free_nodes.append(node)
        self._fresh.pop(node, None)

    def add_arc(self, tail: int, head: int, capacity: int, cost: int) -> int:
        """Add an arc; return its slot."""
        if self._free_arcs:
            slot = self._free_arcs.pop()
        else:
            if self._arcs == len(self._t.flow):
                self._grow(len(self._t.pi), 2 * self._arcs)
            slot = self._arcs
            self._arcs += 1
        self._changes.fromlist([slot, tail, head, capacity, cost])
        return slot

    def add_arcs(self, tail: int, heads: Sequence[int], costs: Sequence[int]) -> list[int]:
        """Add arcs of capacity 1 out of one node; return their slots, new ones last."""
        slots = [self._free_arcs.pop() for _ in range(min(len(self._free_arcs), len(heads)))]
        fresh = len(heads) - len(slots)
        while self._arcs + fresh > len(self._t.flow):
            self._grow(len(self._t.pi), 2 * len(self._t.flow))
        slots += range(self._arcs, self._arcs + fresh)
        self._arcs += fresh
        changes: list[int] = []
        for slot, head, cost in zip(slots, heads, costs, strict=True):
            changes += (slot, tail, head, 1, cost)
        self._changes.fromlist(changes)
        return slots

    def change_arc(self, slot: int, tail: int, head: int, capacity: int, cost: int) -> None:
        """Give an arc other ends, capacity or cost."""
        self._changes.fromlist([slot, tail, head, capacity, cost])

    def change_arcs(self, changes: list[int]) -> None:
        """Change many arcs, given as one flat list: slot, tail, head, capacity and cost of each."""
        self._changes.fromlist(changes)

    def remove_arc(self, slot: int) -> None:
        """Free an arc slot."""
        self._changes.fromlist([slot, 0, 0, 0, 0])
        self._free_arcs.append(slot)

    def add_supply(self, node: int, amount: int) -> None:
        """Add an amount to the supply of a node."""
        self._supplies.fromlist([node, amount])

    def become(self, tail: Integers, head: Integers, capacity: Integers, cost: Integers, supply: Integers) -> None:
        """Be the network of these arrays, by slot; what does not differ stays as it is."""
        while self._nodes < len(supply):
            self.add_node()
        while self._arcs < len(tail):
            self.add_arc(0, 0, 0, 0)
        wanted = np.stack((np.arange(len(tail)), tail, head, capacity, cost))
        changed = wanted[:, (wanted[1:] != np.stack(self.arcs())).any(axis=0)]
        more = supply - self._supply[: len(supply)]
        nodes = np.flatnonzero(more)
        self._changes.fromlist(changed.T.ravel().tolist())
        self._supplies.fromlist(np.stack((nodes, more[nodes])).T.ravel().tolist())

    # Solving ---------------------------------------------------------------------------------------------------
    @_sized
    def apply(self) -> None:
        """Apply the recorded changes to the arrays; `solve` does this too."""
        if self._changes:
            fresh = np.fromiter(self._fresh, np.int64, len(self._fresh))
            self._change(np.frombuffer(self._changes, np.int64).reshape(-1, 5), fresh)
            self._changes = array("q")
        self._fresh.clear()
        if self._supplies:
            nodes, amounts = np.array(self._supplies, np.int64).reshape(-1, 2).T.copy()
            del self._supplies[:]
            np.add.at(self._supply, nodes, amounts)
            kernels.change_supplies(self._t, nodes, amounts)

    @_sized
    def solve(self, *, cold: bool = False) -> None:
        """Bring the flow to minimum cost, from the last optimum or (``cold``) from scratch.

        Raises `NoFlowError`: no flow satisfies the network.
        """
        self.apply()
        if cold:
            self._begin_anew()
        overload = self._overloaded()
        patience = self._patience // (_HASTE if overload else 1) * (self._arcs + self._nodes)
        stuck = -1 if overload and self._crowded() else balance(self._t, patience)
        if stuck < 0 and not self._solve_remainder():
            self._begin_anew()
            stuck = balance(self._t, 2**62)
        if stuck > 0:
            raise NoFlowError(stuck)

    def _overloaded(self) -> bool:
        """Whether a large part of the supply, not most of it, is out of balance, as when a tenth of all machines fails.

        In a nearly full network every path is then long. Where most of it is, the network is new, and paths are short.
        """
        loose = self._t.loose[: self._t.counters[kernels.LOOSE]]
        total, supply = int(np.abs(self._t.excess[loose]).sum()), int(np.abs(self._supply[1 : self._nodes]).sum())
        return supply // 50 < total <= supply // 2

    def _crowded(self) -> bool:
        """Whether nodes that supply nothing and pass on a bounded amount, such as machines, cannot pass all supply.

        Then what is out of balance must displace others, along paths that a search from the last optimum looks for in
        vain (0.24 of 1.8 s where a tenth of 10 000 nearly full machines fails).
        """
        t, arcs = self._t, slice(self._arcs)
        total = int(np.abs(self._supply[1 : self._nodes]).sum())
        inner = (t.head[arcs] == self.root) & (self._supply[t.tail[arcs]] == 0) & (t.capacity[arcs] < total)
        return int(t.capacity[arcs][inner].sum()) < total

    def _solve_remainder(self) -> bool:
        """Send what is out of balance through the residual network at reduced costs, by the network engine.

        That takes 0.6 of its time on the whole network where a tenth of the machines fails, and more tasks stay where
        they are. Return False if there is no flow, or if the answer fails the check of optimality.
        """
        t, nodes, (tail, head, capacity, cost) = self._t, self._nodes, self.arcs()
        reduced = cost - t.pi[tail] + t.pi[head]
        room = np.where(capacity < kernels.ENDLESS, capacity - self.flow, UNBOUNDED)
        more = np.flatnonzero((self.flow < capacity) & (tail != head))
        less = np.flatnonzero(self.flow)
        ends = np.concatenate((tail[more], head[less])), np.concatenate((head[more], tail[less]))
        costs = np.concatenate((reduced[more], -reduced[less]))
        upper = np.concatenate((room[more], self.flow[less]))
        supply = t.excess[:nodes].copy()
        supply[0] = -supply[1:].sum()
        found = solve_exactly(FlowNetwork.from_arrays(*ends, upper=upper, cost=costs, supply=supply))
        if found is None:
            return False
        flow = self.flow.copy()
        flow[more] += found[0][: len(more)]
        flow[less] -= found[0][len(more) :]
        kernels.put_flows(t, flow)
        t.pi[:nodes] += found[1]
        t.excess[:] = t.counters[kernels.LOOSE] = 0
        t.is_loose[:] = False
        return self.violations() == Violations(0, 0, 0)

    def _begin_anew(self) -> None:
        """Take back all flow, and price all nodes anew."""
        kernels.reset(self._t, self._supply, self._arcs)
        self._change(np.column_stack((np.arange(self._arcs), *self.arcs())), np.arange(1, self._nodes))

    def _change(self, changes: Integers, fresh: Integers) -> None:
        if not kernels.change_arcs(self._t, changes, fresh):
            raise EngineError("a cycle of negative cost has no capacity; bound one of its arcs")

    # Reading ---------------------------------------------------------------------------------------------------
    @property
    def flow(self) -> Integers:
        """(A,) flows by slot; a view."""
        flow: Integers = self._t.flow[: self._arcs]
        return flow

    @property
    def potentials(self) -> Integers:
        """(N,) potentials: change of the least cost per unit of supply (0 at the root)."""
        pi: Integers = self._t.pi[: self._nodes] - self._t.pi[0]
        return pi

    @property
    def objective(self) -> int:
        """Exact cost of the current flow."""
        return exact_dot(self._t.cost[: self._arcs], self.flow)

    def take_touched(self) -> tuple[Integers, Integers]:
        """Arc slots whose flow has changed since the last call, and their flow at that call."""
        t, count = self._t, int(self._t.counters[kernels.TOUCHED])
        arcs = t.touched[:count].astype(np.int64)
        before = t.before[arcs].copy()
        t.before[arcs] = -1
        t.counters[kernels.TOUCHED] = 0
        keep = t.flow[arcs] != before
        return arcs[keep], before[keep]

    @_sized
    def violations(self) -> Violations:
        """Recompute feasibility and optimality from arcs, flows and potentials alone, in integers."""
        conservation, bounds, signs = kernels.violations(self._t, self._supply, self._nodes, self._arcs)
        return Violations(int(conservation), int(bounds), int(signs))

    @_sized
    def cheapest_paths(self, source: int, without: int = -1) -> CheapestPaths:
        """Cheapest residual paths of the optimum from a node that avoid the arc ``without``."""
        t, part = self._t, slice(self._nodes)
        stamp = cheapest(t, source, without, True)
        reached = t.stamp[part] == stamp
        cost = t.distance[part] + (t.pi[source] - t.pi[part])
        return CheapestPaths(cost, np.where(reached, t.link[part], -1), reached)

    def arcs(self) -> tuple[Integers, Integers, Integers, Integers]:
        """Tail, head, capacity and cost by slot (copies); a free slot is a loop of capacity 0."""
        t, part = self._t, slice(0, self._arcs)
        tail, head = t.tail[part].astype(np.int64), t.head[part].astype(np.int64)
        return tail, head, t.capacity[part].copy(), t.cost[part].copy()

    def costs(self, slots: Integers) -> Integers:
        """Costs of some arcs."""
        found: Integers = self._t.cost[slots]
        return found

    def network(self, name: str = "live network", *, applied: bool = False) -> FlowNetwork:
        """The current problem as a `FlowNetwork` (free slots are loops of capacity 0).

        Recorded changes are applied first, unless ``applied`` says that there are none.
        """
        if not applied:
            self.apply()
        tail, head, capacity, cost = self.arcs()
        supply = self._supply[: self._nodes].copy()
        supply[0] = -supply[1:].sum()
        upper = np.where(capacity >= kernels.ENDLESS, UNBOUNDED, capacity)
        return FlowNetwork.from_arrays(tail, head, upper=upper, cost=cost, supply=supply, name=name)

    # State -----------------------------------------------------------------------------------------------------
    def _grow(self, nodes: int, arcs: int) -> None:
        """Move to larger arrays; slots keep their numbers."""
        old = self._t
        self._t = kernels.empty(nodes, arcs)
        for new, part in zip(self._t, old, strict=True):
            new[: len(part)] = part
        supply = np.zeros(nodes, np.int64)
        supply[: len(self._supply)] = self._supply
        self._supply = supply


@cache
def load_kernels() -> None:
    """Compile or load the kernels of a warm step, so that the first step need not wait for that."""
    session = NetworkSession()
    node = session.add_node()
    dear, cheap = session.add_arc(node, 0, 1, 2), session.add_arc(node, 0, 1, 1)
    session.add_supply(node, 1)
    session.solve()
    session.change_arc(cheap, node, 0, 0, 1)
    session.solve()
    assert session.flow[dear] == 1 and session.violations() == Violations(0, 0, 0)
    assert session.cheapest_paths(node).reached[node]
    session.take_touched()
    kernels.put_flows(session._t, session.flow.copy())
