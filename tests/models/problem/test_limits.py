"""Ctrl-C, limits, progress, and proofs that fail: the answer is returned with what holds."""

from __future__ import annotations

import io
import itertools
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

import flowlex as fx
from flowlex.formulations.lexicographic.objective_stages import solve_stages
from flowlex.formulations.lexicographic.solver_watch import Watch, interruptible
from flowlex.models import exact_proofs, problem_solving
from flowlex.models.solve_progress import ProgressLine
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.proofs.checker import OutOfTime
from tests.models.problem.exact_optimum import exact_optima


def test_a_tree_that_is_not_made_exact_in_time_leaves_the_bound_of_its_root(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = exact_proofs.exact_proof, []

    def late(*given: Any) -> Any:
        calls.append(len(given))
        if len(calls) == 1:
            raise OutOfTime
        return real(*given)

    monkeypatch.setattr(exact_proofs, "exact_proof", late)
    p = fx.Problem("odd")
    x = p.variables("x", good=range(7), binary=True)
    p.constrain("half", 2 * x.sum() <= 7)
    p.maximize("most", (x * pd.Series([9, 8, 7, 9, 8, 7, 9], index=pd.RangeIndex(7, name="good"))).sum())
    s = p.solve()
    assert s.objective == 27
    assert len(calls) > 1
    assert s.bound is not None
    assert s.bound >= 27


def hard(count: int = 60, seed: int = 1) -> fx.Problem:
    """A market split problem: HiGHS does not finish it, and finds answers at once."""
    rng = np.random.default_rng(seed)
    p = fx.Problem("market split")
    x = p.variables("x", good=range(count), binary=True)
    off = p.variables("off", market=range(6), side=["over", "under"], upper=10_000)
    goods = pd.Index(range(count), name="good")
    numbers = pd.DataFrame(rng.integers(0, 100, (6, count)), pd.Index(range(6), name="market"), goods)
    half = (numbers.sum(axis=1) // 2).rename("half")
    balance = off.sel(side="over") - off.sel(side="under")
    p.constrain("market", (x * numbers).sum(by="market") + balance == half)
    p.minimize("off", off.sum())
    return p


def knapsack() -> fx.Problem:
    """Values 5, 4, 3 for weights 4, 3, 2 and a limit of 5: the last two, 7."""
    p = fx.Problem("knapsack")
    index = pd.Index(["a", "b", "c"], name="thing")
    x = p.variables("x", thing=list(index), binary=True)
    p.constrain("weight", (x * pd.Series([4, 3, 2], index)).sum() <= 5)
    p.maximize("value", (x * pd.Series([5, 4, 3], index)).sum())
    return p


def test_ctrl_c_returns_the_best_answer_so_far() -> None:
    p = hard()
    seen: list[Any] = []

    def interrupt(solution: Any) -> None:
        seen.append(solution)
        if len(seen) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    s = p.solve(report=interrupt, max_steps=10_000_000)
    assert signal.getsignal(signal.SIGINT) is before
    assert s.status == "feasible" and s.message.startswith("Interrupted")
    assert s.certificate.ok and s.certificate.claim in ("feasible", "bounded")
    assert seen[0].certificate.ok and float(s.objective) <= float(seen[0].objective)
    assert fx.verify(s, p).verdict in ("proven", "quoted")


def test_a_second_ctrl_c_is_an_interrupt_as_usual() -> None:
    watch = Watch()
    with pytest.raises(KeyboardInterrupt), interruptible(watch):
        os.kill(os.getpid(), signal.SIGINT)
        assert watch.interrupted
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_another_thread_signals_are_left_alone() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(knapsack().solve().objective))
    thread.start()
    thread.join()
    assert found == [7]


def test_limits_end_with_an_answer_and_what_is_proven() -> None:
    for limit in ({"max_steps": 1}, {"time_limit_s": 2.0}):
        s = hard().solve(**limit)
        assert s.status == "feasible" and s.certificate.ok
        assert s.certificate.claim in ("bounded", "feasible")


def test_without_time_for_the_check_claims_are_quoted_and_wrong_figures_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p = knapsack()
    document = p.solve().to_dict()
    found = fx.verify(document, p, time_limit_s=1e-9)
    assert (found.verdict, found.claim) == ("quoted", "feasible")
    assert fx.verify(document | {"objective": 8}, p, time_limit_s=1e-9).verdict == "refused"
    monkeypatch.setattr(Budget, "remaining", lambda *_: Budget(0))
    s = p.solve()
    assert s.status == "optimal" and s["x"].to_dict() == {"b": 1, "c": 1}
    assert s.certificate.claim in ("feasible", "bounded") and not s.stages["value"].proven
    assert "time limit" in s.message


def test_without_time_for_a_tree_the_bound_of_its_root_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    p = fx.Problem("set packing")
    x = p.variables("x", i=range(7), binary=True)
    pairs = pd.DataFrame([(a, b) for a, b in itertools.combinations(range(7), 2)], columns=["u", "v"])
    p.constrain("edge", x.at(pairs, i="u") + x.at(pairs, i="v") <= 1)
    p.maximize("number", x.sum())
    monkeypatch.setattr(problem_solving, "_CUT_ROUNDS", 0)
    monkeypatch.setattr(Budget, "remaining", lambda *_: Budget(0))
    s = p.solve()
    assert s.objective == 1 and s.certificate.claim == "bounded"
    assert s.stages["number"].bound == 3  # half of each of seven, rounded
    assert fx.verify(s.to_dict(), p).ok


@pytest.mark.parametrize(
    ("integer", "small", "large", "best"),
    [(False, 1e-10, 1e12, 3e-12), (True, 1e-10, 1e12, 3), (True, 1e-10, 1e-12, 10**10), (False, 1e-10, 1e-12, 10**10)],
)
def test_hostile_coefficients_give_the_right_optimum(integer: bool, small: float, large: float, best: float) -> None:
    """``small x + large y >= 1``, with x three times cheaper than y; HiGHS drops 1e-10, and takes 1e-12 for 0."""
    p = fx.Problem("hostile")
    x = p.variables("x", upper=10**7 if large > 1 else None, integer=integer)
    y = p.variables("y", upper=5, integer=integer)
    p.constrain("row", x * small + y * large >= 1)
    p.minimize("cost", x + y * 3)
    s = p.solve()
    assert s.status == "optimal" and float(s.objective) == pytest.approx(best, rel=1e-6, abs=0)
    # At a vertex within the last digits of an integer the tree ends; the bound is not that of the optimum then.
    assert s.certificate.claim == ("bounded" if integer and large > 1 else "optimal")


@pytest.mark.parametrize(
    ("one", "two", "side", "integer", "best", "claim"),
    [
        (1e-20, 1, 1, False, 100, "optimal"),
        (1e-13, 1, 1e-13, True, 1, "optimal"),  # 0 if the row is not scaled up
        (1e16, 1e-4, 1e16, False, 1, "optimal"),
        (1e18, 1, 5e18, True, 5, "bounded"),
        (1e-300, 1e300, 1, False, None, "1e-300 of x is too small|1e+300 of y is too large"),
        (1, 1e20, 1, True, None, "1 of x is too small"),
    ],
)
def test_coefficients_out_of_a_solvers_range_are_scaled_or_named(
    one: float, two: float, side: float, integer: bool, best: float | None, claim: str
) -> None:
    p = fx.Problem("range")
    x, y = (p.variables(name, upper=10, integer=integer) for name in "xy")
    p.constrain("demand", one * x + two * y >= side)
    p.minimize("cost", x + 100 * y)
    if best is None:
        with pytest.raises(fx.FlowlexError, match="demand: the coefficient") as caught:
            p.solve()
        assert any(part in str(caught.value) for part in claim.split("|"))
        return
    s = p.solve()
    assert s.objective == pytest.approx(best, rel=1e-6) and s.certificate.claim == claim


def test_a_side_that_is_rounding_noise_is_met_within_the_tolerance() -> None:
    p = fx.Problem("noise")
    x, y = (p.variables(name, upper=10) for name in "xy")
    p.constrain("same", x - y == 0.1 + 0.2 - 0.3)  # 5.6e-17
    p.minimize("sum", x + y)
    s = p.solve()
    assert s.objective == 0 and s.certificate.claim == "optimal" and not s.certificate.exact
    assert not p.interpret({"x": {(): 1e-6}}).certificate.ok


def test_rows_of_tiny_coefficients_are_measured_by_them() -> None:
    p = fx.Problem("tiny")
    x = p.variables("x", upper=10)
    p.constrain("most", 1e-12 * x <= 1e-12)
    assert not p.interpret({"x": {(): 1.5}}).certificate.ok
    assert p.interpret({"x": {(): 1 + 1e-9}}).certificate.ok


@hypothesis.settings(max_examples=25, deadline=None, derandomize=True)
@hypothesis.given(
    numbers=st.lists(st.tuples(st.sampled_from([-3, -1, 1, 2, 7]), st.integers(-300, 300)), min_size=8, max_size=8),
    integer=st.booleans(),
    relations=st.lists(st.sampled_from(["<=", ">=", "=="]), min_size=2, max_size=2),
)
@hypothesis.example(  # q in units of its coefficients has a side that counts as infinite
    numbers=[(-3, 0), (-3, -300), (-3, 0), (1, 0), (-3, 0), (-3, 0), (-3, 0), (-3, 0)],
    integer=False,
    relations=["<=", ">="],
)
def test_numbers_of_any_size_end_with_what_holds_or_an_error_that_names_one(
    numbers: list[tuple[int, int]], integer: bool, relations: list[str]
) -> None:
    a, b, c, d, e, f, g, h = (float(f"{digit}e{power // 12}") for digit, power in numbers)
    if not integer:
        e, f = (float(f"{digit}e{power}") for digit, power in numbers[:2])
    p = fx.Problem("any")
    x, y = p.variables("x", upper=9, integer=integer), p.variables("y", upper=9)
    for name, left, side, relation in (("r", a * x + e * y, c, relations[0]), ("q", f * x + b * y, d, relations[1])):
        p.constrain(name, left <= side if relation == "<=" else left >= side if relation == ">=" else left == side)
    p.minimize("cost", g * x + h * y)
    try:
        s = p.solve()
    except fx.FlowlexError as error:
        assert "r: " in str(error) or "q: " in str(error)
        return
    status, optima = exact_optima(p) or ("", [])
    if s.certificate.exact and all(check.how == "recomputed" for check in s.certificate.checks):
        assert s.certificate.claim in (status, "feasible", "bounded")
    if s.certificate.exact and s.certificate.claim == "optimal":
        assert float(s.stages["cost"].exact[0]) == pytest.approx(float(optima[0]), rel=1e-6)


def test_a_problem_of_nothing_has_an_answer() -> None:
    p = fx.Problem("nothing")
    assert p.solve().certificate.summary.startswith("optimal, proven exactly")
    p.minimize("sum", p.variables("x", i=[]).sum())
    assert p.solve().objective == 0


def test_objectives_for_which_no_time_is_left_keep_the_answer() -> None:
    p = knapsack()
    p.minimize("things", p["x"].sum())
    arrays, costs = p.arrays(None), [np.array([-5.0, -4.0, -3.0]), np.ones(3)]
    watch = Watch()
    watch.found = lambda _: setattr(watch, "interrupted", True)  # after the first objective
    found = solve_stages(arrays, costs, strong=True, watch=watch)
    assert found.status == "feasible" and [stage.proven for stage in found.stages] == [True, False]
    assert [stage.value for stage in found.stages] == [-7, 2]


def test_answers_are_reported_on_the_way() -> None:
    seen: list[Any] = []
    s = hard(30).solve(report=seen.append, max_steps=50)
    assert seen and all(each.status == "feasible" and each.certificate.ok for each in seen)
    assert float(s.objective) <= float(seen[-1].objective)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_terminals_after_two_seconds() -> None:
    for stream, patience, shown in ((Terminal(), 3.0, True), (Terminal(), 0.0, False), (io.StringIO(), 3.0, False)):
        line = ProgressLine(["value"], [-1], [1.0], stream)
        line.began -= patience
        line(0, -7.0, -9.0)
        assert ("value: best 8, bound 10, gap 25 %" in stream.getvalue()) is shown
        line(0, None, None)
        line.end()
        assert stream.getvalue().endswith("\r") is shown


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("k"), MemoryError(), KeyboardInterrupt(), RuntimeError()])
def test_an_answer_is_not_lost_because_its_proof_fails(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> Any:
        raise error

    monkeypatch.setattr(problem_solving, "proven", broken)
    p = knapsack()
    s = p.solve()
    assert (s.objective, s["x"].to_dict()) == (7, {"b": 1, "c": 1})
    assert s.certificate.ok and s.certificate.claim == "feasible"
    assert "The proof was not built" in s.message
    assert s.bound is None and s.stages["value"].quoted == pytest.approx(7)
    assert fx.verify(s, p).verdict == "quoted"


def test_an_infeasible_problem_whose_proof_fails_is_infeasible_by_the_solvers_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*arguments: Any) -> Any:
        raise ArithmeticError("no")

    monkeypatch.setattr(problem_solving, "proven", broken)
    p = knapsack()
    p.constrain("many", p["x"].sum() >= 3)
    s = p.solve()
    assert s.status == "infeasible" and s.certificate.verdict == "quoted"
    assert fx.verify(s.save(tmp_path / "no.solution.json"), p).verdict == "quoted"


