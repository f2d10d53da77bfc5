"""The two flow networks of GPU assignment, and how a flow becomes placements.

``paper`` has one vertex per GPU and one arc per task and GPU that fits. ``compact`` has the same optimum with a
fraction of the arcs, because cost depends on the node and is equal wherever none of a task's data lie: GPUs of
equal memory on a node are one vertex with a capacity; a task has an arc to each node that holds a replica of
one of its shards, to each rack that does, and one to the whole cluster for the rest. Vertices of a place form a
chain by memory class, so that a task never reaches a GPU that is too small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from flowlex.formulations.expression import Integers
from flowlex.formulations.flow_network import FlowNetwork, NetworkBuilder
from flowlex.instances.gpu import GpuArrays
from flowlex.models.gpu.costs import TransferCosts
from flowlex.models.gpu.round import Round

__all__ = ["AssignmentNetwork", "Earnings", "Places", "build_compact", "build_paper"]


@dataclass(frozen=True, eq=False)
class Earnings:
    """Weights that put transfer first, then the fewest stops, then (to spare the search) longest-running tasks.

    Attributes
    ----------
    factor
        Every transfer cost counts so many times: more than all running tasks together earn.
    base
        A running task that goes on earns this much, and
    keep
        (T,) this in all: the more the longer it runs, but all such differences together are less than ``base``.
    """

    factor: int
    base: int
    keep: Integers

    @classmethod
    def of(cls, view: GpuArrays, *, preemptive: bool) -> Earnings:
        """Weights of one instance; costs count once where no task can be stopped."""
        none = np.zeros(len(view.task_job), np.int64)
        running = np.flatnonzero(view.task_running_gpu >= 0)
        if not preemptive or not len(running):
            return cls(1, 1, none)
        order = running[np.lexsort((view.task_elapsed[running], view.task_job[running]))]
        job = view.task_job[order]
        new = np.append(True, (job[1:] != job[:-1]))
        step = np.append(True, new[1:] | (np.diff(view.task_elapsed[order]) > 0))
        rank = np.cumsum(step) - 1
        rank -= np.maximum.accumulate(np.where(new, rank, 0))
        base = int(rank.sum()) + 1
        none[order] = base + rank
        return cls(int(none.sum()) + 1, base, none)


@dataclass(frozen=True, eq=False)
class AssignmentNetwork:
    """A network of one round, and the way back from its flow.

    Attributes
    ----------
    network
        What to solve; costs are multiplied by the factor of `Earnings`.
    waiting_cost
        Cost of a waiting candidate (alpha), in cost units.
    gpus_of_flow
        From (A,) flows to (C,) the GPU of each candidate, -1 for those that wait.
    """

    network: FlowNetwork
    waiting_cost: int
    gpus_of_flow: Callable[[Integers], Integers]


@dataclass(frozen=True, eq=False)
class Places:
    """Free GPUs grouped by place (node, rack or cluster) and memory class; P vertices in all.

    Attributes
    ----------
    place, memory_class
        (P,) sorted by place, then by class.
    classes
        How many classes there are.
    """

    place: Integers
    memory_class: Integers
    classes: int

    @classmethod
    def of(cls, place: Integers, memory_class: Integers, classes: int) -> Places:
        """Group items (GPUs, or finer places) by the place they are in."""
        key = np.unique(place * classes + memory_class)
        return cls(*np.divmod(key, classes), classes)

    @property
    def key(self) -> Integers:
        """(P,) sorted."""
        return self.place * self.classes + self.memory_class

    def entry(self, place: Integers, memory_class: Integers) -> Integers:
        """Vertex where a task that needs a class enters a place; -1 when the place has nothing large enough."""
        at = np.searchsorted(self.key, place * self.classes + memory_class)
        inside = at < len(self.place)
        inside[inside] &= self.place[at[inside]] == place[inside]
        return np.where(inside, at, -1)

    def climbs(self) -> Integers:
        """Vertices whose successor is the next larger class of the same place."""
        return np.flatnonzero(self.place[:-1] == self.place[1:])


def build_paper(plan: Round, costs: TransferCosts, waiting: Fraction, earnings: Earnings) -> AssignmentNetwork:
    """The paper's network: S, E; per job j and u_j; per task; per free GPU."""
    view, tasks, gpus = plan.view, plan.candidates, plan.free_gpu
    alpha, factor = _alpha(costs, waiting), earnings.factor
    names = np.array(view.task_names, dtype=object)[tasks]
    net = NetworkBuilder("gpu-assignment")
    through = len(tasks) if plan.shares is not None else plan.total
    source, sink = net.nodes("S", 1, supply=through), net.nodes("E", 1, supply=-through)
    job = net.nodes("job", len(view.job_names), labels=view.job_names)
    task = net.nodes("task", len(tasks), labels=names)
    gpu = net.nodes("gpu", len(gpus), labels=np.array(view.gpu_names, dtype=object)[gpus])
    fits = view.task_memory[tasks][:, None] <= view.gpu_memory[gpus]
    fits[len(plan.startable) :] = view.task_running_gpu[plan.optional][:, None] == gpus
    row, column = np.nonzero(fits)
    cost = costs.dense()[tasks[row], view.gpu_node[gpus[column]]] * factor
    going_on = row >= len(plan.startable)
    cost[going_on] = -earnings.keep[tasks[row[going_on]]]
    net.arcs("enter", source, job, upper=plan.candidates_by_job)
    net.arcs("offer", job[view.task_job[tasks]], task, upper=1)
    place = net.arcs("place", task[row], gpu[column], upper=1, cost=cost)
    # With every free GPU in use, saying so fixes how many tasks run.
    all_used = plan.shares is not None and plan.total == len(gpus)
    net.arcs("gpu_out", gpu, sink, upper=1, lower=int(all_used))
    # More than one group with odd GPUs needs a total of its own for each.
    odd = plan.shares is not None and len(np.unique(plan.shares.group[plan.shares.least < plan.shares.most])) > 1
    pooled = odd or not (all_used or plan.total == len(tasks))
    _leave_waiting(net, plan, job, sink, alpha * factor, pooled=pooled)

    def gpus_of_flow(flow: Integers) -> Integers:
        chosen = flow[place] > 0
        answer = np.full(len(tasks), -1)
        answer[row[chosen]] = gpus[column[chosen]]
        return answer

    return AssignmentNetwork(net.build(), alpha, gpus_of_flow)


