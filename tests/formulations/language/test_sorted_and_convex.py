"""Sorted vectors against enumeration, convex costs against their definition, and what `within` gives away."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import flowlex as fx


def _assignment(rng: np.random.Generator) -> tuple[fx.Problem, object, list[tuple[int, ...]]]:
    """Tasks on machines, and the loads of all assignments."""
    tasks, machines = int(rng.integers(2, 5)), int(rng.integers(2, 4))
    size = pd.Series(rng.integers(1, 5, tasks), pd.Index(range(tasks), name="task"))
    p = fx.Problem("loads")
    x = p.variables("x", task=range(tasks), machine=range(machines), binary=True)
    allowed = rng.random((tasks, machines)) < 0.8
    allowed[:, 0] = True
    frame = pd.DataFrame(allowed.astype(int), size.index, pd.Index(range(machines), name="machine"))
    p.constrain("allowed", x <= frame)
    p.constrain("once", x.sum(by="task") == 1)
    every = []
    for choice in itertools.product(range(machines), repeat=tasks):
        if all(allowed[t, m] for t, m in enumerate(choice)):
            loads = np.zeros(machines, int)
            np.add.at(loads, list(choice), size.to_numpy())
            every.append(tuple(loads.tolist()))
    return p, (x * size).sum(by="machine"), every


@pytest.mark.parametrize("breakpoints", [False, True])
@pytest.mark.parametrize("smallest", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_sorted_vectors_equal_the_best_of_all(seed: int, smallest: bool, breakpoints: bool) -> None:
    p, loads, every = _assignment(np.random.default_rng(seed))
    points = list(range(17)) if breakpoints else None
    if smallest:
        p.maximize_leximin("fair", loads, breakpoints=points)
        best = max(tuple(sorted(each)) for each in every)
    else:
        p.minimize_leximax("fair", loads, breakpoints=points)
        best = min(tuple(sorted(each, reverse=True)) for each in every)
    s = p.solve()
    assert s.certificate.claim == "optimal"
    p.constrain("load", loads <= 10**6)
    x = s.values("x")
    found = (x * loads_of(p)).groupby("machine").sum()
    assert tuple(sorted(found.tolist(), reverse=not smallest)) == best


def loads_of(p: fx.Problem) -> pd.Series:
    """The size of each task, read from the rows of loads."""
    block = p.rows["load"]
    sizes = dict(zip(block.columns.tolist(), block.values.tolist(), strict=True))
    index = p.blocks["x"].index.to_pandas()
    return pd.Series([int(sizes[k]) for k in range(len(index))], index)


def test_breakpoints_that_miss_values_are_refused() -> None:
    p, loads, _ = _assignment(np.random.default_rng(1))
    with pytest.raises(fx.StatementError, match="breakpoint"):
        p.minimize_leximax("fair", loads, breakpoints=[0, 1])
    with pytest.raises(fx.StatementError, match="twice"):
        p.minimize_leximax("other", loads, breakpoints=[0, 20, 20])


@pytest.mark.parametrize("amount", [0, 3, 8, 8.5, 12, 40])
def test_a_convex_cost_fills_its_steps_in_order(amount: float) -> None:
    p = fx.Problem("steps")
    x = p.variables("x", i=["a", "b"])
    p.constrain("need", x >= {"a": amount, "b": 2})
    cost = p.convex_cost("steps", x, [(8, 10), (4, 15), (None, 30)])
    p.minimize("cost", cost.sum())
    widths, rest, want = [(8, 10), (4, 15), (10**9, 30)], amount, 0.0
    for width, rate in widths:
        want += min(rest, width) * rate
        rest -= min(rest, width)
    s = p.solve()
    assert s.objective == want + 20
    assert s.certificate.claim == "optimal"


def test_a_cost_that_falls_is_refused() -> None:
    p = fx.Problem("steps")
    x = p.variables("x")
    for steps in ([(8, 10), (None, 5)], [(0, 1)], [(None, 1), (3, 2)], []):
        with pytest.raises(fx.StatementError):
            p.convex_cost("steps", x, steps)


@pytest.mark.parametrize(("within", "first"), [(0, 10), (3, 13), ("10 %", 11), (0.5, 10.5)])
@pytest.mark.parametrize("maximize", [False, True])
def test_within_gives_later_objectives_exactly_so_much(within: object, first: float, maximize: bool) -> None:
    p = fx.Problem("within")
    x = p.variables("x", lower=0, upper=100)
    if maximize:
        p.constrain("side", x <= 10)
        p.maximize("first", x, within=within)
        p.minimize("second", x)
        first = 20 - first
    else:
        p.constrain("side", x >= 10)
        p.minimize("first", x, within=within)
        p.maximize("second", x)
    s = p.solve()
    assert s.stages["first"].value == s.stages["second"].value == first
    assert s.stages["first"].bound == 10
    assert s.stages["first"].given_away == abs(first - 10)
    assert s.certificate.summary.startswith("optimal, proven exactly")


@pytest.mark.parametrize("within", [-1, "10", "ten %", None, True, "-1 %"])
def test_within_that_means_nothing_is_refused(within: object) -> None:
    p = fx.Problem("within")
    x = p.variables("x")
    with pytest.raises(fx.StatementError, match="within"):
        p.minimize("goal", x, within=within)
