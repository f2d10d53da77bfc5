"""A network that lives: arcs and nodes come, go and change, and each optimum starts from the last.

pylmcf restarts warm only while the shape of the network stands, and hands over whole arrays each time; here the
work from Python is proportional to the changes. Nodes and arcs are slots: a slot that is given up is taken again
by the next arrival. A change of any kind (ends, capacity, cost, supply) keeps the spanning tree of the last
optimum and its primal feasibility, by way of artificial arcs to the root, and the network simplex goes on from
there (kernels in `simplex_kernels`). Node 0 is the root: it takes whatever the other nodes supply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from flowlex.formulations.engines import simplex_kernels as kernels
from flowlex.formulations.engines.network_engine import NormalForm
from flowlex.formulations.engines.simplex_check import violations
from flowlex.formulations.expression import Integers
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork, exact_dot
from flowlex.formulations.outcome import EngineError

__all__ = ["ArcChange", "NetworkSession", "Violations"]

#: Costs along any path must stay below this; beyond it an artificial arc could be the cheaper way.
PATH_COST_LIMIT = kernels.ARTIFICIAL_COST // 4


#: Pivots with full pricing beyond which solving anew is quicker.
_PATIENCE = 5_000


@dataclass(frozen=True)
class Violations:
    """Largest violations found in the present flow; all zero proves it feasible and of minimum cost."""

    conservation: int
    bounds: int
    reduced_costs: int
    artificial: int


#: An arc slot and what it becomes: slot, tail, head, capacity, cost.
ArcChange = tuple[int, int, int, int, int]


class NetworkSession:
    """A minimum-cost-flow problem kept solved while it changes.

    Parameters
    ----------
    nodes, arcs
        Slots made ahead; more are added when these run out.
    """

    root = 0

    def __init__(self, nodes: int = 64, arcs: int = 256) -> None:
        self._nodes, self._room = 1, max(nodes, 1) + 1
        self._arcs = 0
        self._supply = np.zeros(self._room, np.int64)
        self._t = self._empty(self._room, 2 * self._room + max(arcs, 1))
        self._hang_new(1, self._room)
        self._free_nodes: list[int] = []
        self._free_arcs: list[int] = []
        self._changes: list[ArcChange] = []
        self._supplies: list[tuple[int, int]] = []

    # Shape -----------------------------------------------------------------------------------------------------
    @property
    def node_count(self) -> int:
        """Node slots in use or given up (node 0 is the root)."""
        return self._nodes

    @property
    def arc_count(self) -> int:
        """Arc slots in use or given up."""
        return self._arcs

    @property
    def pivots(self) -> int:
        """Pivots since the session began."""
        return int(self._t.counters[2])

    def add_node(self) -> int:
        """Take a node slot; it supplies nothing."""
        if self._free_nodes:
            return self._free_nodes.pop()
        if self._nodes == self._room:
            self._grow(2 * self._room, self._t.tail.size - 2 * self._room)
        self._nodes += 1
        return self._nodes - 1

    def remove_node(self, node: int) -> None:
        """Give a node slot up; its arcs must have been given up, its supply must be zero."""
        self._free_nodes.append(node)

    def add_arc(self, tail: int, head: int, capacity: int, cost: int) -> int:
        """Take an arc slot."""
        if self._free_arcs:
            slot = self._free_arcs.pop()
        else:
            if 2 * self._room + self._arcs == self._t.tail.size:
                self._grow(self._room, 2 * self._arcs + 16)
            slot = self._arcs
            self._arcs += 1
        self._changes.append((slot, tail, head, capacity, cost))
        return slot

    def change_arc(self, slot: int, tail: int, head: int, capacity: int, cost: int) -> None:
        """Give an arc other ends, capacity or cost."""
        self._changes.append((slot, tail, head, capacity, cost))

    def remove_arc(self, slot: int) -> None:
        """Give an arc slot up."""
        self._changes.append((slot, 0, 0, 0, 0))
        self._free_arcs.append(slot)

    def add_supply(self, node: int, amount: int) -> None:
        """Let a node supply more (or less)."""
        self._supplies.append((node, amount))

    # Solving ---------------------------------------------------------------------------------------------------
    def apply(self, *, cold: bool = False) -> None:
        """Hand the noted changes to the arrays; `solve` does so by itself. ``cold``: the tree is made anew after."""
        shift = 2 * self._room
        self._t.counters[3] = shift + self._arcs
        if self._changes:
            changes = np.array(self._changes, np.int64)
            arcs, tail, head, capacity, cost = (np.ascontiguousarray(column) for column in changes.T)
            change = kernels.write_arcs if cold else kernels.change_arcs
            change(self._t, arcs + shift, tail, head, capacity, cost)
            self._changes.clear()
        if self._supplies:
            nodes, amounts = np.array(self._supplies, np.int64).T
            nodes, amounts = np.ascontiguousarray(nodes), np.ascontiguousarray(amounts)
            np.add.at(self._supply, nodes, amounts)
            if not cold:
                kernels.change_supplies(self._t, nodes, amounts)
            self._supplies.clear()
        if not cold:
            kernels.reconnect(self._t)

    def solve(self, *, cold: bool = False) -> None:
        """Bring the flow to minimum cost, from the last tree or (``cold``) from nothing.

        Raises
        ------
        EngineError
            No flow satisfies the network.
        """
        if 2 * len(self._changes) > self._arcs > 1000:
            cold = True  # nearly everything is new, so the old tree is of no use
        self.apply(cold=cold)
        shift = 2 * self._room
        if cold:
            self._restart()
        elif not kernels.optimise_near(self._t) and not kernels.optimise(self._t, shift, _PATIENCE):
            self._restart()  # the change is no small one; nor can a warm tree that cycles hold us up
        kernels.forget_moved(self._t)
        artificial = self._t.flow[: 2 * self._nodes]
        if artificial.any():
            node = int(np.argmax(artificial)) // 2
            raise EngineError(f"no flow satisfies the network: node {node} cannot be balanced; give it an outlet")

    def _restart(self) -> None:
        """Solve from nothing: by pylmcf, whose optimum is then given a tree; by our own pivots if that fails."""
        if not self._adopt_optimum():
            self._t.flow[: 2 * self._room] = 0
            kernels.star(self._t, self._supply, self._room)
        if not kernels.optimise(self._t, 2 * self._room, 2**62):
            raise EngineError("the network simplex did not end; please report this with the network")

    def _adopt_optimum(self) -> bool:
        """Take over an optimum of pylmcf: arcs strictly between their bounds, then tight ones, span the tree."""
        start, t = 2 * self._room, self._t
        network = self.network(applied=True)
        normal = NormalForm.of(network)
        if len(normal.order) < 1000:
            return False  # not worth the way there and back
        graph = normal.graph()
        try:
            graph.solve()
        except RuntimeError:  # infeasible: our own pivots say where
            return False
        flow, reduced = normal.flows(graph.result()), network.reduced_costs(-graph.potentials()[normal.number])
        part = slice(start, start + self._arcs)
        every = np.arange(start, start + self._arcs)
        between = (flow > 0) & (flow < t.capacity[part])
        tight = (reduced == 0) & (t.capacity[part] > 0) & ~between
        over = 2 * np.arange(1, self._room)
        arcs = np.concatenate([every[between], every[tight], over])
        rank = np.repeat([1, 2, 3], [int(between.sum()), int(tight.sum()), len(over)])
        u, v = t.tail[arcs].astype(np.int64), t.head[arcs].astype(np.int64)
        arcs, rank, u, v = (x[u != v] for x in (arcs, rank, u, v))
        keys, first = np.unique(np.minimum(u, v) * self._room + np.maximum(u, v), return_index=True)  # best rank first
        low, high = keys // self._room, keys % self._room
        weights = sparse.csr_array((rank[first].astype(float), (low, high)), shape=(self._room, self._room))
        tree = minimum_spanning_tree(weights)
        order, parent = breadth_first_order(tree, 0, directed=False)
        child = order[1:]
        pairs = np.minimum(child, parent[child]).astype(np.int64) * self._room + np.maximum(child, parent[child])
        link = np.full(self._room, -1, np.int64)
        link[child] = arcs[first[np.searchsorted(keys, pairs)]]
        if int(between.sum()) != int(np.isin(every[between], link).sum()):
            return False  # arcs between their bounds close a cycle: no basis
        for slot in np.flatnonzero(flow != t.flow[part]).tolist():
            if t.before[start + slot] < 0:
                t.before[start + slot] = t.flow[start + slot]
                t.touched[t.counters[1]] = start + slot
                t.counters[1] += 1
        t.flow[:start], t.flow[part] = 0, flow
        kernels.plant(t, order.astype(np.int64), parent.astype(np.int64), link, self._room)
        return True

    # Reading ---------------------------------------------------------------------------------------------------
    @property
    def flow(self) -> Integers:
        """(A,) flows by slot; a view."""
        start = 2 * self._room
        flow: Integers = self._t.flow[start : start + self._arcs]
        return flow

    @property
    def potentials(self) -> Integers:
        """(N,) potentials: change of the least cost per unit of supply (0 at the root)."""
        pi: Integers = self._t.pi[: self._nodes] - self._t.pi[0]
        return pi

    @property
    def objective(self) -> int:
        """Exact cost of the present flow."""
        start = 2 * self._room
        return exact_dot(self._t.cost[start : start + self._arcs], self.flow)

    def take_touched(self) -> tuple[Integers, Integers]:
        """Arc slots whose flow has changed since the last call, and their flow then; forgets them."""
        start = 2 * self._room
        count = int(self._t.counters[1])
        arcs = self._t.touched[:count].astype(np.int64)
        before = self._t.before[arcs].copy()
        self._t.before[arcs] = -1
        self._t.counters[1] = 0
        keep = (arcs >= start) & (self._t.flow[arcs] != before)
        return arcs[keep] - start, before[keep]

    def violations(self) -> Violations:
        """Recompute feasibility and optimality from arcs, flows and potentials alone, in integers."""
        found = violations(self._t, self._supply, 2 * self._room, self._nodes)
        return Violations(*(int(value) for value in found))

    def arcs(self) -> tuple[Integers, Integers, Integers, Integers]:
        """Tail, head, capacity and cost by slot (copies); a slot given up is a loop of capacity 0."""
        part = slice(2 * self._room, 2 * self._room + self._arcs)
        t = self._t
        tail, head = t.tail[part].astype(np.int64), t.head[part].astype(np.int64)
        return tail, head, t.capacity[part].copy(), t.cost[part].copy()

    def network(self, name: str = "live network", *, applied: bool = False) -> FlowNetwork:
        """The present problem as an ordinary network (slots given up are loops of capacity 0).

        Noted changes are applied first, unless the caller says that there are none.
        """
        if not applied:
            self.apply()
        tail, head, capacity, cost = self.arcs()
        supply = self._supply[: self._nodes].copy()
        supply[0] = -supply[1:].sum()
        upper = np.where(capacity >= kernels.ENDLESS, UNBOUNDED, capacity)
        return FlowNetwork.from_arrays(tail, head, upper=upper, cost=cost, supply=supply, name=name)

    # State -----------------------------------------------------------------------------------------------------
    def state(self) -> dict[str, NDArray[Any]]:
        """All arrays, to be saved; `restore` makes the same session of them, tree and all."""
        self.apply()
        named = {f"basis_{name}": getattr(self._t, name) for name in kernels.Basis._fields}
        sizes = np.array([self._nodes, self._room, self._arcs], np.int64)
        free = np.array(self._free_nodes, np.int64), np.array(self._free_arcs, np.int64)
        return {**named, "supply": self._supply, "sizes": sizes, "free_nodes": free[0], "free_arcs": free[1]}

    @classmethod
    def restore(cls, state: dict[str, NDArray[Any]]) -> NetworkSession:
        """Make the session that `state` described."""
        session = cls()
        session._nodes, session._room, session._arcs = (int(x) for x in state["sizes"])
        session._t = kernels.Basis(*(state[f"basis_{name}"].copy() for name in kernels.Basis._fields))
        session._supply = state["supply"].copy()
        session._free_nodes = state["free_nodes"].tolist()
        session._free_arcs = state["free_arcs"].tolist()
        return session

    # Slots -----------------------------------------------------------------------------------------------------
    @staticmethod
    def _empty(nodes: int, arcs: int) -> kernels.Basis:
        small, wide = np.int32, np.int64
        return kernels.Basis(
            tail=np.zeros(arcs, small),
            head=np.zeros(arcs, small),
            capacity=np.zeros(arcs, wide),
            cost=np.zeros(arcs, wide),
            flow=np.zeros(arcs, wide),
            state=np.zeros(arcs, np.int8),
            pi=np.zeros(nodes, wide),
            parent=np.full(nodes, -1, small),
            pred=np.full(nodes, -1, small),
            child=np.full(nodes, -1, small),
            following=np.full(nodes, -1, small),
            previous=np.full(nodes, -1, small),
            touched=np.zeros(arcs, small),
            before=np.full(arcs, -1, wide),
            counters=np.zeros(8, wide),
            first_out=np.full(nodes, -1, small),
            next_out=np.full(arcs, -1, small),
            back_out=np.full(arcs, -1, small),
            first_in=np.full(nodes, -1, small),
            next_in=np.full(arcs, -1, small),
            back_in=np.full(arcs, -1, small),
            loose=np.zeros(nodes, small),
            is_loose=np.zeros(nodes, np.bool_),
            stamp=np.zeros(nodes, wide),
            moved=np.zeros(nodes, small),
            is_moved=np.zeros(nodes, np.bool_),
        )

    def _hang_new(self, first: int, end: int) -> None:
        """Make node slots ``first`` to ``end`` children of the root by their artificial arcs."""
        t, nodes = self._t, np.arange(first, end)
        t.head[2 * nodes + 1] = t.tail[2 * nodes] = nodes
        t.capacity[: 2 * end] = kernels.ENDLESS
        t.cost[: 2 * end] = kernels.ARTIFICIAL_COST
        if first == end:
            return
        t.pi[nodes] = t.pi[0] + kernels.ARTIFICIAL_COST
        t.parent[nodes], t.pred[nodes] = 0, 2 * nodes
        old = int(t.child[0])
        t.previous[nodes] = nodes - 1
        t.previous[first] = -1
        t.following[nodes] = nodes + 1
        t.following[end - 1] = old
        if old >= 0:
            t.previous[old] = end - 1
        t.child[0] = first

    def _grow(self, nodes: int, arcs: int) -> None:
        """Move to larger arrays; slots keep their numbers, so noted changes stay as they are."""
        old, old_room = self._t, self._room
        new = self._empty(nodes, 2 * nodes + arcs)
        artificial, real = slice(0, 2 * old_room), slice(2 * old_room, 2 * old_room + self._arcs)
        shifted = slice(2 * nodes, 2 * nodes + self._arcs)
        for name in ("tail", "head", "capacity", "cost", "flow", "state", "before"):
            getattr(new, name)[artificial] = getattr(old, name)[artificial]
            getattr(new, name)[shifted] = getattr(old, name)[real]
        for name in ("pi", "parent", "child", "following", "previous"):
            getattr(new, name)[:old_room] = getattr(old, name)
        move = 2 * (nodes - old_room)
        new.pred[:old_room] = np.where(old.pred >= 2 * old_room, old.pred + move, old.pred)
        for name in ("next_out", "back_out", "next_in", "back_in"):
            getattr(new, name)[shifted] = _moved(getattr(old, name)[real], move)
        for name in ("first_out", "first_in"):
            getattr(new, name)[:old_room] = _moved(getattr(old, name), move)
        new.is_loose[:old_room], new.loose[:old_room] = old.is_loose, old.loose
        new.is_moved[:old_room], new.moved[:old_room] = old.is_moved, old.moved
        count = int(old.counters[1])
        touched = old.touched[:count]
        new.touched[:count] = np.where(touched >= 2 * old_room, touched + move, touched)
        new.counters[:] = old.counters
        new.counters[0] = 0
        new.counters[3] = 2 * nodes + self._arcs
        self._t, self._room = new, nodes
        supply = np.zeros(nodes, np.int64)
        supply[:old_room] = self._supply
        self._supply = supply
        self._hang_new(old_room, nodes)


def _moved(arcs: NDArray[Any], move: int) -> NDArray[Any]:
    return np.where(arcs >= 0, arcs + move, arcs)
