"""Minimum-cost-flow instances: random feasible networks, and those of the benchmarks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.base import InstanceError
from flowlex.instances.generators.registry import generator
from flowlex.instances.network import NetworkInstance

__all__ = ["network_assignment", "network_netgen", "network_random"]


@generator("network-random")
def network_random(
    *,
    seed: int = 0,
    nodes: int = 50,
    arcs: int = 200,
    max_cost: int = 100,
    max_capacity: int = 20,
    negative: float = 0.2,
    lower: float = 0.2,
    parallel: float = 0.1,
    unbounded: float = 0.0,
) -> NetworkInstance:
    """A random network that has a flow: supplies are the balance of a random flow within the bounds.

    Parameters
    ----------
    seed
        Chooses everything.
    nodes, arcs
        Sizes; a few nodes may stay isolated, a few arcs be self-loops.
    max_cost, max_capacity
        Costs are up to ``max_cost`` in size, upper bounds up to ``max_capacity``.
    negative, lower, parallel, unbounded
        Shares of the arcs (0 to 1, each drawn for itself) with a negative cost, with a lower bound, that
        repeat another arc, and without an upper bound (these never cost less than nothing, so that the
        optimum is finite).
    """
    for key, value in {"nodes": nodes, "max_capacity": max_capacity}.items():
        _require(value >= 1, f"{key}={value}: must be at least 1")
    for key, value in {"arcs": arcs, "max_cost": max_cost}.items():
        _require(value >= 0, f"{key}={value}: must not be negative")
    for key, share in {"negative": negative, "lower": lower, "parallel": parallel, "unbounded": unbounded}.items():
        _require(0 <= share <= 1, f"{key}={share}: a share is 0 to 1")
    rng = np.random.default_rng(seed)
    tail, head = rng.integers(0, nodes, (2, arcs))
    repeated = rng.random(arcs) < parallel
    original = np.where(repeated, rng.integers(0, max(arcs, 1), arcs), np.arange(arcs))
    tail, head = tail[original], head[original]
    upper = rng.integers(1, max_capacity + 1, arcs)
    flow = rng.integers(0, upper + 1)
    low = np.where(rng.random(arcs) < lower, rng.integers(0, flow + 1), 0)
    free = rng.random(arcs) < unbounded
    cost = rng.integers(0, max_cost + 1, arcs)
    cost = np.where((rng.random(arcs) < negative) & ~free, -cost, cost)
    supply = np.zeros(nodes, dtype=np.int64)
    np.add.at(supply, tail, flow)
    np.subtract.at(supply, head, flow)
    comment = f"Random feasible network, seed {seed}."
    return _network("network-random", comment, supply, tail, head, low, upper, cost, free)


@generator("network-assignment")
def network_assignment(
    *,
    seed: int = 0,
    machines: int = 10_000,
    tasks: int = 20_000,
    choices: int = 9,
    slots: int = 2,
    max_cost: int = 1000,
) -> NetworkInstance:
    """Tasks that may go to a few machines each, or wait at a price; 220 000 arcs by default.

    Nodes: the tasks (supply 1 each), the machines, a sink. Arcs: task to machine (``choices`` each, cost up to
    ``max_cost``), task to sink (waiting, dearer than any place), machine to sink (``slots`` parallel arcs,
    each dearer than the one before, so that load spreads).

    Parameters
    ----------
    seed
        Chooses machines and costs.
    machines, tasks
        Sizes.
    choices
        Different machines that each task may go to.
    slots
        Tasks that a machine takes.
    max_cost
        Largest cost of a task on a machine.
    """
    for key, value in {"machines": machines, "tasks": tasks, "slots": slots, "max_cost": max_cost}.items():
        _require(value >= 1, f"{key}={value}: must be at least 1")
    _require(0 <= choices <= machines, f"choices={choices}: each of {tasks} tasks chooses among {machines} machines")
    rng = np.random.default_rng(seed)
    task, machine, sink = np.arange(tasks), tasks + np.arange(machines), tasks + machines
    # A step through the machines from a random start, with a stride that meets no machine twice.
    stride = 1 + rng.integers(0, max(1, (machines - 1) // max(1, choices)), tasks)
    chosen = (rng.integers(0, machines, tasks)[:, None] + stride[:, None] * np.arange(choices)) % machines
    step = np.arange(slots) * max(1, max_cost // 10)
    dearest = max_cost + int(step[-1])
    tail = np.concatenate([np.repeat(task, choices), task, np.repeat(machine, slots)])
    head = np.concatenate([tasks + chosen.ravel(), np.full(tasks + machines * slots, sink)])
    cost = np.concatenate(
        [
            rng.integers(1, max_cost + 1, tasks * choices),
            rng.integers(dearest + 1, 2 * dearest + 1, tasks),
            np.tile(step, machines),
        ]
    )
    supply = np.zeros(sink + 1, dtype=np.int64)
    supply[:tasks], supply[sink] = 1, -tasks
    comment = f"{tasks} tasks, {machines} machines of {slots} slots, {choices} choices each, seed {seed}."
    lower = np.zeros_like(tail)
    return _network("network-assignment", comment, supply, tail, head, lower, lower + 1, cost)


@generator("network-netgen")
def network_netgen(
    *,
    seed: int = 0,
    nodes: int = 4096,
    arcs: int = 32_768,
    sources: int = 64,
    sinks: int = 64,
    supply: int = 64_000,
    max_cost: int = 10_000,
    max_capacity: int = 1000,
    dear: float = 0.3,
) -> NetworkInstance:
    """A network of the kind that NETGEN makes: chains that hold a flow, and random arcs around them.

    Every source starts a chain through its share of the other nodes; from the chain's nodes arcs lead to some sinks,
    among which the source's supply is dealt out. The rest of the arcs join nodes at random. The defaults are the
    family NETGEN-8 with 2**12 nodes. Source: Klingman, Napier and Stutz, "NETGEN" (1974); reconstructed, so that
    the numbers differ from the original's.

    Parameters
    ----------
    seed
        Chooses everything.
    nodes, arcs, sources, sinks, supply
        Sizes; ``supply`` is the sum over all sources.
    max_cost, max_capacity
        Costs and capacities are drawn from 1 to these; an arc of a chain holds the supply that runs through it.
    dear
        Share of the chains' arcs that cost ``max_cost``, so that the flow they hold is a bad one.
    """
    for key, value in {"sources": sources, "sinks": sinks, "max_cost": max_cost, "max_capacity": max_capacity}.items():
        _require(value >= 1, f"{key}={value}: must be at least 1")
    _require(nodes >= sources + sinks, f"nodes={nodes}: {sources} sources and {sinks} sinks need as many")
    _require(supply >= max(sources, sinks), f"supply={supply}: every source and sink needs a unit")
    _require(0 <= dear <= 1, f"dear={dear}: a share is 0 to 1")
    rng = np.random.default_rng(seed)
    given = 1 + rng.multinomial(supply - sources, np.full(sources, 1 / sources))
    chain = np.concatenate([np.arange(sources), rng.integers(0, sources, nodes - sources - sinks)])
    order = np.argsort(chain, kind="stable")  # a source comes first in its chain
    follows = chain[order[1:]] == chain[order[:-1]]
    tail, head, room = order[:-1][follows], order[1:][follows], given[chain[order[1:]][follows]]
    # Each unit of supply is dealt to a sink of its source's few; the first deal reaches every sink.
    unit_source = np.repeat(np.arange(sources), given)
    fan = rng.integers(0, sinks, (sources, min(sinks, 8)))
    unit_sink = fan[unit_source, rng.integers(0, fan.shape[1], supply)]
    unit_sink[rng.permutation(supply)[:sinks]] = np.arange(sinks)
    pair, amount = np.unique(unit_source * sinks + unit_sink, return_counts=True)
    ends = np.searchsorted(chain[order], np.arange(sources + 1))
    start = pair // sinks
    leaves = order[rng.integers(ends[start], ends[start + 1])]
    tail = np.concatenate([tail, leaves])
    head = np.concatenate([head, nodes - sinks + pair % sinks])
    room = np.concatenate([room, amount])
    _require(arcs >= len(tail), f"arcs={arcs}: the chains alone need {len(tail)}")
    more = arcs - len(tail)
    cost = rng.integers(1, max_cost + 1, arcs)
    cost[: len(tail)][rng.random(len(tail)) < dear] = max_cost
    upper = np.concatenate([room, rng.integers(1, max_capacity + 1, more)])
    random_tail = rng.integers(0, nodes - sinks, more)
    step = 1 + rng.integers(0, nodes - 1, more) if nodes > 1 else np.zeros(more, np.int64)
    tail = np.concatenate([tail, random_tail])
    head = np.concatenate([head, (random_tail + step) % nodes])
    balance = np.zeros(nodes, np.int64)
    balance[:sources] += given
    np.subtract.at(balance, nodes - sinks + unit_sink, 1)
    comment = f"NETGEN-like: {nodes} nodes, {arcs} arcs, {sources} sources, {sinks} sinks, seed {seed}."
    return _network("network-netgen", comment, balance, tail, head, np.zeros_like(tail), upper, cost)


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise InstanceError(reason)


def _network(
    name: str,
    comment: str,
    supply: NDArray[Any],
    tail: NDArray[Any],
    head: NDArray[Any],
    lower: NDArray[Any],
    upper: NDArray[Any],
    cost: NDArray[Any],
    free: NDArray[np.bool_] | None = None,
) -> NetworkInstance:
    bounds: list[int | None] = upper.tolist()
    if free is not None:
        bounds = [None if open_ended else bound for bound, open_ended in zip(bounds, free.tolist(), strict=True)]
    return NetworkInstance(
        name=name,
        comment=comment,
        supply=tuple(supply.tolist()),
        tail=tuple(tail.tolist()),
        head=tuple(head.tolist()),
        lower=tuple(lower.tolist()),
        upper=tuple(bounds),
        cost=tuple(cost.tolist()),
    )
