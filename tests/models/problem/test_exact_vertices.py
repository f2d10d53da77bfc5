"""Fractional optima, free variables and rays are exact: worked out by hand."""

from fractions import Fraction

import numpy as np
import pytest

import flowlex as fx
from flowlex.models.exact_vertices import Equations, TooMuchWork
from flowlex.models.problem_solution import ProblemSolution


def _exact(s: ProblemSolution) -> list[Fraction]:
    assert s.exact is not None
    return [s.exact[k] for k in range(len(s.exact.numbers))]


def test_a_fractional_vertex_is_exact() -> None:
    # 7 x + 3 y = 2 and 3 x + 7 y = 1 meet at (11, 1) / 40.
    p = fx.Problem("vertex")
    x, y = p.variables("x"), p.variables("y")
    p.constrain("first", 7 * x + 3 * y >= 2)
    p.constrain("second", 3 * x + 7 * y >= 1)
    p.minimize("sum", x + y)
    s = p.solve()
    assert _exact(s) == [Fraction(11, 40), Fraction(1, 40)]
    assert s.certificate.summary.startswith("optimal, proven exactly")


def test_large_unlike_denominators_are_exact() -> None:
    # x = 1 / 10007, y = x / 10009, z = y / 10037: no small common denominator.
    p = fx.Problem("denominators")
    x = p.variables("x", i=range(3))
    p.constrain("first", 10007 * x.sel(i=0) >= 1)
    p.constrain("second", 10009 * x.sel(i=1) >= x.sel(i=0))
    p.constrain("third", 10037 * x.sel(i=2) >= x.sel(i=1))
    p.minimize("sum", 10**12 * x.sum())
    s = p.solve()
    assert _exact(s) == [Fraction(1, 10007), Fraction(1, 10007 * 10009), Fraction(1, 10007 * 10009 * 10037)]
    assert s.certificate.exact


def test_free_variables_need_reduced_costs_of_exactly_zero() -> None:
    p = fx.Problem("free")
    x, z = p.variables("x", lower=None), p.variables("z", lower=None)
    p.constrain("above", z >= 3 * x - Fraction(1, 7))
    p.constrain("below", z >= Fraction(1, 7) - 11 * x)
    p.minimize("distance", z)
    s = p.solve()
    assert _exact(s) == [Fraction(1, 49), Fraction(-4, 49)]
    assert s.certificate.summary.startswith("optimal, proven exactly")


def test_later_objectives_are_exact_at_a_fractional_optimum() -> None:
    p = fx.Problem("stages")
    x = p.variables("x", i=range(3), upper=1)
    p.constrain("need", 3 * x.sel(i=0) + 7 * x.sel(i=1) + 11 * x.sel(i=2) >= 8)
    p.minimize("sum", x.sum())
    p.maximize("first", x.sel(i=0))
    s = p.solve()
    assert _exact(s) == [0, 0, Fraction(8, 11)]
    assert s.certificate.summary.startswith("optimal, proven exactly")


def test_a_ray_with_fractions_is_exact() -> None:
    # Along (1, 3 / 7, 9 / 49) both rows stay.
    p = fx.Problem("ray")
    x = p.variables("x", i=range(3))
    p.constrain("first", 3 * x.sel(i=0) == 7 * x.sel(i=1))
    p.constrain("second", 3 * x.sel(i=1) == 7 * x.sel(i=2))
    p.maximize("sum", x.sum())
    s = p.solve()
    assert str(s.status) == "unbounded"
    assert s.certificate.summary.startswith("unbounded, proven exactly")


def test_equations_solve_and_leave_contradictions_out() -> None:
    system = Equations()
    system.add({0: Fraction(1), 1: Fraction(1)}, Fraction(3))
    system.add({0: Fraction(1), 1: Fraction(-1)}, Fraction(1))
    system.add({0: Fraction(2)}, Fraction(5))  # contradicts
    system.add({1: Fraction(1), 2: Fraction(1, 3)}, Fraction(0))
    assert system.values(np.array([0.0, 0.0, 0.0, 0.25])) == [2, 1, -3, Fraction(1, 4)]


def test_elimination_gives_up_after_its_work() -> None:
    system = Equations(most=20)
    rng = np.random.default_rng(0)
    with pytest.raises(TooMuchWork):
        for _ in range(12):
            system.add({k: Fraction(int(v)) for k, v in enumerate(rng.integers(1, 9, 12))}, Fraction(1))
