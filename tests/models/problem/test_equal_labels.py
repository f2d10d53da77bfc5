"""Equal labels are counted: the same optima as HiGHS, answers and proofs for the problem as it is stated."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pulp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowlex as fx
from flowlex.models.equal_labels import EqualLabels, equal_labels
from flowlex.validation.proofs.exact_program import Exact


def by(level: str, values: dict[str, float]) -> pd.Series:
    return pd.Series(values).rename_axis(level)


def crates(boxes: int, weights: dict[str, tuple[int, int]], room: int) -> fx.Problem:
    """Items of a few kinds (weight, number) in boxes with room, as many as fit."""
    items = {f"{kind}{k}": weight for kind, (weight, many) in weights.items() for k in range(many)}
    p = fx.Problem("crates")
    x = p.variables("x", item=list(items), box=[f"b{k}" for k in range(boxes)], binary=True)
    p.constrain("once", x.sum(by="item") <= 1)
    p.constrain("room", (x * by("item", items)).sum(by="box") <= room)
    p.maximize("packed", x.sum())
    return p


def best_of(problem: fx.Problem) -> float | None:
    """The optimum of the first objective by HiGHS alone; None: there is no answer."""
    program = problem.to_pulp()
    program.solve(pulp.HiGHS(msg=False))
    return None if program.status != pulp.LpStatusOptimal else float(pulp.value(program.objective))


def test_items_of_one_kind_are_counted() -> None:
    p = crates(4, {"a": (5, 10), "b": (7, 10)}, 12)
    counted = equal_labels(p)
    assert counted is not None
    assert (counted.level, p.column_count, counted.counted.column_count) == ("item", 80, 8)
    s = p.solve()
    # A box of 12 holds two items (5 + 5 or 5 + 7): eight in four boxes.
    assert s.objective == 8
    assert s.certificate.claim == "optimal"
    assert s.values("x").groupby(level="item").sum().max() == 1
    assert fx.verify(s.to_dict(), p).verdict == "proven"


def test_boxes_are_not_counted_as_their_room_does_not_add_up() -> None:
    items = {f"i{k}": 3 + k for k in range(12)}
    p = fx.Problem("boxes")
    x = p.variables("x", item=list(items), box=[f"b{k}" for k in range(5)], binary=True)
    p.constrain("once", x.sum(by="item") == 1)
    p.constrain("room", (x * by("item", items)).sum(by="box") <= 24)
    p.minimize("none", 0 * x.sum())
    assert equal_labels(p) is None


def test_pairs_of_labels_keep_them_apart() -> None:
    """Each task follows the one before it: none may be exchanged."""
    p = fx.Problem("chain")
    x = p.variables("x", task=[f"t{k}" for k in range(20)], hour=range(3), binary=True)
    p.constrain("once", x.sum(by="task") <= 1)
    p.constrain("before", x - x.shift(task=1) <= 1)
    p.maximize("done", x.sum())
    assert equal_labels(p) is None


def test_infeasible_is_proven_over_classes() -> None:
    p = crates(3, {"a": (5, 20)}, 12)
    p.constrain("all", p["x"].sum() >= 7)
    s = p.solve()
    assert s.status.value == "infeasible"
    assert s.certificate.claim == "infeasible"
    assert "all" in s.message


def test_start_and_answers_on_the_way() -> None:
    p = crates(4, {"a": (5, 10), "b": (7, 10)}, 12)
    seen: list[fx.ProblemSolution] = []
    first = {("a0", "b0"): 1, ("a1", "b0"): 1}
    s = p.solve(start={"x": first}, report=seen.append)
    assert s.objective == 8
    assert all(each.problem is p and each.certificate.ok for each in seen)


@pytest.mark.parametrize("certify", [True, False])
def test_an_answer_that_is_dealt_out_wrongly_is_not_used(monkeypatch: pytest.MonkeyPatch, certify: bool) -> None:
    deal = EqualLabels.dealt

    def nothing(self: EqualLabels[fx.Problem], values: Exact) -> Exact:
        found = deal(self, values)
        return Exact(0 * found.numbers, found.unit)

    monkeypatch.setattr(EqualLabels, "dealt", nothing)
    s = crates(4, {"a": (5, 10), "b": (7, 10)}, 12).solve(certify=certify)
    assert s.objective == s.values("x").sum() == 8


def test_without_a_certificate_the_file_is_judged_later() -> None:
    s = crates(4, {"a": (5, 10), "b": (7, 10)}, 12).solve(certify=False)
    assert s.certificate is None
    assert s.objective == 8


def test_a_sum_that_does_not_exist_is_refused() -> None:
    p = crates(16, {"a": (5, 20), "b": (7, 20), "c": (4, 20)}, 12)
    p = p.with_constraint("some", p["x"].sum(by="box") >= 2)
    document = p.solve().to_dict()
    leaves = document["proof"]["stages"]["packed"]
    leaves[0]["branches"] = [{"row": "no sum", "relation": "<=", "side": 0}]
    with pytest.raises(fx.FlowlexError, match="no sum"):
        fx.verify(document, p).require("packed")


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_the_same_optima_as_highs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    machines = [f"m{k}" for k in range(int(rng.integers(2, 6)))]
    kinds = {f"k{k}": int(rng.integers(5, 12)) for k in range(int(rng.integers(1, 4)))}
    tasks = [f"{kind}.{n}" for kind, many in kinds.items() for n in range(many)]

    def drawn(low: int, high: int) -> pd.Series:
        each = {kind: int(rng.integers(low, high)) for kind in kinds}
        return by("task", {t: each[t.partition(".")[0]] for t in tasks})

    p = fx.Problem("random")
    most = int(rng.integers(1, 3))
    x = p.variables("x", task=tasks, machine=machines, upper=most, integer=True)
    if rng.random() < 0.3:
        p.constrain("all", x.sum(by="task") == most)
    else:
        p.constrain("some", x.sum(by="task") <= int(rng.integers(1, 3)))
    if rng.random() < 0.5:
        p.constrain("zone", x.sel(machine=machines[:2]).sum(by="task") <= 1)
    room = by("machine", {m: int(rng.integers(5, 40)) for m in machines})
    p.constrain("room", (x * drawn(1, 9)).sum(by="machine") <= room)
    cost = (x * drawn(-5, 6)).sum() + (x * by("machine", {m: int(rng.integers(-3, 4)) for m in machines})).sum()
    if rng.random() < 0.5:
        up = p.variables("up", machine=machines, binary=True)
        p.constrain("open", x <= most * up)
        cost = cost + (up * int(rng.integers(1, 30))).sum()
    if rng.random() < 0.3:
        spare = p.variables("spare", task=tasks, upper=2)
        p.constrain("spared", x.sum(by="task") + spare >= 1)
        cost = cost + (spare * drawn(1, 5)).sum()
    p.minimize("cost", cost)
    if rng.random() < 0.5:
        p.minimize("first", x.sel(machine=machines[0]).sum())
    s = p.solve(time_limit_s=20)
    best = best_of(p)
    assert (best is None) == (not s.status.has_answer)
    if best is not None:
        assert s.certificate.ok
        assert s.objective == pytest.approx(best)
    assert fx.verify(s.to_dict(), p).ok
    if len(p.objectives) > 1 and s.status.has_answer:
        assert s.stages[1].value == pytest.approx(best_of(p.stage("first", s)))
