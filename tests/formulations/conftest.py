"""Random networks and programs shared by the tests of this room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import strategies as st

from flowlex.formulations import UNBOUNDED, FlowNetwork, LinearProgram


@st.composite
def _networks(draw: st.DrawFn, *, capacitated: bool = False) -> FlowNetwork:
    """Lower bounds (negative too), negative costs, parallel arcs, loops, isolated nodes, several sources and sinks."""
    nodes = draw(st.integers(1, 6))
    arcs = draw(st.integers(0, 12))
    ends = st.lists(st.integers(0, nodes - 1), min_size=arcs, max_size=arcs)
    lower = np.array(draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, -2]), min_size=arcs, max_size=arcs)), np.int64)
    room = np.array(draw(st.lists(st.integers(0, 6), min_size=arcs, max_size=arcs)), np.int64)
    endless = np.array(draw(st.lists(st.integers(0, 3), min_size=arcs, max_size=arcs)), np.int64) == 0
    upper = lower + room if capacitated else np.where(endless, UNBOUNDED, lower + room)
    cost = draw(st.lists(st.integers(-5, 9), min_size=arcs, max_size=arcs))
    supply = draw(st.lists(st.integers(-3, 3), min_size=nodes - 1, max_size=nodes - 1))
    return FlowNetwork.from_arrays(
        draw(ends), draw(ends), lower=lower, upper=upper, cost=cost, supply=[*supply, -sum(supply)]
    )


@pytest.fixture(scope="session")
def networks() -> st.SearchStrategy[FlowNetwork]:
    return _networks()


def _networkx_optimum(network: FlowNetwork) -> tuple[str, int | None]:
    """Status and cost by networkx's network simplex, lower bounds moved into the demands."""
    graph = nx.MultiDiGraph()
    demand = (-network.supply).tolist()
    for tail, head, low in zip(network.tail.tolist(), network.head.tolist(), network.lower.tolist(), strict=True):
        demand[tail] += low
        demand[head] -= low
    graph.add_nodes_from((node, {"demand": need}) for node, need in enumerate(demand))
    for arc in range(network.arc_count):
        low, high = int(network.lower[arc]), int(network.upper[arc])
        capacity = {} if high == UNBOUNDED else {"capacity": high - low}
        graph.add_edge(int(network.tail[arc]), int(network.head[arc]), weight=int(network.cost[arc]), **capacity)
    try:
        cost, _ = nx.network_simplex(graph)
    except nx.NetworkXUnbounded:
        return "unbounded", None
    except nx.NetworkXUnfeasible:
        return "infeasible", None
    return "optimal", cost + network.total_cost(network.lower)


@pytest.fixture(scope="session")
def networkx_optimum() -> Callable[[FlowNetwork], tuple[str, int | None]]:
    return _networkx_optimum


def _dense(
    seed: int, *, integer: bool = False, rows: int = 4, columns: int = 5
) -> tuple[LinearProgram, dict[str, Any]]:
    """A random program and the same data for `scipy.optimize`, in minimising form."""
    rng = np.random.default_rng(seed)
    a = rng.integers(-4, 6, (rows, columns)).astype(float)
    a[rng.random(a.shape) < 0.3] = 0.0
    cost = rng.integers(-6, 9, columns).astype(float)
    rhs = rng.integers(-5, 12, rows).astype(float)
    lower = np.where(rng.random(columns) < 0.2, -np.inf, rng.integers(-3, 2, columns))
    upper = np.where(rng.random(columns) < 0.4, np.inf, rng.integers(2, 9, columns))
    if integer:
        lower, upper = np.maximum(lower, -10), np.minimum(upper, 10)
    relations = rng.choice(["<=", ">=", "=="], rows, p=[0.5, 0.35, 0.15])
    maximize = bool(rng.integers(2))
    lp = LinearProgram(f"random{seed}")
    half = columns // 2
    x = lp.variables("x", half, lower=lower[:half], upper=upper[:half], integer=integer)
    y = lp.variables("y", columns - half, lower=lower[half:], upper=upper[half:])
    for row in range(rows):
        terms = (x * a[row, :half]).sum() + (y * a[row, half:]).sum()
        lp.constrain(f"row{row}", terms, str(relations[row]), rhs[row])  # type: ignore[arg-type]
    objective = (x * cost[:half]).sum() + (y * cost[half:]).sum() + 2.5
    (lp.maximize if maximize else lp.minimize)(objective)
    low = np.where(relations == "<=", -np.inf, rhs)
    high = np.where(relations == ">=", np.inf, rhs)
    data = {
        "c": -cost if maximize else cost,
        "matrix": a,
        "low": low,
        "high": high,
        "lower": lower,
        "upper": upper,
        "integrality": np.r_[np.full(half, int(integer)), np.zeros(columns - half)],
        "maximize": maximize,
    }
    return lp, data


@pytest.fixture(scope="session")
def dense() -> Callable[..., tuple[LinearProgram, dict[str, Any]]]:
    return _dense
