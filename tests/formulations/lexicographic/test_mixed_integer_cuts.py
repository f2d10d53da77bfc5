"""Cuts: every one holds for all answers (by enumeration), and those of single rows are the textbook's."""

import itertools

import numpy as np
import pytest
import scipy

from flowlex.formulations.lexicographic.mixed_integer_cuts import strengthened
from flowlex.formulations.lexicographic.stage_program import StageProgram
from flowlex.formulations.program_arrays import LinearProgramArrays
from flowlex.formulations.solver_outcome import SolveOptions
from tests.seeds import seeds


def program(matrix, low, high, upper, integer, cost) -> StageProgram:
    n = len(cost)
    arrays = LinearProgramArrays(
        scipy.sparse.csc_array(np.array(matrix, float)), np.array(low, float), np.array(high, float),
        np.zeros(n), np.array(upper, float), np.zeros(n), 0.0, np.array(integer, bool), False,
    )  # fmt: skip
    made = StageProgram(arrays, [np.array(cost, float)], SolveOptions(), np.inf)
    made.minimise(np.array(cost, float))
    return made


def test_a_fixed_charge_is_closed_at_the_root() -> None:
    """Demand 7 from x <= 10 y: the relaxation opens 0.7, rounding gives x <= 7 y, as x <= 7 in all."""
    made = program([[1, 0, 1], [1, -10, 0]], [7, -np.inf], [7, 0], [10, 1, 2], [False, True, False], [0, 10, 3])
    leaf, x = strengthened(made, np.array([0.0, 10, 3]), 10)
    assert x is not None and leaf.bound == pytest.approx(10, abs=1e-4) and made.cuts


@pytest.mark.parametrize("seed", seeds(10, 25))
def test_no_cut_excludes_an_answer(seed: int) -> None:
    """Integer columns by enumeration; a continuous one at the ends that rows and bounds leave it."""
    rng = np.random.default_rng(seed)
    whole, rows = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    matrix = rng.integers(-6, 9, (rows, whole + 1)).astype(float)
    side = rng.integers(3, 20, rows) + 0.5 * rng.integers(0, 2, rows)
    cost = -rng.integers(1, 9, whole + 1).astype(float)
    upper = np.append(rng.integers(1, 4, whole), 5)
    made = program(matrix, np.full(rows, -np.inf), side, upper, [True] * whole + [False], cost)
    strengthened(made, cost, 5)
    for point in itertools.product(*(range(int(u) + 1) for u in upper[:-1])):
        rest = side - matrix[:, :-1] @ np.array(point)
        by = matrix[:, -1]
        least = max([0.0, *(rest[by < 0] / by[by < 0])])
        most = min([5.0, *(rest[by > 0] / by[by > 0])])
        if least > most or (rest[by == 0] < 0).any():
            continue
        for end in (least, most):
            x = np.array([*point, end])
            for cut in made.cuts:
                assert cut.values @ x[cut.columns] >= cut.side - 1e-6
