"""The network of flow scheduling: vertices and arcs of an instance under its goals (Sirius, Quincy), and its answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.gc_pause import collector_paused
from flowlex.formulations.network_builder import NetworkBuilder
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.arc_costs import Rules, StageWeights, single_file
from flowlex.models.flow.fair_share_demands import job_bounds
from flowlex.models.flow.goal_interface import ClusterView, Spot, TaskView, task_views
from flowlex.models.flow.machine_tree import Blocks, Path
from flowlex.models.flow.preemption import hold
from flowlex.models.flow.task_rules import TaskRules

#: Blocks of arcs, except those of shares and preemptions.
_BLOCKS = ("runs", "via", "waits", "offers", "single file", "blocks", "slots")


@dataclass(frozen=True)
class Columns:
    """Arc costs by stage: shortfall of shares, waiting by class, and the goals' (ranks, A) costs."""

    shortfall: Integers
    level: Integers
    ranks: Integers

    @cached_property
    def ordinary(self) -> Integers:
        """(A,) costs of all goals together."""
        total: Integers = self.ranks.sum(axis=0)
        return total


class Block(NamedTuple):
    """The machines of a spot inside a block."""

    base: Spot
    path: Path
    once: str = ""  # as in `Spot`; empty: blocks are not used for different-machines rules

    def __str__(self) -> str:
        return f"{self.base}, block {'.'.join(map(str, self.path))}"


@dataclass(frozen=True)
class ScheduleNetwork:
    """The network, with the meaning of its arcs."""

    network: FlowNetwork  # with the costs of the ordinary stage; `Columns` contain all stages
    columns: Columns
    # (count, 2) indices of tail and head of each arc, by block: runs (task to machine), via (task to group), offers
    # (group to machine), single file (group to that of one machine, see `FlowJob.different_machines`), blocks (group
    # that excludes machines or racks to block, block to block)
    ends: Mapping[str, Integers]
    groups: tuple[Spot | Block, ...]
    # (G, 3) for each gate arc, through which held tasks of a job stop: the job, the capacity, and the number of tasks
    # that keep running even beyond the share
    gates: Integers
    shares: Integers  # (J, 2) least and most running tasks of each job
    views: list[TaskView]
    cycle: int  # bound on the ordinary cost of any simple residual cycle
    top_level: int

    def combined(self, weights: StageWeights) -> Integers:
        """Return the weighted sum of all stages, whose optimum is the lexicographic optimum."""
        c = self.columns
        return c.ordinary + weights.level * c.level + weights.shortfall * c.shortfall


def build_network(instance: FlowInstance, rules: Rules, task_rules: TaskRules) -> ScheduleNetwork:
    """Build the network; equal instances and goals give equal networks."""
    with collector_paused():
        cluster, views = ClusterView.of(instance), task_views(instance)
        job_at = {job.name: j for j, job in enumerate(instance.jobs)}
        held = hold(instance, views, lambda v: rules.may_stay(v, rules.moving(v, cluster), cluster), task_rules)
        gates = np.array([(job_at[job], *each) for job, each in held.items()], np.int64).reshape(-1, 3)
        gate_at = {job: len(job_at) + g for g, job in enumerate(gates[:, 0].tolist())}
        arcs = _Arcs(instance, rules, views, cluster)
        for index, view in enumerate(views):
            at = job_at[view.job]
            arcs.blocks["waits"].append((index, gate_at[at] if view.held else at, 1, rules.waiting(view)))
        return _assemble(arcs, gates, job_bounds(instance, rules, views, cluster))


