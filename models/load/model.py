r"""Which node processes which items, so that all finish together and the least is moved?

Items lie on nodes (a block may have replicas on several). Capacities say how fast each node is; they come from
one of three evaluations that exchange without touching the model. ``targets``: each node gets its share of the
items by capacity, in whole items, and moving costs least. ``makespan``: the last node finishes as early as whole
items allow, and among those partitions the one that moves cheapest.

Sets: nodes N, groups K of items that lie on the same nodes. Parameters: n_k items of group k, C_i capacity, t_i
target (quota C_i / sum C * sum n, by largest remainder), u_i most items node i ends by the least makespan, c_ki
seconds to bring one item of k to i (0 on a holder). Variables: y_ki items of k processed on i, z_i load of i.

The matrix is a node-arc incidence matrix (totally unimodular): whole items move without integer programming.
With ``level="node"`` replicas are not used, and ``targets`` is the paper's problem: only nodes above their target
send, only nodes below receive, so that the least volume moves.

Source: Hu, Zhu, Liu, Wang, algorithm 1 (targets); cost, replicas and makespan are ours. The CPU-load formula is
reconstructed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from flowlex.formulations.expression import Integers
from flowlex.formulations.flow_network import FlowNetwork, NetworkBuilder
from flowlex.formulations.outcome import Outcome
from flowlex.instances.load import MICROSECONDS, LoadNode, LoadPartitionInstance
from flowlex.models.base import Dual, Equation, Model, Run, Symbol
from flowlex.models.load.capacity import capacities, largest_remainder, least_makespan_loads
from flowlex.models.load.solution import PartitionSolution

__all__ = ["LoadPartition", "PartitionSolution"]

Capacity: TypeAlias = Literal["configuration", "cpu_load", "history", "performance"] | Callable[[LoadNode], float]


@dataclass(frozen=True, eq=False, repr=False)
class LoadPartition(Model[LoadPartitionInstance, PartitionSolution]):
    """Partition of items over nodes (see the module).

    Parameters
    ----------
    instance
        Nodes, items, move costs.
    capacity
        How a node's capacity is evaluated; a function of the node is taken as well.
    objective
        ``targets`` or ``makespan``.
    level
        ``node``: items are processed where they lie or moved from there. ``item``: a replica serves as well.

    Raises
    ------
    ModelError
        A node lacks the figure that the evaluation reads, a capacity is negative, or all are zero.
    """

    capacity: Capacity = "configuration"
    objective: Literal["targets", "makespan"] = "targets"
    level: Literal["node", "item"] = "node"

    name: ClassVar[str] = "load-partition"
    title: ClassVar[str] = "Load partition"
    comparison: ClassVar[str] = "flowlex.models.load.baselines:compare"
    sets: ClassVar[tuple[Symbol, ...]] = (
        Symbol("N", "nodes"),
        Symbol("K", "groups of items that lie on the same nodes"),
    )
    parameters: ClassVar[tuple[Symbol, ...]] = (
        Symbol("n_k", "items of group k"),
        Symbol("C_i", "capacity of node i"),
        Symbol("t_i", "target of node i: its quota by capacity, in whole items"),
        Symbol("u_i", "most items that node i ends within the least makespan"),
        Symbol("c_{ki}", "seconds to bring an item of group k to node i, 0 where it lies"),
    )
    unknowns: ClassVar[tuple[Symbol, ...]] = (
        Symbol("y_{ki}", "items of group k processed on node i"),
        Symbol("z_i", "items processed on node i"),
    )
    objective_latex: ClassVar[str] = r"\sum_{k \in K} \sum_{i \in N} c_{ki}\, y_{ki}"
    equations: ClassVar[tuple[Equation, ...]] = (
        Equation(
            "group",
            r"\sum_{i \in N} y_{ki} = n_k \quad \forall k \in K",
            "every item is processed once",
            "what one more item of the group costs",
            "s per item",
        ),
        Equation(
            "node",
            r"\sum_{k \in K} y_{ki} = t_i \text{ (targets)}, \; = z_i \text{ (makespan)} \quad \forall i \in N",
            "a node gets its share",
            "what one more item for the node costs",
            "s per item",
        ),
        Equation(
            "finish",
            r"z_i \le u_i \quad \forall i \in N",
            "a node ends within the least makespan",
            when="objective='makespan'",
            exists=lambda model: model.objective == "makespan",
        ),
        Equation(
            "end",
            r"\sum_{i \in N} z_i = \sum_{k \in K} n_k",
            "all items are processed",
            when="objective='makespan'",
            exists=lambda model: model.objective == "makespan",
        ),
    )

    def _check(self) -> None:
        _ = self.capacities

    @cached_property
    def capacities(self) -> tuple[Fraction, ...]:
        """N capacities, exact."""
        return capacities(self.instance.nodes, self.capacity)

    @cached_property
    def total(self) -> int:
        """Items in all."""
        return int(self.instance.arrays.count.sum())

    @cached_property
    def targets(self) -> Integers:
        """(N,) items of each node by its quota."""
        return largest_remainder(self.capacities, self.total)

    @cached_property
    def _groups(self) -> tuple[Integers, np.ndarray[tuple[int, int], np.dtype[np.bool_]]]:
        """(B,) group of each block, and (K, N) the nodes that a group's items lie on."""
        view = self.instance.arrays
        if self.level == "node":
            home, group = np.unique(view.home, return_inverse=True)
            return group.reshape(-1), home[:, None] == np.arange(view.holds.shape[1])
        # Rows as strings of bytes: sorting those is a hundred times quicker than sorting rows of an array.
        packed = np.ascontiguousarray(np.packbits(view.holds, axis=1))
        rows = packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)
        _, first, group = np.unique(rows, return_index=True, return_inverse=True)
        return group.reshape(-1), view.holds[first]

    @cached_property
    def _routes(self) -> tuple[Integers, Integers, Integers]:
        """Group, node and cost of every arc from a group to a node that may process it."""
        view = self.instance.arrays
        _, holds = self._groups
        group, node = (index.ravel() for index in np.indices(holds.shape))
        cost = np.array([view.cost[holders].min(axis=0) for holders in holds], np.int64).reshape(holds.shape)
        cost[holds] = 0
        usable = np.ones(holds.shape, bool)
        if self.objective == "makespan":
            usable &= least_makespan_loads(self.capacities, self.total)[1] > 0
        elif self.level == "node":  # the paper's problem: above the target only sends, below only receives
            excess = view.load > self.targets
            sends = holds.argmax(axis=1)
            usable &= holds | (excess[sends][:, None] & ~excess[None, :])
        keep = usable.ravel()
        return group[keep], node[keep], cost.ravel()[keep]

    def _formulate(self) -> FlowNetwork:
        view = self.instance.arrays
        of_block, holds = self._groups
        amount = np.zeros(len(holds), np.int64)
        np.add.at(amount, of_block, view.count)
        names = [node.name for node in self.instance.nodes]
        net = NetworkBuilder(self.instance.name)
        makespan = self.objective == "makespan"
        groups = net.nodes("group", len(holds), supply=amount)
        nodes = net.nodes("node", len(names), supply=0 if makespan else -self.targets, labels=names)
        group, node, cost = self._routes
        net.arcs("process", groups[group], nodes[node], cost=cost, labels=(group, np.array(names, object)[node]))
        if makespan:
            end = net.nodes("end", 1, supply=-self.total)
            most = least_makespan_loads(self.capacities, self.total)[1]
            net.arcs("finish", nodes, end, upper=most, labels=names)
        return net.build()

    def _interpret(self, run: Run) -> PartitionSolution:
        network, outcome = self.formulation, run.outcome
        assert isinstance(network, FlowNetwork)
        view = self.instance.arrays
        size = len(self.instance.nodes)
        share, moves, after = None, np.zeros((size, size), np.int64), np.zeros(size, np.int64)
        if outcome.values is not None:
            share = self._share(network.split_arcs(outcome.values)["process"])
            after = share.sum(axis=0)
            for b, n in zip(*np.nonzero(share * ~self._at_home()), strict=True):
                holders = np.flatnonzero(self._groups[1][self._groups[0][b]])
                moves[holders[view.cost[holders, n].argmin()], n] += share[b, n]
        scale = None if outcome.objective is None else int(outcome.objective) / MICROSECONDS
        bound = scale if outcome.bound is not None else None
        prices = {} if outcome.duals is None else network.split_nodes(outcome.duals / MICROSECONDS)
        duals = {name: Dual.of_block(network.node_blocks[name], prices[name]) for name in prices if name != "end"}
        return PartitionSolution(
            **{**self._facts(run), "objective": scale, "bound": bound},
            duals=duals,
            capacity=np.array(self.capacities, dtype=np.float64),
            before=view.load,
            after=after,
            share=share,
            moves=moves,
            node_price=self._prices(outcome),
        )

    def _at_home(self) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """(B, N) whether processing block b on node n moves nothing."""
        of_block, holds = self._groups
        return holds[of_block]

    def _share(self, flow: Integers) -> Integers:
        """Hand a group's flow out to its blocks, in the order of the instance."""
        group, node, _ = self._routes
        of_block, holds = self._groups
        left = np.zeros(holds.shape, np.int64)
        left[group, node] = flow
        share = np.zeros((len(of_block), holds.shape[1]), np.int64)
        for b, (k, items) in enumerate(zip(of_block, self.instance.arrays.count.tolist(), strict=True)):
            for n in np.flatnonzero(left[k]):
                share[b, n] = min(items, left[k, n])
                left[k, n] -= share[b, n]
                items -= int(share[b, n])
                if not items:
                    break
        return share

    def _prices(self, outcome: Outcome) -> dict[str, int] | None:
        """What another item costs at each node, in microseconds: the proof that nothing moves for less."""
        network = self.formulation
        assert isinstance(network, FlowNetwork)
        if outcome.duals is None or outcome.duals.dtype.kind != "i":
            return None
        prices = network.split_nodes(outcome.duals)
        found = prices["node"]
        if self.objective == "makespan":
            found = np.maximum(found - prices["end"], 0)
        return dict(zip((node.name for node in self.instance.nodes), found.tolist(), strict=True))
