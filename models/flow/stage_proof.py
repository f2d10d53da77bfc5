"""The proof of a schedule: for each stage multipliers of rows of the statement, from potentials of the network.

A potential is the cost of one unit from its node to the sink: at a machine it is the price of a slot, at an unscheduled
vertex the price of waiting. A full arc from a group to a machine may have a negative reduced cost; it is added to the
price of the machine.

Shortfall and waiting tasks. Only arcs into the sink count in these stages. So the potential of a node is the cost of
the cheapest exit that it reaches in the residual network: a free slot, or one more waiting task of a job.

Costs. One weighted sum of the stages has potentials of its own. Stages that were solved one after the other are added
up with weights so large that each reduced cost has the sign of the first stage in which it is not 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.formulations.lexicographic.lexicographic_network import Stage
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.network import ScheduleNetwork
from flowlex.models.model_base import Dual

#: Sums below this stay within 64 bits.
_SAFE = 2.0**61


@dataclass(frozen=True, eq=False)
class Prices:
    """Dual prices, in the unit of the weighted sum of some stages."""

    weights: Mapping[str, int]  # weight of each stage by name, the last one at last
    # (M,) dual value of a slot; (J,) dual value of waiting in the job's unscheduled vertex
    machine: list[int]
    job: list[int]
    # dual value of a machine for the tasks of a different-machines rule, by (rule, machine)
    apart: Mapping[tuple[str, int], int]
    preempt: Mapping[int, int]  # dual value of one more preemption, by index of the job
    cost: NDArray[Any]  # (A,) weighted cost of every arc


def waiting_prices(
    schedule: ScheduleNetwork, costs: Mapping[str, Integers], flow: Integers, names: Sequence[str]
) -> list[Prices]:
    """Prices of each of the stages ``names`` (shortfall and waiting tasks, in order) at an optimal flow."""
    short, level = _first_exits(schedule, flow)
    found = []
    for k in range(1, len(names) + 1):
        weights = {name: k - i for i, name in enumerate(names[:k])}
        potential = weights.get("shortfall", 0) * short
        for name in names[:k]:
            if name != "shortfall":
                potential = potential + weights[name] * (level == int(name.removeprefix("waiting_")))
        cost = np.sum([weight * costs[name] for name, weight in weights.items()], axis=0)
        found.append(prices_of(schedule, weights, cost, potential))
    return found


def _first_exits(schedule: ScheduleNetwork, flow: Integers) -> tuple[Integers, Integers]:
    """(N,) shortfall and class of the cheapest way from each node to the sink in the residual network."""
    network, blocks = schedule.network, schedule.network.arc_blocks
    sink, count = network.node_blocks["sink"].start, network.node_count
    exits = network.head == sink
    more = (flow < network.upper) & ~exits
    less = (flow > network.lower) & ~exits
    back = np.concatenate([network.head[more], network.tail[less]])  # against the direction of the way
    on = np.concatenate([network.tail[more], network.head[less]])
    keys = np.unique(back * count + on)
    out = np.flatnonzero(exits)
    shorts = np.zeros(network.arc_count, np.int64)
    shorts[blocks["short"].slice] = 1
    classes = np.stack([shorts[out], schedule.columns.level[out]], axis=1)
    distinct, number = np.unique(np.concatenate([classes, [[0, 0]]]), axis=0, return_inverse=True)
    best, open_ = np.full(count, len(distinct)), flow[out] < network.upper[out]
    np.minimum.at(best, network.tail[out[open_]], number.ravel()[:-1][open_])
    some = np.flatnonzero(best < len(distinct))
    far = float(count + 2)  # longer than any way, so that the class of an exit outweighs it
    ends = np.concatenate([keys // count, np.full(len(some), sink)]), np.concatenate([keys % count, some])
    lengths = np.concatenate([np.ones(len(keys)), 1 + far * best[some]])
    graph = scipy.sparse.csr_array((lengths, ends), shape=(count, count))
    way = np.minimum(scipy.sparse.csgraph.dijkstra(graph, indices=np.array([sink]))[0], far * len(distinct))
    which = np.minimum(way // far, len(distinct) - 1).astype(np.int64)
    which[sink] = int(np.flatnonzero((distinct == 0).all(axis=1))[0])
    return distinct[which, 0], distinct[which, 1]


def combined_prices(schedule: ScheduleNetwork, costs: Mapping[str, Integers], stages: Sequence[Stage]) -> Prices:
    """Prices of the last of some stages that were solved one after the other, with ``costs`` by name."""
    network = schedule.network
    cost, potential = np.zeros(network.arc_count, np.int64), np.zeros(network.node_count, np.int64)
    weights: dict[str, int] = {}
    for (name, mine), stage in reversed(list(zip(costs.items(), stages, strict=True))):
        duals = stage.outcome.duals
        assert duals is not None
        rest = cost - potential[network.tail] + potential[network.head]
        weight = weights[name] = 1 + int(np.abs(rest).max(initial=0))
        size = max(_largest(cost), _largest(potential)) + float(weight) * max(_largest(mine), _largest(duals))
        if 3 * size >= _SAFE:
            cost, potential = cost.astype(object), potential.astype(object)
            mine, duals = mine.astype(object), duals.astype(object)
        cost, potential = cost + weight * mine, potential + weight * duals
    return prices_of(schedule, dict(reversed(weights.items())), cost, potential)


def _largest(values: NDArray[Any]) -> float:
    return float(np.abs(values).max(initial=0))


def prices_of(
    schedule: ScheduleNetwork, weights: Mapping[str, int], cost: NDArray[Any], potential: NDArray[Any]
) -> Prices:
    """Return the prices of optimal potentials of the network with the weighted cost."""
    network = schedule.network
    nodes, arcs = network.node_blocks, network.arc_blocks
    sink = potential[nodes["sink"].start]
    reduced = cost - potential[network.tail] + potential[network.head]
    machine = (potential[nodes["machine"].slice] - sink).copy()
    full = np.maximum(-reduced[arcs["offers"].slice], 0)
    single: dict[int, int] = defaultdict(int)
    if "single file" in arcs:
        into = np.maximum(-reduced[arcs["single file"].slice], 0)
        for (_, g), more in zip(schedule.ends["single file"].tolist(), into.tolist(), strict=True):
            single[g] = max(single[g], more)
    apart: dict[tuple[str, int], int] = {}
    shared = np.array([not group.once for group in schedule.groups], bool)
    offers = schedule.ends["offers"]
    open_to_all = shared[offers[:, 0]] if len(offers) else np.zeros(0, bool)
    extra = np.zeros_like(machine)
    np.maximum.at(extra, offers[open_to_all, 1], full[open_to_all])
    ways = zip(offers[~open_to_all].tolist(), full[~open_to_all].tolist(), strict=True)
    for (g, m), more in ways:
        if more + single[g] > 0:
            key = (schedule.groups[g].once, m)
            apart[key] = max(apart.get(key, 0), more + single[g])
    job = potential[nodes["unscheduled"].slice] - sink
    preempt: dict[int, int] = {}
    if len(schedule.gates):
        through = np.maximum(-reduced[arcs["preempted"].slice], 0).tolist()
        preempt = {j: price for (j, *_), price in zip(schedule.gates.tolist(), through, strict=True) if price}
    return Prices(weights, (machine + extra).tolist(), job.tolist(), apart, preempt, cost)


def duals_of(
    schedule: ScheduleNetwork, instance: FlowInstance, prices: Prices, flow: Integers, machine: Integers
) -> dict[str, Dual]:
    """Duals of machines and unscheduled vertices, and the cost of each task on its ``machine`` including these."""
    network, blocks = schedule.network, schedule.network.arc_blocks
    used = {
        int(network.tail[arc]): prices.cost[arc]
        for name in ("runs", "via", "waits")
        for arc in blocks[name].start + np.flatnonzero(flow[blocks[name].slice])
    }
    job = {j.name: index for index, j in enumerate(instance.jobs)}
    heads = network.head[blocks["waits"].slice].tolist()
    first = network.node_blocks["preempted"].start if len(schedule.gates) else network.node_count
    gates = [prices.preempt.get(int(schedule.gates[h - first, 0]), 0) if h >= first else 0 for h in heads]
    task = []
    for index, (view, m) in enumerate(zip(schedule.views, machine.tolist(), strict=True)):
        waits = prices.job[job[view.job]] + gates[index]
        price = waits if m < 0 else prices.machine[m] + prices.apart.get((view.apart, m), 0)
        task.append(int(used[index]) + price)
    values = {"task": task, "unscheduled": prices.job, "machine": prices.machine}
    kind = np.int64 if max(abs(x) for each in values.values() for x in (0, *each)) < 2**63 else object
    return {name: Dual.of_block(network.node_blocks[name], np.array(each, kind)) for name, each in values.items()}


def proof_of(
    schedule: ScheduleNetwork, instance: FlowInstance, prices: Sequence[Prices], free: Sequence[str] = ()
) -> dict[str, Any]:
    """The proof of the last stage of each of the prices, and of stages that cost nothing (``free``)."""
    stages = {list(each.weights)[-1]: [_leaf(schedule, instance, each)] for each in prices}
    stages |= {name: [{"complete": ["task"]}] for name in free}
    if not (schedule.shares[:, 0] > 0).any():
        stages.pop("shortfall", None)
    return {"format": 3, "stages": stages}


def _leaf(schedule: ScheduleNetwork, instance: FlowInstance, prices: Prices) -> dict[str, Any]:
    """Multipliers of the rows of the statement, and of the stages before."""
    machines, jobs, shares = instance.machines, instance.jobs, schedule.shares
    slots = schedule.network.arc_blocks["slots"].slice
    free = not schedule.columns.ranks[:, slots].any()  # a slot costs nothing, so it has no negative price
    price = {
        m.name: -int(p)
        for m, p in zip(machines, prices.machine, strict=True)
        if m.slots and (p > 0 or (p and not free))
    }
    rows: dict[str, dict[str, int]] = {"machine": price, "unscheduled": {}, "share": {}}
    level = schedule.columns.level[schedule.network.arc_blocks["share"].slice].tolist()
    most = shares[:, 1].copy()
    most[schedule.gates[:, 0]] = np.maximum(most[schedule.gates[:, 0]], schedule.gates[:, 2])
    for j, (job, p) in enumerate(zip(jobs, prices.job, strict=True)):
        above = int(p) - (prices.weights.get(f"waiting_{level[j]}", 0) if level[j] else 0)
        if above > 0 and shares[j, 0] > 0:
            rows["unscheduled"][job.name] = -above
        if above < 0 and most[j] < len(job.tasks):
            rows["share"][job.name] = -above
    rows["apart"] = {label_text((rule, machines[m].name)): -int(p) for (rule, m), p in prices.apart.items()}
    rows["preempted"] = {jobs[j].name: -int(p) for j, p in prices.preempt.items()}
    named: dict[str, Any] = {name: {"at": each} for name, each in rows.items() if each}
    common, times = Counter(price.values()).most_common(1)[0] if price else (0, 0)
    open_ = [m.name for m in machines if m.slots]
    if 2 * times > len(open_):
        others = {name: price.get(name, 0) for name in open_ if price.get(name, 0) != common}
        named["machine"] = {"default": common, "at": others}
    *before, own = prices.weights
    known = {"shortfall"} if (shares[:, 0] > 0).any() else set()
    earlier = {name: -prices.weights[name] for name in before if name != "shortfall" or name in known}
    return {
        "rows": named,
        "complete": ["task"],
        **({"earlier": earlier} if earlier else {}),
        **({"own": prices.weights[own]} if prices.weights[own] != 1 else {}),
    }