def build_compact(plan: Round, costs: TransferCosts, waiting: Fraction, earnings: Earnings) -> AssignmentNetwork:
    """The compact network (see the module)."""
    return _Compact(plan, costs, earnings).build(waiting)


class _Compact:
    def __init__(self, plan: Round, costs: TransferCosts, earnings: Earnings) -> None:
        view = plan.view
        self.plan, self.costs, self.view, self.earnings = plan, costs, view, earnings
        self.memory = np.unique(view.gpu_memory[plan.free_gpu]) if len(plan.free_gpu) else np.array([np.inf])
        classes = len(self.memory)
        gpu_class = np.searchsorted(self.memory, view.gpu_memory[plan.free_gpu])
        self.node = Places.of(view.gpu_node[plan.free_gpu], gpu_class, classes)
        self.rack = Places.of(view.node_rack[self.node.place], self.node.memory_class, classes)
        self.cluster = Places.of(np.zeros_like(self.rack.place), self.rack.memory_class, classes)
        own = self.own_gpu = view.task_running_gpu[plan.optional]
        shared = ~np.isin(plan.free_gpu, own)
        # Shared GPUs sorted by their vertex, so that the k-th task at a vertex gets its k-th GPU.
        vertex = self.node.entry(view.gpu_node[plan.free_gpu], gpu_class)
        order = np.argsort(vertex[shared], kind="stable")
        self.gpu_by_vertex = plan.free_gpu[shared][order]
        self.capacity = np.bincount(vertex[shared], minlength=len(self.node.place))
        self.first_gpu = np.cumsum(self.capacity) - self.capacity
        self.own_vertex = vertex[np.searchsorted(plan.free_gpu, own)]

    def build(self, waiting: Fraction) -> AssignmentNetwork:
        plan, view = self.plan, self.view
        tasks, factor = plan.candidates, self.earnings.factor
        alpha = _alpha(self.costs, waiting)
        names = np.array(view.task_names, dtype=object)
        net = NetworkBuilder("gpu-assignment-compact")
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
        self._task_arcs(net, task, factor)
        self._inner_arcs(net, sink)
        _leave_waiting(net, plan, job, sink, alpha * factor, pooled=True)
        network = net.build()
        return AssignmentNetwork(network, alpha, lambda flow: self._gpus(network, flow))

    def _place_nodes(self, net: NetworkBuilder, what: str, places: Places, names: tuple[str, ...]) -> Integers:
        labels = (np.array(names, dtype=object)[places.place], self.memory[places.memory_class])
        return net.nodes(what, len(places.place), labels=labels)

    def _task_arcs(self, net: NetworkBuilder, task: Integers, factor: int) -> None:
        """Arcs from tasks to the places where they would run."""
        view, costs, plan = self.view, self.costs, self.plan
        row = np.full(len(view.task_job), -1)
        row[plan.startable] = np.arange(len(plan.startable))
        need = np.searchsorted(self.memory, view.task_memory)
        everyone = plan.startable

        def arcs(name: str, tasks: Integers, places: Places, place: Integers, first: Integers, cost: Integers) -> None:
            entry = places.entry(place, need[tasks])
            ok = (entry >= 0) & (row[tasks] >= 0)
            net.arcs(name, task[row[tasks[ok]]], first[entry[ok]], upper=1, cost=cost[ok] * factor)

        if costs.nearer_is_cheaper:
            arcs("on_node", costs.on_node[0], self.node, costs.on_node[1], self.n, costs.on_node[2])
            arcs("in_rack", costs.in_rack[0], self.rack, costs.in_rack[1], self.r, costs.in_rack[2])
            arcs("remote", everyone, self.cluster, np.zeros_like(everyone), self.x, costs.remote[everyone])
        else:  # the way through a rack could undercut a task's own node, so only GPUs of a node are merged
            nodes = np.unique(self.node.place)
            tasks, place = np.repeat(everyone, len(nodes)), np.tile(nodes, len(everyone))
            arcs("on_node", tasks, self.node, place, self.n, costs.dense()[tasks, place])
        net.arcs("keep", task[len(everyone) :], self.own, upper=1, cost=-self.earnings.keep[plan.optional])

    def _inner_arcs(self, net: NetworkBuilder, sink: Integers) -> None:
        """Cluster to racks to nodes to the sink, and from each memory class to the next larger one."""
        node, rack, cluster = self.node, self.rack, self.cluster
        in_cluster = cluster.entry(np.zeros_like(rack.place), rack.memory_class)
        in_rack = rack.entry(self.view.node_rack[node.place], node.memory_class)
        net.arcs("to_rack", self.x[in_cluster], self.r)
        net.arcs("to_node", self.r[in_rack], self.n)
        for name, places, number in (("node", node, self.n), ("rack", rack, self.r), ("cluster", cluster, self.x)):
            lower = places.climbs()
            net.arcs(f"larger_{name}", number[lower], number[lower + 1])
        net.arcs("own_gpu_in", self.n[self.own_vertex], self.own)
        net.arcs("gpu_out", self.n, sink, upper=self.capacity)
        net.arcs("own_gpu_out", self.own, sink, upper=1)

    def _gpus(self, network: FlowNetwork, flow: Integers) -> Integers:
        """Follow every candidate through the aggregates to a GPU of its own.

        All members of a layer are moved at once: sorted by vertex, they take the vertex's outgoing units in
        order. Arcs inside the aggregates cost nothing, so it does not matter which unit takes which.
        """
        blocks, tasks = network.arc_blocks, self.plan.candidates
        at = np.full(len(tasks), -1)
        first_task = network.node_blocks["task"].start
        for name in ("on_node", "in_rack", "remote", "keep"):
            if name in blocks:
                used = np.flatnonzero(flow[blocks[name].slice]) + blocks[name].start
                at[network.tail[used] - first_task] = network.head[used]
        inner = np.concatenate([np.arange(b.start, b.start + b.count) for n, b in blocks.items() if n in _INNER])
        inner = inner[flow[inner] > 0]
        inner = inner[np.argsort(network.tail[inner], kind="stable")]
        tails = np.repeat(network.tail[inner], flow[inner])
        heads = np.repeat(network.head[inner], flow[inner])
        gpu = np.full(len(tasks), -1)
        for layer in self._layers():
            here = np.flatnonzero(np.isin(at, layer))
            here = here[np.argsort(at[here], kind="stable")]
            vertex, onward = at[here], heads[np.isin(tails, layer)]
            out = onward == network.node_blocks["E"].start
            gpu[here[out]] = self._numbered(vertex[out] - network.node_blocks["node"].start)
            at[here] = np.where(out, -1, onward)
        own = np.flatnonzero(np.isin(at, self.own))
        gpu[own] = self.own_gpu[at[own] - network.node_blocks["own_gpu"].start]
        return gpu

    def _numbered(self, vertex: Integers) -> Integers:
        """GPUs of tasks that stay at node vertices (sorted): the k-th task of a vertex gets its k-th GPU."""
        rank = np.arange(len(vertex)) - np.searchsorted(vertex, vertex)
        return self.gpu_by_vertex[self.first_gpu[vertex] + rank]

    def _layers(self) -> list[Integers]:
        """Vertices in the order in which flow passes them: cluster, racks, nodes; smaller classes first."""
        return [
            number[places.memory_class == level]
            for places, number in ((self.cluster, self.x), (self.rack, self.r), (self.node, self.n))
            for level in range(places.classes)
        ]


