"""A saved scheduler always loads: stopped after any event, it continues with the same schedule."""

import contextlib
import gzip
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.instances.group_rules import Affinity, Gang, TaskSpread
from flowlex.instances.instance_base import InstanceError
from flowlex.models.flow.goals import PRESETS, Continuity, FairShares, Goal, LoadSpread, Placement, Priority
from flowlex.systems.scheduler.live import snapshot
from flowlex.systems.scheduler.live.scheduler import FlowScheduler
from flowlex.systems.scheduler.live.snapshot import load_scheduler, save_scheduler
from flowlex.systems.scheduler.live.task_records import EventError
from tests.seeds import blocks_of_seeds

STATES = Path(__file__).parent / "states"
SETS = ((), (Priority(), Placement()), PRESETS["quincy"], PRESETS["borg"], (FairShares(), Placement(), LoadSpread()))
TIED = ((), (Priority(), Placement()), PRESETS["borg"])


def job(name, count=1, **more):
    return FlowJob(name=name, tasks=tuple(FlowTask(name=f"{name}{k}") for k in range(count)), **more)


def again(live, path):
    """Return the scheduler after saving and loading, as another version reads it (`test_recovery`: the same one)."""
    twin = load_scheduler(line(live, path), certify=live.certify)
    assert path.read_bytes() == line(twin, path.with_suffix(".twin")).read_bytes()
    return twin


def line(live, path):
    save_scheduler(live, path)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).partition(b"\n")[0], mtime=0))
    return path


def rule(rng, name, live):
    """Return a rule over a present job, possibly about a place that is removed soon."""
    racks = sorted({machine.rack for machine in live.state.cluster.machines.values()})
    jobs = [each for each, those in live.state.jobs.items() if those.job.preemptions_per_hour is None]
    if not jobs or not racks:
        return None
    about = {"name": name, "jobs": (str(rng.choice(jobs)),)}
    kind = int(rng.integers(3))
    if kind == 0:
        return TaskSpread(**about, over="rack", limits={str(rng.choice(racks)): 1})
    return Gang(**about, within="rack") if kind == 1 else Affinity(**about)


def lives(seed, goals, flow_life, path, *, tied, turns):
    life = flow_life(seed, goals, apart=0.0 if tied else 0.3, limited=0.0 if tied else 0.3)
    for turn in range(turns):
        for count in range(int(life.rng.integers(1, 4))):
            life.event()
            new = rule(life.rng, f"r{turn}-{count}", life.scheduler) if tied and life.rng.random() < 0.5 else None
            with contextlib.suppress(EventError):
                life.scheduler.tie(*(() if new is None else (new,)))
            twin = again(life.scheduler, path)
            assert twin.placements() == life.scheduler.placements()
            twin.step(life.now)  # the twin continues after loading, the other without a stop
            life.scheduler.step(life.now)
            assert (twin.score(), twin.waiting().keys()) == (life.scheduler.score(), twin.waiting().keys())
            if life.rng.random() < 0.5:
                life.scheduler = twin
        if not any(task.limited for task in life.scheduler.state.tasks.values()):
            still = again(life.scheduler, path).step(life.now)
            assert (still.placed, still.moved, still.stopped) == ((), (), ())
        life.now += int(life.rng.integers(0, 200))


@pytest.mark.parametrize("goals", range(len(SETS)))
@pytest.mark.parametrize("block", blocks_of_seeds(4, 2000))
def test_any_life_loads_after_any_event(block, goals, flow_life, tmp_path):
    for seed in block:
        lives(seed, SETS[goals], flow_life, tmp_path / "state", tied=False, turns=4)


@pytest.mark.parametrize("goals", range(len(TIED)))
@pytest.mark.parametrize("block", blocks_of_seeds(3, 300))
def test_any_life_with_rules_loads_after_any_event(block, goals, flow_life, tmp_path):
    for seed in block:
        lives(seed, TIED[goals], flow_life, tmp_path / "state", tied=True, turns=3)


def racks(*names):
    machines = tuple(Machine(name=f"m{k}", slots=2, rack=rack) for k, rack in enumerate(names))
    return FlowScheduler(FlowInstance(name="racks", machines=machines), (Priority(), Placement()))


def test_domains_that_a_spread_does_not_limit_are_alike_to_its_certificate():
    live = racks("r0", "r1", "r2")
    live.submit(job("a", 6), TaskSpread(name="s", jobs=("a",), over="rack", limits={"r0": 1}))
    delta = live.step(1.0)
    assert (delta.running, delta.whole) == (5, True) and delta.certificate.claim == "optimal"


def test_a_rule_whose_places_are_all_gone_waits_and_says_so(tmp_path):
    live = racks("r0")
    live.add_machine(Machine(name="z", slots=2, labels=("zone=a",)))
    live.submit(job("a"), TaskSpread(name="s", jobs=("a",), over="zone", most=1))
    live.step(1.0)
    live.remove_machine("z")
    live = again(live, tmp_path / "state")
    assert live.step(2.0).running == 0
    assert "zone" in live.reason("a0")


