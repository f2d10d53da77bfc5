"""Duals have the declared meaning: subgradients of the optimum, checked with changed programs in SciPy."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from flowlex.formulations import UNBOUNDED
from flowlex.instances import generate
from flowlex.models import model_for


def least_cost(network: Any, supply: np.ndarray) -> float:
    """Return the least cost for other supplies; infinite if infeasible."""
    arcs = np.arange(network.arc_count)
    balance = np.zeros((network.node_count, network.arc_count))
    balance[network.tail, arcs] += 1
    balance[network.head, arcs] -= 1
    upper = [None if u == UNBOUNDED else u for u in network.upper.tolist()]
    bounds = list(zip(network.lower.tolist(), upper, strict=True))
    found = linprog(network.cost, A_eq=balance, b_eq=supply, bounds=bounds)
    return float(found.fun) if found.status == 0 else float("inf")


@pytest.mark.parametrize(
    ("generator", "settings", "options"),
    [
        ("network-random", {"nodes": 8, "arcs": 24}, {}),
        ("inference-cluster", {}, {}),
        ("inference-cluster", {}, {"objective": "makespan", "level": "item"}),
        ("flow-random", {"seed": 3}, {"preset": "quincy", "order": "weights"}),
    ],
)
def test_prices_of_nodes_are_subgradients(generator: str, settings: dict, options: dict) -> None:
    """Moving a unit of supply from w to v changes the optimum by at least the difference of their duals."""
    model = model_for(generate(generator, **settings), **options)
    network, solution = model.formulation, model.solve("network")
    blocks = [network.node_blocks[name] for name in solution.duals if name in network.node_blocks]
    nodes = np.concatenate([np.arange(block.start, block.start + block.count) for block in blocks])
    price = np.concatenate([np.asarray(solution.duals[block.name]) for block in blocks]) / float(network.unit)
    rng, tried = np.random.default_rng(0), 0
    base = least_cost(network, network.supply)
    for v, w in rng.choice(len(nodes), (40, 2)):
        supply = network.supply.copy()
        supply[nodes[v]] += 1
        supply[nodes[w]] -= 1
        change = least_cost(network, supply) - base
        assert change >= price[v] - price[w] - 1e-6 * (1 + abs(base))
        tried += v != w and np.isfinite(change)
    assert tried > 5


def test_reduced_costs_are_what_a_forced_unit_costs() -> None:
    model = model_for(generate("network-random", nodes=8, arcs=24))
    network, solution = model.formulation, model.solve("network")
    base, tried = least_cost(network, network.supply), 0
    for arc in range(network.arc_count):
        for step in (1, -1):
            moved = network.supply.copy()  # the unit takes the arc outside the program, which compensates
            moved[network.tail[arc]] -= step
            moved[network.head[arc]] += step
            change = least_cost(network, moved) + step * int(network.cost[arc]) - base
            assert change >= step * np.asarray(solution.duals["flow"])[arc] - 1e-6 * (1 + abs(base))
            tried += np.isfinite(change)
    assert tried > 20
