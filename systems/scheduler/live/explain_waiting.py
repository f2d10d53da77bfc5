"""Explain why a task waits, what would place it, and at what price, from the residual network of the optimum.

Let task t of job j wait. Placing t sends its unit along a path from t to j through the residual network (without
t's own waiting arc). The cost of the cheapest such path, minus the cost of waiting of t, is the reduced cost D >= 0 of
placing t; the arcs of this path show which tasks move or stop. If waiting costs D + 1 more, every optimum runs t; if
it costs D more, there is still an optimum in which t waits.

When a running task u ends, the optimum changes by the cheapest residual path from the sink to u. Then every optimum
runs t if and only if all cheapest paths pass t, that is if sink - j - t - u is cheaper than any path without t.
Source: reconstructed (sensitivity of minimum-cost flows; Ahuja, Magnanti, Orlin, 1993, section 9.11).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from flowlex.instances.input_errors import counted
from flowlex.models.flow.preemption import HOUR_S
from flowlex.models.flow.waiting_reasons import CAPACITY_USED, SHARE_USED, TOO_LARGE, WORTH_MORE
from flowlex.systems.scheduler.live.cluster_state import LiveState
from flowlex.systems.scheduler.live.network_optimum import Optimum
from flowlex.systems.scheduler.live.task_records import EventError
from flowlex.systems.scheduler.warm_network.network_session import CheapestPaths

_REMEDIES = {
    "gang": "add slots where it may run, end what holds them, or change the rule",
    "spread": "raise its limit, or add machines in other domains",
    "affinity": "add slots there, end what holds them, or change the rule",
    "capacity": "add a machine with as much left, end what holds it, or ask for less",
    "share": "raise the weight or max_tasks of its job (update_shares), add slots, or end another of its tasks",
    "worth": "make it worth more (wait_cost, priority), add slots, or end what holds them",
    "placement": "add or relabel a machine so that it meets this, or submit the task with another placement",
}
_UNPRICED = "under rules or capacities a price takes two full solves"


@dataclass(frozen=True)
class Explanation:
    """Why a task waits.

    Attributes
    ----------
    rule
        ``placement`` (labels, racks, different machines, or no slot at all), ``share`` (the bounds of its job),
        ``priority`` (more important jobs use the slots), ``preemption`` (jobs that have reached their preemption
        limit use the slots) or ``worth`` (running it costs more than it gains); also ``gang``, ``spread``,
        ``affinity`` and ``capacity``.
    reason, remedy
        Why it waits, and what would have to change, as text.
    machine, rack
        Where it would run at the least cost; None if it can run nowhere.
    price
        Smallest increase of its waiting cost with which every optimum runs it, in the unit of the goals (a multiple of
        1 / scale); with 1 / scale less there is still an optimum without it. Under ``lexicographic``, in the cost of
        the first goal. None if no increase within ``cost_limit`` suffices.
    cost
        Explicit cost on ``machine`` with the same effect: ``set_cost(task, machine, cost)`` places it. None without
        a price, under ``lexicographic``, and under rules or capacities.
    stops, moves
        Tasks that would stop and move for it at that price; under rules or capacities, in one such schedule.
    blocker
        A running task such that every optimum runs this task once it ends. None if there is no such task, under
        `FairShares` (where the end of a task changes the bounds of all jobs), and under rules.
    unpriced
        Why the fields after ``remedy`` are not given; empty if they are.
    """

    task: str
    job: str
    rule: Literal["placement", "share", "priority", "preemption", "worth", "gang", "spread", "affinity", "capacity"]
    reason: str
    remedy: str
    machine: str | None = None
    rack: str | None = None
    price: float | None = None
    cost: float | None = None
    stops: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    blocker: str | None = None
    unpriced: str = ""

    def __str__(self) -> str:
        return f"{self.task} waits: {self.reason}. {self.remedy[:1].upper()}{self.remedy[1:]}."


def explain_task(optimum: Optimum, name: str, said: str, *, pending: bool, tied: bool) -> Explanation:
    """Explain why a task waits.

    ``said``: the reason in the last step. ``pending``: whether the next step may place it if the network does.
    ``tied``: whether rules, capacities or a full solve apply, so that the network alone does not decide. Raises
    `EventError` if the task runs, or may run with the next step.
    """
    state, session = optimum.state, optimum.session
    task, wait_arc = state.tasks[name], state.network.tasks[name].wait_arc
    if task.machine is not None:
        raise EventError(f"task {name!r} runs on {task.machine!r}; only what waits is explained")
    if pending and not session.flow[wait_arc]:
        raise EventError(f"task {name!r} may be placed by the next step; only what waits is explained")
    if tied:
        return _unpriced(task.job, name, said)
    unmet = state.rules.unmet(task, state.cluster)
    if unmet is not None:
        return Explanation(name, task.job, "placement", unmet, _REMEDIES["placement"])
    if not session.flow[wait_arc]:
        least = float(Fraction(1, state.rules.scale.factor))  # equal cost: the running tasks keep their slots
        return Explanation(name, task.job, "worth", WORTH_MORE, _REMEDIES["worth"], price=least)
    gives_way = _stopped_freely(optimum, name)
    if gives_way:
        return _held(state, name, gives_way)
    job = state.network.jobs[task.job].node
    out, source, before = optimum.from_task(name)
    if not out.reached[job]:
        return Explanation(
            name, task.job, "placement", "no machine it may take has a slot", "give one of these machines slots"
        )
    trail = [*((arc, True) for arc in before), *_trail(optimum, out, source, job)]
    stops, moves = _displaced(state, trail, name)
    waiting, first = map(int, session.costs(np.array([wait_arc, trail[0][0]])))
    units = (int(out.cost[job]) - waiting) // state.rules.first + 1
    price = None if units > state.costs.order.limit else units
    machine = _first_place(state, trail)
    factor, cost = state.rules.scale.factor, None
    if price is not None and machine is not None and state.rules.order is None:
        cost = float(Fraction(first - price, factor))
    rule, reason, remedy = _words(state, name, said, machine, stops, price)
    blocker = None if state.rules.shares is not None else _blocker(optimum, name, out, waiting, stops)
    worth = None if price is None else float(Fraction(price, factor))
    rack = None if machine is None else state.cluster.machines[machine].rack
    return Explanation(name, task.job, rule, reason, remedy, machine, rack, worth, cost, stops, moves, blocker)


def _unpriced(job: str, name: str, reason: str) -> Explanation:
    """Explanation without a price, under rules across tasks or capacities."""
    first = reason.partition(" ")[0]
    known: dict[str, Any] = {SHARE_USED: "share", WORTH_MORE: "worth", TOO_LARGE: "capacity", CAPACITY_USED: "capacity"}
    rule: Any = first if first in ("gang", "spread", "affinity") else known.get(reason.partition(";")[0], "placement")
    return Explanation(name, job, rule, reason, _REMEDIES[rule], unpriced=_UNPRICED)


def _stopped_freely(optimum: Optimum, name: str) -> tuple[str, ...]:
    """Held tasks that would stop or move for it without preemption limits; empty if it would still wait."""
    if not optimum.held:
        return ()
    flow = optimum.without_limits().flow
    if flow[optimum.state.network.tasks[name].wait_arc]:
        return ()
    return tuple(other for other, stay_arc in optimum.held.items() if not flow[stay_arc])


def _held(state: LiveState, name: str, stops: tuple[str, ...]) -> Explanation:
    """Explanation for a task that would run if the held tasks ``stops`` could be preempted."""
    jobs = {state.tasks[other].job: state.jobs[state.tasks[other].job] for other in stops}
    said, back = [], []
    for job, live in jobs.items():
        limit = live.job.preemptions_per_hour
        said.append(
            f"{job!r} is never preempted" if not limit else f"{job!r} may lose {counted(limit, 'task')} an hour"
        )
        if limit and len(live.preempted) >= limit:
            back.append(sorted(live.preempted)[len(live.preempted) - limit] + HOUR_S)
    reason = f"{', '.join(stops)} would have to stop or move for it, but {' and '.join(said)}"
    wait = f", wait until {min(back):g} s" if back else ""
    remedy = f"let {' or '.join(map(repr, jobs))} be preempted more often (set_preemption), add slots{wait}"
    return Explanation(name, state.tasks[name].job, "preemption", reason, remedy, stops=stops)


#: Arcs of a path in order, each with whether the path adds flow to it.
_Trail = list[tuple[int, bool]]


def _trail(optimum: Optimum, paths: CheapestPaths, source: int, node: int) -> _Trail:
    """The cheapest path to a node."""
    (tail, head), arcs = optimum.ends, _Trail()
    while node != source:
        arc = int(paths.link[node])
        adds = bool(head[arc] == node)
        arcs.append((arc, adds))
        node = int(tail[arc] if adds else head[arc])
    return arcs[::-1]


def _first_place(state: LiveState, trail: _Trail) -> str | None:
    """The first machine on a path; a vertex of a running task counts as the machine of this task."""
    found: object = None
    for arc, adds in trail:
        owner = state.network.owners[arc]
        if isinstance(owner, str) and not adds:
            found = state.tasks[owner].machine
            break
        if isinstance(owner, str):
            found = next((target for target, its in state.network.tasks[owner].arcs.items() if its == arc), None)
        elif owner is not None and adds:
            found = owner[1]
        if isinstance(found, str):
            break
    return found if isinstance(found, str) and found in state.cluster.machines else None


def _displaced(state: LiveState, trail: _Trail, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tasks that stop, and tasks that move, when one unit of flow takes this path."""
    stops: list[str] = []
    moves: list[str] = []
    for arc, adds in trail:
        owner = state.network.owners[arc]
        if isinstance(owner, str) and owner != name and adds:
            (stops if arc == state.network.tasks[owner].wait_arc else moves).append(owner)
    return tuple(stops), tuple(moves)


