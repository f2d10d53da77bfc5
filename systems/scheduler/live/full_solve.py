"""Full solves: solve the present instance with all rules and capacities when the network cannot decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from flowlex.formulations.solver_outcome import Status
from flowlex.models.flow.own_goals import ask
from flowlex.models.flow.solution import FlowSolution
from flowlex.models.model_base import ModelError
from flowlex.models.solution import Seconds
from flowlex.systems.scheduler.live.cluster_state import LiveState
from flowlex.systems.scheduler.live.explain_waiting import Explanation
from flowlex.systems.scheduler.live.frozen_state import FrozenState
from flowlex.systems.scheduler.live.task_records import EventError
from flowlex.validation.certificates.verifier_interface import verify


def solve_fully(state: LiveState, *, certify: bool) -> FlowSolution:
    """Find the best schedule of the present instance.

    Raises `ModelError` if the solver finds none within its limits; the state is then unchanged.
    """
    program = bool(state.side_constraints)
    solver = state.options["solver"] if program else {}
    solution = FrozenState.of(state).model.solve("highs" if program else "network", certify=certify, **solver)
    if not solution.status.has_answer:
        raise ModelError(f"no schedule ({solution.message}); give the solver more time or steps")
    return solution


def priced(why: Explanation, frozen: FrozenState) -> Explanation:
    """Add the price to an explanation under rules or capacities, by two full solves: free, and with the task running.

    If running it costs D more and changes neither the shortfall nor the waiting, its waiting must cost D + 1 more.
    """
    model, solver = frozen.model, frozen.options["solver"]
    try:
        forced = model.with_fixed(model.variables["waits"].sel(task=why.task), 0)
        found = forced.solve("highs", certify=False, **solver)
        if found.status is Status.INFEASIBLE:
            return replace(why, unpriced="no schedule runs it while the rules and capacities hold")
        best = model.solve("highs", certify=False, **solver)
    except ModelError as error:
        return replace(why, unpriced=str(error))
    if not best.status is found.status is Status.OPTIMAL:
        return replace(why, unpriced="a solve stopped at its limit; give the solver more time or steps")
    now, then, price = best.score, found.score, None
    assert now is not None and then is not None
    if (now.shortfall, now.waiting) == (then.shortfall, then.waiting):
        goals = zip(now.by_goal, then.by_goal, strict=True) if now.by_goal else ((("", now.cost), ("", then.cost)),)
        first, *others = (after - before for (_, before), (_, after) in goals)
        price = float(Fraction(first + (others >= [0] * len(others)), model.rules.scale.factor))
    there, machine = found.machine_of, found.machine_of[why.task]
    running = {name: at for name, (at, _) in frozen.places.items()}
    stops = tuple(name for name in running if name not in there)
    moves = tuple(name for name, at in running.items() if there.get(name, at) != at)
    rack = next(each.rack for each in frozen.machines if each.name == machine)
    return replace(why, machine=machine, rack=rack, price=price, stops=stops, moves=moves, unpriced="")


def audit_schedule(state: LiveState, waiting: Mapping[str, str]) -> FlowSolution:
    """Certify the present schedule with the proof of a new full solve of the present instance.

    Running tasks now have their credit for staying, so the last step's optimum is also optimal for this instance.

    Raises `ModelError` if the solver stopped at its limit with another schedule, `EventError` if a task has no cost
    within the limit, or if one that stopped within the preemption limit of its job could run now, and
    `CertificateError` if the schedule fails verification (a defect, never an input error).
    """
    if (why := next(iter(state.costs.unpriced.values()), None)) is not None:
        raise EventError(f"{why}; without this cost nothing can be certified")
    fresh, instance = solve_fully(state, certify=False), FrozenState.of(state).instance
    running = {name: task.machine for name, task in state.tasks.items() if task.machine is not None}
    if fresh.status is not Status.OPTIMAL and fresh.machine_of != running:
        raise ModelError(f"{fresh.message}; give the solver more time or steps to judge the schedule in force")
    held = replace(fresh, machine_of=running, waiting=dict(waiting), placed=(), moved=(), stopped=(), duals={})
    certificate = verify(held.to_dict(), instance, goals=ask(instance, state.goals))
    if not certificate.ok and state.preemptions.jobs and len(fresh.machine_of) > len(running):
        raise EventError("a task that was stopped within the limit of its job finds another place now; step again")
    return held.finished(certificate.require(f"the schedule of {state.name!r}"), Seconds())
