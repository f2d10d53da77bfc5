"""A flow network as a problem in exact numbers: flows of arcs, balance of nodes, total cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from flowlex.validation.proofs.exact_program import (
    Bounds,
    ColumnBlock,
    Exact,
    ExactProgram,
    Labels,
    Objective,
    Positions,
    RowBlock,
    Whole,
)


def network_program(
    ends: tuple[Positions, Positions],
    bounds: tuple[Whole, Whole, NDArray[np.bool_]],
    cost: Whole,
    supply: Whole,
    nodes: Callable[[], list[str]],
    labels: Callable[[], Sequence[Labels]] = list,
) -> ExactProgram:
    """Columns ``flow`` by arc; rows ``node``: what leaves a node minus what enters it is its supply; ``cost``.

    Parameters
    ----------
    ends
        (m,) nodes where arcs start and end.
    bounds
        (m,) least and most flow, and arcs without an upper bound.
    cost, supply
        (m,) cost of a unit of flow; (n,) units that enter at a node.
    nodes, labels
        Names of the nodes; labels of the arcs by level.
    """
    (tail, head), (lower, upper, free) = ends, bounds
    arcs, one = len(tail), Fraction(1)
    real = np.flatnonzero(tail != head)  # a loop leaves the node that it enters
    rows, columns = np.concatenate([tail[real], head[real]]), np.concatenate([real, real])
    signs = np.repeat(np.array([1, -1]), len(real))
    return ExactProgram(
        [ColumnBlock("flow", 0, arcs, lambda: list(map(str, range(arcs))), labels)],
        Bounds(Exact(lower), np.zeros(arcs, bool)),
        Bounds(Exact(np.where(free, 0, upper)), free),
        np.ones(arcs, bool),
        {"node": RowBlock("node", len(supply), "==", rows, columns, signs, supply, one, nodes)},
        [Objective("cost", np.arange(arcs), cost, 0, one)],
    )
