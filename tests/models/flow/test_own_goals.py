"""Goals of other packages: valid return values are used, invalid ones refused by name."""

import json
import zlib
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine, RunningOn
from flowlex.models.flow.goal_interface import ClusterView, Scale, Spot, task_views
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.model import FlowScheduling
from flowlex.models.flow.own_goals import ask
from flowlex.models.model_base import ModelError
from flowlex.validation.certificates import verify

MACHINES = (Machine(name="a", slots=2), Machine(name="b", slots=2))
JOB = FlowJob(name="j", tasks=tuple(FlowTask(name=f"t{k}") for k in range(3)))


@dataclass(frozen=True)
class Said(Goal):
    """A goal that returns values set by the test."""

    slots: Any = None
    prices_: Any = None
    waits: Any = 0

    def spots(self, task, cluster):
        return tuple(cluster.machines)

    def price(self, task, spot, machine, cluster, scale):
        return 0 if self.prices_ is None else self.prices_[machine or "anywhere"]

    def waiting(self, task, scale):
        return self.waits

    def slot_costs(self, machine, scale):
        return self.slots


def static(goal):
    return FlowScheduling(FlowInstance(name="x", machines=MACHINES, jobs=(JOB,)), goals=(goal,)).solve("network")


def live(goal):
    system = pytest.importorskip("flowlex.systems.scheduler.live.scheduler")
    scheduler = system.FlowScheduler(FlowInstance(name="x", machines=MACHINES), (goal,))
    scheduler.submit(JOB)
    scheduler.step()
    return scheduler


@pytest.mark.parametrize("solve", [static, live])
@pytest.mark.parametrize(
    ("goal", "says"),
    [
        (
            Said(prices_={"a": 1.5, "b": 1, "anywhere": 2}),
            "goal Said: the price of task 't0' on a: expected .* got 1.5",
        ),
        (
            Said(prices_={"a": "1", "b": 1, "anywhere": 2}),
            "goal Said: the price of task 't0' on a: expected .* got '1'",
        ),
        (Said(prices_={"a": 1, "b": 5, "anywhere": 0}), "task 't0' costs 1 on machine 'a', but 0 anywhere"),
        (Said(slots=[3, 1]), "goal Said: slot costs of machine 'a': slot 2 costs 1, less than the 3 before it"),
        (Said(slots=[3]), "goal Said: slot costs of machine 'a': expected 2, one for each slot, got 1"),
        (Said(slots=[0, Fraction(1, 2)]), "slot costs of machine 'a', slot 2: expected .* got Fraction"),
        (Said(waits=0.5), "goal Said: waiting of task 't0': expected .* got 0.5"),
        (Said(waits=float("nan")), "waiting of task 't0'.* got nan"),
    ],
)
def test_what_makes_no_sense_is_refused(solve, goal, says):
    with pytest.raises(ModelError, match=says):
        solve(goal)


@pytest.mark.parametrize("solve", [static, live])
def test_what_makes_sense_is_taken(solve):
    found = solve(Said(slots=[Fraction(0), 4.0], prices_={"a": 1, "b": 2, "anywhere": 2}))
    score = found.score if solve is static else found.score()
    assert score.cost == (1 + 2) + (1 + 4)  # two on a, one on b


@dataclass(frozen=True)
class Away(Goal):
    """A goal that uses every method: costs by machine (named), waiting, slots, and forbidden machines."""

    seed: int = 0
    forbid: bool = True
    racks: bool = False

    def _draw(self, *key: object, most: int = 7) -> int:
        return zlib.crc32(f"{self.seed}/{key}".encode()) % most

    def spots(self, task, cluster):
        return [Spot.of(rack) for rack in sorted(set(cluster.racks.values()))] if self.racks else cluster.machines

    def price(self, task, spot, machine, cluster, scale):
        tags = [tag for tag in spot.has if tag.startswith("rack:")]
        if self.racks:
            return self._draw(task.job, tags[0]) if tags else 9
        return 9 if machine is None else self._draw(task.task.name, machine)

    def waiting(self, task, scale):
        return self._draw(task.task.name, most=3)

    def slot_costs(self, machine, scale):
        return None if self._draw(machine.name, most=3) == 0 else [2 * k for k in range(machine.slots)]

    def forbids(self, task, machine):
        return self.forbid and self._draw("not", task.task.name, machine.name, most=4) == 0


