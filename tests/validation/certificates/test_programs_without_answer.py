"""Infeasible and unbounded linear programs: proven by multipliers, or by a point and a ray."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flowlex.formulations import LinearProgram
from flowlex.formulations.engines import solve
from flowlex.validation.certificates import certify_program


def program(seed: int, *, endless: bool) -> LinearProgram:
    """Return a program whose last two rows contradict each other, or whose first variable is unbounded."""
    rng = np.random.default_rng(seed)
    lp = LinearProgram("p")
    x = lp.variables("x", 5, lower=0.0)
    lp.constrain("row", x.sum_by(rng.integers(0, 3, 5)), ">=", 1.0)
    total = x.sum_by(np.zeros(5, int))
    if not endless:
        lp.constrain("most", total, "<=", 2.0)
        lp.constrain("least", total, ">=", 2.5)
    lp.minimize((x * (rng.integers(1, 4, 5) * (-1.0 if endless else 1.0))).sum())
    return lp


@pytest.mark.parametrize("engine", ["pulp", "highs"])
@pytest.mark.parametrize("seed", range(3))
def test_no_answer_is_proven_and_changed_multipliers_are_refused(engine: Any, seed: int) -> None:
    lp = program(seed, endless=False)
    outcome = solve(lp, engine)
    certificate = certify_program(lp, outcome)
    assert (certificate.ok, certificate.claim, certificate.exact) == (True, "infeasible", True)
    assert outcome.infeasibility is not None and outcome.infeasibility.farkas is not None
    farkas = outcome.infeasibility.farkas
    for wrong in (-farkas, 0 * farkas, farkas[:-1], np.full_like(farkas, np.nan), np.abs(farkas)):
        changed = replace(outcome, infeasibility=replace(outcome.infeasibility, farkas=wrong))
        assert not certify_program(lp, changed).ok


@pytest.mark.parametrize("engine", ["pulp", "highs"])
@pytest.mark.parametrize("seed", range(3))
def test_no_best_answer_is_proven_and_changed_rays_are_refused(engine: Any, seed: int) -> None:
    lp = program(seed, endless=True)
    outcome = solve(lp, engine)
    certificate = certify_program(lp, outcome)
    assert (certificate.ok, certificate.claim) == (True, "unbounded")
    found = outcome.unboundedness
    assert found is not None and found.ray is not None and found.point is not None
    for wrong in (
        replace(found, ray=-found.ray),
        replace(found, ray=0 * found.ray),
        replace(found, ray=found.ray[:-1]),
        replace(found, point=-found.point - 1),
    ):
        assert not certify_program(lp, replace(outcome, unboundedness=wrong)).ok
