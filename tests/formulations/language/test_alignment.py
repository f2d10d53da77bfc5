"""One rule of alignment: operands meet by the names of their levels, every label finds exactly one partner.

Many of these cases are silent faults that users of linopy reported (issues 295, 569 to 572, 586, 707, 708, 711 to 714
of PyPSA/linopy): here each gives the right value or an error that names the label.
"""

import datetime
import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import flowlex as fx
from tests.formulations.language.stated_rows import rows

LABELS = ["A1", "A5", "A11", "A100"]
#: The same numbers by label, in another order.
NUMBERS = {"A100": 100, "A1": 1, "A11": 11, "A5": 5}
RULES: dict[str, Callable[[Any, Any], Any]] = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}
TURNED = {"<=": ">=", ">=": "<=", "==": "=="}


def series(numbers: dict[Any, Any], level: str = "i", **kind: Any) -> pd.Series:
    return pd.Series(list(numbers.values()), pd.Index(list(numbers), name=level, tupleize_cols=False), **kind)


def problem() -> tuple[fx.Problem, Any]:
    p = fx.Problem("aligned")
    return p, p.variables("x", i=LABELS)


# ---- data of every kind, for every operator, on either side

DATA: dict[str, Any] = {
    "series": series(NUMBERS),
    "series of fractions": series({k: Fraction(v) for k, v in NUMBERS.items()}, dtype=object),
    "series of decimals": series({k: Decimal(v) for k, v in NUMBERS.items()}, dtype=object),
    "series of floats": series(NUMBERS, dtype=float),
    "dict": NUMBERS,
}


@pytest.mark.parametrize("kind", list(DATA))
@pytest.mark.parametrize("relation", list(RULES))
@pytest.mark.parametrize("side", ["left", "right"])
def test_comparisons_match_by_label_in_any_order_on_either_side(kind: str, relation: str, side: str) -> None:
    p, x = problem()
    data = DATA[kind]
    if side == "left" and kind == "dict":
        rule = RULES[relation](data, x)  # Python turns it around
    else:
        rule = RULES[relation](x, data) if side == "right" else RULES[relation](data, x)
    p.constrain("r", rule)
    found = rows(p, "r")
    for label in LABELS:
        terms, stated, right = found[label]
        times = terms[f"x[{label}]"]
        assert right / times == NUMBERS[label]
        wanted = relation if side == "right" else TURNED[relation]
        assert (stated if times > 0 else TURNED[stated]) == wanted


@pytest.mark.parametrize("kind", list(DATA))
@pytest.mark.parametrize(("name", "times", "constant"), [("+", 1, 1), ("-", 1, -1), ("r+", 1, 1), ("r-", -1, 1)])
def test_sums_match_by_label(kind: str, name: str, times: int, constant: int) -> None:
    p, x = problem()
    data = DATA[kind]
    found = {"+": lambda: x + data, "-": lambda: x - data, "r+": lambda: data + x, "r-": lambda: data - x}[name]()
    p.constrain("r", found <= 0)
    for label, (terms, _, right) in rows(p, "r").items():
        assert terms == {f"x[{label}]": times}
        assert right == -constant * NUMBERS[label]


@pytest.mark.parametrize("kind", list(DATA))
@pytest.mark.parametrize("turned", [False, True])
def test_products_match_by_label(kind: str, turned: bool) -> None:
    p, x = problem()
    data = DATA[kind]
    p.constrain("r", (data * x if turned else x * data) <= 1)
    assert {k: v[0] for k, v in rows(p, "r").items()} == {k: {f"x[{k}]": v} for k, v in NUMBERS.items()}


@pytest.mark.parametrize("number", [3, 3.0, Fraction(3), Decimal(3), np.int64(3), np.float64(3)])
def test_numbers_of_every_kind_hold_for_all_labels(number: Any) -> None:
    p, x = problem()
    p.constrain("a", x + number <= 2 * x * number)
    p.constrain("b", number - x >= -number)
    assert rows(p, "a")["A5"] == ({"x[A5]": -5}, "<=", -3)
    assert rows(p, "b")["A5"] == ({"x[A5]": -1}, ">=", -6)


