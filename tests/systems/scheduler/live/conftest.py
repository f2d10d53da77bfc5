"""Random event sequences of flow-scheduling clusters, shared by the tests of this package."""

from collections import Counter

import numpy as np
import pytest

from flowlex.instances.flow import Block, Constraint, FlowInstance, FlowJob, FlowTask, Machine
from flowlex.models.flow.model import FlowScheduling
from flowlex.systems.scheduler.live.scheduler import FlowScheduler


class Cluster:
    """A random event sequence of a small cluster."""

    def __init__(self, seed, goals, *, apart=0.3, limited=0.0, **options):
        self.rng, self.count, self.now = np.random.default_rng(seed), 0, 0.0
        machines = tuple(self.machine() for _ in range(4))
        self.apart, self.limited = apart, limited
        self.goals, self.last = goals, None
        self.alike = {name: options[name] for name in ("lexicographic", "wait_cost") if name in options}
        self.scheduler = FlowScheduler(FlowInstance(name="life", machines=machines), goals, **options)

    def machine(self):
        self.count += 1
        labels = tuple(label for label in ("gpu", "ssd") if self.rng.random() < 0.4)
        return Machine(
            name=f"m{self.count}", slots=int(self.rng.integers(0, 4)), rack=f"r{self.count % 3}", labels=labels
        )

    def task(self, name):
        rng, constraints, data = self.rng, (), ()
        if rng.random() < 0.4:
            kind = str(rng.choice(["required", "forbidden", "preferred", "avoided"]))
            what = str(rng.choice(["gpu", "rack:r0", "rack:r1", "machine:m2", "ssd"]))
            constraints = (Constraint(kind=kind, resources=(what,), utility=int(rng.integers(1, 6))),)
        present = list(self.scheduler.state.cluster.machines)
        if rng.random() < 0.5 and present:
            holders = tuple({str(m): None for m in rng.choice(present, 2)})
            data = (Block(size_mb=int(rng.integers(1, 9)), machines=holders),)
        return FlowTask(name=name, constraints=constraints, data=data)

    def event(self):
        rng, s = self.rng, self.scheduler
        machines, tasks, jobs = list(s.state.cluster.machines), list(s.state.tasks), list(s.state.jobs)
        kind = int(rng.integers(0, 10))
        if kind <= 2:
            self.count += 1
            tasks = tuple(self.task(f"t{self.count}-{k}") for k in range(int(rng.integers(1, 5))))
            most = int(rng.integers(1, 4)) if rng.random() < 0.5 else None
            weight, priority = int(rng.integers(1, 4)), int(rng.integers(0, 4))
            rule = str(rng.choice(["red", "blue", f"j{self.count}"])) if rng.random() < self.apart else None
            limits = {}
            if self.limited:
                per_hour = int(rng.integers(0, 3)) if rng.random() < self.limited else None
                limits = {"preempt_cost": int(rng.integers(0, 4)), "preemptions_per_hour": per_hour}
            s.submit(
                FlowJob(
                    name=f"j{self.count}",
                    tasks=tasks,
                    priority=priority,
                    weight=weight,
                    max_tasks=most,
                    different_machines=rule,
                    **limits,
                )
            )
        elif kind == 3 and tasks:
            task = str(rng.choice(tasks))
            s.cancel(task=task) if s.machine_of(task) is None else s.finish(task)
        elif kind == 4:
            s.add_machine(self.machine())
        elif kind == 5 and machines:
            s.remove_machine(str(rng.choice(machines)))
        elif kind == 6 and machines:
            s.set_slots(str(rng.choice(machines)), int(rng.integers(0, 4)))
        elif kind == 7 and jobs:
            s.set_priority(str(rng.choice(jobs)), int(rng.integers(0, 4)))
        elif kind == 8 and tasks and machines:
            cost = int(rng.integers(-5, 9)) if rng.random() < 0.8 else None
            s.set_cost(str(rng.choice(tasks)), str(rng.choice(machines)), cost)
        elif kind == 9 and jobs:
            s.update_shares(str(rng.choice(jobs)), weight=int(rng.integers(1, 4)), max_tasks=None)
            if self.limited:
                per_hour = int(rng.integers(0, 3)) if rng.random() < 0.7 else None
                s.set_preemption(str(rng.choice(jobs)), cost=int(rng.integers(0, 4)), per_hour=per_hour)

    def step(self):
        for _ in range(int(self.rng.integers(0, 8))):  # time may pass without events
            self.event()
        self.now += int(self.rng.integers(0, 200))
        self.scheduler.prepare(self.now)
        instance, before = self.scheduler.instance(), self.scheduler.placements()
        return instance, before, self.scheduler.step()

    def check_step(self):
        """Step and compare with the static model on the same state; the delta must lead to it."""
        instance, before, delta = self.step()
        scheduler = self.scheduler
        reference = FlowScheduling(instance, goals=self.goals, **self.alike).solve("network")
        self.last = delta
        assert scheduler.score() == reference.score
        assert delta.certificate.ok and delta.certificate.claim == "optimal"
        for task, machine in delta.placed:
            assert task not in before
            before[task] = machine
        for task, old, new, reason in delta.moved:
            assert before[task] == old and old != new and reason
            before[task] = new
        for task, old, reason in delta.stopped:
            assert before.pop(task) == old and reason
        assert before == scheduler.placements()
        held = Counter(before.values())
        state = scheduler.state
        rules = Counter((state.jobs[state.tasks[t].job].job.different_machines, m) for t, m in before.items())
        assert all(count == 1 for (rule, _), count in rules.items() if rule)
        assert all(count <= scheduler.state.cluster.machines[m].slots for m, count in held.items())
        assert delta.running == len(before)
        assert delta.waiting_count == len(scheduler.waiting()) == len(reference.waiting)


@pytest.fixture
def flow_life():
    """Return the factory ``flow_life(seed, goals, **options of FlowScheduler)`` of random event sequences."""
    return Cluster
