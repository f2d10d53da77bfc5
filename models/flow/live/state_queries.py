"""What can be read from the state of a flow scheduler: why a task waits, what was minimised, the present instance."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from flowlex.instances.flow import FlowInstance, FlowTask, RunningOn
from flowlex.instances.flow_rules import Affinity, Gang, TaskSpread
from flowlex.models.flow.live.clock import elapsed_s
from flowlex.models.flow.live.costs import StateWithCosts
from flowlex.models.flow.live.engines import solved_costs
from flowlex.models.flow.live.records import LiveTask
from flowlex.models.flow.live.side_constraints import TieRule
from flowlex.models.flow.reasons import plain_reason
from flowlex.models.flow.solution import Score

__all__ = ["present_instance", "present_score", "waiting_reason"]

#: Fields of an instance that hold rules.
_KINDS: dict[str, type[TieRule]] = {"gangs": Gang, "spreads": TaskSpread, "affinities": Affinity}


def waiting_reason(state: StateWithCosts, name: str) -> str:
    """Why a task waits."""
    view = state.task(name)
    job, others = state.jobs[view.job], state._apart.get(view.apart, ())
    taken = {at for other in others if (at := state.tasks[other].machine) is not None}
    waiting = sum(state.tasks[other].machine is None for other in job.tasks)
    used = state.rules.shares is not None and waiting <= state.network.jobs[view.job].bounds.must
    return plain_reason(state.rules, view, state.cluster, taken, share_used=used)


def present_score(state: StateWithCosts) -> Score:
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


def _cost_by_goal(state: StateWithCosts) -> tuple[tuple[str, int], ...]:
    """Cost of each rank, arc by arc, as sums over many arcs cannot be told apart by rank."""
    if state.rules.order is None:
        return ()
    flow = state.session.flow
    slots = np.flatnonzero(flow)
    total = [0] * len(state.order.names)
    for cost, units in zip(solved_costs(state.session, slots), flow[slots].tolist(), strict=True):
        if cost:
            total = [a + units * b for a, b in zip(total, state.order.split(cost), strict=True)]
    return tuple(zip(state.order.names, total, strict=True))


def present_instance(state: StateWithCosts) -> FlowInstance:
    """The present state as an instance: what runs where, for how long, and what waits."""
    jobs = [
        live.job.model_copy(
            update={
                "tasks": tuple(_snapshot(state, state.tasks[name]) for name in live.tasks),
                "preempted_s": tuple(elapsed_s(at, state.now_s) for at in live.preempted),
            }
        )
        for live in state.jobs.values()
    ]
    machines = tuple(state.cluster.machines.values())
    # Between a loss of slots and the next step a machine may hold more than it has, so nothing is checked here.
    rules: dict[str, Any] = {name: state.side_constraints.of_kind(kind) for name, kind in _KINDS.items()}
    return FlowInstance.model_construct(
        name=state.name, machines=machines, jobs=tuple(jobs), queues=state.queues, **rules
    )


def _snapshot(state: StateWithCosts, task: LiveTask) -> FlowTask:
    known = state.cluster.machines
    running = None
    if task.machine in known:
        running = RunningOn(machine=str(task.machine), elapsed_s=elapsed_s(task.started_s, state.now_s))
    data = tuple(
        block
        if known.keys() >= set(block.machines)
        else block.model_copy(update={"machines": tuple(m for m in block.machines if m in known)})
        for block in task.task.data
    )
    costs = {m: c for m, c in task.costs.items() if m in known}
    return task.task.model_copy(update={"running": running, "costs": costs, "data": data})
