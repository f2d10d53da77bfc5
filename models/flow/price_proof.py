"""The proof of a schedule: weights of the stages, and duals of machines, jobs and rules, from a network's potentials.

`flowlex.validation.certificates.flow` checks the proof. A potential is the cost of one unit from its node to the sink:
at a machine it is the price of a slot, at an unscheduled vertex the price of waiting. A full arc from a group to a
machine may have a negative reduced cost; it is added to the price of the machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.lexicographic.lexicographic_network import Stage
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.flow import FlowInstance
from flowlex.models.flow.network import ScheduleNetwork, cycle_bound
from flowlex.models.model_base import Dual


@dataclass(frozen=True, eq=False)
class Prices:
    """Dual prices, in the unit of the weighted sum of all stages."""

    weights: Mapping[str, int]  # weight of each stage by name
    # (M,) dual value of a slot; (J,) dual value of waiting in the job's unscheduled vertex
    machine: list[int]
    job: list[int]
    # dual value of a machine for the tasks of a different-machines rule, by (rule, machine)
    apart: Mapping[tuple[str, int], int]
    preempt: Mapping[int, int]  # dual value of one more preemption, by index of the job
    cost: NDArray[Any]  # (A,) weighted cost of every arc


def combined_stages(
    schedule: ScheduleNetwork, costs: Mapping[str, NDArray[np.int64]], stages: Sequence[Stage], names: Sequence[str]
) -> tuple[dict[str, int], NDArray[Any], NDArray[Any]]:
    """Return the weights of the stages by name, and the weighted sums of their costs and potentials, exactly.

    A weight exceeds the reduced costs and the cycle costs of all later stages. So every reduced cost of the sum has the
    sign of the first stage in which it is nonzero, and the optimum of the sum is the lexicographic one.
    """
    network = schedule.network
    solved = dict(zip(costs, stages, strict=True))
    cost, potential = (np.zeros(n, dtype=object) for n in (network.arc_count, network.node_count))
    weights: dict[str, int] = {}
    below, after = 0, 0
    for name in reversed(names):
        rest = cost - potential[network.tail] + potential[network.head]
        weight = 1 + max(int(np.abs(rest).max(initial=0)), below + after)
        weights[name] = weight
        if name == "shortfall" or name.startswith("waiting_"):
            after = weight
        elif name in costs:
            below += weight * cycle_bound(network, costs[name])
        if name in solved:
            duals = solved[name].outcome.duals
            assert duals is not None
            cost, potential = cost + weight * costs[name].astype(object), potential + weight * duals.astype(object)
    return dict(reversed(weights.items())), cost, potential


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


def bounds_of(
    schedule: ScheduleNetwork, instance: FlowInstance, costs: Mapping[str, Integers], done: Sequence[Stage], last: Stage
) -> tuple[dict[str, int], dict[str, Any]]:
    """Lower bounds with proofs, for an interim schedule: finished stages, and the last goal after them."""
    proofs: dict[str, Any] = {}
    bounds: dict[str, int] = {}
    stages, names = (*done, last), list(costs)
    for k, name in enumerate([*names[: len(done)], names[-1]], 1):
        known = {each: costs[each] for each in [*names[: min(k, len(done))], name]}
        prices = prices_of(schedule, *combined_stages(schedule, known, stages[:k], list(known)))
        value = stages[k - 1].outcome.objective
        assert value is not None
        bounds[name] = int(value)
        proofs[name] = {"at_least": bounds[name], **document_of(instance, prices)}
    return bounds, {"stages": proofs}


def document_of(instance: FlowInstance, prices: Prices) -> dict[str, Any]:
    """Return weights and nonzero prices by name, for a solution file."""
    apart: dict[str, dict[str, int]] = defaultdict(dict)
    for (rule, m), price in prices.apart.items():
        apart[rule][instance.machines[m].name] = price
    return {
        "weights": dict(prices.weights),
        "machine_price": {m.name: int(p) for m, p in zip(instance.machines, prices.machine, strict=True) if p},
        "job_price": {j.name: int(p) for j, p in zip(instance.jobs, prices.job, strict=True) if p},
        "apart_price": dict(apart),
        "preempt_price": {instance.jobs[j].name: int(p) for j, p in prices.preempt.items()},
    }
