"""The present schedule as a solution, proven from the instance: prices are read off the live network's potentials.

A step proves that flow and potentials are optimal for the network; that says nothing about a network that is wrong.
Here the verifier of flow scheduling recomputes everything from the instance as it is now: who runs where, every goal's
cost, shares, and that the prices leave no schedule better (see `flowlex.validation.certificates.flow`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from flowlex.formulations.outcome import Status
from flowlex.formulations.sessions.network import NetworkSession
from flowlex.models.answer import Seconds
from flowlex.models.base import ModelError
from flowlex.models.flow.goals.asked import ask
from flowlex.models.flow.live.records import EventError
from flowlex.models.flow.live.state import LiveState
from flowlex.models.flow.live.state_queries import present_instance, present_score, waiting_reason
from flowlex.models.flow.model import FlowScheduling
from flowlex.models.flow.solution import FlowSolution
from flowlex.models.options import plain_options
from flowlex.validation.certificates.contract import verify

__all__ = ["audited"]


def audited(state: LiveState, options: dict[str, Any]) -> FlowSolution:
    """The schedule of the last step, certified; nothing may have happened since.

    Raises
    ------
    ModelError
        The stages are solved one after the other, so that there is no one price of a slot.
    CertificateError
        The schedule does not stand up to the instance (a defect, never an input error).
    """
    session = state.session
    if not isinstance(session, NetworkSession):
        raise ModelError("a scheduler that solves stages one by one has no prices; solve its `instance()` instead")
    session.solve()  # what was placed has its credit for staying now, which leaves it the best
    instance, score = present_instance(state), present_score(state)
    kept = {name: options[name] for name in ("wait_cost", "scale", "lexicographic")}
    model = FlowScheduling(instance, goals=state.goals, **kept)
    weights = _weights(state)
    classes = {f"waiting_{state.rules.level(p)}": count for p, count in score.waiting} if _strict(state) else {}
    values = {"shortfall": score.shortfall, **(classes or {"waiting_1": sum(n for _, n in score.waiting)})}
    values |= dict(score.by_goal) if score.by_goal else {"cost": score.cost}
    objective = sum(weight * values.get(name, 0) for name, weight in weights.items())
    running = {name: task.machine for name, task in state.tasks.items() if task.machine is not None}
    solution = FlowSolution(
        model=model.name,
        source=instance,
        options=plain_options(FlowScheduling, model),
        engine="paths",
        status=Status.OPTIMAL,
        objective=objective,
        bound=objective,
        gap=0.0,
        scale=state.rules.scale.factor,
        weights=weights,
        machine_of=running,
        waiting={name: waiting_reason(state, name) for name, task in state.tasks.items() if task.machine is None},
        score=score,
        shares=_shares(state),
        slots={machine.name: machine.slots for machine in instance.machines},
        job_of={name: task.job for name, task in state.tasks.items()},
        proof={"weights": weights, **_prices(state, session)},
    )
    certificate = verify(solution.to_dict(), instance, goals=ask(instance, state.goals))
    waits = [state.network.tasks[name].wait_arc for name, task in state.tasks.items() if task.machine is None]
    if not certificate.ok and not session.flow[waits].all():
        raise EventError("a task that was stopped within the limit of its job finds another place now; step again")
    certificate.require(f"the schedule of {state.name!r}")
    return solution.finished(certificate, Seconds())


def _strict(state: LiveState) -> bool:
    return state.rules.priority is not None and state.rules.priority.mode == "strict"


def _weights(state: LiveState) -> dict[str, int]:
    """Weight of each stage by name."""
    levels = {state.rules.level(live.job.priority) for live in state.jobs.values()} - {0}
    waiting = {f"waiting_{level}": state.weights.level * level for level in sorted(levels, reverse=True)}
    order = state.rules.order
    ranks = {"cost": 1} if order is None else dict(zip(order.names, order.weights, strict=True))
    return {"shortfall": state.weights.shortfall, **waiting, **ranks}


def _shares(state: LiveState) -> dict[str, tuple[int, int]]:
    if state.rules.shares is None:
        return {}
    found = {}
    for name, live in state.jobs.items():
        found[name] = live.share
    return found


def _prices(state: LiveState, session: NetworkSession) -> dict[str, Any]:
    """Prices of machines, jobs and rules from the potentials; full arcs from groups to machines add theirs."""
    network, potential = state.network, session.potentials
    tail, head, _, cost = session.arcs()
    excess = np.maximum(potential[tail] - potential[head] - cost, 0)
    machine = {name: int(potential[each.node]) for name, each in network.machines.items()}
    extra: dict[str, int] = defaultdict(int)
    apart: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for group in network.groups.values():
        for name, arc in group.arcs.items():
            more, into = int(excess[arc]), int(head[arc] != network.machines[name].node)
            if group.spot.once and more:
                found = apart[group.spot.once][name]
                found[into] = max(found[into], more)
            elif more:
                extra[name] = max(extra[name], more)
    gates = {name: int(excess[job.gate[1]]) for name, job in network.jobs.items() if job.gate is not None}
    return {
        "machine_price": {name: price + extra[name] for name, price in machine.items() if price + extra[name]},
        "job_price": {name: int(potential[j.node]) for name, j in network.jobs.items() if potential[j.node]},
        "preempt_price": {name: price for name, price in gates.items() if price},
        "apart_price": {rule: {name: sum(two) for name, two in more.items()} for rule, more in apart.items()},
    }
