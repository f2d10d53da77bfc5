"""Random networks and programs shared by the tests of this package."""

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.optimize import linprog

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


def _exact_optimum(network: FlowNetwork) -> tuple[str, int | None]:
    """Return status and cost by SciPy's linear program, proven by integers (networkx's network simplex can cycle)."""
    tail, head, cost, lower = (a.tolist() for a in (network.tail, network.head, network.cost, network.lower))
    upper = [None if high == UNBOUNDED else high for high in network.upper.tolist()]
    arcs = range(network.arc_count)
    graph = nx.MultiDiGraph()  # a negative cycle of uncapacitated arcs makes the objective unbounded
    graph.add_nodes_from(range(network.node_count))
    graph.add_weighted_edges_from((tail[a], head[a], cost[a]) for a in arcs if upper[a] is None)
    endless = nx.negative_edge_cycle(graph)
    if not arcs:
        return ("infeasible", None) if network.supply.any() else ("optimal", 0)
    incidence = np.zeros((network.node_count, network.arc_count))
    np.add.at(incidence, (network.tail, arcs), 1)
    np.add.at(incidence, (network.head, arcs), -1)
    answer = linprog(
        np.zeros(network.arc_count) if endless else cost,
        A_eq=incidence,
        b_eq=network.supply,
        bounds=list(zip(lower, upper, strict=True)),
        method="highs-ds",
    )
    if answer.status == 2:
        return "infeasible", None
    flow = [round(x) for x in answer.x]
    balance = network.supply.tolist()
    for a in arcs:
        assert lower[a] <= flow[a] and (upper[a] is None or flow[a] <= upper[a])
        balance[tail[a]] -= flow[a]
        balance[head[a]] += flow[a]
        if upper[a] is not None and flow[a] < upper[a]:
            graph.add_edge(tail[a], head[a], weight=cost[a])
        if flow[a] > lower[a]:
            graph.add_edge(head[a], tail[a], weight=-cost[a])
    assert not any(balance)
    if endless:
        return "unbounded", None
    assert not nx.negative_edge_cycle(graph)  # no negative cycle remains
    return "optimal", sum(c * x for c, x in zip(cost, flow, strict=True))


@pytest.fixture(scope="session")
def exact_optimum() -> Callable[[FlowNetwork], tuple[str, int | None]]:
    return _exact_optimum


def _dense(
    seed: int, *, integer: bool = False, rows: int = 4, columns: int = 5
) -> tuple[LinearProgram, dict[str, Any]]:
    """Return a random program and its data for `scipy.optimize`, in minimising form."""
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
