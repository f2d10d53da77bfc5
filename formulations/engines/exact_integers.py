"""Exact integers for flow networks: check magnitudes for engines, round and check floating-point answers."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import EngineError, Outcome, Status

#: Path costs and flows stay below this, so that no sum in the network simplex can leave 64 bits.
_SAFE = 2**60
_EXACT = 2**53
_NEAR = 1e-5


def in_integers(network: FlowNetwork, outcome: Outcome, started: float) -> Outcome:
    """Flows and potentials of an answer as exact integers.

    Vertices of a network polytope and of its dual are integral, and the solver returns a vertex, so rounding only
    removes floating-point error. An answer further from integers is refused, not rounded.
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
        seconds = time.perf_counter() - started  # stopped before it reached a vertex
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

    ``start``: a guess, usually the solver's rounded duals; with a good one this only checks.
    ``cost``: (A,) costs to judge by, of any size; by default those of the network.
    Raises `EngineError`: the residual network has a negative cycle, so the flow is not optimal.
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


def check_magnitudes(network: FlowNetwork) -> None:
    """Refuse costs or capacities whose sums could leave 64 bits, naming the largest.

    Raises `EngineError`: with the offending arc and the limit.
    """
    cost = np.abs(network.cost.astype(np.float64))
    if len(cost):
        keep = min(len(cost), max(network.node_count - 1, 1))
        path = float(cost.max()) * keep
        if path >= _SAFE:  # sum the largest costs instead
            path = float(np.partition(cost, len(cost) - keep)[len(cost) - keep :].sum())
        if path >= _SAFE:
            arc = int(np.argmax(cost))
            raise EngineError(
                f"integer overflow: costs along a path can reach {path:.3g}, the limit is {_SAFE}; the largest "
                f"is {network.cost[arc]} on {network.describe_arc(arc)}. Use a coarser cost unit"
            )
    bounded = network.upper != UNBOUNDED
    flows = np.abs(network.lower.astype(np.float64)) + np.where(bounded, np.abs(network.upper.astype(np.float64)), 0)
    total = float(flows.sum()) + float(np.abs(network.supply.astype(np.float64)).sum())
    if total >= _SAFE:
        _check_large_capacities(network, total)


def _check_large_capacities(network: FlowNetwork, total: float) -> None:
    """Refuse huge capacities that are saturated (negative cost) or summed; on other arcs they are mostly harmless."""
    forced = (network.cost < 0) | (network.upper == UNBOUNDED) | (network.lower != 0)
    sizes = np.maximum(np.abs(network.lower.astype(np.float64)), np.abs(network.upper.astype(np.float64)))
    supplies = float(np.abs(network.supply.astype(np.float64)).sum())
    if float(sizes[forced].sum()) + supplies >= _SAFE or (len(sizes) and float(sizes.max()) >= 4 * _SAFE):
        arc = int(np.argmax(np.where(forced, sizes, 0)))
        raise EngineError(
            f"integer overflow: supplies and bounds sum to {total:.3g}, the limit is {_SAFE}; the largest is on "
            f"{network.describe_arc(arc)}. Use a coarser unit of flow"
        )


def finite_upper(network: FlowNetwork) -> Integers:
    """Capacities; a missing one is replaced by more than any bounded optimum can send."""
    missing = network.upper == UNBOUNDED
    if not missing.any():
        return network.upper
    sendable = int(np.abs(network.supply).sum() + np.abs(network.lower).sum() + np.abs(network.upper[~missing]).sum())
    filled = int((missing & (network.cost < 0)).sum())  # start saturated, so their capacities are summed
    if (filled + 2) * (sendable + 1) >= _SAFE:
        raise EngineError(
            f"integer overflow: {filled} arcs of negative cost have no capacity and supplies and bounds sum to "
            f"{sendable}; the limit of their product is {_SAFE}. Use a coarser unit of flow, or bound these arcs"
        )
    return np.where(missing, np.maximum(network.lower, 0) + sendable + 1, network.upper)
