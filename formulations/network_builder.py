"""Declaring a flow network block by block."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from flowlex.formulations.block_labels import check_declared, check_labels
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.node_arc_blocks import UNBOUNDED, Block, arc_columns, integers, node_block
from flowlex.formulations.program_arrays import Integers


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
        """Declare ``count`` nodes and return their numbers.

        Parameters
        ----------
        name
            Name of the block, not used before and among ``rows`` where those are given.
        count
            Number of nodes, at least 0.
        supply
            One integer or (count,) integers, negative for a demand.
        labels
            One label per node, or a tuple of (count,) arrays, all different; numbers from 0 when omitted.

        Raises
        ------
        ValueError
            The name is taken or not declared, a supply is not an integer, or the number of supplies or labels is wrong.
        """
        if name in self._node_blocks:
            raise ValueError(f"{self.name}: nodes named {name!r} exist already")
        check_declared(self.name, "nodes", name, self.rows)
        start = self.node_count
        self._node_blocks[name] = node_block(name, start, count, labels)
        self._supply.append(integers(supply, count, f"supply of {name}"))
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
        """Declare arcs (tails and heads broadcast against each other) and return their numbers.

        Parameters
        ----------
        name
            Name of the block, not used before and among ``columns`` where those are given.
        tail, head
            Node numbers as ``nodes`` returns them: (count,), or one node for all arcs; ``build`` checks them.
        lower, upper, cost
            One integer or (count,) integers; ``upper`` is ``UNBOUNDED`` for arcs without capacity.
        labels
            One label per arc, or a tuple of (count,) arrays; numbers from 0 when omitted.

        Raises
        ------
        ValueError
            The name is taken or not declared, a number is not an integer of 64 bits, or a length does not match.
        """
        if name in self._arc_blocks:
            raise ValueError(f"{self.name}: arcs named {name!r} exist already")
        check_declared(self.name, "arcs", name, self.columns)
        columns = arc_columns(name, tail, head, lower, upper, cost)
        count = len(columns[0])
        labels = check_labels(name, count, labels)
        start = sum(block.count for block in self._arc_blocks.values())
        self._arc_blocks[name] = Block(name, start, count, labels)
        self._arcs.append(columns)
        return np.arange(start, start + count)

    def build(self, *, unit: Fraction = Fraction(1), constant: Fraction = Fraction(0)) -> FlowNetwork:
        """Check the network and return it; see `FlowNetwork` for unit and constant.

        Parameters
        ----------
        unit
            Value of one unit of cost in the objective.
        constant
            Number that is added to the objective.

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
        network = FlowNetwork(
            self.name, tail, head, lower, upper, cost, supply, *blocks, unit, constant, similar_neighbours=True
        )
        network.check()
        return network
