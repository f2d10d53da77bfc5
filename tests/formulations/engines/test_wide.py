"""Costs beyond 64 bits: the optimum is proven in Python integers, arc by arc."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations import solve
from flowlex.formulations.engines.beyond_64_bits import solve_wide
from flowlex.instances import generate
from flowlex.models import model_for


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1, 2**40, 10**30, 10**200]), st.sampled_from(["network", "highs"]))
def test_flows_are_optimal_for_costs_of_any_size(seed: int, size: int, engine: Any) -> None:
    network = model_for(generate("network-random", seed=seed, nodes=9, arcs=30)).formulation
    rng = np.random.default_rng(seed)
    last = [int(x) for x in rng.integers(-(2**20), 2**20, network.arc_count)]
    cost = np.array([c * size + r for c, r in zip(network.cost.tolist(), last, strict=True)], dtype=object)
    outcome = solve_wide(network, cost, engine)
    if outcome.values is None:
        assert solve(network, engine).status == outcome.status
        return
    assert network.is_flow(outcome.values)
    assert outcome.objective == sum(c * x for c, x in zip(cost, outcome.values.tolist(), strict=True))
    pi = outcome.duals
    assert pi is not None
    for arc in range(network.arc_count):
        reduced = cost[arc] - int(pi[network.tail[arc]]) + int(pi[network.head[arc]])
        assert reduced <= 0 or outcome.values[arc] == network.lower[arc]
        assert reduced >= 0 or outcome.values[arc] == network.upper[arc]


@pytest.mark.parametrize("factor", [1, 10**25])
def test_a_common_factor_changes_nothing(factor: int) -> None:
    network = model_for(generate("network-random", nodes=20, arcs=80)).formulation
    plain = solve(network, "network")
    wide = solve_wide(network, network.cost.astype(object) * factor, "network")
    assert wide.objective == plain.objective * factor