_INNER = frozenset({"to_rack", "to_node", "larger_node", "larger_rack", "larger_cluster", "own_gpu_in", "gpu_out"})


def _alpha(costs: TransferCosts, penalty: Fraction) -> int:
    """Cost of leaving a task waiting: the penalty times the dearest transfer (reconstructed)."""
    return round(penalty * int(costs.remote.max(initial=0)))


def _leave_waiting(
    net: NetworkBuilder, plan: Round, job: Integers, sink: Integers, alpha: int, *, pooled: bool
) -> None:
    """Unscheduled vertices: what each job may leave waiting, and what each group of jobs must."""
    if plan.shares is None:
        return
    shares, have = plan.shares, plan.candidates_by_job
    least = have - (shares.most - plan.kept_by_job)
    most = have - (shares.least - plan.kept_by_job)
    unscheduled = net.nodes("unscheduled", len(job), labels=plan.view.job_names)
    net.arcs("share", job, unscheduled, lower=least, upper=most, cost=alpha)
    if not pooled:
        net.arcs("leave", unscheduled, sink, lower=0, upper=most)
        return
    groups = len(shares.group_total)
    waiting = np.bincount(shares.group, weights=have + plan.kept_by_job, minlength=groups).astype(np.int64)
    waiting -= shares.group_total
    pool = net.nodes("pool", groups)
    net.arcs("leave", unscheduled, pool[shares.group], upper=most)
    net.arcs("pooled", pool, sink, lower=waiting, upper=waiting)
