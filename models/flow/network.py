"""The network of flow scheduling: vertices and arcs of an instance under its goals (Sirius, Quincy), and its answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.gc_pause import collector_paused
from flowlex.formulations.network_builder import NetworkBuilder
from flowlex.formulations.program_arrays import Integers
from flowlex.models.flow.arc_costs import single_file
from flowlex.models.flow.goal_interface import ClusterView, Spot
from flowlex.models.flow.machine_tree import Blocks, Path
from flowlex.models.flow.priced_instance import PricedInstance

#: Blocks of arcs, except those of shares and preemptions.
_BLOCKS = ("runs", "via", "waits", "offers", "single file", "blocks", "slots")


class Block(NamedTuple):
    """The machines of a spot inside a block."""

    base: Spot
    path: Path
    once: str = ""  # as in `Spot`; empty: blocks are not used for different-machines rules

    def __str__(self) -> str:
        return f"{self.base}, block {'.'.join(map(str, self.path))}"


@dataclass(frozen=True, eq=False)
class ScheduleNetwork:
    """The network, with the meaning of its arcs."""

    priced: PricedInstance
    network: FlowNetwork
    # (A,) costs of each stage by name: shortfall of shares, waiting tasks by class, the goals by rank
    costs: Mapping[str, Integers]
    # (count, 2) indices of tail and head of each arc, by block: runs (task to machine), via (task to group), offers
    # (group to machine), single file (group to that of one machine, see `FlowJob.different_machines`), blocks (group
    # that excludes machines or racks to block, block to block)
    ends: Mapping[str, Integers]
    groups: tuple[Spot | Block, ...]


def build_network(priced: PricedInstance) -> ScheduleNetwork:
    """Build the network; equal instances and goals give equal networks."""
    with collector_paused():
        arcs = _Arcs(priced)
        network, order = _declared(arcs), priced.rules.order
        blocks = network.arc_blocks
        costs = {"shortfall": np.zeros(network.arc_count, np.int64)}
        costs["shortfall"][blocks["short"].slice] = 1
        for level in priced.classes:
            cost = costs[f"waiting_{level}"] = np.zeros(network.arc_count, np.int64)
            cost[blocks["share"].slice] = cost[blocks["short"].slice] = priced.levels == level
        ranks = np.zeros((len(priced.rules.rank_names), network.arc_count), np.int64)
        for name in ("runs", "via", "waits", "slots"):
            _, units = arcs.columns[name]
            ranks[:, blocks[name].slice] = np.array([units], np.int64) if order is None else order.columns(units)
        costs |= dict(zip(priced.rules.rank_names, ranks, strict=True))
        ends = {name: arcs.columns[name][0][:, :2] for name in ("runs", "via", "offers", "single file", "blocks")}
        return ScheduleNetwork(priced, network, costs, ends, tuple(arcs.groups))


class _Arcs:
    """Arcs in the making, by block: tail, head, capacity, cost of any size. Groups are numbered as they come."""

    def __init__(self, priced: PricedInstance) -> None:
        self.priced, self.cluster = priced, priced.cluster
        self.groups: dict[Spot | Block, int] = {}
        self.blocks: dict[str, list[tuple[int, int, int, int]]] = {name: [] for name in _BLOCKS}
        self._machine = {machine.name: index for index, machine in enumerate(priced.instance.machines)}
        runs, via, waits, slots = (self.blocks[name] for name in ("runs", "via", "waits", "slots"))
        for index, offers in enumerate(priced.offers):
            for target, cost in offers.items():
                if isinstance(target, str):
                    runs.append((index, self._machine[target], 1, cost))
                else:
                    via.append((index, self._group(target), 1, cost))
        self._reach()
        gates = {j: len(priced.levels) + g for g, j in enumerate(priced.gates[:, 0].tolist())}
        for index, (view, j, cost) in enumerate(zip(priced.views, priced.job.tolist(), priced.waiting, strict=True)):
            waits.append((index, gates[j] if view.held else j, 1, cost))
        for index, costs in enumerate(priced.slot_costs):
            slots += [(index, 0, capacity, cost) for capacity, cost in costs]

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
        endless = len(self.priced.views) + 1
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


def _declared(arcs: _Arcs) -> FlowNetwork:
    """Build the network of all nodes and arcs, without costs."""
    priced, instance, groups = arcs.priced, arcs.priced.instance, arcs.groups
    gates = priced.gates
    net, jobs, tasks = NetworkBuilder(instance.name), [j.name for j in instance.jobs], len(priced.views)
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
    least = priced.shares[:, 0]
    # lower = upper = N - A under max-min shares (the paper's bounds); otherwise by minimum and maximum
    net.arcs("share", job, sink, lower=count - priced.most, upper=count - least, labels=jobs)
    net.arcs("short", job, sink, upper=least, labels=jobs)
    return net.build()


def placements(schedule: ScheduleNetwork, flow: Integers) -> Integers:
    """(T,) number of each task's machine, -1 for none: the flow is cut into paths, first those of tasks that stay."""
    s, blocks = schedule, schedule.network.arc_blocks
    views = s.priced.views
    found = np.full(len(views), -1, np.int64)
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
        for head in units[group] if machine is None or machine not in units[group] else (machine,):
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

    at = {machine.name: m for m, machine in enumerate(s.priced.instance.machines)}
    for task, group in via:
        if (own := views[task].machine) is not None and (arcs := path(group, at[own])):
            send(task, arcs)
    for task, group in via:
        if found[task] < 0:
            send(task, path(group, None))
    return found
