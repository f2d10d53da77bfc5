"""The live network of the flow scheduler. The work of an update is proportional to the change.

Tasks, jobs and machines are vertices of a session. Groups of machines (`machine_groups`, `exclusion_groups`) are
vertices between tasks and machines; `live_assignment` reads each task's machine from the optimum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.models.flow.goal_interface import ClusterView, Spot
from flowlex.systems.scheduler.live.exclusion_groups import BlockTree, ExclusionGroup
from flowlex.systems.scheduler.live.live_assignment import Arcs, Assignment, Owner, Target, TaskNode
from flowlex.systems.scheduler.live.machine_groups import Group, MachineGroup, MachineNode, SingleFile, Wiring
from flowlex.systems.scheduler.live.session_choice import Session
from flowlex.systems.scheduler.warm_network.residual_network import ENDLESS

#: Capacity of a job's waiting arc when nothing bounds it.
UNBOUND = ENDLESS


class JobBounds(NamedTuple):
    """Bounds of a job's waiting tasks, and what each costs: ``must`` wait, ``free`` may, ``short`` more should not."""

    must: int
    free: int
    short: int
    wait_cost: int
    short_cost: int


@dataclass(slots=True)
class JobNode:
    """A job: its vertex, and the arcs by which its tasks wait."""

    node: int
    bounds: JobBounds
    share_arc: int
    short_arc: int
    gate: tuple[int, int] | None = None  # node and arc through which held tasks stop
    passes: int = 0  # tasks that may