def small(seed, **changes):
    rng = np.random.default_rng(seed)
    machines = [
        Machine(name=f"m{k}", slots=int(rng.integers(0, 3)), rack=f"r{int(rng.integers(0, 2))}") for k in range(4)
    ]
    room, jobs, count = {m.name: m.slots for m in machines}, [], 0
    for j in range(2):
        tasks = []
        for _ in range(int(rng.integers(1, 4))):
            at, running = str(rng.choice([m.name for m in machines])), None
            if rng.random() < 0.3 and room[at]:
                room[at] -= 1
                running = RunningOn(machine=at, elapsed_s=100.0)
            costs = {at: int(rng.integers(0, 5))} if rng.random() < 0.2 else {}
            tasks.append(FlowTask(name=f"t{count}", running=running, costs=costs))
            count += 1
        jobs.append(FlowJob(name=f"j{j}", tasks=tuple(tasks), priority=j))
    return FlowInstance(name="small", machines=tuple(machines), jobs=tuple(jobs), **changes)


def by_trying(instance, goal, most=99):
    """Return the least (waiting tasks, cost) of all schedules, from the goal's cost of each task on each machine.

    ``most``: tasks that the first machine may run.
    """
    cluster, best = ClusterView(), None
    for machine in instance.machines:
        cluster.add(machine)
    views = task_views(instance)
    names = [m.name for m in instance.machines]
    for at in product([None, *names], repeat=len(views)):
        held = Counter(m for m in at if m is not None)
        if held[names[0]] > most or any(n > cluster.machines[m].slots for m, n in held.items()):
            continue
        if any(m is not None and goal.forbids(v, cluster.machines[m]) for v, m in zip(views, at, strict=True)):
            continue
        cost = 0
        for view, m in zip(views, at, strict=True):
            if m is None:
                cost += goal.waiting(view, Scale())
            else:
                cost += view.costs.get(m, goal.price(view, cluster.spots[m], m, cluster, Scale()))
        for m, n in held.items():
            cost += sum((goal.slot_costs(cluster.machines[m], Scale()) or [0] * n)[:n])
        score = (at.count(None), cost)
        best = score if best is None else min(best, score)
    return best


