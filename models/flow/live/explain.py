"""Why a task waits, what would place it, and at what price, read off the residual network of the optimum.

Let t wait at its job j. Placing it sends its unit along a path from t to j through the residual network (without
t's own waiting arc), and the cheapest such path, less what waiting costs t, is the reduced cost D >= 0 of placing it:
who moves and who stops stands on the path. So with waiting dearer by D + 1 every optimum runs t, and with D there is
still an optimum in which it waits.

When a running task u ends, the optimum changes by the cheapest residual path from the sink to u. Every optimum then
runs t exactly if all cheapest paths pass t, that is if sink - j - t - u is cheaper than any path without t.
Source: reconstructed (sensitivity of minimum-cost flows; Ahuja, Magnanti, Orlin, 1993, section 9.11).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.arrays import Integers
from flowlex.formulations.sessions.network import NetworkSession
from flowlex.formulations.sessions.phased import PhasedSession
from flowlex.models.flow.live.engines import solved_costs
from flowlex.models.flow.live.records import EventError
from flowlex.models.flow.live.state import LiveState
from flowlex.models.flow.live.state_queries import waiting_reason
from flowlex.models.flow.preemption import HOUR_S
from flowlex.models.flow.reasons import SHARE_USED, WORTH_MORE

__all__ = ["Explanation", "explain_task"]

#: Running tasks that are tried one by one as blockers under `FairShares`, where an end changes the bounds of jobs.
_TRIALS = 4


@dataclass(frozen=True)
class Explanation:
    """Why a task waits.

    Attributes
    ----------
    rule
        ``placement`` (labels, racks, tasks kept apart, or no slot at all), ``share`` (the bounds of its job),
        ``priority`` (a more important class holds the places), ``preemption`` (jobs whose limit of preemptions is used
        up hold them) or ``worth`` (running it costs more than it brings); also ``gang``, ``spread``, ``affinity`` and
        ``capacity``.
    reason, remedy
        In words: what keeps it out, and what would have to change.
    machine, rack
        Where it would run at the least cost; None when nowhere.
    price
        Least extra cost of its waiting that makes every optimum run it, in the costs of the goals (whole units of
        1 / scale); with one unit less there is still an optimum without it. Under ``lexicographic``, in the cost of
        the first goal. None when no cost within ``cost_limit`` does.
    cost
        Explicit cost on ``machine`` that comes to the same: ``set_cost(task, machine, cost)`` places it. None without
        a price, and under ``lexicographic``.
    stops, moves
        Tasks that would stop and move for it at that price.
    priced
        Whether what follows ``remedy`` was looked for; not where rules tie tasks or machines have capacities.
    blocker
        A running task with whose end every optimum runs this one; None when no single one is such (another task
        waits before it, or as well). Under `FairShares` the tasks of ``stops`` and a few of its own job are tried on
        a copy of the scheduler.
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
    priced: bool = True

    def __str__(self) -> str:
        return f"{self.task} waits: {self.reason}. {self.remedy[:1].upper()}{self.remedy[1:]}."


@dataclass(frozen=True)
class _Residual:
    """Arcs with room (A,), forward ones first, without the waiting arc of the task in question."""

    slot: Integers
    tail: Integers
    head: Integers
    cost: NDArray[Any]  # int64, or Python integers where the order needs more
    forward: NDArray[np.bool_]
    nodes: int

    @classmethod
    def of(cls, session: NetworkSession | PhasedSession, without: int) -> _Residual:
        tail, head, capacity = session.arcs()[:3]
        dtype: Any = np.int64 if isinstance(session, NetworkSession) else object
        cost: NDArray[Any] = np.array(solved_costs(session, np.arange(len(tail))), dtype)
        flow = session.flow
        there, back = np.flatnonzero(flow < capacity), np.flatnonzero(flow > 0)
        there, back = there[there != without], back[back != without]
        return cls(
            np.concatenate((there, back)),
            np.concatenate((tail[there], head[back])),
            np.concatenate((head[there], tail[back])),
            np.concatenate((cost[there], -cost[back])),
            np.arange(len(there) + len(back)) < len(there),
            session.node_count,
        )

    def cheapest(self, source: int) -> _Paths:
        """Cheapest paths to all nodes (Bellman and Ford, a round at a time); no cycle is negative at an optimum."""
        found = _Paths(np.zeros(self.nodes, self.cost.dtype), np.full(self.nodes, -1), np.zeros(self.nodes, bool))
        active = np.zeros(self.nodes, bool)
        active[source] = found.reached[source] = True
        for _ in range(self.nodes):
            arcs = np.flatnonzero(active[self.tail])
            new = found.distance[self.tail[arcs]] + self.cost[arcs]
            ends = self.head[arcs]
            better = ~found.reached[ends] | (new < found.distance[ends]).astype(bool)
            arcs, new = arcs[better], new[better]
            by_cost = np.argsort(new, kind="stable")
            heads, first = np.unique(self.head[arcs][by_cost], return_index=True)
            chosen = by_cost[first]
            found.distance[heads], found.link[heads], found.reached[heads] = new[chosen], arcs[chosen], True
            active[:] = False
            active[heads] = True
            if not len(heads):
                break
        return found


