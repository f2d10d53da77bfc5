"""Other goals for a living cluster."""

from __future__ import annotations

from flowlex.instances.flow import FlowInstance
from flowlex.models.base import ModelError
from flowlex.models.flow.arc_costs import Rules, StageWeights
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.goals.base import Scale
from flowlex.models.flow.lexicographic_costs import TOP_CLASS, StrictOrder
from flowlex.models.flow.live.clock import Clock
from flowlex.models.flow.live.cluster_record import Record
from flowlex.models.flow.live.network_parts import Session
from flowlex.models.flow.live.shares import live_claims
from flowlex.models.flow.live.state import LiveState

__all__ = ["rebuild", "switch_goals"]


def switch_goals(state: LiveState, goals: tuple[Goal, ...], wait_cost: float | None, order: StrictOrder) -> None:
    """Price everything by other goals on the same network; only arcs whose cost differs change.

    Raises
    ------
    ModelError
        The goals cannot be used here; the state is as before.
    """
    rules = Rules(goals, wait_cost, Scale(state.rules.scale.factor), list(state.tasks.values()), order)
    live_claims(rules.shares, state.queues)  # refuses before anything changes
    before = (state.goals, state.rules, state.order, state.weights, state.clock)
    weights = StageWeights.for_bound(order.cycle, TOP_CLASS)
    try:
        _price(state, goals, rules, order, weights, Clock.of(rules.goals))
    except ModelError:
        _price(state, *before)
        raise
    state.claim_anew()
    for name, live in state.jobs.items() if state.claims is None else ():
        state.network.set_job(name, state.bounds(live, 0, 0))


def _price(
    state: LiveState,
    goals: tuple[Goal, ...],
    rules: Rules,
    order: StrictOrder,
    weights: StageWeights,
    clock: Clock,
) -> None:
    """Give machines and tasks the costs of these goals."""
    state.goals, state.rules, state.order, state.weights, state.clock = goals, rules, order, weights, clock
    for name, machine in state.cluster.machines.items():
        state.network.set_slots(name, state.slot_costs(machine))
    for name, task in state.tasks.items():
        if task.machine is not None:
            clock.stop(name)
            clock.start(name, task.started_s)
        state.reprice(task)
        state.doubt(task.machine)  # it may be that it must not run there any more


def rebuild(
    state: LiveState, goals: tuple[Goal, ...], wait_cost: float | None, order: StrictOrder, session: Session
) -> LiveState:
    """The same cluster, jobs and places with other goals on a network of their own."""
    empty = FlowInstance(name=state.name, machines=(), queues=state.queues)
    made = LiveState(empty, goals, session, wait_cost, state.rules.scale.factor, order, state.task_limit)
    Record.of(state).refill(made)
    return made
