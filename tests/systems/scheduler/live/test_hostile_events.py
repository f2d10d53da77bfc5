"""Valid events at the edges of their types: none stops the scheduler or keeps an ordinary task from running."""

import gzip
import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from flowlex.instances.exact_rationals import rational
from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask, Machine
from flowlex.instances.group_rules import Gang
from flowlex.models.flow.goal_interface import Goal
from flowlex.models.flow.goals import Continuity, FairShares, Placement, Priority, preset
from flowlex.models.flow.task_rules import GroupRule
from flowlex.systems.scheduler.event_log import Event
from flowlex.systems.scheduler.live.scheduler import FlowScheduler
from flowlex.systems.scheduler.live.snapshot import restored_scheduler, saved_scheduler
from flowlex.systems.scheduler.live.task_records import EventError

_EVENT: TypeAdapter[Any] = TypeAdapter(Event)
AMOUNTS = [0, 1, 1 / 3, 0.1, 1.1 * 2**30, 1168723596, 263801632 * 1024, 2.0**53 + 2, 1e-300, 1e300, 1e-17, 5e-324]
COSTS = [0, 1, -1, 0.5, 1 / 3, -(10**6), 10**6, 10**30, -(10**30), 1e-17, 1e308, 5e-324]
COUNTS = [0, 1, 2, 3, 10**9]


def amounts(rng: random.Random) -> dict[str, float]:
    return {name: rng.choice(AMOUNTS) for name in ("memory", "gpu", "cpu") if rng.random() < 0.4}


def task(rng: random.Random, name: str) -> dict[str, Any]:
    said: dict[str, Any] = {"name": name, "demands": amounts(rng)}
    if rng.random() < 0.3:
        said["costs"] = {f"m{rng.randrange(4)}": rng.choice([*COSTS, *[3] * 20])}
    if rng.random() < 0.3:
        kind = rng.choice(["required", "forbidden", "preferred", "avoided"])
        utility = rng.choice([*(each for each in COSTS if each > 0), *[2] * 20])
        where = rng.choice(["gpu", "rack:r0", "machine:m1", "machine:nowhere"])
        said["constraints"] = [{"kind": kind, "resources": [where], "utility": utility}]
    if rng.random() < 0.1:
        said["data"] = [{"size_mb": rng.choice([1, 10**9]), "machines": [f"m{rng.randrange(4)}"]}]
    return said


def machine(rng: random.Random, name: str) -> dict[str, Any]:
    labels = rng.choice([[], ["gpu"], ["zone=a"], ["zone=b", "gpu"]])
    slots, rack = rng.choice([0, 1, 3, 110, 100_000]), rng.choice(["r0", "r1"])
    return {"name": name, "slots": slots, "rack": rack, "labels": labels, "capacity": amounts(rng)}


def rules(rng: random.Random, jobs: list[str]) -> dict[str, Any]:
    job, name = rng.choice(jobs), f"rule{rng.randrange(6)}"
    return rng.choice(
        [
            {"gangs": [{"name": name, "jobs": [job], "within": rng.choice([None, "rack", "zone"])}]},
            {"spreads": [{"name": name, "jobs": [job], "over": rng.choice(["rack", "zone"]), "most": 1}]},
            {"affinities": [{"name": name, "jobs": [job], "within": "rack"}]},
        ]
    )


def event(rng: random.Random, scheduler: FlowScheduler, number: int) -> dict[str, Any]:
    """A valid event, by its type; what it names mostly exists."""
    state = scheduler.state
    jobs = [*(name for name in state.jobs if not name.startswith("ordinary")), "none"]
    tasks = [*(name for name in state.tasks if not name.startswith("ordinary")), "none"]
    at = f"m{rng.randrange(4)}"
    kind = rng.choice([*["submit"] * 9, *["cancel"] * 3, *["finish"] * 3, *["add_machine"] * 3, *OTHERS])
    if kind == "submit":
        name = f"j{number}"
        some = [task(rng, f"{name}-{k}") for k in range(rng.choice([1, 1, 2, 5]))]
        job: dict[str, Any] = {"name": name, "tasks": some, "priority": rng.choice([1, 5, 1000])}
        job |= {"weight": rng.choice([1, 10**6]), "preempt_cost": rng.choice([*[0, 1] * 5, 1 / 3, 1e308])}
        job |= {"preemptions_per_hour": rng.choice([None, None, 0, 10**9]), "min_tasks": rng.choice(COUNTS)}
        job |= {"different_machines": rng.choice([None, None, "apart"])}
        return {"event": kind, "job": job} | (rules(rng, [name]) if rng.random() < 0.3 else {})
    if kind == "cancel":
        return {"event": kind} | ({"job": rng.choice(jobs)} if rng.random() < 0.7 else {"task": rng.choice(tasks)})
    return {
        "event": kind,
        **{
            "finish": {"task": rng.choice(tasks)},
            "add_machine": {"machine": machine(rng, at)},
            "remove_machine": {"machine": at},
            "set_slots": {"machine": at, "slots": rng.choice([0, 1, 4, 100_000])},
            "set_priority": {"job": rng.choice(jobs), "priority": rng.choice([1, 7, 1000])},
            "set_cost": {"task": rng.choice(tasks), "machine": at, "cost": rng.choice([None, *map(float, COSTS)])},
            "update_shares": {"job": rng.choice(jobs), "min_tasks": rng.choice(COUNTS), "weight": 10**6},
            "set_preemption": {"job": rng.choice(jobs), "cost": rng.choice([0, 1, 0.1, 1e308]), "per_hour": None},
            "relabel": {"machine": at, "rack": rng.choice(["r0", "r1"]), "labels": ["gpu"]},
            "set_goals": {"goals": rng.choice(["quincy", "borg", "alsched", "load_spread", "none", "random"])},
            "tie": rules(rng, jobs),
            "untie": {"kind": rng.choice(["gang", "spread", "affinity"]), "name": f"rule{rng.randrange(6)}"},
            "set_queues": {"queues": [{"name": "q", "min_tasks": rng.choice(COUNTS), "weight": 10**6}]},
        }[kind],
    }


