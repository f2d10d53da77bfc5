"""The live network of the flow scheduler: what its arcs mean. All work here is proportional to what changed."""

from __future__ import annotations

from flowlex.models.flow.goals.base import ClusterView, Spot
from flowlex.models.flow.live.assignment import Assignment
from flowlex.models.flow.live.network_parts import GroupNode, JobBounds, JobNode, MachineNode, Session, Target, TaskNode

__all__ = ["LiveNetwork"]


class LiveNetwork(Assignment):
    """Tasks, jobs, machines and groups come, change and go."""

    def __init__(self, session: Session, cluster: ClusterView) -> None:
        super().__init__(session, cluster)
        self._unused: dict[Spot, None] = {}  # groups that the last task may have left

    # Machines --------------------------------------------------------------------------------------------------
    def add_machine(self, name: str, slot_costs: list[tuple[int, int]]) -> None:
        """Add a machine that the cluster knows already; groups that it belongs to reach it."""
        node = self.session.add_node()
        machine = MachineNode(node, 0, [])
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

    def _link(self, group: GroupNode, name: str) -> None:
        machine = self.machines[name]
        group.arcs[name] = self._new_arc(group.node, machine.node, machine.slots, 0, (group, name))
        machine.groups[group.spot] = None
        self._spare(group, name)

    def _group(self, spot: Spot) -> GroupNode:
        group = self.groups.get(spot)
        if group is None:
            group = self.groups[spot] = GroupNode(spot, self.session.add_node())
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
            self.jobs[name] = JobNode(node, bounds, share, short)
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
        if job.gate is not None:
            self._drop_arc(job.gate[1])
            self.session.remove_node(job.gate[0])
        if job.bounds.must:
            self.session.add_supply(job.node, job.bounds.must)
        self.session.remove_node(job.node)

    def set_gate(self, name: str, passes: int) -> None:
        """Let so many of a job's held tasks stop."""
        job = self.jobs[name]
        if job.gate is None:
            node = self.session.add_node()
            job.gate = node, self._new_arc(node, job.node, passes, 0, None)
        elif job.passes != passes:
            self.session.change_arc(job.gate[1], job.gate[0], job.node, passes, 0)
        job.passes = passes

    def hold_task(self, name: str, held: bool) -> None:
        """Let a task stop through the gate of its job only, or freely; the gate must be there."""
        task = self.tasks[name]
        if task.held != held:
            task.held = held
            self._set_wait(task, task.wait_cost)

    def _set_wait(self, task: TaskNode, cost: int) -> None:
        job = self.jobs[task.job]
        head = job.gate[0] if task.held and job.gate is not None else job.node
        self.session.change_arc(task.wait_arc, task.node, head, 1, cost)
        task.wait_cost = cost

    # Tasks -----------------------------------------------------------------------------------------------------
    def add_task(self, name: str, job: str, offers: dict[Target, int], wait_cost: int) -> None:
        """Add a waiting task; its job must be in."""
        node = self.session.add_node()
        wait = self._new_arc(node, self.jobs[job].node, 1, wait_cost, name)
        self.tasks[name] = TaskNode(node, job, wait, wait_cost, {})
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
                if isinstance(place, GroupNode):
                    place.users += 1
                task.arcs[target] = (self._new_arc(task.node, head, 1, cost, name), cost)
            else:
                session.change_arc(present[0], task.node, head, 1, cost)
                task.arcs[target] = (present[0], cost)
        if wait_cost != task.wait_cost:
            self._set_wait(task, wait_cost)

    def cheapen(self, name: str, target: Target, less: int) -> None:
        """Lower the cost of one arc of a task, if it has it."""
        task = self.tasks[name]
        if target in task.arcs:
            slot, cost = task.arcs[target]
            head = self.machines[target].node if isinstance(target, str) else self.groups[target].node
            self.session.change_arc(slot, task.node, head, 1, cost - less)
            task.arcs[target] = slot, cost - less

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

    def _dissolve(self, group: GroupNode) -> None:
        for name, arc in group.arcs.items():
            self._drop_arc(arc)
            del self.machines[name].groups[group.spot]
        self.session.remove_node(group.node)

    def read_changes(self) -> dict[str, tuple[str | None, str | None]]:
        """Tasks whose machine is another than at the last call: (then, now)."""
        changes = super().read_changes()
        self._free()
        return changes
