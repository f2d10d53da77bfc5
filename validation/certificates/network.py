"""Certificates of flow networks, in exact integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.expression import Integers
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork, exact_dot
from flowlex.formulations.outcome import Outcome, Status
from flowlex.validation.certificates.certificate import Certificate, Check

__all__ = ["certify_network", "certify_network_infeasible"]


def certify_network(network: FlowNetwork, outcome: Outcome) -> Certificate:
    """Prove or refute an outcome from the network alone: primal, dual, and their equal objectives.

    Checks: flow conservation, arc bounds, the stated objective, the sign of every reduced cost (complementary
    slackness), and the dual objective. An infeasible outcome is proven by its cut.
    """
    if outcome.status is Status.INFEASIBLE and outcome.infeasibility is not None:
        return certify_network_infeasible(network, outcome.infeasibility.nodes)
    flow, potentials = outcome.values, outcome.duals
    if flow is None or outcome.objective is None:
        return Certificate("feasible", True, (Check("has an answer", False, detail=f"status {outcome.status}"),))
    checks = [_conservation(network, flow), *_bounds(network, flow), _objective(network, flow, outcome.objective)]
    if outcome.status is not Status.OPTIMAL or potentials is None:
        return Certificate("feasible", True, tuple(checks))
    reduced = network.reduced_costs(potentials)
    checks += [*_slackness(network, flow, reduced), _dual_objective(network, potentials, reduced, outcome.objective)]
    return Certificate("optimal", True, tuple(checks))


def certify_network_infeasible(network: FlowNetwork, nodes: tuple[str, ...]) -> Certificate:
    """Prove that a set of nodes cannot be balanced: its supply exceeds what its arcs can carry."""
    position = {name: index for index, name in enumerate(network.node_names)}
    side = np.zeros(network.node_count, bool)
    side[[position[name] for name in nodes]] = True
    shortage = max(_shortage(network, side), _shortage(network, ~side))
    detail = f"{len(nodes)} nodes, short by {shortage}"
    return Certificate("infeasible", True, (Check("a cut is overloaded", shortage > 0, shortage, detail),))


def _shortage(network: FlowNetwork, inside: NDArray[np.bool_]) -> int:
    leaving = network.upper[inside[network.tail] & ~inside[network.head]].tolist()
    entering = network.lower[~inside[network.tail] & inside[network.head]].tolist()
    if UNBOUNDED in leaving:
        return -1
    return int(sum(network.supply[inside].tolist()) + sum(entering) - sum(leaving))


def _conservation(network: FlowNetwork, flow: Integers) -> Check:
    excess = -network.supply.copy()
    np.add.at(excess, network.tail, flow)
    np.subtract.at(excess, network.head, flow)
    return _all_zero("flow conservation at every node", excess, network.node_names)


def _bounds(network: FlowNetwork, flow: Integers) -> list[Check]:
    below, above = np.maximum(network.lower - flow, 0), np.where(flow > network.upper, flow - network.upper, 0)
    return [
        _all_zero("flow at least the lower bound", below, network),
        _all_zero("flow at most the capacity", above, network),
    ]


def _objective(network: FlowNetwork, flow: Integers, stated: float | int) -> Check:
    cost = network.total_cost(flow)
    return Check("cost recomputed from the flow", cost == stated, abs(cost - int(stated)), f"{cost} (stated {stated})")


def _slackness(network: FlowNetwork, flow: Integers, reduced: Integers) -> list[Check]:
    cheaper_up = np.where(flow < network.upper, np.maximum(-reduced, 0), 0)
    cheaper_down = np.where(flow > network.lower, np.maximum(reduced, 0), 0)
    return [
        _all_zero("no arc with room has a negative reduced cost", cheaper_up, network),
        _all_zero("no arc with flow to spare has a positive reduced cost", cheaper_down, network),
    ]


def _dual_objective(network: FlowNetwork, potentials: Integers, reduced: Integers, objective: float | int) -> Check:
    finite = network.upper != UNBOUNDED
    dual = (
        exact_dot(network.supply, potentials)
        + exact_dot(network.lower, np.maximum(reduced, 0))
        + exact_dot(network.upper[finite], np.minimum(reduced[finite], 0))
    )
    detail = f"{dual} = {objective}" if dual == objective else f"{dual}, primal {objective}"
    return Check("dual objective equals the cost", dual == objective, abs(dual - int(objective)), detail)


def _all_zero(name: str, violation: Integers, where: FlowNetwork | list[str]) -> Check:
    size = np.abs(violation)
    worst = int(size.max(initial=0))
    if not worst:
        return Check(name, True)
    first = int(np.argmax(size))
    place = where.describe_arc(first) if isinstance(where, FlowNetwork) else where[first]
    return Check(name, False, worst, f"{place} is off by {worst}")