OTHERS = ["remove_machine", "set_slots", "set_priority", "set_cost", "update_shares", "set_preemption", "relabel"]
OTHERS += ["set_goals", "tie", "untie", "set_queues"]


def within_capacity(scheduler: FlowScheduler) -> bool:
    used: Counter[tuple[str, str]] = Counter()
    for name, at in scheduler.placements().items():
        for resource, amount in scheduler.state.tasks[name].task.demands.items():
            used[at, resource] += rational(amount)  # type: ignore[assignment]
    machines = scheduler.state.cluster.machines
    named = {resource for each in machines.values() for resource in each.capacity}
    return all(
        amount <= rational(machines[at].capacity.get(name, 0)) for (at, name), amount in used.items() if name in named
    )


@pytest.mark.rare
@pytest.mark.parametrize(
    ("count", "seed"), [(400, 0), *(pytest.param(2500, seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 4))]
)
def test_hostile_events_stop_nobody(count: int, seed: int) -> None:
    """After any event the next step decides, within capacities; an important task runs on its own machine."""
    rng = random.Random(seed)
    own = Machine(name="own", slots=2, labels=("ordinary",), capacity={"memory": 2})
    scheduler = FlowScheduler(
        FlowInstance(name="hostile", machines=(own,)), preset("borg"), scale=1, solver={"max_steps": 20}
    )
    only = Constraint(kind="required", resources=("ordinary",))
    taken = 0
    for number in range(count):
        parsed = _EVENT.validate_python(event(rng, scheduler, number))
        try:
            scheduler.handle(parsed)
            taken += 1
        except EventError as error:
            assert str(error)
        if number % 20 == 19:
            for name in [name for name in scheduler.state.jobs if name.startswith("ordinary")]:
                scheduler.cancel(job=name)
            name = f"ordinary{number}"
            mine = FlowTask(name=name, demands={"memory": 2}, constraints=(only,))
            scheduler.submit(FlowJob(name=name, tasks=(mine,)))
            scheduler.step(now_s=float(number))
            held = any(each.held and each.machine == "own" for each in scheduler.state.tasks.values())
            if scheduler.state.rules.priority is not None and not held:  # borg: it alone is of the first class
                assert scheduler.machine_of(name) == "own", scheduler.reason(name)
            assert within_capacity(scheduler)
            if len(scheduler.state.tasks) > 40:
                for job in list(scheduler.state.jobs)[:10]:
                    scheduler.cancel(job=job)
    assert taken > count / 3


def thirds(demand: float, capacity: float, tasks: int) -> int:
    box = Machine(name="m", slots=100, capacity={"x": capacity})
    scheduler = FlowScheduler(FlowInstance(name="thirds", machines=(box,)))
    each = tuple(FlowTask(name=f"t{k}", demands={"x": demand}) for k in range(tasks))
    scheduler.submit(FlowJob(name="j", tasks=each))
    delta = scheduler.step(now_s=0.0)
    assert delta.certificate is not None and delta.certificate.claim == "optimal"
    return delta.running


def test_amounts_with_many_digits_are_exact() -> None:
    """Thirds of a GPU, Kubernetes' 1.1Gi and plain bytes; nothing is rounded, whatever the digits."""
    assert thirds(1 / 3, 4.0, 13) == 12
    assert thirds(0.33333333333333337, 4.0, 13) == 11
    assert thirds(1.1 * 2**30, 10 * 2.0**30, 10) == 9
    assert thirds(1168723596.0, 20 * 1168723596.0 - 1, 25) == 19
    assert thirds(1e300, 1e-300, 1) == 0
    assert thirds(1e-300, 1e300, 3) == 3


