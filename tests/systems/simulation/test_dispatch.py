"""The queue compared with the live scheduler: by priority, onto the emptiest machine, never above the slots."""

import itertools

import numpy as np
import pytest

from flowlex import generate
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine
from flowlex.systems.scheduler import event_log as ev
from flowlex.systems.scheduler.random_events import event_stream
from flowlex.systems.simulation.experiments.dispatch_schedulers import Dispatcher, cost_of, feed


def job(name: str, priority: int, *tasks: str) -> FlowJob:
    return FlowJob(name=name, priority=priority, tasks=tuple(FlowTask(name=task) for task in tasks))


def test_the_important_go_first_onto_the_emptiest_machine() -> None:
    machines = (Machine(name="a", slots=2), Machine(name="b", slots=1))
    queue = Dispatcher(
        FlowInstance(machines=machines, jobs=(job("late", 5, "l1", "l2"), job("early", 1, "e"))), "queue"
    )
    assert queue.step() == 3 and queue.running == {"e": 0, "l1": 1, "l2": 0}  # b is emptier once e is on a
    queue.handle(ev.Submit(job=job("next", 3, "n1", "n2")))
    queue.handle(ev.Submit(job=job("last", 4, "z")))
    assert queue.step() == 0
    queue.handle(ev.SetPriority(job="last", priority=0))
    queue.handle(ev.Finish(task="l2"))
    assert queue.step() == 1 and queue.running["z"] == 0
    queue.handle(ev.RemoveMachine(machine="a"))
    queue.handle(ev.Finish(task="l1"))
    assert queue.step() == 1 and queue.running == {"z": 1}  # tasks of the lost machine wait too
    queue.handle(ev.Finish(task="n1"))
    queue.handle(ev.AddMachine(machine=machines[0]))
    assert queue.step() == 2 and queue.running == {"z": 1, "e": 0, "n2": 0}


@pytest.mark.parametrize("rule", ["queue", "random"])
def test_a_life_fills_the_cluster_and_never_more(rule: str) -> None:
    instance = generate("flow-scale", seed=3, machines=12, tasks=60)
    slots = {machine.name: machine.slots for machine in instance.machines}
    scheduler = Dispatcher(instance, rule, seed=1)  # type: ignore[arg-type]
    up = dict(slots)
    for event in itertools.islice(event_stream(instance, seed=3, steps=30, events=20), 1, None):
        feed(scheduler, event)
        if isinstance(event, ev.RemoveMachine):
            del up[event.machine]
        elif isinstance(event, ev.AddMachine):
            up[event.machine.name] = event.machine.slots
        elif isinstance(event, ev.Step):
            held = np.bincount(list(scheduler.running.values()), minlength=len(slots))
            assert held.tolist() == scheduler.used.tolist()
            assert all(many <= up.get(name, 0) for name, many in zip(slots, held.tolist(), strict=True))
            assert sum(held) == min(sum(up.values()), sum(held) + len(scheduler.waiting))
            assert not set(scheduler.running) & set(scheduler.waiting)


def test_what_fails_in_the_other_process_is_told() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)measuring 'queue' failed: .*the seed must not be negative"):
        cost_of("queue", 5, 5, -1)
