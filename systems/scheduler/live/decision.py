"""A step takes the network's optimum if it satisfies all rules and capacities, and otherwise makes a full solve.

The network is a relaxation: it ignores rules across tasks (gangs, spreads, affinities) and capacities of machines.
If its optimum satisfies them, this optimum is the best schedule.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from flowlex.systems.scheduler.live.cluster_state import LiveState
from flowlex.systems.scheduler.live.equal_schedules import without_idle_changes
from flowlex.systems.scheduler.live.full_solve import solve_fully
from flowlex.systems.scheduler.live.garbage_collection import collect_after
from flowlex.systems.scheduler.live.session_choice import prove
from flowlex.systems.scheduler.live.side_constraints import Changes
from flowlex.systems.scheduler.live.task_records import Decided, Delta, FullSolve


def decide(
    state: LiveState,
    now_s: float | None,
    event_seconds: float,
    reason: Callable[[str], str],
    *,
    certify: bool,
    decided: Decided | None,
) -> Delta:
    """Find the new optimum and apply it; see `FlowScheduler.step`. ``reason`` says why a task waits."""
    started, check_s, certificate, method = time.perf_counter(), 0.0, None, state.method
    quiet = not state.events and state.decision is not None and state.decision.best
    quiet = quiet and not (decided is not None and decided.places)
    state.advance(now_s)
    prepared = time.perf_counter()
    state.session.solve()
    changes: Changes = state.network.read_changes()
    solved_fully = quiet or (decided is not None and decided.whole)
    kept = None if solved_fully else _network_decision(state, changes)
    if kept is not None and (decided is None or {name: at for name, (_, at) in kept.items()} == decided.places):
        changes, state.decision = kept, None
        if certify:
            checking = time.perf_counter()
            certificate = prove(state.session, f"step {state.steps + 1} of {state.name}")
            check_s = time.perf_counter() - checking
    else:
        changes, check_s = _full_decision(state, changes, certify=certify, quiet=quiet, decided=decided)
        if state.decision is not None:
            certificate, method = state.decision.certificate, state.decision.method
    solved = time.perf_counter()
    parts = _put_in_force(state, changes, reason)
    if not state.steps:
        collect_after(len(state.tasks))  # the first step places everything
    done = time.perf_counter()
    seconds = {
        "events": event_seconds + prepared - started,
        "solve": solved - prepared - check_s,
        "read": done - solved,
        "check": check_s,
        "total": event_seconds + done - started,
    }
    events, state.events = state.events, 0
    state.steps += 1
    totals = (state.running, len(state.tasks) - state.running)
    whole = state.decision is not None
    return Delta(state.steps, state.now_s, events, *parts, *totals, seconds, certificate, method, whole)


def _network_decision(state: LiveState, changes: Changes) -> Changes | None:
    """Return the network optimum's changes that lower the cost (or all); None if they break a side constraint."""
    kept = without_idle_changes(state, changes)
    found = next((each for each in (kept, changes) if _keeps_all(state, each)), None)
    if found is kept:
        for name in changes:  # in this order, as it decides later ties
            machine = kept[name][1] if name in kept else state.tasks[name].machine
            if state.network.tasks[name].machine != machine:
                state.network.displace(name, machine)
    return found


def _keeps_all(state: LiveState, changes: Changes) -> bool:
    """Return whether changes of the network satisfy all side constraints."""
    if state.rules.shares is not None and state.rules.shares.kind == "dominant":
        return False
    return not state.side_constraints or state.side_constraints.keeps(changes, state.tasks_on)


def _full_decision(
    state: LiveState, changes: Changes, *, certify: bool, quiet: bool, decided: Decided | None
) -> tuple[Changes, float]:
    """Decide by a full solve; return the changes and the seconds spent on the check."""
    check_s = 0.0
    next_of: Mapping[str, str | None] = {name: state.tasks[name].machine for name in changes}
    try:
        if quiet:
            pass
        elif decided is not None:
            state.decision = decided.as_full_solve(state.decision) if decided.whole else None
            next_of = {name: decided.places.get(name, task.machine) for name, task in state.tasks.items()}
        else:
            solution = solve_fully(state, certify=certify)
            state.decision = FullSolve.of(solution)
            next_of = {name: solution.machine_of.get(name) for name in state.tasks}
            check_s = 0.0 if solution.seconds is None else solution.seconds.check
    finally:  # even if no schedule was found: the next step reads the network's changes again
        for name, machine in next_of.items():
            if state.network.tasks[name].machine != machine:
                state.network.displace(name, machine)
    pairs = {name: (state.tasks[name].machine, machine) for name, machine in next_of.items()}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}, check_s


def _put_in_force(
    state: LiveState, changes: Changes, reason: Callable[[str], str]
) -> tuple[
    tuple[tuple[str, str], ...],
    tuple[tuple[str, str, str, str], ...],
    tuple[tuple[str, str, str], ...],
    tuple[tuple[str, str], ...],
]:
    """Apply the changes; return the tasks placed, moved and stopped, and those that wait."""
    placed, moved, stopped = [], [], []
    for name, (old, new) in changes.items():
        if new is None:
            assert old is not None
            stopped.append((name, old, state.why.get(name, "it gave way to work that is worth more")))
            state.fresh[name] = None
        elif old is None:
            placed.append((name, new))
        else:
            moved.append((name, old, new, state.why.get(name, "all places together are cheaper so")))
    # In the order of the answer, so that a decision that is read from a log leaves the same state.
    for name in [name for name, *_ in (*placed, *moved, *stopped)]:
        state.settle(name, changes[name][1])
    waiting = [(name, reason(name)) for name in state.fresh if state.tasks[name].machine is None]
    state.fresh.clear()
    state.why.clear()
    state.side_constraints.unchecked.clear()
    return tuple(placed), tuple(moved), tuple(stopped), tuple(waiting)
