"""Who runs where after each optimum.

Tasks that run through a group of machines are told apart by bookkeeping: the group's flow to a machine says how many
of its tasks run there, and those that ran there before stay there first.
"""

from __future__ import annotations

from flowlex.formulations.arrays import Integers
from flowlex.models.flow.goals.base import ClusterView, Spot
from flowlex.models.flow.live.network_parts import GroupNode, JobNode, MachineNode, Owner, Session, TaskNode

__all__ = ["Assignment"]


class Assignment:
    """Tasks, jobs, machines and groups as slots of a session, and the machine of each task."""

    def __init__(self, session: Session, cluster: ClusterView) -> None:
        self.session = session
        self.cluster = cluster
        self.tasks: dict[str, TaskNode] = {}
        self.jobs: dict[str, JobNode] = {}
        self.machines: dict[str, MachineNode] = {}
        self.groups: dict[Spot, GroupNode] = {}
        self._owner: list[Owner | None] = []
        self._dirty: dict[str, None] = {}
        self._stirred: dict[GroupNode, None] = {}  # groups with spare machines or loose tasks

    def owners(self) -> list[Owner | None]:
        """The task, or the group and machine, that each arc belongs to."""
        return self._owner.copy()

    def read_changes(self) -> dict[str, tuple[str | None, str | None]]:
        """Tasks whose machine is another than at the last call: (then, now)."""
        flow = self.session.flow
        dirty, self._dirty = self._dirty, {}
        for slot in self.session.take_touched()[0].tolist():
            owner = self._owner[slot]
            if isinstance(owner, str):
                dirty[owner] = None
            elif owner is not None:
                self._spare(*owner)
        before: dict[str, str | None] = {}
        for name in dirty:
            task = self.tasks.get(name)
            if task is None:
                continue
            target = next((t for t, (slot, _) in task.arcs.items() if flow[slot]), None)
            before[name] = task.machine
            if isinstance(target, Spot) and target == task.target:
                continue
            self._leave(name, task)
            task.target = target
            if isinstance(target, Spot):
                books = self.groups[target].books
                books.loose[name] = None
                self._stirred[books] = None
            else:
                task.machine = target
        stirred, self._stirred = self._stirred, {}
        for group in stirred:
            self._assign(group, flow, before)
        return {
            name: (old, self.tasks[name].machine) for name, old in before.items() if old != self.tasks[name].machine
        }

    def displace(self, name: str, machine: str | None) -> None:
        """Note that a task runs elsewhere than its unit goes; the next `read_changes` tells what the flow wants."""
        task = self.tasks[name]
        if isinstance(task.target, Spot):
            self._leave(name, task)
            books = self.groups[task.target].books
            books.loose[name] = None
            self._stirred[books] = None
        task.machine = machine
        self._dirty[name] = None

    def _leave(self, name: str, task: TaskNode) -> None:
        if not isinstance(task.target, Spot):
            return
        group = self.groups[task.target].books
        group.loose.pop(name, None)
        if task.machine is not None and name in group.held.get(task.machine, {}):
            del group.held[task.machine][name]
            self._spare(group, task.machine)

    def _assign(self, group: GroupNode, flow: Integers, before: dict[str, str | None]) -> None:
        """Hand the group's tasks to the machines its flow goes to, moving as few as possible."""
        room: dict[str, int] = {}
        for name in sorted(group.spare):
            held = group.held.setdefault(name, {})
            units = group.units(name, flow)
            while len(held) > units:
                group.loose[held.popitem()[0]] = None
            if units > len(held):
                room[name] = units - len(held)
            if not held:
                del group.held[name]
        group.spare.clear()
        loose, group.loose = list(group.loose), {}
        rest = []
        for name in loose:
            machine = before.setdefault(name, self.tasks[name].machine)
            if machine is not None and room.get(machine, 0) and self._suits(group, name, machine):
                room[machine] -= 1
                self._hold(group, machine, name)
            else:
                rest.append(name)
        self._spread(group, rest, room, before)

    def _spread(self, group: GroupNode, rest: list[str], room: dict[str, int], before: dict[str, str | None]) -> None:
        """Hand out what is left: any task can take any place."""
        free = [machine for machine, units in room.items() for _ in range(units)]
        assert len(free) == len(rest), f"group {group.spot}: {len(rest)} tasks for {len(free)} units of flow"
        for name, machine in zip(rest, free, strict=True):
            self._hold(group, machine, name)

    def _suits(self, group: GroupNode, name: str, machine: str) -> bool:
        """Whether a task of a group can take one of the group's places; a task that runs there already mostly can."""
        return True

    def _hold(self, group: GroupNode, machine: str, name: str) -> None:
        group.held.setdefault(machine, {})[name] = None
        self.tasks[name].machine = machine

    def _spare(self, group: GroupNode, machine: str) -> None:
        """Note that a group may send more or fewer tasks to a machine than before."""
        group.spare.add(machine)
        self._stirred[group] = None

    # Slots ---------------------------------------------------------------------------------------------------
    def _new_arc(self, tail: int, head: int, capacity: int, cost: int, owner: Owner | None) -> int:
        slot = self.session.add_arc(tail, head, capacity, cost)
        while len(self._owner) <= slot:
            self._owner.append(None)
        self._owner[slot] = owner
        return slot

    def _drop_arc(self, slot: int) -> None:
        self.session.remove_arc(slot)
        self._owner[slot] = None
