"""Asserts and mutation tests of problems stated in the language."""

import pandas as pd

import flowlex as fx
from flowlex.testing import assert_optimum, assert_violates, formulation, mutate

WAGE = pd.Series({"ann": 2, "bob": 3}).rename_axis("worker")


@formulation
def shifts(demand, within=0):
    p = fx.Problem("shifts")
    x = p.variables("x", worker=WAGE.index, shift=["day", "night"], binary=True)
    p.constrain("cover", x.sum(by="shift") >= pd.Series(demand).rename_axis("shift"))
    p.constrain("rest", x.sum(by="worker") <= 1)
    p.minimize("wages", (x * WAGE).sum() + 1, within=within)
    p.maximize("nights_of_ann", x.sel(worker="ann", shift="night").sum())
    return p


def test_objectives_in_order_with_what_may_be_given_up():
    assert_optimum(shifts({"day": 1, "night": 0}), [3, 0])
    assert_optimum(shifts({"day": 1, "night": 0}, within=3), [3, 1])
    assert_violates(shifts({"day": 1, "night": 0}), {"x[ann,day]": 1, "x[ann,night]": 1}, "rest[ann]", only=True)


def test_mutants_of_a_problem_are_found_or_named():
    def weak():
        assert_optimum(shifts({"day": 1, "night": 1}), [6, 1])

    def strong():
        weak()
        assert_optimum(shifts({"day": 1, "night": 0}), [3, 0])
        assert_violates(shifts({"day": 1, "night": 0}), {"x[ann,day]": 1, "x[ann,night]": 1}, "rest[ann]", only=True)

    (loose,), (tight,) = mutate(weak), mutate(strong)
    assert "cover: flipped relation" in {str(r.mutant) for r in loose.results if r.fate == "killed"}
    assert len(tight.survivors) < len(loose.survivors)


def test_a_mutant_is_a_problem_with_the_names_and_exact_numbers_of_the_original():
    seen = []

    def look():
        made = shifts({"day": 1, "night": 1})
        solved = made.solve()
        seen.append((made, solved))
        assert solved.status == "optimal" and solved.certificate.claim == "optimal"

    mutate(look)
    for made, solved in seen:
        assert list(made.blocks) == ["x"] and {name.partition(" from ")[0] for name in made.rows} <= {"cover", "rest"}
        if solved.status == "optimal":
            assert solved.certificate.ok
