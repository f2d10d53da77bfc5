"""The network of flow scheduling: vertices and arcs of an instance under its goals (Sirius, Quincy)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.network_builder import NetworkBuilder
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.arc_costs import Rules, StageWeights, single_file
from flowlex.models.flow.fair_share_demands import job_bounds
from flowlex.models.flow.garbage_collection import collector_paused
from flowlex.models.flow.goals.goal_interface import ClusterView, Spot, TaskView, task_views
from flowlex.models.flow.machine_exclusions import Block, base_of
from flowlex.models.flow.machine_tree import Blocks
from flowlex.models.flow.preemption import hold
from flowlex.models.flow.task_rules import TaskRules

__all__ = ["Columns", "ScheduleNetwork", "build_network", "cycle_bound", "single_files"]


@dataclass(frozen=True)
class Columns:
    """Costs of the arcs, stage by stage: shortfall of shares, waiting by class, and the goals' (ranks, A) costs."""

    shortfall: Integers
    level: Integers
    ranks: Integers

    @cached_property
    def ordinary(self) -> Integers:
        """(A,) costs of all goals together."""
        total: Integers = self.ranks.sum(axis=0)
        return total


@dataclass(frozen=True)
class ScheduleNetwork:
    """The network with what its arcs mean.

    Attributes
    ----------
    network
        Costs are those of the ordinary stage; `Columns` hold all stages.
    runs, via, offers
        Blocks of arcs: task to machine, task to group, group to machine, each (count, 2) of indices.
    singles
        Arcs from a group to the group that is one machine in single file (`FlowJob.different_machines`).
    steps
        Arcs from groups that leave machines or racks out into blocks, and from block to block.
    groups
        Spots of the groups, and blocks.
    gates
        (G, 3) job of each arc through which running tasks of a job with a limit stop, its capacity, and how many tasks
        of the job run beyond any share.
    shares
        (J, 2) least and most running tasks of each job.
    views
        Every task as goals see it.
    cycle
        Bound on the ordinary cost of any simple residual cycle.
    """

    network: FlowNetwork
    columns: Columns
    runs: Integers
    via: Integers
    offers: Integers
    singles: Integers
    steps: Integers
    groups: tuple[Spot | Block, ...]
    gates: Integers
    shares: Integers
    views: list[TaskView]
    cycle: int
    top_level: int

    def combined(self, weights: StageWeights) -> Integers:
        """One cost whose optimum is the lexicographic one."""
        c = self.columns
        return c.ordinary + weights.level * c.level + weights.shortfall * c.shortfall


def build_network(instance: FlowInstance, rules: Rules, task_rules: TaskRules) -> ScheduleNetwork:
    """Make the network; the same instance and goals give the same network."""
    with collector_paused():
        cluster, views = ClusterView.of(instance), task_views(instance)
        jobs, job_at = {job.name: job for job in instance.jobs}, {job.name: j for j, job in enumerate(instance.jobs)}
        held = hold(
            views, jobs, cluster.machines, lambda v: rules.may_stay(v, rules.moving(v, cluster), cluster), task_rules
        )
        gates = np.array([(job_at[job], *each) for job, each in held.items()], np.int64).reshape(-1, 3)
        group_at: dict[Spot | Block, int] = {}
        arcs = _arcs_of_goals(instance, rules, views, cluster, group_at)
        gate_at = {job: len(jobs) + g for g, job in enumerate(gates[:, 0].tolist())}
        for index, view in enumerate(views):
            at = job_at[view.job]
            arcs["waits"].add(index, gate_at[at] if view.held else at, 1, rules.waiting(view))
        bounds = job_bounds(instance, rules, views, cluster)
        return _assemble(instance, rules, views, arcs, tuple(group_at), gates, bounds)


