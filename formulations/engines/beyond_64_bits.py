"""Solve networks with costs beyond 64 bits exactly: each solve takes the next digits of the reduced costs.

Costs are rounded to a unit that is coarse enough for the engine. The potentials found turn the true costs into reduced
costs. In an optimum an arc whose reduced cost exceeds (nodes + 1) units stays at its bound, so larger values may be
clipped. The clipped reduced costs are solved again in a finer unit, until the unit is 1.

Source: iterative refinement of linear programs, Gleixner, Steffy and Wolter (2016), with the proximity of network
flows (Ahuja, Magnanti and Orlin 1993, section 10.3) in place of their scaling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.engines import solve
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.solver_outcome import EngineError, Outcome, SolveOptions, Status

#: Costs up to this are exact in floating point too, and so are their sums along short paths.
_LARGEST = 2**50
#: Costs along a path stay below this.
_PATH = 2**58


def fits(network: FlowNetwork, cost: NDArray[Any]) -> bool:
    """Whether engines can take the costs as they are."""
    largest = max(int(cost.max(initial=0)), -int(cost.min(initial=0)))
    return largest <= _LARGEST and largest * (network.node_count + 1) < _PATH


def solve_wide(network: FlowNetwork, cost: NDArray[Any], engine: str, options: SolveOptions | None = None) -> Outcome:
    """Solve a network with other costs, (A,) integers of any size.

    Returns: objective, duals and reduced costs are those of ``cost``: Python integers where 64 bits do not suffice.
    """
    if fits(network, cost):
        return solve(replace(network, cost=cost.astype(np.int64)), engine, options)
    true, nodes = cost.astype(object), network.node_count + 1
    reduced, pi = true, np.zeros(network.node_count, dtype=object)
    reach: int | None = None  # reduced costs beyond this do not matter
    while True:
        cut = reduced if reach is None else np.minimum(np.maximum(reduced, -reach), reach)
        unit = max(1, -(-max(int(cut.max()), -int(cut.min())) // min(_LARGEST, _PATH // nodes)))
        rounded = ((2 * cut + unit) // (2 * unit)).astype(np.int64)
        outcome = solve(replace(network, cost=rounded), engine, options)
        if outcome.status is not Status.OPTIMAL or outcome.values is None or outcome.duals is None:
            return replace(outcome, objective=None, bound=None, duals=None, reduced_costs=None)
        pi = pi + unit * outcome.duals.astype(object)
        reduced = true - pi[network.tail] + pi[network.head]
        if unit == 1:
            break
        reach = 2 * nodes * unit
    flow = outcome.values.astype(np.int64)
    if ((reduced > 0) & (flow > network.lower)).any() or ((reduced < 0) & (flow < network.upper)).any():
        raise EngineError("refined costs left no optimum in exact integers; please report this with the network")
    objective = sum(c * x for c, x in zip(true.tolist(), flow.tolist(), strict=True) if x)
    return replace(outcome, objective=objective, bound=objective, values=flow, duals=pi, reduced_costs=reduced)
