"""Schedules of equal lateness and loads: fewest late jobs, least tardiness, least wait."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.model_base import ModelError
from flowlex.validation.certificates.verifier_interface import verify

#: Sender, units, due slot; the receiver is c.
Flow = tuple[str, int, int]


def made(flows: list[Flow]) -> JitInstance:
    """Return an instance with one transfer per job and ports of one unit per slot."""
    jobs = tuple(
        Job(
            name=f"j{k}",
            computations=(Computation(name="use", seconds=0.0),),
            transfers=(
                Transfer(name="t", size_mb=float(units), sender=i, receiver="c", feeds="use", deadline_s=float(due)),
            ),
        )
        for k, (i, units, due) in enumerate(flows)
    )
    machines = tuple(Machine(name=name, out_mbps=8.0, in_mbps=8.0) for name in "abc")
    return JitInstance(machines=machines, jobs=jobs, slot_s=1.0, unit_mb=1.0)


@pytest.mark.parametrize("senders", ["aa", "ab"])
@pytest.mark.parametrize(("flows", "arrivals"), [([(2, 2)] * 2, [2, 4]), ([(5, 5)] * 4, [5, 10, 15, 20])])
def test_what_must_be_late_is_late_in_turn(senders: str, flows: list[tuple[int, int]], arrivals: list[int]) -> None:
    instance = made([(senders[k % 2], *flow) for k, flow in enumerate(flows)])
    answers = {on: JitBandwidth(instance, share=1.0, tie_break=on).solve("highs") for on in (True, False)}
    assert sorted(answers[True].finish.tolist()) == arrivals
    assert answers[True].sorted_loads.tolist() == answers[False].sorted_loads.tolist()
    assert answers[True].lateness == answers[False].lateness
    assert "late_jobs" not in answers[False].stages
    certificate = verify(json.loads(json.dumps(answers[True].to_dict())), instance)
    assert certificate.ok and certificate.claim == "optimal"
    names = [check.name for check in certificate.checks]
    assert f"late jobs {len(flows) - 1}, proven least" in names
    assert any(name.startswith("tardiness") and name.endswith("proven least") for name in names)


def test_what_is_on_time_waits_as_little_as_its_loads_allow() -> None:
    instance = made([("a", 5, 20)] * 4)
    solution = JitBandwidth(instance, share=1.0).solve("highs")
    assert sorted(solution.finish.tolist()) == [17, 18, 19, 20]
    assert solution.stages["wait"] == 6
    lone = JitBandwidth(made([("a", 3, 10)]), share=1.0).solve("highs")
    assert lone.finish.tolist() == [10]


def best_order(flows: list[Flow]) -> tuple[int, int]:
    """Return fewest late jobs, then least tardiness, over all orders of least lateness (one port, no gaps)."""

    def goals(order: tuple[int, ...]) -> tuple[int, int, int]:
        now = lateness = late = tardy = 0
        for k in order:
            _, units, due = flows[k]
            lateness += sum(max(t + 1 - due, 0) for t in range(now, now + units))
            now += units
            late += now > due
            tardy += max(now - due, 0)
        return lateness, late, tardy

    return min(goals(order) for order in permutations(range(len(flows))))[1:]


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.just("a"), st.integers(1, 4)), min_size=2, max_size=5), st.integers(1, 6))
def test_no_order_of_what_is_due_at_once_is_better(flows: list[tuple[str, int]], due: int) -> None:
    instance = made([(i, units, max(due, units)) for i, units in flows])
    solution = JitBandwidth(instance, share=1.0).solve("highs")
    expected = best_order([(i, units, max(due, units)) for i, units in flows])
    assert (solution.stages["late_jobs"], solution.stages["tardiness"]) <= expected
    certificate = verify(json.loads(json.dumps(solution.to_dict())), instance)
    assert certificate.ok, str(certificate)


@pytest.mark.parametrize("name", ["late_jobs", "tardiness", "wait"])
@pytest.mark.parametrize("by", [-1, 1])
def test_goals_stated_otherwise_are_refused(name: str, by: int) -> None:
    instance = made([("a", 2, 2), ("b", 2, 2), ("a", 2, 9)])
    document: dict[str, Any] = json.loads(json.dumps(JitBandwidth(instance, share=1.0).solve("highs").to_dict()))
    document["stages"][name] += by
    assert not verify(document, instance).ok


def test_ties_are_those_of_whole_units() -> None:
    instance = made([("a", 2, 2)])
    for options in ({"program": "P1"}, {"integrality": "lp"}):
        with pytest.raises(ModelError, match="tie_break"):
            JitBandwidth(instance, tie_break=True, **options)  # type: ignore[arg-type]
