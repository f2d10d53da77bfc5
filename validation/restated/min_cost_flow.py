"""Minimum-cost flow restated from its instance: flows of arcs, balance of nodes, total cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.min_cost_flow import NetworkInstance
from flowlex.validation.certificates.certificate import Check, Finding
from flowlex.validation.certificates.verifier_interface import Claimed, Strict, Verifier, same_values
from flowlex.validation.proofs.exact_program import Exact, ExactProgram, dot, narrow
from flowlex.validation.proofs.network_program import network_program
from flowlex.validation.restated.program_finding import program_finding


class NoOptions(Strict):
    """Minimum-cost flow."""


class FlowAnswer(Strict):
    """``flow`` of each arc, in the order of the instance."""

    flow: list[int]


def restate_network(claimed: Claimed) -> ExactProgram:
    """Columns ``flow`` by arc, rows ``node`` by name or number, objective ``cost``."""
    instance: NetworkInstance = claimed.instance

    def node_names() -> list[str]:
        first = instance.first_node
        return list(instance.node_names or map(str, range(first, len(instance.supply) + first)))

    def labels() -> list[dict[str, Any]]:
        names, ends = node_names(), zip(instance.tail, instance.head, strict=True)
        return [{"arc": a, "tail": names[tail], "head": names[head]} for a, (tail, head) in enumerate(ends)]

    upper: Any = instance.upper
    free = np.zeros(len(upper), bool)
    if None in upper:
        free = np.array([bound is None for bound in upper], bool)
        upper = [bound or 0 for bound in upper]
    return network_program(
        (np.array(instance.tail, np.int64), np.array(instance.head, np.int64)),
        (narrow(instance.lower), narrow(upper), free),
        narrow(instance.cost),
        narrow(instance.supply),
        node_names,
        labels,
    )


def _judge(claimed: Claimed) -> Finding:
    document, budget = claimed.document, claimed.budget
    program = restate_network(claimed)
    if document.status in ("infeasible", "unbounded"):
        return program_finding(program, None, document.proof, document.status, budget, main="cost")
    flow = narrow(claimed.answer.flow)
    metrics, x = _figures(program, flow), Exact(flow)
    return program_finding(
        program, x, document.proof, document.status, budget, main="cost", metrics=metrics, stages=False
    )


def _figures(program: ExactProgram, flow: NDArray[Any]) -> dict[str, int]:
    upper = program.upper
    if len(flow) != program.count:
        return {}
    return {
        "cost": dot(program.objectives[0].value, flow),
        "arcs_with_flow": int(np.count_nonzero(flow)),
        "arcs_at_capacity": int(np.count_nonzero((flow == upper.at.numbers) & ~upper.missing)),
    }


def _changed_figures(claimed: Claimed, values: Mapping[str, Mapping[str, Any]]) -> Finding:
    """The answer of a changed model: one flow per arc, those of the values."""
    flow = claimed.answer.flow
    told = {str(arc): units for arc, units in enumerate(flow) if units}
    count = Check("one flow per arc", len(flow) == len(claimed.instance.tail))
    metrics = _figures(restate_network(claimed), narrow(flow))
    return Finding("feasible", (count, same_values({"flow": told}, values)), metrics=metrics)


VERIFIER = Verifier(
    "min-cost-flow",
    FlowAnswer,
    None,
    _judge,
    options=NoOptions,
    restated=restate_network,
    main="cost",
    needed=frozenset({"node"}),
    figures=_changed_figures,
)