def _arcs_of_goals(
    instance: FlowInstance, rules: Rules, views: list[TaskView], cluster: ClusterView, group_at: dict[Spot | Block, int]
) -> dict[str, _Arcs]:
    """Arcs of tasks, groups and machines by block; groups are numbered in ``group_at`` as they come."""
    arcs = {name: _Arcs() for name in ("runs", "via", "waits", "offers", "single file", "blocks", "slots")}
    machine_at = {machine.name: index for index, machine in enumerate(instance.machines)}
    for index, view in enumerate(views):
        for target, cost in rules.offers(view, cluster).items():
            if isinstance(target, str):
                arcs["runs"].add(index, machine_at[target], 1, cost)
            else:
                arcs["via"].add(index, group_at.setdefault(target, len(group_at)), 1, cost)
    _reaches(group_at, cluster, machine_at, arcs, len(views) + 1)
    for index, machine in enumerate(instance.machines):
        for capacity, cost in rules.slot_costs(machine):
            arcs["slots"].add(index, 0, capacity, cost)
    return arcs


def _reaches(
    group_at: dict[Spot | Block, int],
    cluster: ClusterView,
    machine_at: dict[str, int],
    arcs: dict[str, _Arcs],
    endless: int,
) -> None:
    """What groups reach: machines, other groups in single file, blocks; numbers those that are new."""
    offers, singles, steps = arcs["offers"], arcs["single file"], arcs["blocks"]
    spots = [spot for spot in group_at if isinstance(spot, Spot)]
    slots = {name: machine.slots for name, machine in cluster.machines.items()}
    ways = {spot: {m: None for m in cluster.members(spot) if slots[m]} for spot in spots if base_of(spot) is None}
    for spot, name, single in single_files(ways):
        singles.add(group_at[spot], group_at.setdefault(single, len(group_at)), 1, 0)
        ways[single] = {name: None}
    for spot, machines in ways.items():
        for name in machines:
            offers.add(group_at[spot], machine_at[name], 1 if spot.once else slots[name], 0)
    for tail, head in _steps([spot for spot in spots if base_of(spot) is not None], cluster):
        at = group_at.setdefault(tail, len(group_at))
        if isinstance(head, str):
            offers.add(at, machine_at[head], endless, 0)
        else:
            steps.add(at, group_at.setdefault(head, len(group_at)), endless, 0)


