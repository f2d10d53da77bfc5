"""A minimum-cost-flow problem as arrays of arcs and nodes, exact in integers.

    minimise    sum_a cost[a] * flow[a]
    subject to  sum_{a out of v} flow[a] - sum_{a into v} flow[a] = supply[v]      for every node v
                lower[a] <= flow[a] <= upper[a]                                    for every arc a

The constraint matrix is the node-arc incidence matrix: every column holds one +1 and one -1, so it is
totally unimodular and an integer optimum always exists. Nodes and arcs are declared in named blocks; a block's
name is the name of its balance constraints (nodes) or of its flow variables (arcs) in every lowered form.

Costs are whole multiples of a ``unit``, so that engines stay exact; what a reader or a solver of others sees
(`to_pulp`, `to_linear_program`) states ``unit * cost @ flow + constant``, the objective of the problem.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from flowlex.formulations.arrays import Floats, Integers, LinearProgramArrays, exact_dot, frozen
from flowlex.formulations.display import blocks_html
from flowlex.formulations.expression import Variables
from flowlex.formulations.linear_program import Labels, LinearProgram, block_labels, check_declared, check_labels

if TYPE_CHECKING:
    import networkx as nx
    import pulp

__all__ = ["UNBOUNDED", "Block", "FlowNetwork", "NetworkBuilder"]

#: Upper bound of an arc without capacity.
UNBOUNDED = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Block:
    """Consecutive nodes or arcs declared under one name."""

    name: str
    start: int
    count: int
    labels: Labels = None

    @property
    def slice(self) -> slice:
        """Where the block lies."""
        return slice(self.start, self.start + self.count)

    def names(self) -> list[str]:
        """One name per member, ``name[label]``."""
        return [f"{self.name}[{label}]" for label in block_labels(self.count, self.labels)]


@dataclass(frozen=True, eq=False)
class FlowNetwork:
    """A minimum-cost-flow problem (see the module). Build one with `NetworkBuilder` or `from_arrays`.

    Its arrays are read-only; another network is made with `dataclasses.replace`.

    Attributes
    ----------
    tail, head
        (A,) int64 node numbers.
    lower, upper, cost
        (A,) int64; ``upper`` is `UNBOUNDED` for an arc without capacity.
    supply
        (N,) int64, negative for a demand; sums to zero.
    unit, constant
        What one unit of cost stands for, and what is added to it: the problem's objective is
        ``unit * cost @ flow + constant``. Engines and duals speak of ``cost`` alone.
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
        """Make a network with one block of nodes (``node``) and one of arcs (``flow``)."""
        builder = NetworkBuilder(name)
        supplies = np.atleast_1d(_integers(supply, None, "supply"))
        builder.nodes("node", len(supplies), supply=supplies, labels=node_labels)
        builder.arcs("flow", tail, head, lower=lower, upper=upper, cost=cost)
        return builder.build()

    def __repr__(self) -> str:
        return f"<flow network {self.name!r}: {self.node_count} nodes, {self.arc_count} arcs>"

    def _repr_html_(self) -> str:
        return blocks_html(repr(self), nodes=self.node_blocks, arcs=self.arc_blocks)

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

    def arc_names(self) -> list[str]:
        """Names of all arcs, in order."""
        return [name for block in self.arc_blocks.values() for name in block.names()]

    def row_names(self) -> list[str]:
        """Names of the rows of every lowered form: the nodes."""
        return self.node_names

    def column_names(self) -> list[str]:
        """Names of the columns of every lowered form: the arcs."""
        return self.arc_names()

    def describe_arc(self, arc: int) -> str:
        """Name an arc by its two ends, for messages."""
        return f"{self.node_names[self.tail[arc]]} -> {self.node_names[self.head[arc]]}"

    def incidence(self) -> scipy.sparse.csc_array:
        """Return the (N, A) node-arc incidence matrix: +1 at the tail, -1 at the head, empty for a loop."""
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
        """Return the exact cost of a flow, as a Python integer."""
        return exact_dot(self.cost, flow)

    def stated_cost(self) -> Floats:
        """(A,) cost of each arc in the problem's own measure, the nearest floats."""
        distinct, place = np.unique(self.cost, return_inverse=True)
        return np.array([float(self.unit * cost) for cost in distinct.tolist()])[place.reshape(-1)]

    def excess(self, flow: Integers) -> Integers:
        """(N,) what is left at each node: supply, less what the flow takes out, plus what it brings in."""
        left = self.supply.copy()
        np.subtract.at(left, self.tail, flow)
        np.add.at(left, self.head, flow)
        return left

    def is_flow(self, flow: Integers) -> bool:
        """Whether a flow keeps all bounds and balances every node."""
        return bool((flow >= self.lower).all() and (flow <= self.upper).all() and not self.excess(flow).any())

    def split_nodes(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Cut a vector over all nodes (potentials) into one array per block of nodes."""
        return {name: values[block.slice] for name, block in self.node_blocks.items()}

    def split_arcs(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Cut a vector over all arcs (flows, reduced costs) into one array per block of arcs."""
        return {name: values[block.slice] for name, block in self.arc_blocks.items()}

    def reduced_costs(self, potentials: Integers) -> Integers:
        """Return ``cost - potential[tail] + potential[head]``: what one more unit on each arc would cost."""
        return self.cost - potentials[self.tail] + potentials[self.head]

    def arrays(self) -> LinearProgramArrays:
        """Lower the network to solver arrays without names: rows are nodes, columns are arcs; whole costs."""
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
        from flowlex.formulations.convert import to_pulp

        stated = replace(self.arrays(), cost=self.stated_cost(), offset=float(self.constant))
        return to_pulp(stated, self.name, self.column_names(), self.row_names())[0]

    def to_networkx(self) -> nx.MultiDiGraph[int]:
        """The same problem as a networkx graph: ``demand`` on nodes; ``lower``, ``capacity``, whole ``weight`` on arcs.

        Nodes are numbers; keys of arcs are their numbers here. An arc without capacity has no ``capacity``.
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


class NetworkBuilder:
    """Declares nodes and arcs block by block.

    >>> net = NetworkBuilder("assignment")
    >>> worker = net.nodes("worker", 3, supply=1)
    >>> sink = net.nodes("sink", 1, supply=-3)
    >>> _ = net.arcs("works", worker, sink, upper=1, cost=[4, 2, 7])
    >>> network = net.build()

    Parameters
    ----------
    name
        Name of the problem; appears in exported files.
    rows, columns
        Names that blocks of nodes and of arcs may have (those of a model's equations); any when None.
    """

    def __init__(
        self, name: str, *, rows: Collection[str] | None = None, columns: Collection[str] | None = None
    ) -> None:
        self.columns: Collection[str] | None
        self.rows: Collection[str] | None
        self.name, self.rows, self.columns = name, rows, columns
        self._node_blocks: dict[str, Block] = {}
        self._arc_blocks: dict[str, Block] = {}
        self._supply: list[Integers] = []
        self._arcs: list[tuple[Integers, ...]] = []

    @property
    def node_count(self) -> int:
        """Nodes declared so far."""
        return sum(block.count for block in self._node_blocks.values())

    def nodes(self, name: str, count: int, *, supply: ArrayLike = 0, labels: Any = None) -> Integers:
        """Declare ``count`` nodes and return their numbers."""
        if name in self._node_blocks:
            raise ValueError(f"{self.name}: nodes named {name!r} exist already")
        check_declared(self.name, "nodes", name, self.rows)
        check_labels(name, count, labels)
        block = Block(name, self.node_count, count, labels)
        numbers = isinstance(labels, np.ndarray) and labels.dtype.kind in "iu"
        if labels is not None and len(np.unique(labels) if numbers else set(block_labels(count, labels))) < count:
            raise ValueError(f"{self.name}: two nodes named {name!r} have one label; a node's name says which it is")
        start = block.start
        self._node_blocks[name] = block
        self._supply.append(_integers(supply, count, f"supply of {name}"))
        return np.arange(start, start + count)

    def arcs(
        self,
        name: str,
        tail: ArrayLike,
        head: ArrayLike,
        *,
        lower: ArrayLike = 0,
        upper: ArrayLike = UNBOUNDED,
        cost: ArrayLike = 0,
        labels: Any = None,
    ) -> Integers:
        """Declare arcs (tails and heads broadcast against each other) and return their numbers."""
        if name in self._arc_blocks:
            raise ValueError(f"{self.name}: arcs named {name!r} exist already")
        check_declared(self.name, "arcs", name, self.columns)
        tails, heads = (
            np.atleast_1d(_integers(v, None, f"{what} of {name}")) for v, what in ((tail, "tail"), (head, "head"))
        )
        if len(tails) != len(heads) and 1 not in (len(tails), len(heads)):
            raise ValueError(f"{name}: {len(tails)} tails and {len(heads)} heads; give as many, or one of either")
        ends = (tails, heads) if len(tails) == len(heads) else np.broadcast_arrays(tails, heads)
        count = len(ends[0])
        check_labels(name, count, labels)
        bounds = [
            _integers(v, count, f"{what} of {name}") for v, what in ((lower, "lower"), (upper, "upper"), (cost, "cost"))
        ]
        start = sum(block.count for block in self._arc_blocks.values())
        self._arc_blocks[name] = Block(name, start, count, labels)
        self._arcs.append((*ends, *bounds))
        return np.arange(start, start + count)

    def build(self, *, unit: Fraction = Fraction(1), constant: Fraction = Fraction(0)) -> FlowNetwork:
        """Check the whole and return it; see `FlowNetwork` for unit and constant.

        Raises
        ------
        ValueError
            An end is no node, a lower bound exceeds its upper bound, or the supplies do not sum to zero;
            the first offender is named.
        """
        none = np.zeros(0, np.int64)
        columns = [np.concatenate(c) for c in zip(*self._arcs, strict=True)] if self._arcs else [none] * 5
        tail, head, lower, upper, cost = columns
        supply = np.concatenate(self._supply) if self._supply else none
        for array in (*columns, supply):  # made here, so the network need not copy them
            array.flags.writeable = False
        blocks = dict(self._node_blocks), dict(self._arc_blocks)
        network = FlowNetwork(self.name, tail, head, lower, upper, cost, supply, *blocks, unit, constant)
        _check(network)
        return network


def _check(network: FlowNetwork) -> None:
    for ends, what in ((network.tail, "tail"), (network.head, "head")):
        wrong = (ends < 0) | (ends >= network.node_count)
        if wrong.any():
            arc = int(np.argmax(wrong))
            raise ValueError(f"arc {arc}: {what} {ends[arc]} is no node; there are {network.node_count}, from 0")
    crossed = network.lower > network.upper
    if crossed.any():
        arc = int(np.argmax(crossed))
        bounds = f"lower bound {network.lower[arc]} exceeds upper bound {network.upper[arc]}"
        raise ValueError(f"arc {arc} ({network.describe_arc(arc)}): {bounds}")
    total = sum(network.supply.tolist())
    if total:
        raise ValueError(f"{network.name}: supplies sum to {total}, they must sum to 0")


def _integers(value: ArrayLike, count: int | None, what: str) -> Integers:
    array = np.asarray(value)
    _check_integral(array, what)
    integers = array.astype(np.int64)
    if integers.ndim > 1 or (count is not None and integers.ndim and len(integers) != count):
        wanted = "one number or a vector" if count is None else f"one number or {count}"
        raise ValueError(f"{what}: expected {wanted}, got shape {integers.shape}")
    return integers if count is None or integers.ndim else np.broadcast_to(integers, (count,))


def _check_integral(array: NDArray[Any], what: str) -> None:
    kind = array.dtype.kind
    if not array.size or kind in "ib":
        return
    if kind == "f":
        if not (np.rint(array) == array).all():  # NaN too
            raise ValueError(f"{what}: networks are exact, every number must be an integer; scale the data first")
        if float(np.abs(array).max()) > 2.0**53:
            raise ValueError(f"{what}: floating-point numbers beyond 2**53 are not exact; pass integers")
        return
    numbers = array.ravel().tolist()
    if not all(isinstance(number, int | np.integer) for number in numbers):
        raise ValueError(f"{what}: networks are exact, every number must be an integer, not {array.dtype}")
    largest = max(numbers, key=abs)
    if abs(largest) > UNBOUNDED:
        raise ValueError(f"{what}: {largest} does not fit 64 bits; use a coarser unit")
