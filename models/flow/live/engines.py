"""Which engine keeps the live network solved, and in how many stages."""

from __future__ import annotations

from typing import Literal

from flowlex.formulations.arrays import Integers
from flowlex.formulations.sessions.network import PATH_COST_LIMIT, NetworkSession, load_kernels
from flowlex.formulations.sessions.phased import PhasedSession
from flowlex.models.base import ModelError
from flowlex.models.flow.live.parts import Session
from flowlex.models.flow.order import StrictOrder
from flowlex.validation.certificates import Certificate, Check

__all__ = ["EngineChoice", "Method", "make_session", "plan_stages", "prove", "solved_costs"]

EngineChoice = Literal["paths", "scaling", "highs"]
Method = Literal["auto", "weights", "phases"]

#: Sums beyond this are not exact in the floating point of HiGHS.
_EXACT_IN_HIGHS = 2**53


def plan_stages(order: StrictOrder, method: str, engine: str) -> tuple[tuple[int, ...], str]:
    """Divisors of the stages in which a strict order is kept, and what to say of it."""
    if method not in ("auto", "weights", "phases"):
        raise ModelError(f"no method is called {method!r}; one of: auto, weights, phases")
    room = _EXACT_IN_HIGHS if engine == "highs" else PATH_COST_LIMIT
    divisors = order.divisors(room, one_each=method == "phases")
    if len(divisors) == 1 and not (engine == "highs" and len(order.names) > 1):
        return divisors, "weights"
    why = f"the strict order would need a weight of {order.largest:.0e}, beyond exact 64-bit sums"
    if engine == "highs":
        if len(order.names) > 1:
            raise ModelError("goals in strict order are kept live by engine='paths' only")
        raise ModelError(f"{why}; use engine='paths', or lower cost_limit or task_limit")
    if method == "phases":
        return divisors, f"phases: {len(divisors)} stages, as asked"
    if method == "weights":
        raise ModelError(f"{why}; use method='phases', or lower cost_limit or task_limit")
    return divisors, f"phases: {len(divisors)} stages, as {why}"


def make_session(engine: str, divisors: tuple[int, ...], nodes: int, arcs: int) -> Session:
    """A session of the engine, with room for that many nodes and arcs."""
    if engine == "paths":
        load_kernels()
        return NetworkSession(nodes, arcs) if len(divisors) == 1 else PhasedSession(divisors, nodes, arcs)
    if engine == "scaling":
        from flowlex.formulations.sessions.scaling import ScalingSession

        if len(divisors) > 1:
            raise ModelError("stages are kept live by engine='paths' only")
        load_kernels()
        return ScalingSession(nodes, arcs)
    if engine == "highs":
        from flowlex.formulations.sessions.highs import HighsSession

        return HighsSession()
    raise ModelError(f"no live engine is called {engine!r}; one of: paths, scaling, highs")


def prove(session: Session, where: str) -> Certificate:
    """Check flow and potentials in exact integers; raises `CertificateError` where they do not prove an optimum."""
    found = session.violations()
    stages = session.worst if isinstance(session, PhasedSession) else [found.reduced_costs]
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


def solved_costs(session: Session, slots: Integers) -> list[int]:
    """Costs of arcs as last solved, put together again from the stages."""
    if isinstance(session, NetworkSession):
        found: list[int] = session.arcs()[3][slots].tolist()
        return found
    assert isinstance(session, PhasedSession)
    parts = (cost[slots].tolist() for cost in session.arcs()[3])
    return [sum(d * p for d, p in zip(session.divisors, each, strict=True)) for each in zip(*parts, strict=True)]
