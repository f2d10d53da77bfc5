"""Problems whose rows, columns and objectives are stated in other units have the same optimum."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import flowlex as fx
from flowlex.formulations.lexicographic.scaling import Scaling
from tests.models.problem.exact_optimum import exact_optima


def drawn(rng: np.random.Generator, most: int) -> tuple[fx.Problem, fx.Problem, list[int]]:
    """A random linear program, the same with powers of two as units, and the exponents of its objectives."""
    n, m, stages = (int(rng.integers(1, k)) for k in (6, 6, 3))
    of_rows, of_columns, of_stages = (rng.integers(-most, most + 1, k).tolist() for k in (m, n, stages))
    lows, highs = rng.choice([0, 0, -3, np.nan], n), rng.choice([np.nan, 5, 9, np.nan], n)
    matrix = rng.integers(-9, 10, (m, n)) * (rng.random((m, n)) < 0.6)
    costs = rng.integers(-9, 10, (stages, n)) * (rng.random((stages, n)) < 0.8)
    sides, relations, maximised = rng.integers(-9, 20, m), rng.choice([0, 0, 1, 2], m), rng.random(stages) < 0.5

    def stated(rows: list[int], columns: list[int], goals: list[int]) -> fx.Problem:
        p = fx.Problem("units")
        unit = [2.0**k for k in columns]
        x: list[Any] = []
        for j in range(n):
            low, high = (None if np.isnan(bound[j]) else bound[j] / unit[j] for bound in (lows, highs))
            x.append(p.variables(f"x{j}", lower=low, upper=high))

        def total(numbers: Any, by: int) -> Any:
            return sum((float(v) * 2.0**by * unit[j] * x[j] for j, v in enumerate(numbers.tolist()) if v), 0 * x[0])

        for i in np.flatnonzero(matrix.any(axis=1)).tolist():
            left, side = total(matrix[i], rows[i]), float(sides[i]) * 2.0 ** rows[i]
            p.constrain(f"r{i}", (left <= side, left >= side, left == side)[relations[i]])
        for k in range(stages):
            (p.maximize if maximised[k] else p.minimize)(f"c{k}", total(costs[k], goals[k]))
        return p

    return stated([0] * m, [0] * n, [0] * stages), stated(of_rows, of_columns, of_stages), of_stages


@pytest.mark.parametrize(("most", "seeds"), [(20, range(100)), (60, range(100))])
def test_units_of_rows_columns_and_objectives_do_not_change_the_optimum(most: int, seeds: range) -> None:
    proven = 0
    for seed in seeds:
        plain, scaled, of_stages = drawn(np.random.default_rng(seed), most)
        exact = exact_optima(plain)
        assert exact is not None
        status, optima = exact
        s = scaled.solve()
        assert str(s.status) == status, (seed, s.message)
        proven += s.certificate.claim == status and s.certificate.verdict == "proven"
        for o, optimum, by in zip(plain.objectives, optima, of_stages, strict=True) if status == "optimal" else ():
            value = Fraction(s.stages[o.name].value) / Fraction(2) ** by * (-1 if o.maximize else 1)
            assert abs(value - optimum) <= Fraction(1, 10**6) * (1 + abs(optimum)), (seed, o.name)
    assert proven >= 0.95 * len(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 1000, 100))
def test_units_of_many_more(first: int) -> None:
    for most in (10, 20, 40, 60):
        test_units_of_rows_columns_and_objectives_do_not_change_the_optimum(most, range(first, first + 100))


def costs_below_the_tolerance(integer: bool) -> fx.Problem:
    """Three units come at 2 each from y, or at 0.1 each from x."""
    p = fx.Problem("tiny costs")
    x, y = p.variables("x", upper=1e15, integer=integer), p.variables("y", upper=5, integer=integer)
    p.constrain("demand", (1e-7 if integer else 1e-14) * x + y >= 3)
    p.minimize("cost", (1e-8 if integer else 1e-15) * x + 2 * y)
    return p


def test_costs_below_a_solvers_tolerance_count() -> None:
    s = costs_below_the_tolerance(integer=False).solve()
    assert s.objective == pytest.approx(0.3) and s["x"].tolist() == pytest.approx([3e14])
    assert s.certificate.summary.startswith("optimal, proven exactly")


def test_costs_of_integers_below_a_solvers_tolerance_are_no_optimum_by_its_word() -> None:
    s = costs_below_the_tolerance(integer=True).solve()
    assert s.certificate.ok and (s.status == "feasible" or s.certificate.claim == "optimal")
    assert s.bound is None or s.bound <= 0.3 + 1e-9


def test_numbers_of_usual_size_reach_the_solver_as_they_are() -> None:
    rng = np.random.default_rng(1)
    p = fx.Problem("usual")
    x = p.variables("x", i=range(50), upper=1e6)
    for k in range(20):
        sizes = 10.0 ** rng.integers(-3, 4, 50)
        p.constrain(f"r{k}", sum(float(v) * x.sel(i=i) for i, v in enumerate(sizes)) >= float(rng.integers(1, 10**6)))
    p.minimize("cost", sum(float(v) * x.sel(i=i) for i, v in enumerate(10.0 ** rng.integers(-3, 5, 50))))
    assert Scaling.of(p.arrays(None), [o.cost(p.column_count) for o in p.objectives], [0.0]) is None


def test_duals_of_an_answer_without_a_certificate_are_in_the_units_of_the_problem() -> None:
    p = fx.Problem("units")
    x = p.variables("x", upper=5e-8)
    p.constrain("row", 2.0**-30 * x <= 2.0**-57)
    p.maximize("goal", 2.0**-29 * x)
    for certify in (True, False):
        assert p.solve(certify=certify).duals["row"].tolist() == [2.0]
