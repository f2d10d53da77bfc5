"""The live network of the flow scheduler: what its arcs mean, and who runs where after each optimum.

All work here is proportional to what changed. Tasks that run through a group of machines are told apart by
bookkeeping: the group's flow to a machine says how many of its tasks run there, and those that ran there before
stay there first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from flowlex.formulations.arrays import Integers
from flowlex.formulations.sessions.network import Violations
from flowlex.formulations.sessions.residual import ENDLESS
from flowlex.models.flow.goals.base import ClusterView, Spot

__all__ = ["JobBounds", "LiveNetwork", "Session"]

Target = str | Spot


class Session(Protocol):
    """What the live network needs of an engine; see `NetworkSession`."""

    def add_node(self) -> int: ...
    def remove_node(self, node: int) -> None: ...
    def add_arc(self, tail: int, head: int, capacity: int, cost: int) -> int: ...
    def change_arc(self, slot: int, tail: int, head: int, capacity: int, cost: int) -> None: ...
    def remove_arc(self, slot: int) -> None: ...
    def add_supply(self, node: int, amount: int) -> None: ...
    def solve(self, *, cold: bool = False) -> None: ...
    def take_touched(self) -> tuple[Integers, Integers]: ...
    def violations(self) -> Violations: ...
    @property
    def flow(self) -> Integers: ...
    @property
    def objective(self) -> int: ...


@dataclass(frozen=True)
class JobBounds:
    """Bounds of a job's waiting tasks, and what each costs: ``must`` wait, ``free`` may, ``short`` more should not."""

    must: int
    free: int
    short: int
    wait_cost: int
    short_cost: int


@dataclass(slots=True)
class _Task:
    node: int
    job: str
    wait_arc: int
    wait_cost: int
    arcs: dict[Target, tuple[int, int]]
    target: Target | None = None  # where its unit goes, None when it waits
    machine: str | None = None


@dataclass(slots=True, eq=False)
class _Group:
    spot: Spot
    node: int
    arcs: dict[str, int] = field(default_factory=dict)
    held: dict[str, dict[str, None]] = field(default_factory=dict)  # machine: its tasks, in order of arrival
    loose: dict[str, None] = field(default_factory=dict)
    spare: set[str] = field(default_factory=set)
    users: int = 0  # tasks with an arc to it

    @property
    def books(self) -> _Group:
        """The group that keeps the books of its tasks."""
        return self

    @property
    def is_empty(self) -> bool:
        """Whether it reaches no machine."""
        return not self.arcs

    def units(self, machine: str, flow: Integers) -> int:
        """Tasks that it sends to a machine."""
        arc = self.arcs.get(machine)
        return 0 if arc is None else int(flow[arc])


