"""The compact network: the same optimum as the paper's network, with a fraction of its arcs.

Measured (benchmark *gpu_assignment*): 2000 GPUs are 32 623 arcs in 0.03 s, and 8 006 300 arcs in 4.7 s of OR-Tools on
the paper's network.

The cost of a task depends only on the node, and is equal on all nodes without its data. GPUs of equal memory on a node
are one vertex with a capacity. A task has an arc to each node and to each rack that hold a replica of one of its
shards, and one to the cluster for all other nodes. The vertices of a place form a chain by memory class, so that a task
only reaches GPUs with enough memory. A GPU that a running task may keep has its own vertex.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowlex.formulations.flow_network import FlowNetwork
from flowlex.formulations.linear_expression import Integers
from flowlex.models.gpu.methods.assignment_network import AssignmentNetwork, RoundBuilder, constant_of
from flowlex.models.gpu.round_eligibility import Round
from flowlex.models.gpu.transfer_costs import TransferCosts


@dataclass(frozen=True, eq=False)
class _Places:
    """Free GPUs grouped by place (node, rack or cluster) and memory class; P vertices in all."""

    # (P,) place and memory class of each vertex, sorted by place, then by class
    place: Integers
    memory_class: Integers
    classes: int  # number of memory classes

    @classmethod
    def of(cls, place: Integers, memory_class: Integers, classes: int) -> _Places:
        """Group items (GPUs or smaller places) by place and memory class."""
        key = np.unique(place * classes + memory_class)
        return cls(*np.divmod(key, classes), classes)

    @property
    def key(self) -> Integers:
        """(P,) sorted keys of the vertices."""
        return self.place * self.classes + self.memory_class

    def entry(self, place: Integers, memory_class: Integers) -> Integers:
        """Smallest vertex of a place with at least the given memory class; -1 if the place has none."""
        at = np.searchsorted(self.key, place * self.classes + memory_class)
        inside = at < len(self.place)
        inside[inside] &= self.place[at[inside]] == place[inside]
        return np.where(inside, at, -1)

    def climbs(self) -> Integers:
        """Vertices whose successor is the next larger class of the same place."""
        return np.flatnonzero(self.place[:-1] == self.place[1:])


def build_compact(plan: Round, costs: TransferCosts) -> AssignmentNetwork:
    """The compact network (see the module)."""
    return _Compact(plan, costs).build()


class _Compact:
    def __init__(self, plan: Round, costs: TransferCosts) -> None:
        view = plan.view
        self.plan, self.costs, self.view = plan, costs, view
        self.memory = np.unique(view.gpu_memory[plan.free_gpu]) if len(plan.free_gpu) else np.array([np.inf])
        classes = len(self.memory)
        gpu_class = np.searchsorted(self.memory, view.gpu_memory[plan.free_gpu])
        self.node = _Places.of(view.gpu_node[plan.free_gpu], gpu_class, classes)
        self.rack = _Places.of(view.node_rack[self.node.place], self.node.memory_class, classes)
        self.cluster = _Places.of(np.zeros_like(self.rack.place), self.rack.memory_class, classes)
        own = self.own_gpu = view.task_running_gpu[plan.optional]
        shared = ~np.isin(plan.free_gpu, own)
        # Sort the shared GPUs by vertex: the k-th task at a vertex gets its k-th GPU.
        vertex = self.node.entry(view.gpu_node[plan.free_gpu], gpu_class)
        order = np.argsort(vertex[shared], kind="stable")
        self.gpu_by_vertex = plan.free_gpu[shared][order]
        self.capacity = np.bincount(vertex[shared], minlength=len(self.node.place))
        self.first_gpu = np.cumsum(self.capacity) - self.capacity
        self.own_vertex = vertex[np.searchsorted(plan.free_gpu, own)]

    def build(self) -> AssignmentNetwork:
        plan, view = self.plan, self.view
        tasks, names = plan.candidates, np.array(view.task_names, dtype=object)
        net = RoundBuilder("gpu-assignment-compact")
        with_shares = plan.shares is not None
        job_supply = plan.candidates_by_job if with_shares else 0
        job = net.nodes("job", len(view.job_names), labels=view.job_names, supply=job_supply)
        source = None if with_shares else net.nodes("S", 1, supply=plan.total)
        task = net.nodes("task", len(tasks), labels=names[tasks])
        self.x = self._place_nodes(net, "cluster", self.cluster, ("all",))
        self.r = self._place_nodes(net, "rack", self.rack, view.rack_names)
        self.n = self._place_nodes(net, "node", self.node, view.node_names)
        self.own = net.nodes("own_gpu", len(self.own_gpu), labels=np.array(view.gpu_names, dtype=object)[self.own_gpu])
        sink = net.nodes("E", 1, supply=-(len(tasks) if with_shares else plan.total))
        if source is not None:
            net.arcs("enter", source, job, upper=plan.candidates_by_job)
        net.arcs("offer", job[view.task_job[tasks]], task, upper=1)
        start = self._start_arcs(net, task)
        keep = net.arcs("keep", task[len(plan.startable) :], self.own, upper=1, cost=-self.costs.stop[plan.optional])
        self._inner_arcs(net, sink)
        net.leave_waiting(plan, job, sink, self.costs.waiting, pooled=True)
        shape, constant = net.build(), constant_of(plan, self.costs)
        arcs = np.concatenate(start)
        return AssignmentNetwork(
            shape, net.costs(), self.costs.unit_s, constant, keep, arcs, lambda flow: self._gpus(shape, flow)
        )

    def _labels(self, places: _Places, names: tuple[str, ...]) -> list[str]:
        memory = [repr(gb).removesuffix(".0") for gb in self.memory.tolist()]
        at = zip(places.place.tolist(), places.memory_class.tolist(), strict=True)
        return [f"{names[place]},{memory[level]}" for place, level in at]

    def _place_nodes(self, net: RoundBuilder, what: str, places: _Places, names: tuple[str, ...]) -> Integers:
        return net.nodes(what, len(places.place), labels=self._labels(places, names))

    def _start_arcs(self, net: RoundBuilder, task: Integers) -> list[Integers]:
        """Add the arcs from startable tasks to the places where they can start."""
        view, costs, plan = self.view, self.costs, self.plan
        row = np.full(len(view.task_job), -1)
        row[plan.startable] = np.arange(len(plan.startable))
        need = np.searchsorted(self.memory, view.task_memory)
        everyone = plan.startable

        def arcs(name: str, tasks: Integers, places: _Places, place: Integers, first: Integers, cost: Integers) -> None:
            entry = places.entry(place, need[tasks])
            ok = (entry >= 0) & (row[tasks] >= 0)
            made.append(net.arcs(name, task[row[tasks[ok]]], first[entry[ok]], upper=1, cost=cost[ok]))

        made: list[Integers] = []
        if costs.nearer_is_cheaper:
            arcs("on_node", costs.on_node[0], self.node, costs.on_node[1], self.n, costs.on_node[2])
            arcs("in_rack", costs.in_rack[0], self.rack, costs.in_rack[1], self.r, costs.in_rack[2])
            arcs("remote", everyone, self.cluster, np.zeros_like(everyone), self.x, costs.remote[everyone])
        else:  # a path through a rack could be cheaper than the node with the data: merge only the GPUs of a node
            nodes = np.unique(self.node.place)
            tasks, place = np.repeat(everyone, len(nodes)), np.tile(nodes, len(everyone))
            arcs("on_node", tasks, self.node, place, self.n, costs.dense()[tasks, place])
        return made

    def _inner_arcs(self, net: RoundBuilder, sink: Integers) -> None:
        """Add the arcs cluster - rack - node - sink, and from each memory class to the next larger one."""
        node, rack, cluster = self.node, self.rack, self.cluster
        in_cluster = cluster.entry(np.zeros_like(rack.place), rack.memory_class)
        in_rack = rack.entry(self.view.node_rack[node.place], node.memory_class)
        net.arcs("to_rack", self.x[in_cluster], self.r)
        net.arcs("to_node", self.r[in_rack], self.n)
        for name, places, number in (("node", node, self.n), ("rack", rack, self.r), ("cluster", cluster, self.x)):
            lower = places.climbs()
            net.arcs(f"larger_{name}", number[lower], number[lower + 1])
        net.arcs("own_gpu_in", self.n[self.own_vertex], self.own)
        net.arcs("gpu_out", self.n, sink, upper=self.capacity, labels=self._labels(node, self.view.node_names))
        net.arcs("own_gpu_out", self.own, sink, upper=1)

    def _gpus(self, network: FlowNetwork, flow: Integers) -> Integers:
        """Decompose the flow into paths: the GPU of every candidate, -1 if it does not run.

        Within a place units only move to larger memory classes, at no cost. Sort the units that enter and the units
        that leave by class: the k-th entering unit can leave as the k-th.
        """
        at = np.full(len(self.plan.candidates), -1)
        first_task = network.node_blocks["task"].start
        for name in ("on_node", "in_rack", "remote", "keep"):
            used = _used(network, name, flow)
            at[network.tail[used] - first_task] = network.head[used]
        for vertices, names in ((self.x, ("to_rack",)), (self.r, ("to_node",)), (self.n, ("own_gpu_in", "gpu_out"))):
            if not len(vertices):
                continue
            here = np.flatnonzero((at >= vertices[0]) & (at <= vertices[-1]))
            arcs = np.concatenate([_used(network, name, flow) for name in names])
            units = np.repeat(arcs, flow[arcs])
            units = units[np.argsort(network.tail[units], kind="stable")]
            at[here[np.argsort(at[here], kind="stable")]] = np.where(
                network.head[units] == network.node_blocks["E"].start, -2 - network.tail[units], network.head[units]
            )
        gpu = np.full(len(at), -1)
        out = np.flatnonzero(at < -1)  # tasks whose path ends at the vertex -2 - at of a node
        out = out[np.argsort(-2 - at[out], kind="stable")]
        vertex = -2 - at[out] - network.node_blocks["node"].start
        gpu[out] = self.gpu_by_vertex[self.first_gpu[vertex] + np.arange(len(vertex)) - np.searchsorted(vertex, vertex)]
        own = np.flatnonzero(at >= 0)
        gpu[own] = self.own_gpu[at[own] - network.node_blocks["own_gpu"].start]
        return gpu


def _used(network: FlowNetwork, name: str, flow: Integers) -> Integers:
    """Return the arcs of a block that carry flow."""
    block = network.arc_blocks.get(name)
    return np.zeros(0, np.int64) if block is None else np.flatnonzero(flow[block.slice]) + block.start
