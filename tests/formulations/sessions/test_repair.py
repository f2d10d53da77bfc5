"""Repaired flows are optimal flows of the changed network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations import solve
from flowlex.formulations.outcome import Status
from flowlex.formulations.sessions.repair import repair
from flowlex.instances import generate
from flowlex.models import model_for


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**31))
def test_a_changed_network_is_solved_from_the_last_optimum(seed: int) -> None:
    network = model_for(generate("network-random", seed=seed, nodes=12, arcs=40)).formulation
    old = solve(network, "network")
    if old.values is None or old.duals is None:
        return
    rng = np.random.default_rng(seed)
    arcs, nodes = rng.integers(0, network.arc_count, 3), rng.integers(0, network.node_count, 2)
    upper, cost, supply = network.upper.copy(), network.cost.copy(), network.supply.copy()
    upper[arcs[0]] = max(int(network.lower[arcs[0]]), 0)
    upper[arcs[1]] += min(2, 2**60 - int(upper[arcs[1]]) if upper[arcs[1]] < 2**60 else 0)
    cost[arcs[2]] += int(rng.integers(-5, 6))
    supply[nodes[0]] += 1
    supply[nodes[1]] -= 1
    changed = replace(network, upper=upper, cost=cost, supply=supply)
    new, flow = solve(changed, "network"), repair(changed, old.values, old.duals)
    if flow is None:
        assert new.status is not Status.OPTIMAL or bool((changed.upper > 2**59).any())
        return
    assert changed.is_flow(flow)
    assert changed.total_cost(flow) == new.objective
