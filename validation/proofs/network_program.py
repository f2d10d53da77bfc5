"""A flow network as a problem in exact numbers: flows of arcs, balance of nodes, total cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from flowlex.validation.proofs.exact_program import Bounds, Exact, ExactProgram, Labels, Positions, Whole
from flowlex.validation.proofs.program_builder import ProgramBuilder


def network_program(
    ends: tuple[Positions, Positions],
    bounds: tuple[Whole, Whole, NDArray[np.bool_]],
    cost: Whole,
    supply: Whole,
    nodes: Callable[[], list[str]],
    labels: Callable[[], Sequence[Labels]] = list,
) -> ExactProgram:
    """Columns ``flow`` by arc; rows ``node``: what leaves a node minus what enters it is its supply; ``cost``.

    ``bounds``: (m,) least and most flow, and arcs without an upper bound. ``supply``: (n,) units that enter at a node.
    """
    (tail, head), (lower, upper, free) = ends, bounds
    arcs, of = np.arange(len(tail)), ProgramBuilder()
    most = Bounds(Exact(np.where(free, 0, upper)), free)
    of.columns("flow", labels, len(arcs), texts=lambda: list(map(str, range(len(arcs)))), lower=lower, upper=most)
    real = arcs[tail != head]  # a loop leaves the node that it enters
    of.rows("node", "==", nodes, supply, (tail[real], real, 1), (head[real], real, -1), empty=True)
    of.objective("cost", (arcs, cost))
    return of.program()
