"""Certificates of flow networks, in exact integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.expression import Integers
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork, exact_dot
from flowlex.formulations.outcome import Outcome, Status
from flowlex.validation.certificates.certificate import Certificate, Check

__all__ = ["certify_network", "certify_network_infeasible"]

#: Sums and differences of fewer than four numbers below this stay within 64 bits.
_SAFE = 2**60


def certify_network(network: FlowNetwork, outcome: Outcome) -> Certificate:
    """Prove or refute an outcome from the network alone: primal, dual, and their equal objectives.

    Checks: flow conservation, arc bounds, the stated objective, the sign of every reduced cost (complementary
    slackness), the dual objective, and whatever else the outcome states. An infeasible one is proven by its cut.
    """
    if outcome.status is Status.INFEASIBLE and outcome.infeasibility is not None:
        return certify_network_infeasible(network, outcome.infeasibility.nodes)
    flow, potentials = outcome.values, outcome.duals
    if flow is None or outcome.objective is None:
        return Certificate("feasible", True, (Check("has an answer", False, detail=f"status {outcome.status}"),))
    shapes = [_integers("one integer flow per arc", flow, network.arc_count)]
    if potentials is not None:
        shapes.append(_integers("one integer potential per node", potentials, network.node_count))
    if not all(shape.ok for shape in shapes):
        return Certificate("feasible", True, tuple(shapes))
    flow = _wide(flow)
    checks = [_conservation(network, flow), *_bounds(network, flow), _objective(network, flow, outcome.objective)]
    if outcome.status is not Status.OPTIMAL or potentials is None:
        return Certificate("feasible", True, tuple(checks))
    potentials, cost = _wide(potentials), _wide(network.cost)
    reduced = cost - potentials[network.tail] + potentials[network.head]
    checks += [*_slackness(network, flow, reduced), _dual_objective(network, potentials, reduced, outcome.objective)]
    if outcome.bound is not None:
        off = _distance(outcome.objective, outcome.bound)
        checks.append(
            Check("the stated bound is the cost", not off, off, f"{outcome.bound} (cost {outcome.objective})")
        )
    if outcome.reduced_costs is not None:
        checks.append(_stated_reduced(network, reduced, outcome.reduced_costs))
    return Certificate("optimal", True, tuple(checks))


def certify_network_infeasible(network: FlowNetwork, nodes: tuple[str, ...]) -> Certificate:
    """Prove that a set of nodes cannot be balanced: its supply exceeds what its arcs can carry."""
    position = {name: index for index, name in enumerate(network.node_names)}
    strange = [name for name in nodes if name not in position]
    if strange:
        detail = f"{strange[0]} is no node of {network.name}"
        return Certificate("infeasible", True, (Check("a cut is overloaded", False, detail=detail),))
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
    # Every partial sum is smaller than this, so 64 bits are enough or the sums are made in Python integers.
    size = np.abs(flow.astype(np.float64)).sum() + np.abs(network.supply.astype(np.float64)).sum()
    excess = -network.supply if size < _SAFE else -network.supply.astype(object)
    np.add.at(excess, network.tail, flow)
    np.subtract.at(excess, network.head, flow)
    return _all_zero("flow conservation at every node", excess, lambda node: network.node_names[node])


def _bounds(network: FlowNetwork, flow: Integers) -> list[Check]:
    below = np.where(flow < network.lower, _wide(network.lower) - flow, 0)
    above = np.where(flow > network.upper, flow - _wide(network.upper), 0)
    return [
        _all_zero("flow at least the lower bound", below, network.describe_arc),
        _all_zero("flow at most the capacity", above, network.describe_arc),
    ]


def _objective(network: FlowNetwork, flow: Integers, stated: float | int) -> Check:
    cost = network.total_cost(flow)
    off = _distance(cost, stated)
    return Check("cost recomputed from the flow", not off, off, f"{cost} (stated {stated})")


def _integers(name: str, values: NDArray[Any], count: int) -> Check:
    if np.shape(values) != (count,):
        return Check(name, False, detail=f"expected {count}, got shape {np.shape(values)}")
    kind = values.dtype
    return Check(name, kind.kind == "i", detail="" if kind.kind == "i" else f"got {kind}")


def _wide(values: Integers) -> Integers:
    """The same numbers, as Python integers where 64 bits could overflow."""
    large = bool(len(values)) and (int(values.max()) >= _SAFE or int(values.min()) <= -_SAFE)
    return values.astype(object) if large else values


def _distance(one: float | int, other: float | int) -> float | int:
    """``|one - other|``, exact for integers and infinite where one is not a number."""
    off = abs(one - other)
    return off if off == off else float("inf")


def _slackness(network: FlowNetwork, flow: Integers, reduced: Integers) -> list[Check]:
    cheaper_up = np.where(flow < network.upper, np.maximum(-reduced, 0), 0)
    cheaper_down = np.where(flow > network.lower, np.maximum(reduced, 0), 0)
    return [
        _all_zero("no arc with room has a negative reduced cost", cheaper_up, network.describe_arc),
        _all_zero("no arc with flow to spare has a positive reduced cost", cheaper_down, network.describe_arc),
    ]


def _dual_objective(network: FlowNetwork, potentials: Integers, reduced: Integers, objective: float | int) -> Check:
    finite = network.upper != UNBOUNDED
    dual = (
        exact_dot(network.supply, potentials)
        + exact_dot(network.lower, np.maximum(reduced, 0))
        + exact_dot(network.upper[finite], np.minimum(reduced[finite], 0))
    )
    off = _distance(dual, objective)
    detail = f"{dual}, primal {objective}" if off else f"{dual} = {objective}"
    return Check("dual objective equals the cost", not off, off, detail)


def _stated_reduced(network: FlowNetwork, reduced: Integers, stated: Integers) -> Check:
    name = "reduced costs recomputed from the potentials"
    if np.shape(stated) != reduced.shape:
        return Check(name, False, detail=f"{network.arc_count} arcs, got shape {np.shape(stated)}")
    wrong = reduced != stated
    if not wrong.any():
        return Check(name, True)
    first = int(np.argmax(wrong))
    detail = f"{network.describe_arc(first)}: {reduced[first]} (stated {stated[first]})"
    return Check(name, False, _distance(int(reduced[first]), stated[first]), detail)


def _all_zero(name: str, violation: Integers, where: Callable[[int], str]) -> Check:
    size = np.abs(violation)
    if not len(size):
        return Check(name, True)
    worst = int(size.max())
    if not worst:
        return Check(name, True)
    first = int(np.argmax(size))
    return Check(name, False, worst, f"{where(first)} is off by {worst}")
