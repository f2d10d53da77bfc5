"""Random programs compared with `scipy.optimize`, with certificates; duals compared with finite differences."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from flowlex.formulations import LinearProgram, solve
from flowlex.validation.certificates import certify_program

SEEDS = st.integers(0, 10**6)
ENGINES = ("pulp", "highs")


def by_scipy(data: dict[str, Any]) -> tuple[str, float | None]:
    constraints = LinearConstraint(data["matrix"], data["low"], data["high"])
    bounds = Bounds(data["lower"], data["upper"])
    result = milp(data["c"], constraints=constraints, bounds=bounds, integrality=data["integrality"])
    if result.status == 0:
        return "optimal", (-result.fun if data["maximize"] else result.fun) + 2.5
    feasible = milp(np.zeros_like(data["c"]), constraints=constraints, bounds=bounds, integrality=data["integrality"])
    return ("unbounded" if feasible.status == 0 else "infeasible"), None


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from(ENGINES), st.booleans())
@example(3111, "highs", False)  # presolve of HiGHS 1.15 calls this unbounded program infeasible
@example(3111, "pulp", False)
def test_random_programs(dense: Any, seed: int, engine: str, integer: bool) -> None:
    lp, data = dense(seed, integer=integer)
    status, optimum = by_scipy(data)
    outcome = solve(lp, engine)
    assert outcome.status == status
    if status == "optimal":
        assert outcome.objective == pytest.approx(optimum, abs=1e-6)
        certificate = certify_program(lp, outcome)
        assert certificate.ok, str(certificate)
        assert certificate.claim == ("feasible" if integer else "optimal")
    else:
        assert outcome.values is outcome.objective is outcome.duals is None
        assert (outcome.infeasibility is not None) == (status == "infeasible")


def with_limit(limit: float, maximise: bool) -> LinearProgram:
    lp = LinearProgram("limited")
    x = lp.variables("x", 2, upper=10)
    lp.constrain("mix", (x * np.array([1, 2])).sum(), "<=" if maximise else ">=", limit)
    lp.constrain("floor", x[[0]], ">=", 1)
    (lp.maximize if maximise else lp.minimize)((x * np.array([1, 3])).sum())
    return lp


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("maximise", [False, True])
def test_duals_are_the_derivative_of_the_objective(engine: str, maximise: bool) -> None:
    step = 0.01
    at, after = (solve(with_limit(limit, maximise), engine) for limit in (6, 6 + step))
    assert at.duals[0] == pytest.approx((after.objective - at.objective) / step)
    assert at.duals[0] > 0.5


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("maximise", [False, True])
def test_reduced_costs_are_the_derivative_at_a_bound(engine: str, maximise: bool) -> None:
    def bounded(upper: float) -> LinearProgram:
        lp = LinearProgram("bounded")
        x = lp.variables("x", 1, lower=-upper, upper=upper)
        (lp.maximize if maximise else lp.minimize)((x * 4).sum())
        return lp

    at, after = solve(bounded(3), engine), solve(bounded(4), engine)
    assert at.reduced_costs[0] == pytest.approx(4)
    assert after.objective - at.objective == pytest.approx(4 if maximise else -4)
