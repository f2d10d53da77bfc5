"""Among optimal schedules, keep the present one: drop changes of the network's optimum that do not lower the cost.

The network returns any optimum. Its changes split into independent parts: cycles, which keep the number of tasks on
every machine and of waiting tasks in every job, and sets of chains that share no machine and no job. A part is dropped
if the cost is the same without it, unless more tasks run with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from flowlex.models.flow.goal_interface import Spot
from flowlex.systems.scheduler.live.cluster_state import LiveState
from flowlex.systems.scheduler.live.side_constraints import Changes

#: The name of a machine, or (job,) for the waiting tasks of a job.
_Place = str | tuple[str]


def without_idle_changes(state: LiveState, changes: Changes) -> Changes:
    """Return the changes of an optimum without those that do not lower the cost.

    ``changes``: machines (now, next) of each task that the optimum changes.
    """
    if all(now is None for now, _ in changes.values()):  # more tasks run
        return {name: pair for name, pair in changes.items() if pair[1] is not None}
    better = {name: now for name, (now, _) in changes.items()}
    other = [name for name, (now, found) in changes.items() if found != now]
    if not other:
        return changes
    weighing = _Weighing(state, {name: found for name, (_, found) in changes.items()}, better)
    idle = (
        other
        if weighing.is_idle(other)
        else [t for part in weighing.parts(other) if weighing.is_idle(part) for t in part]
    )
    left = changes.keys() - set(idle)
    return {name: pair for name, pair in changes.items() if name in left and pair[0] != pair[1]}


class _Weighing:
    """Compares the cost of tasks on their present machines (``better``) with that of the optimum (``found``)."""

    def __init__(self, state: LiveState, found: Mapping[str, str | None], better: Mapping[str, str | None]) -> None:
        self._state, self._found, self._better = state, found, better
        self._held: Counter[str] = Counter()
        for name, machine in found.items():
            now = state.tasks[name].machine
            if machine is not None:
                self._held[machine] += 1
            if now is not None:
                self._held[now] -= 1

    def parts(self, names: Iterable[str]) -> list[list[str]]:
        """Split changes into cycles, and the rest into components with common machines or jobs."""
        leaving: dict[_Place, list[str]] = defaultdict(list)
        for name in names:
            leaving[self._place(name, self._found[name])].append(name)
        cycles, chains = list[list[str]](), list[str]()
        for start in list(leaving):
            while leaving[start]:
                self._walk(start, leaving, cycles, chains)
        return [*cycles, *self._together(chains)]

    def _together(self, chains: Iterable[str]) -> list[list[str]]:
        """Group the changes of chains by connected component of their machines and jobs."""
        names, number = list(chains), dict[_Place, int]()
        ends = [
            [number.setdefault(self._place(name, where[name]), len(number)) for name in names]
            for where in (self._found, self._better)
        ]
        joined = coo_array((np.ones(len(names)), ends), shape=(len(number), len(number)))
        part_of = connected_components(joined, directed=False)[1].tolist()
        parts: dict[int, list[str]] = defaultdict(list)
        for name, place in zip(names, ends[0], strict=True):
            parts[part_of[place]].append(name)
        return list(parts.values())

    def _walk(
        self, start: _Place, leaving: dict[_Place, list[str]], cycles: list[list[str]], chains: list[str]
    ) -> None:
        """Follow changes from ``start`` until no change leaves the place reached; move closed cycles to ``cycles``."""
        at, way, places = start, list[str](), {start: 0}
        while leaving.get(at):
            name = leaving[at].pop()
            way.append(name)
            at = self._place(name, self._better[name])
            if at in places:
                cycle = way[places[at] :]
                del way[places[at] :]
                cycles.append(cycle)
                for name in cycle[:-1]:
                    del places[self._place(name, self._better[name])]
            else:
                places[at] = len(way)
        chains += way

    def _place(self, name: str, machine: str | None) -> _Place:
        return (self._state.tasks[name].job,) if machine is None else machine

    def is_idle(self, names: Iterable[str]) -> bool:
        """Return whether all tasks can keep their present places at equal cost, with no fewer of them running."""
        names = list(names)
        if sum((self._better[name] is None) - (self._found[name] is None) for name in names) > 0:
            return False
        cost = 0
        for name in names:
            there, here = self._cost(name, self._better[name]), self._cost(name, self._found[name])
            if there is None or here is None:
                return False
            cost += there - here
        more: Counter[_Place] = Counter()
        for name in names:
            more[self._place(name, self._better[name])] += 1
            more[self._place(name, self._found[name])] -= 1
        for place, count in more.items():
            extra = self._extra(place, count) if count else 0
            if extra is None:
                return False
            cost += extra
        return cost == 0 and self._apart(names) and self._gates(names)

    def _cost(self, name: str, machine: str | None) -> int | None:
        """Least arc cost of a task to a machine, or its cost of waiting; None if no arc leads there."""
        node, cluster = self._state.network.tasks[name], self._state.cluster
        if machine is None:
            return node.wait_cost
        if machine not in cluster.machines:
            return None
        fits = (
            self._state.network.costs[arc]
            for target, arc in node.arcs.items()
            if target == machine or (isinstance(target, Spot) and cluster.meets(machine, target))
        )
        return min(fits, default=None)

    def _extra(self, place: _Place, more: int) -> int | None:
        """Cost of ``more`` further tasks on a machine, or waiting in a job; None if they do not fit."""
        state = self._state
        if isinstance(place, str):
            held = len(state.tasks_on.get(place, ())) + self._held[place]
            steps = [(capacity, cost) for _, capacity, cost in state.network.machines[place].arcs]
        else:
            (job,) = place
            live, bounds = state.jobs[job], state.network.jobs[job].bounds
            found = (self._found.get(name, state.tasks[name].machine) for name in live.tasks)
            held = sum(machine is None for machine in found) - bounds.must
            steps = [(bounds.free, bounds.wait_cost), (bounds.short, bounds.short_cost)]
        before, after = _filled(steps, held), _filled(steps, held + more)
        return None if before is None or after is None else after - before

    def _apart(self, names: list[str]) -> bool:
        """Return whether tasks that must run on different machines do so."""
        state, moved = self._state, {name: self._better[name] for name in names}
        for name, machine in moved.items():
            rule = state.tasks[name].apart
            if not rule or machine is None:
                continue
            for other in state.tasks_apart[rule]:
                now = moved.get(other, self._found.get(other, state.tasks[other].machine))
                if other != name and now == machine:
                    return False
        return True

    def _gates(self, names: list[str]) -> bool:
        """Return whether no job has more held tasks stopped than in the optimum, which respects the limits."""
        stops: Counter[str] = Counter()
        for name in names:
            task = self._state.tasks[name]
            if task.held:
                stops[task.job] += (self._better[name] is None) - (self._found[name] is None)
        return all(count <= 0 for count in stops.values())


def _filled(steps: list[tuple[int, int]], count: int) -> int | None:
    """Cost of ``count`` units on (capacity, cost) steps, cheapest first; None if ``count`` does not fit."""
    if count < 0:
        return None
    cost = 0
    for capacity, each in sorted(steps, key=lambda step: step[1]):
        cost += each * min(capacity, count)
        count -= min(capacity, count)
    return None if count else cost
