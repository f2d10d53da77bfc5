"""A minimum-cost-flow problem as arrays of arcs and nodes, exact in integers.

    minimise    sum_a cost[a] * flow[a]
    subject to  sum_{a out of v} flow[a] - sum_{a into v} flow[a] = supply[v]      for every node v
                lower[a] <= flow[a] <= upper[a]                                    for every arc a

The constraint matrix is the node-arc incidence matrix: every column holds one +1 and one -1, so it is
totally unimodular and an integer optimum always exists. Nodes and arcs are declared in named blocks; a block's
name is the name of its balance constraints (nodes) or of its flow variables (arcs) in every lowered form.

Costs are integer multiples of a ``unit``, so that engines stay exact. `to_pulp` and `to_linear_program` state the
problem's own objective, ``unit * cost @ flow + constant``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowlex.formulations.block_labels import Labels, blocks_html
from flowlex.formulations.linear_expression import Variables
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.node_arc_blocks import UNBOUNDED, Block, arc_columns, integers, node_block
from flowlex.formulations.program_arrays import Floats, Integers, LinearProgramArrays, exact_dot, frozen

if TYPE_CHECKING:
    import networkx as nx
    import pulp
    import scipy

__all__ = ["UNBOUNDED", "Block", "FlowNetwork"]


@dataclass(frozen=True, eq=False)
class FlowNetwork:
    """A minimum-cost-flow problem (see the module), made by `from_arrays` or, block by block, by a `NetworkBuilder`.

    Its arrays are read-only; use `dataclasses.replace` for a changed network.

    Attributes
    ----------
    tail, head
        (A,) int64 node numbers.
    lower, upper, cost
        (A,) int64; ``upper`` is `UNBOUNDED` for an arc without capacity.
    supply
        (N,) int64, negative for a demand; sums to zero.
    unit, constant
        Value of one unit of cost, and a constant: the problem's objective is ``unit * cost @ flow + constant``.
        Engines and duals refer to ``cost`` alone.
    similar_neighbours
        Whether neighbouring node numbers are of similar nodes, as in networks made block by block. The network simplex
        then renumbers them at random; otherwise it keeps the order, which is that of the user and often of the place.
    """

    name: str
    tail: Integers
    head: Integers
    lower: Integers
    upper: Integers
    cost: Integers
    supply: Integers
    node_blocks: dict[str, Block]
    arc_blocks: dict[str, Block]
    unit: Fraction = Fraction(1)
    constant: Fraction = Fraction(0)
    similar_neighbours: bool = False

    def __post_init__(self) -> None:
        for name in ("tail", "head", "lower", "upper", "cost", "supply"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    @classmethod
    def from_arrays(
        cls,
        tail: ArrayLike,
        head: ArrayLike,
        *,
        upper: ArrayLike,
        cost: ArrayLike,
        supply: ArrayLike,
        lower: ArrayLike = 0,
        name: str = "network",
        node_labels: Labels = None,
    ) -> FlowNetwork:
        """Make a network with one block of nodes (``node``) and one of arcs (``flow``).

        Parameters
        ----------
        tail, head
            (A,) node numbers from 0; one number is used for all arcs.
        upper, cost, lower
            One integer or (A,) integers; ``upper`` is ``UNBOUNDED`` for an arc without capacity.
        supply
            (N,) integers, negative for a demand; they sum to zero. The length is the number of nodes.
        name
            Name of the problem; appears in exported files.
        node_labels
            One label per node, all different; the node numbers when omitted.

        Raises
        ------
        ValueError
            A number is not an integer of 64 bits, a length does not match, an end is no node, a lower bound exceeds
            its upper bound, two labels are equal, or the supplies do not sum to zero.
        """
        supplies = np.atleast_1d(integers(supply, None, "supply"))
        arcs = arc_columns("flow", tail, head, lower, upper, cost)
        nodes = node_block("node", 0, len(supplies), node_labels)
        network = cls(name, *arcs, supplies, {"node": nodes}, {"flow": Block("flow", 0, len(arcs[0]))})
        network.check()
        return network

    def __repr__(self) -> str:
        return f"<flow network {self.name!r}: {self.node_count} nodes, {self.arc_count} arcs>"

    def _repr_html_(self) -> str:
        return blocks_html(repr(self), nodes=self.node_blocks, arcs=self.arc_blocks)

    def check(self) -> None:
        """Raise `ValueError` for an end that is no node, crossed bounds, or supplies that do not sum to zero."""
        for ends, what in ((self.tail, "tail"), (self.head, "head")):
            wrong = (ends < 0) | (ends >= self.node_count)
            if wrong.any():
                arc = int(np.argmax(wrong))
                raise ValueError(f"arc {arc}: {what} {ends[arc]} is no node; there are {self.node_count}, from 0")
        crossed = self.lower > self.upper
        if crossed.any():
            arc = int(np.argmax(crossed))
            bounds = f"lower bound {self.lower[arc]} exceeds upper bound {self.upper[arc]}"
            raise ValueError(f"arc {arc} ({self.describe_arc(arc)}): {bounds}")
        total = sum(self.supply.tolist())
        if total:
            raise ValueError(f"{self.name}: supplies sum to {total}, they must sum to 0")

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self.supply)

    @property
    def arc_count(self) -> int:
        """Number of arcs."""
        return len(self.tail)

    @cached_property
    def node_names(self) -> list[str]:
        """Names of all nodes, in order."""
        return [name for block in self.node_blocks.values() for name in block.names()]

    def row_names(self) -> list[str]:
        """Names of the rows of every lowered form: the nodes."""
        return self.node_names

    def column_names(self) -> list[str]:
        """Names of the columns of every lowered form: the arcs."""
        return [name for block in self.arc_blocks.values() for name in block.names()]

    def describe_arc(self, arc: int) -> str:
        """Name an arc by its two ends, as in ``worker[0] -> sink[0]``.

        Parameters
        ----------
        arc
            Number of the arc, from 0.
        """
        return f"{self.node_names[self.tail[arc]]} -> {self.node_names[self.head[arc]]}"

    def incidence(self) -> scipy.sparse.csc_array:
        """Return the (N, A) node-arc incidence matrix: +1 at the tail, -1 at the head, empty for a loop."""
        import scipy

        loops = self.tail == self.head
        pointer = np.concatenate([[0], np.cumsum(np.where(loops, 0, 2))])
        real = ~loops
        rows = np.stack([self.tail[real], self.head[real]], axis=1)
        signs = np.broadcast_to(np.array([1, -1], np.int8), rows.shape)
        order = np.argsort(rows, axis=1)
        rows, signs = np.take_along_axis(rows, order, 1), np.take_along_axis(signs, order, 1)
        shape = (self.node_count, self.arc_count)
        return scipy.sparse.csc_array((signs.ravel(), rows.ravel().astype(np.int64), pointer), shape=shape)

    def total_cost(self, flow: Integers) -> int:
        """The exact cost of a flow, without ``unit`` and ``constant``.

        Parameters
        ----------
        flow
            (A,) int64 units on each arc.
        """
        return exact_dot(self.cost, flow)

    def stated_cost(self) -> Floats:
        """(A,) cost of each arc in the problem's own unit, as the nearest floats."""
        distinct, place = np.unique(self.cost, return_inverse=True)
        return np.array([float(self.unit * cost) for cost in distinct.tolist()])[place.reshape(-1)]

    def excess(self, flow: Integers) -> Integers:
        """(N,) supply of each node minus its outflow plus its inflow.

        Parameters
        ----------
        flow
            (A,) int64 units on each arc. The result is zero at every node that the flow balances.
        """
        left = self.supply.copy()
        np.subtract.at(left, self.tail, flow)
        np.add.at(left, self.head, flow)
        return left

    def is_flow(self, flow: Integers) -> bool:
        """Whether a flow keeps all bounds and balances every node.

        Parameters
        ----------
        flow
            (A,) int64 units on each arc.
        """
        return bool((flow >= self.lower).all() and (flow <= self.upper).all() and not self.excess(flow).any())

    def split_nodes(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Cut a vector over all nodes (potentials) into one array per block of nodes.

        Parameters
        ----------
        values
            (N,) one value per node. The arrays returned are views of it, by name of the block.
        """
        return {name: values[block.slice] for name, block in self.node_blocks.items()}

    def split_arcs(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Cut a vector over all arcs (flows, reduced costs) into one array per block of arcs.

        Parameters
        ----------
        values
            (A,) one value per arc. The arrays returned are views of it, by name of the block.
        """
        return {name: values[block.slice] for name, block in self.arc_blocks.items()}

    def reduced_costs(self, potentials: Integers) -> Integers:
        """(A,) ``cost - potential[tail] + potential[head]``: what one more unit on each arc would cost.

        Parameters
        ----------
        potentials
            (N,) int64 dual value of each node, in units of ``cost``.
        """
        return self.cost - potentials[self.tail] + potentials[self.head]

    def arrays(self) -> LinearProgramArrays:
        """Lower the network to solver arrays without names: rows are nodes, columns are arcs; integer costs."""
        return LinearProgramArrays(
            matrix=self.incidence().astype(np.float64),
            row_lower=self.supply.astype(np.float64),
            row_upper=self.supply.astype(np.float64),
            column_lower=self.lower.astype(np.float64),
            column_upper=self._float_upper(),
            cost=self.cost.astype(np.float64),
            offset=0.0,
            integrality=np.zeros(self.arc_count, bool),
            maximize=False,
        )

    def to_linear_program(self) -> LinearProgram:
        """Lower the network to a linear program with the same blocks: rows are nodes, columns are arcs."""
        program = LinearProgram(self.name)
        upper = self._float_upper()
        flows = [
            program.variables(b.name, b.count, lower=self.lower[b.slice], upper=upper[b.slice], labels=b.labels)
            for b in self.arc_blocks.values()
        ]
        columns = np.concatenate([flow.column for flow in flows]) if flows else np.zeros(0, np.int64)
        flow = Variables(columns)
        balance = flow.sum_by(self.tail, self.node_count) - flow.sum_by(self.head, self.node_count)
        for block in self.node_blocks.values():
            program.constrain(block.name, balance[block.slice], "==", self.supply[block.slice], labels=block.labels)
        program.minimize((flow * self.stated_cost()).sum() + float(self.constant))
        return program

    def to_pulp(self) -> pulp.LpProblem:
        """The same problem as a PuLP problem."""
        return self.to_linear_program().to_pulp()

    def to_networkx(self) -> nx.MultiDiGraph[int]:
        """Return the network as a networkx graph: nodes with ``demand``, arcs with ``lower``, ``capacity``, ``weight``.

        Nodes are numbers, with labels as ``name``; keys of arcs are their numbers here. An arc without an upper bound
        has no ``capacity``; weights are the integer costs.
        """
        import networkx as nx

        graph = nx.MultiDiGraph(name=self.name)
        for node, (label, supply) in enumerate(zip(self.node_names, self.supply.tolist(), strict=True)):
            graph.add_node(node, demand=-supply, name=label)
        columns = (self.tail, self.head, self.lower, self.upper, self.cost)
        for arc, (tail, head, low, high, cost) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            capacity = {} if high == UNBOUNDED else {"capacity": high}
            graph.add_edge(tail, head, key=arc, lower=low, weight=cost, **capacity)
        return graph

    def _float_upper(self) -> Floats:
        return np.where(self.upper == UNBOUNDED, np.inf, self.upper.astype(np.float64))