@dataclass(frozen=True)
class _Paths:
    distance: NDArray[Any]  # (N,), where reached
    link: Integers  # (N,) arc by which a node is reached
    reached: NDArray[np.bool_]


def explain_task(
    state: LiveState,
    name: str,
    placed_without: Callable[[str], bool],
    stopped_freely: Callable[[], tuple[str, ...] | None] | None = None,
) -> Explanation:
    """Explain why a task waits in the present optimum of the session.

    Parameters
    ----------
    placed_without
        Whether the task runs at once when another one ends; asked a few times at most, under `FairShares` only.
    stopped_freely
        Held tasks that stop or move where nothing limits preemptions; None when the task waits all the same.

    Raises
    ------
    EventError
        No task has the name, or it runs.
    """
    view, session, network = state.task(name), state.session, state.network
    task = network.tasks[name]
    if not session.flow[task.wait_arc]:
        where = "will be placed by the next step" if view.machine is None else f"runs on {view.machine!r}"
        raise EventError(f"task {name!r} {where}; only what waits is explained")
    if not network.could_run(name):
        remedy = "add or relabel a machine so that it meets this, or submit the task with another placement"
        return Explanation(name, view.job, "placement", waiting_reason(state, name), remedy)
    gives_way = None if stopped_freely is None else stopped_freely()
    if gives_way:
        return _held(state, name, gives_way)
    residual = _Residual.of(session, task.wait_arc)
    out, job = residual.cheapest(task.node), network.jobs[view.job].node
    if not out.reached[job]:
        return Explanation(
            name, view.job, "placement", "no machine it may take has a slot", "give one of these machines slots"
        )
    trail = _trail(residual, out, task.node, job)
    stops, moves = _displaced(state, residual, trail, name)
    margin = int(out.distance[job]) - task.wait_cost
    first = state.rules.first
    units = margin // first + 1
    price = None if units > state.order.limit else units
    machine = _first_place(state, residual, trail)
    factor, cost = state.rules.scale.factor, None
    if price is not None and machine is not None and state.rules.order is None:
        cost = float(Fraction(int(residual.cost[trail[0]]) - price, factor))
    rule, reason, remedy = _words(state, name, machine, stops, price)
    if state.rules.shares is None:
        blocker = _blocker(state, name, residual, out, stops)
    else:
        own = [other for other in state.jobs[view.job].tasks if state.tasks[other].machine is not None]
        blocker = next((u for u in list(dict.fromkeys([*stops, *own]))[:_TRIALS] if placed_without(u)), None)
    worth = None if price is None else float(Fraction(price, factor))
    rack = None if machine is None else state.cluster.machines[machine].rack
    return Explanation(name, view.job, rule, reason, remedy, machine, rack, worth, cost, stops, moves, blocker)


def _held(state: LiveState, name: str, stops: tuple[str, ...]) -> Explanation:
    """It would run if other tasks could be preempted."""
    jobs = {state.tasks[other].job: state.jobs[state.tasks[other].job] for other in stops}
    said, back = [], []
    for job, live in jobs.items():
        limit = live.job.preemptions_per_hour
        said.append(f"{job!r} is never preempted" if not limit else f"{job!r} may lose {limit} tasks an hour")
        if limit and len(live.preempted) >= limit:
            back.append(sorted(live.preempted)[len(live.preempted) - limit] + HOUR_S)
    reason = f"{', '.join(stops)} would have to stop or move for it, but {' and '.join(said)}"
    wait = f", wait until {min(back):g} s" if back else ""
    remedy = f"let {' or '.join(map(repr, jobs))} be preempted more often (set_preemption), add slots{wait}"
    return Explanation(name, state.tasks[name].job, "preemption", reason, remedy, stops=stops)


