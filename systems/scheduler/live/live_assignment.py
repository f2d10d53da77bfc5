"""Assign tasks to machines after each optimum.

The group's flow to a machine is the number of its tasks that run there; a roster chooses which tasks, first those
that already ran on this machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flowlex.formulations.program_arrays import Integers
from flowlex.models.flow.goal_interface import Spot
from flowlex.systems.scheduler.live.session_choice import Session

#: A machine by name, or a group of machines.
Target = str | Spot


@dataclass(slots=True)
class TaskNode:
    """A task: its vertex, the arc by which it waits, and its other arcs by target."""

    node: int
    job: str
    wait_arc: int
    wait_cost: int
    arcs: dict[Target, int]
    target: Target | None = None  # where its unit goes, None when it waits
    machine: str | None = None
    held: bool = False  # its waiting arc leads to the gate of its job


@dataclass(slots=True, eq=False)
class Roster:
    """The tasks of a group, or of several groups that share their blocks, by machine."""

    name: str  # name in messages
    units: Callable[[str, Integers], int]  # returns the number of tasks that a flow sends to a machine
    # returns whether a task may run on a machine; None: every task may run on every machine
    fits: Callable[[str, str], bool] | None = None
    only: str | None = None  # the machine of all its tasks, if the group has only one
    held: dict[str, dict[str, None]] = field(default_factory=dict)  # its tasks by machine, in order of arrival
    loose: dict[str, None] = field(default_factory=dict)  # tasks without a machine
    changed: set[str] = field(default_factory=set)  # machines whose flow may differ from the number of tasks held

    def free_places(self, flow: Integers) -> dict[str, int]:
        """Return by machine the flow minus the tasks held, where positive; tasks in excess of the flow become loose."""
        free: dict[str, int] = {}
        for machine in sorted(self.changed):
            held, units = self.held.setdefault(machine, {}), self.units(machine, flow)
            while len(held) > units:
                self.loose[held.popitem()[0]] = None
            if units > len(held):
                free[machine] = units - len(held)
            if not held:
                del self.held[machine]
        self.changed.clear()
        return free


#: The owner of an arc: a task, or a roster with the machine to which the arc leads.
Owner = str | tuple[Roster, str]


class Arcs:
    """The arcs of a session, with the owner of each, and the costs of those of tasks."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.owners: list[Owner | None] = []
        self.costs: list[int] = []

    def add(self, tail: int, head: int, capacity: int, cost: int, owner: Owner | None = None) -> int:
        """Add an arc and return its slot."""
        slot = self.session.add_arc(tail, head, capacity, cost)
        self._note((slot,), (cost,), owner)
        return slot

    def add_units(self, tail: int, heads: Sequence[int], costs: Sequence[int], owner: Owner) -> list[int]:
        """Add arcs of capacity 1 out of one vertex and return their slots."""
        slots = self.session.add_arcs(tail, heads, costs)
        self._note(slots, costs, owner)
        return slots

    def _note(self, slots: Sequence[int], costs: Sequence[int], owner: Owner | None) -> None:
        if slots and (more := slots[-1] + 1 - len(self.owners)) > 0:  # new slots come last
            self.owners += [None] * more
            self.costs += [0] * more
        for slot, cost in zip(slots, costs, strict=True):
            self.owners[slot], self.costs[slot] = owner, cost

    def change(self, slot: int, tail: int, head: int, cost: int) -> None:
        """Give an arc of capacity 1 another cost or head."""
        self.session.change_arc(slot, tail, head, 1, cost)
        self.costs[slot] = cost

    def drop(self, slot: int) -> None:
        """Remove an arc."""
        self.session.remove_arc(slot)
        self.owners[slot] = None