def test_x_minus_a_and_x_compared_with_a_are_the_same_rows() -> None:
    p, x = problem()
    data = series(NUMBERS)
    p.constrain("difference", x - data <= 0)
    p.constrain("compared", x <= data)
    assert rows(p, "difference") == rows(p, "compared")


def test_frames_match_by_both_levels_whatever_their_order() -> None:
    p = fx.Problem("frame")
    x = p.variables("x", i=["a", "b"], t=[1, 2, 3])
    frame = pd.DataFrame([[31, 11, 21], [32, 12, 22]], pd.Index(["a", "b"], name="i"), pd.Index([3, 1, 2], name="t"))
    p.constrain("r", x <= frame)
    p.constrain("turned", x <= frame.T.iloc[::-1])
    want = {(i, t): 10 * t + (1 if i == "a" else 2) for i in "ab" for t in (1, 2, 3)}
    assert {k: v[2] for k, v in rows(p, "r").items()} == want
    assert rows(p, "turned") == rows(p, "r")


def test_the_smaller_operand_is_repeated_along_the_rest() -> None:
    p = fx.Problem("repeat")
    x = p.variables("x", task=["t", "u"], gpu=[0, 1])
    y = p.variables("open", gpu=[1, 0], binary=True)
    p.constrain("a", x <= y)
    p.constrain("b", y >= x)
    assert rows(p, "a")["t", 1] == ({"x[t,1]": 1, "open[1]": -1}, "<=", 0)
    assert rows(p, "b")["t", 1] == ({"x[t,1]": -1, "open[1]": 1}, ">=", 0)


def test_associative_whatever_the_order_of_additions() -> None:
    p, x = problem()
    y = p.variables("y", i=LABELS)
    data = series(NUMBERS)
    p.constrain("a", (x + data) + y <= 0)
    p.constrain("b", x + (data + y) <= 0)
    p.constrain("c", (x + y) + data <= 0)
    assert rows(p, "a") == rows(p, "b") == rows(p, "c")


# ---- labels that are missing, doubled, unknown

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **RULES, "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip


@pytest.mark.parametrize("name", list(OPERATORS))
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("fault", ["missing", "doubled", "unknown", "NaN", "infinite", "text", "truth"])
def test_a_label_without_exactly_one_number_is_an_error_that_names_it(name: str, turned: bool, fault: str) -> None:
    _, x = problem()
    data = series({k: v for k, v in NUMBERS.items() if k != "A11"} if fault == "missing" else NUMBERS, dtype=object)
    if fault == "doubled":
        data = pd.concat([data, series({"A11": 12})])
        data.index.name = "i"
    elif fault == "unknown":
        data = series({**NUMBERS, "A12": 3})
    elif fault != "missing":
        data["A11"] = {"NaN": float("nan"), "infinite": float("inf"), "text": "11", "truth": True}[fault]
    if name == "/" and turned:
        return
    with pytest.raises(fx.StatementError) as caught:
        OPERATORS[name](data, x) if turned else OPERATORS[name](x, data)
    shown = {"unknown": "A12", "text": "'11'", "truth": "True"}.get(fault, "A11")
    assert shown in str(caught.value)


