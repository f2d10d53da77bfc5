"""Tasks that ask for CPU and memory: against all schedules there are, and against a program written here."""

from __future__ import annotations

import copy
import itertools
import json
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from flowlex import solve
from flowlex.formulations.engines import solve as solve_formulation
from flowlex.formulations.outcome import EngineError, Status
from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask, Machine, RunningOn
from flowlex.models.base import ModelError
from flowlex.models.flow.goals import Continuity, FairShares, LoadSpread, Placement, Priority
from flowlex.models.flow.model import FlowScheduling
from flowlex.models.flow.vectors import search
from flowlex.validation.certificates import verify

BORG = (Priority(), Placement(), Continuity(base=4, rate=2), LoadSpread())


def cluster(seed: int, tasks: int = 5, machines: int = 3) -> FlowInstance:
    """A random cluster that is short of something."""
    rng = np.random.default_rng(seed)
    boxes = tuple(
        Machine(
            name=f"m{m}",
            slots=int(rng.integers(1, 4)),
            labels=("ssd",) if rng.random() < 0.5 else (),
            capacity={"cpu": float(rng.integers(2, 9)) / 2, "gb": int(rng.integers(2, 9))},
        )
        for m in range(machines)
    )
    jobs, left = [], tasks
    while left:
        count = min(left, int(rng.integers(1, 4)))
        demands = {"cpu": float(rng.integers(1, 6)) / 2, "gb": int(rng.integers(0, 6))}
        constraint = Constraint(
            kind=str(rng.choice(["required", "forbidden", "preferred", "avoided"])), resources=("ssd",), utility=3
        )
        made = []
        for k in range(count):
            free = rng.random() < 0.3
            made.append(
                FlowTask(
                    name=f"t{left}-{k}",
                    demands=demands if free else {"cpu": float(rng.integers(1, 6)) / 2, "gb": 1},
                    constraints=(constraint,) if rng.random() < 0.4 else (),
                    costs={"m0": int(rng.integers(-3, 6))} if rng.random() < 0.2 else {},
                )
            )
        rule = "apart" if rng.random() < 0.3 else None
        most = int(rng.integers(1, 4)) if rng.random() < 0.3 else None
        least = 1 if rng.random() < 0.5 else 0
        jobs.append(
            FlowJob(
                name=f"j{left}",
                tasks=tuple(made),
                priority=int(rng.integers(0, 3)),
                different_machines=rule,
                max_tasks=most,
                min_tasks=min(least, most or 1),
            )
        )
        left -= count
    return FlowInstance(name=f"random-{seed}", machines=boxes, jobs=tuple(jobs))


def settle(instance: FlowInstance) -> FlowInstance:
    """The same with the first task that fits the first machine running there."""
    jobs = [job.model_dump() for job in instance.jobs]
    box = instance.machines[0]
    for job in jobs:
        task = job["tasks"][0]
        if not job["different_machines"] and all(box.capacity[r] >= a for r, a in task["demands"].items()):
            task["running"] = RunningOn(machine="m0", elapsed_s=100.0).model_dump()
            break
    return FlowInstance.model_validate({**instance.model_dump(), "jobs": jobs})


def price(instance: FlowInstance, task: FlowTask, machine: Machine) -> dict[str, int] | None:
    """What a task costs on a machine by goal; None where it must not run."""
    liked = 0
    for c in task.constraints:
        has = bool(set(c.resources) & set(machine.labels))
        if (c.kind == "required" and not has) or (c.kind == "forbidden" and has):
            return None
        if has and c.kind in ("preferred", "avoided"):
            liked += 3 if c.kind == "avoided" else -3
    placing = task.costs.get(machine.name, liked)
    stays = task.running is not None and task.running.machine == machine.name
    return {"Placement": int(placing), "Continuity": -(4 + 2 * 1) if stays else 0}  # 100 s: one doubling of a minute


