"""Cost scaling compared with the network simplex; its potentials must prove its flow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations import solve
from flowlex.formulations.flow_network import UNBOUNDED, FlowNetwork
from flowlex.systems.scheduler.warm_network.cost_scaling import scale_costs


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
    flow, potentials = scale_costs(network, 2**62)
    assert proves(network, flow, potentials)
    assert network.total_cost(flow) == solve(network, "network").objective


@pytest.mark.loops
@pytest.mark.parametrize("outlets", [0, 1])
def test_gives_up_where_no_flow_exists(outlets):
    tail, head = np.array([1, 1, 2][: 2 + outlets]), np.array([2, 2, 0][: 2 + outlets])
    network = FlowNetwork.from_arrays(
        tail, head, upper=np.ones(len(tail), np.int64), cost=np.ones(len(tail), np.int64), supply=np.array([-2, 2, 0])
    )
    assert scale_costs(network, 10**6) is None
