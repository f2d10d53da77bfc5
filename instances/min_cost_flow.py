"""The minimum-cost-flow instance: any directed network with integer bounds, costs and supplies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from flowlex.instances.array_types import Integers, integers
from flowlex.instances.instance_base import Instance, Name, read_only, require_unique

#: Value in ``NetworkArrays.upper`` of an arc without an upper bound: the largest 64-bit integer.
UNBOUNDED = 2**63 - 1

Integer = Annotated[int, Field(strict=True, ge=-(2**63), le=2**63 - 1)]
Natural = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]


# Compared by identity: equal instances must stay equal whether or not this view was built.
@dataclass(frozen=True, slots=True, eq=False)
class NetworkArrays:
    """The network as read-only int64 arrays: N nodes, A arcs, in the order of the document."""

    # tail, head: (A,) zero-based node indices; an arc goes from tail to head
    tail: Integers
    head: Integers
    # lower, upper: (A,) bounds on the flow of each arc; ``UNBOUNDED`` in upper when there is none
    lower: Integers
    upper: Integers
    cost: Integers  # (A,) cost of a unit of flow
    supply: Integers  # (N,) units that enter at the node; negative for a demand


class NetworkInstance(Instance):
    """Which flow meets all supplies and demands at least cost?

    Arcs are given as columns of equal length. Parallel arcs, self-loops (not in the balance equations),
    negative costs and isolated nodes are allowed. Flow runs from tail to head, so bounds are at least 0; a
    link in both directions is two arcs.

    Attributes
    ----------
    supply
        (N,) units that enter at each node, negative for a demand; they sum to zero.
    tail, head
        (A,) nodes where each arc starts and ends, from 0.
    lower, upper
        (A,) bounds on the flow of each arc, at least 0; an upper bound is null for no limit.
    cost
        (A,) cost of a unit of flow.
    node_names
        (N,) names, all different; null when nodes are known by number.
    first_node
        Number of the first node in messages and tables, 0 or 1 (as in DIMACS files); arcs name nodes from 0.
    """

    kind: Literal["min-cost-flow"] = "min-cost-flow"
    supply: tuple[Integer, ...]
    tail: tuple[Natural, ...]
    head: tuple[Natural, ...]
    lower: tuple[Natural, ...]
    upper: tuple[Natural | None, ...]
    cost: tuple[Integer, ...]
    node_names: tuple[Name, ...] | None = None
    first_node: Annotated[int, Field(strict=True, ge=0, le=1)] = 0

    @model_validator(mode="after")
    def _check(self) -> NetworkInstance:
        if not self.supply:
            raise ValueError("the network has no nodes; supply needs one entry per node")
        for column in ("head", "lower", "upper", "cost"):
            if len(getattr(self, column)) != len(self.tail):
                raise ValueError(
                    f"tail has {len(self.tail)} entries but {column} has {len(getattr(self, column))}; "
                    f"each arc needs one in every column"
                )
        if self.node_names is not None:
            if len(self.node_names) != len(self.supply):
                raise ValueError(f"{len(self.node_names)} node names for {len(self.supply)} nodes")
            require_unique(self.node_names, "nodes")
        self._check_arcs()
        total = sum(self.supply)
        if total:
            raise ValueError(f"the supplies sum to {total}; they must sum to 0")
        return self

    def _check_arcs(self) -> None:
        view, nodes = self.arrays, len(self.supply)
        for column, ends in (("tail", view.tail), ("head", view.head)):
            if (arc := _first(ends >= nodes)) is not None:
                raise ValueError(
                    f"{column}[{arc}] is node {ends[arc]}, which does not exist (nodes are 0 to {nodes - 1})"
                )
        if (arc := _first(view.lower > view.upper)) is not None:
            raise ValueError(f"arc {arc}: lower {view.lower[arc]} is above upper {view.upper[arc]}")

    @cached_property
    def arrays(self) -> NetworkArrays:
        """The same data as arrays, made once."""
        upper = self.upper
        bounded = [UNBOUNDED if bound is None else bound for bound in upper] if None in upper else upper
        view = NetworkArrays(
            tail=integers(self.tail),
            head=integers(self.head),
            lower=integers(self.lower),
            upper=integers(cast("tuple[int, ...]", bounded)),
            cost=integers(self.cost),
            supply=integers(self.supply),
        )
        return read_only(view)

    @property
    def node_labels(self) -> list[str]:
        """Names of the nodes, or their numbers as text."""
        first = self.first_node
        return list(self.node_names or (str(v) for v in range(first, len(self.supply) + first)))

    @property
    def cells(self) -> int:
        """Arcs."""
        return len(self.tail)

    def summary(self) -> dict[str, str | int | float]:
        """Sizes and totals, in the order they should be printed."""
        view = self.arrays
        pairs = np.unique(np.stack([view.tail, view.head]), axis=1).shape[1]
        return {
            "nodes": view.supply.size,
            "arcs": view.tail.size,
            "sources": int(np.count_nonzero(view.supply > 0)),
            "sinks": int(np.count_nonzero(view.supply < 0)),
            "supply": sum(units for units in self.supply if units > 0),
            "parallel arcs": view.tail.size - pairs,
            "self-loops": int(np.count_nonzero(view.tail == view.head)),
            "arcs with a lower bound": int(np.count_nonzero(view.lower)),
            "arcs without upper bound": int(np.count_nonzero(view.upper == UNBOUNDED)),
            "arcs of negative cost": int(np.count_nonzero(view.cost < 0)),
            "least cost": int(view.cost.min()) if view.cost.size else 0,
            "most cost": int(view.cost.max()) if view.cost.size else 0,
        }


def _first(wrong: NDArray[np.bool_]) -> int | None:
    """Index of the first true entry, or None."""
    return int(wrong.argmax()) if wrong.any() else None
