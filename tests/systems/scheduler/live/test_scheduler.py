"""The live scheduler: every step equals a solve from scratch, deltas add up, invalid events change nothing."""

import pytest

from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask, Machine, RunningOn
from flowlex.instances.generators import generate
from flowlex.instances.instance_base import InstanceError
from flowlex.models import ModelError
from flowlex.models.flow.goals import Continuity, DataLocality, FairShares, LoadSpread, Placement, Priority, RandomCosts
from flowlex.models.flow.model import FlowScheduling
from flowlex.systems.scheduler import event_log as ev
from flowlex.systems.scheduler.live.replay_events import replay_events
from flowlex.systems.scheduler.live.scheduler import EventError, FlowScheduler
from flowlex.systems.scheduler.live.snapshot import load_scheduler, save_scheduler
from flowlex.systems.scheduler.random_events import event_stream
from tests.seeds import seeds

#: Goals and options.
LIVES = {
    "none": ((), {}),
    "strict": ((Priority(), Placement(), Continuity(base=3, rate=2)), {}),
    "shares": ((FairShares(), Placement(), Continuity()), {}),
    "caps": ((FairShares("caps"), Priority(), DataLocality(), Placement()), {}),
    "spread": ((LoadSpread(), Continuity(), Placement(), FairShares("weighted")), {}),
    "weighted": ((Priority(mode="weighted", lowest=4), DataLocality()), {}),
    "random": ((RandomCosts(), Placement()), {}),
    "ranks": ((Priority(), Placement(), LoadSpread(), Continuity()), {"lexicographic": True}),
    "cheap": ((Placement(), DataLocality(), Continuity(base=1, rate=2, unit_s=7.7), LoadSpread()), {"wait_cost": 6}),
}


@pytest.mark.parametrize("seed", seeds(2, 12))
@pytest.mark.parametrize("kind", LIVES)
def test_every_step_equals_a_solve_from_scratch(kind, seed, flow_life, tmp_path):
    """Every second life has limits of preemption, more tasks kept apart, hours that pass, and a stored state."""
    (goals, options), odd = LIVES[kind], seed % 2
    life = flow_life(seed, goals, apart=0.9 if odd else 0.3, limited=0.7 * odd, **options)
    for turn in range(12):
        life.now += 900.0 * odd * int(life.rng.integers(0, 2))
        if odd and turn % 4 == 3:
            save_scheduler(life.scheduler, tmp_path / "state.npz")
            life.scheduler = load_scheduler(tmp_path / "state.npz", goals)
        life.check_step()
        state = life.scheduler.state
        assert all(live.held == sum(state.tasks[t].held for t in live.tasks) for live in state.jobs.values())


def small(**more):
    machines = (Machine(name="a", slots=1), Machine(name="b", slots=1, labels=("gpu",)))
    return FlowScheduler(FlowInstance(name="small", machines=machines), **more)


def submit(scheduler, name, *tasks, **more):
    scheduler.submit(FlowJob(name=name, tasks=tuple(FlowTask(name=t) for t in tasks), **more))


def test_reasons_of_a_difference():
    scheduler = small(goals=(Priority(), Placement(), Continuity()))
    submit(scheduler, "j", "t", "u", priority=5)
    assert {task for task, _ in scheduler.step().placed} == {"t", "u"}
    submit(scheduler, "urgent", "v", priority=1)
    delta = scheduler.step(10)
    ((task, machine, reason),) = delta.stopped
    assert reason == "it gave way to work that is worth more"
    assert [t for t, _ in delta.waiting] == [task]
    assert delta.placed == (("v", machine),)
    scheduler.remove_machine(scheduler.machine_of("v"))
    delta = scheduler.step(20)
    assert delta.moved[0][3].startswith("machine") and delta.moved[0][3].endswith("was removed")
    scheduler.set_slots(scheduler.machine_of("v"), 0)
    delta = scheduler.step(30)
    assert delta.stopped[0][2].endswith("has only 0 slots now")
    assert (delta.running, delta.waiting_count) == (0, 3)
    wants = (Constraint(kind="required", resources=("tpu",)),)
    scheduler.submit(FlowJob(name="k", tasks=(FlowTask(name="w", constraints=wants),), priority=0))
    assert scheduler.step(40).waiting == (("w", "no machine meets its placement (tpu)"),)
    scheduler.add_machine(Machine(name="c", slots=2, labels=("tpu",)))
    assert ("w", "c") in scheduler.step(50).placed


