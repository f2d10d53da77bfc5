"""Random clusters whose tasks need CPU and memory."""

import numpy as np

from flowlex.instances.flow import Constraint, FlowInstance, FlowJob, FlowTask, Machine, RunningOn


def cluster(seed: int, tasks: int = 5, machines: int = 3) -> FlowInstance:
    """A random cluster with too little of some resource."""
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
    """Return the cluster with the first fitting task running on the first machine."""
    jobs = [job.model_dump() for job in instance.jobs]
    box = instance.machines[0]
    for job in jobs:
        task = job["tasks"][0]
        if not job["different_machines"] and all(box.capacity[r] >= a for r, a in task["demands"].items()):
            task["running"] = RunningOn(machine="m0", elapsed_s=100.0).model_dump()
            break
    return FlowInstance.model_validate({**instance.model_dump(), "jobs": jobs})
