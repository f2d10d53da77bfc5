"""Limits of preemption, live, by hand (`test_scheduler`: random lives with limits)."""

import pytest

from flowlex import FlowScheduler
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models import ModelError
from flowlex.models.flow.goals import LoadSpread, Placement, Priority
from flowlex.systems.scheduler import event_log as ev


def live_of(*jobs: FlowJob, slots: int = 2, goals: tuple = (Priority(),)) -> FlowScheduler:
    scheduler = FlowScheduler(FlowInstance(name="live", machines=(Machine(name="m", slots=slots),)), goals)
    for each in jobs:
        scheduler.submit(each)
    return scheduler


def job(name: str, count: int, priority: int = 5, **fields: object) -> FlowJob:
    return FlowJob(
        name=name, tasks=tuple(FlowTask(name=f"{name}{k}") for k in range(count)), priority=priority, **fields
    )


def test_a_budget_is_used_up_and_comes_back_after_an_hour() -> None:
    live = live_of(job("old", 2, preemptions_per_hour=1))
    live.step(0.0)
    live.submit(job("new", 2, 0))
    delta = live.step(100.5)
    assert len(delta.stopped) == 1 and delta.running == 2
    assert live.step(3700.4).stopped == ()
    why = live.explain("new1" if live.machine_of("new1") is None else "new0")
    assert why.rule == "preemption" and "'old' may lose 1 task an hour" in why.reason and "3700.5 s" in why.remedy
    assert len(live.step(3700.5).stopped) == 1  # an hour later to the tenth, with no event


def test_never_holds_until_its_machine_is_lost() -> None:
    live = live_of(job("old", 2, preemptions_per_hour=0))
    live.step(0.0)
    live.submit(job("new", 2, 0))
    assert live.step(1.0).stopped == ()
    assert "never preempted" in live.explain("new0").reason
    live.set_slots("m", 1)
    assert [name for name, _, _ in live.step(2.0).stopped] == ["old1"]  # of equals, by name
    live.handle(ev.SetPreemption(job="old", per_hour=None))
    assert [name for name, _, _ in live.step(3.0).stopped] == ["old0"]
    assert live.state.jobs["old"].preempted == []


def test_what_is_stopped_within_a_limit_waits_a_step_and_then_finds_another_place() -> None:
    live = live_of(job("old", 1, preemptions_per_hour=3), slots=1, goals=(Priority(), Placement()))
    live.step(0.0)
    live.add_machine(Machine(name="m2", slots=1))
    live.set_slots("m", 0)
    live.set_slots("m", 1)
    live.submit(job("new", 1, 0))
    assert live.step(1.0).stopped == () and live.machine_of("new0") == "m2"
    live.submit(job("more", 1, 0))
    assert [name for name, _, _ in live.step(2.0).stopped] == ["old0"]
    live.finish("new0")
    with pytest.raises(ModelError, match="step first"):
        live.audit()
    assert live.step(3.0).placed == (("old0", "m2"),)
    assert live.audit().certificate.ok


def test_goals_switched_keep_what_is_held() -> None:
    live = live_of(job("old", 2, preemptions_per_hour=1))
    live.step(0.0)
    live.submit(job("new", 2, 0))
    live.step(1.0)
    for goals in ((Priority(), LoadSpread()), (LoadSpread(), Placement(), Priority())):
        live.set_goals(goals)
        assert live.step().stopped == ()


def test_bad_limits_are_refused_and_change_nothing() -> None:
    live = live_of(job("old", 2, preemptions_per_hour=1))
    live.step(0.0)
    before = live.instance()
    for call, says in (
        (lambda: live.set_preemption("old", cost=-1), "greater than or equal to 0"),
        (lambda: live.set_preemption("old", per_hour=1.5), "integer"),
        (lambda: live.set_preemption("old", cost=0.5), "pass scale=2"),
        (lambda: live.set_preemption("old", cost=10**7), "raise cost_limit"),
        (lambda: live.set_preemption("none"), "no job is named 'none'"),
        (lambda: live.submit(job("x", 1, preemptions_per_hour=1, preempted_s=(1.0,))), "leave out preempted_s"),
    ):
        with pytest.raises(ModelError, match=says):
            call()
    assert live.instance() == before
