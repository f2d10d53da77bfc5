"""The present optimum of the network, with what explanations share: its arcs, and the cheapest paths from the sink."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.models.flow.goal_interface import Spot
from flowlex.systems.scheduler.live.cluster_state import LiveState
from flowlex.systems.scheduler.live.live_assignment import Target
from flowlex.systems.scheduler.live.session_choice import Session
from flowlex.systems.scheduler.warm_network.network_session import CheapestPaths, NetworkSession


@dataclass(frozen=True)
class Optimum:
    """The present optimum; valid until the state changes."""

    state: LiveState
    # solved session; a copy if there were events since the last step, so that the next step starts from the original
    session: Session
    _shared: dict[int, CheapestPaths] = field(default_factory=dict)  # cheapest paths by the vertex where they begin

    @classmethod
    def of(cls, state: LiveState) -> Optimum:
        """Solve the network with all events so far."""
        session = deepcopy(state.session) if state.session.changes else state.session
        session.solve()
        return cls(state, session)

    @cached_property
    def ends(self) -> tuple[Integers, Integers]:
        """Tail and head of each arc."""
        return self.session.arcs()[:2]

    def from_sink(self, without: int) -> CheapestPaths:
        """Cheapest paths from the sink to all vertices but that of a task, without the arc by which this task waits."""
        found, parents = self._from_sink
        task = np.flatnonzero(found.link == without)
        leads_through = len(task) and (parents == task[0]).any()
        return self.session.cheapest_paths(NetworkSession.root, without) if leads_through else found

    @cached_property
    def _from_sink(self) -> tuple[CheapestPaths, Integers]:
        """Cheapest paths to all vertices, and the vertex before each on its path; -1 if there is none."""
        found, (tail, head) = self.session.cheapest_paths(NetworkSession.root), self.ends
        before = np.where(head[found.link] == np.arange(len(found.link)), tail[found.link], head[found.link])
        return found, np.where(found.link < 0, -1, before)

    def from_task(self, name: str) -> tuple[CheapestPaths, int, tuple[int, ...]]:
        """Cheapest paths from a waiting task without its waiting arc, the vertex of the search, and the arc before it.

        All tasks whose only place is one machine or group share the search from there. It may lead through the task,
        but only on a cycle, which is never cheaper; and the waiting arc is full.
        """
        network, task = self.state.network, self.state.network.tasks[name]
        if len(task.arcs) != 1:
            return self.session.cheapest_paths(task.node, task.wait_arc), task.node, ()
        ((target, arc),) = task.arcs.items()
        node, cost = network.place(target).node, network.costs[arc]
        if node not in self._shared:
            self._shared[node] = self.session.cheapest_paths(node)
        return self._shared[node]._replace(cost=self._shared[node].cost + cost), node, (arc,)

    @cached_property
    def running(self) -> tuple[Integers, Integers]:
        """Vertices and waiting arcs of the tasks that run."""
        arcs = self.state.network.wait_arcs
        nodes = np.flatnonzero(arcs >= 0)
        nodes = nodes[self.session.flow[arcs[nodes]] == 0]
        return nodes, arcs[nodes]

    @cached_property
    def held(self) -> dict[str, int]:
        """Held tasks, which may not move, with their arcs to their present machines."""
        state, tasks = self.state, self.state.network.tasks
        names = (name for job in state.preemptions.jobs for name in state.jobs[job].tasks if state.tasks[name].held)
        return {name: next(iter(tasks[name].arcs.values())) for name in names}

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