class _Arcs:
    """Arcs in the making, by block: tail, head, capacity, cost of any size. Groups are numbered as they come."""

    def __init__(self, instance: FlowInstance, rules: Rules, views: list[TaskView], cluster: ClusterView) -> None:
        self.instance, self.rules, self.views, self.cluster = instance, rules, views, cluster
        self.groups: dict[Spot | Block, int] = {}
        self.blocks: dict[str, list[tuple[int, int, int, int]]] = {name: [] for name in _BLOCKS}
        self._machine = {machine.name: index for index, machine in enumerate(instance.machines)}
        runs, via, slots = (self.blocks[name] for name in ("runs", "via", "slots"))
        for index, view in enumerate(views):
            for target, cost in rules.offers(view, cluster).items():
                if isinstance(target, str):
                    runs.append((index, self._machine[target], 1, cost))
                else:
                    via.append((index, self._group(target), 1, cost))
        self._reach()
        for index, machine in enumerate(instance.machines):
            slots += [(index, 0, capacity, cost) for capacity, cost in rules.slot_costs(machine)]

    @cached_property
    def columns(self) -> dict[str, tuple[Integers, list[int]]]:
        """By block, (count, 3) tail, head and capacity, and the costs."""
        split = {name: list(zip(*arcs, strict=True)) or [()] * 4 for name, arcs in self.blocks.items()}
        return {name: (np.array(ends, np.int64).T, list(costs)) for name, (*ends, costs) in split.items()}

    def _group(self, spot: Spot | Block) -> int:
        return self.groups.setdefault(spot, len(self.groups))

    def _reach(self) -> None:
        """Add the arcs of groups to machines, single files and blocks; number the new groups."""
        spots = [spot for spot in self.groups if isinstance(spot, Spot)]
        slots = {name: machine.slots for name, machine in self.cluster.machines.items()}
        members = self.cluster.members
        ways = {spot: {m: None for m in members(spot) if slots[m]} for spot in spots if spot.base is None}
        for spot, name, single in single_files(ways):
            self.blocks["single file"].append((self.groups[spot], self._group(single), 1, 0))
            ways[single] = {name: None}
        for spot, machines in ways.items():
            at = self.groups[spot]
            self.blocks["offers"] += [(at, self._machine[m], 1 if spot.once else slots[m], 0) for m in machines]
        endless = len(self.views) + 1
        for tail, head in _steps([spot for spot in spots if spot.base is not None], self.cluster):
            at = self._group(tail)
            if isinstance(head, str):
                self.blocks["offers"].append((at, self._machine[head], endless, 0))
            else:
                self.blocks["blocks"].append((at, self._group(head), endless, 0))


def _steps(holed: list[Spot], cluster: ClusterView) -> Iterator[tuple[Spot | Block, Block | str]]:
    """Arcs from groups that exclude machines or racks to blocks and machines, and from block to block or machine."""
    trees: dict[Spot, Blocks] = {}
    for spot in holed:
        base = spot.base
        assert base is not None
        if base not in trees:
            tree = trees[base] = Blocks()
            for name in cluster.members(base):
                tree.add(name, cluster.layout.path(name))
            for block, inside in tree.children.items():
                if block:
                    yield from ((Block(base, block), tree.names.get(path) or Block(base, path)) for path in inside)
        names = trees[base].names
        for path in trees[base].cover(cluster.layout.holes(spot.lacks)):
            yield spot, names.get(path) or Block(base, path)


def single_files(ways: dict[Spot, dict[str, None]]) -> list[tuple[Spot, str, Spot]]:
    """Remove arcs from ``ways`` to machines that several spots of one rule reach: (spot, machine, single-file spot).

    Tasks that must run on different machines reach a machine through one arc of capacity 1. If only one spot reaches
    the machine, this is its own arc; several spots share a vertex before the machine. So a rule with K spots takes
    one arc per spot and machine, and one vertex per machine that two of its spots reach.
    """
    reach: dict[tuple[str, str], list[Spot]] = {}
    for spot, machines in ways.items():
        if spot.once:
            for machine in machines:
                reach.setdefault((spot.once, machine), []).append(spot)
    found = []
    for (once, machine), spots in reach.items():
        if len(spots) > 1:
            single = single_file(machine, once)
            found += [(spot, machine, single) for spot in spots if spot != single]
    for spot, machine, _ in found:
        del ways[spot][machine]
    return found


def _assemble(arcs: _Arcs, gates: Integers, bounds: Integers) -> ScheduleNetwork:
    """Build the network with the costs of its arcs; ``gates`` and ``bounds`` as in `ScheduleNetwork`."""
    network, rules = _declared(arcs, gates, bounds), arcs.rules
    blocks, order = network.arc_blocks, rules.order
    level = np.array([rules.level(j.priority) for j in arcs.instance.jobs], np.int64)
    levels, shortfall = np.zeros((2, network.arc_count), np.int64)
    levels[blocks["share"].slice] = levels[blocks["short"].slice] = level
    shortfall[blocks["short"].slice] = 1
    ranks = np.zeros((1 if order is None else len(order.names), network.arc_count), np.int64)
    for name in ("runs", "via", "waits", "slots"):
        _, costs = arcs.columns[name]
        ranks[:, blocks[name].slice] = np.array([costs], np.int64) if order is None else order.columns(costs)
    columns = Columns(shortfall, levels, ranks)
    network = replace(network, cost=columns.ordinary)
    ends = {name: arcs.columns[name][0][:, :2] for name in ("runs", "via", "offers", "single file", "blocks")}
    cycle, top = cycle_bound(network, network.cost), int(level.max(initial=0))
    return ScheduleNetwork(network, columns, ends, tuple(arcs.groups), gates, bounds, arcs.views, cycle, top)


