"""Certificates of flow networks, in exact integers: of a formulation's outcome, and of min-cost-flow solution files.

The proof of a solution file (all in the order and numbers of the instance's nodes and arcs):

``optimal``
    ``potential``, one whole number per node. With reduced costs ``cost - potential[tail] + potential[head]``, no arc
    with room has a negative one, no arc above its lower bound a positive one, and the dual objective is the cost.
``infeasible``
    ``cut``, nodes whose supply, with what lower bounds force in, exceeds what the arcs out of them carry.
``unbounded``
    ``point``, a feasible flow, and ``ray``, a circulation of negative cost over arcs without upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.solver_outcome import Outcome, Status
from flowlex.instances.exact_rationals import rational
from flowlex.instances.min_cost_flow import NetworkInstance
from flowlex.validation.certificates.certificate import Certificate, Check
from flowlex.validation.certificates.exact_numbers import dot, whole, wide
from flowlex.validation.certificates.problem_options import NoOptions
from flowlex.validation.certificates.statement.rational_linear_program import ExactStatement
from flowlex.validation.certificates.verifier_interface import Claimed, Finding, Strict, Verifier


def certify_network(network: FlowNetwork, outcome: Outcome) -> Certificate:
    """Prove or refute an outcome from the network alone: primal, dual, and their equal objectives.

    Checks: flow conservation, arc bounds, the stated objective, the sign of every reduced cost (complementary
    slackness), the dual objective, and whatever else the outcome states. An infeasible one is proven by its cut.

    Parameters
    ----------
    network
        The network with m arcs and n nodes that was solved.
    outcome
        ``values``: (m,) integer flows. ``duals``: (n,) integer potentials, or None; then only feasibility is checked.

    Returns
    -------
    Certificate
        Exact. A wrong shape, a wrong type or a missing answer is a failed check.
    """
    if outcome.status is Status.INFEASIBLE and outcome.infeasibility is not None:
        position = {name: index for index, name in enumerate(network.node_names)}
        strange = [name for name in outcome.infeasibility.nodes if name not in position]
        check = Check("a cut is overloaded", False, detail=f"{', '.join(strange[:1])} is no node of {network.name}")
        if not strange:
            check = _overloaded(network, [position[name] for name in outcome.infeasibility.nodes])
        return Certificate("infeasible", True, (check,))
    flow, potentials = outcome.values, outcome.duals
    if flow is None or outcome.objective is None:
        return Certificate("feasible", True, (Check("has an answer", False, detail=f"status {outcome.status}"),))
    shapes = [_integers("one integer flow per arc", flow, network.arc_count)]
    if potentials is not None:
        shapes.append(_integers("one integer potential per node", potentials, network.node_count))
    if not all(shape.ok for shape in shapes):
        return Certificate("feasible", True, tuple(shapes))
    flow = wide(flow)
    checks = [*_primal(network, flow), _objective(network, flow, outcome.objective)]
    if outcome.status is not Status.OPTIMAL or potentials is None:
        return Certificate("feasible", True, tuple(checks))
    reduced, proof = _dual(network, flow, wide(potentials), outcome.objective)
    checks += proof
    if outcome.bound is not None:
        off = _distance(outcome.objective, outcome.bound)
        checks.append(
            Check("the stated bound is the cost", not off, off, f"{outcome.bound} (cost {outcome.objective})")
        )
    if outcome.reduced_costs is not None:
        checks.append(_stated_reduced(network, reduced, outcome.reduced_costs))
    return Certificate("optimal", True, tuple(checks))


def _overloaded(network: FlowNetwork, nodes: list[int]) -> Check:
    """Whether the supply of a set of nodes, or of all others, exceeds what the arcs out of them can carry."""
    side = np.zeros(len(network.supply), bool)
    side[nodes] = True
    shortage = max(_shortage(network, side), _shortage(network, ~side))
    return Check("a cut is overloaded", shortage > 0, max(0, -shortage), f"{len(nodes)} nodes, short by {shortage}")


def _shortage(network: FlowNetwork, inside: NDArray[np.bool_]) -> int:
    leaving = network.upper[inside[network.tail] & ~inside[network.head]].tolist()
    entering = network.lower[~inside[network.tail] & inside[network.head]].tolist()
    if UNBOUNDED in leaving:
        return -1
    return int(sum(network.supply[inside].tolist()) + sum(entering) - sum(leaving))


def _primal(network: FlowNetwork, flow: Integers) -> list[Check]:
    excess = -_roomy(network.supply, np.abs(flow.astype(np.float64)).sum())
    np.add.at(excess, network.tail, flow)
    np.subtract.at(excess, network.head, flow)
    below = np.where(flow < network.lower, wide(network.lower) - flow, 0)
    above = np.where(flow > network.upper, flow - wide(network.upper), 0)
    return [
        _all_zero("flow conservation at every node", excess, lambda node: network.node_names[node]),
        _all_zero("flow at least the lower bound", below, _arcs_of(network)),
        _all_zero("flow at most the capacity", above, _arcs_of(network)),
    ]


def _roomy(values: Integers, size: float) -> Integers:
    """The same numbers, as Python integers unless sums with others of this total size stay within 64 bits."""
    total = size + np.abs(values.astype(np.float64)).sum()
    return values.copy() if total < 2.0**60 and values.dtype != object else values.astype(object)


def _objective(network: FlowNetwork, flow: Integers, stated: float | int) -> Check:
    cost = dot(network.cost, flow)
    off = _distance(cost, stated)
    return Check("cost recomputed from the flow", not off, off, f"{cost} (stated {stated})")


def _integers(name: str, values: NDArray[Any], count: int) -> Check:
    if np.shape(values) != (count,):
        return Check(name, False, detail=f"expected {count}, got shape {np.shape(values)}")
    kind = values.dtype
    return Check(name, kind.kind == "i", detail="" if kind.kind == "i" else f"got {kind}")


def _distance(one: float | int, other: float | int) -> float | int:
    """``|one - other|``, exact for integers and infinite where one is not a number."""
    off = abs(one - other)
    return off if off == off else float("inf")


def _dual(
    network: FlowNetwork, flow: Integers, potentials: Integers, objective: float | int
) -> tuple[Integers, list[Check]]:
    """Reduced costs, and whether they and the potentials prove the objective."""
    reduced = wide(network.cost) - potentials[network.tail] + potentials[network.head]
    cheaper_up = np.where(flow < network.upper, np.maximum(-reduced, 0), 0)
    cheaper_down = np.where(flow > network.lower, np.maximum(reduced, 0), 0)
    finite = network.upper != UNBOUNDED
    dual = dot(network.supply, potentials) + dot(network.lower, np.maximum(reduced, 0))
    dual += dot(network.upper[finite], np.minimum(reduced[finite], 0))
    off = _distance(dual, objective)
    detail = f"{dual}, primal {objective}" if off else f"{dual} = {objective}"
    return reduced, [
        _all_zero("no arc with room has a negative reduced cost", cheaper_up, _arcs_of(network)),
        _all_zero("no arc with flow to spare has a positive reduced cost", cheaper_down, _arcs_of(network)),
        Check("dual objective equals the cost", not off, off, detail),
    ]


def _stated_reduced(network: FlowNetwork, reduced: Integers, stated: Integers) -> Check:
    name = "reduced costs recomputed from the potentials"
    if np.shape(stated) != reduced.shape:
        return Check(name, False, detail=f"{len(reduced)} arcs, got shape {np.shape(stated)}")
    wrong = reduced != stated
    if not wrong.any():
        return Check(name, True)
    first = int(np.argmax(wrong))
    detail = f"{_arcs_of(network)(first)}: {reduced[first]} (stated {stated[first]})"
    return Check(name, False, _distance(int(reduced[first]), stated[first]), detail)


def _arcs_of(network: FlowNetwork) -> Callable[[int], str]:
    """How an arc is named; of parallel arcs only the number tells."""
    return lambda arc: f"arc {arc} ({network.describe_arc(arc)})"


def _all_zero(name: str, violation: Integers, where: Callable[[int], str]) -> Check:
    size = np.abs(violation)
    if not len(size):
        return Check(name, True)
    worst = int(size.max())
    if not worst:
        return Check(name, True)
    first = int(np.argmax(size))
    return Check(name, False, worst, f"{where(first)} is off by {worst}")


# Solution files ----------------------------------------------------------------------------------------------------
class FlowAnswer(Strict):
    """``flow`` of each arc, in the order of the instance."""

    flow: list[int]


class FlowProof(Strict):
    """See the module; nodes by their position in the instance."""

    potential: list[int] | None = None
    cut: list[int] | None = None
    point: list[int] | None = None
    ray: list[int] | None = None


def _network_of(instance: NetworkInstance) -> FlowNetwork:
    a = instance.arrays
    return FlowNetwork.from_arrays(
        a.tail, a.head, lower=a.lower, upper=a.upper, cost=a.cost, supply=a.supply, node_labels=instance.node_labels
    )


def _judge(claimed: Claimed) -> Finding:
    network, proof, status = _network_of(claimed.instance), claimed.proof, claimed.document.status
    if status == "infeasible":
        return Finding("infeasible", (_no_flow(network, proof.cut),))
    if status == "unbounded":
        return Finding("unbounded", tuple(_endless(network, proof.point, proof.ray)))
    arcs, nodes = len(network.tail), len(network.supply)
    flow = whole(claimed.answer.flow)
    potential = None if proof.potential is None else whole(proof.potential)
    shapes = [_count("one flow per arc", flow, arcs)]
    shapes += [] if potential is None else [_count("one potential per node", potential, nodes)]
    if not all(shape.ok for shape in shapes):
        return Finding("feasible", tuple(shapes))
    flow = wide(flow)
    checks = [*shapes, *_primal(network, flow)]
    cost = dot(network.cost, flow)
    figures = {
        "cost": cost,
        "arcs_with_flow": int(np.count_nonzero(flow)),
        "arcs_at_capacity": int(np.count_nonzero(flow == network.upper)),
    }
    if status != "optimal" or potential is None:
        if status == "optimal":
            checks.append(Check("no flow costs less", True, detail=f"says {claimed.document.engine}", how="quoted"))
        if claimed.document.duals:
            checks.append(Check("duals", status == "optimal", detail="without potentials", how="quoted"))
        return Finding("feasible", tuple(checks), cost, bound=cost if status == "optimal" else None, metrics=figures)
    if claimed.budget.spent:
        checks.append(claimed.budget.quoted("no flow costs less"))
        return Finding("feasible", tuple(checks), cost, bound=cost, metrics=figures)
    potential = wide(potential)
    reduced, proven = _dual(network, flow, potential, cost)
    checks += proven
    checks += _stated_duals(claimed.instance, claimed.document.duals, potential, reduced)
    return Finding("optimal", tuple(checks), cost, cost, metrics=figures)


def _count(name: str, values: Integers, count: int) -> Check:
    return Check(name, len(values) == count, abs(len(values) - count), f"{len(values)} for {count}")


def _no_flow(network: FlowNetwork, cut: list[int] | None) -> Check:
    nodes = len(network.supply)
    if cut is None or not all(0 <= node < nodes for node in cut):
        return Check("a cut of the instance's nodes", False, detail=f"{cut!s:.60}; nodes are 0 to {nodes - 1}")
    return _overloaded(network, cut)


def _endless(network: FlowNetwork, point: list[int] | None, ray: list[int] | None) -> list[Check]:
    arcs = len(network.tail)
    if point is None or ray is None or len(point) != arcs or len(ray) != arcs:
        return [Check("a flow and a ray, one number per arc", False)]
    start, way = wide(whole(point)), wide(whole(ray))
    gain = -dot(network.cost, way)
    left = _roomy(np.zeros_like(network.supply), np.abs(way.astype(np.float64)).sum())
    np.add.at(left, network.tail, way)
    np.subtract.at(left, network.head, way)
    bounded = np.where((way < 0) | ((way > 0) & (network.upper != UNBOUNDED)), np.abs(way), 0)
    return [
        *_primal(network, start),
        _all_zero("the ray conserves flow at every node", left, lambda node: network.node_names[node]),
        _all_zero("the ray uses arcs without upper bound", bounded, _arcs_of(network)),
        Check("the ray costs less than nothing", gain > 0, max(0, -gain), f"{-gain} a unit"),
    ]


def _stated_duals(
    instance: NetworkInstance, duals: dict[str, dict[str, Any]], potential: Integers, reduced: Integers
) -> list[Check]:
    """The labelled duals are the potentials and the reduced costs, in the order and by the names of the instance."""
    true: dict[str, Integers] = {"node": potential, "flow": reduced}
    strange = [name for name in duals if name not in true]
    checks = [Check("duals of nodes and flows", not strange, len(strange), ", ".join(strange)[:60])]
    for name in true.keys() & duals.keys():
        stated, wanted = list(duals[name].values()), true[name].tolist()
        same = stated == wanted or list(map(rational, stated)) == wanted
        labels = instance.node_labels if name == "node" else list(map(str, range(len(reduced))))
        same = same and list(duals[name]) == labels
        checks.append(Check(f"duals of {name}", same, detail="" if same else "not those of the potentials, in order"))
    return checks


def state_network(instance: NetworkInstance, options: Mapping[str, Any]) -> ExactStatement:
    """Flows by arc, conservation at nodes, total cost."""
    names = list(instance.node_names or ())
    if not names:
        names = [str(v + instance.first_node) for v in range(len(instance.supply))]
    # No flow needs more on an arc than all supplies and all bounds together: a cycle carries at most its other bounds.
    most = sum(max(b, 0) for b in instance.supply)
    most += sum(low if up is None else up for low, up in zip(instance.lower, instance.upper, strict=True))
    labels = [
        {"arc": a, "tail": names[tail], "head": names[head]}
        for a, (tail, head) in enumerate(zip(instance.tail, instance.head, strict=True))
    ]
    statement = ExactStatement("cost", needed=frozenset({"node"}))
    upper = [most if up is None else up for up in instance.upper]
    statement.variables("flow", labels, keys=("arc",), lower=list(instance.lower), upper=upper)
    terms: list[dict[int, int]] = [{} for _ in names]
    for a, (tail, head) in enumerate(zip(instance.tail, instance.head, strict=True)):
        if tail != head:
            terms[tail][a], terms[head][a] = 1, -1
    for name, row, supply in zip(names, terms, instance.supply, strict=True):
        statement.row("node", name, row, "==", supply)
    statement.stage("cost", dict(enumerate(instance.cost)))
    return statement


def _columns(flow: list[int]) -> dict[str, dict[str, int]]:
    """``flow`` by arc."""
    return {"flow": {str(arc): units for arc, units in enumerate(flow) if units}}


VERIFIER = Verifier(
    "min-cost-flow",
    FlowAnswer,
    FlowProof,
    _judge,
    duals=True,
    options=NoOptions,
    state=state_network,
    columns=_columns,
)
