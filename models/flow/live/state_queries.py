"""What can be read from the state of a flow scheduler: why a task waits, and what was minimised."""

from __future__ import annotations

from collections import Counter

import numpy as np

from flowlex.models.flow.live.cluster_state import LiveState
from flowlex.models.flow.live.session_choice import solved_costs
from flowlex.models.flow.solution import Score
from flowlex.models.flow.waiting_reasons import plain_reason

__all__ = ["present_score", "waiting_reason"]


def waiting_reason(state: LiveState, name: str) -> str:
    """Why a task waits."""
    view = state.task(name)
    job, others = state.jobs[view.job], state._apart.get(view.apart, ())
    taken = {at for other in others if (at := state.tasks[other].machine) is not None}
    waiting = sum(state.tasks[other].machine is None for other in job.tasks)
    used = state.rules.shares is not None and waiting <= state.network.jobs[view.job].bounds.must
    return plain_reason(state.rules, view, state.cluster, taken, share_used=used)


def present_score(state: LiveState) -> Score:
    """What the schedule of the last step minimises, recomputed (work in proportion to the cluster)."""
    strict = state.rules.priority is not None and state.rules.priority.mode == "strict"
    waiting: Counter[int] = Counter()
    shortfall = weighted = 0
    for name, job in state.jobs.items():
        waits = sum(state.tasks[t].machine is None for t in job.tasks)
        waiting[job.job.priority if strict else 0] += waits
        bounds = state.network.jobs[name].bounds
        short = max(0, waits - bounds.must - bounds.free)
        shortfall += short
        weighted += bounds.wait_cost * (waits - bounds.must - short) + bounds.short_cost * short
    by_goal = _cost_by_goal(state)
    cost = sum(cost for _, cost in by_goal) if by_goal else state.session.objective - weighted
    return Score(shortfall, tuple(sorted(waiting.items())), by_goal, cost)


def _cost_by_goal(state: LiveState) -> tuple[tuple[str, int], ...]:
    """Cost of each rank, arc by arc, as sums over many arcs cannot be told apart by rank."""
    if state.rules.order is None:
        return ()
    flow = state.session.flow
    slots = np.flatnonzero(flow)
    total = [0] * len(state.costs.order.names)
    for cost, units in zip(solved_costs(state.session, slots), flow[slots].tolist(), strict=True):
        if cost:
            total = [a + units * b for a, b in zip(total, state.costs.order.split(cost), strict=True)]
    return tuple(zip(state.costs.order.names, total, strict=True))