def saved(scheduler: FlowScheduler) -> bytes:
    scheduler.state.cluster.last = None  # what a goal computed last
    return saved_scheduler(scheduler)


WEIGHTED = (Priority(mode="weighted", lowest=1000), Placement(), Continuity(base=4, rate=2))


@settings(max_examples=6)
@given(
    seed=st.integers(0, 2**32),
    goals=st.sampled_from([preset("quincy"), preset("borg"), WEIGHTED, (FairShares(), Placement())]),
    limit=st.sampled_from([20, 1500, 10**6]),
)
def test_a_refused_event_leaves_no_trace(seed: int, goals: tuple[Goal, ...], limit: int) -> None:
    """Followers see taken events only: the saved state, and so every later decision, is as if it had not come."""
    rng = random.Random(seed)
    scheduler = FlowScheduler(FlowInstance(name="hostile", machines=()), goals, scale=1, cost_limit=limit)
    for number in range(40):
        said = event(rng, scheduler, number)
        if said["event"] == "submit":  # no demands, capacities and few slots: full solves and arcs of slots take time
            said["job"]["tasks"] = [each | {"demands": {}} for each in said["job"]["tasks"]]
        elif said["event"] == "add_machine":
            said["machine"] |= {"slots": min(said["machine"]["slots"], 3), "capacity": {}}
        if said["event"] in ("tie", "set_goals"):
            scheduler.step(now_s=45.0 * number)
            continue
        parsed = _EVENT.validate_python({k: v for k, v in said.items() if k not in ("gangs", "spreads", "affinities")})
        before = saved(scheduler)
        try:
            scheduler.handle(parsed)
        except EventError as error:
            assert saved(scheduler) == before, parsed
            assert said["event"] != "remove_machine" or "no machine is named" in str(error)


class Cool(Goal):
    """A goal of another package: at least two machines, and none that is hot."""

    def price(self, task, spot, machine, cluster, scale):  # type: ignore[no-untyped-def]
        names = [machine] if machine else list(cluster.members(spot))
        hot = any("hot" in cluster.machines[name].labels for name in names)
        return 10**7 if hot or len(cluster.machines) < 2 else 1


def cool(*rules: GroupRule, **more: Any) -> FlowScheduler:
    machines = tuple(Machine(name=f"m{k}", slots=2, rack=f"r{k % 2}", **more) for k in range(3))
    scheduler = FlowScheduler(FlowInstance(name="cool", machines=machines), (Cool(),), scale=1, wait_cost=10)
    scheduler.submit(FlowJob(name="j", tasks=tuple(FlowTask(name=f"t{k}") for k in range(3))), *rules)
    scheduler.step(1.0)
    return scheduler


def test_a_refused_change_of_a_machine_leaves_no_trace() -> None:
    scheduler = cool()
    for change in (
        lambda: scheduler.relabel("m1", labels=("hot",)),
        lambda: scheduler.add_machine(Machine(name="m9", labels=("hot",), rack="new")),
    ):
        before = saved(scheduler)
        with pytest.raises(EventError, match=r"goal Cool|exceeds the limit"):
            change()
        assert saved(scheduler) == before


@pytest.mark.parametrize("rules", [(), (Gang(name="g", tasks=("t0", "t1")),)], ids=str)
@pytest.mark.parametrize("capacity", [{}, {"cpu": 4}], ids=str)
def test_a_removed_machine_is_gone_whatever_it_costs(rules: tuple[GroupRule, ...], capacity: dict[str, float]) -> None:
    """A task without a cost within the limit waits, and says so, until it has one again; any state with it loads."""
    scheduler = cool(*rules, capacity=capacity)
    assert len(scheduler.placements()) == 3
    scheduler.remove_machine("m1")
    scheduler.remove_machine("m2")
    document = json.loads(gzip.decompress(saved_scheduler(scheduler)).partition(b"\n")[0])
    other = json.dumps(document | {"code": "another version"}).encode() + b"\n"
    for each in (scheduler, restored_scheduler(gzip.compress(other), (Cool(),))):
        delta = each.step(2.0)
        assert not each.placements() and len(delta.stopped) == len(delta.waiting) == 3
        assert all("a cost of 10000000 (scale 1) exceeds the limit of 1000000" in why for _, why in delta.waiting)
        why = each.explain("t0")
        assert (why.rule, why.price) == ("placement", None) and "raise cost_limit" in why.remedy
        with pytest.raises(EventError, match="nothing can be certified"):
            each.audit()
        each.add_machine(Machine(name="m3", slots=2, capacity=capacity))
        assert each.step(3.0).running == 3
        assert each.audit().certificate.claim == "optimal"  # type: ignore[union-attr]