@dataclass(slots=True)
class _Machine:
    node: int
    slots: int
    arcs: list[tuple[int, int, int]]
    groups: dict[Spot, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Job:
    node: int
    bounds: JobBounds
    share_arc: int
    short_arc: int


#: What an arc belongs to: a task, or a group and the machine it leads to.
Owner = str | tuple[_Group, str]


class LiveNetwork:
    """Tasks, jobs, machines and groups as slots of a session."""

    def __init__(self, session: Session, cluster: ClusterView) -> None:
        self.session = session
        self.cluster = cluster
        self.tasks: dict[str, _Task] = {}
        self.jobs: dict[str, _Job] = {}
        self.machines: dict[str, _Machine] = {}
        self.groups: dict[Spot, _Group] = {}
        self._owner: list[Owner | None] = []
        self._dirty: dict[str, None] = {}
        self._stirred: dict[_Group, None] = {}  # groups with spare machines or loose tasks
        self._unused: dict[Spot, None] = {}  # groups that the last task may have left

    # Machines --------------------------------------------------------------------------------------------------
    def add_machine(self, name: str, slot_costs: list[tuple[int, int]]) -> None:
        """Add a machine that the cluster knows already; groups that it belongs to reach it."""
        node = self.session.add_node()
        machine = _Machine(node, 0, [])
        self.machines[name] = machine
        for group in list(self.groups.values()):  # linking may make further groups
            if group.books is group and name not in group.arcs and self.cluster.meets(name, group.spot):
                self._link(group, name)
        self.set_slots(name, slot_costs)

    def set_slots(self, name: str, slot_costs: list[tuple[int, int]]) -> None:
        """Set capacity and cost of a machine's arcs to the sink, and the capacity of the arcs to it."""
        machine = self.machines[name]
        for arc, (capacity, cost) in zip(machine.arcs, slot_costs, strict=False):
            if arc[1:] != (capacity, cost):
                self.session.change_arc(arc[0], machine.node, 0, capacity, cost)
        for slot, _, _ in machine.arcs[len(slot_costs) :]:
            self._drop_arc(slot)
        kept = [(slot, *arc) for (slot, _, _), arc in zip(machine.arcs, slot_costs, strict=False)]
        for capacity, cost in slot_costs[len(kept) :]:
            kept.append((self._new_arc(machine.node, 0, capacity, cost, None), capacity, cost))
        machine.arcs = kept
        slots = sum(capacity for capacity, _ in slot_costs)
        if slots != machine.slots:
            machine.slots = slots
            for spot in machine.groups:
                group = self.groups[spot]
                self.session.change_arc(group.arcs[name], group.node, machine.node, slots, 0)
                self._spare(group, name)

    def remove_machine(self, name: str) -> None:
        """Take a machine out; tasks must not have arcs of their own to it any more."""
        machine = self.machines.pop(name)
        for spot in machine.groups:
            group = self.groups[spot]
            self._drop_arc(group.arcs.pop(name))
            group.loose.update(group.held.pop(name, {}))
            group.spare.discard(name)
            self._stirred[group] = None
        for slot, _, _ in machine.arcs:
            self._drop_arc(slot)
        self.session.remove_node(machine.node)

    def _link(self, group: _Group, name: str) -> None:
        machine = self.machines[name]
        group.arcs[name] = self._new_arc(group.node, machine.node, machine.slots, 0, (group, name))
        machine.groups[group.spot] = None
        self._spare(group, name)

    def _spare(self, group: _Group, machine: str) -> None:
        """Note that a group may send more or fewer tasks to a machine than before."""
        group.spare.add(machine)
        self._stirred[group] = None

    def _group(self, spot: Spot) -> _Group:
        group = self.groups.get(spot)
        if group is None:
            group = self.groups[spot] = _Group(spot, self.session.add_node())
            for name in self.cluster.members(spot):
                if name in self.machines:
                    self._link(group, name)
        return group

    # Jobs ------------------------------------------------------------------------------------------------------
    def set_job(self, name: str, bounds: JobBounds) -> None:
        """Add a job, or set its bounds anew."""
        job = self.jobs.get(name)
        session = self.session
        if job is None:
            node = session.add_node()
            share = self._new_arc(node, 0, bounds.free, bounds.wait_cost, None)
            short = self._new_arc(node, 0, bounds.short, bounds.short_cost, None)
            session.add_supply(node, -bounds.must)
            self.jobs[name] = _Job(node, bounds, share, short)
            return
        old = job.bounds
        if old == bounds:
            return
        if (old.free, old.wait_cost) != (bounds.free, bounds.wait_cost):
            session.change_arc(job.share_arc, job.node, 0, bounds.free, bounds.wait_cost)
        if (old.short, old.short_cost) != (bounds.short, bounds.short_cost):
            session.change_arc(job.short_arc, job.node, 0, bounds.short, bounds.short_cost)
        if old.must != bounds.must:
            session.add_supply(job.node, old.must - bounds.must)
        job.bounds = bounds

    def remove_job(self, name: str) -> None:
        """Take a job out; its tasks must be out already."""
        job = self.jobs.pop(name)
        self._drop_arc(job.share_arc)
        self._drop_arc(job.short_arc)
        if job.bounds.must:
            self.session.add_supply(job.node, job.bounds.must)
        self.session.remove_node(job.node)

    # Tasks -----------------------------------------------------------------------------------------------------
    def add_task(self, name: str, job: str, offers: dict[Target, int], wait_cost: int) -> None:
        """Add a waiting task; its job must be in."""
        node = self.session.add_node()
        wait = self._new_arc(node, self.jobs[job].node, 1, wait_cost, name)
        self.tasks[name] = _Task(node, job, wait, wait_cost, {})
        self.reprice(name, offers, wait_cost)
        self.session.add_supply(node, 1)
        self._dirty[name] = None

    def reprice(self, name: str, offers: dict[Target, int], wait_cost: int) -> None:
        """Give a task the arcs it should have."""
        task, session = self.tasks[name], self.session
        for target in [t for t in task.arcs if t not in offers]:
            self._drop_offer(target, task.arcs.pop(target)[0])
            self._dirty[name] = None
        for target, cost in offers.items():
            present = task.arcs.get(target)
            if present is not None and present[1] == cost:
                continue
            place = self.machines[target] if isinstance(target, str) else self._group(target)
            head = place.node
            if present is None:
                if isinstance(place, _Group):
                    place.users += 1
                task.arcs[target] = (self._new_arc(task.node, head, 1, cost, name), cost)
            else:
                session.change_arc(present[0], task.node, head, 1, cost)
                task.arcs[target] = (present[0], cost)
        if wait_cost != task.wait_cost:
            session.change_arc(task.wait_arc, task.node, self.jobs[task.job].node, 1, wait_cost)
            task.wait_cost = wait_cost

    def remove_task(self, name: str) -> None:
        """Take a task out, wherever it is."""
        task = self.tasks.pop(name)
        self._leave(name, task)
        for target, (slot, _) in task.arcs.items():
            self._drop_offer(target, slot)
        self._drop_arc(task.wait_arc)
        self.session.add_supply(task.node, -1)
        self.session.remove_node(task.node)
        self._dirty.pop(name, None)

    def _drop_offer(self, target: Target, slot: int) -> None:
        self._drop_arc(slot)
        if isinstance(target, Spot):
            self.groups[target].users -= 1
            self.note_unused(target)

    def note_unused(self, spot: Spot) -> None:
        """Note a group for `_free` if no task uses it; whole cluster, racks and labels stay, as others will come."""
        if not self.groups[spot].users and not spot.once and (spot.lacks or len(spot.has) > 1):
            self._unused[spot] = None

    def _free(self) -> None:
        """Give up the groups that no task uses any more, with their arcs."""
        unused, self._unused = self._unused, {}
        for spot in unused:
            group = self.groups.get(spot)
            if group is None or group.users:
                continue
            self._dissolve(group)
            del self.groups[spot]
            self._stirred.pop(group, None)

    def _dissolve(self, group: _Group) -> None:
        for name, arc in group.arcs.items():
            self._drop_arc(arc)
            del self.machines[name].groups[group.spot]
        self.session.remove_node(group.node)

    def could_run(self, name: str) -> bool:
        """Whether any machine of the cluster, full or not, meets a task's requirements."""
        return any(isinstance(t, str) or not self.groups[t].is_empty for t in self.tasks[name].arcs)

    # Answers ---------------------------------------------------------------------------------------------------
    def owner(self, slot: int) -> Owner | None:
        """The task, or the group and machine, that an arc belongs to."""
        return self._owner[slot]

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
        self._free()
        return {
            name: (old, self.tasks[name].machine) for name, old in before.items() if old != self.tasks[name].machine
        }

    def _leave(self, name: str, task: _Task) -> None:
        if not isinstance(task.target, Spot):
            return
        group = self.groups[task.target].books
        group.loose.pop(name, None)
        if task.machine is not None and name in group.held.get(task.machine, {}):
            del group.held[task.machine][name]
            self._spare(group, task.machine)

    def _assign(self, group: _Group, flow: Integers, before: dict[str, str | None]) -> None:
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

    def _spread(self, group: _Group, rest: list[str], room: dict[str, int], before: dict[str, str | None]) -> None:
        """Hand out what is left: any task can take any place."""
        free = [machine for machine, units in room.items() for _ in range(units)]
        assert len(free) == len(rest), f"group {group.spot}: {len(rest)} tasks for {len(free)} units of flow"
        for name, machine in zip(rest, free, strict=True):
            self._hold(group, machine, name)

    def _suits(self, group: _Group, name: str, machine: str) -> bool:
        """Whether a task of a group can take one of the group's places; a task that runs there already mostly can."""
        return True

    def _hold(self, group: _Group, machine: str, name: str) -> None:
        group.held.setdefault(machine, {})[name] = None
        self.tasks[name].machine = machine

    # Slots -----------------------------------------------------------------------------------------------------
    def _new_arc(self, tail: int, head: int, capacity: int, cost: int, owner: Owner | None) -> int:
        slot = self.session.add_arc(tail, head, capacity, cost)
        while len(self._owner) <= slot:
            self._owner.append(None)
        self._owner[slot] = owner
        return slot

    def _drop_arc(self, slot: int) -> None:
        self.session.remove_arc(slot)
        self._owner[slot] = None


#: Capacity of a job's waiting arc when nothing bounds it.
UNBOUND = ENDLESS
