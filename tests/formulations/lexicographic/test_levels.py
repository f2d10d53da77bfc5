"""Levels, weights and enumeration have the same lexicographic minimum; the lambda form is exact, or refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations.engines import solve
from flowlex.formulations.lexicographic import decreasing_minimisation
from flowlex.formulations.lexicographic.decreasing_minimisation import minimize_levels
from flowlex.formulations.lexicographic.lambda_representation import increments, lambda_representation
from flowlex.formulations.lexicographic.lexicographic_problem import LexicographicProgram, copy_program
from flowlex.formulations.lexicographic.weighted_stages import PrecisionError, weighted_program
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.solver_outcome import Status

LEVELS = 4


def spread_program(amount: list[int], slots: int, capacity: int, *, first: bool = False) -> LexicographicProgram:
    """Amounts over slots; two loads per slot (even and odd items), at most ``capacity`` together."""
    count = len(amount) * slots
    item, slot = np.divmod(np.arange(count), slots)
    base = LinearProgram("spread")
    x = base.variables("x", count, upper=LEVELS)
    base.constrain("amount", x.sum_by(item, len(amount)), "==", amount)
    base.constrain("room", x.sum_by(slot, slots), "<=", capacity)
    loads = x.sum_by(slot * 2 + item % 2, slots * 2)
    late = (x * slot).sum() if first else None
    return LexicographicProgram(base, loads, LEVELS, np.ones(slots * 2), late, float(sum(amount)))


def exhaustive(amount: list[int], slots: int, capacity: int, *, first: bool = False) -> tuple[Any, ...] | None:
    ways = [[s for s in itertools.product(range(LEVELS + 1), repeat=slots) if sum(s) == a] for a in amount]
    best = None
    for choice in itertools.product(*ways):
        x = np.array(choice)
        loads = np.stack([x[0::2].sum(axis=0), x[1::2].sum(axis=0)])
        if (x.sum(axis=0) > capacity).any() or loads.max() > LEVELS:
            continue
        late = int((x * np.arange(slots)).sum()) if first else 0
        value = (late, *sorted(loads.ravel().tolist(), reverse=True))
        best = value if best is None or value < best else best
    return None if best is None else best[1:]


def vector(problem: LexicographicProgram, values: Any) -> tuple[int, ...]:
    return tuple(sorted(np.rint(problem.loads.evaluate(values)).astype(int).tolist(), reverse=True))


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), st.integers(1, 3), st.integers(1, 6), st.booleans())
def test_levels_equal_enumeration(amount: list[int], slots: int, capacity: int, first: bool) -> None:
    problem = spread_program(amount, slots, capacity, first=first)
    expected = exhaustive(amount, slots, capacity, first=first)
    for integrality in ("auto", "mip", "rows"):
        with pytest.MonkeyPatch.context() as patch:
            if integrality == "rows":
                patch.setattr(decreasing_minimisation, "minimize_on_faces", lambda *given, **options: None)
            found = minimize_levels(problem, integrality="mip" if integrality == "mip" else "auto")
        if expected is None:
            assert found.status is Status.INFEASIBLE
            continue
        assert found.values is not None
        assert vector(problem, found.values) == expected
        for stage in found.stages:
            if stage.level <= LEVELS:
                assert stage.value == stage.bound == sum(v >= stage.level for v in expected)


def test_programs_grow_with_different_loads_not_with_units() -> None:
    """100 000 and 70 001 units over 3 slots each: two levels of either, found by four programs."""
    programs = []
    for unit in (1, 1000):
        base = LinearProgram("two")
        x = base.variables("x", 6, upper=10**6)
        base.constrain("amount", x.sum_by(np.arange(6) // 3, 2), "==", [100 * unit, 70 * unit + 1])
        problem = LexicographicProgram(base, x, 10**6, np.ones(6), None, 170.0 * unit + 1)
        found = minimize_levels(problem)
        assert found.values is not None
        assert sum(vector(problem, found.values)[:3]) == 100 * unit
        programs.append(found.lp_solves + found.mip_solves)
        assert [stage.value for stage in found.stages if stage.value == stage.bound][:2] == [1, 3]
    assert programs[0] == programs[1] <= 6


@pytest.mark.parametrize("form", ["lambda", "increments"])
@pytest.mark.parametrize(("amount", "slots", "capacity"), [([3, 2], 2, 4), ([4, 1, 3], 3, 3), ([2], 3, 1)])
def test_the_literal_weights_have_the_same_minimisers(amount: list[int], slots: int, capacity: int, form: Any) -> None:
    problem = spread_program(amount, slots, capacity)
    program = weighted_program(problem, form=form)
    outcome = solve(program, "highs")
    expected = exhaustive(amount, slots, capacity)
    assert expected is not None
    size = float(len(problem.width))
    assert outcome.objective == pytest.approx(sum(size**v for v in expected))
    assert vector(problem, outcome.values) == expected


def test_weights_that_lose_precision_are_refused() -> None:
    problem = spread_program([4] * 10, 5000, 40)
    with pytest.raises(PrecisionError, match=r"reach 10000\*\*4 and are summed over 10000 loads.*staged form"):
        weighted_program(problem)


def test_known_lower_bound() -> None:
    found = minimize_levels(spread_program([4, 4], 2, 4), at_least=2)
    assert found.largest == 2
    assert [(stage.level, stage.value) for stage in found.stages] == [(2, 4.0)]


def test_fractional_optimum_is_not_called_whole() -> None:
    """Three loads, each pair of which sums to at least 1: 1/2 each if fractional, (1, 1, 0) in integers."""
    base = LinearProgram("odd cycle")
    x = base.variables("x", 3, upper=1)
    base.constrain("edge", x[np.array([0, 1, 2])] + x[np.array([1, 2, 0])], ">=", 1.0)
    problem = LexicographicProgram(base, x, 1, np.ones(3))
    relaxed = minimize_levels(problem, integrality="lp")
    assert relaxed.stages[-1].value == pytest.approx(1.5)
    whole = minimize_levels(problem)
    assert vector(problem, whole.values) == (1, 1, 0)
    assert whole.route == "mip" and whole.status is Status.OPTIMAL
    assert whole.stages[-1].bound == 2.0  # 1.5 rounded up


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=5),
    st.sampled_from([0, 0.125, 0.3, 0.5, 0.9, 1]),
    st.integers(1, 3),
)
def test_lambda_form_is_the_function(slopes: list[int], share: float, width: int) -> None:
    points = np.arange(len(slopes) + 1)
    values = np.concatenate([[2], 2 + np.cumsum(sorted(slopes))])
    load = share * len(slopes) * width
    program = LinearProgram("one")
    w = program.variables("w", 1, lower=load, upper=load)
    objective = lambda_representation(program, "lambda", w, points, values, width=width)
    program.minimize(objective)
    assert solve(program, "highs").objective == pytest.approx(width * np.interp(load / width, points, values))
    again = LinearProgram("two")
    w = again.variables("w", 1, lower=load, upper=load)
    pieces = increments(again, "level", w, points, width=width)
    total = pieces[0] * float(sorted(slopes)[0])
    for slope, piece in zip(sorted(slopes)[1:], pieces[1:], strict=True):
        total = total + piece * float(slope)
    again.minimize(total)
    assert solve(again, "highs").objective == pytest.approx(width * (np.interp(load / width, points, values) - 2))


@pytest.mark.parametrize(
    ("points", "values", "message"),
    [
        ([0, 1, 2], [0, 2, 3], r"not convex at 1 \(slope falls from 2 to 1\)"),
        ([0, 0, 1], [0, 1, 2], "breakpoints must increase"),
        ([0], [0], "two or more breakpoints"),
        ([0, 1], [0, np.nan], "must be finite"),
    ],
)
def test_lambda_form_refuses(points: list[int], values: list[float], message: str) -> None:
    program = LinearProgram("x")
    w = program.variables("w", 1)
    with pytest.raises(ValueError, match=message):
        lambda_representation(program, "lambda", w, points, values)


def test_copies_leave_the_base_alone() -> None:
    base = spread_program([2], 2, 2).base
    copy = copy_program(base)
    copy.variables("more", 1)
    assert "more" not in base.variable_blocks