def _blocker(optimum: Optimum, name: str, out: CheapestPaths, waiting: int, stops: tuple[str, ...]) -> str | None:
    """A running task such that every optimum runs ``name`` once it ends; one of ``stops`` if possible."""
    network = optimum.state.network
    job = network.jobs[network.tasks[name].job].node
    others = optimum.from_sink(network.tasks[name].wait_arc)
    if not others.reached[job]:
        return None
    nodes, wait_arcs = optimum.running
    reached = others.reached[nodes]
    gain = np.where(reached, others.cost[job] - waiting + out.cost[nodes] - others.cost[nodes], -1)
    ends = np.flatnonzero(out.reached[nodes] & (gain < 0).astype(bool))
    among = ends[np.isin(nodes[ends], [network.tasks[other].node for other in stops])]
    ends = among if len(among) else ends
    best = wait_arcs[ends[gain[ends] == gain[ends].min(initial=0)]]
    return min((str(network.owners[arc]) for arc in best.tolist()), default=None)


def _words(
    state: LiveState, name: str, said: str, machine: str | None, stops: tuple[str, ...], price: int | None
) -> tuple[Literal["placement", "share", "priority", "worth"], str, str]:
    """Rule, reason and remedy."""
    task = state.tasks[name]
    if not stops and price is not None:
        less = Fraction(price - 1, state.rules.scale.factor)
        worth = f"waiting costs {less} less than its cheapest place, {machine!r}, with what moves for it"
        return "worth", worth, "lower its cost there, or raise what waiting costs (wait_cost)"
    jobs = {state.tasks[other].job for other in stops}
    if said == SHARE_USED or (state.rules.shares is not None and price is None):
        job = state.jobs[task.job].job
        return (
            "share",
            f"{SHARE_USED} ({task.job!r}: weight {job.weight}, max_tasks {job.max_tasks})",
            (f"raise the weight or max_tasks of {task.job!r} (update_shares), add slots, or end another of its tasks"),
        )
    if said != WORTH_MORE:
        return "placement", said, "add a machine that it may take, or end one of these tasks"
    least, who = (
        min((state.jobs[state.tasks[other].job].job.priority for other in stops), default=task.priority),
        ", ".join(stops),
    )
    if price is None and least < task.priority:
        reason = f"{who} of {', '.join(sorted(jobs))}, more important (priority {least}), would have to stop for it"
        remedy = f"give {task.job!r} (priority {task.priority}) a priority of at most {least}, or add slots"
        return "priority", reason, remedy
    at = "" if machine is None else f", on {machine!r},"
    held = f"its cheapest place{at} is held by {who or 'others'}, worth as much or more"
    return "worth", held, "make the task worth more (see the price), add slots, or end what holds them"
