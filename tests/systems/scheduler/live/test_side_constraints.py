"""Live gangs, spreads, affinities and capacities: every step is the best of all enumerated schedules."""

import numpy as np
import pytest

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.instances.group_rules import Affinity, Gang, TaskSpread
from flowlex.models.flow.goals import PRESETS, Continuity, FairShares, LoadSpread, Placement, Priority
from flowlex.models.model_base import ModelError
from flowlex.systems.scheduler import event_log as ev
from flowlex.systems.scheduler.live import decision
from flowlex.systems.scheduler.live.replay_events import replay_events
from flowlex.systems.scheduler.live.scheduler import EventError, FlowScheduler
from flowlex.systems.scheduler.live.snapshot import load_scheduler, save_scheduler, saved_scheduler
from tests.models.flow.capacity_cases import cluster
from tests.models.flow.changes_oracle import Program, best
from tests.models.flow.ties import GOALS, rules_for, tied_cluster, with_capacities
from tests.seeds import seeds

LIVE = (Priority(), Placement(), LoadSpread(), Continuity())


def machine(name, slots=2, **more):
    return Machine(name=name, slots=slots, rack=f"r{int(name[1:]) % 2}", **more)


def job(name, count, **more):
    return FlowJob(name=name, tasks=tuple(FlowTask(name=f"{name}-{k}") for k in range(count)), **more)


def live(*machines, goals=LIVE, **options):
    return FlowScheduler(FlowInstance(name="live", machines=machines), goals, **options)


def steps(s, seed, tmp_path, best_of, count=3, claims=("optimal",)):
    """Random steps, each from a state that was saved and loaded: the best of all schedules, and proven."""
    rng, whole = np.random.default_rng(seed), 0
    fresh = [m.model_copy(update={"name": f"n{k}"}) for k, m in enumerate(s.state.cluster.machines.values())][:1]
    for number in range(count):
        if number:
            happen(s, rng, fresh)
        s.prepare(float(number))
        instance, before = s.instance(), s.placements()
        save_scheduler(s, tmp_path / "state")
        twin = load_scheduler(tmp_path / "state", s.state.goals)
        delta = s.step()
        other = twin.step()
        assert (other.running, twin.score()) == (delta.running, s.score())
        score, whole = s.score(), whole + delta.whole
        assert (score.shortfall, *(n for _, n in score.waiting), score.cost) == best_of(instance)
        assert delta.certificate.claim in claims
        for task, new in delta.placed:
            assert before.setdefault(task, new) == new
        before |= {task: new for task, _, new, _ in delta.moved}
        assert all(before.pop(task) == old for task, old, _ in delta.stopped)
        assert before == s.placements() and set(s.waiting()) == s.state.tasks.keys() - before.keys()
        assert FlowInstance.model_validate(s.instance().model_dump())
        audit = s.audit()
        assert audit.certificate.claim in claims and audit.machine_of == before
        for task in list(s.waiting())[: 1 if s.state.side_constraints else 0]:
            why = s.explain(task)
            assert why.reason == s.waiting()[task]
            assert (why.price, why.machine is None) == price_of(s.instance(), task)
    return whole


def price_of(instance, task):
    """One more than running a task costs, where nothing before the costs changes; and whether it can run at all."""
    free, forced = Program(instance), Program(instance)
    forced.row("forced", forced.find("waits", task=task), 0, 0)
    (*first, cost), found = free.solve().values(), forced.solve()
    if found is None:
        return None, True
    *then, more = found.values()
    return (round(more - cost) + 1 if np.allclose(first, then) else None), False


def happen(s, rng, fresh):
    tasks, machines = list(s.state.tasks), list(s.state.cluster.machines)
    kind = int(rng.integers(0, 6))
    if kind == 0 and tasks:
        task = str(rng.choice(tasks))
        s.cancel(task=task) if s.machine_of(task) is None else s.finish(task)
    elif kind == 1 and len(machines) > 1:
        s.remove_machine(str(rng.choice(machines)))
    elif kind == 2 and s.state.side_constraints.rules:
        rules = list(s.state.side_constraints.rules)
        s.untie(*rules[int(rng.integers(len(rules)))])
    elif kind == 3 and fresh:
        s.add_machine(fresh.pop())
    elif kind == 4:
        again = s.state.cluster.machines[str(rng.choice(machines))]
        s.remove_machine(again.name)
        s.add_machine(again.model_copy(update={"slots": int(rng.integers(0, 3))}))
    else:  # something always happens, as `score` is that of the last full solve
        s.set_slots(str(rng.choice(machines)), int(rng.integers(0, 4)))


@pytest.mark.parametrize("seed", seeds(5, 60))
def test_lives_with_rules_are_the_best_of_all_schedules(seed, tmp_path):
    steps(FlowScheduler(tied_cluster(seed, most_tasks=5), GOALS), seed, tmp_path, best)