def judged(instance: FlowInstance, at: tuple[int, ...], *, caps: bool, ranked: bool) -> tuple[int, ...] | None:
    """What a schedule (machine by task, -1 for none) costs stage by stage; None where it is none."""
    tasks = [(job, task) for job in instance.jobs for task in job.tasks]
    cost = {"Placement": 0, "Continuity": 0, "LoadSpread": 0}
    for m, machine in enumerate(instance.machines):
        here = [(job, task) for (job, task), where in zip(tasks, at, strict=True) if where == m]
        rules = [job.different_machines for job, _ in here if job.different_machines]
        if len(here) > machine.slots or len(rules) != len(set(rules)):
            return None
        for resource, amount in machine.capacity.items():
            if sum(Fraction(str(task.demands.get(resource, 0))) for _, task in here) > Fraction(str(amount)):
                return None
        for _, task in here:
            each = price(instance, task, machine)
            if each is None:
                return None
            for goal, units in each.items():
                cost[goal] += units
        cost["LoadSpread"] += len(here) * (len(here) - 1) // 2
    short, waiting = 0, dict.fromkeys(sorted({job.priority for job in instance.jobs}), 0)
    for job in instance.jobs:
        running = sum(where >= 0 for (other, _), where in zip(tasks, at, strict=True) if other is job)
        if caps and job.max_tasks is not None and running > job.max_tasks:
            return None
        short += max(0, min(job.min_tasks, len(job.tasks)) - running) if caps else 0
        waiting[job.priority] += len(job.tasks) - running
    costs = tuple(cost[g] for g in ("Placement", "Continuity", "LoadSpread")) if ranked else (sum(cost.values()),)
    return (short, *waiting.values(), *costs)


def best(instance: FlowInstance, **options: bool) -> tuple[int, ...]:
    """The least of all schedules."""
    tasks = sum(len(job.tasks) for job in instance.jobs)
    every = itertools.product(range(-1, len(instance.machines)), repeat=tasks)
    return min(found for at in every if (found := judged(instance, at, **options)) is not None)


def stated(solution, *, ranked: bool) -> tuple[int, ...]:
    """The figures of a solution in the order of `judged`."""
    score = solution.score
    costs = tuple(dict(score.by_goal).values()) if ranked else (score.cost,)
    return (score.shortfall, *(n for _, n in score.waiting), *costs)


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_is_better_and_none_is_below_its_bound(seed: int) -> None:
    instance = settle(cluster(seed))
    caps, ranked = bool(seed % 2), seed % 3 == 0
    goals = (*BORG, FairShares(kind="caps")) if caps else BORG
    solution = FlowScheduling(instance, goals=goals, lexicographic=ranked).solve("highs")
    true = best(instance, caps=caps, ranked=ranked)
    assert solution.status is Status.OPTIMAL
    assert stated(solution, ranked=ranked) == true
    at = {machine.name: m for m, machine in enumerate(instance.machines)}
    where = tuple(at.get(solution.machine_of.get(task.name, ""), -1) for task in instance.tasks)
    assert judged(instance, where, caps=caps, ranked=ranked) == true
    assert solution.certificate.claim in ("optimal", "bounded")
    assert all(bound <= solution.stages[name] for name, bound in solution.bounds.items())
    assert verify(json.loads(json.dumps(solution.to_dict())), instance).ok


def by_program(instance: FlowInstance, *, caps: bool) -> tuple[int, ...]:
    """The least schedule by SciPy's integer programs, one after the other: a column for every task on every machine."""
    tasks = [(job, task) for job in instance.jobs for task in job.tasks]
    priced = [[price(instance, task, machine) for machine in instance.machines] for _, task in tasks]
    pairs = [(t, m) for t, row in enumerate(priced) for m, each in enumerate(row) if each is not None]
    held = [(m, k) for m, machine in enumerate(instance.machines) for k in range(machine.slots)]
    size = len(pairs) + len(held) + len(instance.jobs)
    rows, low, high = [], [], []

    def row(entries: dict[int, float], least: float, most: float) -> None:
        line = np.zeros(size)
        line[list(entries)] = list(entries.values())
        rows.append(line)
        low.append(least)
        high.append(most)

    for t in range(len(tasks)):
        row({c: 1 for c, (u, _) in enumerate(pairs) if u == t}, 0, 1)
    for m, machine in enumerate(instance.machines):
        here = [(c, tasks[t]) for c, (t, n) in enumerate(pairs) if n == m]
        slots = {len(pairs) + s: -1.0 for s, (n, _) in enumerate(held) if n == m}
        row(dict.fromkeys((c for c, _ in here), 1.0) | slots, 0, 0)
        for resource, amount in machine.capacity.items():
            row({c: task.demands.get(resource, 0) for c, (_, task) in here}, 0, amount)
        row({c: 1 for c, (job, _) in here if job.different_machines}, 0, 1)
    waiting: dict[int, dict[int, float]] = {}
    for j, job in enumerate(instance.jobs):
        mine = [c for c, (t, _) in enumerate(pairs) if tasks[t][0] is job]
        most = job.max_tasks if caps and job.max_tasks is not None else len(job.tasks)
        row(dict.fromkeys(mine, 1.0), 0, most)
        row(dict.fromkeys(mine, 1.0) | {size - len(instance.jobs) + j: 1.0}, job.min_tasks if caps else 0, np.inf)
        waiting.setdefault(job.priority, {}).update(dict.fromkeys(mine, -1.0))
    stages = [{size - len(instance.jobs) + j: 1.0 for j in range(len(instance.jobs))}]
    stages += [waiting[priority] for priority in sorted(waiting)]
    cost = {c: float(sum(priced[t][m].values())) for c, (t, m) in enumerate(pairs)}
    stages.append(cost | {len(pairs) + s: float(k) for s, (_, k) in enumerate(held)})
    found = []
    upper = np.concatenate([np.ones(size - len(instance.jobs)), [99] * len(instance.jobs)])
    for stage in stages:
        objective = np.zeros(size)
        objective[list(stage)] = list(stage.values())
        answer = milp(
            objective,
            integrality=np.ones(size),
            bounds=Bounds(np.zeros(size), upper),
            constraints=LinearConstraint(np.array(rows), low, high),
        )
        found.append(round(answer.fun))
        row(stage, -np.inf, found[-1])
    tasks_of = {p: sum(len(job.tasks) for job in instance.jobs if job.priority == p) for p in sorted(waiting)}
    return (found[0], *(n + found[1 + k] for k, n in enumerate(tasks_of.values())), found[-1])


