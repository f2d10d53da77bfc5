"""Cost scaling compared with the network simplex; its potentials must prove its flow."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations import solve
from flowlex.formulations.engines.cost_scaling import scale_costs
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.formulations.solver_outcome import Status


def random_network(seed, nodes=30, arcs=150, dearest=50):
    """Random arcs; every node also has an expensive arc to the sink, so a flow exists. Some nodes are dead ends."""
    rng = np.random.default_rng(seed)
    supply = rng.integers(0, 4, nodes)
    supply[0] = -supply[1:].sum()
    tail, head = rng.integers(1, nodes - 3, arcs), rng.integers(0, nodes, arcs)
    every = np.arange(1, nodes)
    capacity = np.concatenate([rng.integers(0, 5, arcs), np.full(nodes - 1, UNBOUNDED)])
    cost = np.concatenate([rng.integers(0, dearest, arcs), np.full(nodes - 1, 100 * dearest)])
    ends = np.concatenate([tail, every]), np.concatenate([head, np.zeros(nodes - 1, np.int64)])
    return FlowNetwork.from_arrays(*ends, upper=capacity, cost=cost, supply=supply, name=f"random {seed}")


def scaled(network, budget):
    return scale_costs(network.tail, network.head, network.upper, network.cost, network.supply, budget)


def proves(network, flow, potentials):
    """Balance, bounds and complementary slackness, recomputed."""
    balance = np.zeros(network.node_count, np.int64)
    np.add.at(balance, network.tail, flow)
    np.subtract.at(balance, network.head, flow)
    reduced = network.reduced_costs(potentials)
    free = network.tail != network.head
    return (
        (balance == network.supply).all()
        and (flow >= 0).all()
        and (flow <= network.upper).all()
        and not (free & (reduced < 0) & (flow < network.upper)).any()
        and not (free & (reduced > 0) & (flow > 0)).any()
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1, 3, 50, 10**6]))
def test_flow_and_potentials_are_optimal(seed, dearest):
    network = random_network(seed, dearest=dearest)
    flow, potentials = scaled(network, 2**62)
    assert proves(network, flow, potentials)
    assert network.total_cost(flow) == solve(network, "network").objective


@pytest.mark.loops
@pytest.mark.parametrize("outlets", [0, 1])
def test_gives_up_where_no_flow_exists(outlets):
    tail, head = np.array([1, 1, 2][: 2 + outlets]), np.array([2, 2, 0][: 2 + outlets])
    network = FlowNetwork.from_arrays(
        tail, head, upper=np.ones(len(tail), np.int64), cost=np.ones(len(tail), np.int64), supply=np.array([-2, 2, 0])
    )
    assert scaled(network, 10**6) is None


def crowded_network(seed, tasks=5000, machines=3200):
    """Tasks reach machines through one node, or wait; lower bounds, negative costs and capacities without bound."""
    rng = np.random.default_rng(seed)
    hub, wait, sink = tasks + machines, tasks + machines + 1, tasks + machines + 2
    task, machine = np.arange(tasks), np.arange(tasks, tasks + machines)
    tail = np.concatenate([task, task, np.full(machines, hub), machine, [wait]])
    head = np.concatenate([np.full(tasks, hub), np.full(tasks, wait), machine, np.full(machines, sink), [sink]])
    slots = rng.integers(0, 3, machines)
    upper = np.concatenate([np.ones(2 * tasks, np.int64), np.full(machines, UNBOUNDED), slots, [UNBOUNDED]])
    cost = np.concatenate(
        [rng.integers(-50, 50, tasks), rng.integers(100, 10**5, tasks), rng.integers(0, 999, 2 * machines), [0]]
    )
    lower = np.zeros(len(tail), np.int64)
    lower[2 * tasks : 2 * tasks + 100] = np.minimum(slots[:100], 1)
    supply = np.zeros(sink + 1, np.int64)
    supply[:tasks], supply[sink] = 1, -tasks
    return FlowNetwork.from_arrays(tail, head, lower=lower, upper=upper, cost=cost, supply=supply)


def test_a_crowded_network_is_solved_and_proven_by_cost_scaling():
    network = crowded_network(20261128)
    found = solve(network, "network")
    assert found.algorithm == "cost scaling"
    assert found.objective == solve(network, "highs").objective
    assert (found.values >= network.lower).all() and (found.values <= network.upper).all()
    reduced = network.reduced_costs(found.duals)
    assert not ((reduced < 0) & (found.values < network.upper)).any()
    assert not ((reduced > 0) & (found.values > network.lower)).any()


def test_a_crowded_network_without_a_flow_has_a_cut():
    network = crowded_network(1)
    upper = network.upper.copy()
    upper[-1] = 0  # nobody may wait, and slots are too few
    found = solve(replace(network, upper=upper), "network")
    assert found.status is Status.INFEASIBLE and found.infeasibility.cut is not None
