"""Which mistakes in a formulation would its tests notice? Run them on mutants of it."""

import pandas as pd

import flowlex as fx
from flowlex.testing import assert_optimum, assert_violates, formulation, mutate


@formulation
def knapsack(weight: pd.Series, value: pd.Series, room: int) -> fx.Problem:
    p = fx.Problem("knapsack")
    take = p.variables("take", item=weight.index, binary=True)
    p.constrain("room", (take * weight).sum() <= room)
    p.maximize("value", (take * value).sum())
    return p


item = pd.Index(["a", "b"], name="item")
data = (pd.Series([2, 3], item), pd.Series([2, 4], item), 4)


def the_better_item_is_taken() -> None:
    assert_optimum(knapsack(*data), 4)


def both_do_not_fit() -> None:
    assert_violates(knapsack(*data), {"take[a]": 1, "take[b]": 1}, "room", only=True)


(report,) = mutate(the_better_item_is_taken, both_do_not_fit)
print(report)
