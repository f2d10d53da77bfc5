"""Choose the solver session of the live network and its number of stages."""

from __future__ import annotations

from typing import Literal

from flowlex.models.flow.lexicographic_costs import TOP_CLASS, StrictOrder
from flowlex.models.model_base import ModelError
from flowlex.systems.scheduler.warm_network.network_session import PATH_COST_LIMIT, NetworkSession, load_kernels
from flowlex.systems.scheduler.warm_network.staged_network import PhasedSession
from flowlex.validation.certificates import Certificate, Check

#: Bound on the change of (importance of waiting classes + shortfall) along a simple cycle.
_TOP_BOUND = 4 * (TOP_CLASS + 1)
Method = Literal["auto", "weights", "phases"]

#: What keeps the live network solved.
Session = NetworkSession | PhasedSession


def plan_stages(order: StrictOrder, method: str) -> tuple[tuple[int, ...], str]:
    """Return the divisors of the stages that enforce a strict order, and a description of the method."""
    if method not in ("auto", "weights", "phases"):
        raise ModelError(f"no method is called {method!r}; one of: auto, weights, phases")
    cuts = divisors(order, PATH_COST_LIMIT, one_each=method == "phases")
    if len(cuts) == 1:
        return cuts, "weights"
    if method == "phases":
        return cuts, f"phases: {len(cuts)} stages, as asked"
    why = f"the strict order would need a weight of {(order.cycle + 1) * _TOP_BOUND:.0e}, beyond exact 64-bit sums"
    if method == "weights":
        raise ModelError(f"{why}; use method='phases', or lower cost_limit or task_limit")
    return cuts, f"phases: {len(cuts)} stages, as {why}"


def divisors(order: StrictOrder, limit: int, *, one_each: bool = False) -> tuple[int, ...]:
    """Weights (divisors) that split the sum into stages, each below ``limit`` along any path; the last is 1.

    Raises `ModelError` if a single rank exceeds the limit.
    """
    bounds, weights = (_TOP_BOUND, *order.bounds), (order.cycle + 1, *order.weights)
    cuts: list[int] = []
    size = 1
    for rank, bound in enumerate(bounds):
        if bound >= limit:
            raise ModelError(
                f"costs of up to {order.limit} would overflow exact integers even one goal at a time; lower "
                "cost_limit, task_limit or scale"
            )
        if rank and (one_each or size * (bound + 1) > limit):
            cuts.append(weights[rank - 1])
            size = 1
        size *= bound + 1
    return (*cuts, 1)


def make_session(divisors: tuple[int, ...], nodes: int, arcs: int) -> Session:
    """Make a session with initial capacity for these numbers of nodes and arcs."""
    load_kernels()
    return NetworkSession(nodes, arcs) if len(divisors) == 1 else PhasedSession(divisors, nodes, arcs)


def prove(session: Session, where: str) -> Certificate:
    """Check flow and potentials in exact integers; raise `CertificateError` if they do not prove optimality."""
    found = session.violations()
    stages = found.by_stage or (found.reduced_costs,)
    names = [f"stage {k}: " for k in range(1, len(stages) + 1)] if len(stages) > 1 else [""]
    checks = (
        Check("flow conservation at every vertex", not found.conservation, found.conservation),
        Check("flow between zero and the capacity", not found.bounds, found.bounds),
        *(
            Check(f"{name}reduced costs have the right sign", not worst, worst)
            for name, worst in zip(names, stages, strict=True)
        ),
    )
    return Certificate("optimal", True, checks).require(where)
