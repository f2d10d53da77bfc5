"""Certificates of flow networks that were solved, in exact integers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.solver_outcome import Outcome, Status
from flowlex.validation.certificates.certificate import Certificate, Check
from flowlex.validation.proofs.checker import judge
from flowlex.validation.proofs.exact_program import SAFE, Exact, largest
from flowlex.validation.proofs.network_program import network_program
from flowlex.validation.proofs.proof import Leaf, Proof


def certify_network(network: FlowNetwork, outcome: Outcome) -> Certificate:
    """Prove or refute an outcome from the network alone.

    The flow, the multipliers of nodes and what the outcome states beside them are judged; an infeasible outcome is
    proven by its cut.

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
    n = network
    program = network_program(
        (n.tail, n.head), (n.lower, n.upper, n.upper == UNBOUNDED), n.cost, n.supply, lambda: list(n.node_names)
    )
    if outcome.status is Status.INFEASIBLE and outcome.infeasibility is not None:
        named = set(outcome.infeasibility.nodes)
        side = np.array([name in named for name in n.node_names], np.int64)
        tried = (Proof(empty=(Leaf({"node": Exact(sign * side)}, own=0),)) for sign in (1, -1))  # which side is short
        shown = [judge(program, None, proof, "infeasible").certificate for proof in tried]
        strange = sorted(named - set(n.node_names))
        known = Check.none("nodes of the cut", strange)
        return max(shown, key=lambda certificate: certificate.ok).including([known])
    flow, potentials = outcome.values, outcome.duals
    if flow is None or outcome.objective is None:
        return Certificate("feasible", True, (Check("has an answer", False, detail=f"status {outcome.status}"),))
    shapes = [_integers("one integer flow per arc", flow, n.arc_count)]
    if potentials is not None:
        shapes.append(_integers("one integer potential per node", potentials, n.node_count))
    if not all(shape.ok for shape in shapes):
        return Certificate("feasible", True, tuple(shapes))
    optimal = outcome.status is Status.OPTIMAL and potentials is not None
    y = np.zeros(n.node_count, np.int64) if potentials is None else potentials.astype(np.int64)
    leaves = (Leaf({"node": Exact(y)}),) if optimal else ()
    verdict = judge(program, Exact(flow), Proof({"cost": leaves}), str(outcome.status))
    if not verdict.certificate.ok:
        return verdict.certificate
    stage = verdict.stages[0]
    checks = [_same("cost recomputed from the flow", outcome.objective, int(stage.value))]
    if optimal:
        checks.append(Check("the potentials prove the cost", stage.proven, detail=stage.reason))
        if outcome.bound is not None:
            checks.append(_same("the stated bound is the cost", outcome.bound, int(stage.value)))
        if outcome.reduced_costs is not None:
            wide: Any = object if largest(n.cost) + 2 * largest(y) >= SAFE else np.int64
            price = y.astype(wide)
            true = n.cost.astype(wide) - price[n.tail] + price[n.head]
            same = np.shape(outcome.reduced_costs) == true.shape and bool((outcome.reduced_costs == true).all())
            checks.append(Check("reduced costs recomputed from the potentials", same))
    claim = verdict.claim if optimal else "feasible"
    return replace(verdict.certificate, claim=claim).including(checks)


def _integers(name: str, values: object, count: int) -> Check:
    array = np.asarray(values)
    if array.shape != (count,):
        return Check(name, False, detail=f"expected {count}, got shape {array.shape}")
    return Check(name, array.dtype.kind == "i", detail="" if array.dtype.kind == "i" else f"got {array.dtype}")


def _same(name: str, stated: float | int, true: int) -> Check:
    return Check(name, stated == true, 0 if stated == true else 1, f"{true} (stated {stated})")