def test_without_rows_and_certificate_there_are_no_duals() -> None:
    p = fx.Problem("box")
    p.maximize("most", p.variables("x", upper=3))
    assert dict(p.solve(certify=False).duals) == dict(p.solve().duals) == {}


def test_without_a_certificate_the_answer_is_the_solvers() -> None:
    s = knapsack().solve(certify=False)
    assert (s.objective, s.certificate) == (7, None)
    assert "not certified" in s.message


def test_solving_is_silent_until_the_log_is_asked_for(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    knapsack().solve()
    assert capfd.readouterr() == ("", "") and not caplog.records
    with caplog.at_level(logging.DEBUG, "flowlex"):
        knapsack().solve()
        monkeypatch.setattr(problem_solving, "proven", None)
        knapsack().solve()
    levels = [(each.levelname, each.name.split(".")[0]) for each in caplog.records]
    assert levels == [(level, "flowlex") for level in ("INFO", "DEBUG", "INFO", "INFO", "WARNING", "DEBUG", "INFO")]
    assert "objective value = 7, proven" in caplog.text and "optimal, proven exactly" in caplog.text


def test_an_equation_that_no_integers_satisfy_is_proven_by_its_divisor() -> None:
    p = fx.Problem("parity")
    x = p.variables("x", side=["a", "b", "c"], integer=True, lower=-float("inf"))
    p.constrain("odd", 6 * x.sel(side="a").sum() - 9 * x.sel(side="b").sum() + 15 * x.sel(side="c").sum() == 1)
    p.minimize("a", x.sel(side="a").sum())
    s = p.solve()
    assert s.status == "infeasible"
    assert (s.certificate.claim, s.certificate.verdict) == ("infeasible", "proven")
    assert fx.verify(s.to_dict(), p).verdict == "proven"
