"""The present optimum of the network, and cheapest paths in its residual network, from which explanations follow."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from flowlex.formulations.program_arrays import Integers
from flowlex.formulations.sessions.live_network import NetworkSession
from flowlex.formulations.sessions.residual_network import FAR
from flowlex.models.flow.goal_interface import Spot
from flowlex.systems.scheduler.live.cluster_state import LiveState
from flowlex.systems.scheduler.live.live_assignment import Target
from flowlex.systems.scheduler.live.session_choice import Session


@dataclass(frozen=True)
class Paths:
    """Cheapest paths from a vertex to all others."""

    distance: NDArray[Any]  # (N,), valid where reached
    link: Integers  # (N,) last arc of the path
    reached: NDArray[np.bool_]


@dataclass(frozen=True)
class Residual:
    """Residual arcs (A,) sorted by tail: those of node n are ``start[n]`` up to ``start[n + 1]``."""

    slot: Integers
    tail: Integers
    head: Integers
    cost: NDArray[Any]  # int64, or Python integers if costs exceed 64 bits
    forward: NDArray[np.bool_]
    start: Integers

    @classmethod
    def of(cls, session: Session) -> Residual:
        """Return the residual network of a solved session."""
        tail, head, capacity, _ = session.arcs()
        cost: NDArray[Any] = session.costs(np.arange(len(tail)))
        there, back = np.flatnonzero(session.flow < capacity), np.flatnonzero(session.flow > 0)
        tails = np.concatenate((tail[there], head[back]))
        count = len(tails)  # counting sort, ten times as fast as `argsort`
        sorted_ = coo_array((np.ones(count, np.int8), (tails, np.arange(count))), (session.node_count, count)).tocsr()
        by_tail = sorted_.indices.astype(np.int64)
        return cls(
            np.concatenate((there, back))[by_tail],
            tails[by_tail],
            np.concatenate((head[there], tail[back]))[by_tail],
            np.concatenate((cost[there], -cost[back]))[by_tail],
            by_tail < len(there),
            sorted_.indptr.astype(np.int64),
        )

    @property
    def _far(self) -> float:
        """An upper bound on the cost of any path."""
        return FAR if self.cost.dtype == np.int64 else inf

    def cheapest(self, source: int, without: int) -> Paths:
        """Cheapest paths that avoid the session's arc ``without`` (Bellman-Ford, vectorized by round).

        An optimum has no negative residual cycle.
        """
        nodes = len(self.start) - 1
        found = Paths(np.zeros(nodes, self.cost.dtype), np.full(nodes, -1), np.zeros(nodes, bool))
        found.reached[source] = True
        active = np.array([source])
        while len(active):
            arcs = _ranges(self.start[active], self.start[active + 1])
            arcs = arcs[self.slot[arcs] != without]
            new = found.distance[self.tail[arcs]] + self.cost[arcs]
            ends = self.head[arcs]
            better = ~found.reached[ends] | (new < found.distance[ends]).astype(bool)
            arcs, new, ends = arcs[better], new[better], ends[better]
            fresh = ends[~found.reached[ends]]
            found.distance[fresh] = self._far
            np.minimum.at(found.distance, ends, new)
            best = np.flatnonzero(new == found.distance[ends])[::-1]  # reversed: among equal arcs, the first is kept
            found.link[ends[best]], found.reached[ends] = arcs[best], True
            is_active = np.zeros(nodes, bool)
            is_active[ends] = True
            active = np.flatnonzero(is_active)
        return found


def _ranges(starts: Integers, ends: Integers) -> Integers:
    """Concatenate the ranges ``starts[k]`` to ``ends[k] - 1``."""
    count = ends - starts
    return np.arange(count.sum()) + np.repeat(ends - np.cumsum(count), count)


@dataclass(frozen=True)
class Optimum:
    """The present optimum; valid until the state changes."""

    state: LiveState
    # solved session; a copy if there were events since the last step, so that the next step starts from the original
    session: Session

    @classmethod
    def of(cls, state: LiveState) -> Optimum:
        """Solve the network with all events so far."""
        session = deepcopy(state.session) if state.session.changes else state.session
        session.solve()
        return cls(state, session)

    @cached_property
    def residual(self) -> Residual:
        """The residual network."""
        return Residual.of(self.session)

    def from_sink(self, without: int) -> Paths:
        """Cheapest paths from the sink to all vertices but that of a task, without the arc by which this task waits."""
        found, residual = self._from_sink, self.residual
        links = found.link[found.link >= 0]
        tails = residual.tail[links]
        waits = links[residual.slot[links] == without]
        if not len(waits) or not (tails == residual.head[waits[0]]).any():  # no path leads through the task
            return found
        return residual.cheapest(NetworkSession.root, without)

    @cached_property
    def _from_sink(self) -> Paths:
        return self.residual.cheapest(NetworkSession.root, -1)

    @cached_property
    def task_arrays(self) -> tuple[list[str], Integers, Integers]:
        """Names, vertices and waiting arcs of all tasks."""
        tasks = self.state.network.tasks
        nodes = np.fromiter(map(attrgetter("node"), tasks.values()), np.int64, len(tasks))
        return list(tasks), nodes, np.fromiter(map(attrgetter("wait_arc"), tasks.values()), np.int64, len(tasks))

    @cached_property
    def held(self) -> dict[str, int]:
        """Held tasks, which may not move, with their arcs to their present machines."""
        state, tasks = self.state, self.state.network.tasks
        names = (name for job in state.preemptions.jobs for name in state.jobs[job].tasks if state.tasks[name].held)
        return {name: next(iter(tasks[name].arcs.values()))[0] for name in names}

    def without_limits(self) -> Session:
        """Return a solved copy of the session in which held tasks may stop and move freely."""
        session, state, network = deepcopy(self.session), self.state, self.state.network
        for job in {state.tasks[name].job for name in self.held}:
            its = network.jobs[job]
            if its.gate is not None:
                session.change_arc(its.gate[1], its.gate[0], its.node, len(self.held), 0)
        for name in self.held:
            task = state.tasks[name]
            free = replace(task, held=False, limited=False)
            for target, cost in state.rules.staying(free, dict(task.moving or {}), state.cluster).items():
                place = network.machines.get(target) if isinstance(target, str) else network.groups.get(target)
                if place is not None and not (target == task.machine or _is_at(target, task.machine)):
                    session.add_arc(network.tasks[name].node, place.node, 1, cost)
        session.solve()
        return session


def _is_at(target: Target, machine: str | None) -> bool:
    return isinstance(target, Spot) and bool(target.once) and f"machine:{machine}" in target.has