class LiveNetwork:
    """Adds, changes and removes tasks, jobs, machines and groups.

    ``session`` keeps the network solved. ``cluster``: the machines; update it before the network.
    """

    def __init__(self, session: Session, cluster: ClusterView) -> None:
        self.session, self.cluster = session, cluster
        self.tasks: dict[str, TaskNode] = {}
        self.jobs: dict[str, JobNode] = {}
        self.wait_arcs: Integers = np.full(64, -1)  # by vertex, the arc by which its task waits; -1: it is no task's
        self._arcs = Arcs(session)
        self._assignment = Assignment(self._arcs, self.tasks)
        self._wiring = Wiring(cluster, self._arcs, self._assignment)
        self.machines: dict[str, MachineNode] = self._wiring.machines
        self.groups: dict[Spot, Group] = self._wiring.groups
        self.owners: list[Owner | None] = self._arcs.owners  # by arc
        self.costs: list[int] = self._arcs.costs  # by arc of a task
        self.single_file = SingleFile(self._wiring)
        self.trees: dict[Spot, BlockTree] = {}
        self._unused: dict[Spot, None] = {}  # groups that may have no task left

    # Machines --------------------------------------------------------------------------------------------------
    def add_machine(self, name: str, slot_costs: list[tuple[int, int]]) -> None:
        """Add a machine that is already in the cluster, with arcs from the groups to which it belongs."""
        self.machines[name] = MachineNode(self.session.add_node(), 0, [])
        for group in list(self.groups.values()):  # `reach` may create further groups
            group.reach(name)
        self.set_slots(name, slot_costs)
        for tree in self.trees.values():
            if self.cluster.meets(name, tree.spot):
                tree.add(name)
            tree.machine_changed(name)

    def set_slots(self, name: str, slot_costs: list[tuple[int, int]]) -> None:
        """Set the capacities and costs of a machine's arcs to the sink, and the capacities of its incoming arcs."""
        machine = self.machines[name]
        for arc, (capacity, cost) in zip(machine.arcs, slot_costs, strict=False):
            if arc[1:] != (capacity, cost):
                self.session.change_arc(arc[0], machine.node, 0, capacity, cost)
        for slot, _, _ in machine.arcs[len(slot_costs) :]:
            self._arcs.drop(slot)
        arcs = [(slot, *arc) for (slot, _, _), arc in zip(machine.arcs, slot_costs, strict=False)]
        for capacity, cost in slot_costs[len(arcs) :]:
            arcs.append((self._arcs.add(machine.node, 0, capacity, cost), capacity, cost))
        machine.arcs = arcs
        slots = sum(capacity for capacity, _ in slot_costs)
        if slots != machine.slots:
            machine.slots = slots
            for group in machine.groups.values():
                group.set_slots(name, slots)

    def remove_machine(self, name: str) -> None:
        """Remove a machine; tasks must have no direct arcs to it any more."""
        for tree in self.trees.values():
            if name in tree.blocks.paths:
                tree.remove(name)
            tree.machine_changed(name)
        machine = self.machines.pop(name)
        for group in machine.groups.values():
            group.unlink(name)
        for slot, _, _ in machine.arcs:
            self._arcs.drop(slot)
        self.session.remove_node(machine.node)

    def place(self, target: Target) -> MachineNode | Group:
        """Return a machine, or a group that has tasks."""
        return self.machines[target] if isinstance(target, str) else self.groups[target]

    def _group(self, spot: Spot) -> Group:
        """Return the group of a spot; create it if there is none."""
        if (group := self.groups.get(spot)) is not None:
            return group
        if spot.once:
            return self.single_file.group(spot)
        if (base := spot.base) is None:
            return MachineGroup(spot, self._wiring)
        if base not in self.trees:
            self.trees[base] = BlockTree(base, self._wiring, self._fits)
        return ExclusionGroup(spot, self.trees[base])

    def _fits(self, task: str, machine: str) -> bool:
        target = self.tasks[task].target
        return isinstance(target, Spot) and self.cluster.meets(machine, target)

    def forget(self, once: str) -> None:
        """Remove the groups of a different-machines rule whose tasks are all removed."""
        self.single_file.forget(once)

    # Jobs ------------------------------------------------------------------------------------------------------
    def set_job(self, name: str, bounds: JobBounds) -> None:
        """Add a job, or change its bounds."""
        job = self.jobs.get(name)
        session = self.session
        if job is None:
            node = session.add_node()
            share = self._arcs.add(node, 0, bounds.free, bounds.wait_cost)
            short = self._arcs.add(node, 0, bounds.short, bounds.short_cost)
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
        """Remove a job; its tasks must be removed already."""
        job = self.jobs.pop(name)
        self._arcs.drop(job.share_arc)
        self._arcs.drop(job.short_arc)
        if job.gate is not None:
            self._arcs.drop(job.gate[1])
            self.session.remove_node(job.gate[0])
        if job.bounds.must:
            self.session.add_supply(job.node, job.bounds.must)
        self.session.remove_node(job.node)

    def set_gate(self, name: str, passes: int) -> None:
        """Set how many held tasks of a job may stop: the capacity of its gate arc."""
        job = self.jobs[name]
        if job.gate is None:
            node = self.session.add_node()
            job.gate = node, self._arcs.add(node, job.node, passes, 0)
        elif job.passes != passes:
            self.session.change_arc(job.gate[1], job.gate[0], job.node, passes, 0)
        job.passes = passes

    def hold_task(self, name: str, held: bool) -> None:
        """Lead a task's waiting arc through the gate of its job if ``held``, else to the job; the gate must exist."""
        task = self.tasks[name]
        if task.held != held:
            task.held = held
            self._set_wait(task, task.wait_cost)

    def _set_wait(self, task: TaskNode, cost: int) -> None:
        job = self.jobs[task.job]
        head = job.gate[0] if task.held and job.gate is not None else job.node
        self._arcs.change(task.wait_arc, task.node, head, cost)
        task.wait_cost = cost

    # Tasks -----------------------------------------------------------------------------------------------------
    def add_task(self, name: str, job: str, offers: dict[Target, int], wait_cost: int) -> None:
        """Add a waiting task; its job must exist."""
        node = self.session.add_node()
        heads = [self.jobs[job].node, *map(self._head, offers)]
        wait, *arcs = self._arcs.add_units(node, heads, [wait_cost, *offers.values()], name)
        self.tasks[name] = TaskNode(node, job, wait, wait_cost, dict(zip(offers, arcs, strict=True)))
        if node >= len(self.wait_arcs):
            self.wait_arcs = np.concatenate((self.wait_arcs, np.full(node, -1)))
        self.wait_arcs[node] = wait
        self.session.add_supply(node, 1)
        self._assignment.touch(name)

    def _head(self, target: Target) -> int:
        """Return the vertex of a target that a task begins to use."""
        if isinstance(target, str):
            return self.machines[target].node
        group = self._group(target)
        group.users += 1
        return group.node

    def reprice(self, name: str, offers: dict[Target, int], wait_cost: int) -> None:
        """Replace the arcs and costs of a task."""
        self.drop_offers(name, [target for target in self.tasks[name].arcs if target not in offers])
        self.change_offers(name, offers, wait_cost)

    def drop_offers(self, name: str, targets: Iterable[Target]) -> None:
        """Remove a task's arcs to these targets, if it has them."""
        task = self.tasks[name]
        for target in targets:
            if (arc := task.arcs.pop(target, None)) is not None:
                self._drop_offer(target, arc)
                if target == task.target:
                    self._assignment.touch(name)

    def change_offers(self, name: str, offers: Mapping[Target, int], wait_cost: int) -> None:
        """Add arcs to a task, or change the costs of those it has."""
        task, arcs = self.tasks[name], self.tasks[name].arcs
        for target, cost in offers.items():
            arc = arcs.get(target)
            if arc is None:
                arcs[target] = self._arcs.add(task.node, self._head(target), 1, cost, name)
            elif self.costs[arc] != cost:
                self._arcs.change(arc, task.node, self.place(target).node, cost)
        if wait_cost != task.wait_cost:
            self._set_wait(task, wait_cost)

    def remove_task(self, name: str) -> None:
        """Remove a running or waiting task."""
        task = self.tasks.pop(name)
        self._assignment.remove(name, task)
        for target, slot in task.arcs.items():
            self._drop_offer(target, slot)
        self._arcs.drop(task.wait_arc)
        self.wait_arcs[task.node] = -1
        self.session.add_supply(task.node, -1)
        self.session.remove_node(task.node)

    def displace(self, name: str, machine: str | None) -> None:
        """Record that a task's machine differs from its flow; the next `read_changes` reports the machine by flow."""
        self._assignment.displace(name, machine)

    def read_changes(self) -> dict[str, tuple[str | None, str | None]]:
        """Return the tasks whose machine has changed since the last call: (then, now)."""
        changes = self._assignment.read_changes()
        self._remove_unused()
        return changes

    def _drop_offer(self, target: Target, slot: int) -> None:
        self._arcs.drop(slot)
        if isinstance(target, str):
            return
        group = self.groups[target]
        group.users -= 1
        # Groups of the cluster, a rack or a label are kept even when unused: later tasks will use them.
        if not group.users and not target.once and (target.lacks or len(target.has) > 1):
            self._unused[target] = None

    def _remove_unused(self) -> None:
        """Remove the groups that no task uses any more, with their arcs, and the trees without groups."""
        unused, self._unused = self._unused, {}
        for spot in unused:
            group = self.groups.get(spot)
            if group is None or group.users:
                continue
            group.dissolve()
            if isinstance(group, ExclusionGroup) and not group.tree.groups:
                group.tree.dissolve()
                del self.trees[group.tree.spot]
