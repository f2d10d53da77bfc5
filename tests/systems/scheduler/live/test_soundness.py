"""Regression tests of live schedulers: float ages, saving between changes and a step, fractions, repeated goals."""

import numpy as np
import pytest

from flowlex import FlowScheduler, FlowScheduling
from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models import ModelError
from flowlex.models.flow.goals import Continuity, DataLocality, FairShares, LoadSpread, Placement, Priority, RandomCosts
from flowlex.systems.scheduler.live.task_ages import TaskAges, elapsed_s
from flowlex.systems.scheduler.live.task_records import Delta


def machines(*slots: int) -> tuple[Machine, ...]:
    return tuple(Machine(name=f"m{k}", slots=n, rack="r") for k, n in enumerate(slots))


def job(name: str, count: int, **fields: object) -> FlowJob:
    return FlowJob(name=name, tasks=tuple(FlowTask(name=f"{name}{k}") for k in range(count)), **fields)


def scheduler(*slots: int, goals: tuple = (), **options: object) -> FlowScheduler:
    return FlowScheduler(FlowInstance(name="live", machines=machines(*slots)), goals, **options)


def step(live: FlowScheduler, now_s: float, goals: tuple, **options: object) -> Delta:
    """Step, and compare the schedule's value with a fresh solve of the same state."""
    live.prepare(now_s)
    static = FlowScheduling(live.instance(), goals=goals, **options).solve("network")
    delta = live.step(now_s)
    assert live.score() == static.score
    return delta


# Times are exact ------------------------------------------------------------------------------------------------
def test_a_step_at_the_very_due_time_ends_and_the_task_is_older() -> None:
    goals = (Continuity(),)
    live = scheduler(1, goals=goals)
    live.submit(job("a", 1))
    step(live, 68.2, goals)
    step(live, 128.2, goals)  # 128.2 - 68.2 is less than 60 in floats
    assert live.instance().jobs[0].tasks[0].running.elapsed_s == 60.0


@pytest.mark.parametrize("unit", [0.3, 0.1, 60.0, 7.7])
def test_ages_advance_one_by_one_at_decimal_times(unit: float) -> None:
    goal = Continuity(unit_s=unit)
    for tenths in range(0, 36000, 37):
        start = tenths / 10
        clock = TaskAges(goal)
        clock.start("t", start)
        for age in (1, 2, 3):
            due = float(np.format_float_positional(start + unit * (2**age - 1), precision=12, trim="0"))
            assert list(clock.due(due - unit / 4)) == []
            assert [tasks for _, tasks in clock.due(due)] == [["t"]]
            assert goal.age(elapsed_s(start, due)) == age
            assert list(clock.due(due)) == []


def test_times_that_are_none_are_refused() -> None:
    live = scheduler(1)
    for now, says in ((float("inf"), "finite"), (float("nan"), "finite"), (-1.0, "cannot go back")):
        with pytest.raises(ModelError, match=says):
            live.step(now)
    with pytest.raises(ModelError, match="unit_s must be a positive"):
        Continuity(unit_s=float("inf"))


# A failed step can be repeated ------------------------------------------------------------------------------------
def test_a_failed_step_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares that are not refreshed make the step fail; with them refreshed the same step succeeds."""
    goals = (FairShares(), Placement())
    live = scheduler(2, goals=goals, scale=10)
    live.submit(job("a", 5))
    live.step(1.0)
    for k in range(3):
        live.cancel(task=f"a{k}")
    with monkeypatch.context() as broken, pytest.raises(RuntimeError, match="cannot be balanced"):
        broken.setattr(live.state, "update_bounds", lambda: None)
        live.step(2.0)
    assert step(live, 2.0, goals, scale=10).running == 2


# Fractions are exact or refused ---------------------------------------------------------------------------------
def test_fractional_costs_of_goals_are_exact_live_and_static() -> None:
    goals = (LoadSpread(step=0.9), Continuity(base=0.9, rate=0.3))
    live = scheduler(2, 2, goals=goals)
    assert live.options["scale"] == 10
    live.submit(job("a", 4))
    step(live, 1.0, goals)
    assert live.score().cost == 18  # two tasks pay 0.9, in tenths
    step(live, 100.0, goals)
    with pytest.raises(ModelError, match="scale=10"):
        scheduler(2, goals=goals, scale=1).submit(job("a", 2))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: LoadSpread(step=-1), "step must be a finite number of at least 0"),
        (lambda: DataLocality(rack_cost=float("nan")), "rack_cost must be a finite number"),
        (lambda: Continuity(weight=0.5), "weight must be a whole number"),
        (lambda: RandomCosts(most=0), "most must be a whole number of at least 1"),
        (lambda: scheduler(1, goals=(Continuity(), Continuity(base=3))), "two goals are of kind Continuity"),
        (lambda: scheduler(1, goals=(Placement(), Placement())), "two goals are of kind Placement"),
        (lambda: scheduler(1, goals=(Priority(mode="weighted"),)), "pass lowest="),
        (lambda: scheduler(1).set_slots("m0", 2.5), "slots must be a whole number in 0..100000, got 2.5"),
    ],
)
def test_what_is_refused_before_anything_changes(make, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        make()


@pytest.mark.parametrize("kind", ["max_min", "weighted", "caps"])
def test_guarantees_beyond_the_slots_are_scaled_down_live_and_static(kind: str) -> None:
    goals = (FairShares(kind=kind),)
    live = scheduler(4, 2, goals=goals)
    live.submit(job("a", 4, min_tasks=4))
    live.submit(job("b", 2, min_tasks=2))
    live.step(1.0)
    live.remove_machine("m0")
    assert step(live, 2.0, goals).running == 2
    with_room = FlowScheduling(live.instance(), goals=goals).solve("network")
    assert sum(low for low, _ in with_room.shares.values()) == 2


def test_a_log_is_counted_by_its_lines_and_time_that_runs_backwards_is_told() -> None:
    from flowlex.systems.scheduler import event_log as ev
    from flowlex.systems.scheduler.live.replay_events import replay_events

    log = [
        ev.AddMachine(machine=machines(1)[0], at_s=5.0),
        ev.Submit(job=job("a", 1), at_s=3.0),
        ev.Finish(task="nobody", at_s=6.0),
    ]
    report = replay_events(log, ())
    assert [number for number, _ in report.refused] == [2, 3]
    assert report.refused[0][1] == "time runs backwards, from 5 s to 3 s; sort the log"


def test_preferences_keep_their_fractions() -> None:
    wish = Constraint(kind="preferred", resources=("machine:m1",), utility=0.3)
    task = FlowTask(name="t", constraints=(wish,))
    instance = FlowInstance(name="x", machines=machines(1, 1), jobs=(FlowJob(name="a", tasks=(task,)),))
    solution = FlowScheduling(instance, goals=(Placement(),)).solve("network")
    assert solution.machine_of == {"t": "m1"}