def _trail(residual: _Residual, paths: _Paths, source: int, node: int) -> list[int]:
    """The arcs of the cheapest path, in order."""
    arcs: list[int] = []
    while node != source:
        arcs.append(int(paths.link[node]))
        node = int(residual.tail[arcs[-1]])
    return arcs[::-1]


def _first_place(state: LiveState, residual: _Residual, trail: list[int]) -> str | None:
    """The machine that a path enters first, by itself or in the place of a task of the same group."""
    network = state.network
    places: dict[int, str | None] = {machine.node: label for label, machine in network.machines.items()}
    places |= {task.node: state.tasks[label].machine for label, task in network.tasks.items()}
    found = next((places[end] for end in residual.head[trail].tolist() if end in places), None)
    return found if found in state.cluster.machines else None


def _displaced(
    state: LiveState, residual: _Residual, trail: list[int], name: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tasks that stop and that move when the unit goes along a path."""
    stops: list[str] = []
    moves: list[str] = []
    for arc in trail:
        slot = int(residual.slot[arc])
        owner = state.network.owner(slot)
        if isinstance(owner, str) and owner != name and residual.forward[arc]:
            (stops if slot == state.network.tasks[owner].wait_arc else moves).append(owner)
    return tuple(stops), tuple(moves)


def _blocker(state: LiveState, name: str, residual: _Residual, out: _Paths, stops: tuple[str, ...]) -> str | None:
    """A running task with whose end every optimum runs ``name``, rather one of ``stops``."""
    task = state.network.tasks[name]
    job = state.network.jobs[task.job].node
    others = residual.cheapest(NetworkSession.root)
    if not others.reached[job]:
        return None
    flow, start = state.session.flow, others.distance[job] - task.wait_cost
    best: tuple[bool, int, str] | None = None
    for other, its in state.network.tasks.items():
        if flow[its.wait_arc] or not out.reached[its.node]:
            continue
        gain = int(start + out.distance[its.node] - others.distance[its.node]) if others.reached[its.node] else -1
        if gain < 0 or not others.reached[its.node]:
            best = min(best or (True, 0, other), (other not in stops, gain, other))
    return None if best is None else best[2]


def _words(
    state: LiveState, name: str, machine: str | None, stops: tuple[str, ...], price: int | None
) -> tuple[Literal["placement", "share", "priority", "worth"], str, str]:
    """Rule, reason and remedy."""
    view = state.tasks[name]
    if not stops and price is not None:
        less = Fraction(price - 1, state.rules.scale.factor)
        worth = f"waiting costs {less} less than its cheapest place, {machine!r}, with what moves for it"
        return "worth", worth, "lower its cost there, or raise what waiting costs (wait_cost)"
    said = waiting_reason(state, name)
    jobs = {state.tasks[other].job for other in stops}
    if said == SHARE_USED or (state.rules.shares is not None and price is None):
        job = state.jobs[view.job].job
        return (
            "share",
            f"{SHARE_USED} ({view.job!r}: weight {job.weight}, max_tasks {job.max_tasks})",
            (f"raise the weight or max_tasks of {view.job!r} (update_shares), add slots, or end another of its tasks"),
        )
    if said != WORTH_MORE:
        return "placement", said, "add a machine that it may take, or end one of these tasks"
    least, who = min((state.tasks[other].priority for other in stops), default=view.priority), ", ".join(stops)
    if price is None and least < view.priority:
        reason = f"{who} of {', '.join(sorted(jobs))}, more important (priority {least}), would have to stop for it"
        remedy = f"give {view.job!r} (priority {view.priority}) a priority of at most {least}, or add slots"
        return "priority", reason, remedy
    at = "" if machine is None else f", on {machine!r},"
    held = f"its cheapest place{at} is held by {who or 'others'}, worth as much or more"
    return "worth", held, "make the task worth more (see the price), add slots, or end what holds them"
