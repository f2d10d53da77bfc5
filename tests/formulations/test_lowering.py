"""PuLP problem, HiGHS model and arrays state the same problem."""

from dataclasses import replace
from typing import Any

import numpy as np
import pulp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations import LinearProgram, solve
from flowlex.formulations.engines.pulp import solve_named
from flowlex.formulations.pulp_adapter import from_pulp, to_pulp
from flowlex.formulations.solver_outcome import SolveOptions

SOLVERS = (None, pulp.HiGHS(msg=False))
FIELDS = ("row_lower", "row_upper", "column_lower", "column_upper", "cost", "integrality")


def hand_over(lp: LinearProgram, way: str) -> Any:
    return solve(lp, way) if way in ("highs", "pulp") else solve(lp, "pulp", solver=way)


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("solver", ["pulp", "PULP_CBC_CMD"])
def test_every_solver_gives_the_same_answer(dense: Any, solver: str, integer: bool) -> None:
    if solver not in ("pulp", *pulp.listSolvers(onlyAvailable=True)):
        pytest.skip(f"{solver} is not installed")
    optimal = 0
    for seed in range(30 if solver == "pulp" else 12):
        lp, _ = dense(seed, integer=integer)
        ours, other = solve(lp, "highs"), hand_over(lp, solver)
        assert other.status == ours.status, seed
        if ours.status != "optimal":
            continue
        optimal += 1
        assert other.objective == pytest.approx(ours.objective), seed
        assert other.bound == pytest.approx(ours.bound), seed
        if integer:
            assert ours.duals is other.duals is ours.reduced_costs is other.reduced_costs is None
        else:
            # Degenerate programs have many dual optima: compare only what holds for all of them.
            for outcome in (ours, other):
                reduced = lp.arrays().cost - lp.arrays().matrix.T @ outcome.duals
                np.testing.assert_allclose(outcome.reduced_costs, reduced, atol=1e-7)
    assert optimal >= 4


@pytest.mark.parametrize("solver", ["pulp", "HiGHS", "PULP_CBC_CMD"])
@pytest.mark.parametrize("maximise", [False, True])
def test_unique_duals_are_the_same_from_every_solver(solver: str, maximise: bool) -> None:
    if solver not in ("pulp", *pulp.listSolvers(onlyAvailable=True)):
        pytest.skip(f"{solver} is not installed")
    lp = LinearProgram("unique")
    x = lp.variables("x", 2, upper=[9, 9])
    sense = "<=" if maximise else ">="
    lp.constrain("r", x.sum_by([0, 0]) + x[[0]], sense, 7)
    lp.constrain("s", x[[1]] - x[[0]], "==", 1)
    (lp.maximize if maximise else lp.minimize)((x * np.array([2, 3])).sum())
    ours, other = solve(lp, "highs"), hand_over(lp, solver)
    for outcome in (ours, other):
        assert outcome.objective == pytest.approx(13)
        assert outcome.duals == pytest.approx([5 / 3, 4 / 3])
        assert outcome.reduced_costs == pytest.approx([0, 0], abs=1e-6)  # CBC writes eight digits


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_network_lowers_to_the_same_arrays_by_both_ways(networks: Any, data: st.DataObject) -> None:
    network = data.draw(networks)
    direct, program = network.arrays(), network.to_linear_program().arrays()
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(direct, field), getattr(program, field), err_msg=field)
    assert (direct.matrix != program.matrix).nnz == 0
    assert direct.matrix.has_sorted_indices


def test_any_pulp_problem_is_read() -> None:
    """A hand-written PuLP maximisation with a variable in no constraint and an integer variable."""
    problem = pulp.LpProblem("hand", pulp.LpMaximize)
    a = problem.add_variable("a", 0, 4)
    b = problem.add_variable("b", 0, None, pulp.LpInteger)
    c = problem.add_variable("c", -1, 1, pulp.LpContinuous)
    problem.setObjective(a + 2 * b - c + 3)
    problem.addConstraint(2 * a + 3 * b <= 12.5, "cap")
    arrays = from_pulp(problem, [c, b, a])
    assert arrays.matrix.toarray().tolist() == [[0, 3, 2]]
    assert (arrays.cost.tolist(), arrays.offset, arrays.maximize) == ([-1, 2, 1], 3, True)
    assert arrays.integrality.tolist() == [False, True, False]
    assert (arrays.row_lower.tolist(), arrays.row_upper.tolist()) == ([-np.inf], [12.5])
    assert (arrays.column_lower.tolist(), arrays.column_upper.tolist()) == ([-1, 0, 0], [1, np.inf, 4])


def test_rows_with_two_sides_are_two_constraints_and_free_rows_none() -> None:
    lp = LinearProgram("p")
    x = lp.variables("x", 3, upper=9)
    lp.constrain("c", x, "<=", 3)
    lp.maximize(x.sum())
    arrays = replace(lp.arrays(), row_lower=np.array([-np.inf, 1.0, -np.inf]), row_upper=np.array([np.inf, 3.0, 2.0]))
    problem, _ = to_pulp(arrays, "p", ["a", "b", "d"], ["c", "e", "f"])
    assert [each.name for each in problem.constraints()] == ["e", "e_upper", "f"]
    assert [(each.getLb(), each.getUb()) for each in problem.constraints()] == [(1, None), (None, 3), (None, 2)]
    for solver in SOLVERS:
        outcome = solve_named(arrays, "p", ["a", "b", "d"], ["c", "e", "f"], SolveOptions(solver=solver))
        assert outcome.objective == 14
        assert outcome.duals.tolist() == [0, 1, 1]
        assert outcome.reduced_costs.tolist() == [1, 0, 0]
