"""Random clusters whose tasks ask for CPU and memory, what schedules of them cost, and the least of all."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask, Machine, RunningOn


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