@pytest.mark.parametrize("seed", seeds(4, 60))
def test_lives_with_capacities_are_the_best_of_all_schedules(seed, tmp_path):
    """Capacities alone, and together with gangs, affinities and spreads."""
    for instance in (cluster(seed, tasks=4), with_capacities(tied_cluster(seed, most_tasks=4), seed)):
        s = FlowScheduler(instance, GOALS)
        steps(s, seed, tmp_path, best, claims=("optimal", "bounded"))  # where the solver's claim is not verified


@pytest.mark.parametrize("seed", seeds(4, 60))
def test_limits_of_preemptions_hold_beside_capacities(seed):
    """A random event sequence: every step is the best schedule within the preemption limits per hour."""
    rng, s = np.random.default_rng(seed), FlowScheduler(cluster(seed, tasks=2), GOALS)
    whole = 0
    for number in range(4):
        tasks = tuple(FlowTask(name=f"{number}-{k}", demands={"cpu": int(rng.integers(1, 3))}) for k in range(2))
        limit = int(rng.integers(0, 2)) if rng.random() < 0.6 else None
        s.submit(FlowJob(name=f"n{number}", tasks=tasks, priority=3 - number, preemptions_per_hour=limit))
        running = sorted(s.placements())
        if number % 2 and running:
            s.finish(str(rng.choice(running)))
        s.prepare(1000.0 * number)
        instance, before = s.instance(), s.placements()
        delta = s.step()
        whole += delta.whole
        score = s.score()
        assert (score.shortfall, *(n for _, n in score.waiting), score.cost) == best(instance)
        for live in s.state.jobs.values():
            if (limit := live.job.preemptions_per_hour) is not None:
                lost = [t for t, *_ in delta.stopped if t in live.tasks]
                assert len(live.preempted) <= limit and live.preempted.count(s.state.now_s) == len(lost)
                assert not any(t in live.tasks and before[t] != now for t, _, now, _ in delta.moved)


@pytest.mark.parametrize("seed", seeds(6, 100))
def test_limits_of_preemptions_hold_beside_rules(seed, tmp_path):
    """A random event sequence of machines, tasks and rules: every step is the best of all schedules."""
    rng = np.random.default_rng(seed)
    machines = tied_cluster(seed).machines
    s = FlowScheduler(FlowInstance(name="limits", machines=machines), GOALS)
    for number in range(5):
        names = [f"{number}-{k}" for k in range(int(rng.integers(1, 4)))]
        limit = int(rng.integers(0, 3)) if rng.random() < 0.7 else None
        tasks = tuple(FlowTask(name=t, costs={m.name: int(rng.integers(-4, 9)) for m in machines}) for t in names)
        rules = rules_for(rng, names, sorted({m.rack for m in machines}))
        new = [
            kind(**rule | {"name": f"{rule['name']}-{number}"})
            for kind, those in zip((Gang, Affinity, TaskSpread), rules.values(), strict=True)
            for rule in those
        ]
        s.submit(FlowJob(name=f"n{number}", tasks=tasks, priority=4 - number, preemptions_per_hour=limit), *new)
        for _ in range(int(rng.integers(1, 4))):
            happen(s, rng, [m for m in machines if m.name not in s.state.cluster.machines])
        s.prepare(1000.0 * number)
        instance = s.instance()
        save_scheduler(s, tmp_path / "state")
        s.step()
        score = s.score()
        if instance.jobs:
            assert (score.shortfall, *(n for _, n in score.waiting), score.cost) == best(instance)
        twin = load_scheduler(tmp_path / "state", s.state.goals)
        twin.step()
        assert twin.score() == score
        for live_job in s.state.jobs.values():
            limit = live_job.job.preemptions_per_hour
            assert limit is None or len(live_job.preempted) <= limit


def test_the_network_is_enough_where_it_keeps_the_rules(monkeypatch):
    s = live(machine("m0"), machine("m1"))
    monkeypatch.setattr(decision, "solve_fully", None)  # would fail when called
    s.submit(job("g", 2), Gang(name="g", jobs=("g",)), TaskSpread(name="s", jobs=("g",), most=1))
    assert len(s.step(1.0).placed) == 2
    assert s.audit().certificate.claim == "optimal"


def test_a_gang_without_room_costs_no_solve(monkeypatch):
    s = live(machine("m0"), machine("m1"))
    s.submit(job("g", 3), Gang(name="g", jobs=("g",), within="rack"))
    s.submit(job("a", 3))
    with monkeypatch.context() as patch:
        patch.setattr(decision, "solve_fully", None)  # would fail when called
        assert s.step(1.0).running == 3
    why = s.explain("g-1")
    assert why.rule == "gang"
    assert "needs 3 slots at once within one rack; the machines have at most 2 on rack:r1" in why.reason
    s.cancel(job="a")
    s.set_slots("m1", 3)
    assert s.step(2.0).running == 3
    s.set_slots("m1", 2)
    monkeypatch.setattr(decision, "solve_fully", None)
    assert len(s.step(3.0).stopped) == 3