def test_room_is_kept_for_the_credit_that_a_task_may_earn():
    goals = (Continuity(base=1, rate=2, unit_s=60), Placement())
    assert goals[0].age(1e30) == 24 == len(goals[0].ages_s) - 1
    scheduler = small(goals=goals, cost_limit=50)
    submit(scheduler, "j", "t")
    scheduler.set_cost("t", "a", -1)
    with pytest.raises(ModelError, match=r"a cost of 51 \(scale 1\) exceeds the limit of 50; raise cost_limit"):
        scheduler.set_cost("t", "b", -2)
    scheduler.step(0)
    assert scheduler.step(1e12).certificate.ok
    assert scheduler.score().cost == -1 - 49
    with pytest.raises(ModelError, match="a cost of 49"):
        submit(small(goals=goals, cost_limit=48), "j", "t")


def test_refusals_in_the_middle_of_an_event_are_undone():
    scheduler = small(goals=(Priority(mode="weighted", lowest=1000),), cost_limit=1000)
    submit(scheduler, "j", "t", priority=990)
    with pytest.raises(ModelError, match="a cost of 11011"):
        scheduler.set_priority("j", 0)
    dear = FlowTask(name="u", costs={"c": 2000})
    with pytest.raises(EventError, match="a cost of 2000"):  # at once, not when machine c joins
        scheduler.submit(FlowJob(name="k", tasks=(dear,), priority=990))
    scheduler.add_machine(Machine(name="c", slots=5))
    assert [j.priority for j in scheduler.instance().jobs] == [990]
    delta = scheduler.step()
    assert (delta.running, scheduler.state.slots, scheduler.score().cost) == (1, 7, 0)


def test_tasks_that_run_at_the_start_stay():
    task = FlowTask(name="t", running=RunningOn(machine="b", elapsed_s=100))
    instance = FlowInstance(machines=(Machine(name="a"), Machine(name="b")), jobs=(FlowJob(name="j", tasks=(task,)),))
    scheduler = FlowScheduler(instance, (Continuity(),))
    delta = scheduler.step(0)
    assert (delta.placed, delta.moved, scheduler.machine_of("t")) == ((), (), "b")
    assert scheduler.instance().jobs[0].tasks[0].running.elapsed_s == 100


def test_bad_events_are_refused_and_change_nothing():
    scheduler = small(goals=(FairShares("caps"), Priority(), Placement()))
    submit(scheduler, "j", "t", "u", "v", min_tasks=1)
    scheduler.step()
    before = scheduler.instance()
    waiting = next(iter(scheduler.waiting()))
    cases = [
        (lambda: scheduler.finish("x"), "no task is named 'x'; it may have finished or been cancelled"),
        (lambda: scheduler.finish(waiting), f"task '{waiting}' waits, so it cannot finish; cancel it instead"),
        (lambda: scheduler.cancel(task="x"), "no task is named 'x'"),
        (lambda: scheduler.cancel(job="x"), "no job is named 'x'"),
        (lambda: scheduler.cancel(), "cancel names a task or a job"),
        (lambda: scheduler.add_machine(Machine(name="a")), "machine 'a' is here already"),
        (lambda: scheduler.remove_machine("z"), "no machine is named 'z'"),
        (lambda: scheduler.set_slots("a", -1), "slots must be a whole number in 0..100000, got -1"),
        (lambda: submit(scheduler, "j", "w"), "job 'j' is here already"),
        (lambda: submit(scheduler, "k", "t"), "task 't' is here already"),
        (lambda: scheduler.update_shares("j", max_tasks=0), "min_tasks 1 exceeds max_tasks 0"),
        (lambda: scheduler.set_priority("j", 2000), "2000"),
        (lambda: scheduler.set_priority("j", 1.5), "priority must be a whole number in 0..1000, got 1.5"),
        (lambda: scheduler.set_cost("t", "a", 1e300), "use a larger unit"),
        (lambda: scheduler.set_cost("t", "a", float("nan")), "is nan; a cost must be a finite number"),
        (lambda: scheduler.set_cost("t", "a", 0.5), "no whole number of 1/1; pass scale=2"),
        (lambda: scheduler.set_cost("t", "a", 10**9), "exceeds the limit of 1000000; raise cost_limit"),
        (lambda: scheduler.set_cost("t", "z", 1), "no machine is named 'z'"),
        (lambda: scheduler.step(-1), "time cannot go back"),
    ]
    for event, message in cases:
        with pytest.raises(ModelError, match=message):
            event()
        assert scheduler.instance() == before
    running = FlowTask(name="r", running=RunningOn(machine="a"))
    with pytest.raises(EventError, match="runs already; submit it without 'running'"):
        scheduler.submit(FlowJob(name="k", tasks=(running,)))
    delta = scheduler.step()
    assert (delta.events, delta.placed, delta.moved, delta.stopped) == (0, (), (), ())
    with pytest.raises(ModelError, match="would overflow exact"):
        small(cost_limit=2**50)


