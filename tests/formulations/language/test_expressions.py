"""Sums, readings along ordered levels and through tables, selections: each against its definition."""

import pandas as pd
import pytest

import flowlex as fx
from tests.formulations.language.stated_rows import rows


def _weeks() -> tuple[fx.Problem, object]:
    p = fx.Problem("weeks")
    return p, p.variables("x", item=["a", "b"], week=[1, 2, 3, 4])


def terms(p: fx.Problem, name: str) -> dict[object, dict[str, int]]:
    return {label: {k: int(v) for k, v in row[0].items()} for label, row in rows(p, name).items()}


# ---- sums


def test_a_sum_by_one_level_has_a_member_for_every_label_of_its_domain() -> None:
    p = fx.Problem("sums")
    p.set("gpu", [0, 1, 2])
    x = p.variables("x", over=pd.MultiIndex.from_tuples([("t", 0), ("t", 2), ("u", 2)], names=["task", "gpu"]))
    p.constrain("gpu", x.sum(by="gpu") <= 1)
    assert terms(p, "gpu") == {0: {"x[t,0]": 1}, 1: {}, 2: {"x[t,2]": 1, "x[u,2]": 1}}
    with pytest.raises(fx.StatementError, match=r"most\[1\]"):
        p.constrain("most", x.sum(by="gpu") >= 1)


def test_a_sum_by_several_levels_has_the_combinations_that_occur() -> None:
    p = fx.Problem("sums")
    p.set("gpu", [0, 1, 2])
    pairs = pd.MultiIndex.from_tuples([("t", 0, 5), ("t", 2, 5), ("t", 2, 6)], names=["task", "gpu", "h"])
    x = p.variables("x", over=pairs)
    p.constrain("pairs", x.sum(by=("task", "gpu")) <= 1)
    assert terms(p, "pairs") == {("t", 0): {"x[t,0,5]": 1}, ("t", 2): {"x[t,2,5]": 1, "x[t,2,6]": 1}}


def test_sums_over_levels_and_of_everything() -> None:
    p, x = _weeks()
    p.constrain("over", x.sum(over="week") <= 1)
    p.constrain("all", x.sum() + 2 * x.sel(item="a").sum() <= 1)
    assert terms(p, "over")["a"] == {f"x[a,{w}]": 1 for w in range(1, 5)}
    assert terms(p, "all")[()] == {f"x[a,{w}]": 3 for w in range(1, 5)} | {f"x[b,{w}]": 1 for w in range(1, 5)}
    for wrong in ({"by": "day"}, {"over": "day"}):
        with pytest.raises(fx.StatementError, match="'day'"):
            x.sum(**wrong)


def test_sums_of_data_keep_constants() -> None:
    p, x = _weeks()
    more = pd.Series([1, 2, 3, 4], pd.Index([1, 2, 3, 4], name="week"))
    p.constrain("r", (x + more).sum(by="item") <= 0)
    assert {k: v[2] for k, v in rows(p, "r").items()} == {"a": -10, "b": -10}


def test_labels_that_follow_are_summed_and_selected_by() -> None:
    p = fx.Problem("follow")
    x = p.variables("x", over=pd.DataFrame({"rack": ["r", "s", "r"]}, pd.Index([0, 1, 2], name="gpu")))
    p.constrain("rack", x.sum(by="rack") <= 1)
    p.constrain("one", x.sel(rack="r") <= 1)
    assert terms(p, "rack") == {"r": {"x[0]": 1, "x[2]": 1}, "s": {"x[1]": 1}}
    assert terms(p, "one") == {0: {"x[0]": 1}, 2: {"x[2]": 1}}


# ---- selections


def test_selections_by_label_list_and_slice_with_both_ends() -> None:
    p, x = _weeks()
    for name, each, want in (
        ("label", x.sel(week=2), ["a", "b"]),
        ("list", x.sel(item="a").sel(week=[3, 1]), [1, 3]),
        ("slice", x.sel(item="a").sel(week=slice(2, 3)), [2, 3]),
        ("open", x.sel(item="a").sel(week=slice(3, None)), [3, 4]),
        ("between", x.sel(item="a").sel(week=slice(1.5, 3.5)), [2, 3]),
    ):
        p.constrain(name, each <= 1)
        assert list(rows(p, name)) == want
    with pytest.raises(fx.StatementError, match="5"):
        x.sel(week=5)
    with pytest.raises(fx.StatementError, match="'day'"):
        x.sel(day=5)