def test_while_only_time_passes_a_whole_solve_holds(monkeypatch):
    s = live(machine("m0", slots=3))
    s.submit(job("a", 1))
    s.submit(job("g", 3, priority=1), Gang(name="g", jobs=("g",)))
    assert s.step(1.0).whole and s.placements() == {"a-0": "m0"}
    with monkeypatch.context() as patch:
        patch.setattr(decision, "solve_fully", None)
        later = s.step(500.0)
    assert later.whole and later.certificate.claim == "optimal" and not (later.placed or later.moved or later.stopped)
    s.set_slots("m0", 4)
    assert len(s.step(501.0).placed) == 3


def test_a_step_without_a_schedule_can_be_repeated(monkeypatch):
    s = live(machine("m0"), machine("m1"))
    s.submit(job("g", 4, priority=1), Gang(name="g", jobs=("g",)))
    s.submit(job("a", 3))

    def out_of_time(*_, **__):
        raise ModelError("no schedule (time)")

    with monkeypatch.context() as patch:
        patch.setattr(decision, "solve_fully", out_of_time)
        for _ in range(2):
            with pytest.raises(ModelError, match="no schedule"):
                s.step(1.0)
    assert not s.placements()
    assert {task for task, _ in s.step(1.0).placed} == {"a-0", "a-1", "a-2"}


def test_a_gang_starts_when_the_last_of_its_places_comes_and_ends_task_by_task():
    s = live(machine("m0"), machine("m2"))
    s.submit(job("big", 5), Gang(name="big", jobs=("big",), within="rack"))
    assert not s.step(1.0).placed
    why = s.explain("big-3")
    assert why.rule == "gang" and why.reason == s.waiting()["big-3"]
    assert why.price is None and why.unpriced == "no schedule runs it while the rules and capacities hold"
    assert "needs 5 slots at once within one rack; the machines have at most 4 on rack:r0" in why.reason
    s.add_machine(machine("m4", slots=1))
    with pytest.raises(EventError, match="events have come since the last step"):
        s.audit()
    with pytest.raises(EventError, match="'big-3' may be placed by the next step"):
        s.explain("big-3")
    assert len(s.step(2.0).placed) == 5
    with pytest.raises(EventError, match="runs on"):
        s.explain("big-3")
    s.finish("big-0")
    s.remove_machine("m4")
    assert s.step(3.0).running == 4
    s.set_slots("m0", 1)
    assert s.step(4.0).running == 0  # all or none of its remaining tasks
    s.untie("gang", "big")
    assert s.step(5.0).running == 3
    for k in range(1, 5):
        s.cancel(task=f"big-{k}")
    assert not s.state.side_constraints and not s.state.tasks


def test_rules_that_make_no_sense_change_nothing():
    s = live(machine("m0"))
    s.submit(job("a", 2))
    s.tie(Gang(name="g", jobs=("a",)))
    for rule, message in (
        (Gang(name="h", tasks=("x",)), "gang 'h' names task 'x', which does not exist"),
        (Gang(name="g", tasks=("a-1",)), "gang 'g' is here already"),
        (
            Affinity(name="f", tasks=("a-1",)),
            "task 'a-1' is in gang 'g' and affinity 'f'; it may be in one of them only",
        ),
    ):
        with pytest.raises(EventError, match=message.split(";")[0].replace(".", r"\.")):
            s.tie(rule)
        with pytest.raises(EventError):
            s.submit(job("b", 2), rule)
        assert list(s.state.side_constraints.rules) == [("gang", "g")] and list(s.state.jobs) == ["a"]
    with pytest.raises(EventError, match="there is no gang 'h'"):
        s.untie("gang", "h")
    s.tie(TaskSpread(name="s", jobs=("a",), over="rack", most=2))
    s.relabel("m0", labels=("zone=a",))
    s.tie(TaskSpread(name="z", jobs=("a",), over="zone", most=2))
    two = ("zone=a", "zone=b")
    for again in (lambda: s.relabel("m0", labels=two), lambda: s.add_machine(machine("m1", labels=two))):
        with pytest.raises(EventError, match="rules over 'zone' need one of them"):
            again()
    assert s.step(1.0).running == 2