def test_damaged_state_files(tmp_path):
    scheduler = small(goals=(Placement(),))
    path = tmp_path / "state.npz"
    save_scheduler(scheduler, path)
    data = path.read_bytes()
    with pytest.raises(InstanceError, match=r"saved with the goals .*:Placement"):
        load_scheduler(path, (LoadSpread(),))
    for broken in (data[: len(data) // 2], b"", b"not a zip", data[:60] + b"\xff" * 20 + data[80:]):
        path.write_bytes(broken)
        with pytest.raises(InstanceError, match=r"state\.npz"):
            load_scheduler(path, (Placement(),))
    with pytest.raises(InstanceError, match="cannot be read"):
        load_scheduler(tmp_path / "nowhere.npz", ())


def test_replay_of_a_log():
    instance = generate("flow-scale", machines=30, tasks=60)
    log = list(event_stream(instance, steps=6, events=15, seed=2))
    report = replay_events(log, (Placement(), DataLocality()))
    assert report.steps == 7
    assert not report.refused
    assert len(report.milliseconds) == 7 == sum(count for *_, count in report.histogram())
    report.milliseconds = [1.5]
    assert [count for *_, count in report.histogram()] == [1]
    assert report.summary()["events"] == 90
    assert report.summary()["method"] == "weights"
    wide = replay_events(log, (Placement(), DataLocality()), lexicographic=True)
    assert wide.summary()["method"].startswith("phases: 2 stages, as the strict order would need a weight of")
    log.insert(3, ev.Finish(task="nobody"))
    assert [number for number, _ in replay_events(log, ()).refused] == [4]
    assert replay_events(log, (), batch=20).steps == 5
    assert replay_events([], ()).steps == 0


def test_a_cold_start_gives_the_optimum_of_pylmcf_a_tree():
    """The cold start uses pylmcf at this size; deltas must be correct across it."""
    instance = generate("flow-scale", machines=150, tasks=200, slots=1, seed=3)
    goals = (Placement(), DataLocality(), Continuity(base=10, rate=10))
    scheduler = FlowScheduler(instance, goals)
    placements = dict(scheduler.step().placed)
    assert scheduler.score() == FlowScheduling(instance, goals=goals).solve("network").score
    for machine in ("m1", "m2", "m3"):
        scheduler.remove_machine(machine)
        state = scheduler.instance()
        scheduler.state.session.solve(cold=True)
        delta = scheduler.step()
        assert scheduler.score() == FlowScheduling(state, goals=goals).solve("network").score
        placements |= dict(delta.placed) | {task: new for task, _, new, _ in delta.moved}
        for task, _, _ in delta.stopped:
            del placements[task]
        assert placements == scheduler.placements()


@pytest.mark.parametrize("goals", ["borg", ("borg",), (Priority,)])
def test_what_is_no_goal_is_refused(goals):
    with pytest.raises(ModelError, match="expected goals such as"):
        FlowScheduler(FlowInstance(machines=(Machine(name="a"),)), goals)
