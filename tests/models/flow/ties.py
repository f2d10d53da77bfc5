"""Small clusters with gangs, spreads and affinities."""

import numpy as np

from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask, Machine, RunningOn
from flowlex.models.flow.goals import Continuity, FairShares, LoadSpread, Placement, Priority

__all__ = ["GOALS", "rules_for", "tied_cluster", "with_capacities"]

GOALS = (FairShares("caps"), Priority(), Placement(), LoadSpread(2), Continuity(3, 0))


def rules_for(rng, tasks, racks):
    """Random rules over the tasks named; every task in one gang or affinity at most."""
    left = [str(t) for t in rng.permutation(tasks)]
    gangs, affinities, spreads = [], [], []
    while len(left) > 1 and rng.random() < 0.7:
        size = int(rng.integers(1, min(len(left), 4) + 1))
        some, left = left[:size], left[size:]
        within = [None, "rack", "zone"][int(rng.integers(0, 3))]
        if within is not None and rng.random() < 0.4:
            affinities.append({"name": f"a{len(affinities)}", "tasks": some, "within": within})
        else:
            gangs.append({"name": f"g{len(gangs)}", "tasks": some, "within": within})
    for k in range(int(rng.integers(0, 3))):
        some = [str(t) for t in rng.permutation(tasks)[: int(rng.integers(1, len(tasks) + 1))]]
        over = str(rng.choice(["rack", "zone"]))
        most = int(rng.integers(1, 3)) if over == "zone" or rng.random() < 0.7 else None
        limits = {str(rng.choice(racks)): 1} if over == "rack" and (most is None or rng.random() < 0.3) else {}
        spreads.append({"name": f"s{k}", "tasks": some, "over": over, "most": most, "limits": limits})
    return {"gangs": gangs, "affinities": affinities, "spreads": spreads}


def tied_cluster(seed, *, most_tasks=6):
    """Up to 4 machines and a few tasks with costs of their own, constraints and rules."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 5))
    zones = [("zone=a",), ("zone=b",), (), ("zone=a", "gpu")]
    machines = [
        Machine(
            name=f"m{k}",
            slots=int(rng.integers(0, 4)),
            rack=f"r{int(rng.integers(0, 2))}",
            labels=("zone=a",) if k == 0 else zones[int(rng.integers(0, 4))],
        )
        for k in range(count)
    ]
    room = {m.name: m.slots for m in machines}
    total, jobs = int(rng.integers(2, most_tasks + 1)), []
    while total:
        size = int(rng.integers(1, total + 1))
        tasks = []
        for k in range(size):
            name, running, constraints = f"t{total - k}", None, ()
            at = str(rng.choice(list(room)))
            if rng.random() < 0.3 and room[at]:
                room[at] -= 1
                running = RunningOn(machine=at)
            if rng.random() < 0.3:
                tag = str(rng.choice(["gpu", "rack:r0", "machine:m0"]))
                constraints = (Constraint(kind=str(rng.choice(["required", "forbidden"])), resources=(tag,)),)
            costs = {m.name: int(rng.integers(-4, 9)) for m in machines}
            tasks.append(FlowTask(name=name, running=running, constraints=constraints, costs=costs))
        total -= size
        least = int(rng.integers(0, 2))
        most = None if rng.random() < 0.7 else least + int(rng.integers(0, 3))
        apart = "red" if rng.random() < 0.2 else None
        priority, preempt_cost = int(rng.integers(0, 2)), int(rng.integers(0, 3))
        jobs.append(
            FlowJob(
                name=f"j{total}",
                tasks=tuple(tasks),
                priority=priority,
                preempt_cost=preempt_cost,
                min_tasks=least,
                max_tasks=most,
                different_machines=apart,
            )
        )
    names = [task.name for job in jobs for task in job.tasks]
    rules = rules_for(rng, names, sorted({m.rack for m in machines}))
    document = {"machines": [m.model_dump() for m in machines], "jobs": [j.model_dump() for j in jobs], **rules}
    return FlowInstance.model_validate({"name": f"tied-{seed}", **document})


def with_capacities(instance, seed):
    """The same with CPUs that are short; nothing runs yet."""
    rng, document = np.random.default_rng(seed), instance.model_dump()
    for machine in document["machines"]:
        machine["capacity"] = {"cpu": float(rng.integers(2, 8)) / 2}
    for task in (task for job in document["jobs"] for task in job["tasks"]):
        task["demands"], task["running"] = {"cpu": float(rng.integers(1, 5)) / 2}, None
    return FlowInstance.model_validate(document)