# ---- along an ordered level


def test_shift_reads_before_and_starts_with_what_is_given() -> None:
    p, x = _weeks()
    stock = pd.Series({"b": 7, "a": 5}).rename_axis("item")
    p.constrain("plain", x - x.shift(week=1) <= 0)
    p.constrain("number", x.shift(week=1, start=3) <= 9)
    p.constrain("series", x.shift(week=2, start=stock) <= 9)
    p.constrain("after", x.shift(week=-1, start=9) <= 9)
    assert terms(p, "plain")["a", 1] == {"x[a,1]": 1}
    assert terms(p, "plain")["a", 3] == {"x[a,3]": 1, "x[a,2]": -1}
    assert rows(p, "number")["b", 1] == ({}, "<=", 6)
    assert rows(p, "series")["b", 2] == ({}, "<=", 2)
    assert rows(p, "series")["a", 1] == ({}, "<=", 4)
    assert terms(p, "series")["a", 3] == {"x[a,1]": 1}
    assert terms(p, "after")["a", 1] == {"x[a,2]": 1}
    assert rows(p, "after")["a", 4] == ({}, "<=", 0)


def test_a_start_without_a_label_or_with_another_level_is_refused() -> None:
    _, x = _weeks()
    with pytest.raises(fx.StatementError, match="'b'"):
        x.shift(week=1, start=pd.Series({"a": 5}).rename_axis("item"))
    for wrong in ({"day": 1}, {"week": 1.5}, {"week": True}):
        with pytest.raises(fx.StatementError):
            x.shift(**wrong)


def test_diff_is_the_change_since_before() -> None:
    p, x = _weeks()
    p.constrain("diff", x.diff(week=1, start=4) <= 0)
    p.constrain("same", x - x.shift(week=1, start=4) <= 0)
    assert rows(p, "diff") == rows(p, "same")
    assert rows(p, "diff")["a", 1] == ({"x[a,1]": 1}, "<=", 4)


@pytest.mark.parametrize("width", [1, 2, 4, 5])
def test_rolling_sums_whole_windows_at_their_last_label(width: int) -> None:
    p, x = _weeks()
    p.constrain("roll", x.rolling(week=width).sum() <= 1)
    want = {(i, w): {f"x[{i},{v}]": 1 for v in range(w - width + 1, w + 1)} for i in "ab" for w in range(width, 5)}
    assert terms(p, "roll") == want
    with pytest.raises(fx.StatementError, match="0"):
        x.rolling(week=0)


def test_shift_over_sparse_labels_names_the_gap() -> None:
    p = fx.Problem("sparse")
    p.set("week", [1, 2, 3])
    x = p.variables("x", over=pd.MultiIndex.from_tuples([("a", 1), ("a", 3)], names=["item", "week"]))
    with pytest.raises(fx.StatementError, match=r"week=2"):
        x.shift(week=1)


# ---- through tables


def test_at_reads_a_table_row_by_row() -> None:
    p = fx.Problem("conflicts")
    put = p.variables("put", vm=["v", "w", "u"], bin=[1, 2], binary=True)
    conflicts = pd.DataFrame({"a": ["v", "u"], "b": ["w", "v"]})
    p.constrain("apart", put.at(conflicts, vm="a") + put.at(conflicts, vm="b") <= 1)
    assert terms(p, "apart") == {("v", "w", k): {f"put[v,{k}]": 1, f"put[w,{k}]": 1} for k in (1, 2)} | {
        ("u", "v", k): {f"put[u,{k}]": 1, f"put[v,{k}]": 1} for k in (1, 2)
    }
    with pytest.raises(fx.StatementError, match="'z'"):
        put.at(pd.DataFrame({"a": ["v", "z"], "b": ["w", "v"]}), vm="a")


def test_at_reads_at_a_looked_up_label() -> None:
    p = fx.Problem("lookup")
    load = p.variables("load", machine=["m", "n"])
    start = p.variables("start", task=["s", "t"])
    machine_of = pd.Series({"t": "m", "s": "n"}).rename_axis("task")
    p.constrain("before", start <= load.at(machine=machine_of))
    assert terms(p, "before")["s"] == {"start[s]": 1, "load[n]": -1}
    with pytest.raises(fx.StatementError, match="'z'"):
        load.at(machine=pd.Series({"t": "z"}).rename_axis("task"))