@pytest.mark.parametrize("name", ["<=", ">=", "==", "+", "-"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_subset_of_variables_does_not_drop_terms(name: str, turned: bool) -> None:
    _, x = problem()
    part = x.sel(i=["A1", "A5"])
    with pytest.raises(fx.StatementError, match=r"A11|A100"):
        OPERATORS[name](part, x) if turned else OPERATORS[name](x, part)


@pytest.mark.parametrize("turned", [False, True])
def test_two_selections_of_one_size_are_not_matched_by_position(turned: bool) -> None:
    _, x = problem()
    one, two = x.sel(i=["A1", "A5"]), x.sel(i=["A11", "A100"])
    with pytest.raises(fx.StatementError, match="A"):
        _ = two + one if turned else one + two


def test_a_gap_that_is_meant_is_said_and_counts_as_its_number() -> None:
    p, x = problem()
    part = series({"A1": 2, "A5": 3})
    filled = p.data("part", part).reindex(x, fill=7)
    p.constrain("r", x <= filled)
    assert {k: v[2] for k, v in rows(p, "r").items()} == {"A1": 2, "A5": 3, "A11": 7, "A100": 7}


def test_a_gap_in_data_of_nothing_counts_as_its_number_too() -> None:
    p, x = problem()
    p.constrain("r", x <= p.data("part", series({})).reindex(x, fill=0.5))
    p.maximize("sum", x.sum())
    s = p.solve()
    assert s.objective == 2 and s.certificate.exact


def test_an_absent_variable_is_not_one_that_is_zero() -> None:
    p, x = problem()
    part = x.sel(i=["A1", "A5"]).reindex(x)
    p.constrain("r", x + part <= 1)
    assert rows(p, "r")["A1"][0] == {"x[A1]": 2}
    assert rows(p, "r")["A11"][0] == {"x[A11]": 1}


def test_levels_that_are_not_contained_are_an_error_that_names_both() -> None:
    p = fx.Problem("apart")
    x = p.variables("x", worker=["ann"], shift=["mon"])
    y = p.variables("y", worker=["ann"], skill=["nurse"])
    with pytest.raises(fx.StatementError, match=r"(?s)'shift'.*'skill'"):
        _ = x + y
    a, b = p.cross(x.sum(over="worker"), y.sum(over="worker"))
    p.constrain("r", a + b <= 1)
    assert rows(p, "r")["mon", "nurse"][0] == {"x[ann,mon]": 1, "y[ann,nurse]": 1}


def test_conflicting_labels_that_follow_are_an_error_that_names_them() -> None:
    p = fx.Problem("follow")
    one = pd.DataFrame({"rack": ["r1", "r2"]}, pd.Index([0, 1], name="gpu"))
    two = pd.DataFrame({"rack": ["r1", "r1"]}, pd.Index([0, 1], name="gpu"))
    p.set("rack", ["r1", "r2"])
    x, y = p.variables("x", over=one), p.variables("y", over=two)
    for each in (lambda: x + y, lambda: y - x, lambda: x <= y, lambda: y == x):
        with pytest.raises(fx.StatementError, match=r"rack of gpu=1.*'r\d'.*'r\d'"):
            each()


def test_arrays_and_lists_have_no_labels() -> None:
    _, x = problem()
    for each in (np.arange(4), [1, 2, 3, 4], (1, 2, 3, 4)):
        for name in ("<=", "+", "*"):
            with pytest.raises(fx.StatementError, match="no labels"):
                OPERATORS[name](x, each)
    with pytest.raises(fx.StatementError, match="no name"):
        _ = x + pd.Series([1, 2, 3, 4], LABELS)


@pytest.mark.parametrize("value", [None, "3", True, np.bool_(False), float("nan"), float("inf"), object()])
@pytest.mark.parametrize("name", ["<=", "+", "-", "*"])
def test_what_is_no_number_is_refused(value: Any, name: str) -> None:
    _, x = problem()
    with pytest.raises(fx.StatementError):
        OPERATORS[name](x, value)
    if name != "<=":
        with pytest.raises((fx.StatementError, TypeError)):
            OPERATORS[name](value, x)


def test_rules_and_expressions_have_no_truth_value() -> None:
    _, x = problem()
    for each in (lambda: bool(x <= 1), lambda: bool(x), lambda: x < 1, lambda: x > 1, lambda: x != 1, lambda: list(x)):
        with pytest.raises(fx.StatementError):
            each()
    with pytest.raises(fx.StatementError, match="true nor false"):
        _ = 0 <= x <= 1


def test_variables_of_another_problem_are_refused_by_name() -> None:
    _, x = problem()
    q, y = problem()
    with pytest.raises(fx.StatementError, match="another problem"):
        _ = x + y
    with pytest.raises(fx.StatementError, match="another problem"):
        q.constrain("r", x <= 1)
    with pytest.raises(fx.StatementError, match="another problem"):
        q.minimize("goal", x.sum())


# ---- labels of any kind

ODD: dict[str, list[Any]] = {
    "one": ["only"],
    "mixed": ["a", 1, 2.5, ("t", 3)],
    "tuples": [("a", 1), ("a", 2), ("b", 1)],
    "dates": [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)],
    "times": [pd.Timestamp("2026-01-01"), pd.Timestamp("2026-01-02 03:04")],
    "scripts": ["Ärzte", "医生", "врач", "🚑", "a b", ""],
    "brackets": ["x[1]", "a,b", "[", "]", ",", '"', "a,", ",b"],
    "numbers and their text": [1, "1", 10, "10"],
    "negative": [-1, 0, 1],
}


@pytest.mark.parametrize("kind", list(ODD))
def test_labels_of_any_kind_are_matched_selected_and_solved(kind: str) -> None:
    labels = ODD[kind]
    p = fx.Problem("odd")
    x = p.variables("x", i=labels, upper=100)
    wanted = {label: k + 1 for k, label in enumerate(labels)}
    data = series(dict(reversed(list(wanted.items()))))
    p.constrain("side", x >= data)
    p.minimize("goal", x.sum())
    s = p.solve()
    assert s.certificate.claim == "optimal"
    assert dict(zip(s["x"].index.tolist(), s["x"].tolist(), strict=True)) == wanted
    assert len(set(p.column_names())) == len(labels)
    assert len(x.sel(i=[labels[-1]])) == 1
    assert p.row("side", i=labels[-1]).endswith(f">= {len(labels)}")


def test_labels_that_read_the_same_are_told_apart_or_refused() -> None:
    p = fx.Problem("same")
    p.variables("x", i=[("a", 1), "('a', 1)"])
    with pytest.raises(fx.StatementError, match="read the same"):
        p.column_names()


def test_empty_sets_give_empty_rows_and_sums_of_zero() -> None:
    p = fx.Problem("empty")
    x = p.variables("x", i=[])
    y = p.variables("y", upper=3)
    p.constrain("none", x <= 1)
    p.constrain("sum", y + x.sum() <= 2)
    p.maximize("goal", y)
    assert rows(p, "none") == {}
    s = p.solve()
    assert s.objective == 2
    assert s["x"].empty


def test_a_row_without_variables_holds_or_is_refused_by_name() -> None:
    p, x = problem()
    some = x.sel(i=["A1"]).reindex(x)
    p.constrain("holds", some <= series({"A1": 1, "A5": 0, "A11": 2, "A100": 0}))
    with pytest.raises(fx.StatementError, match=r"fails\[A11\].*cannot hold"):
        p.constrain("fails", some >= series({"A1": 1, "A5": 0, "A11": 2, "A100": 0}))
    with pytest.raises(fx.StatementError, match="expected a rule"):
        p.constrain("no rule", True)  # type: ignore[arg-type]


def test_decimals_and_fractions_are_exact_not_rounded() -> None:
    p, x = problem()
    p.constrain("thirds", x * Fraction(1, 3) + x * Fraction(1, 6) <= Decimal("0.1"))
    assert rows(p, "thirds")["A1"] == ({"x[A1]": Fraction(1, 2)}, "<=", Fraction(1, 10))
    p.constrain("tenths", x * 0.1 + x * 0.2 - x * 0.3 <= 0.7)
    assert rows(p, "tenths")["A1"] == ({}, "<=", Fraction(7, 10))


def test_bounds_by_label_and_position() -> None:
    p = fx.Problem("bounds")
    p.variables("a", i=LABELS, upper=NUMBERS, lower=series(NUMBERS) / 2)
    p.variables("b", i=LABELS, t=[0, 1], upper=series(NUMBERS))
    p.variables("c", i=LABELS, upper=np.array([1, 2, 3, np.inf]))
    assert p.blocks["a"].upper.tolist() == [1, 5, 11, 100]
    assert p.blocks["a"].lower.tolist() == [0.5, 2.5, 5.5, 50]
    assert p.blocks["b"].upper.tolist() == [1, 1, 5, 5, 11, 11, 100, 100]
    assert p.blocks["c"].upper.tolist() == [1, 2, 3, np.inf]
    with pytest.raises(fx.StatementError, match="A11"):
        p.variables("d", i=LABELS, upper={k: v for k, v in NUMBERS.items() if k != "A11"})
    with pytest.raises(fx.StatementError, match="A11"):
        p.variables("d", i=LABELS, lower=series({**NUMBERS, "A11": float("nan")}))
    with pytest.raises(fx.StatementError, match=r"A5\b"):
        p.variables("d", i=LABELS, lower=6, upper=series({**NUMBERS, "A1": 7}))
