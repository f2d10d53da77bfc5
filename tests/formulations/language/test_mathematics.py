"""The mathematics of a problem, derived from what was stated, against formulas written by hand."""

import pandas as pd
import pytest

import flowlex as fx

WEEKS = ["w1", "w2", "w3"]


@pytest.fixture
def lots():
    p = fx.Problem("lots")
    items = pd.Index(["soap", "gel"], name="item")
    stock = p.variables("stock", item=items, week=WEEKS)
    make = p.variables("make", item=items, week=WEEKS, upper=pd.Series([3, 4], index=items))
    on = p.variables("on", item=items, week=WEEKS, binary=True)
    first = p.data("i", pd.Series([1, 2], index=items))
    p.constrain("balance", stock.shift(week=1, start=first) + make == stock + 1)
    p.constrain("off", (make <= 0).when(1 - on))
    p.constrain("pause", on.rolling(week=2).sum() <= 1)
    p.minimize("cost", (8 * on * p.data("c", pd.Series([5, 6], index=items)) + stock / 2).sum())
    return p


@pytest.mark.parametrize(
    "line",
    [
        r"\min &\quad \sum_{i, w} \left(8 \, c_{i} \, \mathrm{on}_{i,w} + \frac{\mathrm{stock}_{i,w}}{2}\right)",
        r"\mathrm{stock}_{i,w-1} + \mathrm{make}_{i,w} = \mathrm{stock}_{i,w} + 1 \quad \forall i, w, "
        r"\quad \mathrm{stock}_{i,w-1} = i_{i} \text{ at the first } w",
        r"\mathrm{make}_{i,w} \le 0 \quad \text{if } \mathrm{on}_{i,w} = 0 \quad \forall i, w",
        r"\sum_{\tau=0}^{1} \mathrm{on}_{i,w-\tau} \le 1 \quad \forall i, w \in \{\text{w2}, \text{w3}\}",
        r"\mathrm{stock}_{i,w} \ge 0 \quad \forall i, w",
        r"0 \le \mathrm{make}_{i,w} \le \overline{\mathrm{make}}_{i,w} \quad \forall i, w",
        r"\mathrm{on}_{i,w} \in \{0, 1\} \quad \forall i, w",
    ],
)
def test_each_line_is_the_formula_one_would_write(lots, line):
    assert line in lots.to_latex()


def test_pairs_and_some_labels_are_named_as_such():
    p = fx.Problem("pairs")
    pairs = pd.DataFrame({"first": ["a", "a", "b"], "second": ["b", "c", "c"]})
    x = p.variables("x", job=["a", "b", "c"], integer=True, upper=3)
    y = p.variables("y", over=pairs, lower=None)
    p.constrain("apart", x.at(pairs, job="first") + y <= x.at(pairs, job="second"))
    p.constrain("late", x.sel(job=["b", "c"]) >= 1)
    text = p.to_latex()
    assert r"x_{f} + y_{f,s} \le x_{s} \quad \forall (f, s)" in text
    assert r"x_{j} \ge 1 \quad \forall j \in \{\text{b}, \text{c}\}" in text
    assert r"x_{j} \in \{0, \dots, 3\} \quad \forall j" in text
    assert r"y_{f,s} \in \mathbb{R} \quad \forall (f, s)" in text


def test_a_quotient_reads_as_one():
    p = fx.Problem("half")
    x = p.variables("x", job=["a", "b"])
    assert repr(x / 2) == "x[job] / 2  for each job (2)"