def test_join_adds_the_levels_of_a_table_before_a_sum() -> None:
    p = fx.Problem("cover")
    work = p.variables("work", task=["s", "t", "idle"])
    covers = pd.DataFrame({"task": ["s", "s", "t"], "hour": [8, 9, 9]})
    p.set("hour", [8, 9, 10])
    p.constrain("hours", work.join(covers).sum(by="hour") <= 1)
    assert terms(p, "hours") == {8: {"work[s]": 1}, 9: {"work[s]": 1, "work[t]": 1}, 10: {}}


def test_cross_means_all_combinations() -> None:
    p = fx.Problem("cross")
    a, b = p.variables("a", i=[1, 2]), p.variables("b", j=[3, 4])
    left, right = p.cross(a, b)
    p.constrain("all", left - right <= 0)
    assert terms(p, "all") == {(i, j): {f"a[{i}]": 1, f"b[{j}]": -1} for i in (1, 2) for j in (3, 4)}


# ---- rules with a condition, softened rows


@pytest.mark.parametrize("relation", ["<=", ">=", "=="])
@pytest.mark.parametrize("negated", [False, True])
def test_when_switches_a_rule_off_and_nothing_else(relation: str, negated: bool) -> None:
    p = fx.Problem("when")
    x = p.variables("x", i=[0, 1], lower=-2, upper=3, integer=True)
    y = p.variables("y", binary=True)
    e = 2 * x.sel(i=0) - x.sel(i=1)
    rule = {"<=": e <= 1, ">=": e >= 1, "==": e == 1}[relation]
    p.constrain("r", rule.when(1 - y if negated else y))
    every = [r for name in p.rows for r in rows(p, name).values()]
    for a in range(-2, 4):
        for b in range(-2, 4):
            for on in (0, 1):
                at = {"x[0]": a, "x[1]": b, "y": on}
                value = 2 * a - b
                holds = {"<=": value <= 1, ">=": value >= 1, "==": value == 1}[relation]
                stated = all(_holds(r, at) for r in every)
                assert stated == (holds or on == int(negated))
    # The switch is the smallest that is safe: 2 x - x reaches 8 and -7.
    sizes = {abs(r[0]["y"]) for r in every}
    assert sizes == {"<=": {7}, ">=": {8}, "==": {7, 8}}[relation]


def _holds(row: tuple[dict[str, object], str, object], at: dict[str, int]) -> bool:
    terms_, relation, side = row
    value = sum(v * at[k] for k, v in terms_.items())  # type: ignore[operator,misc]
    return bool(value <= side if relation == "<=" else value >= side if relation == ">=" else value == side)  # type: ignore[operator]


def test_when_names_the_variable_without_a_bound_and_refuses_what_is_no_binary() -> None:
    p = fx.Problem("when")
    x = p.variables("x", i=["a", "b"], upper={"a": 3, "b": 4})
    z = p.variables("z")
    y = p.variables("y", binary=True)
    with pytest.raises(fx.StatementError, match=r"\bz\b"):
        p.constrain("r", (x + z <= 1).when(y))
    for wrong in (z, x, 2 * y, y + 1):
        with pytest.raises(fx.StatementError, match="binary"):
            p.constrain("r", (x <= 1).when(wrong))
    assert "r" not in p.rows


def test_softened_says_which_rows_give_and_by_how_much() -> None:
    for relation, want in (("<=", 2), (">=", 0), ("==", 2)):
        p = fx.Problem("soft")
        x = p.variables("x", i=["a", "b"], lower=3, upper=9)
        e = x
        side = {"a": 1, "b": 5}
        p.constrain("side", {"<=": e <= side, ">=": e >= side, "==": e == side}[relation])
        p.minimize("goal", x.sum())
        s = p.softened("side").solve()
        assert s.stages["violation"].value == want
        assert s.stages["goal"].value == {"<=": 6, ">=": 8, "==": 8}[relation]
        assert s.certificate.claim == "optimal"
        assert "side_violation" not in p.blocks