@pytest.mark.parametrize("seed", range(100, 104))
def test_an_integer_program_written_here_finds_the_same(seed: int) -> None:
    instance = settle(cluster(seed, tasks=14, machines=5))
    caps = bool(seed % 2)
    goals = (*BORG, FairShares(kind="caps")) if caps else BORG
    solution = FlowScheduling(instance, goals=goals).solve("highs")
    assert solution.status is Status.OPTIMAL
    assert stated(solution, ranked=False) == by_program(instance, caps=caps)


@pytest.fixture(scope="module")
def hand() -> FlowInstance:
    """Three machines of 10 CPUs; six tasks of 6 and six of 4 CPUs, those with much memory."""
    boxes = tuple(Machine(name=f"m{m}", slots=10, capacity={"cpu": 10, "gb": 1.5}) for m in range(3))
    wide = tuple(FlowTask(name=f"a{k}", demands={"cpu": 6, "gb": 0.1}) for k in range(6))
    deep = tuple(FlowTask(name=f"b{k}", demands={"cpu": 4, "gb": 0.7}) for k in range(6))
    return FlowInstance(
        name="hand", machines=boxes, jobs=(FlowJob(name="a", tasks=wide), FlowJob(name="b", tasks=deep))
    )


def test_slot_sizes_prove_what_the_plain_relaxation_cannot(hand: FlowInstance) -> None:
    solution = solve(hand, "highs")
    assert (len(solution.machine_of), solution.bounds["waiting_1001"]) == (6, 6)  # relaxed: 30 CPUs hold 7.5 tasks of 4
    assert solution.certificate.claim == "optimal"
    assert set(solution.waiting.values()) == {"no machine that it may use has as much left of everything it asks for"}


def test_where_everything_fits_the_network_decides_and_proves(hand: FlowInstance) -> None:
    roomy = FlowInstance(name="roomy", machines=hand.machines, jobs=hand.jobs[:1]).model_dump()
    for machine in roomy["machines"]:
        machine["capacity"] = {"cpu": 12.5}
    solution = solve(FlowInstance.model_validate(roomy), "highs")
    assert len(solution.machine_of) == 6 and solution.weights is not None and not solution.bounds
    assert solution.certificate.claim == "optimal" and "machine" in solution.duals


