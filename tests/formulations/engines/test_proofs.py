"""Proofs of infeasibility and unboundedness, verified in fractions from the formulation's data."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations import UNBOUNDED, FlowNetwork, LinearProgram, solve

ENGINES = ("pulp", "highs", "network")


def contradicts(lp: LinearProgram, farkas: np.ndarray) -> bool:
    """Whether the multipliers are a Farkas proof: rows times multipliers exceed what column bounds allow, exactly."""
    a = lp.arrays()
    asked = Fraction(0)
    for y, low, high in zip(farkas.tolist(), a.row_lower.tolist(), a.row_upper.tolist(), strict=True):
        side = low if y > 0 else high
        if y and abs(side) == float("inf"):
            return False
        asked += Fraction(y) * Fraction(side) if y else 0
    for column, low, high in zip(a.matrix.toarray().T, a.column_lower.tolist(), a.column_upper.tolist(), strict=True):
        rate = sum((Fraction(y) * Fraction(v) for y, v in zip(farkas.tolist(), column.tolist(), strict=True)), 0)
        side = high if rate > 0 else low
        if rate and abs(side) == float("inf"):
            return False
        asked -= rate * Fraction(side) if rate else 0
    return asked > 0


def falls_for_ever(lp: LinearProgram, ray: np.ndarray) -> bool:
    """Whether a ray satisfies all rows and bounds and improves the objective."""
    a = lp.arrays()
    moved = a.matrix.toarray() @ ray
    rows = (moved[np.isfinite(a.row_lower)] >= -1e-9).all() and (moved[np.isfinite(a.row_upper)] <= 1e-9).all()
    bounds = (ray[np.isfinite(a.column_lower)] >= -1e-9).all() and (ray[np.isfinite(a.column_upper)] <= 1e-9).all()
    gain = float(a.cost @ ray) * (-1 if a.maximize else 1)
    return bool(rows and bounds and gain < -1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_programs_without_an_optimum_carry_a_proof(dense: Any, seed: int) -> None:
    lp, _ = dense(seed, rows=6, columns=4)
    outcome = solve(lp, "highs")
    if outcome.status == "infeasible":
        assert outcome.infeasibility is not None
        assert contradicts(lp, outcome.infeasibility.farkas)
    elif outcome.status == "unbounded":
        why = outcome.unboundedness
        assert why is not None
        assert falls_for_ever(lp, why.ray)
        activity = lp.arrays().matrix @ why.point
        assert (activity >= lp.arrays().row_lower - 1e-6).all()
        assert (activity <= lp.arrays().row_upper + 1e-6).all()


@pytest.mark.parametrize("engine", ["pulp", "highs"])
def test_proofs_by_hand(engine: str) -> None:
    lp = LinearProgram("p")
    x = lp.variables("x", 2, upper=10)
    lp.constrain("most", x.sum(), "<=", 5)
    lp.constrain("least", x, ">=", 3)
    assert solve(lp, engine).infeasibility.farkas.tolist() == [-1, 1, 1]
    single = LinearProgram("single")
    single.constrain("least", single.variables("x", 1, upper=1), ">=", 2)
    assert contradicts(single, solve(single, engine).infeasibility.farkas)
    whole = LinearProgram("whole")  # infeasible only in integers, so there are no multipliers
    whole.constrain("half", whole.variables("x", 1, integer=True) * 2, "==", 1)
    assert solve(whole, engine).infeasibility.farkas is None
    free = LinearProgram("free")
    z = free.variables("z", 2)
    free.constrain("tie", z[[0]] - z[[1]] * 2, "==", 3)
    free.maximize(z.sum())
    outcome = solve(free, engine)
    assert outcome.unboundedness.ray.tolist() == [2, 1]
    assert outcome.message == "z[0], z[1] may change without end, for the better. Bound one"


def is_endless(network: FlowNetwork, cycle: np.ndarray) -> bool:
    following = np.array_equal(network.head[cycle], np.roll(network.tail[cycle], -1))
    return following and bool((network.upper[cycle] == UNBOUNDED).all()) and int(network.cost[cycle].sum()) < 0


@settings(max_examples=60, deadline=None)
@given(data=st.data(), engine=st.sampled_from(["highs", "network"]))
def test_unbounded_networks_carry_a_cycle_and_a_flow(networks: Any, data: st.DataObject, engine: str) -> None:
    network = data.draw(networks)
    outcome = solve(network, engine)
    if outcome.status == "unbounded":  # an infeasible one: tests/formulations/engines/test_network.py
        why = outcome.unboundedness
        assert is_endless(network, why.cycle)
        assert network.is_flow(why.point)
        assert np.flatnonzero(why.ray).tolist() == sorted(set(why.cycle.tolist()))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_long_cycle_is_found(engine: str) -> None:
    """A cycle of a hundred arcs with total cost -1, and another cycle of cost 0."""
    nodes = np.arange(100)
    ring = np.roll(nodes, -1)
    cost = np.zeros(200, np.int64)
    cost[:100], cost[7] = [5, -5] * 50, 4
    cost[100:] = [-3, 3] * 50
    network = FlowNetwork.from_arrays(
        [*nodes, *(100 + nodes)],
        [*ring, *(100 + ring)],
        upper=UNBOUNDED,
        cost=cost + (np.arange(200) == 8) * -10,
        supply=[0] * 200,
    )
    outcome = solve(network, engine)
    assert outcome.status == "unbounded"
    assert is_endless(network, outcome.unboundedness.cycle)
    assert sorted(outcome.unboundedness.cycle.tolist()) == list(range(100))
    if engine == "network":
        assert outcome.message.startswith("a cycle of negative cost through node[")
    assert "has no capacity; bound one of its arcs" in outcome.message
