"""Sorted vectors against enumeration, convex costs against their definition, and what `within` gives away."""

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
@pytest.mark.parametrize("seed", range(4))
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


@pytest.mark.parametrize("smallest", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_sorted_integers_with_signs_steps_and_constants(seed: int, smallest: bool) -> None:
    rng = np.random.default_rng(seed)
    p = fx.Problem("entries")
    n = int(rng.integers(2, 4))
    low, high = rng.integers(-2, 1, n), rng.integers(1, 3, n)
    x = p.variables("x", i=range(n), lower=low, upper=high, integer=True)
    p.constrain("sum", x.sum() == int(rng.integers(0, 3)))
    factor = pd.Series(rng.choice([-2, 1, 2, 3], n), pd.Index(range(n), name="i"))
    scale = float(rng.choice([1, 0.5, 3]))
    entries = x * factor * scale + 7 * scale * int(rng.integers(0, 2))
    (p.maximize_leximin if smallest else p.minimize_leximax)("fair", entries)
    s = p.solve()
    assert s.certificate.summary.startswith("optimal, proven exactly")
    rule = p.copy()
    rule.constrain("entry", entries <= 10**6)
    block = rule.rows["entry"]
    size = np.zeros(n)
    size[block.rows] = block.values * float(block.unit)
    constant = (10**6 - block.rhs * float(block.unit)).tolist()
    side = int(p.rows["sum"].rhs[0] * p.rows["sum"].unit)
    ranges = [range(a, b + 1) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    vectors = [
        sorted((size * np.array(v) + constant).tolist(), reverse=not smallest)
        for v in itertools.product(*ranges)
        if sum(v) == side
    ]
    found = sorted((size * s.values("x").to_numpy() + constant).tolist(), reverse=not smallest)
    assert found == (max(vectors) if smallest else min(vectors))


def test_fair_shares_of_forty_two_jobs_end() -> None:
    """The sums of the largest did not end in 200 s; the levels of integer entries stay a network."""
    rng = np.random.default_rng(1)
    rows = [
        (f"{job}.{k}", gpu, job)
        for job in range(42)
        for k in range(1 + job % 8)
        for gpu in rng.choice(84, 3, replace=False).tolist()
    ]
    p = fx.Problem("shares")
    x = p.variables("x", over=pd.DataFrame(rows, columns=["task", "gpu", "job"]), keys=["task", "gpu"], binary=True)
    p.constrain("task", x.sum(by="task") <= 1)
    p.constrain("gpu", x.sum(by="gpu") <= 1)
    p.maximize_leximin("share", x.sum(by="job"))
    s = p.solve()
    assert s.certificate.summary.startswith("optimal, proven exactly")
    shares = pd.Series(1, pd.MultiIndex.from_tuples(s["x"].index)).groupby(lambda i: i[0].split(".")[0]).sum()
    assert shares.sum() == 84 and shares.min() == s.stages["share_1"].value == 1


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


@pytest.mark.parametrize("seed", range(12))
def test_stages_over_entries_alone_have_the_values_and_proofs_of_all_pairs(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    jobs = pd.RangeIndex(int(rng.integers(2, 8)), name="job")
    links = pd.RangeIndex(int(rng.integers(1, 4)), name="link")
    most = pd.DataFrame(rng.integers(0, 9, (len(jobs), len(links))), index=jobs, columns=links)
    p = fx.Problem("fair")
    x = p.variables("x", job=jobs, link=links, upper=most)
    p.constrain("room", x.sum(by="link") <= pd.Series(rng.integers(1, 20, len(links)), index=links))
    if seed % 3 == 0:
        p.minimize("first", (x * pd.Series(rng.integers(-3, 4, len(jobs)), index=jobs)).sum())
    shares = x.sum(by="job") * pd.Series(rng.integers(1, 4, len(jobs)), index=jobs)
    if seed % 2:
        p.maximize_leximin("share", shares + pd.Series(rng.integers(0, 3, len(jobs)), index=jobs))
    else:
        p.minimize_leximax("share", shares)
    p.maximize("last", x.sum())
    direct = p.solve()
    monkeypatch.setattr("flowlex.formulations.language.sorted_and_convex.sorted_vectors", lambda problem: [])
    plain = p.solve()
    for one, other in zip(direct.stages.values(), plain.stages.values(), strict=True):
        assert one.proven
        assert one.value == pytest.approx(other.value)


def test_fair_shares_of_eighty_entries_are_solved_and_proven() -> None:
    rng = np.random.default_rng(0)
    jobs, links = pd.RangeIndex(80, name="job"), pd.RangeIndex(16, name="link")
    p = fx.Problem("fair")
    most = pd.DataFrame(rng.integers(1, 9, (80, 16)) * (rng.random((80, 16)) < 0.4), index=jobs, columns=links)
    x = p.variables("x", job=jobs, link=links, upper=most)
    p.constrain("room", x.sum(by="link") <= pd.Series(rng.integers(5, 20, 16), index=links))
    p.maximize_leximin("share", x.sum(by="job"))
    assert p.solve().certificate.summary.startswith("optimal, proven")
