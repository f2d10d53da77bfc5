"""The load-partition instance: items stored on nodes, and three ways to estimate the speed of each node.

Source: Hu, Zhu, Liu, Wang, *System information management for distributed deep-learning inference*; replicas,
item blocks and move costs are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from flowlex.instances.exact_rationals import rationals
from flowlex.instances.instance_base import (
    Instance,
    Name,
    NonNegative,
    Part,
    Positive,
    read_only,
    require_known,
    require_unique,
)

Share = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
PositiveShare = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]


class RunRecord(Part):
    """One past run: the number of items and their processing time."""

    items: Annotated[int, Field(strict=True, ge=1)] | Positive
    """How many items were processed."""
    seconds: Positive
    """How long that took, in seconds."""


class LoadNode(Part):
    """A worker; each method of capacity evaluation reads some of its fields."""

    name: Name
    configuration: NonNegative | None = None
    """Computing power by the processor's configuration, in any unit (cores, GHz times cores)."""
    cpu_free: Share | None = None
    """Idle fraction of its CPUs."""
    performance: NonNegative | None = None
    """Performance from any other evaluation, in any unit."""
    cpu_required: PositiveShare = 0.5
    """Fraction that the program needs."""
    history: tuple[RunRecord, ...] = ()
    """Past runs of the program on this node."""
    true_items_per_s: Positive | None = None
    """True speed of the node, to assess an evaluation; a scheduler does not know it."""


class Block(Part):
    """Equal items stored together; the first holder has them, the others hold replicas."""

    name: Name
    items: Annotated[int, Field(strict=True, ge=1, le=10**12)] = 1
    """Number of items."""
    holders: Annotated[tuple[Name, ...], Field(min_length=1)]
    """The nodes that hold them: the first has them, the others hold replicas."""


class Link(Part):
    """Cost of moving one item from ``source`` to ``target``."""

    source: Name
    """The sending node."""
    target: Name
    """The receiving node."""
    seconds_per_item: Annotated[float, Field(strict=True, ge=0, le=10**6, allow_inf_nan=False)]
    """Seconds to move one item."""


# Compared by identity: equal instances must stay equal whether or not this view was built.
@dataclass(frozen=True, slots=True, eq=False)
class LoadPartitionArrays:
    """The instance as arrays. Sizes: N nodes, B blocks."""

    count: NDArray[np.int64]  # (B,) items of each block
    holds: NDArray[np.bool_]  # (B, N) whether the node has a replica of the block
    home: NDArray[np.int64]  # (B,) node that the block lies on
    load: NDArray[np.int64]  # (N,) items that lie on each node
    seconds: tuple[Fraction, ...]  # distinct exact costs of moving one item, increasing from 0
    usual: int  # index in ``seconds`` of the cost of moving without a link
    cost: NDArray[np.int64]  # (N, N) index in ``seconds`` of moving an item from one node to another, 0 on the diagonal


class LoadPartitionInstance(Instance):
    """Which node processes which items?

    Attributes
    ----------
    nodes
        The workers, at least one; names are unique.
    blocks
        The items to process: blocks of equal items, with the nodes that hold them.
    links
        Seconds to move an item between two different nodes; at most one link from one node to another.
    seconds_per_item
        Seconds to move an item without a link, 0 to a million.
    """

    kind: Literal["load-partition"] = "load-partition"
    nodes: Annotated[tuple[LoadNode, ...], Field(min_length=1)]
    blocks: tuple[Block, ...] = ()
    links: tuple[Link, ...] = ()
    seconds_per_item: Annotated[float, Field(strict=True, ge=0, le=10**6, allow_inf_nan=False)] = 0.01

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = dict.fromkeys(node.name for node in self.nodes)
        require_unique((node.name for node in self.nodes), "nodes")
        require_unique((block.name for block in self.blocks), "blocks")
        for block in self.blocks:
            for holder in block.holders:
                require_known(holder, names, f"block {block.name!r} lies on node", "nodes")
            require_unique(block.holders, f"holders of block {block.name!r}")
        seen = set()
        for link in self.links:
            for end in (link.source, link.target):
                require_known(end, names, "a link names node", "nodes")
            if link.source == link.target:
                raise ValueError(f"a link leads from {link.source!r} to itself; moving to oneself is free")
            if (link.source, link.target) in seen:
                raise ValueError(f"two links lead from {link.source!r} to {link.target!r}; keep one")
            seen.add((link.source, link.target))
        return self

    @cached_property
    def arrays(self) -> LoadPartitionArrays:
        """The instance as arrays, made once."""
        index = {node.name: i for i, node in enumerate(self.nodes)}
        size = len(index)
        holds = np.zeros((len(self.blocks), size), bool)
        for b, block in enumerate(self.blocks):
            holds[b, [index[holder] for holder in block.holders]] = True
        count = np.array([block.items for block in self.blocks], np.int64)
        home = np.array([index[block.holders[0]] for block in self.blocks], np.int64)
        load = np.zeros(size, np.int64)
        np.add.at(load, home, count)
        written = np.array([0.0, self.seconds_per_item, *(link.seconds_per_item for link in self.links)])
        distinct, rank = np.unique(written, return_inverse=True)  # floats are ordered like their decimal texts
        usual = int(rank[1])
        cost = np.full((size, size), usual, np.int64)
        ends = [[index[link.source] for link in self.links], [index[link.target] for link in self.links]]
        cost[tuple(ends)] = rank[2:]
        np.fill_diagonal(cost, 0)
        return read_only(
            LoadPartitionArrays(count, holds, home, load, tuple(rationals(distinct.tolist())), usual, cost)
        )

    def summary(self) -> dict[str, str | int | float]:
        """Sizes and totals."""
        replicas = [len(block.holders) for block in self.blocks]
        return {
            "nodes": len(self.nodes),
            "blocks": len(self.blocks),
            "items": int(self.arrays.count.sum()),
            "replicas per block": float(np.mean(replicas)) if replicas else 0.0,
            "items on the fullest node": int(self.arrays.load.max()),
        }
