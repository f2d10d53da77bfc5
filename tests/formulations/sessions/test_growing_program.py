"""Programs that grow, beside other solves of the process."""

import pytest

from flowlex.formulations import LinearProgram, solve
from flowlex.formulations.sessions.growing_program import GrowingProgram


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_sessions_go_on_after_a_solve_with_other_threads(threads):
    """HiGHS refuses to run with another number of threads than the last run of the process."""
    growing = GrowingProgram()
    growing.add_column(-1.0, 5.0)
    lp = LinearProgram("other")
    lp.maximize(lp.variables("x", 1, upper=3).sum())
    for _ in range(3):
        solve(lp, "highs", threads=threads)
        assert growing.solve().objective == -5
