"""The certificate of a just-in-time schedule fails if the schedule, its windows or its proofs are changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flowlex.instances.generators import generate
from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.models.jit.model import JitBandwidth
from flowlex.validation.certificates.jit import JitSchedule, SchedulePart, certify_schedule, level_counts
from flowlex.validation.certificates.jit.solution_verifier import Answer, Proof, schedule_of
from flowlex.validation.certificates.verifier_interface import Claimed, read_document

Fault = Callable[[JitSchedule], JitSchedule]


def stated(instance: JitInstance, **options: Any) -> JitSchedule:
    document = json.loads(json.dumps(JitBandwidth(instance, share=1.0, **options).solve().to_dict()))
    read = read_document(document)
    return schedule_of(Claimed(read, Answer(**read.answer), Proof(**read.proof), instance))


@pytest.fixture(scope="module")
def instance() -> JitInstance:
    made = generate("jit-random", seed=22, machines=3, jobs=3, transfers=3, slots=5, capacity=3)
    assert isinstance(made, JitInstance)
    return made


@pytest.fixture(scope="module", params=["structure", "staged", "elastic"])
def case(request: pytest.FixtureRequest, instance: JitInstance) -> tuple[JitInstance, JitSchedule]:
    if request.param == "elastic":
        flows = [("a", "b", 4, 2), ("a", "c", 3, 2), ("c", "b", 2, 1), ("b", "c", 5, 3)]
        transfers = tuple(
            Transfer(name=f"t{k}", size_mb=float(d), sender=i, receiver=j, feeds="c", deadline_s=float(end))
            for k, (i, j, d, end) in enumerate(flows)
        )
        machines = tuple(Machine(name=n, out_mbps=16.0, in_mbps=16.0) for n in ("a", "b", "c"))
        job = Job(name="j", computations=(Computation(name="c", seconds=0.0),), transfers=transfers)
        made = JitInstance(machines=machines, jobs=(job,), slot_s=1.0, unit_mb=1.0)
        schedule = stated(made)
        assert schedule.lateness > 0
        return made, schedule
    return instance, stated(instance, windows="strict", presolve=request.param == "structure")


def failed(instance: JitInstance, schedule: JitSchedule) -> list[str]:
    return [check.name for check in certify_schedule(instance, schedule).checks if not check.ok]


def changed(array: Any, at: int, by: int) -> Any:
    copy = array.copy()
    copy[at] += by
    return copy


def proofs(schedule: JitSchedule, change: Callable[[Any], Any]) -> JitSchedule:
    parts = tuple(SchedulePart(p.transfers, tuple(change(proof) for proof in p.proofs)) for p in schedule.parts)
    return replace(schedule, parts=parts)


FAULTS: dict[str, Fault] = {
    "a unit more": lambda s: replace(s, amount=changed(s.amount, 0, 1)),
    "a unit less": lambda s: replace(s, amount=changed(s.amount, 0, -1)),
    "a run later": lambda s: replace(s, begin=changed(s.begin, 0, 9), end=changed(s.end, 0, 9)),
    "a run before time 0": lambda s: replace(s, begin=changed(s.begin, 0, -9), end=changed(s.end, 0, -9)),
    "a run longer": lambda s: replace(s, end=changed(s.end, 0, 1)),
    "a run empty": lambda s: replace(s, end=changed(s.end, 0, int(s.begin[0] - s.end[0]))),
    "a run missing": lambda s: replace(s, **{n: getattr(s, n)[1:] for n in ("transfer", "begin", "end", "amount")}),
    "a run of nobody": lambda s: replace(s, transfer=changed(s.transfer, 0, 10_000)),
    "a negative amount": lambda s: replace(s, amount=-s.amount),
    "a transfer not planned": lambda s: replace(s, planned=s.planned[1:]),
    "a transfer planned twice": lambda s: replace(s, planned=np.r_[s.planned, s.planned[:1]]),
    "another share": lambda s: replace(s, share=0.2),
    "amounts that are not whole": lambda s: replace(s, amount=s.amount + 0.25),
    "less lateness": lambda s: replace(s, lateness=s.lateness - 1),
    "more lateness": lambda s: replace(s, lateness=s.lateness + 1),
    "a part missing": lambda s: replace(s, parts=(SchedulePart(s.parts[0].transfers[1:], s.parts[0].proofs),)),
    "a part twice": lambda s: replace(s, parts=(*s.parts, s.parts[0])),
    "parts that share a load": lambda s: replace(
        s,
        parts=(
            *s.parts[1:],
            SchedulePart(s.parts[0].transfers[:1], ()),
            SchedulePart(s.parts[0].transfers[1:], ()),
        ),
    ),
    "no proofs": lambda s: replace(s, parts=tuple(SchedulePart(p.transfers, ()) for p in s.parts)),
    "proofs without prices": lambda s: proofs(
        s, lambda p: replace(p, lam=p.lam * 0, load=replace(p.load, price=p.load.price * 0, last=None))
    ),
    "negative prices": lambda s: proofs(s, lambda p: replace(p, load=replace(p.load, price=-p.load.price, last=None))),
    "prices of a scale of zero": lambda s: proofs(s, lambda p: replace(p, scale=0)),
    "prices for too few": lambda s: proofs(s, lambda p: replace(p, lam=p.lam[:-1])),
    "a negative price of a level": lambda s: proofs(s, lambda p: replace(p, mu={9: -1})),
    "a negative price of lateness": lambda s: proofs(s, lambda p: replace(p, nu=-1)),
    "half the loads unpriced": lambda s: proofs(
        s,
        lambda p: replace(
            p,
            load=replace(p.load, price=p.load.price * (np.arange(len(p.load.price)) % 2), last=None),
            lam=np.minimum(p.lam, 0),
        ),
    ),
}


def test_the_schedule_itself_holds(case: tuple[JitInstance, JitSchedule]) -> None:
    certificate = certify_schedule(*case)
    assert certificate.ok and certificate.claim == "optimal" and certificate.exact
    assert sum(len(part.proofs) for part in case[1].parts)  # otherwise the faults below would prove nothing


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused(case: tuple[JitInstance, JitSchedule], fault: str) -> None:
    instance, schedule = case
    assert failed(instance, FAULTS[fault](schedule))


def test_a_run_outside_of_its_window_is_refused() -> None:
    """Two units in a window of two slots: sending both in one slot is not optimal, and a later window is refused."""
    machines = tuple(Machine(name=n, out_mbps=16.0, in_mbps=16.0) for n in ("a", "b"))
    transfer = Transfer(name="t", size_mb=2.0, sender="a", receiver="b", feeds="c", deadline_s=2.0)
    job = Job(name="j", computations=(Computation(name="c", seconds=0.0),), transfers=(transfer,))
    made = JitInstance(machines=machines, jobs=(job,), slot_s=1.0, unit_mb=1.0)
    schedule = stated(made, windows="strict")
    assert (schedule.begin.tolist(), schedule.end.tolist(), schedule.amount.tolist()) == ([0], [2], [2])
    at_once = replace(schedule, end=np.array([1]))
    assert any(name.startswith("levels 1 to 2") for name in failed(made, at_once))
    late = replace(schedule, begin=np.array([1]), end=np.array([3]))
    assert "transfers are sent in their windows" in failed(made, late)


def blocks(*rows: tuple[int, int, int, int], out: float = 24.0, loads: str = "pair") -> list[str]:
    """Return the failed checks of blocks (transfer, first slot, end, units) of t0 and t1, from a to b, due at 4."""
    machines = tuple(Machine(name=n, out_mbps=out, in_mbps=24.0) for n in ("a", "b"))
    sizes = [float(sum(row[3] for row in rows if row[0] == k)) for k in (0, 1)]
    made = tuple(
        Transfer(name=f"t{k}", size_mb=size, sender="a", receiver="b", feeds="c", deadline_s=4.0)
        for k, size in enumerate(sizes)
    )
    job = Job(name="j", computations=(Computation(name="c", seconds=0.0),), transfers=made)
    instance = JitInstance(machines=machines, jobs=(job,), slot_s=1.0, unit_mb=1.0)
    transfer, begin, end, amount = np.array(rows, np.int64).T
    schedule = JitSchedule(1.0, loads, "critical", "elastic", np.arange(2), transfer, begin, end, amount, 0, True)
    return failed(instance, schedule)


@pytest.mark.parametrize("loads", ["pair", "port"])
def test_blocks_that_their_slots_do_not_divide(loads: str) -> None:
    """Even division over slots: leftover units must fit in every slot, and all these slots must have the same load."""
    uneven = "what its slots do not divide meets the same load in all of them, and is late in all or none"
    assert not blocks((0, 0, 4, 3), (1, 0, 4, 2), loads=loads)  # five units in four slots: 2, 1, 1, 1
    assert not blocks((0, 0, 4, 3), (1, 0, 4, 8), loads=loads)  # 8 is two a slot: 3, 3, 3, 2
    assert blocks((0, 0, 4, 5), (1, 0, 4, 8), loads=loads) == [
        "egress stays within the ports",
        "ingress stays within the ports",
    ]
    assert "egress stays within the ports" in blocks((0, 0, 4, 3), (1, 0, 4, 2), out=8.0, loads=loads)
    assert blocks((0, 0, 4, 3), (1, 0, 2, 2), loads=loads) == [uneven]  # the slot without a unit of t0 is ambiguous
    assert blocks((0, 0, 4, 3), (1, 1, 4, 2), loads=loads) == [uneven]
    assert not blocks((0, 0, 2, 1), (1, 2, 4, 1), loads=loads)
    assert uneven in blocks((0, 2, 5, 1), (1, 0, 1, 1), loads=loads)  # late in only one of the three slots
    assert "total lateness is as stated" in blocks((0, 2, 5, 3), (1, 0, 1, 1), loads=loads)


@pytest.mark.parametrize("seed", range(6))
def test_proofs_of_the_least_loads_prove_no_other_schedule(seed: int) -> None:
    """Many units per slot, so that most levels have no separate proof; lateness is equal, loads differ."""
    made = generate(
        "jit-random", seed=seed, machines=4, jobs=3, transfers=3, slots=5, capacity=50, largest=150, deadlines=True
    )
    assert isinstance(made, JitInstance)
    least = stated(made, load="port")
    assert certify_schedule(made, least).claim == "optimal"
    counts, refused = level_counts(made, least), 0
    for other in (stated(made, load="sender"), stated(made, load="receiver"), stated(made, load="pair")):
        runs = {name: getattr(other, name) for name in ("transfer", "begin", "end", "amount", "lateness")}
        instead = replace(least, **runs)
        if level_counts(made, instead) != counts:
            assert other.lateness == least.lateness
            refused += 1
            assert failed(made, instead)
    assert refused