def test_beyond_the_program_schedule_and_bound_stand_apart(hand: FlowInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three bins that two kinds of items leave room in, and no program allowed."""
    sizes = [5, 5, 4, 4, 3, 3, 3, 3]
    tasks = tuple(FlowTask(name=f"t{k}", demands={"cpu": size}) for k, size in enumerate(sizes))
    boxes = tuple(Machine(name=f"m{m}", slots=9, capacity={"cpu": 10}) for m in range(3))
    instance = FlowInstance(name="bins", machines=boxes, jobs=(FlowJob(name="j", tasks=tasks),))
    monkeypatch.setattr(search, "MOST_COLUMNS", 3)
    solution = solve(instance, "highs")
    assert solution.status is Status.FEASIBLE and solution.certificate.claim == "bounded"
    assert "no integer program is tried beyond 3 columns" in solution.message
    assert solution.bounds["waiting_1001"] <= 1 <= solution.stages["waiting_1001"]


def document(instance: FlowInstance) -> dict:
    return json.loads(json.dumps(solve(instance, "highs").to_dict()))


@pytest.mark.parametrize(
    "fault",
    [
        "overfull",
        "a stronger bound",
        "a bound of nothing",
        "a price below nothing",
        "a price of nobody",
        "a later stage weighed",
        "a size of nothing",
        "a resource nobody has",
        "worse, but optimal",
        "a metric",
        "a stage left out",
    ],
)
def test_changed_files_are_refused(hand: FlowInstance, fault: str) -> None:
    true = document(hand)
    assert verify(copy.deepcopy(true), hand).ok
    false = copy.deepcopy(true)
    stages, placed = false["proof"]["stages"], false["answer"]["placements"]
    first = stages["waiting_1001"]
    match fault:
        case "overfull":
            moved = next(task for task in placed if placed[task] != "m0")
            placed[moved] = "m0"
        case "a stronger bound":
            stages["cost"]["at_least"] += 1
        case "a bound of nothing":
            stages["joy"] = stages["cost"]
        case "a price below nothing":
            first["size_price"][0]["price"] = -1
        case "a price of nobody":
            first["machine_price"]["m9"] = 1
        case "a later stage weighed":
            first["weights"]["cost"] = 1
        case "a size of nothing":
            first["size_price"][0]["size"] = 0
        case "a resource nobody has":
            first["size_price"][0]["resource"] = "tape"
        case "worse, but optimal":
            lost = next(iter(placed))
            del placed[lost]
            false["answer"]["waiting"][lost] = "no room"
        case "a metric":
            false["metrics"]["waiting_1001_at_least"] += 1
        case "a stage left out":
            del false["stages"]["waiting_1001"]
    try:
        assert not verify(false, hand).ok
    except ValueError as error:
        assert "price" in str(error)


def test_what_a_person_gets_wrong_is_said(hand: FlowInstance) -> None:
    with pytest.raises(ValueError, match="has a capacity but no slots; say how many tasks it may run at most"):
        Machine(name="m", capacity={"cpu": 4})
    box = Machine(name="m", slots=2, capacity={"cpu": 4})
    runs = FlowTask(name="t", demands={"cpu": 5}, running=RunningOn(machine="m"))
    with pytest.raises(ValueError, match="machine 'm' has 4 cpu but runs tasks that ask for 5; let one of them wait"):
        FlowInstance(machines=(box,), jobs=(FlowJob(name="j", tasks=(runs,)),))
    fine = FlowTask(name="t", demands={"cpu": 1.00000000001})
    with pytest.raises(ModelError, match="amounts of 'cpu' differ in more digits"):
        solve(FlowInstance(machines=(box,), jobs=(FlowJob(name="j", tasks=(fine,)),)))
    with pytest.raises(ModelError, match="there is no stage 'joy'; the stages are: waiting_1001, cost"):
        _ = FlowScheduling(hand, stage="joy").formulation
    with pytest.raises(EngineError, match="for integer programs use 'pulp' or 'highs'"):
        FlowScheduling(settle(cluster(5)), goals=BORG).solve("network")


def test_a_task_larger_than_every_machine_waits_and_says_so() -> None:
    box = Machine(name="m", slots=2, capacity={"cpu": 4})
    tasks = tuple(FlowTask(name=f"t{size}", demands={"cpu": size}) for size in (3, 5))
    solution = solve(FlowInstance(machines=(box,), jobs=(FlowJob(name="j", tasks=tasks),)), "highs")
    assert solution.machine_of == {"t3": "m"} and solution.certificate.claim == "optimal"
    assert solution.waiting == {"t5": "no machine that it may use has as much of everything it asks for"}


def test_the_live_scheduler_refuses_capacities(hand: FlowInstance) -> None:
    from flowlex.models.flow.live.scheduler import FlowScheduler

    with pytest.raises(ModelError, match=r"the live scheduler counts slots only\. Solve the cluster as an instance"):
        FlowScheduler(hand)
    scheduler = FlowScheduler(FlowInstance(machines=()))
    with pytest.raises(ModelError, match="machine 'm0' has a capacity"):
        scheduler.add_machine(hand.machines[0])
    assert not scheduler.state.cluster.machines


def test_the_program_is_there_to_read(hand: FlowInstance) -> None:
    model = FlowScheduling(hand, stage="waiting_1001")
    program = model.formulation
    assert program.is_mip and program.constraint_blocks["capacity"].count == 6
    assert "run[a0,m0]" in program.column_names()
    assert solve_formulation(program, "highs").objective == 6
    last = FlowScheduling(hand).formulation
    assert last.constraint_blocks["stage"].rhs.tolist() == [6.0]
