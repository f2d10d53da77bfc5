"""Column generation on cutting stock instances that are small enough to list all patterns."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from flowlex.formulations.column_generation import Priced, generate_columns
from flowlex.formulations.program_arrays import Floats, LinearProgramArrays
from flowlex.formulations.solver_outcome import EngineError, Status


def _patterns(roll: int, width: list[int]) -> Floats:
    fits = itertools.product(*(range(roll // w + 1) for w in width))
    return np.array([p for p in fits if 0 < np.dot(p, width) <= roll], float)


def _arrays(matrix: Floats, demand: Floats) -> LinearProgramArrays:
    m, k = matrix.shape
    return LinearProgramArrays(
        matrix=sparse.csc_array(matrix),
        row_lower=demand,
        row_upper=np.full(m, np.inf),
        column_lower=np.zeros(k),
        column_upper=np.full(k, np.inf),
        cost=np.ones(k),
        offset=0.0,
        integrality=np.zeros(k, bool),
        maximize=False,
    )


class _Patterns:
    """Price all patterns by enumeration; the bound is Farley's."""

    def __init__(self, roll: int, width: list[int], demand: Floats) -> None:
        self.all, self.demand, self.rounds, self.slack = _patterns(roll, width), demand, 0, 0.0

    def __call__(self, duals: Floats) -> Priced:
        self.rounds += 1
        worth = self.all @ duals
        best = int(worth.argmax())
        chosen = self.all[[best]] if worth[best] > 1 + 1e-9 else self.all[:0]
        bound = float(duals @ self.demand) / max(1.0, float(worth[best])) - self.slack
        return Priced(np.ones(len(chosen)), sparse.csc_array(chosen.T), bound)


WIDTHS = st.lists(st.integers(2, 9), min_size=1, max_size=4, unique=True)


@given(st.integers(9, 14), WIDTHS, st.integers(0, 10**6))
def test_the_optimum_is_that_of_all_patterns(roll, width, seed):
    demand = np.random.default_rng(seed).integers(1, 30, len(width)).astype(float)
    price = _Patterns(roll, width, demand)
    found = generate_columns(_arrays(np.diag([float(roll // w) for w in width]), demand), price)
    whole = linprog(np.ones(len(price.all)), A_ub=-price.all.T, b_ub=-demand, method="highs")
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(whole.fun, rel=1e-9)
    assert found.bound <= found.objective * (1 + 1e-9)
    assert found.rounds == price.rounds
    assert len(found.values) <= len(width) + found.rounds


def test_it_stops_where_the_proven_bound_is_close_enough():
    demand = np.array([44.0, 30.0, 33.0])
    rough = generate_columns(_arrays(np.diag([2.0, 3.0, 6.0]), demand), _Patterns(13, [5, 4, 2], demand), gap=0.2)
    price = _Patterns(13, [5, 4, 2], demand)
    exact = generate_columns(_arrays(np.diag([2.0, 3.0, 6.0]), demand), price)
    assert rough.rounds < exact.rounds
    assert rough.bound <= exact.objective <= rough.objective <= 1.2 * rough.bound + 1e-9


def test_what_cannot_be_solved_says_so():
    demand = np.array([3.0])
    none = _arrays(np.zeros((1, 1)), demand)
    assert generate_columns(none, _Patterns(9, [4], demand)).status is Status.INFEASIBLE
    endless = _arrays(np.ones((1, 1)), demand)
    with pytest.raises(EngineError, match="did not end in 5 rounds"):
        generate_columns(
            endless, lambda duals: Priced(np.ones(1), sparse.csc_array(np.ones((1, 1))), 0.0), max_rounds=5
        )
    late = generate_columns(endless, _Patterns(9, [4], demand), time_limit_s=1e-9)
    assert late.status is Status.TIME_LIMIT