@pytest.mark.parametrize("path", sorted(STATES.glob("*.state")), ids=lambda path: path.stem)
def test_states_of_every_format_load_and_go_on(path):
    """A stored state with queues, rules, capacities, a removed machine, and two events since the last step."""
    live = load_scheduler(path, certify=True)
    assert (live.steps, live.state.now_s, live.state.running) == (2, 100.0, 6)
    assert [key for key in live.state.side_constraints.rules] == [("gang", "g"), ("spread", "s"), ("affinity", "f")]
    delta = live.step(200.0)
    assert delta.events == 3 and live.audit().certificate.claim == "optimal"
    assert live.state.tasks.keys() == {"a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2", "d0", "d1", "e0"}


def test_the_present_format_is_among_those_kept():
    """A new format needs a stored state of the old one, written by the code before the change, and code to read it."""
    assert (STATES / f"format-{snapshot._FORMAT}.state").is_file()


def test_states_of_newer_versions_are_refused_by_name(tmp_path):
    document = json.loads(gzip.decompress((STATES / "format-6.state").read_bytes()))
    for number, said in ((8, "newer than flowlex flow scheduler 7; install a newer flowlex"), (5, "expected")):
        path = tmp_path / f"{number}"
        path.write_bytes(gzip.compress(json.dumps(document | {"format": f"flowlex flow scheduler {number}"}).encode()))
        with pytest.raises(InstanceError, match=f"format 'flowlex flow scheduler {number}'.*{said}"):
            load_scheduler(path)


# No changes without a gain ----------------------------------------------------------------------------------------
def tied_schedules():
    machines = tuple(Machine(name=f"m{k}", slots=2, rack=f"r{k % 2}") for k in range(4))
    live = FlowScheduler(FlowInstance(name="ties", machines=machines), (Priority(), Placement()))
    for k in range(6):
        live.submit(job(f"j{k}", 2))
    live.step(1.0)
    return live


def test_nothing_moves_when_nothing_happened(tmp_path):
    live = tied_schedules()
    for _ in range(3):
        for task in live.waiting():
            live.explain(task)
        live = again(live, tmp_path / "state")
        delta = live.step(2.0)
        assert (delta.placed, delta.moved, delta.stopped) == ((), (), ())


def test_preemptions_that_have_run_out_do_not_come_back():
    running = FlowTask(name="a0", running={"machine": "m0", "elapsed_s": 10})
    old = FlowJob(name="a", tasks=(running,), preemptions_per_hour=1, preempted_s=(3500,), priority=5)
    instance = FlowInstance(name="x", machines=(Machine(name="m0"),), jobs=(old,))
    for more in ({}, {"lexicographic": True, "method": "phases"}):
        live = FlowScheduler(instance, (Priority(),), **more)
        live.step(1.0)
        live.step(150.0)
        live.set_goals((Priority(), Continuity(), LoadSpread()))
        live.submit(job("urgent"))
        assert live.step(201.0).stopped[0][0] == "a0"


def test_slots_are_bounded_before_memory_is_taken():
    live = FlowScheduler(FlowInstance(name="x", machines=(Machine(name="m0"),)), PRESETS["borg"])
    for slots in (10**9, 100_001):
        with pytest.raises(EventError, match=r"slots must be a whole number in 0\.\.100000"):
            live.set_slots("m0", slots)
    live.state.slots = 2**21
    with pytest.raises(EventError, match="all machines together may have 2097152 slots"):
        live.set_slots("m0", 2)


# Goals of other packages -----------------------------------------------------------------------------------------
def test_machines_and_rules_are_bounded(monkeypatch):
    live = racks("r0", "r1")
    monkeypatch.setattr("flowlex.systems.scheduler.live.cluster_state._MACHINE_LIMIT", 2)
    monkeypatch.setattr("flowlex.systems.scheduler.live.side_constraints._MOST_RULES", 1)
    with pytest.raises(EventError, match="machine 'm2': there may be at most 2 machines"):
        live.add_machine(Machine(name="m2"))
    live.relabel("m1", rack="r0")  # no more machines than before
    live.submit(job("a", 2), Gang(name="g", jobs=("a",)))
    with pytest.raises(EventError, match="more than 1 rules; untie some first"):
        live.tie(Gang(name="h", jobs=("a",)))
    assert live.step(1.0).running == 2


@dataclass(frozen=True)
class Warm(Goal):
    """A goal of another package."""

    step: int = 1
    names: tuple[str, ...] = ()

    def slot_costs(self, machine, scale):
        return [k * self.step for k in range(machine.slots)]


class Bare(Warm):
    """A goal that is no dataclass, with a memory address in its `repr`."""

    __repr__ = object.__repr__


def test_goals_of_other_packages_survive(tmp_path, monkeypatch):
    live = FlowScheduler(FlowInstance(name="x", machines=(Machine(name="m0", slots=2),)), (Bare(2, ("a", "b")),))
    live.submit(job("a", 2))
    live.step(1.0)
    twin = again(live, tmp_path / "state")
    (goal,) = twin.state.goals
    assert type(goal) is Bare and goal.names == ("a", "b") and goal.step == 2
    assert twin.score() == live.score()
    with pytest.raises(InstanceError, match="saved with the goals"):
        load_scheduler(tmp_path / "state", (Bare(3, ("a", "b")),))
    name = f"{Bare.__module__}:Bare"
    monkeypatch.setitem(sys.modules, Bare.__module__, ModuleType(Bare.__module__))
    with pytest.raises(InstanceError, match=f"{name}.*go on without it"):
        load_scheduler(tmp_path / "state")
    without = load_scheduler(tmp_path / "state", without=(name,))
    assert without.state.goals == () and without.placements() == live.placements()