class Assignment:
    """The machine of each task, updated after each optimum.

    ``arcs``: the arcs, whose flow determines where tasks run. ``tasks``: the tasks by name, as the network adds and
    removes them.
    """

    def __init__(self, arcs: Arcs, tasks: Mapping[str, TaskNode]) -> None:
        self.rosters: dict[Spot, Roster] = {}
        self._arcs, self._tasks = arcs, tasks
        self._touched: dict[str, None] = {}  # tasks whose arcs have changed
        self._open: dict[Roster, None] = {}  # rosters with changed machines or loose tasks

    def touch(self, name: str) -> None:
        """Note that the arcs of a task have changed."""
        self._touched[name] = None

    def change(self, roster: Roster, machine: str) -> None:
        """Note that a roster's flow to a machine may change."""
        roster.changed.add(machine)
        self._open[roster] = None

    def lose(self, roster: Roster, machine: str) -> None:
        """Note that a machine of a roster was removed."""
        roster.loose.update(roster.held.pop(machine, {}))
        roster.changed.discard(machine)
        self._open[roster] = None

    def close(self, roster: Roster) -> None:
        """Forget a roster without tasks."""
        self._open.pop(roster, None)

    def displace(self, name: str, machine: str | None) -> None:
        """Record that a task's machine differs from its flow; the next `read_changes` reports the machine by flow."""
        task = self._tasks[name]
        if isinstance(task.target, Spot):
            self._leave(name, task)
            self._loosen(name, task.target)
        task.machine = machine
        self._touched[name] = None

    def remove(self, name: str, task: TaskNode) -> None:
        """Forget a task."""
        self._leave(name, task)
        self._touched.pop(name, None)

    def read_changes(self) -> dict[str, tuple[str | None, str | None]]:
        """Return the tasks whose machine has changed since the last call: (then, now)."""
        flow = self._arcs.session.flow
        units = flow.data  # reading single entries is four times as fast this way
        touched, self._touched = self._touched, {}
        for slot in self._arcs.session.take_touched()[0].tolist():
            owner = self._arcs.owners[slot]
            if isinstance(owner, str):
                touched[owner] = None
            elif owner is not None:
                self.change(*owner)
        before: dict[str, str | None] = {}
        for name in touched:
            task = self._tasks.get(name)
            if task is None:
                continue
            target = None
            for place, slot in task.arcs.items():
                if units[slot]:
                    target = place
                    break
            before[name] = task.machine
            if isinstance(target, Spot) and target == task.target:
                continue
            self._leave(name, task)
            task.target = target
            if isinstance(target, Spot):
                self._loosen(name, target)
            else:
                task.machine = target
        rosters, self._open = self._open, {}
        for roster in rosters:
            self._assign(roster, flow, before)
        machines = ((name, old, self._tasks[name].machine) for name, old in before.items())
        return {name: (old, now) for name, old, now in machines if old != now}

    def _loosen(self, name: str, target: Spot) -> None:
        roster = self.rosters[target]
        roster.loose[name] = None
        self._open[roster] = None

    def _leave(self, name: str, task: TaskNode) -> None:
        if not isinstance(task.target, Spot):
            return
        roster = self.rosters[task.target]
        roster.loose.pop(name, None)
        if task.machine is not None and name in roster.held.get(task.machine, {}):
            del roster.held[task.machine][name]
            self.change(roster, task.machine)

    def _assign(self, roster: Roster, flow: Integers, before: dict[str, str | None]) -> None:
        """Assign the tasks of a roster to machines by its flow; move as few tasks as possible."""
        free: dict[str, int] = {}
        if roster.only is None:
            free = roster.free_places(flow)
        roster.changed.clear()
        loose, roster.loose = list(roster.loose), {}
        rest = []
        for name in loose:
            machine = before.setdefault(name, self._tasks[name].machine)
            if roster.only is not None:
                self._hold(roster, roster.only, name)
            elif machine is not None and free.get(machine, 0) and (roster.fits is None or roster.fits(name, machine)):
                free[machine] -= 1
                self._hold(roster, machine, name)
            else:
                rest.append(name)
        if roster.fits is not None:
            for name, machine in hand_out(rest, free, roster.held, roster.fits).items():
                now = self._tasks[name].machine
                before.setdefault(name, now)
                roster.held.get(str(now), {}).pop(name, None)
                self._hold(roster, machine, name)
            return
        places = [machine for machine, units in free.items() for _ in range(units)]
        assert len(places) == len(rest), f"{roster.name}: {len(rest)} tasks for {len(places)} units of flow"
        for name, machine in zip(rest, places, strict=True):
            self._hold(roster, machine, name)

    def _hold(self, roster: Roster, machine: str, name: str) -> None:
        roster.held.setdefault(machine, {})[name] = None
        self._tasks[name].machine = machine


def hand_out(
    tasks: Iterable[str], free: dict[str, int], held: Mapping[str, Iterable[str]], fits: Callable[[str, str], bool]
) -> dict[str, str]:
    """Assign every task to a machine that fits it and has a free slot; augmenting paths move other tasks if needed.

    ``free``: free slots by machine; updated. ``held``: tasks by machine that are already assigned. Returns the new
    machine of each of ``tasks`` and of each task of ``held`` that moves. Raises `RuntimeError` if a task cannot be
    assigned; the flow guarantees an assignment, so this is a defect of the program.
    """
    found: dict[str, str] = {}
    for task in tasks:
        place = next((m for m, units in free.items() if units and fits(task, m)), None)
        way = [(task, place)] if place is not None else _exchange(task, free, _tasks_by_machine(held, found), fits)
        found.update(way)
        free[way[0][1]] -= 1
    return found


def _tasks_by_machine(held: Mapping[str, Iterable[str]], found: Mapping[str, str]) -> dict[str, list[str]]:
    """Tasks by machine, with the new assignments ``found``."""
    there = {machine: [task for task in those if task not in found] for machine, those in held.items()}
    for task, machine in found.items():
        there.setdefault(machine, []).append(task)
    return there


def _exchange(
    task: str, free: Mapping[str, int], there: Mapping[str, list[str]], fits: Callable[[str, str], bool]
) -> list[tuple[str, str]]:
    """Find an augmenting path for a task by breadth-first search: (task, machine) pairs, the free slot first."""
    came: dict[str, tuple[str, str] | None] = {task: None}  # task: the task that takes its place, and its machine
    queue, seen = deque([task]), set[str]()
    while queue:
        mover = queue.popleft()
        for machine, those in there.items():
            if machine in seen or not those or not fits(mover, machine):
                continue
            seen.add(machine)
            for other in those:
                came[other] = (mover, machine)
                place = next((m for m, units in free.items() if units and fits(other, m)), None)
                if place is not None:
                    way = [(other, place)]
                    while (step := came[way[-1][0]]) is not None:
                        way.append(step)
                    return way
                queue.append(other)
    raise RuntimeError(f"the flow has a place for task {task!r}, but none fits it")
