"""A kept HiGHS program has the same optimum as a new one after any change of bounds and costs."""

import numpy as np
import pytest
import scipy

from flowlex.formulations.program_arrays import LinearProgramArrays
from flowlex.formulations.sessions.fixed_matrix_program import BoundedProgram
from flowlex.formulations.solver_outcome import SolveOptions, Status


@pytest.mark.parametrize("seed", range(6))
def test_changes_equal_programs_made_anew(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, count = 6, 9
    matrix = random.integers(-1, 3, size=(rows, count)).astype(np.float64)
    zeros, none = np.zeros(count), np.zeros(rows)
    arrays = LinearProgramArrays(
        scipy.sparse.csc_array(matrix), none, none, zeros, zeros, zeros, 0.0, zeros.astype(np.bool_), maximize=False
    )
    session = BoundedProgram(arrays, SolveOptions())
    for _ in range(12):
        cost = random.integers(-3, 6, size=count).astype(np.float64)
        low = random.integers(0, 2, size=count).astype(np.float64)
        high = low + random.integers(0, 4, size=count)
        most = random.integers(6, 20, size=rows).astype(np.float64)
        least = np.where(random.random(rows) < 0.5, most - random.integers(0, 16, size=rows), -np.inf)
        outcome = session.solve(cost, (low, high), (least, most))
        both = np.vstack([matrix, -matrix]), np.r_[most, np.where(least > -np.inf, -least, 1e9)]
        ours = scipy.optimize.linprog(cost, *both, bounds=np.stack([low, high], axis=1))
        assert (outcome.status is Status.OPTIMAL) == (ours.status == 0)
        if outcome.status is Status.OPTIMAL:
            assert outcome.objective == pytest.approx(ours.fun, abs=1e-7)
            assert outcome.duals is not None and outcome.reduced_costs is not None
            np.testing.assert_allclose(outcome.reduced_costs, cost - matrix.T @ outcome.duals, atol=1e-7)


def test_no_time_left_is_said() -> None:
    one = np.ones(1)
    arrays = LinearProgramArrays(
        scipy.sparse.csc_array(np.ones((1, 1))), one, one, 0 * one, one, one, 0.0, one < 0, maximize=False
    )
    session = BoundedProgram(arrays, SolveOptions(), lambda: 0.0)
    assert session.solve(one, (0 * one, one), (one, one)).status is Status.TIME_LIMIT
