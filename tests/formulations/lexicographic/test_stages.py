"""Stages in strict order: equal to scipy's integer programs, with leaves that prove every stage."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from flowlex.formulations.lexicographic.objective_stages import solve_stages
from flowlex.formulations.program_arrays import LinearProgramArrays
from flowlex.formulations.solver_outcome import SolveOptions, Status
from tests.seeds import seeds


def random_program(seed, integer=True):
    """A small program with bounds -2..4, rows of all relations, and two or three stages with integer costs."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    matrix = rng.integers(-2, 4, (m, n))
    side = rng.integers(-1, 9, m)
    relation = rng.choice(["<=", ">=", "=="], m, p=[0.6, 0.3, 0.1])
    arrays = LinearProgramArrays(
        scipy.sparse.csc_array(matrix.astype(float)),
        np.where(relation == "<=", -np.inf, side).astype(float),
        np.where(relation == ">=", np.inf, side).astype(float),
        rng.integers(-2, 1, n).astype(float),
        rng.integers(1, 5, n).astype(float),
        np.zeros(n),
        0.0,
        np.full(n, integer),
        False,
    )
    costs = [rng.integers(-3, 5, n).astype(float) for _ in range(int(rng.integers(2, 4)))]
    return arrays, costs


def stage_by_stage(arrays, costs):
    """Return the stages' optima by scipy, one program after the other; None if infeasible."""
    rows = [(arrays.matrix.toarray(), arrays.row_lower, arrays.row_upper)]
    values = []
    for cost in costs:
        constraints = [scipy.optimize.LinearConstraint(*row) for row in rows]
        bounds = scipy.optimize.Bounds(arrays.column_lower, arrays.column_upper)
        kind = arrays.integrality.astype(int)
        found = scipy.optimize.milp(cost, constraints=constraints, bounds=bounds, integrality=kind)
        if found.x is None:
            return None
        values.append(found.fun)
        rows.append((cost[None, :], -np.inf, found.fun + (1e-6 if arrays.integrality.all() else 1e-9)))
    return values


def least_of(arrays, leaf, cost, kept):
    """Return the bound that a leaf proves, by loops over columns."""
    low, high = arrays.column_lower.copy(), arrays.column_upper.copy()
    for branch in leaf.branches:
        if branch.upper:
            high[branch.column] = min(high[branch.column], branch.side)
        else:
            low[branch.column] = max(low[branch.column], branch.side)
    if (low > high).any():
        return np.inf
    rows = zip(leaf.rows, arrays.row_lower, arrays.row_upper, strict=True)
    total = sum(y * (lower if y > 0 else upper) for y, lower, upper in rows if y)
    reduced = leaf.own * cost - leaf.rows @ arrays.matrix.toarray()
    for e, (before, value) in zip(leaf.earlier, kept, strict=True):
        total += e * value
        reduced = reduced - e * before
    return total + sum(r * (lo if r > 0 else up) for r, lo, up in zip(reduced, low, high, strict=True))


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_stages_equal_programs_of_scipy(seed):
    arrays, costs = random_program(seed, integer=seed % 4 != 0)
    wanted = stage_by_stage(arrays, costs)
    found = solve_stages(arrays, costs)
    if wanted is None:
        assert found.status is Status.INFEASIBLE
        return
    assert found.status is Status.OPTIMAL
    assert [stage.value for stage in found.stages] == pytest.approx(wanted, abs=1e-5)
    kept = []
    for cost, stage in zip(costs, found.stages, strict=True):
        bound = min(least_of(arrays, leaf, cost, kept) for leaf in stage.leaves if leaf.own)
        step = np.gcd.reduce(np.abs(cost).astype(int)) if arrays.integrality.all() and cost.any() else 0
        assert (np.ceil((bound - 1e-6) / step) * step if step else bound) >= stage.value - 1e-5
        kept.append((cost, stage.value))


def knapsack():
    """Items of weight 2 and capacity 7: the linear relaxation packs 3.5 items."""
    n = 7
    matrix = scipy.sparse.csc_array(np.full((1, n), 2.0))
    sides = np.array([-np.inf]), np.array([7.0])
    return LinearProgramArrays(matrix, *sides, np.zeros(n), np.ones(n), np.zeros(n), 0.0, np.ones(n, bool), False)


def test_a_tree_that_is_cut_off_claims_a_bound_only():
    arrays = knapsack()
    cost = -2.0 * np.ones(7) - np.eye(7)[0]  # a second coefficient, so that values are no multiples of 2
    whole = solve_stages(arrays, [cost])
    assert whole.status is Status.OPTIMAL and whole.stages[0].value == -7
    cut = solve_stages(arrays, [cost], SolveOptions(max_steps=1))
    assert cut.status is Status.FEASIBLE and cut.stages[0].bound < cut.stages[0].value
    assert "not proven" in cut.message


def test_a_start_saves_a_stage_that_the_bounds_settle():
    arrays = knapsack()
    found = solve_stages(arrays, [np.ones(7)], start=np.zeros(7))
    assert found.stages[0].value == 0 and not found.stages[0].leaves[0].rows.any()


@pytest.mark.parametrize("seed", range(6))
def test_a_start_that_breaks_a_row_or_a_bound_is_left_out(seed):
    arrays, costs = random_program(seed)
    rng = np.random.default_rng(seed)
    for start in rng.integers(-9, 9, (10, len(arrays.cost))).astype(float):
        found = solve_stages(arrays, costs, start=start)
        expected = stage_by_stage(arrays, costs)
        assert (found.status is Status.INFEASIBLE) is (expected is None)
        if expected is not None:
            assert [stage.value for stage in found.stages] == pytest.approx(expected)
