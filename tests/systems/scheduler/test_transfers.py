"""Live just-in-time plans: promises are kept, sent units add up, and every step is proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flowlex.formulations.solver_outcome import Status
from flowlex.instances import generate
from flowlex.instances.jit import Computation, JitInstance, Job, Machine, Transfer
from flowlex.models.jit.model import JitBandwidth
from flowlex.models.model_base import ModelError
from flowlex.systems.scheduler.event_log import Arrive, EventLog, Sent, Step, Withdraw, events_of, write_event_log
from flowlex.systems.scheduler.transfers.replay_events import replay_jit_events
from flowlex.systems.scheduler.transfers.scheduler import JitEventError, JitScheduler, JitStep

MACHINES = [Machine(name=n, out_mbps=24, in_mbps=24) for n in "abcd"]


def job(name: str, *transfers: tuple[str, str, float, float], ready: float = 0.0) -> Job:
    """Transfers by sender, receiver, MB and deadline."""
    made = tuple(
        Transfer(name=f"t{k}", size_mb=mb, sender=a, receiver=b, feeds="c", ready_s=ready, deadline_s=deadline)
        for k, (a, b, mb, deadline) in enumerate(transfers)
    )
    return Job(name=name, computations=(Computation(name="c", seconds=1.0),), transfers=made)


def live(**options: Any) -> JitScheduler:
    return JitScheduler(MACHINES, slot_s=1.0, unit_mb=1.0, **({"share": 1.0} | options))


def test_a_single_job_is_planned_as_the_model_plans_it() -> None:
    instance = generate("jit-figure4")
    assert isinstance(instance, JitInstance)
    whole = JitBandwidth(instance, share=1.0).solve("highs")
    alone = JitScheduler(instance.machines, slot_s=instance.slot_s, unit_mb=instance.unit_mb, share=1.0)
    alone.submit(instance.jobs[0], 0.0)
    step = alone.step(0.0)
    assert step.solution is not None and step.solution.sorted_loads.tolist() == whole.sorted_loads.tolist()
    assert step.certificate is not None and step.certificate.claim == "optimal"
    assert set(step.new) == set(instance.transfer_names)


def test_a_promise_is_kept_when_a_tighter_job_comes() -> None:
    """A sends 6 MB until 4; at 1 another 9 MB need the same port until 4. They cannot all be on time."""
    late = {}
    for keep in (True, False):
        scheduler = live(keep_promises=keep)
        scheduler.submit(job("old", ("a", "b", 6, 4)), 0.0)
        scheduler.step(0.0)
        assert scheduler.sending["old/t0"].at(1).units == 5
        scheduler.submit(job("new", ("a", "c", 9, 3)), 1.0)
        late[keep] = scheduler.step(1.0).late
        assert scheduler.rates(1.0)
    assert late[True] == {"new/t0": 2}  # 5 of the old and 9 of the new fill slots 1 to 5
    assert max(late[False].values()) == 2


def test_time_between_slots_belongs_to_the_old_plan() -> None:
    scheduler = live()
    scheduler.submit(job("j", ("a", "b", 3, 3)), 0.0)
    scheduler.step(0.0)
    before = scheduler.rates(0.0)
    scheduler.submit(job("k", ("a", "c", 2, 4)), 0.5)
    step = scheduler.step(0.5)
    assert step.slot == 1
    assert scheduler.rates(0.7) == before == {"j/t0": 8.0}
    assert scheduler.sending["j/t0"].units == 2


def test_what_is_behind_is_promised_anew() -> None:
    scheduler = live()
    scheduler.submit(job("j", ("a", "b", 3, 1)), 0.0)
    assert not scheduler.step(0.0).late
    scheduler.report("j/t0", 2.5, 1.0)
    assert scheduler.next_step_s == 1.0
    step = scheduler.step(1.0)
    assert step.late == {"j/t0": 1}
    assert scheduler.sending["j/t0"].units == 3
    scheduler.withdraw("j", 2.0)
    assert not scheduler.sending and not scheduler.step(2.0).new


def test_steps_follow_first_transfers_or_a_fixed_interval() -> None:
    scheduler = live()
    assert scheduler.next_step_s is None
    scheduler.submit(job("j", ("a", "b", 3, 9), ready=2.5), 1.0)
    assert scheduler.next_step_s == 3.5
    often = live(every_s=2.0)
    often.submit(job("j", ("a", "b", 3, 9), ready=2.5), 1.0)
    assert often.next_step_s == 4.0


def test_when_time_runs_out_the_old_plan_stands() -> None:
    scheduler = live()
    scheduler.submit(job("old", ("a", "b", 6, 4), ("c", "b", 3, 4)), 0.0)
    scheduler.step(0.0)
    old = scheduler.sending["old/t0"].at(1)
    scheduler.options = {"time_limit_s": 1e-9}
    scheduler.submit(job("new", ("a", "b", 9, 3)), 1.0)
    step = scheduler.step(1.0)
    assert step.status is Status.FEASIBLE
    assert step.certificate is not None and step.certificate.ok and step.certificate.claim == "feasible"
    assert scheduler.sending["old/t0"].promise == old.promise
    assert step.late


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda s: s.submit(job("j", ("a", "b", 1, 1)), 5.0), "job 'j' has been submitted before"),
        (lambda s: s.submit(job("k", ("a", "x", 1, 1)), 5.0), "job 'k' is refused: .*machine 'x'"),
        (lambda s: s.submit(job("k", ("a", "b", 1, 1)), 0.5), r"time runs forwards: 0.5 s comes before 1.0 s"),
        (lambda s: s.submit(job("k", ("a", "b", 1, 1)), float("nan")), "time runs forwards"),
        (lambda s: s.withdraw("k", 5.0), "there is no job 'k'"),
        (lambda s: s.report("j/t9", 1.0, 5.0), "no planned transfer 'j/t9' left to send"),
        (lambda s: s.report("j/t0", -1.0, 5.0), "left_mb must not be negative"),
        (lambda s: s.step(0.0), "time runs forwards"),
    ],
)
def test_events_that_do_not_fit_leave_nothing_behind(act: Any, says: str) -> None:
    scheduler = live()
    scheduler.submit(job("j", ("a", "b", 3, 9)), 1.0)
    scheduler.step(1.0)
    before = (dict(scheduler.sending), dict(scheduler.background), set(scheduler.jobs), scheduler.now_s)
    with pytest.raises(JitEventError, match=says):
        act(scheduler)
    assert before == (scheduler.sending, scheduler.background, scheduler.jobs, scheduler.now_s)


def test_options_are_refused_at_once() -> None:
    with pytest.raises(ModelError, match="share must lie above 0"):
        live(share=0.0)
    with pytest.raises(ModelError, match="every_s must be above 0"):
        live(every_s=0.0)
    with pytest.raises(ModelError, match="keep_promises must be true or false, got 'yes'"):
        live(keep_promises="yes")
    with pytest.raises(ModelError, match="begins with its `network` event"):
        replay_jit_events([Step()])


def lives(seed: int) -> Iterator[Any]:
    """Submissions, reports and withdrawals at random times."""
    rng, now = np.random.default_rng(seed), 0.0
    for k in range(int(rng.integers(2, 5))):
        now += float(rng.integers(0, 7)) / 2
        pairs = [rng.choice(list("abcd"), 2, replace=False).tolist() for _ in range(int(rng.integers(1, 4)))]
        sizes = [(a, b, float(rng.integers(1, 8)), float(rng.integers(1, 6))) for a, b in pairs]
        yield Arrive(at_s=now, job=job(f"j{k}", *sizes, ready=float(rng.integers(0, 2)) / 2))
        if rng.random() < 0.3:
            yield Sent(at_s=now, transfer=f"j{k}/t0", left_mb=float(rng.integers(0, 4)))
        if rng.random() < 0.2:
            yield Withdraw(at_s=now, job=f"j{int(rng.integers(0, k + 1))}")


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["pair", "port", "sender", "receiver"]))
@example(seed=3, load="pair")
def test_random_lives(seed: int, load: Any) -> None:
    """Port rates hold in every slot, undisturbed transfers are sent completely, promises hold, steps are optimal.

    Reuse of the previous plan does not change loads: they equal those of a new plan of the unsent remainder.
    """
    scheduler, promised = live(load=load), dict[str, int]()
    sent: Counter[str] = Counter()
    ports: Counter[tuple[str, str, int]] = Counter()
    disturbed: set[str] = set()
    units: dict[str, int] = {}

    def carry_out(begin: int, end: int) -> None:
        for name, s in scheduler.sending.items():
            for first, last, rate in s.runs:
                for slot in range(max(first, begin), min(last, end)):
                    sent[name] += rate
                    ports["out", s.sender, slot] += rate
                    ports["in", s.receiver, slot] += rate

    planned = 0
    for event in [*lives(seed), None]:
        at_s = scheduler.now_s + 100 if event is None else event.at_s
        while (due := scheduler.next_step_s) is not None and (event is None or due < at_s):
            slot = scheduler.slot_of(due)
            carry_out(planned, slot)
            step = scheduler.step(due)
            planned = slot
            assert step.certificate is None or (step.certificate.ok and step.certificate.claim == "optimal")
            for name, s in scheduler.sending.items():
                assert s.promise is not None
                if name not in disturbed:
                    assert s.promise <= promised.get(name, s.promise)
                    promised[name] = s.promise
                    units.setdefault(name, s.units)
                assert max(end for _, end, _ in s.runs) <= s.promise
        try:
            match event:
                case Arrive():
                    scheduler.submit(event.job, event.at_s)
                case Sent():
                    scheduler.report(event.transfer, event.left_mb, event.at_s)
                    disturbed.add(event.transfer)
                case Withdraw():
                    scheduler.withdraw(event.job, event.at_s)
                    disturbed |= {name for name in units if name.startswith(event.job)}
        except JitEventError:
            continue
    carry_out(planned, 1000)
    assert all(amount <= 3 for amount in ports.values())
    assert {n: sent[n] for n in units if n not in disturbed} == {n: u for n, u in units.items() if n not in disturbed}


def test_parts_are_proven_by_stages_above_their_own_loads() -> None:
    """Two components share programs, one has higher loads: stage 3 of the other needs the result of its stage 4."""
    ports = [Machine(name=n, out_mbps=80, in_mbps=80) for n in "abcd"]
    table = [("t0", 1, "a", "b", 29, 29), ("t1", 3, "a", "b", 0.5, None), ("t2", 5, "c", "d", 0.5, None)]
    transfers = tuple(
        Transfer(name=n, size_mb=mb, sender=a, receiver=b, feeds="c", deadline_s=due, firm_s=firm)
        for n, mb, a, b, due, firm in table
    )
    rest = Job(name="rest", computations=(Computation(name="c", seconds=0.0),), transfers=transfers)
    instance = JitInstance(machines=tuple(ports), jobs=(rest,), slot_s=1.0, unit_mb=1.0)
    solution = JitBandwidth(instance, share=1.0, windows="elastic").solve("highs")
    assert solution.certificate is not None and solution.certificate.claim == "optimal"
    assert solution.sorted_loads.tolist() == [5, 3, 1] and solution.lateness == 8


def test_a_log_is_replayed_from_a_file(tmp_path: Any) -> None:
    instance = generate("jit-cluster", seed=1, jobs=6, machines=8, mix="LeNet", gflops=5000.0, copies=0)
    assert isinstance(instance, JitInstance)
    log = tmp_path / "log.jsonl"
    write_event_log([*events_of(instance), Withdraw(at_s=1e5, job="nobody"), Step(at_s=1e5)], log)
    steps: list[JitStep] = []
    report = replay_jit_events(EventLog(log), on_step=steps.append, share="1.0")
    assert report.steps == len(steps) == report.proven > 3
    assert sum(len(step.new) for step in steps) == report.planned == len(instance.transfer_names)
    assert report.refused == [(8, "there is no job 'nobody'")]
    assert report.summary()["sending_at_end"] == 0
    assert sum(count for *_, count in report.histogram()) == report.steps
