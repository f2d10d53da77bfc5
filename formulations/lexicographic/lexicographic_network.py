"""Minimise several costs on one network in strict order: fix the optimum of one, continue with the next.

The optimal flows of a network are exactly the feasible flows that keep every arc of non-zero reduced cost at its
bound (complementary slackness with any optimal potentials). So after each stage those arcs are fixed, which
leaves a network again: every stage is solved in exact integers, without weights and without tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import EngineName, Outcome, SolveOptions, Status


@dataclass(frozen=True)
class Stage:
    """One solved stage: its network, with earlier optima fixed, and the outcome."""

    network: FlowNetwork
    outcome: Outcome


def optimal_face(network: FlowNetwork, outcome: Outcome) -> FlowNetwork:
    """The network whose feasible flows are the optimal flows of ``network``.

    Duals must be integers, since rounded duals would prove nothing.
    """
    reduced = outcome.reduced_costs
    assert outcome.values is not None and reduced is not None
    if reduced.dtype.kind not in "iO":
        raise ValueError("the duals are not integers; solve the stages with engine='network'")
    lower = np.where(reduced < 0, network.upper, network.lower)
    upper = np.where(reduced > 0, network.lower, network.upper)
    return replace(network, lower=lower, upper=upper)


def solve_lexicographic(
    network: FlowNetwork,
    costs: Sequence[Integers],
    engine: EngineName = "network",
    options: SolveOptions | None = None,
    seen: Callable[[list[Stage]], None] | None = None,
) -> list[Stage]:
    """Minimise ``costs[0]``, then ``costs[1]`` among its optima, and so on; stops at a stage without an optimum.

    The time limit holds for all stages together. ``seen`` receives the stages so far before each further one.
    """
    stages: list[Stage] = []
    face, wanted = network, options or SolveOptions()
    until = None if wanted.time_limit_s is None else processor_seconds() + wanted.time_limit_s
    for cost in costs:
        if stages:
            if seen is not None:
                seen(list(stages))
            face = optimal_face(face, stages[-1].outcome)
        face = replace(face, cost=np.asarray(cost, np.int64))
        if until is not None:
            wanted = replace(wanted, time_limit_s=max(until - processor_seconds(), 0.001))
        outcome = solve(face, engine, wanted)
        stages.append(Stage(face, outcome))
        if outcome.status is not Status.OPTIMAL:
            break
    return stages
