"""Complete assignments against SciPy, with prices that prove them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from flowlex.formulations import FlowNetwork, solve
from flowlex.formulations.engines import assignment
from flowlex.formulations.engines.assignment import complete_assignment, solve_assignment
from flowlex.validation.certificates import certify_network


def complete(cost: np.ndarray, order: np.ndarray | None = None) -> FlowNetwork:
    size = len(cost)
    tail, head = np.divmod(np.arange(size * size) if order is None else order, size)
    sinks_first = order is not None and order[0] % 2  # sources need not come first
    ends = (tail + size, head) if sinks_first else (tail, head + size)
    supply = np.repeat([-1, 1] if sinks_first else [1, -1], size)
    return FlowNetwork.from_arrays(*ends, upper=1, cost=cost[tail, head], supply=supply)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 6, 1000, 2**50]))
def test_assignments_are_optimal_and_proven(seed: int, largest: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 9))
    cost = rng.integers(-largest, largest, (size, size))
    network = complete(cost, rng.permutation(size * size))
    flow, potentials = solve_assignment(network)  # type: ignore[misc]
    assert network.is_flow(flow)
    reduced = network.reduced_costs(potentials)
    assert (reduced[flow == 0] >= 0).all()
    assert (reduced[flow == 1] <= 0).all()
    if largest < 2**50:
        assert network.total_cost(flow) == cost[linear_sum_assignment(cost)].sum()


def test_large_complete_assignments_go_there() -> None:
    cost = np.random.default_rng(0).integers(1, 1000, (100, 100))
    network = complete(cost)
    outcome = solve(network, "network")
    assert outcome.algorithm == "shortest augmenting paths"
    assert outcome.objective == cost[linear_sum_assignment(cost)].sum()
    assert certify_network(network, outcome).claim == "optimal"
    assert solve(complete(cost[:99, :99]), "network").algorithm == "network simplex"


def test_long_paths_are_left_to_the_network_simplex(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machol and Wien's matrix, the worst for augmenting paths."""
    cost = np.outer(np.arange(120), np.arange(120))
    monkeypatch.setattr(assignment, "_assign", lambda *_: False)
    outcome = solve(complete(cost), "network")
    assert outcome.algorithm == "network simplex"
    assert outcome.objective == cost[linear_sum_assignment(cost)].sum()


def test_other_networks_are_none() -> None:
    good = complete(np.ones((3, 3), np.int64))
    columns = {name: getattr(good, name).copy() for name in ("tail", "head", "lower", "upper", "cost", "supply")}
    assert complete_assignment(good) is not None
    for name, entry in (("tail", 1), ("head", 4), ("lower", 1), ("upper", 0), ("tail", 5)):
        changed = {key: value.copy() for key, value in columns.items()}
        changed[name][0] = entry
        assert complete_assignment(FlowNetwork.from_arrays(**changed)) is None
    columns["supply"] = np.array([2, 1, 0, -1, -1, -1])
    assert solve_assignment(FlowNetwork.from_arrays(**columns)) is None
