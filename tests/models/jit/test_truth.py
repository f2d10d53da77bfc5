"""Just-in-time bandwidth against every integer schedule of small random instances, by every route."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flowlex.formulations.lexicographic.weighted_stages import PrecisionError
from flowlex.formulations.solver_outcome import EngineError, Status
from flowlex.instances.generators.jit import jit_random
from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.jit.transfer_slot_grid import Grid

QUICK = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def splits(amount: int, slots: int, most: int) -> Iterator[tuple[int, ...]]:
    if slots == 1:
        if amount <= most:
            yield (amount,)
        return
    for first in range(min(amount, most) + 1):
        for rest in splits(amount - first, slots - 1, most):
            yield (first, *rest)


def every_schedule(grid: Grid, load: str) -> tuple[int, ...] | None:
    """Least sorted loads over all integer schedules, transfer by transfer; None when there is no schedule."""
    slots, machines = grid.horizon, len(grid.out_units)
    ports = np.zeros((2 * machines, slots), np.int64)
    pairs = np.zeros((grid.units_of_load("pair"), slots), np.int64)
    limit = np.concatenate([grid.out_units, grid.in_units])
    best: tuple[int, ...] | None = None

    def place(k: int) -> None:
        nonlocal best
        if k == grid.count:
            values = (pairs if load == "pair" else ports).ravel()
            vector = tuple(sorted(values[values > 0].tolist(), reverse=True))
            best = vector if best is None or vector < best else best
            return
        window = slice(int(grid.start[k]), int(grid.stop[k]))
        both = [int(grid.sender[k]), int(grid.receiver[k]) + machines]
        for way in splits(int(grid.units[k]), window.stop - window.start, int(grid.cap[k])):
            ports[both, window] += np.array(way)
            pairs[grid.pair[k], window] += np.array(way)
            if (ports[both, window] <= limit[both, None]).all():
                place(k + 1)
            ports[both, window] -= np.array(way)
            pairs[grid.pair[k], window] -= np.array(way)

    place(0)
    return best


def small(seed: int) -> JitInstance:
    rng = np.random.default_rng(seed)
    return jit_random(
        seed=seed,
        machines=int(rng.integers(2, 5)),
        jobs=2,
        transfers=int(rng.integers(1, 4)),
        slots=int(rng.integers(2, 5)),
        capacity=int(rng.integers(1, 4)),
    )


ROUTES: list[dict[str, Any]] = [
    {},
    {"horizon": "intervals"},
    {"presolve": False},
    {"presolve": False, "horizon": "intervals"},
    {"presolve": False, "integrality": "mip"},
]


@pytest.mark.parametrize("seed", [12, 22, 119])
def test_engines_agree(seed: int) -> None:
    instance = small(seed)
    for options in ({}, {"presolve": False}, {"presolve": False, "integrality": "mip"}):
        by_engine = [JitBandwidth(instance, share=1.0, **options).solve(engine) for engine in ("highs", "pulp")]
        assert by_engine[0].status == by_engine[1].status
        assert by_engine[0].sorted_loads.tolist() == by_engine[1].sorted_loads.tolist()
    with pytest.raises(EngineError, match="'network' solves flow networks only"):
        JitBandwidth(instance).solve("network")


@QUICK
@given(st.integers(0, 10_000), st.sampled_from(["pair", "port"]))
def test_every_route_finds_the_least_of_all_integer_schedules(seed: int, load: Any) -> None:
    instance = small(seed)
    expected = every_schedule(JitBandwidth(instance, share=1.0, windows="strict").grid, load)
    for options in ROUTES:
        solution = JitBandwidth(instance, share=1.0, load=load, windows="strict", **options).solve()
        if expected is None:
            assert solution.status is Status.INFEASIBLE
            assert "windows='elastic'" in solution.message
            continue
        assert tuple(solution.sorted_loads.tolist()) == expected
        assert solution.certificate is not None and solution.certificate.ok
        if options.get("integrality") != "mip":
            assert solution.certificate.claim == "optimal"
            assert solution.certificate.exact


@QUICK
@given(st.integers(0, 10_000))
def test_the_literal_programs_agree(seed: int) -> None:
    instance = small(seed)
    staged = JitBandwidth(instance, share=1.0, windows="strict").solve()
    largest = JitBandwidth(instance, share=1.0, program="P1", presolve=False).solve()
    assert largest.status == staged.status
    if staged.status.has_answer:
        assert largest.objective == staged.objective
        assert largest.certificate is not None and largest.certificate.claim in ("optimal", "bounded")
    for program in ("P3", "P4"):
        try:
            literal = JitBandwidth(instance, share=1.0, program=program).solve()
        except PrecisionError:
            continue
        assert literal.status == staged.status
        if staged.status.has_answer:
            assert literal.sorted_loads.tolist() == staged.sorted_loads.tolist()
            assert literal.certificate is not None and literal.certificate.claim == "bounded"
            assert literal.objective == pytest.approx(literal.bound)


@QUICK
@example(1, "pair")  # prices of a program over short windows did not hold beyond them
@example(1, "port")
@given(st.integers(0, 10_000), st.sampled_from(["pair", "port"]))
def test_elastic_windows_are_least_late_by_both_routes(seed: int, load: Any) -> None:
    instance = small(seed)
    answers = [
        JitBandwidth(instance, share=1.0, load=load, windows="elastic", **options).solve()
        for options in ({}, {"presolve": False})
    ]
    strict = JitBandwidth(instance, share=1.0, load=load, windows="strict").solve()
    assert answers[0].lateness == answers[1].lateness
    assert answers[0].sorted_loads.tolist() == answers[1].sorted_loads.tolist()
    assert (answers[0].lateness == 0) == strict.status.has_answer
    for answer in answers:
        assert answer.certificate is not None and answer.certificate.claim == "optimal"


def test_elastic_lateness_by_hand() -> None:
    """Two units due at once at one port of one unit a slot: one of them is one slot late."""
    instance = one_job(1, [("s0", "r0", 1, 0, 1), ("s0", "r1", 1, 0, 1)])
    strict = JitBandwidth(instance, share=1.0, windows="strict").solve()
    assert strict.status is Status.INFEASIBLE
    assert "egress of machine 's0': 'j/t0', 'j/t1' must send 2 units between 0 s and 1 s, where 1 fit" in strict.message
    elastic = JitBandwidth(instance, share=1.0, windows="elastic").solve()
    assert elastic.lateness == 1
    assert len(elastic.late_frame()) == 1
    assert elastic.late_frame()["because_of"].tolist() == ["ports"]


def one_job(capacity: int, transfers: list[tuple[str, str, int, int, int]]) -> JitInstance:
    """Transfers (sender, receiver, units, first slot, end) with slots of 1 s and units of 1 MB."""
    names = sorted({name for sender, receiver, *_ in transfers for name in (sender, receiver)})
    return JitInstance(
        machines=tuple(Machine(name=n, out_mbps=8.0 * capacity, in_mbps=8.0 * capacity) for n in names),
        jobs=(
            Job(
                name="j",
                computations=(Computation(name="c", seconds=0.0),),
                transfers=tuple(
                    Transfer(
                        name=f"t{k}",
                        size_mb=float(units),
                        sender=sender,
                        receiver=receiver,
                        feeds="c",
                        ready_s=float(first),
                        deadline_s=float(end),
                    )
                    for k, (sender, receiver, units, first, end) in enumerate(transfers)
                ),
            ),
        ),
        slot_s=1.0,
        unit_mb=1.0,
    )


@pytest.mark.parametrize("seed", range(12))
def test_conflicts_beyond_the_bands_are_proven_too(seed: int) -> None:
    """Ports so tight that the pairs' own optimum breaks them: the staged route on a few ports, against all ports."""
    rng = np.random.default_rng(seed)
    transfers = []
    for _ in range(14):
        first = int(rng.integers(0, 4))
        i, j = rng.integers(3, size=2)
        transfers.append((f"s{i}", f"r{j}", int(rng.integers(1, 4)), first, int(rng.integers(first + 2, 8))))
    instance = one_job(4, transfers)
    quick = JitBandwidth(instance, share=1.0, windows="strict").solve()
    full = JitBandwidth(instance, share=1.0, windows="strict", presolve=False).solve()
    assert quick.status == full.status
    if quick.status.has_answer:
        assert quick.sorted_loads.tolist() == full.sorted_loads.tolist()
        assert quick.certificate is not None and quick.certificate.claim == "optimal"