def test_a_gang_is_held_while_it_is_whole_and_free_when_torn():
    s = live(machine("m0", slots=1), machine("m1", slots=1), machine("m2", slots=1))
    s.submit(job("g", 3, priority=5, preemptions_per_hour=0), Gang(name="g", jobs=("g",)))
    s.step(1.0)
    s.submit(job("u", 1, priority=0))
    assert s.step(2.0).waiting_count == 1 and s.machine_of("u-0") is None
    s.set_preemption("g", per_hour=2)
    assert s.step(2.5).running == 3  # it stops completely or not at all
    s.remove_machine("m2")
    assert s.step(3.0).running == 1 and s.placements().keys() == {"u-0"}
    s.untie("gang", "g")
    assert s.step(4.0).running == 2
    s.tie(TaskSpread(name="s", jobs=("g",), most=1))
    assert s.step(5.0).running == 2


@pytest.mark.parametrize(("rules", "running"), [((), 1), ((Gang(name="g", jobs=("g",)),), 2)])
def test_a_gang_runs_on_beyond_its_share_where_its_limit_lets_only_a_part_of_it_stop(rules, running):
    s = live(machine("m0", slots=1), machine("m1", slots=1), goals=GOALS)
    s.submit(job("g", 2, preemptions_per_hour=1), *rules)
    assert s.step(1.0).running == 2
    s.update_shares("g", max_tasks=1)
    delta = s.step(2.0)
    assert (delta.running, delta.whole) == (running, False)  # the network decides
    assert s.audit().certificate.claim == "optimal"


def test_a_resource_that_comes_late_counts_for_all_machines():
    s = live(machine("m0"))
    s.submit(FlowJob(name="a", tasks=(FlowTask(name="a", demands={"gpu": 1}), FlowTask(name="b"))))
    assert s.step(1.0).running == 2
    s.add_machine(machine("m1", capacity={"gpu": 1}))
    s.set_slots("m1", 1)
    s.step(2.0)
    assert s.placements() == {"a": "m1", "b": "m0"}
    s.remove_machine("m1")
    assert not s.state.side_constraints and s.step(3.0).running == 2  # no machine states it any more


def test_dominant_shares_are_those_of_a_fresh_solve():
    machines = (Machine(name="m", slots=110, capacity={"cpu": 9, "gb": 18}),)
    s = live(*machines, goals=(FairShares("dominant"), Placement()))
    for name, demands in (("first", {"cpu": 1, "gb": 4}), ("second", {"cpu": 3, "gb": 1})):
        tasks = tuple(FlowTask(name=f"{name}-{k}", demands=demands) for k in range(9))
        s.submit(FlowJob(name=name, tasks=tasks))
    assert s.step(1.0).running == 5
    assert sum(task.startswith("first") for task in s.placements()) == 3
    waits = next(name for name in (f"first-{k}" for k in range(9)) if name not in s.placements())
    assert s.explain(waits).rule == "capacity"


def test_rules_travel_through_a_log_and_goals_through_events(tmp_path):
    log = tmp_path / "log.jsonl"
    gang = Gang(name="g", jobs=("g",), within="rack")
    events = [
        ev.Cluster(instance=FlowInstance(name="c", machines=(machine("m0"), machine("m1")))),
        ev.Submit(job=job("g", 3), gangs=(gang,)),
        ev.Submit(job=job("h", 2)),
        ev.Tie(spreads=(TaskSpread(name="s", jobs=("h",), most=1),)),
        ev.Step(at_s=1.0),
        ev.Relabel(at_s=1.0, machine="m1", rack="r0"),
        ev.SetGoals(at_s=1.0, goals="quincy"),
        ev.SetGoals(at_s=1.0, goals="nothing"),
        ev.Step(at_s=2.0),
        ev.Untie(at_s=2.0, kind="spread", name="s"),
        ev.Step(at_s=3.0),
    ]
    ev.write_event_log(events, log)
    deltas = []
    report = replay_events(ev.EventLog(log), PRESETS["borg"], on_step=deltas.append)
    assert [d.running for d in deltas] == [2, 4, 4]
    assert report.refused == [(8, "no cost model is named 'nothing'; one of: " + ", ".join(PRESETS))]
    s = report.scheduler
    assert s.state.goals == PRESETS["quincy"] and s.state.side_constraints.rules == {("gang", "g"): gang}
    save_scheduler(s, tmp_path / "state")
    assert load_scheduler(tmp_path / "state").state.goals == PRESETS["quincy"]


@pytest.mark.parametrize("rule", [Gang(name="g", jobs=("other",)), Gang(name="old", jobs=("new",))])
def test_a_refused_submission_leaves_no_trace(rule):
    """Followers of a service see taken events only; their next steps are those of the leader."""
    s = live(machine("m0"), machine("m1"))
    s.submit(job("old", 2), Gang(name="old", jobs=("old",)))
    s.step()
    before = saved_scheduler(s)
    with pytest.raises(EventError, match=r"other|old"):
        s.submit(job("new", 2), rule)
    assert saved_scheduler(s) == before
