"""Other goals for a living cluster."""

from __future__ import annotations

from flowlex.instances.flow import FlowInstance, FlowJob
from flowlex.models.base import ModelError
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.goals.base import Scale
from flowlex.models.flow.live.clock import Clock
from flowlex.models.flow.live.parts import Session
from flowlex.models.flow.live.shares import live_claims
from flowlex.models.flow.live.state import LiveState
from flowlex.models.flow.offers import Rules, StageWeights
from flowlex.models.flow.order import TOP_CLASS, StrictOrder

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
    made.now_s = state.now_s
    for machine in state.cluster.machines.values():
        made.put_machine(machine)
    for live in state.jobs.values():
        made.put_job(_present(state, live.job))
        if live.preempted:
            made.limit_again(live)
    for name, task in state.tasks.items():
        if task.machine is not None:
            made.resume(name, task.machine, task.started_s)
    made.beyond.tie(state.beyond.rules.values())
    made.fresh = dict(state.fresh)
    return made


def _present(state: LiveState, job: FlowJob) -> FlowJob:
    """A job with the tasks and explicit costs that it has now."""
    views = [state.tasks[name] for name in state.jobs[job.name].tasks]
    return job.model_copy(update={"tasks": tuple(view.task.model_copy(update={"costs": view.costs}) for view in views)})