@pytest.mark.parametrize("racks", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_own_goals_are_proven_by_asking_them_again(seed, racks):
    instance, goal = small(seed), Away(seed, racks=racks)
    solution = FlowScheduling(instance, goals=(goal,)).solve("network")
    assert solution.certificate.claim == "optimal"
    assert (len(solution.waiting), solution.score.cost) == by_trying(instance, goal)
    document = json.loads(json.dumps(solution.to_dict()))
    assert verify(document, instance, goals=ask(instance, (goal,))).claim == "optimal"
    assert verify(document, instance).claim == "feasible"
    assert verify(document, instance, goals=ask(instance, (Away(seed + 1),))).claim == "feasible"


@pytest.mark.parametrize("seed", range(6))
def test_changed_models_have_own_goals(seed):
    instance, goal = small(seed), Away(seed, racks=seed % 2 == 1)
    model = FlowScheduling(instance, goals=(goal,))
    first = model.variables["x"].sel(machine="m0")
    solution = model.with_constraint("few", first.sum() <= 1, allow_empty=True).solve()
    assert solution.certificate.claim == "optimal"
    assert (len(solution.waiting), solution.score.cost) == by_trying(instance, goal, most=1)
    document = json.loads(json.dumps(solution.to_dict()))
    assert verify(document, instance, goals=ask(instance, (goal,))).claim == "optimal"
    assert "pass the goal" in str(verify(document, instance)) and not verify(document, instance).ok
    assert not verify(document, instance, goals=ask(instance, (Away(seed + 1),))).ok


def test_gangs_and_capacities_go_with_own_goals():
    tied = small(3, gangs=[{"name": "g", "jobs": ["j0"]}])
    assert FlowScheduling(tied, goals=(Away(5),)).solve("highs").certificate.claim == "optimal"
    machines = tuple(Machine(name=n, slots=2, capacity={"cpu": 3}) for n in "ab")
    job = FlowJob(name="j", tasks=tuple(FlowTask(name=f"t{k}", demands={"cpu": k}) for k in range(4)))
    packed = FlowScheduling(FlowInstance(machines=machines, jobs=(job,)), goals=(Away(6, forbid=False),))
    assert packed.solve("highs").certificate.ok


@pytest.mark.parametrize("fault", ["prices", "forbids", "slots", "waiting", "worse"])
def test_what_a_goal_never_said_is_refused(fault):
    """The goal given to the certificate has other costs than the goal of the network."""
    refused = 0
    for seed in range(8):
        instance, goal = small(seed), Away(seed)
        document = FlowScheduling(instance, goals=(goal,)).solve("network").to_dict()
        (asked,) = ask(instance, (goal,))
        first = next(iter(document["answer"]["placements"].items()))
        if fault == "prices":
            true = asked.price
            asked.price = lambda t, m, s, true=true, first=first: true(t, m, s) + ((t, m) == first)
        elif fault == "forbids":
            asked.forbids = lambda t, m, first=first: (t, m) == first
        elif fault == "slots":
            asked.slot_costs = lambda m, s, instance=instance: [
                3 * k for k in range(next(x.slots for x in instance.machines if x.name == m))
            ]
        elif fault == "waiting":
            asked.waiting = lambda t, s: 5
        else:
            task = first[0]
            document["answer"]["placements"].pop(task)
            document["answer"]["waiting"][task] = "so it is"
        refused += not verify(document, instance, goals=(asked,)).ok
    assert refused >= {"forbids": 8, "worse": 8, "waiting": 1}.get(fault, 4)  # costs without influence may differ


@pytest.mark.parametrize("solve", [static, live])
def test_a_machine_cheaper_than_its_group_must_be_named(solve):
    class Cheap(Goal):
        def price(self, task, spot, machine, cluster, scale):
            return 1 if machine == "b" else 5

    with pytest.raises(ModelError, match="'t0' costs 1 on machine 'b', less than the 5 anywhere in 'any machine'"):
        solve(Cheap())


def test_a_live_scheduler_asks_own_goals_about_machines_that_come():
    system = pytest.importorskip("flowlex.systems.scheduler.live.scheduler")
    instance, goal = small(5), Away(5)
    scheduler = system.FlowScheduler(FlowInstance(name="x", machines=instance.machines[:2]), (goal,))
    jobs = [
        job.model_copy(update={"tasks": tuple(t.model_copy(update={"running": None}) for t in job.tasks)})
        for job in instance.jobs
    ]
    for job in jobs:
        bare = tuple(t.model_copy(update={"costs": {}}) for t in job.tasks)
        scheduler.submit(job.model_copy(update={"tasks": bare}))
    for step in (
        lambda: None,
        lambda: scheduler.add_machine(instance.machines[2].model_copy(update={"slots": 2})),
        lambda: scheduler.set_slots("m0", 2),
        lambda: scheduler.remove_machine("m2"),
    ):
        step()
        scheduler.step()
        again = FlowScheduling(scheduler.instance(), goals=(goal,)).solve("network")
        assert again.certificate.claim == "optimal"
        assert again.score.cost == scheduler.score().cost
        assert len(again.waiting) == scheduler.instance().summary()["waiting tasks"]


def test_a_goal_that_forbids_all_says_so():
    class Never(Goal):
        def forbids(self, task, machine):
            return True

    found = static(Never())
    assert set(found.waiting.values()) == {"no machine meets its placement (goal Never)"}