def _declared(arcs: _Arcs, gates: Integers, bounds: Integers) -> FlowNetwork:
    """Build the network of all nodes and arcs, without costs."""
    instance, groups = arcs.instance, arcs.groups
    net, jobs, tasks = NetworkBuilder(instance.name), [j.name for j in instance.jobs], len(arcs.views)
    task = net.nodes("task", tasks, supply=1, labels=[t.name for t in instance.tasks])
    job = waiting = net.nodes("unscheduled", len(jobs), labels=jobs)
    group = net.nodes("group", len(groups), labels=[str(g) for g in groups])
    machine = net.nodes("machine", len(instance.machines), labels=[m.name for m in instance.machines])
    if len(gates):
        gate = net.nodes("preempted", len(gates), labels=[jobs[j] for j in gates[:, 0]])
        waiting = np.concatenate((job, gate))
    sink = net.nodes("sink", 1, supply=-tasks)
    ends = (task, machine), (task, group), (task, waiting), (group, machine), (group, group), (group, group)
    for name, (tails, heads) in zip(_BLOCKS, (*ends, (machine, sink)), strict=True):
        each, _ = arcs.columns[name]
        if len(each) or name not in ("single file", "blocks"):
            net.arcs(name, tails[each[:, 0]], heads[each[:, 1]], upper=each[:, 2])
        if name == "waits" and len(gates):
            net.arcs("preempted", gate, job[gates[:, 0]], upper=gates[:, 1])
    count = np.array([len(j.tasks) for j in instance.jobs], np.int64)
    most = bounds[:, 1].copy()  # tasks that may not stop keep running, even beyond the share
    most[gates[:, 0]] = np.maximum(most[gates[:, 0]], gates[:, 2])
    # lower = upper = N - A under max-min shares (the paper's bounds); otherwise by minimum and maximum
    net.arcs("share", job, sink, lower=count - most, upper=count - bounds[:, 0], labels=jobs)
    net.arcs("short", job, sink, upper=bounds[:, 0], labels=jobs)
    return net.build()


def cycle_bound(network: FlowNetwork, cost: Integers) -> int:
    """Bound the change of a cost along a simple residual cycle: two arcs per task, and two arcs at the sink."""
    blocks = network.arc_blocks
    tasks = network.node_blocks["task"]
    low, high = np.zeros((2, tasks.count), cost.dtype)
    for name in ("runs", "via", "waits"):
        part = blocks[name].slice
        np.minimum.at(low, network.tail[part] - tasks.start, cost[part])
        np.maximum.at(high, network.tail[part] - tasks.start, cost[part])
    slots = cost[blocks["slots"].slice]
    return int(sum((high - low).tolist())) + 2 * int(np.abs(slots).max(initial=0))


def placements(schedule: ScheduleNetwork, instance: FlowInstance, flow: Integers) -> Integers:
    """(T,) number of each task's machine, -1 for none: the flow is cut into paths, first those of tasks that stay."""
    s, blocks = schedule, schedule.network.arc_blocks
    found = np.full(len(s.views), -1, np.int64)
    direct = s.ends["runs"][flow[blocks["runs"].slice] > 0]
    found[direct[:, 0]] = direct[:, 1]
    via = s.ends["via"][flow[blocks["via"].slice] > 0].tolist()
    #: Units from each group (number) to machines (number) and to other groups (-1 - number).
    units: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for name in ("offers", "single file", "blocks"):
        sent = flow[blocks[name].slice] if name in blocks else np.zeros(0, np.int64)
        for (group, head), count in zip(s.ends[name][sent > 0].tolist(), sent[sent > 0].tolist(), strict=True):
            units[group][head if name == "offers" else -1 - head] = count

    def path(group: int, machine: int | None) -> list[tuple[int, int]]:
        """Arcs with units left from a group to a machine, any one when None; empty where there are none."""
        for head in (*units[group],) if machine is None or machine not in units[group] else (machine,):
            if head >= 0 and machine in (None, head):
                return [(group, head)]
            if head < 0 and (rest := path(-1 - head, machine)):
                return [(group, head), *rest]
        return []

    def send(task: int, arcs: list[tuple[int, int]]) -> None:
        for group, head in arcs:
            units[group][head] -= 1
            if not units[group][head]:
                del units[group][head]
            found[task] = head

    at = {machine.name: m for m, machine in enumerate(instance.machines)}
    for task, group in via:
        if (own := s.views[task].machine) is not None and (arcs := path(group, at[own])):
            send(task, arcs)
    for task, group in via:
        if found[task] < 0:
            send(task, path(group, None))
    return found
