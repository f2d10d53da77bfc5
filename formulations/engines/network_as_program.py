"""A flow network solved as a linear program, with its integers restored and checked."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from flowlex.formulations.engines.highs import solve_arrays
from flowlex.formulations.engines.network import check_magnitudes
from flowlex.formulations.expression import Floats, Integers
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.outcome import EngineError, EngineName, Outcome, SolveOptions, Status

__all__ = ["solve_network_as_program"]

_EXACT = 2**53
_NEAR = 1e-5


def solve_network_as_program(network: FlowNetwork, engine: EngineName, options: SolveOptions) -> Outcome:
    """Solve through HiGHS or PuLP; flows and potentials come back as exact integers.

    Vertices of a network polytope and of its dual are integral, and the solver returns a vertex; rounding only
    removes floating-point dust. An answer further from integers than that is refused, not rounded.
    """
    started = time.perf_counter()
    check_magnitudes(network)
    _check_floats(network)
    if engine == "highs":
        options.only("highs", "time_limit_s", "gap", "seed", "threads", "log", "algorithm")
        outcome = solve_arrays(network.arrays(), options)
    else:
        from flowlex.formulations.engines.pulp import solve_with_pulp

        outcome = solve_with_pulp(network.to_linear_program(), options, explain=False)
    if outcome.status is Status.INFEASIBLE:
        from flowlex.formulations.engines.infeasibility import explain_network

        reason = explain_network(network)
        return replace(outcome, infeasibility=reason, message=reason.message)
    if not outcome.status.has_answer or outcome.values is None:
        return outcome
    return _in_integers(network, outcome, started)


def _in_integers(network: FlowNetwork, outcome: Outcome, started: float) -> Outcome:
    assert outcome.values is not None
    if outcome.status is not Status.OPTIMAL and not _is_flow(network, np.rint(outcome.values).astype(np.int64)):
        return _without_answer(outcome, time.perf_counter() - started)  # stopped away from any vertex
    optimal = outcome.status is Status.OPTIMAL
    flow = _rounded(outcome.values, "flow", outcome) if optimal else np.rint(outcome.values).astype(np.int64)
    objective = network.total_cost(flow)
    answer = replace(outcome, objective=objective, bound=None, values=flow, seconds=time.perf_counter() - started)
    if not optimal:
        return replace(answer, duals=None, reduced_costs=None)
    start = np.zeros(network.node_count) if outcome.duals is None else outcome.duals
    potentials = exact_potentials(network, flow, np.rint(start).astype(np.int64))
    return replace(answer, bound=objective, duals=potentials, reduced_costs=network.reduced_costs(potentials))


def _is_flow(network: FlowNetwork, flow: Integers) -> bool:
    within = (flow >= network.lower) & (flow <= network.upper)
    balance = network.supply.copy()
    np.subtract.at(balance, network.tail, flow)
    np.add.at(balance, network.head, flow)
    return bool(within.all() and not balance.any())


def _without_answer(outcome: Outcome, seconds: float) -> Outcome:
    return Outcome(
        Status.TIME_LIMIT, outcome.engine, algorithm=outcome.algorithm, seconds=seconds, message=outcome.message
    )


def exact_potentials(network: FlowNetwork, flow: Integers, start: Integers) -> Integers:
    """Integer potentials that prove ``flow`` optimal: shortest paths in the residual network.

    Parameters
    ----------
    start
        A guess, usually the solver's rounded duals; with a good one this only checks.

    Raises
    ------
    EngineError
        The residual network has a negative cycle, so the flow is not optimal.
    """
    forward, backward = flow < network.upper, flow > network.lower
    tail = np.concatenate([network.tail[forward], network.head[backward]])
    head = np.concatenate([network.head[forward], network.tail[backward]])
    cost = np.concatenate([network.cost[forward], -network.cost[backward]])
    distance = -start
    for _ in range(network.node_count + 1):
        candidate = distance[tail] + cost
        better = candidate < distance[head]
        if not better.any():
            return -distance
        np.minimum.at(distance, head[better], candidate[better])
    raise EngineError("the solver's flow is not optimal in exact integers; use engine 'network'")


def _rounded(values: Floats, what: str, outcome: Outcome) -> Integers:
    integers = np.rint(values)
    off = float(np.abs(values - integers).max(initial=0.0))
    if off > _NEAR:
        raise EngineError(
            f"{outcome.engine} ({outcome.algorithm}) returned a {what} {off:.2g} away from integers, so no vertex; "
            "use algorithm='simplex' or engine 'network'"
        )
    return integers.astype(np.int64)


def _check_floats(network: FlowNetwork) -> None:
    bounded = network.upper[network.upper != UNBOUNDED]
    for numbers, what in ((network.cost, "cost"), (network.supply, "supply"), (bounded, "capacity")):
        largest = int(np.abs(numbers).max(initial=0))
        if largest >= _EXACT:
            raise EngineError(
                f"a {what} of {largest} is not exact in floating point (limit 2**53); use engine 'network'"
            )
