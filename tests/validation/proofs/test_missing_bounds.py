"""Columns without bounds: what follows from rows, from earlier objectives and from the answer's own value counts."""

import itertools
from fractions import Fraction

import numpy as np
import pandas as pd

import flowlex as fx
from flowlex.validation.proofs.checker import judge
from flowlex.validation.proofs.exact_program import Exact
from flowlex.validation.proofs.own_statement import exact_program
from flowlex.validation.proofs.proof import Leaf, Proof

#: A multiplier that rounding made a little too large.
OFF = Fraction(1) + Fraction(1, 10**9)


def test_the_value_of_an_answer_bounds_what_the_rows_do_not() -> None:
    """``x + y >= 2`` bounds nothing from above; an answer with ``x + y = 2`` does."""
    p = fx.Problem("two")
    x = p.variables("x", i=["a", "b"])
    p.constrain("sum", x.sum() >= 2)
    p.minimize("sum_of", x.sum())
    program = exact_program(p)
    proof = Proof({"sum_of": (Leaf({"sum": Exact.of([OFF])}),)})
    verdict = judge(program, Exact.of([2, 0]), proof)
    assert verdict.claim == "optimal" and not verdict.certificate.exact
    assert 0 < 2 - verdict.stages[0].bound < Fraction(1, 10**8)
    worse = judge(program, Exact.of([3, 0]), proof)
    assert worse.claim == "bounded" and worse.stages[0].bound < 2


def test_the_objectives_before_bound_what_the_rows_do_not() -> None:
    p = fx.Problem("two")
    x = p.variables("x", i=["a", "b"])
    p.constrain("sum", x.sum() >= 2)
    p.minimize("first", x.sum())
    p.maximize("second", x.sel(i="a"))
    program = exact_program(p)
    first = Leaf({"sum": Exact.of([Fraction(1)])})
    second = Leaf({}, {"first": -(2 - OFF)})
    verdict = judge(program, Exact.of([2, 0]), Proof({"first": (first,), "second": (second,)}))
    assert verdict.claim == "optimal" and verdict.stages[1].bound >= 2


def test_tardiness_without_a_latest_start_is_proven_for_fractional_data() -> None:
    jobs = ["a", "b", "c", "d"]
    index = pd.Index(jobs, name="job")
    time = pd.Series([5, 3, 8, 2], index) * 1.13
    due, weight = pd.Series([6, 4, 9, 3], index) * 0.91, pd.Series([2, 1, 3, 4], index) * 0.37
    p = fx.Problem("tardiness")
    start, late = p.variables("start", job=jobs), p.variables("late", job=jobs)
    pairs = pd.DataFrame(list(itertools.combinations(jobs, 2)), columns=["first", "second"])
    y = p.variables("y", over=pairs, binary=True)
    lasts, big = p.data("lasts", time), float(time.sum())
    ahead, behind = start.at(pairs, job="first"), start.at(pairs, job="second")
    p.constrain("order", ahead + lasts.at(pairs, job="first") <= behind + big * (1 - y))
    p.constrain("other", behind + lasts.at(pairs, job="second") <= ahead + big * y)
    p.constrain("late", late >= start + time - due)
    p.minimize("tardiness", (late * weight).sum())
    best = np.inf
    for order in itertools.permutations(jobs):
        done = time[list(order)].cumsum()
        best = min(best, float(((done - due).clip(lower=0) * weight).sum()))
    s = p.solve()
    assert s.certificate.claim == "optimal"
    assert abs(float(s.objective) - best) < 1e-6
