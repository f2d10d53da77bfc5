"""Misuse that a newcomer tries: an error names the offender, and nothing is half stated."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import flowlex as fx


def stated() -> tuple[Any, Any]:
    p = fx.Problem("shifts")
    x = p.variables("x", worker=["ann", "bob"], shift=["mon", "tue"], binary=True)
    p.constrain("cover", x.sum(by="shift") >= 1)
    p.minimize("count", x.sum())
    return p, x


@pytest.mark.parametrize(
    ("misuse", "names"),
    [
        (lambda p, x: p.without(["cover"]), r"no rows named \['cover'\]; "),
        (lambda p, x: p.relaxed(["x"]), r"no variables named \['x'\]; "),
        (lambda p, x: p.softened("cover", -1), "positive, got -1"),
        (lambda p, x: p.solve(start="no.sol"), "no.sol: cannot be read"),
        (lambda p, x: p.interpret("no.sol"), "no.sol: cannot be read"),
        (lambda p, x: p.solve(report=3), "report must be a function"),
        (lambda p, x: p.solve(certify="no"), "certify must be True or False"),
        (lambda p, x: p.minimize_leximax("q", x.sum(by="worker"), breakpoints="ab"), "breakpoints .* got 'ab'"),
        (lambda p, x: p.minimize_leximax("q", x.sum(by="worker"), breakpoints=[]), r"breakpoints .* got \[\]"),
        (lambda p, x: p.convex_cost("q", x.sum(by="worker"), [1, 2]), r"pairs of width and rate .* got \[1, 2\]"),
        (lambda p, x: p.convex_cost("q", 3, [(1, 2)]), "expected an expression, got 3"),
        (lambda p, x: x.sum(by=3), "got 3"),
        (lambda p, x: x.sum(by=["worker", "worker"]), "distinct names"),
        (lambda p, x: x.rolling(shift="a"), "rolling: .* got 'a'"),
        (lambda p, x: p.cross(3, x), "cross: expected two expressions, got 3"),
        (lambda p, x: 1 / x, "not linear"),
        (lambda p, x: x**2, "not linear"),
        (lambda p, x: abs(x), "size of .* is not linear"),
        (lambda p, x: x % 2, "there are"),
        (lambda p, x: p.constrain("a", x <= 1, words=3), "as text, got 3"),
        (lambda p, x: p.variables("y", integer="yes"), "True or False, got 'yes'"),
        (lambda p, x: p.data(3, 3), "name as text, got 3"),
        (lambda p, x: 10**400 * x, "too large"),
        (lambda p, x: x.at(pd.DataFrame({"a": ["ann"]}), worker="b"), "no column of the table 'b'; there are: a"),
        (lambda p, x: x + pd.Series([1], index=pd.Index(["q"], name="day")), "the other 'day'"),
        (lambda p, x: p.variables("y", day=["mon"], lower="a"), "lower bound of 'y'"),
        (lambda p, x: p.constrain("late", (x <= 1).when(p.variables("free", lower=None))), "binary variable"),
    ],
)
def test_errors_name_the_offender_and_leave_no_trace(misuse: Callable[[Any, Any], Any], names: str) -> None:
    p, x = stated()
    with pytest.raises(fx.FlowlexError, match=names):
        misuse(p, x)
    assert set(p.levels) == {"worker", "shift"}
    assert set(p.rows) == {"cover"}
    p.variables("y", day=["tue"])  # whatever was tried before


def test_rows_of_a_switched_equation_do_not_replace_others() -> None:
    p, x = stated()
    y = p.variables("y", binary=True)
    p.constrain("exact_upper", x.sum() <= 3)
    with pytest.raises(fx.FlowlexError, match="exact_upper"):
        p.constrain("exact", (x.sum() == 2).when(y))
    assert set(p.rows) == {"cover", "exact_upper"}


def test_a_statement_that_fails_halfway_is_undone() -> None:
    p, x = stated()
    p.variables("q_excess")
    with pytest.raises(fx.FlowlexError, match="q_excess"):
        p.minimize_leximax("q", x.sum(by="worker"))
    assert set(p.blocks) == {"x", "q_excess"}
    assert [o.name for o in p.objectives] == ["count"]


def test_a_later_objectives_file_keeps_the_optimum_of_the_first(tmp_path: Path) -> None:
    p = fx.Problem("two")
    x = p.variables("x", side=["left", "right"], upper=10)
    p.constrain("sum", x.sum() <= 12)
    p.maximize("first", x.sum(), within=1)
    p.minimize("second", x.sel(side="right"))
    s = p.solve()
    assert (s.stages["first"].value, s.stages["second"].value) == (11, 1)
    p.stage("second", s).write(tmp_path / "second.mps")
    assert fx.read(tmp_path / "second.mps").solve().objective == 1  # not 0, which gives up twice as much


@pytest.mark.parametrize("size", [1e-12, 1e-10, 1e12, 1e15])
def test_rows_and_objectives_of_extreme_size_are_solved_and_proven(size: float) -> None:
    p = fx.Problem("extreme")
    x, y = (p.variables(name, upper=10, integer=True) for name in "xy")
    p.constrain("sum", size * x + size * y <= 5.5 * size)
    p.maximize("first", size * x)
    p.maximize("second", y)
    s = p.solve()
    assert (s.values("x").iloc[0], s.values("y").iloc[0]) == (5, 0)
    assert s.certificate.summary == "optimal, proven exactly: 5 checks"


def test_bounds_that_solvers_read_as_infinite_are_refused() -> None:
    p = fx.Problem("large")
    x = p.variables("x", upper=1e30)
    p.maximize("most", x)
    with pytest.raises(fx.FlowlexError, match=r"x: solvers read 1e\+30 as infinite"):
        p.solve()


def test_no_integer_between_bounds_names_the_variable() -> None:
    p = fx.Problem("gap")
    p.variables("x", integer=True, lower=0.2, upper=0.8)
    s = p.solve()
    assert (s.status, s.message) == ("infeasible", "No integer lies within the bounds 0.2 <= x <= 0.8.")


@pytest.mark.parametrize("ending", ["mps", "lp"])
def test_labels_of_200_characters_and_no_labels_are_written_and_read(tmp_path: Path, ending: str) -> None:
    for labels in ([], ["x" * 200, "x" * 199 + "y"]):
        p = fx.Problem("long")
        x = p.variables("x", part=labels, upper=5)
        p.maximize("most", x.sum() + 1)
        path = p.write(tmp_path / f"{len(labels)}.{ending}")[0]
        read = fx.read(path)
        assert read.levels["column"].labels == tuple(p.column_names())
        assert read.solve().objective == p.solve().objective
