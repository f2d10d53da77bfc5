"""Levels and enumeration have the same lexicographic minimum."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations.lexicographic import decreasing_minimisation
from flowlex.formulations.lexicographic.decreasing_minimisation import minimize_levels
from flowlex.formulations.lexicographic.lexicographic_problem import LexicographicProgram, copy_program
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


def test_copies_leave_the_base_alone() -> None:
    base = spread_program([2], 2, 2).base
    copy = copy_program(base)
    copy.variables("more", 1)
    assert "more" not in base.variable_blocks
