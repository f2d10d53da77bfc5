"""The network's optimum as of now, and its residual network: what explanations are read from."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.models.flow.goals.goal_interface import Spot
from flowlex.models.flow.live.cluster_state import LiveState
from flowlex.models.flow.live.network_parts import Session, Target
from flowlex.models.flow.live.residual_paths import Residual

__all__ = ["Optimum"]


@dataclass(frozen=True)
class Optimum:
    """See the module; holds until the state changes.

    Attributes
    ----------
    session
        Solved; a copy where events have come since the last step, as the next step chooses among equal optima itself.
    """

    state: LiveState
    session: Session

    @classmethod
    def of(cls, state: LiveState) -> Optimum:
        """The optimum with all events so far."""
        session = deepcopy(state.session) if state.session.changes else state.session
        session.solve()
        return cls(state, session)

    @cached_property
    def residual(self) -> Residual:
        """The residual network."""
        return Residual.of(self.session)

    @cached_property
    def machine_of_node(self) -> dict[int, str | None]:
        """Machine of each vertex of a machine or a task."""
        state = self.state
        found: dict[int, str | None] = {its.node: name for name, its in state.network.machines.items()}
        return found | {its.node: state.tasks[name].machine for name, its in state.network.tasks.items()}

    @cached_property
    def task_arrays(self) -> tuple[list[str], Integers, Integers]:
        """Names of all tasks, their vertices and the arcs by which they wait."""
        tasks = self.state.network.tasks
        nodes = np.fromiter((task.node for task in tasks.values()), np.int64, len(tasks))
        arcs = np.fromiter((task.wait_arc for task in tasks.values()), np.int64, len(tasks))
        return list(tasks), nodes, arcs

    @cached_property
    def held(self) -> dict[str, int]:
        """The tasks that may only stay or stop, with their arcs to stay."""
        state, tasks = self.state, self.state.network.tasks
        names = (name for job in state.preemptions.jobs for name in state.jobs[job].tasks if state.tasks[name].held)
        return {name: next(iter(tasks[name].arcs.values()))[0] for name in names}

    def without_limits(self) -> Session:
        """A copy of the optimum where held tasks may stop and move freely, solved."""
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
