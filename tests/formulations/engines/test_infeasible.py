"""Explanations of infeasible programs: an irreducible infeasible subset, by the program's names."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from flowlex.formulations import FlowNetwork, LinearProgram, solve

ENGINES = ("pulp", "highs")


def feasible(lp: LinearProgram, rows: set[str], *, keep_bounds: set[str] | None = None) -> bool:
    """Solve a subset of the rows by scipy (continuous), optionally with the bounds of some columns only."""
    arrays = lp.arrays()
    chosen = [i for i, name in enumerate(lp.row_names()) if name in rows]
    matrix, low, high = arrays.matrix.toarray()[chosen], arrays.row_lower[chosen], arrays.row_upper[chosen]
    lower, upper = arrays.column_lower.copy(), arrays.column_upper.copy()
    if keep_bounds is not None:
        dropped = [j for j, name in enumerate(lp.column_names()) if name not in keep_bounds]
        lower[dropped], upper[dropped] = -np.inf, np.inf
    constraints = LinearConstraint(matrix, low, high) if chosen else ()
    return milp(np.zeros(lp.column_count), constraints=constraints, bounds=Bounds(lower, upper)).status == 0


def two_conflicts() -> LinearProgram:
    lp = LinearProgram("conflict")
    x = lp.variables("x", 3, upper=10, labels=["a", "b", "c"])
    lp.constrain("capacity", x.sum(), "<=", 5, labels=["rack"])
    lp.constrain("demand", x[[0, 1]], ">=", [3, 3], labels=["j1", "j2"])
    lp.constrain("idle", x[[2]], "<=", 9)
    lp.minimize(x.sum())
    return lp


@pytest.mark.parametrize("engine", ENGINES)
def test_hand_made_conflict(engine: str) -> None:
    reason = solve(two_conflicts(), engine).infeasibility
    assert reason is not None
    assert set(reason.constraints) == {"capacity[rack]", "demand[j1]", "demand[j2]"}
    assert set(reason.bounds) <= {"x[c]"}
    assert "cannot hold together: capacity[rack]" in reason.message
    assert "Relax or remove any one of them" in reason.message


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_set_is_infeasible_and_irreducible(dense: Any, seed: int) -> None:
    lp, _ = dense(seed, rows=7, columns=4)
    outcome = solve(lp, "highs")
    if outcome.status != "infeasible":
        return
    assert outcome.infeasibility is not None
    named, bounds = set(outcome.infeasibility.constraints), set(outcome.infeasibility.bounds)
    assert named
    assert not feasible(lp, named)
    assert not feasible(lp, named, keep_bounds=bounds)
    for name in named:
        assert feasible(lp, named - {name}), f"{name} is superfluous"


@pytest.mark.parametrize("engine", ENGINES)
def test_infeasible_by_bounds_alone(engine: str) -> None:
    lp = LinearProgram("bounds")
    x = lp.variables("x", 2, upper=[1, 2])
    lp.constrain("need", x.sum(), ">=", 4)
    reason = solve(lp, engine).infeasibility
    assert reason is not None
    assert reason.constraints == ("need[0]",)
    assert set(reason.bounds) == {"x[0]", "x[1]"}
    assert "The bounds of x[0], x[1] take part" in reason.message


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("unbounded_relaxation", [False, True])
def test_infeasible_only_by_integrality(engine: str, unbounded_relaxation: bool) -> None:
    """2 x - 2 y = 1 has fractional answers only; without upper bounds its relaxation is unbounded as well."""
    lp = LinearProgram("parity")
    x = lp.variables("x", 2, upper=np.inf if unbounded_relaxation else 9, integer=True)
    lp.constrain("odd", (x * np.array([2, -2])).sum(), "==", 1)
    lp.maximize(x.sum())
    outcome = solve(lp, engine)
    assert outcome.status == "infeasible"
    assert outcome.infeasibility is not None
    assert outcome.infeasibility.message.startswith("Without the integer requirements there are feasible answers")
    assert outcome.infeasibility.constraints == ()


@pytest.mark.parametrize("engine", ENGINES)
def test_an_integer_program_whose_relaxation_is_infeasible_names_its_rows(engine: str) -> None:
    lp = LinearProgram("mip")
    x = lp.variables("x", 2, upper=1, integer=True)
    lp.constrain("need", x.sum(), ">=", 3)
    reason = solve(lp, engine).infeasibility
    assert reason is not None
    assert reason.constraints == ("need[0]",)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("integer", [False, True])
def test_unbounded_is_told_from_infeasible(engine: str, integer: bool) -> None:
    lp = LinearProgram("ray")
    x = lp.variables("x", 2, integer=integer)
    lp.constrain("tie", x[[0]] - x[[1]], "==", 0)
    lp.maximize(x.sum())
    assert solve(lp, engine).status == "unbounded"
    lp.constrain("never", x[[0]] - x[[1]], ">=", 1)
    outcome = solve(lp, engine)
    assert outcome.status == "infeasible"
    assert outcome.infeasibility is not None


@pytest.mark.parametrize("engine", ["network", "highs", "pulp"])
@pytest.mark.parametrize(
    ("arrays", "nodes", "message"),
    [
        (
            {"tail": [0, 1], "head": [1, 2], "upper": [5, 3], "cost": 1, "supply": [5, 0, -5]},
            {"sink"},
            "Node node[sink] must take in 5, but the arcs into it carry at most 3: short by 2.",
        ),
        (
            {"tail": [0, 1], "head": [1, 2], "upper": [2, 9], "cost": 1, "supply": [5, 0, -5]},
            {"source"},
            "Node node[source] must send out 5, but the arcs out carry at most 2: short by 3.",
        ),
        (
            {"tail": [0, 1], "head": [1, 2], "lower": [4, 0], "upper": [6, 3], "cost": 1, "supply": [0, 0, 0]},
            {"middle"},
            "Node node[middle] must send out 0 of its own and 4 that lower bounds force in, but the arcs out carry "
            "at most 3: short by 1.",
        ),
    ],
)
def test_networks_name_the_cut(engine: str, arrays: dict[str, Any], nodes: set[str], message: str) -> None:
    network = FlowNetwork.from_arrays(**arrays, node_labels=["source", "middle", "sink"])
    reason = solve(network, engine).infeasibility
    assert reason is not None
    assert set(reason.nodes) == {f"node[{name}]" for name in nodes}
    assert message in reason.message
    assert "Add capacity there or reduce the supply." in reason.message
