"""Answers of floating-point engines to flow networks, with their integers restored and checked."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from flowlex.formulations.arrays import Integers
from flowlex.formulations.engines.magnitudes import check_magnitudes
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.outcome import EngineError, Outcome, Status

__all__ = ["check_floats", "exact_potentials", "in_integers"]

_EXACT = 2**53
_NEAR = 1e-5


def in_integers(network: FlowNetwork, outcome: Outcome, started: float) -> Outcome:
    """Flows and potentials of an answer as exact integers.

    Vertices of a network polytope and of its dual are integral, and the solver returns a vertex; rounding only
    removes floating-point dust. An answer further from integers than that is refused, not rounded.
    """
    if outcome.values is None:
        return outcome
    flow = np.rint(outcome.values).astype(np.int64)
    optimal, off = outcome.status is Status.OPTIMAL, float(np.abs(outcome.values - flow).max(initial=0.0))
    if optimal and off > _NEAR:
        raise EngineError(
            f"{outcome.engine} ({outcome.algorithm}) returned a flow {off:.2g} away from integers, so no vertex; "
            "use algorithm='simplex' or engine 'network'"
        )
    if not network.is_flow(flow):
        if optimal:
            raise EngineError(
                f"{outcome.engine} ({outcome.algorithm}) returned flows that do not balance in exact integers; "
                "use engine 'network'"
            )
        seconds = time.perf_counter() - started  # stopped away from any vertex
        kept = {"algorithm": outcome.algorithm, "message": outcome.message}
        return Outcome(Status.TIME_LIMIT, outcome.engine, seconds=seconds, **kept)  # type: ignore[arg-type]
    objective = network.total_cost(flow)
    answer = replace(outcome, objective=objective, bound=None, values=flow, seconds=time.perf_counter() - started)
    if not optimal:
        return replace(answer, duals=None, reduced_costs=None)
    start = np.zeros(network.node_count) if outcome.duals is None else outcome.duals
    potentials = exact_potentials(network, flow, np.rint(start).astype(np.int64))
    return replace(answer, bound=objective, duals=potentials, reduced_costs=network.reduced_costs(potentials))


def exact_potentials(network: FlowNetwork, flow: Integers, start: Integers, cost: Integers | None = None) -> Integers:
    """Integer potentials that prove ``flow`` optimal: shortest paths in the residual network.

    Parameters
    ----------
    start
        A guess, usually the solver's rounded duals; with a good one this only checks.
    cost
        (A,) costs to judge by, of any size; by default those of the network.

    Raises
    ------
    EngineError
        The residual network has a negative cycle, so the flow is not optimal.
    """
    forward, backward = flow < network.upper, flow > network.lower
    tail = np.concatenate([network.tail[forward], network.head[backward]])
    head = np.concatenate([network.head[forward], network.tail[backward]])
    each = network.cost if cost is None else cost
    length = np.concatenate([each[forward], -each[backward]])
    distance = -start
    for _ in range(network.node_count + 1):
        candidate = distance[tail] + length
        better = candidate < distance[head]
        if not better.any():
            return -distance
        np.minimum.at(distance, head[better], candidate[better])
    raise EngineError("the solver's flow is not optimal in exact integers; use engine 'network'")


def check_floats(network: FlowNetwork) -> None:
    """Refuse numbers that floating point does not hold exactly."""
    check_magnitudes(network)
    bounded = network.upper[network.upper != UNBOUNDED]
    columns = (network.cost, "cost"), (network.supply, "supply"), (network.lower, "lower bound"), (bounded, "capacity")
    for numbers, what in columns:
        largest = max(int(numbers.max(initial=0)), -int(numbers.min(initial=0)))
        if largest >= _EXACT:
            raise EngineError(
                f"a {what} of {largest} is not exact in floating point (limit 2**53); use engine 'network'"
            )
