"""Minimum-cost-flow instances: random feasible networks, and those of the benchmarks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowlex.instances.generators.registry import Count, Share, Size, generator, require
from flowlex.instances.min_cost_flow import NetworkInstance


@generator("network-random")
def network_random(
    *,
    seed: int = 0,
    nodes: Size = 50,
    arcs: Count = 200,
    max_cost: Count = 100,
    max_capacity: Size = 20,
    negative: Share = 0.2,
    lower: Share = 0.2,
    parallel: Share = 0.1,
    unbounded: Share = 0.0,
) -> NetworkInstance:
    """A random network that has a flow: supplies are the balance of a random flow within the bounds.

    - ``nodes``, ``arcs``: sizes; a few nodes may stay isolated, a few arcs be self-loops.
    - ``max_cost``, ``max_capacity``: costs are up to ``max_cost`` in size, upper bounds up to ``max_capacity``.
    - ``negative``, ``lower``, ``parallel``, ``unbounded``: shares of the arcs (0 to 1, drawn independently) with a
      negative cost, with a lower bound, parallel to another arc, and without an upper bound (these have no negative
      cost, so that the optimum is finite).
    """
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
    columns = {"supply": supply, "tail": tail, "head": head, "lower": low, "upper": upper, "cost": cost}
    return _network("network-random", comment, free, **columns)


@generator("network-assignment")
def network_assignment(
    *,
    seed: int = 0,
    machines: Size = 10_000,
    tasks: Size = 20_000,
    choices: Count = 9,
    slots: Size = 2,
    max_cost: Size = 1000,
) -> NetworkInstance:
    """Tasks that may run on a few machines each, or wait at a cost; 220 000 arcs by default.

    Nodes: the tasks (supply 1 each), the machines, a sink. Arcs: task to machine (``choices`` each, cost up to
    ``max_cost``), task to sink (waiting, more expensive than any place), machine to sink (``slots`` parallel arcs,
    each more expensive than the one before, so that load spreads).

    - ``seed``: chooses machines and costs.
    - ``machines``, ``tasks``: sizes.
    - ``choices``: number of machines that each task may run on.
    - ``slots``: most tasks of a machine.
    - ``max_cost``: largest cost of a task on a machine.
    """
    require(choices <= machines, f"choices={choices}: each of {tasks} tasks chooses among {machines} machines")
    rng = np.random.default_rng(seed)
    task, machine, sink = np.arange(tasks), tasks + np.arange(machines), tasks + machines
    # Step through the machines from a random start, with a stride that repeats no machine.
    stride = 1 + rng.integers(0, max(1, (machines - 1) // max(1, choices)), tasks)
    chosen = (rng.integers(0, machines, tasks)[:, None] + stride[:, None] * np.arange(choices)) % machines
    step = np.arange(slots) * max(1, max_cost // 10)
    highest = max_cost + int(step[-1])
    tail = np.concatenate([np.repeat(task, choices), task, np.repeat(machine, slots)])
    head = np.concatenate([tasks + chosen.ravel(), np.full(tasks + machines * slots, sink)])
    cost = np.concatenate(
        [
            rng.integers(1, max_cost + 1, tasks * choices),
            rng.integers(highest + 1, 2 * highest + 1, tasks),
            np.tile(step, machines),
        ]
    )
    supply = np.zeros(sink + 1, dtype=np.int64)
    supply[:tasks], supply[sink] = 1, -tasks
    comment = f"{tasks} tasks, {machines} machines of {slots} slots, {choices} choices each, seed {seed}."
    lower = np.zeros_like(tail)
    columns = {"supply": supply, "tail": tail, "head": head, "lower": lower, "upper": lower + 1, "cost": cost}
    return _network("network-assignment", comment, **columns)


@generator("network-netgen")
def network_netgen(
    *,
    seed: int = 0,
    nodes: Size = 4096,
    arcs: Count = 32_768,
    sources: Size = 64,
    sinks: Size = 64,
    supply: Count = 64_000,
    max_cost: Size = 10_000,
    max_capacity: Size = 1000,
    dear: Share = 0.3,
) -> NetworkInstance:
    """A network like those of NETGEN: chains that carry a feasible flow, and random arcs.

    Every source starts a chain through its share of the other nodes; arcs lead from the chain to some sinks, which
    divide the source's supply. The remaining arcs join random nodes. The defaults are those of the family NETGEN-8
    with 2**12 nodes. Source: Klingman, Napier and Stutz, "NETGEN" (1974); reconstructed, so the numbers differ from
    the original's.

    - ``nodes``, ``arcs``, ``sources``, ``sinks``, ``supply``: sizes; ``supply`` is the sum over all sources.
    - ``max_cost``, ``max_capacity``: costs and capacities are drawn from 1 to these; an arc of a chain has capacity for
      the chain's supply.
    - ``dear``: share of the chains' arcs that cost ``max_cost``, so that the flow along the chains is expensive.
    """
    require(nodes >= sources + sinks, f"nodes={nodes}: {sources} sources and {sinks} sinks need as many")
    require(supply >= max(sources, sinks), f"supply={supply}: every source and sink needs a unit")
    rng = np.random.default_rng(seed)
    given = 1 + rng.multinomial(supply - sources, np.full(sources, 1 / sources))
    chain = np.concatenate([np.arange(sources), rng.integers(0, sources, nodes - sources - sinks)])
    order = np.argsort(chain, kind="stable")  # a source comes first in its chain
    follows = chain[order[1:]] == chain[order[:-1]]
    tail, head, room = order[:-1][follows], order[1:][follows], given[chain[order[1:]][follows]]
    # Assign each unit of supply to one of its source's few sinks; then give every sink at least one unit.
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
    require(arcs >= len(tail), f"arcs={arcs}: the chains alone need {len(tail)}")
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
    columns = {"supply": balance, "tail": tail, "head": head, "lower": 0 * tail, "upper": upper, "cost": cost}
    return _network("network-netgen", comment, **columns)


def _network(
    name: str, comment: str, free: NDArray[np.bool_] | None = None, **columns: NDArray[Any]
) -> NetworkInstance:
    """Build a network from columns; ``free`` arcs have no upper bound."""
    plain = {key: tuple(values.tolist()) for key, values in columns.items()}
    if free is not None:
        plain["upper"] = tuple(None if no else bound for bound, no in zip(plain["upper"], free.tolist(), strict=True))
    return NetworkInstance(name=name, comment=comment, **plain)