def _steps(holed: list[Spot], cluster: ClusterView) -> Iterator[tuple[Spot | Block, Block | str]]:
    """From groups that leave machines or racks out to blocks and machines, and from block to block or machine."""
    trees: dict[Spot, Blocks] = {}
    for spot in holed:
        base = base_of(spot)
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
    """Take out of ``ways`` those to a machine that several spots of one ``once`` reach: (spot, machine, its detour).

    Tasks that must run on different machines pass a machine in single file: through one arc of capacity 1. A spot
    that alone reaches the machine has that arc itself; several share a vertex before the machine. So a rule for K
    spots costs an arc per spot and machine, and a vertex per machine that two of its spots reach.
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


class _Arcs:
    """A block of arcs in the making: ends, capacities, and costs of any size."""

    def __init__(self) -> None:
        self._arcs: list[tuple[int, int, int]] = []
        self.costs: list[int] = []

    def add(self, tail: int, head: int, capacity: int, cost: int) -> None:
        self._arcs.append((tail, head, capacity))
        self.costs.append(cost)

    @cached_property
    def arcs(self) -> Integers:
        """(count, 3) tail, head, capacity."""
        return np.array(self._arcs, np.int64).reshape(-1, 3)


def _assemble(
    instance: FlowInstance,
    rules: Rules,
    views: list[TaskView],
    arcs: dict[str, _Arcs],
    groups: tuple[Spot | Block, ...],
    gates: Integers,
    bounds: Integers,
) -> ScheduleNetwork:
    network = _declared(instance, len(views), arcs, groups, gates, bounds)
    blocks, order = network.arc_blocks, rules.order
    level = np.array([rules.level(j.priority) for j in instance.jobs], np.int64)
    levels, shortfall = np.zeros((2, network.arc_count), np.int64)
    levels[blocks["share"].slice] = levels[blocks["short"].slice] = level
    shortfall[blocks["short"].slice] = 1
    ranks = np.zeros((1 if order is None else len(order.names), network.arc_count), np.int64)
    for name in ("runs", "via", "waits", "slots"):
        costs = arcs[name].costs
        ranks[:, blocks[name].slice] = np.array([costs], np.int64) if order is None else order.columns(costs)
    columns = Columns(shortfall, levels, ranks)
    network = replace(network, cost=columns.ordinary)
    runs, via, offers, singles, steps = (
        arcs[name].arcs[:, :2] for name in ("runs", "via", "offers", "single file", "blocks")
    )
    cycle, top = cycle_bound(network, network.cost), int(level.max(initial=0))
    return ScheduleNetwork(
        network, columns, runs, via, offers, singles, steps, groups, gates, bounds, views, cycle, top
    )


def _declared(
    instance: FlowInstance,
    tasks: int,
    arcs: dict[str, _Arcs],
    groups: tuple[Spot | Block, ...],
    gates: Integers,
    bounds: Integers,
) -> FlowNetwork:
    """All nodes and arcs, without costs; ``gates`` as in `ScheduleNetwork`."""
    net, jobs = NetworkBuilder(instance.name), [j.name for j in instance.jobs]
    task = net.nodes("task", tasks, supply=1, labels=[t.name for t in instance.tasks])
    job = waiting = net.nodes("unscheduled", len(jobs), labels=jobs)
    group = net.nodes("group", len(groups), labels=[str(g) for g in groups])
    machine = net.nodes("machine", len(instance.machines), labels=[m.name for m in instance.machines])
    if len(gates):
        gate = net.nodes("preempted", len(gates), labels=[jobs[j] for j in gates[:, 0]])
        waiting = np.concatenate((job, gate))
    sink = net.nodes("sink", 1, supply=-tasks)
    ends = {"runs": (task, machine), "via": (task, group), "waits": (task, waiting), "offers": (group, machine)}
    ends |= {"single file": (group, group), "blocks": (group, group), "slots": (machine, sink)}
    for name, (tails, heads) in ends.items():
        each = arcs[name].arcs
        if len(each) or name not in ("single file", "blocks"):
            net.arcs(name, tails[each[:, 0]], heads[each[:, 1]], upper=each[:, 2])
        if name == "waits" and len(gates):
            net.arcs("preempted", gate, job[gates[:, 0]], upper=gates[:, 1])
    count = np.array([len(j.tasks) for j in instance.jobs], np.int64)
    most = bounds[:, 1].copy()  # what may not stop runs on, beyond the share
    most[gates[:, 0]] = np.maximum(most[gates[:, 0]], gates[:, 2])
    # lower = upper = N - A under max-min shares (the paper's bounds); between minimum and maximum otherwise
    net.arcs("share", job, sink, lower=count - most, upper=count - bounds[:, 0], labels=jobs)
    net.arcs("short", job, sink, upper=bounds[:, 0], labels=jobs)
    return net.build()


def cycle_bound(network: FlowNetwork, cost: Integers) -> int:
    """Bound what a cost changes along a simple residual cycle: two arcs per task on it, two arcs at the sink."""
    blocks = network.arc_blocks
    tasks = network.node_blocks["task"]
    low, high = np.zeros((2, tasks.count), cost.dtype)
    for name in ("runs", "via", "waits"):
        part = blocks[name].slice
        np.minimum.at(low, network.tail[part] - tasks.start, cost[part])
        np.maximum.at(high, network.tail[part] - tasks.start, cost[part])
    slots = cost[blocks["slots"].slice]
    return int(sum((high - low).tolist())) + 2 * int(np.abs(slots).max(initial=0))
