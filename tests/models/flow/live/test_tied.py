"""A living cluster with gangs, spreads and affinities: every step is a fresh solve of its instance, and says so."""

from __future__ import annotations

import numpy as np
import pytest

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.instances.flow_rules import Affinity, Gang, TaskSpread
from flowlex.models.base import ModelError
from flowlex.models.flow.goals import Continuity, LoadSpread, Placement, Priority
from flowlex.models.flow.live.scheduler import EventError
from flowlex.models.flow.live.snapshot import save_scheduler
from flowlex.models.flow.live.tied import TiedScheduler
from flowlex.models.flow.model import FlowScheduling

GOALS = (Priority(), Placement(), LoadSpread(), Continuity())


def machine(name, rng=None, slots=2):
    slots = slots if rng is None else int(rng.integers(0, 4))
    return Machine(
        name=name, slots=slots, rack=f"r{int(name[1:]) % 2}", labels=(f"zone={'ab'[int(name[1:]) // 2 % 2]}",)
    )


def job(name, count, priority=0):
    return FlowJob(name=name, tasks=tuple(FlowTask(name=f"{name}-{k}") for k in range(count)), priority=priority)


def life(seed, steps):
    """A random life; yields the scheduler before and after each step."""
    rng = np.random.default_rng(seed)
    s = TiedScheduler(FlowInstance(name="life", machines=tuple(machine(f"m{k}") for k in range(4))), GOALS)
    for number in range(steps):
        for k in range(int(rng.integers(1, 4))):
            machines, tasks = list(s.state.cluster.machines), list(s.state.tasks)
            kind = int(rng.integers(0, 6))
            if kind <= 1:
                name = f"j{number}{k}"
                s.submit(job(name, int(rng.integers(1, 5)), int(rng.integers(0, 2))))
                rules = [
                    Gang(name=name, jobs=(name,), within=[None, "rack", "zone"][int(rng.integers(0, 3))]),
                    Affinity(name=name, jobs=(name,)),
                    TaskSpread(name=name, tasks=(f"{name}-0",), jobs=(name,), most=1),
                ]
                s.tie(*rules[int(rng.integers(0, 2)) :: 2])
            elif kind == 2 and tasks:
                task = str(rng.choice(tasks))
                s.cancel(task=task) if s.machine_of(task) is None else s.finish(task)
            elif kind == 3 and len(machines) > 3:
                s.remove_machine(str(rng.choice(machines)))
            elif kind == 4 and len(machines) < 5:
                s.add_machine(machine(next(m for m in ("m0", "m1", "m2", "m3", "m4") if m not in machines)))
            elif machines:
                s.set_slots(str(rng.choice(machines)), int(rng.integers(0, 4)))
        s.prepare(float(60 * number + 1))
        before, instance = s.placements(), s.instance()
        yield s, instance, before, s.step()


@pytest.mark.parametrize("seed", range(3))
def test_after_each_step_the_schedule_is_that_of_a_fresh_solve(seed):
    for s, instance, before, delta in life(seed, 4):
        fresh = FlowScheduling(instance, goals=GOALS)
        tied = instance.gangs or instance.spreads or instance.affinities
        assert s.score() == fresh.solve("highs" if tied else "network").score
        assert delta.certificate.ok and delta.certificate.claim == "optimal"
        for task, new in delta.placed:
            assert task not in before
            before[task] = new
        for task, old, new, _ in delta.moved:
            assert before[task] == old
            before[task] = new
        for task, old, _ in delta.stopped:
            assert before.pop(task) == old
        assert before == s.placements() == dict(s.audit().machine_of)
        assert delta.running == len(before) and delta.waiting_count == len(s.waiting())


def test_a_gang_starts_when_the_last_of_its_places_comes_and_ends_task_by_task(tmp_path):
    s = TiedScheduler(FlowInstance(name="live", machines=(machine("m0"), machine("m2"))), GOALS)
    s.submit(job("big", 5))
    s.tie(Gang(name="big", jobs=("big",), within="rack"))
    assert not s.step(1.0).placed
    said = s.explain("big-3").reason
    assert said == s.waiting()["big-3"]
    assert "needs 5 places at once within one rack; the machines that it may take have 4 on rack:r0" in said
    s.add_machine(machine("m4", slots=1))
    with pytest.raises(EventError, match="events have come since the last step"):
        s.audit()
    assert len(s.step(2.0).placed) == 5
    with pytest.raises(EventError, match="runs on"):
        s.explain("big-3")
    s.finish("big-0")
    s.remove_machine("m4")
    assert s.step(3.0).running == 4
    s.set_slots("m0", 1)
    assert s.step(4.0).running == 0  # all or none of what is left of it
    s.untie(s.ties[0])
    assert s.step(5.0).running == 3
    with pytest.raises(ModelError, match="has no state file; save its instance"):
        save_scheduler(s, tmp_path / "state")


def test_rules_that_make_no_sense_change_nothing():
    s = TiedScheduler(FlowInstance(name="live", machines=(machine("m0"),)), GOALS)
    s.submit(job("a", 2))
    s.tie(Gang(name="g", jobs=("a",)))
    for rule, message in (
        (Gang(name="h", tasks=("x",)), "gang 'h' names task 'x', which does not exist"),
        (
            Affinity(name="f", tasks=("a-1",)),
            "task 'a-1' is in gang 'g' and affinity 'f'; it may be in one of them only",
        ),
        (TaskSpread(name="s", jobs=("a",), over="room", most=1), "no machine has a label 'room=...'"),
    ):
        with pytest.raises(EventError) as refused:
            s.tie(rule)
        assert message in str(refused.value) and len(s.ties) == 1
    with pytest.raises(EventError, match="there is no gang 'h'"):
        s.untie(Gang(name="h", tasks=("x",)))
    limited = job("b", 1).model_copy(update={"preemptions_per_hour": 0})
    with pytest.raises(EventError, match="job 'b' limits preemptions, which rules that tie tasks do not go with"):
        s.submit(limited)
